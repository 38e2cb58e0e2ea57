package archive

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// noteWorkEvery is how often the manifest is told how far a slice is; slices that take
// less are not noted at all.
const noteWorkEvery = 3 * time.Second

// job is a slice in work: its slot, and how far it is. The nil job tells nobody.
type job struct {
	Progress
	a     *Archiver
	lease *manifest.Lease
	slot  *slot
	span  uint64 // of message IDs

	stage                             atomic.Value // manifest.Stage
	rows, ofRows, bytes, ofBytes, ids atomic.Uint64
	objects, inserted                 atomic.Uint64
	noted                             bool
	last                              manifest.Work
	wg                                sync.WaitGroup
	stop                              context.CancelFunc
}

// track begins to tell the manifest how far a slice is.
func (a *Archiver) track(ctx context.Context, l *manifest.Lease, s *slot, p Progress) *job {
	sl := l.Slice()
	j := &job{Progress: p, a: a, lease: l, slot: s, span: sl.Hi - sl.Lo}
	j.stage.Store(manifest.StageScan)
	ctx, j.stop = context.WithCancel(ctx)
	j.wg.Go(func() {
		tick := time.NewTicker(noteWorkEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				j.note(ctx)
			}
		}
	})
	return j
}

func (j *job) note(ctx context.Context) {
	w := j.work()
	if j.noted && w == j.last {
		return
	}
	if err := j.lease.NoteWork(ctx, w); err != nil {
		if ctx.Err() == nil {
			j.a.Log.WarnContext(ctx, "progress not noted", "slice", j.lease.Slice().SliceKey.String(), "error", err)
		}
		return
	}
	j.noted, j.last = true, w
}

// work is how far it is. IDs are spread evenly over their day, nearly, so the share of
// them that was scanned tells how many rows there will be.
func (j *job) work() manifest.Work {
	stage, _ := j.stage.Load().(manifest.Stage) // nothing else is stored
	w := manifest.Work{Stage: stage, Rows: j.rows.Load(), OfRows: j.ofRows.Load(), Bytes: j.bytes.Load(), OfBytes: j.ofBytes.Load(),
		Objects: j.objects.Load(), Inserted: j.inserted.Load()}
	if ids := j.ids.Load(); stage == manifest.StageScan && ids > 0 {
		more := float64(j.span) / float64(ids)
		w.OfRows, w.OfBytes = uint64(float64(w.Rows)*more), uint64(float64(w.Bytes)*more)
	}
	return w
}

// end stops telling, and takes back what was told.
func (j *job) end(ctx context.Context) {
	j.stop()
	j.wg.Wait()
	if !j.noted {
		return
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	if err := j.lease.EndWork(clean); err != nil {
		j.a.Log.WarnContext(ctx, "progress not taken back; it is no longer shown when the lease ends", "slice", j.lease.Slice().SliceKey.String(), "error", err)
	}
}

// begin begins a stage of so much.
func (j *job) begin(s manifest.Stage, rows, bytes uint64) {
	j.rows.Store(0)
	j.bytes.Store(0)
	j.ofRows.Store(rows)
	j.ofBytes.Store(bytes)
	j.stage.Store(s)
}

// chunk counts a chunk of the scan.
func (j *job) chunk(c *message.Chunk) {
	j.Rows(c.Batch.Len())
	j.rows.Add(uint64(c.Batch.Len()))    //nolint:gosec // a count
	j.bytes.Add(uint64(c.Batch.Bytes())) //nolint:gosec // a size
	j.ids.Add(c.To - c.From)
}

// scanned says that nothing more is read of warm.
func (j *job) scanned(ctx context.Context) { j.slot.release(ctx) }

// put counts an object.
func (j *job) put(rows, bytes int64) {
	j.objects.Add(1)
	j.rows.Add(uint64(rows))   //nolint:gosec // a count
	j.bytes.Add(uint64(bytes)) //nolint:gosec // a size
}

// reading counts the bytes that are read back.
type reading struct {
	Objects
	j *job
}

func (r reading) Get(ctx context.Context, key string) ([]byte, error) {
	b, err := r.Objects.Get(ctx, key)
	r.j.bytes.Add(uint64(len(b)))
	return b, err
}

func (r reading) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	b, err := r.Objects.ReadRange(ctx, key, off, n)
	r.j.bytes.Add(uint64(len(b)))
	return b, err
}
