package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// manifestTries is how often a read of the manifest is tried: a connection that broke, or
// a primary that has just moved, need not be missed by anybody.
const (
	manifestTries = 3
	manifestPause = 10 * time.Millisecond
)

// again runs a read of the manifest, once more when it fails.
func again(ctx context.Context, read func() error) error {
	for try := 1; ; try++ {
		err := read()
		if err == nil || try == manifestTries || errors.Is(err, manifest.ErrConversation) || errors.Is(err, manifest.ErrCorrupt) {
			return err
		}
		select {
		case <-time.After(time.Duration(try*try) * manifestPause):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// How many segments are looked up in the manifest at first for a page, which needs few of
// them where a day has many messages and each costs some 30 µs; and where all are wanted.
const (
	segmentsAtFirst = 12
	segmentsAtOnce  = 64
)

// lookKey names a look-up in the manifest.
type lookKey string

func keyOf(q manifest.SegmentQuery) lookKey {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %v %d", q.Conversation, q.Oldest, q.Limit)
	if q.Before != nil {
		fmt.Fprintf(&b, " <%d", *q.Before)
	}
	if q.After != nil {
		fmt.Fprintf(&b, " >%d", *q.After)
	}
	if q.Until != nil {
		fmt.Fprintf(&b, " until %s", q.Until)
	}
	for _, d := range q.Days {
		fmt.Fprintf(&b, " %s", d)
	}
	return lookKey(b.String())
}

// looked is the answer to a look-up.
type looked struct {
	refs []manifest.SegmentRef
	at   *manifest.Versions // counters that were read before it began; nil: none had been
}

// holds says whether nothing has changed since, by counters that were read later.
func (l *looked) holds(v manifest.Versions) bool { return l.at != nil && l.at.Live == v.Live }

func (l *looked) weight() int {
	n := 128
	for i := range l.refs {
		n += 512 + len(l.refs[i].Key) + 64*len(l.refs[i].File.RowGroups)
	}
	return n
}

// find looks segments up. An answer that was kept, or that another request's look-up
// gave, may be older than this request. It counts only if the manifest's counter of live
// changes, read after this request began, is the one that was known before the look-up
// began: then nothing has changed between.
func (f *Fetcher) find(ctx context.Context, n *now, q manifest.SegmentQuery) ([]manifest.SegmentRef, error) {
	key, request := keyOf(q), ctx
	valid := func(l *looked) (bool, error) {
		if l.at == nil {
			return false, nil
		}
		v, err := n.wait(ctx)
		return err == nil && l.holds(v), err
	}
	if l, ok := f.caches.looks.GetIfPresent(key); ok {
		ok, err := valid(l)
		if err != nil {
			return nil, err
		}
		if ok {
			f.m.hit(cacheManifest)
			return l.refs, nil
		}
	}
	f.m.miss(cacheManifest)
	for {
		l, shared, err := f.looks.Do(ctx, key, func(ctx context.Context) (*looked, error) { return f.look(f.valued(ctx, request), key, q) })
		if err != nil {
			return nil, err
		}
		ok := !shared
		if shared {
			if ok, err = valid(l); err != nil {
				return nil, err
			}
		}
		if ok {
			return l.refs, nil
		}
	}
}

func (f *Fetcher) look(ctx context.Context, key lookKey, q manifest.SegmentQuery) (*looked, error) {
	l := &looked{at: f.known.Load()}
	err := f.again(ctx, "segments", func() (err error) {
		l.refs, err = f.Manifest.Segments(ctx, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	if l.at != nil {
		f.caches.looks.Set(key, l)
	}
	return l, nil
}

// statusesAtOnce is how many statuses of a conversation are kept at hand; of one that
// has more those of a page's messages are read.
const statusesAtOnce = 512

// seen are a conversation's statuses.
type seen struct {
	list map[uint64]*manifest.Status
	all  bool // they are all there
	at   *manifest.Versions
}

// holds says whether nothing has changed since, by counters that were read later.
func (s *seen) holds(v manifest.Versions) bool { return s.at != nil && s.at.Status == v.Status }

func (s *seen) weight() int { return 128 + 192*len(s.list) }

// statuses reads a conversation's statuses, as they are after the request began.
func (f *Fetcher) statuses(ctx context.Context, n *now, conversation []byte) (*seen, error) {
	key, request := string(conversation), ctx
	for {
		s, shared, err := f.seens.Do(ctx, key, func(ctx context.Context) (*seen, error) {
			ctx = f.valued(ctx, request)
			s := &seen{at: f.known.Load()}
			var list []manifest.Status
			err := f.again(ctx, "statuses", func() (err error) {
				list, err = f.Manifest.Statuses(ctx, manifest.StatusQuery{Conversation: conversation, Limit: statusesAtOnce})
				return err
			})
			if err != nil {
				return nil, err
			}
			s.list, s.all = byID(list), len(list) < statusesAtOnce
			if s.at != nil {
				f.caches.statuses.Set(key, s)
			}
			return s, nil
		})
		if err != nil || !shared {
			return s, err
		}
		// It may be older than this request.
		if v, err := n.wait(ctx); err != nil || s.holds(v) {
			return s, err
		}
	}
}

func byID(list []manifest.Status) map[uint64]*manifest.Status {
	m := make(map[uint64]*manifest.Status, len(list))
	for i := range list {
		m[list[i].MessageID] = &list[i]
	}
	return m
}

// overlay puts the statuses on rows of a conversation.
func (f *Fetcher) overlay(ctx context.Context, conversation []byte, rows []Row, s *seen) error {
	if len(rows) == 0 {
		return nil
	}
	list := s.list
	if !s.all {
		q := manifest.StatusQuery{Conversation: conversation, Limit: len(rows)}
		for _, r := range rows {
			q.IDs = append(q.IDs, r.MessageID())
		}
		var some []manifest.Status
		err := f.again(ctx, "statuses", func() (err error) {
			some, err = f.Manifest.Statuses(ctx, q)
			return err
		})
		if err != nil {
			return err
		}
		list = byID(some)
	}
	for i := range rows {
		rows[i].Status = list[rows[i].MessageID()]
	}
	return nil
}
