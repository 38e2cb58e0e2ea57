package drill

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/drill/report"
)

// comparing are the checks of the step.
type comparing struct {
	sums, order, bodies, rows *check
}

// compare is the step: scratch tables, commits, objects and ClickHouse against each other.
func (r *run) compare(ctx context.Context) error {
	began, before := r.cfg.Now(), r.bucket.now()
	x := &comparing{
		sums:   r.check(report.StepCompare, "fingerprints", "the scratch server's of each slice is that of its commit"),
		order:  r.check(report.StepCompare, "counts, order and uniqueness", "in SQL, of the restored rows, as the objects have them: rows, message IDs, conversations, equal cursors, IDs against the order of cursors"),
		bodies: r.check(report.StepCompare, "bucket, byte for byte", "every byte of every object has its checksum, and every value of every row is as it was restored"),
		rows:   r.check(report.StepCompare, "ClickHouse, byte for byte", "every value of every row is as it was restored"),
	}
	done := 0
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(slicesAtOnce)
	for _, s := range r.sample {
		if s.at == nil {
			continue
		}
		done++
		g.Go(func() error { return r.compareOne(gctx, s, x) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var rows uint64
	for _, s := range r.sample {
		if s.equal {
			rows += s.Rows
		}
	}
	for _, c := range []*check{x.sums, x.order, x.bodies, x.rows} {
		if done == 0 {
			c.skip("no slice was restored")
			continue
		}
		c.end("")
	}
	used := r.bucket.now().since(before)
	r.stage(report.NewStage("verify", r.cfg.Now().Sub(began), rows, used.bytes, used.requests()))
	return nil
}

// compareOne compares one slice.
func (r *run) compareOne(ctx context.Context, s *sampled, x *comparing) (err error) {
	copied, err := r.Deps.Manifest.LoadCopy(ctx, s.ID, s.Live.Live)
	if err != nil {
		return err
	}
	s.Attempt, s.Schema = copied.Attempt, copied.Schema
	if s.sink, err = s.at.sinkOf(ctx, s.table, s.Schema); err != nil {
		return err
	}
	puts, err := r.Deps.Manifest.StatusesBetween(ctx, s.Lo, s.Hi)
	if err != nil {
		return err
	}
	s.puts = map[uint64]bool{}
	for _, p := range puts {
		s.puts[p.MessageID] = true
	}
	good := true
	for _, step := range []func(context.Context, *sampled, *manifest.Copy, *comparing) (bool, error){r.fingerprint, r.bodies, r.clickhouse} {
		ok, err := step(ctx, s, copied, x)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("slice %s: %w", s.SliceKey, err)
		}
		good = good && ok
	}
	s.equal = s.equal && good
	return nil
}

// fingerprint compares that of the scratch table with the commit's.
func (r *run) fingerprint(ctx context.Context, s *sampled, copied *manifest.Copy, x *comparing) (bool, error) {
	want := copied.Fingerprint()
	found, err := patiently(ctx, r, func() (message.Fingerprint, error) { return s.sink.Fingerprint(ctx, s.Lo, s.Hi, nil) })
	if err != nil {
		return false, err
	}
	x.sums.count("slices", 1)
	if len(s.puts) > 0 { // then the rows differ from the commit, as bodies sees row by row
		x.sums.count("slices with statuses that were put later, compared row by row", 1)
		if found.Rows == want.Rows {
			return true, nil
		}
	}
	if found != want {
		x.sums.fail(s.noted(fmt.Sprintf("the table has %s, the commit says %s", found, want)))
	}
	return found == want, nil
}

// bodies reads the objects whole, and compares their rows with the restored ones.
func (r *run) bodies(ctx context.Context, s *sampled, copied *manifest.Copy, x *comparing) (bool, error) {
	before := x.bodies.failures(s)
	g := &gathered{schema: s.Schema, compare: func(b *message.Batch) error { return r.against(ctx, s, b, x.bodies, "the bucket") }}
	whole, f, err := r.objects(ctx, &s.Live, copied, x.bodies, g.add)
	if err != nil {
		return false, err
	}
	if err := g.flush(); err != nil {
		return false, err
	}
	x.bodies.count("objects", int64(len(copied.Objects)))
	s.first, s.last = f.first, f.last
	got, err := r.Scratch.Facts(ctx, s.at.database, s.table, s.Schema, s.Lo, s.Hi)
	if err != nil {
		return false, err
	}
	x.order.count("rows", int64(got.Rows))                   //nolint:gosec // a count
	x.order.count("conversations", int64(got.Conversations)) //nolint:gosec // a count
	if whole && f.sum != copied.Fingerprint() {
		x.bodies.fail(s.noted(fmt.Sprintf("the objects' rows are %s, the commit says %s", f.sum, copied.Fingerprint())))
	}
	if whole && got != f.Facts {
		x.order.fail(s.noted(fmt.Sprintf("restored are %s; the objects have %s", factsText(got.Rows, got.IDs, got.Conversations, got.Ties, got.Inversions), factsText(f.Rows, f.IDs, f.Conversations, f.Ties, f.Inversions))))
		return false, nil
	}
	return whole && x.bodies.failures(s) == before, nil
}

func factsText(rows, ids, conversations, ties, inversions uint64) string {
	return fmt.Sprintf("%d rows with %d message IDs in %d conversations, %d with the cursor of the one before, %d with a lower ID", rows, ids, conversations, ties, inversions)
}

// clickhouse compares ClickHouse's rows with the restored ones.
func (r *run) clickhouse(ctx context.Context, s *sampled, copied *manifest.Copy, x *comparing) (bool, error) {
	var h message.Hasher
	var sum message.Fingerprint
	var own error
	before := x.rows.failures(s)
	g := &gathered{schema: s.Schema, compare: func(b *message.Batch) error { return r.against(ctx, s, b, x.rows, "ClickHouse") }}
	err := r.rows.ReadCopy(ctx, copied.ID(), s.Schema, func(b *message.Batch) error {
		sum = sum.Add(h.Batch(b, 0, b.Len()))
		own = g.add(b)
		return own
	})
	if own == nil && ctx.Err() == nil {
		own = g.flush()
	}
	if own != nil {
		return false, own
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	x.rows.count("slices", 1)
	switch want := copied.Fingerprint(); {
	case err != nil:
		x.rows.fail(s.noted("ClickHouse: " + err.Error()))
	case sum.Rows == 0 && want.Rows > 0:
		x.rows.fail(s.noted(fmt.Sprintf("ClickHouse has no row of this generation, the commit says %d", want.Rows)))
	case sum != want && x.rows.failures(s) == before: // the rows that differ are named
		x.rows.fail(s.noted(fmt.Sprintf("ClickHouse has %s, the commit says %s", sum, want)))
	case sum.Rows != want.Rows:
		x.rows.fail(s.noted(fmt.Sprintf("ClickHouse has %d rows, the commit says %d", sum.Rows, want.Rows)))
	}
	return x.rows.failures(s) == before, nil
}

// failures is how often a check failed so far, of a slice.
func (c *check) failures(s *sampled) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[s.SliceKey.String()]
}
