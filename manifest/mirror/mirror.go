package mirror

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// Errors that the adapter's errors are told apart by.
var (
	// ErrExists says that an object is there already.
	ErrExists = errors.New("object exists")
	// ErrNotFound says that an object is not there.
	ErrNotFound = errors.New("object not found")
)

// Objects is where the mirror is: the bucket.
type Objects interface {
	// Put stores an object; with ifAbsent it is ErrExists when another is there already.
	Put(ctx context.Context, key string, body []byte, ifAbsent bool) error
	// Get reads a whole object; ErrNotFound when it is missing.
	Get(ctx context.Context, key string) ([]byte, error)
}

// Lister is the bucket as compacting uses it.
type Lister interface {
	List(ctx context.Context, prefix string, fn func(key string, size int64) error) error
	Delete(ctx context.Context, keys ...string) error
}

// Mirror puts into the bucket what a manifest alone knows.
type Mirror struct {
	store   *manifest.Store
	objects Objects
	owner   string // names this process
	log     *slog.Logger
}

// New makes a Mirror.
func New(store *manifest.Store, objects Objects, owner string, log *slog.Logger) *Mirror {
	return &Mirror{store: store, objects: objects, owner: owner, log: log}
}

// batch is how many statuses one object has at most.
const batch = 5000

// Statuses puts statuses that the bucket does not have, and gives their number.
func (m *Mirror) Statuses(ctx context.Context) (n int, err error) {
	for {
		all, err := m.store.UnmirroredStatuses(ctx, batch)
		if err != nil || len(all) == 0 {
			return n, err
		}
		if err := m.store.MayMirror(ctx); err != nil {
			return n, err
		}
		var b bytes.Buffer
		for i := range all {
			if err := writeLine(&b, &all[i]); err != nil {
				return n, err
			}
		}
		if err := m.putStatuses(ctx, b.Bytes()); err != nil {
			return n, fmt.Errorf("put %d statuses into the bucket: %w", len(all), err)
		}
		if err := m.store.StatusesMirrored(ctx, all); err != nil {
			return n, err
		}
		if n += len(all); len(all) < batch {
			return n, nil
		}
	}
}

func writeLine(b *bytes.Buffer, st *manifest.Status) error {
	line, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("status of message %d: %w", st.MessageID, err)
	}
	b.Write(line)
	b.WriteByte('\n')
	return nil
}

// putStatuses puts lines under a key of their own.
func (m *Mirror) putStatuses(ctx context.Context, lines []byte) error {
	now, err := m.store.Now(ctx)
	if err != nil {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	key := manifest.StatusesPrefix(m.store.Source()) + now.UTC().Format("20060102T150405.000000Z") + "-" + hex.EncodeToString(id[:]) + ".ndjson"
	return m.objects.Put(ctx, key, lines, true)
}

// some is how many slices are listed at once.
const some = 1000

// Purges puts marks of purges that have none: those from before there were any. Slices
// that another process works on are left, and counted.
func (m *Mirror) Purges(ctx context.Context) (n, left int, err error) {
	for last := uint64(0); ; {
		ids, err := m.store.Unmarked(ctx, last, some)
		if err != nil || len(ids) == 0 {
			return n, left, err
		}
		for _, id := range ids {
			last = id
			switch err := m.purge(ctx, id); {
			case errors.Is(err, manifest.ErrLeased), errors.Is(err, manifest.ErrState), errors.Is(err, manifest.ErrLeaseLost):
				left++
			case err != nil:
				return n, left, err
			default:
				n++
			}
		}
	}
}

// Purge puts the marks of one slice's purge where the bucket lacks them, as Purges does. A
// slice that another process works on is ErrLeased, ErrState or ErrLeaseLost.
func (m *Mirror) Purge(ctx context.Context, slice uint64) error { return m.purge(ctx, slice) }

// purge marks the purge of one slice, under its lease: what is known of its chunks must
// not change meanwhile.
func (m *Mirror) purge(ctx context.Context, id uint64) (err error) {
	s, err := m.store.Slice(ctx, id)
	if err != nil {
		return err
	}
	l, err := m.store.Claim(ctx, id, m.owner, []manifest.State{s.State}, s.State)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		err = errors.Join(err, l.Release(ctx, s.State))
	}()
	s = l.Slice()
	c, err := m.store.LoadHead(ctx, id, s.Live)
	if err != nil {
		return err
	}
	now, err := m.store.Now(ctx)
	if err != nil {
		return err
	}
	mark := manifest.PurgeMark{SliceKey: s.SliceKey, Generation: c.Generation, Attempt: c.Attempt, Purge: manifest.NewPurge(), At: now, By: m.owner}
	if s.State == manifest.Purged {
		mark.Kind = manifest.MarkPurged
		if err := m.putMark(ctx, mark); err != nil && !errors.Is(err, ErrExists) {
			return err
		}
		return l.Marked(ctx, c.Generation, manifest.MarkPurged)
	}
	mark.Kind, mark.Staging = manifest.MarkPurging, s.Staging
	err = m.putMark(ctx, mark)
	if err == nil && s.State != manifest.Purging { // where it stopped is known
		mark.Kind, mark.Staging, mark.Chunks = manifest.MarkStopped, "", manifest.ChunkRuns(c.Chunks)
		err = m.putMark(ctx, mark)
	}
	if err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	return l.Marked(ctx, c.Generation, manifest.MarkPurging)
}

const releaseTime = 10 * time.Second

func (m *Mirror) putMark(ctx context.Context, mark manifest.PurgeMark) error {
	b, err := manifest.EncodeMark(mark)
	if err != nil {
		return err
	}
	key := manifest.MarkKey(mark.SliceKey, mark.Generation, mark.Kind)
	if err := m.objects.Put(ctx, key, b, mark.Kind != manifest.MarkStopped); err != nil {
		return fmt.Errorf("put the purge mark %s: %w", key, err)
	}
	return nil
}
