package rehydrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore/selection"
)

// slice restores one slice.
func (x *execution) slice(ctx context.Context, s *Slice, sink Sink, out *SliceReport) error {
	r := x.r
	if s.Held { // before the first row is in warm, where the next purge would find it
		if err := r.cfg.Live.Keeper.Keep(ctx, s.SliceKey); err != nil {
			return err
		}
		if err := r.step(ctx, "restore.kept"); err != nil {
			return err
		}
		if err := r.quiet(ctx, s); err != nil {
			return err
		}
	}
	any, err := again(ctx, r, func() (bool, error) { return sink.Any(ctx, s.From, s.To) })
	if err == nil && any && s.Held { // not those that a delete is about to take
		any, err = again(ctx, r, func() (bool, error) { return sink.Settle(ctx, s.From, s.To) })
	}
	if err != nil {
		return err
	}
	if any { // they may all be there
		want, known, err := r.Reader.Known(ctx, x.sel, s.Slice)
		if err != nil {
			return err
		}
		if known {
			if out.Found, err = x.look(ctx, s, sink); err != nil {
				return err
			}
			if out.Found == want {
				out.Outcome, out.Archived, out.Rows, out.Present = There, want, want.Rows, want.Rows
				r.Progress.Rows(int(want.Rows)) //nolint:gosec // a count of rows
				return nil
			}
		}
	}
	w := &writing{x: x, s: s, sink: sink, out: out, fresh: !any}
	read, err := w.run(ctx)
	if read != nil {
		out.Rows, out.Archived, out.Statuses = read.Rows, read.Fingerprint, read.Statuses
		out.Generation, out.Damaged, out.Requests, out.BytesRead = read.Generation, read.Damaged, read.Requests, read.Bytes
	}
	if err != nil && !errors.Is(err, selection.ErrLost) {
		return err
	}
	if err := r.step(ctx, "restore.written"); err != nil {
		return err
	}
	if e := x.compare(ctx, s, sink, out); e != nil {
		return errors.Join(err, e)
	}
	if s.Held { // from now on, since writing may have taken long
		if e := r.cfg.Live.Keeper.Keep(ctx, s.SliceKey); e != nil {
			return errors.Join(err, e)
		}
	}
	switch {
	case out.Conflicts+out.Refused > 0:
		out.Outcome = Partly
	case out.Inserted == 0:
		out.Outcome = There
	default:
		out.Outcome = Restored
	}
	return err
}

// manyRows is from how many rows on a slice is looked at by several statements at once.
const manyRows = 50_000

// look is the fingerprint of what the table has in the selected rows' place.
func (x *execution) look(ctx context.Context, s *Slice, sink Sink) (sum message.Fingerprint, err error) {
	parts := uint64(1)
	if s.Rows >= manyRows {
		parts = uint64(x.r.cfg.Writers) //nolint:gosec // small
	}
	got := make([]message.Fingerprint, parts)
	g, ctx := errgroup.WithContext(ctx)
	for i := range parts {
		from, to := s.From+(s.To-s.From)/parts*i, s.To
		if i+1 < parts {
			to = s.From + (s.To-s.From)/parts*(i+1)
		}
		g.Go(func() (err error) {
			got[i], err = again(ctx, x.r, func() (message.Fingerprint, error) { return sink.Fingerprint(ctx, from, to, s.Conversations) })
			return err
		})
	}
	err = g.Wait()
	for _, f := range got {
		sum = sum.Add(f)
	}
	return sum, err
}

// compare compares what the table has, computed there, with what was read from the
// archive, less the rows that are named. Where it differs, row by row: rows that nobody
// archived are no fault.
func (x *execution) compare(ctx context.Context, s *Slice, sink Sink, out *SliceReport) (err error) {
	if out.Found, err = x.look(ctx, s, sink); err != nil {
		return err
	}
	if out.Found == out.Archived.Add(out.less) {
		return nil
	}
	var missing, changed []uint64
	absent := uint64(0)
	_, err = x.r.Reader.Read(ctx, x.sel, s.Slice, func(b *message.Batch) error {
		type compared struct {
			Written
			absent []uint64
		}
		c, err := again(ctx, x.r, func() (c compared, err error) {
			c.Written, c.absent, err = sink.Compare(ctx, b)
			return c, err
		})
		absent += uint64(len(c.absent))
		for _, id := range c.absent {
			if !out.named[id] {
				missing = append(missing, id)
			}
		}
		for _, k := range c.Conflicts {
			if !out.named[k.MessageID] {
				changed = append(changed, k.MessageID)
			}
		}
		return err
	})
	if err != nil && !errors.Is(err, selection.ErrLost) {
		return err
	}
	if len(missing)+len(changed) > 0 {
		return fmt.Errorf("%w: table %s has %s where %s was archived: messages %s are not there, messages %s are others: look who else writes into the table, and run the same again", ErrDiffers, s.Table, out.Found, out.Archived, some(missing), some(changed))
	}
	if have := out.Archived.Rows - absent; out.Found.Rows > have {
		out.Extra = out.Found.Rows - have
	}
	return nil
}

// some writes the first of many IDs.
func some(ids []uint64) string {
	slices.Sort(ids)
	text := ""
	for i, id := range ids {
		if i == 5 {
			return fmt.Sprintf("%s and %d more", text, len(ids)-i)
		}
		if i > 0 {
			text += ", "
		}
		text += message.FormatID(id)
	}
	if text == "" {
		return "none"
	}
	return text
}

// tries is how often a step that was cut off is tried, with pauses that grow to
// maxPause: about half a minute, in which a server is back or is not soon.
const (
	tries      = 9
	firstPause = 100 * time.Millisecond
	maxPause   = 8 * time.Second
)

// again does a step that may be repeated, until it is not cut off.
func again[T any](ctx context.Context, r *Restorer, do func() (T, error)) (out T, err error) {
	pause := firstPause
	for n := 1; ; n++ {
		if out, err = do(); err == nil || !errors.Is(err, ErrAgain) || n == tries || ctx.Err() != nil {
			return out, err
		}
		if e := r.cfg.Sleep(ctx, pause); e != nil {
			return out, errors.Join(err, e)
		}
		pause = min(2*pause, maxPause)
	}
}
