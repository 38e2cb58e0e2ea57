package restore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// walk reads one page in one direction.
type walk struct {
	f        *Fetcher
	q        Query
	limit    int
	newest   bool
	now      *now
	statuses *statusRead // told when the segments are known; may be nil
	count    reads
	emit     func() error // called when more rows are safe

	given    bool // rows were given out already; the anchor is behind them
	coldOnly bool // the warm tables are not to be read

	parts    []part    // not loaded yet, nearest first
	segments int       // asked of the manifest so far
	looked   bool      // the manifest has answered
	unsure   []*looked // answers that were kept, and may be out of date
	fresh    bool      // nothing that was kept is to be used
	more     bool      // it may have more, none of them nearer than reach
	reach    *uint64
	seen     map[string]bool   // objects whose segments are known
	live     map[uint64]uint32 // generation by slice, of these
	rows     []Row             // loaded and inside the anchor, in page order
	missing  []Missing
	warm     *seam
}

// near is the end of a part that comes first in page order.
func (w *walk) near(p part) uint64 {
	if w.newest {
		return p.max
	}
	return p.min
}

// nearer says whether cursor a comes before b in page order.
func (w *walk) nearer(a, b uint64) bool {
	if w.newest {
		return a > b
	}
	return a < b
}

// inside says whether a cursor lies on the page's side of the anchor.
func (w *walk) inside(cursor uint64) bool {
	switch {
	case w.q.Before != nil:
		return cursor < *w.q.Before
	case w.q.After != nil:
		return cursor > *w.q.After
	}
	return true
}

// errStale says that a look-up that was kept is out of date.
var errStale = errors.New("what was known of the segments is out of date")

// confirm sees whether the look-ups that were kept still hold. The page is read by them
// meanwhile: what was read is of use even if they do not, since parts never change.
func (w *walk) confirm(ctx context.Context) error {
	if len(w.unsure) == 0 {
		return nil
	}
	v, err := w.now.wait(ctx)
	if err != nil {
		w.rows, w.looked = nil, false
		w.missManifest(ctx, err)
		return nil
	}
	for _, l := range w.unsure {
		if !l.holds(v) {
			w.f.m.miss(cacheManifest)
			w.fresh = true
			return errStale
		}
		w.f.m.hit(cacheManifest)
	}
	w.unsure = nil
	return nil
}

// errMoved says that a slice got another generation while a page was read.
var errMoved = errors.New("a slice was copied anew while the page was read")

// look asks the manifest for the segments in page order, more of them each time.
func (w *walk) look(ctx context.Context) error {
	w.segments = max(segmentsAtFirst, 4*w.segments)
	q := manifest.SegmentQuery{Conversation: w.q.Conversation, Before: w.q.Before, After: w.q.After, Oldest: !w.newest && w.q.After == nil, Limit: w.segments}
	var refs []manifest.SegmentRef
	after := w.now
	if l, ok := w.f.caches.looks.GetIfPresent(keyOf(q)); ok && !w.fresh {
		w.unsure, refs = append(w.unsure, l), l.refs
	} else {
		var err error
		if refs, err = w.f.find(ctx, w.now, q); err != nil {
			return err
		}
		after = w.f.begin(ctx)
	}
	if !w.looked || after != w.now {
		w.statuses.follow(ctx, after)
	}
	w.looked = true
	for _, ref := range refs {
		if g, ok := w.live[ref.SliceID]; ok && g != ref.Generation {
			return errMoved
		}
		w.live[ref.SliceID] = ref.Generation
		end := ref.Span.MaxCursor
		if !w.newest {
			end = ref.Span.MinCursor
		}
		if w.reach == nil || w.nearer(*w.reach, end) {
			w.reach = &end
		}
		if w.seen[ref.Key] || w.warm.has(ref) {
			continue
		}
		w.seen[ref.Key] = true
		for _, p := range split(ref) {
			if w.inside(p.min) || w.inside(p.max) {
				w.parts = append(w.parts, p)
			}
		}
	}
	w.more = len(refs) == w.segments
	w.order()
	return nil
}

// order puts the parts that are not loaded in page order.
func (w *walk) order() {
	slices.SortStableFunc(w.parts, func(a, b part) int {
		x, y := w.near(a), w.near(b)
		if w.newest {
			return cmp.Compare(y, x)
		}
		return cmp.Compare(x, y)
	})
}

// edge is the nearest cursor that something not loaded may have; ok is false when
// all is loaded.
func (w *walk) edge() (cursor uint64, ok bool) {
	nearest := func(c uint64) {
		if !ok || w.nearer(c, cursor) {
			cursor, ok = c, true
		}
	}
	if len(w.parts) > 0 {
		nearest(w.near(w.parts[0]))
	}
	if w.more && w.reach != nil {
		nearest(*w.reach)
	}
	if far, more := w.warm.edge(); more {
		nearest(far)
	}
	return cursor, ok
}

// safe is how many of the loaded rows no row that is not loaded can precede.
func (w *walk) safe() int {
	if !w.looked || !w.warm.read() {
		return 0
	}
	edge, ok := w.edge()
	if !ok {
		return len(w.rows)
	}
	n, _ := slices.BinarySearchFunc(w.rows, edge, func(r Row, edge uint64) int {
		if w.nearer(r.Cursor(), edge) {
			return -1
		}
		return 1
	})
	return n
}

// retries is how often a page is begun anew because something was moved meanwhile.
const retries = 4

// read loads what the page needs, or as much of it as comes in time.
func (w *walk) read(ctx context.Context) error {
	for try := 1; ; try++ {
		err := w.try(ctx)
		if err == nil {
			err = w.confirm(ctx)
		}
		if !errors.Is(err, errMoved) && !errors.Is(err, errStale) {
			return err
		}
		w.now, w.fresh = nil, true
		if try == retries {
			w.miss(Missing{Cause: CauseWarm, Reason: err.Error()})
			w.looked = false // nothing of this try is given
			return nil
		}
	}
}

func (w *walk) try(ctx context.Context) error {
	w.parts, w.rows, w.missing, w.unsure, w.segments, w.more, w.looked, w.reach = nil, nil, nil, nil, 0, false, false, nil
	w.seen, w.live = map[string]bool{}, map[uint64]uint32{}
	if err := w.readWarm(ctx); err != nil || len(w.missing) > 0 {
		return err
	}
	if w.now == nil || w.warm != nil { // what warm had no longer, the manifest must be asked for after it
		w.now = w.f.begin(ctx)
	}
	if err := w.lookOrMiss(ctx); err != nil || len(w.missing) > 0 {
		return err
	}
	if err := w.warm.settled(ctx, w.now); err != nil {
		return w.warmMiss(ctx, err)
	}
	for !w.enough() {
		if w.more && (len(w.parts) == 0 || w.nearer(*w.reach, w.near(w.parts[0]))) {
			if err := w.lookOrMiss(ctx); err != nil {
				return err
			}
			if len(w.missing) > 0 {
				return nil
			}
			continue
		}
		if len(w.parts) == 0 {
			return nil
		}
		ok, err := w.load(ctx)
		if !ok || err != nil || len(w.missing) > 0 {
			return err
		}
	}
	return nil
}

// enough says whether the page is full and it is known whether there is more: another
// row is loaded, or the next part begins with one.
func (w *walk) enough() bool {
	n := w.safe()
	if w.full() < n {
		return true
	}
	if n != w.limit || len(w.parts) == 0 {
		return n > w.limit
	}
	near := w.near(w.parts[0])
	return w.inside(near) && !(w.more && w.nearer(*w.reach, near))
}

// full is how many of the safe rows have pageBytes together, but one at least.
func (w *walk) full() int {
	n, bytes := w.safe(), 0
	for i, r := range w.rows[:min(n, w.limit+1)] {
		for c := range r.Batch.Schema().Len() {
			bytes += len(r.Batch.Value(c, r.Index))
		}
		if bytes >= pageBytes {
			return i + 1
		}
	}
	return n
}

// lookOrMiss looks segments up; a manifest that does not answer is something missing.
func (w *walk) lookOrMiss(ctx context.Context) error {
	err := w.look(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errMoved), errors.Is(err, manifest.ErrConversation):
		return err
	}
	w.missManifest(ctx, err)
	return nil
}

func (w *walk) missManifest(ctx context.Context, err error) {
	w.miss(Missing{Cause: CauseManifest, Reason: "the manifest does not answer: " + plain(ctx, err)})
}

// partsAtOnce is how many parts are read at once, and pageBytes how many bytes of values
// make a page full, whatever its limit: so that neither reads nor answers are without
// bound where messages are big.
const (
	partsAtOnce = 32
	pageBytes   = 8 << 20
)

// load reads the next parts: as many, at once, as are expected to fill the page. It is
// false when the nearest of them cannot be had.
func (w *walk) load(ctx context.Context) (bool, error) {
	want, n, bytes := int64(w.limit+1-w.safe()), 0, int64(0)
	for have := int64(0); n < len(w.parts) && n < partsAtOnce && (n == 0 || have < want && bytes < pageBytes); n++ {
		have += w.parts[n].rows
		bytes += w.parts[n].ref.File.RowGroups[w.parts[n].group].Length
	}
	flights := w.f.load(ctx, w.parts[:n], w.q.from(), &w.count)
	if w.f.dead() { // what was begun before may still come, but is not waited for as if it were likely
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.f.cfg.HedgeAfter, errDead)
		defer cancel()
	}
	var left []part
	for _, fl := range flights {
		err := w.arrive(ctx, fl)
		if err == nil {
			w.merge(w.inPage(fl.got.batch, fl.got.store))
			if w.emit == nil || len(left) > 0 {
				continue
			}
			w.parts = w.parts[1:] // the nearest, so that rows become safe
			n--
			if err := w.emit(); err != nil {
				return false, err
			}
			continue
		}
		left = append(left, fl.part)
		w.missPart(fl.part, ctx, err)
	}
	w.parts = append(left, w.parts[n:]...)
	return len(left) == 0, nil
}

// arrive waits for a part.
func (w *walk) arrive(ctx context.Context, fl *flight) error {
	if err := await(ctx, fl.done); err != nil {
		return err
	}
	return fl.err
}

// errDead is why parts are not waited for.
var errDead = errors.New("neither ClickHouse nor the bucket has answered lately")

// inPage gives a batch's rows inside the anchor, in page order.
func (w *walk) inPage(b *message.Batch, from Store) []Row {
	rows := make([]Row, 0, b.Len())
	for i := range b.Len() {
		if w.inside(b.Cursor(i)) {
			rows = append(rows, Row{Batch: b, Index: i, Store: from})
		}
	}
	if w.newest {
		slices.Reverse(rows)
	}
	return rows
}

// merge adds rows to those loaded, in page order. A row that is there already (by its
// cursor and message ID) is not added again, and one that warm has is warm's: that is
// newer.
func (w *walk) merge(rows []Row) {
	if w.warm != nil {
		rows = slices.DeleteFunc(rows, func(r Row) bool { return w.warm.ids[r.MessageID()] && r.Store != FromWarm })
	}
	w.rows = append(w.rows, rows...)
	slices.SortStableFunc(w.rows, func(a, b Row) int {
		c := message.Compare(a.Batch, a.Index, b.Batch, b.Index)
		if w.newest {
			return -c
		}
		return c
	})
	w.rows = slices.CompactFunc(w.rows, func(a, b Row) bool { return a.MessageID() == b.MessageID() && a.Cursor() == b.Cursor() })
}

func (w *walk) miss(m Missing) { w.missing = append(w.missing, m) }
