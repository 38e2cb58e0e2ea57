package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	v1 "github.com/coldtier/coldtier/restore/rpc/coldtier/v1"
)

// Reader gives messages. restore.Fetcher is one.
type Reader interface {
	Fetch(ctx context.Context, q restore.Query) (*restore.Page, error)
	// Stream gives the page in parts; the last has the state of the whole.
	Stream(ctx context.Context, q restore.Query, emit func(*restore.Page) error) error
	Messages(ctx context.Context, q restore.MessagesQuery) (*restore.Messages, error)
}

// Keeper knows where conversations are and keeps the statuses of messages.
// restore.Fetcher is one.
type Keeper interface {
	Boundaries(ctx context.Context, conversations [][]byte, budget time.Duration) ([]restore.Boundary, error)
	PutStatus(ctx context.Context, s manifest.Status) (manifest.Status, error)
}

// The methods.
const (
	methodFetch    = "FetchRange"
	methodStream   = "StreamRange"
	methodMessages = "GetMessages"
	methodBoundary = "GetBoundary"
	methodStatus   = "PutStatus"
)

const (
	maxBytes         = 1 << 20 // of a request
	maxConversations = 1000    // of a GetBoundary
	maxID            = 255     // bytes of a conversation's ID, and of a tenant's
	putTimeout       = 5 * time.Second
	// reserve is what a call's deadline is brought forward by, so that the answer is with
	// the caller before it gives up; of a short time a tenth.
	reserve = 25 * time.Millisecond
)

// call is one request on its way through the server.
type call struct {
	method, peer string
	who          identity
	start        time.Time

	code     string // empty: it did not reach its method
	state    restore.State
	rows     int
	incident string
	held     int64 // bytes of rows, until they are written
}

// result is the state of the answer, or whether there was one.
func (c *call) result() string {
	switch {
	case c.code != codeOK:
		return resultError
	case c.state != "":
		return string(c.state)
	}
	return resultOK
}

// service is the ColdHistory.
type service struct {
	reader   Reader
	keeper   Keeper
	audit    *Audit
	metrics  *metrics
	log      *slog.Logger
	now      func() time.Time
	maxLimit int
	answers  *answers
}

var errBusy = errors.New("too many answers are being written")

// hold counts rows among those that are being written; false when there are too many.
func (s *service) hold(c *call, rows []restore.Row) bool {
	n := int64(0)
	for _, r := range rows {
		for i, col := range r.Batch.Schema().Columns() {
			n += int64(len(r.Batch.Value(i, r.Index)) + len(col.Name) + perValue)
		}
	}
	if !s.answers.hold(c.from(), n) {
		return false
	}
	c.held += n
	return true
}

// drop ends what hold began.
func (s *service) drop(c *call) {
	s.answers.drop(c.from(), c.held)
	c.held = 0
}

// busy is a page without messages, to be asked for again from last, or from the start.
func busy(q restore.Query, last *uint64) *restore.Page {
	at := cmp.Or(last, q.Before, q.After)
	p := &restore.Page{State: restore.Pending, HasMore: true, MinCursor: at, MaxCursor: at, Next: at, RetryAfter: 100 * time.Millisecond, Missing: []restore.Missing{{Cause: restore.CauseBusy}}}
	if last != nil {
		p.State = restore.Partial
	}
	return p
}

// FetchRange gives one page.
func (s *service) FetchRange(ctx context.Context, req *v1.FetchRangeRequest) (*v1.FetchRangeResponse, error) {
	c := callOf(ctx)
	e := s.entry(c)
	q, err := s.query(c, req, &e)
	if err != nil {
		return nil, s.fail(c, e, err)
	}
	inner, cancel := s.before(ctx)
	defer cancel()
	p, err := s.reader.Fetch(inner, q)
	if err != nil {
		return nil, s.fail(c, e, err)
	}
	if !s.hold(c, p.Rows) {
		p = busy(q, nil)
	}
	if err := s.given(c, e, p.Rows, p.State); err != nil {
		return nil, err
	}
	return pageOf(p), nil
}

// StreamRange gives one page in parts. Each has its line in the audit log.
func (s *service) StreamRange(ctx context.Context, req *v1.FetchRangeRequest, stream *connect.ServerStream[v1.FetchRangeResponse]) error {
	c := callOf(ctx)
	e := s.entry(c)
	q, err := s.query(c, req, &e)
	if err != nil {
		return s.fail(c, e, err)
	}
	inner, cancel := s.before(ctx)
	defer cancel()
	var ended error // by this side, with the caller's error
	var last *uint64
	err = s.reader.Stream(inner, q, func(p *restore.Page) error {
		defer s.drop(c) // a part is held until it is sent
		if !s.hold(c, p.Rows) {
			p = busy(q, last)
			ended = errBusy
		} else if p.Next != nil {
			last = p.Next
		}
		full := ended
		if ended = s.given(c, e, p.Rows, p.State); ended != nil {
			return ended
		}
		if err := stream.Send(pageOf(p)); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return fmt.Errorf("send a part of the page: %w", err)
		}
		return full
	})
	switch {
	case errors.Is(err, errBusy):
		return nil // the last part has said so
	case ended != nil:
		return ended
	case err != nil:
		return s.fail(c, e, err)
	}
	return nil
}

// GetMessages gives messages by their IDs.
func (s *service) GetMessages(ctx context.Context, req *v1.GetMessagesRequest) (*v1.GetMessagesResponse, error) {
	c := callOf(ctx)
	e := s.entry(c)
	q, err := s.messagesQuery(c, req, &e)
	if err != nil {
		return nil, s.fail(c, e, err)
	}
	inner, cancel := s.before(ctx)
	defer cancel()
	m, err := s.reader.Messages(inner, q)
	if err != nil {
		return nil, s.fail(c, e, err)
	}
	if !s.hold(c, m.Rows) {
		p := busy(restore.Query{}, nil)
		m = &restore.Messages{State: p.State, Unknown: q.IDs, Missing: p.Missing, RetryAfter: p.RetryAfter}
	}
	if err := s.given(c, e, m.Rows, m.State); err != nil {
		return nil, err
	}
	return batchOf(m), nil
}

// GetBoundary says where conversations are.
func (s *service) GetBoundary(ctx context.Context, req *v1.GetBoundaryRequest) (*v1.GetBoundaryResponse, error) {
	c := callOf(ctx)
	e := s.entry(c)
	ids, budget, err := s.boundaryQuery(c, req, &e)
	if err != nil {
		return nil, s.fail(c, e, err)
	}
	inner, cancel := s.before(ctx)
	defer cancel()
	all, err := s.keeper.Boundaries(inner, ids, budget)
	if err != nil {
		return nil, s.fail(c, e, pending(ctx, err))
	}
	byID := make(map[string]restore.Boundary, len(all))
	for _, b := range all {
		byID[string(b.Conversation)] = b
	}
	resp := &v1.GetBoundaryResponse{}
	for i, id := range ids {
		b, ok := byID[string(id)]
		if !ok {
			return nil, s.fail(c, e, fmt.Errorf("no boundary was found of conversation %s", printableID(id)))
		}
		b.Conversation = id
		resp.Boundaries = append(resp.Boundaries, boundaryOf(b, i >= len(req.Conversations)))
	}
	if err := s.given(c, e, nil, ""); err != nil {
		return nil, err
	}
	return resp, nil
}

// PutStatus puts a status on a message. The audit log has it before it is done, since
// what is done cannot be held back when the log then fails.
func (s *service) PutStatus(ctx context.Context, req *v1.PutStatusRequest) (*v1.PutStatusResponse, error) {
	c := callOf(ctx)
	e := s.entry(c)
	status, err := s.statusQuery(c, req, &e)
	if err != nil {
		return nil, s.fail(c, e, err)
	}
	begun := e
	begun.Time, begun.Code = s.now().UTC(), "begun"
	if err := s.audit.write(begun); err != nil {
		return nil, s.fail(c, e, err)
	}
	inner, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	inner, cancelEarly := s.before(inner)
	defer cancelEarly()
	put, err := s.keeper.PutStatus(inner, status)
	if err != nil {
		return nil, s.fail(c, e, pending(ctx, err))
	}
	if err := s.given(c, e, nil, ""); err != nil {
		return nil, err
	}
	return &v1.PutStatusResponse{Status: statusOf(put)}, nil
}

// pending makes of this side's own deadline what it means: the manifest was too slow.
func pending(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", restore.ErrPending, err)
	}
	return err
}

// before brings the caller's deadline forward by the reserve.
func (s *service) before(ctx context.Context) (context.Context, context.CancelFunc) {
	d, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := d.Sub(s.now())
	return context.WithDeadline(ctx, d.Add(-min(reserve, max(left, 0)/10)))
}

func (s *service) entry(c *call) entry {
	return entry{Who: c.who.Name, How: c.who.How, Peer: c.peer, Method: c.method}
}

// given notes what is about to be given out.
func (s *service) given(c *call, e entry, rows []restore.Row, state restore.State) error {
	e.Time, e.Code, e.State, e.Rows = s.now().UTC(), codeOK, string(state), len(rows)
	if len(rows) > 0 {
		lo := rows[0].Cursor()
		hi := lo
		for _, r := range rows {
			lo, hi = min(lo, r.Cursor()), max(hi, r.Cursor())
		}
		e.MinCursor, e.MaxCursor = decimal(&lo), decimal(&hi)
	}
	if err := s.audit.write(e); err != nil {
		return s.fail(c, e, err)
	}
	c.code, c.state = codeOK, state
	c.rows += len(rows)
	return nil
}

// fail notes an error and gives what the caller is told of it.
func (s *service) fail(c *call, e entry, err error) error {
	out, incident := coded(err)
	c.code, c.incident = out.Code().String(), incident
	if incident != "" {
		s.log.Error("a request ended in an error", "incident", incident, "method", c.method, "who", c.who.Name, "error", err)
	}
	if errors.Is(err, errAudit) {
		s.metrics.audit.Inc()
		return out
	}
	e.Time, e.Code, e.Incident = s.now().UTC(), c.code, incident
	if err := s.audit.write(e); err != nil {
		// Nothing was given out: the caller keeps its error.
		s.metrics.audit.Inc()
		s.log.Error("a request that ended in an error is not in the audit log", "method", c.method, "who", c.who.Name, "code", c.code, "error", err)
	}
	return out
}
