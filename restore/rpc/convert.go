package rpc

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	v1 "github.com/coldtier/coldtier/restore/rpc/coldtier/v1"
)

func pageOf(p *restore.Page) *v1.FetchRangeResponse {
	return &v1.FetchRangeResponse{
		Messages: messagesOf(p.Rows), State: stateOf(p.State), HasMore: p.HasMore, HasOlder: p.HasOlder,
		MinCursor: decimal(p.MinCursor), MaxCursor: decimal(p.MaxCursor), Next: decimal(p.Next), RetryAfter: retryOf(p.State, p.RetryAfter),
		Limit: count(p.Limit), LimitCut: p.Cut, Missing: missingOf(p.Missing), Served: servedOf(p.Requests, p.Queries, p.Took), Roles: rolesOf(p.Rows),
	}
}

func batchOf(m *restore.Messages) *v1.GetMessagesResponse {
	return &v1.GetMessagesResponse{
		Messages: messagesOf(m.Rows), Absent: m.Absent, Unknown: m.Unknown, State: stateOf(m.State), RetryAfter: retryOf(m.State, m.RetryAfter),
		Missing: missingOf(m.Missing), Served: servedOf(m.Requests, m.Queries, m.Took), Roles: rolesOf(m.Rows),
	}
}

// decimal is a number that may be missing.
func decimal(n *uint64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatUint(*n, 10)
}

func count(n int) uint32 { return uint32(min(max(int64(n), 0), 1<<32-1)) }

func servedOf(requests, queries int, took time.Duration) *v1.Served {
	return &v1.Served{BucketRequests: count(requests), ClickhouseQueries: count(queries), Took: durationpb.New(took)}
}

func retryOf(s restore.State, after time.Duration) *durationpb.Duration {
	if s == restore.Complete {
		return nil
	}
	return durationpb.New(after)
}

func messagesOf(rows []restore.Row) []*v1.Message {
	all := make([]*v1.Message, len(rows))
	for i, r := range rows {
		all[i] = messageOf(r)
	}
	return all
}

// messageOf takes every value through Row.Value, so that what a status withholds
// cannot leave.
func messageOf(r restore.Row) *v1.Message {
	columns := r.Batch.Schema().Columns()
	m := &v1.Message{MessageId: r.MessageID(), Cursor: r.Cursor(), Store: storeOf(r.Store), Columns: make(map[string]*v1.Value, len(columns))}
	if r.Status != nil && r.Status.Kind != manifest.StatusNone {
		m.Status = statusOf(*r.Status)
	}
	for i, c := range columns {
		if r.Withheld(i) {
			m.Withheld = append(m.Withheld, c.Name)
			continue
		}
		m.Columns[c.Name] = valueOf(c.Kind, r.Value(i))
	}
	return m
}

func valueOf(k message.Kind, v []byte) *v1.Value {
	switch {
	case v == nil:
		return &v1.Value{Kind: &v1.Value_Null{Null: true}}
	case k == message.Bytes || !utf8.Valid(v):
		return &v1.Value{Kind: &v1.Value_Bytes{Bytes: v}}
	}
	return &v1.Value{Kind: &v1.Value_Text{Text: string(v)}}
}

func statusOf(s manifest.Status) *v1.MessageStatus {
	out := &v1.MessageStatus{Kind: kindOf(s.Kind), At: timestamppb.New(s.At)}
	if s.Value != nil {
		v := strings.ToValidUTF8(*s.Value, "\ufffd")
		out.Value = &v
	}
	return out
}

// rolesOf says which column plays which role in the tables of the rows. They are of
// one source, whose configuration names the columns; where that was changed over the
// years the first row's count.
func rolesOf(rows []restore.Row) map[string]string {
	if len(rows) == 0 {
		return nil
	}
	roles := map[string]string{}
	s := rows[0].Batch.Schema()
	for _, r := range message.Roles() {
		if i := s.Role(r); i >= 0 {
			roles[r.String()] = s.Columns()[i].Name
		}
	}
	return roles
}

// missingOf leaves out keys and the engine's own words, which may name servers.
func missingOf(all []restore.Missing) []*v1.Missing {
	out := make([]*v1.Missing, len(all))
	for i, m := range all {
		cause, words := causeOf(m.Cause)
		out[i] = &v1.Missing{MinCursor: m.MinCursor, MaxCursor: m.MaxCursor, Cause: cause, Reason: words}
		if m.Slice != (manifest.SliceKey{}) {
			out[i].Day, out[i].Shard = m.Slice.Day.String(), m.Slice.Shard.String()
		}
	}
	return out
}

func causeOf(c restore.Cause) (v1.Cause, string) {
	switch c {
	case restore.CauseBudget:
		return v1.Cause_CAUSE_BUDGET, "it was not there in time and is still being read"
	case restore.CauseBusy:
		return v1.Cause_CAUSE_BUSY, "too much is being read already"
	case restore.CauseManifest:
		return v1.Cause_CAUSE_MANIFEST, "the manifest did not answer"
	case restore.CauseStores:
		return v1.Cause_CAUSE_STORES, "neither ClickHouse nor the bucket answers"
	case restore.CauseLost:
		return v1.Cause_CAUSE_LOST, "its object is not in the bucket, and ClickHouse does not have its rows"
	case restore.CauseDamaged:
		return v1.Cause_CAUSE_DAMAGED, "its object is damaged, and ClickHouse does not have its rows"
	case restore.CauseArchived:
		return v1.Cause_CAUSE_ARCHIVED, "its object is in an archive storage class"
	case restore.CauseWarm:
		return v1.Cause_CAUSE_WARM, "the warm tables did not answer, or rows were being moved"
	}
	return v1.Cause_CAUSE_UNSPECIFIED, "it could not be read"
}

func stateOf(s restore.State) v1.State {
	switch s {
	case restore.Complete:
		return v1.State_STATE_COMPLETE
	case restore.Partial:
		return v1.State_STATE_PARTIAL
	case restore.Pending:
		return v1.State_STATE_PENDING
	case restore.Thawing:
		return v1.State_STATE_THAWING
	}
	return v1.State_STATE_UNSPECIFIED
}

func storeOf(s restore.Store) v1.Store {
	switch s {
	case restore.FromBucket:
		return v1.Store_STORE_BUCKET
	case restore.FromClickHouse:
		return v1.Store_STORE_CLICKHOUSE
	case restore.FromWarm:
		return v1.Store_STORE_WARM
	}
	return v1.Store_STORE_UNSPECIFIED
}

func kindOf(k manifest.StatusKind) v1.StatusKind {
	switch k {
	case manifest.StatusNone:
		return v1.StatusKind_STATUS_KIND_NONE
	case manifest.StatusRecalled:
		return v1.StatusKind_STATUS_KIND_RECALLED
	case manifest.StatusDeleted:
		return v1.StatusKind_STATUS_KIND_DELETED
	case manifest.StatusEdited:
		return v1.StatusKind_STATUS_KIND_EDITED
	}
	return v1.StatusKind_STATUS_KIND_UNSPECIFIED
}

func boundaryOf(b restore.Boundary, asBytes bool) *v1.Boundary {
	out := &v1.Boundary{WarmFrom: decimal(&b.WarmFrom), ColdMin: decimal(b.ColdMin), ColdMax: decimal(b.ColdMax)}
	if b.WarmNone {
		out.WarmFrom = ""
	}
	if asBytes {
		out.ConversationBytes = b.Conversation
	} else {
		s := string(b.Conversation)
		out.Conversation = &s
	}
	return out
}

// printableID is a conversation's ID for logs, which are UTF-8.
func printableID(id []byte) string {
	if utf8.Valid(id) {
		return string(id)
	}
	return "base64:" + base64.StdEncoding.EncodeToString(id)
}
