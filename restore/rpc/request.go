package rpc

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	v1 "github.com/coldtier/coldtier/restore/rpc/coldtier/v1"
)

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errRequest}, args...)...)
}

// query reads a request for a page.
func (s *service) query(c *call, req *v1.FetchRangeRequest, e *entry) (q restore.Query, err error) {
	q.Limit = int(req.GetLimit())
	e.Tenant, e.Direction, e.Limit = req.GetTenant(), "newest", q.Limit
	if q.Conversation, err = conversationOf(req.Conversation, req.ConversationBytes); err != nil {
		return q, err
	}
	e.Conversations = []string{printableID(q.Conversation)}
	switch a := req.GetAnchor().(type) {
	case *v1.FetchRangeRequest_Before:
		if a.Before != "" {
			e.Direction = "before"
			q.Before, err = cursorOf("before", a.Before)
			e.Anchor = decimal(q.Before)
		}
	case *v1.FetchRangeRequest_After:
		if e.Direction, q.Oldest = "oldest", true; a.After != "" {
			e.Direction, q.Oldest = "after", false
			q.After, err = cursorOf("after", a.After)
			e.Anchor = decimal(q.After)
		}
	case *v1.FetchRangeRequest_AroundMessageId:
		e.Direction, q.Around = "around", &a.AroundMessageId
		e.Anchor = decimal(q.Around)
	}
	if err != nil {
		return q, err
	}
	if q.Budget, err = budgetOf(req.GetBudget()); err != nil {
		return q, err
	}
	q.Only = c.who.tenant
	q.Tenant, err = s.tenant(req.GetTenant(), q.Conversation, c.who.mayRead)
	e.Tenant = q.Tenant
	return q, err
}

func (s *service) messagesQuery(c *call, req *v1.GetMessagesRequest, e *entry) (q restore.MessagesQuery, err error) {
	e.Tenant = req.GetTenant()
	if q.Conversation, err = conversationOf(req.Conversation, req.ConversationBytes); err != nil {
		return q, err
	}
	e.Conversations = []string{printableID(q.Conversation)}
	seen := make(map[uint64]bool)
	for _, id := range req.GetMessageIds() {
		if !seen[id] {
			seen[id] = true
			q.IDs = append(q.IDs, id)
		}
	}
	if len(q.IDs) == 0 || len(q.IDs) > s.maxLimit {
		return q, wrong("%d message IDs: want 1 to %d", len(q.IDs), s.maxLimit)
	}
	for _, id := range q.IDs {
		e.MessageIDs = append(e.MessageIDs, strconv.FormatUint(id, 10))
	}
	if q.Budget, err = budgetOf(req.GetBudget()); err != nil {
		return q, err
	}
	q.Only = c.who.tenant
	q.Tenant, err = s.tenant(req.GetTenant(), q.Conversation, c.who.mayRead)
	e.Tenant = q.Tenant
	return q, err
}

func (s *service) boundaryQuery(c *call, req *v1.GetBoundaryRequest, e *entry) (ids [][]byte, budget time.Duration, err error) {
	e.Tenant = req.GetTenant()
	for _, id := range req.GetConversations() {
		ids = append(ids, []byte(id))
	}
	ids = slices.Concat(ids, req.GetConversationsBytes())
	if len(ids) == 0 || len(ids) > maxConversations {
		return nil, 0, wrong("%d conversations: want 1 to %d", len(ids), maxConversations)
	}
	for _, id := range ids {
		if len(id) > maxID {
			return nil, 0, wrong("a conversation's ID of %d bytes: it has at most %d", len(id), maxID)
		}
		e.Conversations = append(e.Conversations, printableID(id))
	}
	for _, id := range ids {
		if e.Tenant, err = s.tenant(req.GetTenant(), id, c.who.mayLocate); err != nil {
			return nil, 0, err
		}
	}
	budget, err = budgetOf(req.GetBudget())
	return ids, budget, err
}

func (s *service) statusQuery(c *call, req *v1.PutStatusRequest, e *entry) (out manifest.Status, err error) {
	e.Tenant = req.GetTenant()
	if out.Conversation, err = conversationOf(req.Conversation, req.ConversationBytes); err != nil {
		return out, err
	}
	e.Conversations = []string{printableID(out.Conversation)}
	out.MessageID, out.Value, out.By = req.GetMessageId(), req.Value, byOf(c.who)
	e.MessageIDs = []string{strconv.FormatUint(out.MessageID, 10)}
	switch req.GetKind() {
	case v1.StatusKind_STATUS_KIND_NONE:
		out.Kind = manifest.StatusNone
	case v1.StatusKind_STATUS_KIND_RECALLED:
		out.Kind = manifest.StatusRecalled
	case v1.StatusKind_STATUS_KIND_DELETED:
		out.Kind = manifest.StatusDeleted
	case v1.StatusKind_STATUS_KIND_EDITED:
		out.Kind = manifest.StatusEdited
	default:
		return out, wrong("kind: want STATUS_KIND_NONE, STATUS_KIND_RECALLED, STATUS_KIND_DELETED or STATUS_KIND_EDITED")
	}
	e.Status = string(out.Kind)
	e.Tenant, err = s.tenant(req.GetTenant(), out.Conversation, c.who.mayWrite)
	return out, err
}

// byOf is how a status says who put it; the manifest takes UTF-8 of some length.
func byOf(who identity) string {
	name := cmp.Or(who.Name, "unauthenticated")
	if len(name) > manifest.MaxStatusBy {
		name = name[:manifest.MaxStatusBy]
	}
	return strings.ToValidUTF8(name, "")
}

// tenant asks whether a caller may, and gives the tenant to count for.
func (s *service) tenant(asked string, conversation []byte, may func(string, []byte) (string, error)) (string, error) {
	if len(asked) > maxID {
		return "", wrong("a tenant of %d bytes: it has at most %d", len(asked), maxID)
	}
	return may(asked, conversation)
}

func conversationOf(text *string, raw []byte) ([]byte, error) {
	switch {
	case text != nil && raw != nil:
		return nil, wrong("want conversation or conversation_bytes, not both")
	case text != nil:
		raw = []byte(*text)
	case raw == nil:
		return nil, wrong("want a conversation")
	}
	if len(raw) > maxID {
		return nil, wrong("a conversation's ID of %d bytes: it has at most %d", len(raw), maxID)
	}
	return raw, nil
}

func cursorOf(name, text string) (*uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, wrong("%s %q: want a cursor of 0..18446744073709551615 in decimal, or nothing", name, text[:min(len(text), 40)])
	}
	return &n, nil
}

func budgetOf(d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if d.CheckValid() != nil || d.AsDuration() < 0 {
		return 0, wrong("budget: want a duration of 0s or more")
	}
	return d.AsDuration(), nil
}
