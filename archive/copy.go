package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// scanRanges is into how many ranges of equal time a slice is cut, each read by a
// connection of its own.
const scanRanges = 3

// copySlice makes a copy of a slice: its objects are in the bucket and its rows in
// ClickHouse when it returns, and nothing refers to them yet.
func (a *Archiver) copySlice(ctx context.Context, lease *manifest.Lease, t Table, gen uint32, j *job) (_ *manifest.Copy, err error) {
	s := lease.Slice()
	if err := t.Reload(ctx); err != nil {
		return nil, err
	}
	now, err := a.Manifest.Now(ctx)
	if err != nil {
		return nil, err
	}
	c := &manifest.Copy{SliceKey: s.SliceKey, Lo: s.Lo, Hi: s.Hi, Generation: gen, Attempt: lease.Attempt(),
		Schema: t.Schema(), ShowCreate: t.ShowCreate(), CopiedAt: now}
	keep, err := a.former(ctx, s)
	if err != nil {
		return nil, err
	}
	if keep != nil { // rows of its time have no value in columns that came later
		if c.Schema, err = c.Schema.Widen(keep.copy.Schema); err != nil {
			return nil, err
		}
	}
	if err := keep.settle(ctx, t); err != nil {
		return nil, fmt.Errorf("wait for a purge that ended in the middle: %w", err)
	}
	if err := a.Rows.Fit(ctx, []*message.Schema{c.Schema}); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(a.cfg.TempDir, "coldtier-")
	if err != nil {
		return nil, fmt.Errorf("temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	sort, err := newSorter(c.Schema, dir, int(a.cfg.perSlice()/8))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sort.close()) }()

	// Before the scan: a status that is put later is the next generation's.
	statuses, err := a.Manifest.StatusesBetween(ctx, s.Lo, s.Hi)
	if err != nil {
		return nil, err
	}
	fold := newFold(statuses, a.Log)
	if c.Chunks, err = a.scan(ctx, t, s, sort, keep, fold, j); err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	if err := t.Reload(ctx); err != nil {
		return nil, err
	}
	if !t.Schema().SameColumns(c.Schema) {
		return nil, fmt.Errorf("the columns of %s changed while it was copied; the next run copies it with the new ones", t.Shard())
	}
	j.scanned(ctx)
	if keep != nil {
		if err := a.carry(ctx, keep, c, sort, fold); err != nil {
			return nil, fmt.Errorf("carry rows of generation %d: %w", keep.copy.Generation, err)
		}
	}
	c.Statuses = fold.statuses()
	if err := a.step(ctx, "archive.scanned"); err != nil {
		return nil, err
	}
	if err := a.store(ctx, c, sort, dir, j); err != nil {
		return nil, err
	}
	return c, nil
}

// scan reads the slice's rows into the sorter and gives its chunks.
func (a *Archiver) scan(ctx context.Context, t Table, s manifest.Slice, sort *sorter, keep *former, fold *fold, j *job) ([]manifest.Chunk, error) {
	if s.Lo == s.Hi { // a day that never was, where a zone skipped one
		return []manifest.Chunk{{From: s.Lo, To: s.Hi, State: manifest.ChunkPresent}}, nil
	}
	parts := make([][]manifest.Chunk, scanRanges)
	g, gctx := errgroup.WithContext(ctx)
	step := (s.Hi - s.Lo) / scanRanges
	for i := range scanRanges {
		from, to := s.Lo+uint64(i)*step, s.Lo+uint64(i+1)*step
		if i == scanRanges-1 {
			to = s.Hi
		}
		if from == to {
			continue
		}
		g.Go(func() error {
			next := from
			if err := a.Pace.Wait(gctx, s.Shard); err != nil {
				return err
			}
			err := t.Scan(gctx, from, to, func(ch message.Chunk) error {
				if ch.From != next || ch.To < ch.From || ch.To > to {
					return fmt.Errorf("chunk [%d, %d) does not follow on %d: the scan has a gap", ch.From, ch.To, next)
				}
				next = ch.To
				parts[i] = append(parts[i], manifest.Chunk{From: ch.From, To: ch.To, Warm: ch.Fingerprint, State: manifest.ChunkPresent})
				j.chunk(&ch)
				if err := a.timeUp(); err != nil {
					return err
				}
				a.Pace.Read(s.Shard, ch.Batch.Len(), ch.Batch.Bytes())
				keep.see(i, ch.Batch)
				fold.warm(ch.Batch)
				if err := sort.add(ch.Batch); err != nil || next == to {
					return err
				}
				return a.Pace.Wait(gctx, s.Shard)
			})
			if err == nil && next != to {
				err = fmt.Errorf("the scan of [%d, %d) ended at %d", from, to, next)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	chunks := slices.Concat(parts...)
	for i := range chunks {
		chunks[i].Seq = i
	}
	return chunks, nil
}

// former is the verified generation before the one being made, and what is to be
// carried from it.
type former struct {
	copy *manifest.Copy
	// touched says of each of its chunks whether warm may no longer have all of its
	// rows: the purge was at it, or it holds rows that were carried before.
	touched []bool
	rows    [scanRanges][]uint64 // IDs that warm has, of each range of the scan, ascending
}

// former loads the generation whose rows the next one must not lose; nil when
// there is none.
func (a *Archiver) former(ctx context.Context, s manifest.Slice) (*former, error) {
	if s.Live == 0 {
		return nil, nil //nolint:nilnil // the first generation has none before it
	}
	c, err := a.Manifest.LoadCopy(ctx, s.ID, s.Live)
	if err != nil {
		return nil, err
	}
	f := &former{copy: c, touched: make([]bool, len(c.Chunks))}
	for i, ch := range c.Chunks {
		f.touched[i] = ch.State != manifest.ChunkPresent || ch.Carried.Rows > 0 || s.Reason == manifest.ReasonLate
	}
	m, err := a.marks(ctx, s.SliceKey, s.Live)
	if err != nil {
		return nil, err
	}
	p := m.Progress(s.SliceKey, s.Live, c.Attempt)
	if p.Damaged != nil {
		a.Log.WarnContext(ctx, "a purge mark is damaged; all rows of the former generation are kept", "slice", s.SliceKey.String(), "error", p.Damaged)
	}
	if f.remember(p) {
		a.Log.WarnContext(ctx, "the bucket knows of a purge that the manifest has forgotten; what it may have taken is kept", "slice", s.SliceKey.String(), "generation", s.Live)
	}
	return f, nil
}

// settle waits for deletes that are not committed yet. Their worker may be frozen, or
// the server busy with the commit: rows that the scan still sees may go afterwards, and
// they must not be counted among those that warm has.
func (f *former) settle(ctx context.Context, t Table) error {
	if f == nil {
		return nil
	}
	for _, ch := range f.copy.Chunks {
		if ch.State == manifest.ChunkDeleting {
			if err := t.Settle(ctx, ch.From, ch.To); err != nil {
				return err
			}
		}
	}
	return nil
}

// see notes which rows warm has. Ranges are seen at once, each in order.
func (f *former) see(part int, b *message.Batch) {
	if f == nil {
		return
	}
	for i := range b.Len() {
		f.rows[part] = append(f.rows[part], b.MessageID(i))
	}
}

// carry adds to the sorter the former generation's rows that warm no longer has
// because the purge deleted them (or may have: where a delete's outcome is
// unknown, or where a whole chunk has vanished, the rows are kept). Rows that warm
// has win over the former generation's of the same message ID. Rows of chunks that
// nothing touched follow warm: what was deleted there by its users stays deleted. The
// former generation is compared with its commit as it is, before anything is folded.
func (a *Archiver) carry(ctx context.Context, f *former, c *manifest.Copy, sort *sorter, fold *fold) error {
	warm := slices.Concat(f.rows[:]...)
	count := func(from, to uint64) int {
		lo, _ := slices.BinarySearch(warm, from)
		hi, _ := slices.BinarySearch(warm, to)
		return hi - lo
	}
	touched := false
	for i, ch := range f.copy.Chunks {
		if !f.touched[i] && ch.Warm.Rows > 0 && count(ch.From, ch.To) == 0 {
			f.touched[i] = true
		}
		touched = touched || f.touched[i]
	}
	if !touched {
		return nil
	}
	for _, col := range f.copy.Schema.Columns() {
		if c.Schema.Index(col.Name) < 0 {
			return fmt.Errorf("column %s was dropped from %s since, and rows that are no longer in MySQL have values in it: add the column again (NULL) so that they can be kept", col.Name, c.Shard)
		}
	}
	var h message.Hasher
	read := message.Fingerprint{}
	err := a.verifier.readBack(ctx, f.copy, func(b *message.Batch) error {
		read = read.Add(h.Batch(b, 0, b.Len()))
		kept := message.NewBatch(b.Schema())
		for i := range b.Len() {
			id := b.MessageID(i)
			if !f.touched[chunkOf(f.copy.Chunks, id)] {
				continue
			}
			if _, inWarm := slices.BinarySearch(warm, id); inWarm {
				continue
			}
			if err := kept.AppendFrom(b, i); err != nil {
				return err
			}
		}
		kept, err := message.Project(kept, c.Schema)
		if err != nil {
			return err
		}
		if kept, err = fold.carried(ctx, kept); err != nil {
			return err
		}
		for i := range kept.Len() {
			ch := &c.Chunks[chunkOf(c.Chunks, kept.MessageID(i))]
			ch.Carried = ch.Carried.Add(h.Batch(kept, i, i+1))
		}
		return sort.add(kept)
	})
	if err != nil {
		return err
	}
	if want := f.copy.Fingerprint(); read != want {
		return fmt.Errorf("%w: generation %d reads %s, its commit says %s", ErrMismatch, f.copy.Generation, read, want)
	}
	return nil
}

// chunkOf is the chunk an ID of the slice lies in; the chunks cover the slice.
func chunkOf(chunks []manifest.Chunk, id uint64) int {
	i, found := slices.BinarySearchFunc(chunks, id, func(ch manifest.Chunk, id uint64) int { return cmp.Compare(ch.From, id) })
	if !found {
		i--
	}
	return min(max(i, 0), len(chunks)-1)
}

// store writes the sorted rows to the bucket and to ClickHouse.
func (a *Archiver) store(ctx context.Context, c *manifest.Copy, sort *sorter, dir string, j *job) error {
	j.begin(manifest.StageStore, c.Fingerprint().Rows, 0)
	rows, err := a.Rows.Insert(ctx, c.ID(), c.Schema)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(2 + max(4, a.cfg.Uploads/a.cfg.Workers))
	inserts := make(chan *message.Batch, 4)
	g.Go(func() error {
		for b := range inserts {
			if err := rows.Write(gctx, b, 0, b.Len()); err != nil {
				return err
			}
			j.inserted.Add(uint64(b.Len())) //nolint:gosec // a count
		}
		return rows.Close(gctx)
	})
	up := &uploads{a: a, ctx: gctx, g: g, copy: c, dir: dir, job: j, limit: a.cfg.perSlice() / 4}
	up.memory = semaphore.NewWeighted(up.limit)
	// The blocks are produced in the group too, so that the first failure of any part ends all.
	g.Go(func() error {
		defer close(inserts)
		err := sort.sorted(func(b *message.Batch) error {
			if err := a.mayGoOn(gctx); err != nil {
				return err
			}
			select {
			case inserts <- b:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
			return up.add(b)
		})
		return errors.Join(err, up.finish(err != nil))
	})
	if err := g.Wait(); err != nil {
		rows.Abort()
		return err
	}
	slices.SortFunc(up.objects, func(x, y manifest.Object) int { return cmp.Compare(x.Key, y.Key) })
	c.Objects = up.objects
	stored := uint64(0)
	for i := range c.Objects {
		stored += uint64(c.Objects[i].File.Rows) //nolint:gosec // a count
	}
	if want := c.Fingerprint().Rows; stored != want {
		return fmt.Errorf("%w: %d rows were scanned, %d written", ErrMismatch, want, stored)
	}
	return a.step(ctx, "archive.stored")
}

type uploads struct {
	a    *Archiver
	ctx  context.Context
	g    *errgroup.Group
	copy *manifest.Copy
	dir  string
	job  *job

	conv  []byte
	parts []part // of the conversation that is being gathered
	bytes int
	big   *bigFile // when it outgrew parts

	writers sync.Pool // of *segment.Writer
	memory  *semaphore.Weighted
	limit   int64 // of memory

	mu      sync.Mutex
	objects []manifest.Object
}

// part is rows [from, to) of a block.
type part struct {
	b        *message.Batch
	from, to int
}
