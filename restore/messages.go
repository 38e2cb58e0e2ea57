package restore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Messages reads messages of a conversation by their IDs. A message can lie nowhere but
// in the slices of its ID's day, so one look-up gives all that is to be read, and each
// row group is read once however many of the messages it has.
func (f *Fetcher) Messages(ctx context.Context, q MessagesQuery) (*Messages, error) {
	begun := f.cfg.Clock()
	switch {
	case q.Conversation == nil:
		return nil, fmt.Errorf("%w: no conversation is given", ErrQuery)
	case len(q.IDs) == 0 || len(q.IDs) > f.cfg.MaxLimit:
		return nil, fmt.Errorf("%w: %d message IDs: want 1 to %d", ErrQuery, len(q.IDs), f.cfg.MaxLimit)
	}
	leave, ok := f.limits.Enter(q.Tenant, q.Conversation)
	if !ok {
		p := busy(nil)
		return &Messages{State: p.State, RetryAfter: p.RetryAfter, Missing: p.Missing, Unknown: slices.Clone(q.IDs)}, nil
	}
	defer leave()
	ctx, cancel := f.within(ctx, q.Budget)
	defer cancel()
	n := f.begin(ctx)
	seen := f.statusesOf(ctx, n, q.Conversation)
	k := &pick{f: f, conversation: q.Conversation, from: FromAny, now: n, statuses: seen}
	if err := k.byID(ctx, q.IDs); err != nil {
		return nil, refused(err)
	}
	p := &Page{State: Complete, Missing: k.missing}
	want := map[uint64]bool{}
	for _, id := range q.IDs {
		want[id] = true
	}
	for _, r := range k.rows {
		if want[r.MessageID()] {
			p.Rows = append(p.Rows, r)
			want[r.MessageID()] = false
		}
	}
	p, err := f.finish(ctx, Query{Conversation: q.Conversation, Only: q.Only}, p, seen)
	if err != nil {
		return nil, err
	}
	m := &Messages{Rows: p.Rows, State: Complete, Missing: p.Missing, Requests: int(k.count.bucket.Load()), Queries: int(k.count.rows.Load())}
	given := map[uint64]bool{}
	for _, r := range m.Rows {
		given[r.MessageID()] = true
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(q.IDs))) {
		switch {
		case given[id]:
		case len(m.Missing) > 0 && (!want[id] || k.unsure(id)):
			m.Unknown = append(m.Unknown, id)
		default:
			m.Absent = append(m.Absent, id)
		}
	}
	if len(m.Unknown) > 0 {
		m.State, m.RetryAfter = stateOf(m.Missing, len(m.Rows))
	} else {
		m.Missing = nil
	}
	m.Took = f.cfg.Clock().Sub(begun)
	f.m.messages(m, f.cfg.Budget)
	return m, nil
}

// pick reads the rows of a conversation that may have some message IDs.
type pick struct {
	f            *Fetcher
	conversation []byte
	from         Store

	now      *now
	statuses *statusRead // told when the segments are known; may be nil
	count    reads
	sequence bool  // the tables have a sequence
	rows     []Row // in message.Compare order
	missing  []Missing
	days     map[snowflake.Day]bool // of what is missing
	all      bool                   // nothing at all is known
}

// unsure says whether a message may be in what could not be read.
func (k *pick) unsure(id uint64) bool {
	return k.all || k.days[k.f.cfg.Layout.DayOf(id, k.f.cfg.Zone)]
}

// miss notes something missing of which no day is known.
func (k *pick) miss(m Missing) {
	k.missing, k.all, k.rows = append(k.missing, m), true, nil
}

func (k *pick) byID(ctx context.Context, ids []uint64) error {
	for try := 1; ; try++ {
		k.rows, k.missing, k.days, k.all = nil, nil, map[snowflake.Day]bool{}, false
		err := k.try(ctx, ids)
		if !errors.Is(err, errMoved) {
			return err
		}
		if try == retries {
			k.miss(Missing{Cause: CauseWarm, Reason: err.Error()})
			return nil
		}
	}
}

func (k *pick) try(ctx context.Context, ids []uint64) error {
	var warm *seam
	if k.f.Warm != nil {
		var err error
		if warm, err = k.warm(ctx, ids); err != nil {
			k.miss(Missing{Cause: CauseWarm, Reason: "the warm tables do not answer: " + plain(ctx, err)})
			return nil
		}
	}
	if k.now == nil || warm != nil { // what warm had no longer, the manifest must be asked for after it
		k.now = k.f.begin(ctx)
	}
	days := map[snowflake.Day][]uint64{}
	var list []snowflake.Day
	for _, id := range ids {
		day := k.f.cfg.Layout.DayOf(id, k.f.cfg.Zone)
		if days[day] == nil {
			list = append(list, day)
		}
		days[day] = append(days[day], id)
	}
	refs, err := k.f.find(ctx, k.now, manifest.SegmentQuery{Conversation: k.conversation, Days: list, Limit: math.MaxInt32})
	if err != nil {
		if errors.Is(err, manifest.ErrConversation) {
			return err
		}
		k.miss(Missing{Cause: CauseManifest, Reason: "the manifest does not answer: " + plain(ctx, err)})
		return nil
	}
	k.statuses.follow(ctx, k.f.begin(ctx))
	if err := warm.settled(ctx, k.now); err != nil {
		if errors.Is(err, errMoved) {
			return err
		}
		k.miss(Missing{Cause: CauseManifest, Reason: "the manifest does not answer: " + plain(ctx, err)})
		return nil
	}
	var parts []part
	for _, ref := range refs {
		if !warm.has(ref) {
			parts = append(parts, k.holding(ctx, ref, days[ref.Slice.Day])...)
		}
	}
	k.load(ctx, parts, warm)
	return nil
}

// warm reads the messages that the warm tables have.
func (k *pick) warm(ctx context.Context, ids []uint64) (*seam, error) {
	s, err := k.f.openSeam(ctx, k.conversation)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	err = s.each(ctx, func(ctx context.Context, shard manifest.Shard, staging string) error {
		b, err := k.f.Warm.Messages(ctx, shard, k.conversation, ids, staging)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		k.sequence = k.sequence || b.Schema().Role(message.Sequence) >= 0
		for i := range b.Len() {
			if !s.ids[b.MessageID(i)] {
				s.ids[b.MessageID(i)] = true
				k.rows = append(k.rows, Row{Batch: b, Index: i, Store: FromWarm})
			}
		}
		return nil
	})
	return s, err
}

// holding are the parts of a segment that may have one of the message IDs: where the
// cursor is the ID the manifest says which; else, for a segment of several row groups,
// its object's footer does.
func (k *pick) holding(ctx context.Context, ref manifest.SegmentRef, ids []uint64) []part {
	parts := split(ref)
	may := func(part, uint64) bool { return true }
	if ref.Schema.Role(message.Sequence) < 0 {
		may = func(p part, id uint64) bool { return id >= p.min && id <= p.max }
	} else {
		k.sequence = true
		if len(parts) > 1 {
			if bounds, err := k.f.footer(ctx, ref, &k.count); err == nil {
				may = func(p part, id uint64) bool { return bounds[p.group].may(id) }
			} // without it all of them are read
		}
	}
	return slices.DeleteFunc(parts, func(p part) bool { return !slices.ContainsFunc(ids, func(id uint64) bool { return may(p, id) }) })
}

func (k *pick) load(ctx context.Context, parts []part, warm *seam) {
	w := &walk{f: k.f, q: Query{Conversation: k.conversation}}
	for _, fl := range k.f.load(ctx, parts, k.from, &k.count) {
		if err := w.arrive(ctx, fl); err != nil {
			w.missPart(fl.part, ctx, err)
			k.days[fl.part.ref.Slice.Day] = true
			continue
		}
		for i := range fl.got.batch.Len() {
			if warm == nil || !warm.ids[fl.got.batch.MessageID(i)] {
				k.rows = append(k.rows, Row{Batch: fl.got.batch, Index: i, Store: fl.got.store})
			}
		}
	}
	k.missing = append(k.missing, w.missing...)
	slices.SortStableFunc(k.rows, func(a, b Row) int { return message.Compare(a.Batch, a.Index, b.Batch, b.Index) })
	k.rows = slices.CompactFunc(k.rows, func(a, b Row) bool { return a.MessageID() == b.MessageID() && a.Cursor() == b.Cursor() })
}

// bounds are the lowest and highest message ID of a row group.
type bounds struct {
	min, max uint64
	known    bool
}

func (b bounds) may(id uint64) bool { return !b.known || id >= b.min && id <= b.max }

// footer reads the bounds of the message IDs of an object's row groups.
func (f *Fetcher) footer(ctx context.Context, ref manifest.SegmentRef, count *reads) ([]bounds, error) {
	if b, ok := f.caches.footers.GetIfPresent(ref.Key); ok {
		f.m.hit(cacheFooters)
		return b, nil
	}
	f.m.miss(cacheFooters)
	request := ctx
	b, _, err := f.footers.Do(ctx, ref.Key, func(ctx context.Context) ([]bounds, error) {
		ctx = f.valued(ctx, request)
		done, err := f.bucketBreaker.Allow()
		if err != nil {
			return nil, errUnwell
		}
		count.bucket.Add(1)
		data, err := f.Objects.ReadRange(ctx, ref.Key, ref.File.Footer.Offset, ref.File.Footer.Length)
		done(err == nil || !bucketError(err))
		if err != nil {
			return nil, err
		}
		r, err := segment.OpenFooter(ref.File, data)
		if err != nil {
			f.damaged(part{ref: ref, group: -1}, err)
			return nil, err
		}
		out := make([]bounds, len(ref.File.RowGroups))
		for i := range out {
			out[i].min, out[i].max, out[i].known = r.MessageIDs(i)
		}
		f.caches.footers.Set(ref.Key, out)
		return out, nil
	})
	return b, err
}

// aroundSegments is how many segments before a message's day are looked at for the
// place of one that does not exist.
const aroundSegments = 4

// cursorOf is the cursor of a message. Where it does not exist it is the lowest cursor
// above those of earlier messages near it: sequences need not rise with the IDs, so any
// place between its neighbours is as good.
func (f *Fetcher) cursorOf(ctx context.Context, q Query) (cursor uint64, missing []Missing, count *reads, err error) {
	id := *q.Around
	k := &pick{f: f, conversation: q.Conversation, from: q.from()}
	if err := k.byID(ctx, []uint64{id}); err != nil || len(k.missing) > 0 {
		return 0, k.missing, &k.count, err
	}
	for _, r := range k.rows {
		if r.MessageID() == id {
			return r.Cursor(), nil, &k.count, nil
		}
	}
	day := f.cfg.Layout.DayOf(id, f.cfg.Zone)
	refs, err := f.find(ctx, k.now, manifest.SegmentQuery{Conversation: q.Conversation, Until: &day, Limit: aroundSegments})
	if err != nil {
		return 0, []Missing{{Cause: CauseManifest, Reason: "the manifest does not answer: " + plain(ctx, err)}}, &k.count, nil
	}
	if !k.sequence && len(refs) == 0 { // nothing is that old: any segment tells what the cursor is
		if refs, err = f.find(ctx, k.now, manifest.SegmentQuery{Conversation: q.Conversation, Oldest: true, Limit: 1}); err != nil {
			return 0, []Missing{{Cause: CauseManifest, Reason: "the manifest does not answer: " + plain(ctx, err)}}, &k.count, nil
		}
		k.sequence = len(refs) > 0 && refs[0].Schema.Role(message.Sequence) >= 0
		if k.sequence {
			refs = nil
		}
	}
	if !k.sequence && (len(refs) == 0 || refs[0].Schema.Role(message.Sequence) < 0) {
		return id, nil, &k.count, nil // the cursor is the message ID
	}
	near := func() (c uint64) {
		for _, r := range k.rows {
			if r.MessageID() < id && r.Cursor() < math.MaxUint64 {
				c = max(c, r.Cursor()+1)
			}
		}
		return c
	}
	if f.Warm != nil {
		w := &walk{f: f, q: Query{Conversation: q.Conversation}, limit: newestRows, newest: true}
		if err := w.readWarm(ctx); err != nil || len(w.missing) > 0 {
			return 0, w.missing, &k.count, err
		}
		k.rows = append(k.rows, w.rows...)
	}
	for _, ref := range refs {
		if cursor = near(); cursor > 0 {
			break
		}
		parts := split(ref)
		k.load(ctx, parts[len(parts)-1:], nil) // the newest of them
		if len(k.missing) > 0 {
			return 0, k.missing, &k.count, nil
		}
	}
	return near(), nil, &k.count, nil
}
