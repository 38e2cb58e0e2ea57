package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coldtier/coldtier/manifest"
)

// Fetch reads one page. Its only errors are ErrQuery and ErrTenant: whatever the stores
// do, within the budget there is an answer, and it says what is missing.
func (f *Fetcher) Fetch(ctx context.Context, q Query) (*Page, error) {
	return f.page(ctx, q, nil)
}

// Stream reads one page and gives it to emit in batches as they arrive. Each goes on
// where the one before ended; the state of all but the last is empty. An error of emit
// ends the reading and is returned.
func (f *Fetcher) Stream(ctx context.Context, q Query, emit func(*Page) error) error {
	p, err := f.page(ctx, q, emit)
	if err != nil {
		return err
	}
	return emit(p)
}

func (f *Fetcher) page(ctx context.Context, q Query, emit func(*Page) error) (*Page, error) {
	begun := f.cfg.Clock()
	if err := q.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	limit, cut := q.Limit, q.Limit > f.cfg.MaxLimit
	if limit == 0 {
		limit = DefaultBefore
		if !q.newest() {
			limit = DefaultAfter
		}
	}
	limit = min(limit, f.cfg.MaxLimit)
	p, err := f.answer(ctx, q, limit, emit)
	if err != nil {
		return nil, err
	}
	p.Limit, p.Cut, p.Took = limit, cut || p.Cut, f.cfg.Clock().Sub(begun)
	f.m.page(p, f.cfg.Budget)
	return p, nil
}

func (f *Fetcher) answer(ctx context.Context, q Query, limit int, emit func(*Page) error) (*Page, error) {
	leave, ok := f.limits.Enter(q.Tenant, q.Conversation)
	if !ok {
		return busy(q.anchor()), nil
	}
	defer func() { leave() }()
	ctx, cancel := f.within(ctx, q.Budget)
	defer cancel()
	n := f.begin(ctx)
	seen := f.statusesOf(ctx, n, q.Conversation)
	if q.Around != nil {
		p, err := f.around(ctx, q, limit, seen)
		if err != nil {
			return nil, err
		}
		return f.finish(ctx, q, p, seen)
	}
	if p := f.fromNewest(ctx, n, q, limit); p != nil {
		seen.follow(ctx, n)
		return f.finish(ctx, q, p, seen)
	}
	w := &walk{f: f, q: q, limit: limit, newest: q.newest(), now: n, statuses: seen}
	if emit != nil {
		w.emit = func() error {
			return f.give(ctx, w, seen, func(p *Page) error {
				leave() // who reads slowly keeps no place from others
				err := emit(p)
				if leave, ok = f.limits.Enter(q.Tenant, q.Conversation); !ok {
					leave = func() {}
					w.miss(Missing{Cause: CauseBusy, Reason: busyReason})
				}
				return err
			})
		}
	}
	if err := w.read(ctx); err != nil {
		return nil, refused(err)
	}
	p := w.cut()
	p, err := f.finish(ctx, w.q, p, seen)
	if w.given && p != nil && p.State == Pending {
		p.State = Partial
	}
	if err == nil && p.State == Complete && p.HasMore && w.newest {
		f.prefetch(q, p, limit)
	}
	return p, err
}

// refused tells bad requests, which only the manifest knows to be such, from others.
func refused(err error) error {
	if errors.Is(err, manifest.ErrConversation) {
		return fmt.Errorf("%w: %w", ErrQuery, err)
	}
	return err
}

func (q Query) newest() bool { return q.After == nil && q.Around == nil && !q.Oldest }

func (q Query) from() Store { return cmp.Or(q.From, FromAny) }

func (q Query) anchor() *uint64 { return cmp.Or(q.Before, q.After) }

// busy is the answer when too much is being read for the conversation, the tenant or
// all.
func busy(anchor *uint64) *Page {
	return &Page{State: Pending, HasMore: true, MinCursor: anchor, MaxCursor: anchor, Next: anchor, RetryAfter: CauseBusy.retryAfter(),
		Missing: []Missing{{Cause: CauseBusy, Reason: busyReason}}}
}

const busyReason = "too many requests are under way for this conversation, its tenant or the process"

// give emits the rows that became safe. Rows of one cursor are given together. The page
// goes on behind them as one of its own: so whatever turns up later, in what is read anew
// too, lies behind what was given.
func (f *Fetcher) give(ctx context.Context, w *walk, seen *statusRead, emit func(*Page) error) error {
	end := min(w.full(), w.limit)
	for end > 0 && end < len(w.rows) && w.rows[end].Cursor() == w.rows[end-1].Cursor() {
		end--
	}
	if end == 0 {
		return nil
	}
	if err := w.confirm(ctx); err != nil || len(w.missing) > 0 {
		return err
	}
	p := &Page{Rows: slices.Clone(w.rows[:end]), HasMore: true, Limit: w.limit}
	if !f.dress(ctx, w.q, p, seen) {
		return nil // the last batch says why
	}
	if err := tenants(p.Rows, w.q.Only); err != nil {
		return err
	}
	p.bounds(nil)
	last := p.Rows[end-1].Cursor()
	p.Next = &last
	w.given, w.limit, w.rows = true, w.limit-end, w.rows[end:]
	if w.newest {
		w.q.Before = &last
	} else {
		w.q.After, w.q.Oldest = &last, false
	}
	return emit(p)
}

// statusRead are a conversation's statuses, read beside everything else.
type statusRead struct {
	f            *Fetcher
	now          *now
	conversation []byte
	kept         *seen // to be used if nothing has changed since
	first        *statusAnswer
	settled      *statusAnswer
}

// statusAnswer is there when done is closed.
type statusAnswer struct {
	done chan struct{}
	seen *seen
	err  error
}

func (a *statusAnswer) wait(ctx context.Context) (*seen, error) {
	if err := await(ctx, a.done); err != nil {
		return nil, err
	}
	return a.seen, a.err
}

func (f *Fetcher) answerOf(read func() (*seen, error)) *statusAnswer {
	a := &statusAnswer{done: make(chan struct{})}
	f.wg.Go(func() {
		defer close(a.done)
		a.seen, a.err = read()
	})
	return a
}

func (f *Fetcher) statusesOf(ctx context.Context, n *now, conversation []byte) *statusRead {
	r := &statusRead{f: f, now: n, conversation: conversation}
	if s, ok := f.caches.statuses.GetIfPresent(string(conversation)); ok {
		r.kept = s
		return r
	}
	f.m.miss(cacheStatuses)
	r.first = f.answerOf(func() (*seen, error) { return f.statuses(ctx, n, conversation) })
	return r
}

// follow sees to it that the statuses are not older than the segments: a status that was
// folded into a generation and taken back would be missing where that generation is read.
// So they count only if nothing has changed between their reading and after, which began
// after the look-up. It goes on beside the reading of parts: a page that ends because its
// budget is over has no time for it.
func (r *statusRead) follow(ctx context.Context, after *now) {
	if r == nil {
		return
	}
	r.settled = r.f.answerOf(func() (*seen, error) { return r.settle(ctx, after) })
}

func (r *statusRead) settle(ctx context.Context, after *now) (*seen, error) {
	s := r.kept
	if s == nil {
		var err error
		if s, err = r.first.wait(ctx); err != nil || after == r.now {
			return s, err // the segments were known before, and hold
		}
	}
	v, err := after.wait(ctx)
	if err != nil {
		return nil, err
	}
	if s.holds(v) {
		if r.kept != nil {
			r.f.m.hit(cacheStatuses)
		}
		return s, nil
	}
	r.f.m.miss(cacheStatuses)
	return r.f.statuses(ctx, after, r.conversation)
}

// dress puts the statuses on a page's rows. Without them no row may be given, since it
// may have been recalled.
func (f *Fetcher) dress(ctx context.Context, q Query, p *Page, r *statusRead) bool {
	if len(p.Rows) == 0 {
		return true
	}
	s, err := r.settled.wait(ctx)
	if err == nil {
		err = f.overlay(ctx, q.Conversation, p.Rows, s)
	}
	if err == nil {
		return true
	}
	p.bounds(nil)
	p.Missing = append(p.Missing, Missing{MinCursor: *p.MinCursor, MaxCursor: *p.MaxCursor, Cause: CauseManifest,
		Reason: "the manifest does not tell the messages' statuses: " + plain(ctx, err)})
	p.Rows, p.HasMore = nil, true
	p.State, p.RetryAfter = stateOf(p.Missing, 0)
	p.bounds(q.anchor())
	p.Next = q.anchor()
	return false
}

func (f *Fetcher) finish(ctx context.Context, q Query, p *Page, seen *statusRead) (*Page, error) {
	if err := tenants(p.Rows, q.Only); err != nil {
		return nil, err
	}
	whose := len(p.Rows) > 0
	f.dress(ctx, q, p, seen)
	if q.Only != nil && !whose { // no row has shown that the conversation is this tenant's
		for i, m := range p.Missing {
			p.Missing[i] = Missing{Cause: m.Cause, Reason: m.Reason}
		}
		p.MinCursor, p.MaxCursor, p.Next = q.anchor(), q.anchor(), q.anchor()
	}
	return p, nil
}

// around joins the page before a message and the page from it on.
func (f *Fetcher) around(ctx context.Context, q Query, limit int, seen *statusRead) (*Page, error) {
	cursor, missing, count, err := f.cursorOf(ctx, q)
	if err != nil {
		return nil, refused(err)
	}
	if len(missing) > 0 {
		p := &Page{HasMore: true, HasOlder: true, Missing: missing}
		p.State, p.RetryAfter = stateOf(missing, 0)
		return p, nil
	}
	older := &walk{f: f, q: Query{Conversation: q.Conversation, Before: &cursor, From: q.From}, limit: limit / 2, newest: true, statuses: seen}
	from := Query{Conversation: q.Conversation, From: q.From, Oldest: true}
	if cursor > 0 {
		before := cursor - 1 // after is exclusive, and the message itself belongs to this side
		from.After, from.Oldest = &before, false
	}
	newer := &walk{f: f, q: from, limit: limit - limit/2, newest: false, statuses: seen}
	for _, w := range []*walk{newer, older} {
		if err := w.read(ctx); err != nil {
			return nil, refused(err)
		}
	}
	a, b := older.cut(), newer.cut()
	slices.Reverse(a.Rows)
	p := &Page{Rows: append(a.Rows, b.Rows...), State: Complete, Cut: a.Cut || b.Cut, HasMore: b.HasMore, HasOlder: a.HasMore,
		Missing: append(a.Missing, b.Missing...), Requests: a.Requests + b.Requests + int(count.bucket.Load()), Queries: a.Queries + b.Queries + int(count.rows.Load())}
	if len(p.Missing) > 0 {
		p.State, p.RetryAfter = stateOf(p.Missing, len(p.Rows))
	}
	p.bounds(&cursor)
	if len(p.Rows) == 0 && b.State != Complete { // after is exclusive, and the message itself was not given
		p.MaxCursor = from.After
	}
	p.Next = p.MaxCursor
	return p, nil
}
