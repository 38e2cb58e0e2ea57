package bucket

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// call is one call of the package, made of one or more tries.
type call struct {
	op    string // "get object", for texts
	full  string // key with prefix
	stall time.Duration
}

func (b *Bucket) call(op, full string) call {
	return call{op: op, full: full, stall: b.cfg.StallTimeout}
}

// watch gives up a try on whose connection nothing moves.
type watch struct {
	timer *time.Timer
	stall time.Duration
}

// moved says that bytes moved.
func (w *watch) moved() { w.timer.Reset(w.stall) }

// reader reports what is read through it.
func (w *watch) reader(r io.ReadSeeker) io.ReadSeeker { return &watchedReader{r, w} }

type watchedReader struct {
	io.ReadSeeker
	w *watch
}

func (r *watchedReader) Read(p []byte) (int, error) {
	r.w.moved()
	return r.ReadSeeker.Read(p)
}

// try runs a call's tries until one succeeds, the trouble is one that does not
// pass, the tries are used up, or the context's deadline leaves no room for
// another. Its errors are failures.
func (b *Bucket) try(ctx context.Context, c call, f func(ctx context.Context, w *watch) error) error {
	for n := 1; ; n++ {
		if ctx.Err() != nil {
			return b.ended(ctx, c, nil)
		}
		p, err := b.once(ctx, c, f)
		if err == nil {
			return nil
		}
		fail := &failure{op: c.op, object: b.url(c.full), problem: p}
		if ctx.Err() != nil {
			return b.ended(ctx, c, fail)
		}
		if limit := p.tries; n >= b.cfg.Tries || limit > 0 && n >= limit {
			if n > 1 {
				fail.detail += fmt.Sprintf(" (after %d tries)", n)
			}
			return fail
		}
		wait := b.wait(n)
		pause, done := context.WithTimeout(ctx, wait)
		if late(ctx, pause) {
			done()
			fail.detail += fmt.Sprintf(" (no time for another try after %d)", n)
			return fail
		}
		b.log.WarnContext(ctx, "object store: trying again", "op", c.op, "object", b.url(c.full), "code", p.code, "detail", p.detail,
			"try", n, "wait", wait)
		if b.cfg.OnRetry != nil {
			b.cfg.OnRetry()
		}
		<-pause.Done()
		done()
		if ctx.Err() != nil {
			return b.ended(ctx, c, fail)
		}
	}
}

// late says that a pause does not end before the context's deadline: the pause,
// being a context of it, has the same deadline then.
func late(ctx, pause context.Context) bool {
	end, ok := ctx.Deadline()
	resume, _ := pause.Deadline()
	return ok && !resume.Before(end)
}

// once runs one try under the watch.
func (b *Bucket) once(ctx context.Context, c call, f func(ctx context.Context, w *watch) error) (problem, error) {
	one, cancel := context.WithCancelCause(ctx)
	w := &watch{stall: c.stall}
	w.timer = time.AfterFunc(c.stall, func() { cancel(fmt.Errorf("%w: nothing moved for %s", errStalled, c.stall)) })
	defer cancel(nil)
	defer w.timer.Stop()
	err := f(one, w)
	if err == nil {
		return problem{}, nil
	}
	return diagnose(one, err), err
}

// wait is the time before the try after the n-th: half of it fixed, half by chance.
func (b *Bucket) wait(n int) time.Duration {
	d := b.cfg.RetryBase << min(n-1, 20)
	if d > longestWait || d < b.cfg.RetryBase {
		d = longestWait
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // no secret
}

// ended is the failure of a call whose context ended.
func (b *Bucket) ended(ctx context.Context, c call, last *failure) error {
	f := &failure{op: c.op, object: b.url(c.full), problem: problem{kind: ctx.Err(), cause: context.Cause(ctx)}}
	if f.cause.Error() != f.kind.Error() {
		f.detail = f.cause.Error()
	}
	if last != nil && last.code != "" && last.code != "connection" {
		if f.detail != "" {
			f.detail += "; "
		}
		f.detail += "before: " + last.kind.Error() + ": " + last.problem.detail
	}
	return f
}
