package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// due says which parts of a generation are to be read, and how much of the bucket still
// may be. The zero due is all of everything.
type due struct {
	before *time.Time // parts that were read since are not, unless they were different
	round  *time.Time // parts that were read since are not in any case
	budget *int64     // bytes left; nil: no limit
	read   bool       // something of the budget was used
}

func (d *due) is(p manifest.Part) bool {
	switch {
	case p.Read == nil:
		return true
	case d.round != nil && !p.Read.Before(*d.round):
		return false
	}
	return p.Error != "" || d.before == nil || p.Read.Before(*d.before)
}

// spent says that the budget is used up.
func (d *due) spent() bool { return d.budget != nil && *d.budget <= 0 }

// take chooses objects within the budget, the least recently read first. One that is
// greater than a whole budget is read alone, lest it never is.
func (d *due) take(c *manifest.Copy, claim *manifest.CheckClaim) (some []int, left int) {
	for i := range c.Objects {
		if d.is(claim.Object(i)) {
			some = append(some, i)
		}
	}
	if d.budget == nil {
		return some, 0
	}
	slices.SortStableFunc(some, func(a, b int) int { return compareTimes(claim.Object(a).Read, claim.Object(b).Read) })
	for n, i := range some {
		size := c.Objects[i].File.Size
		if size > *d.budget && d.read {
			*d.budget = 0 // what comes next is not as due as this
			return some[:n], len(some) - n
		}
		d.read = true
		*d.budget -= size
	}
	return some, 0
}

// compareTimes orders times; nil is the first.
func compareTimes(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return a.Compare(*b)
}

// visit reads what is due of one generation and notes it.
type visit struct {
	v        *Verifier
	claim    *manifest.CheckClaim
	due      *due
	out      *VerifyOutcome
	objects  int // that the generation has, when it is loaded
	loaded   bool
	finished bool

	mu      sync.Mutex
	notes   []manifest.ObjectNote
	bytes   int64     // of notes
	noted   time.Time // when they were last given to the manifest
	damaged []error
	nothing bool // nothing was due: another run read it
}

// What is read is noted now and then, so that a run that dies reads little again.
const (
	noteBytes = 64 << 20
	noteEvery = 5 * time.Second
	noteMost  = 2000
)

// mostDamaged bounds the objects that an error names; the outcome has all.
const mostDamaged = 20

// counted is a bucket that counts the bytes it gives.
type counted struct {
	Objects
	n *atomic.Int64
}

func (c counted) Get(ctx context.Context, key string) ([]byte, error) {
	b, err := c.Objects.Get(ctx, key)
	c.n.Add(int64(len(b)))
	return b, err
}

func (c counted) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	b, err := c.Objects.ReadRange(ctx, key, off, n)
	c.n.Add(int64(len(b)))
	return b, err
}

// generation reads what is due of a generation of a slice. It goes on beyond an object
// that is not as it was committed: all of them are in the outcome.
func (x *visit) generation(ctx context.Context, s manifest.Slice, generation uint32) error {
	c, err := x.v.Manifest.LoadCopy(ctx, s.ID, generation)
	if err != nil {
		return err
	}
	x.objects, x.loaded, x.noted = len(c.Objects), true, x.v.Clock()
	x.out.Rows, x.out.Bytes = c.Fingerprint().Rows, c.Bytes()
	rows := x.due.is(x.claim.Rows)
	some, left := x.due.take(c, x.claim)
	x.out.Objects, x.out.ObjectsLeft = len(some), left
	x.nothing = !rows && len(some)+left == 0
	var n atomic.Int64
	v := *x.v
	v.Objects = counted{x.v.Objects, &n}
	g, gctx := errgroup.WithContext(ctx)
	var different error // ClickHouse's rows; not an error of the group, which would end the objects
	g.Go(func() error {
		if !rows {
			return nil
		}
		err := x.v.rows(gctx, c)
		if err != nil && !errors.Is(err, ErrMismatch) {
			return err
		}
		problem := ""
		if different = err; err != nil {
			problem = err.Error()
		}
		return x.claim.NoteRows(gctx, problem)
	})
	objects := v.eachOf(ctx, c, some, func(ctx context.Context, i int) error { return x.object(ctx, &v, c, i) })
	err = g.Wait()
	x.out.BytesRead = n.Load()
	if more := len(x.out.Damaged) - len(x.damaged); more > 0 {
		x.damaged = append(x.damaged, fmt.Errorf("%w: so are %d more objects", ErrMismatch, more))
	}
	slices.SortFunc(x.out.Damaged, func(a, b Damage) int { return cmp.Compare(a.Key, b.Key) })
	return errors.Join(errors.Join(x.damaged...), objects, different, err, x.v.newest(ctx, s))
}

// object reads one object and notes it. That it is damaged is no error here.
func (x *visit) object(ctx context.Context, v *Verifier, c *manifest.Copy, i int) error {
	o := &c.Objects[i]
	err := v.object(ctx, c, o, func(*message.Batch, message.Fingerprint) error { return nil })
	if err != nil && !errors.Is(err, ErrMismatch) {
		return err
	}
	note := manifest.ObjectNote{Seq: i, Bytes: o.File.Size}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		note.Error = err.Error()
		d := Damage{Key: o.Key, Rows: o.File.Rows, Reason: err.Error()}
		var in *rowsError
		if errors.As(err, &in) {
			d.FirstRow, d.Rows, d.Reason = in.first, in.rows, in.err.Error()
		}
		x.out.Damaged = append(x.out.Damaged, d)
		if len(x.damaged) < mostDamaged {
			x.damaged = append(x.damaged, fmt.Errorf("object %s: %w", o.Key, err))
		}
	}
	x.notes, x.bytes = append(x.notes, note), x.bytes+note.Bytes
	if len(x.notes) < noteMost && x.bytes < noteBytes && x.v.Clock().Sub(x.noted) < noteEvery {
		return nil
	}
	return x.note(ctx)
}

// note gives the manifest what was read.
func (x *visit) note(ctx context.Context) error {
	if err := x.claim.Note(ctx, x.notes); err != nil {
		return err
	}
	x.notes, x.bytes, x.noted = nil, 0, x.v.Clock()
	return x.v.step(ctx, "verify.noted")
}

// finish notes the rest and ends the claim.
func (x *visit) finish(ctx context.Context) (manifest.Check, error) {
	x.finished = true
	if !x.loaded {
		return manifest.Check{}, x.claim.Release(ctx)
	}
	if len(x.notes) > 0 {
		if err := x.note(ctx); err != nil {
			return manifest.Check{}, err
		}
	}
	return x.claim.Finish(ctx, x.objects)
}
