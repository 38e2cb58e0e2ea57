package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/manifest/mirror"
)

// mirrored is a bucket for mirror.
type mirrored struct{ b *bucket.Bucket }

func (m mirrored) Put(ctx context.Context, key string, body []byte, ifAbsent bool) error {
	err := m.b.Put(ctx, key, bytes.NewReader(body), int64(len(body)), bucket.PutOptions{IfNoneMatch: ifAbsent, ContentType: "application/json"})
	return also(err, [2]error{bucket.ErrExists, mirror.ErrExists})
}

func (m mirrored) Get(ctx context.Context, key string) ([]byte, error) {
	b, err := m.b.Get(ctx, key)
	return b, also(err, [2]error{bucket.ErrNotFound, mirror.ErrNotFound})
}

func (m mirrored) List(ctx context.Context, prefix string, fn func(key string, size int64) error) error {
	return m.b.List(ctx, prefix, func(i bucket.Info) error { return fn(i.Key, i.Size) })
}

func (m mirrored) Delete(ctx context.Context, keys ...string) error { return m.b.Delete(ctx, keys...) }

func (a *app) mirror(p *parts) *mirror.Mirror {
	return mirror.New(p.manifest, mirrored{p.bucket}, p.owner, a.log)
}

// mirrorAll puts into the bucket what the manifest alone knows, whatever put it there.
func (a *app) mirrorAll(ctx context.Context, p *parts) error {
	// A run that ends because the manifest is out of reach is not to wait for it once more.
	soon, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	if _, err := p.manifest.Now(soon); err != nil {
		return fmt.Errorf("what the manifest knows alone is left to the next coldtier archive: %w", err)
	}
	m := a.mirror(p)
	_, unreadable, err := m.Recall(ctx, mirrored{p.bucket})
	if err != nil {
		return err
	}
	if len(unreadable) > 0 {
		a.log.Warn("holds in the bucket cannot be read; nothing is purged until they are restored or deleted", "keys", unreadable)
	}
	holds, err := m.Holds(ctx)
	if err != nil {
		return err
	}
	stops, err := m.Stops(ctx)
	if err != nil {
		return err
	}
	rules, unreadable, err := m.Rules(ctx, mirrored{p.bucket})
	if err != nil {
		return err
	}
	if len(unreadable) > 0 {
		a.log.Warn("rules in the bucket cannot be read; nothing is purged until they are restored, or a policy is set anew", "keys", unreadable)
	}
	purges, left, err := m.Purges(ctx)
	if err != nil {
		return err
	}
	statuses, err := m.Statuses(ctx)
	if err != nil {
		return err
	}
	gone, err := m.Compact(ctx, mirrored{p.bucket})
	if errors.Is(err, bucket.ErrDenied) {
		a.log.Warn("small objects of statuses are not put together: the bucket's account needs s3:DeleteObject below manifest/statuses/", "error", err)
		err = nil
	}
	if holds+stops+rules+purges+statuses+gone > 0 {
		a.log.Info("what the manifest knew alone is in the bucket", "holds", holds, "stops", stops, "rules", rules, "purges", purges, "statuses", statuses, "status_objects_put_together", gone, "slices_left_to_others", left)
	}
	return err
}

// recallHolds makes the manifest know what is held, also when it was set back to before
// it; what may be a hold on anything is refused.
func (a *app) recallHolds(ctx context.Context, p *parts) error {
	_, unreadable, err := a.mirror(p).Recall(ctx, mirrored{p.bucket})
	if err == nil && len(unreadable) > 0 {
		err = mark(fmt.Errorf("%s in the bucket cannot be read, the first %s: what they hold is not known: restore them from a former version, or delete them if they are known to be released", count(len(unreadable), "hold"), unreadable[0]), errUnsafe)
	}
	return err
}

// mirrorHold puts holds into the bucket. They are in force already: so that it cannot be
// done is done in part.
func (a *app) mirrorHold(ctx context.Context, p *parts) error {
	err := a.openBucket(ctx, p)
	if err == nil {
		_, err = a.mirror(p).Holds(ctx)
	}
	if err == nil {
		return nil
	}
	return mark(fmt.Errorf("it counts, but it is not in the bucket yet, and would be lost with the manifest; the next coldtier archive puts it there: %w", err), errPartial)
}

// mirrorEvery is how often a server puts statuses into the bucket.
const mirrorEvery = time.Second

// mirrorStatuses puts statuses into the bucket until the context ends, and once more
// then. Where the account may not, it says so once and leaves them to archive.
func (a *app) mirrorStatuses(ctx context.Context, p *parts, reg prometheus.Registerer) (wait func()) {
	waiting := prometheus.NewGauge(prometheus.GaugeOpts{Name: "coldtier_statuses_unmirrored", Help: "Statuses that are in the manifest alone, not in the bucket yet."})
	failed := prometheus.NewCounter(prometheus.CounterOpts{Name: "coldtier_mirror_failures_total", Help: "Times that statuses could not be put into the bucket."})
	reg.MustRegister(waiting, failed)
	done := make(chan struct{})
	go func() {
		defer close(done)
		m := a.mirror(p)
		told := false
		once := func(ctx context.Context, most time.Duration) {
			ctx, cancel := context.WithTimeout(ctx, most)
			defer cancel()
			_, err := m.Statuses(ctx)
			if err == nil {
				waiting.Set(0)
				told = false
				return
			}
			if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
				failed.Inc()
				if !told {
					told = true
					a.log.Warn("statuses are not put into the bucket (its account needs s3:PutObject below manifest/statuses/); they are left to coldtier archive", "error", err)
				}
			}
			if u, err := p.manifest.Unmirrored(ctx); err == nil {
				waiting.Set(float64(u.Statuses))
			}
		}
		for ctx.Err() == nil {
			once(ctx, lateTimeout)
			pause := mirrorEvery
			if told {
				pause = lateEvery
			}
			_ = sleep(ctx, pause) // its end is the loop's
		}
		once(context.WithoutCancel(ctx), endTime)
	}()
	return func() { <-done }
}

func statusCount(n int) string {
	if n == 1 {
		return "1 status"
	}
	return humanize.Comma(int64(n)) + " statuses"
}
