package rpc

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	v1 "github.com/coldtier/coldtier/restore/rpc/coldtier/v1"
)

// The whole answer as curl sees it: every field, and numbers of 64 bits as strings.
func TestJSON(t *testing.T) {
	t.Parallel()
	r := serve(t, nil)
	status, body := r.post("FetchRange", `{"conversation": "c"}`)
	want := `{"messages":[{"message_id":"18446744073709551615","cursor":"18446744073709551615","store":"STORE_BUCKET","status":null,"columns":{` +
		`"body":{"text":"` + secretBody + `"},"conv":{"text":"c"},"id":{"text":"18446744073709551615"},"raw":{"bytes":"APA="},"seq":{"text":"18446744073709551615"},"state":{"null":true}},"withheld":[]}],` +
		`"state":"STATE_COMPLETE","has_more":false,"has_older":false,"min_cursor":"18446744073709551615","max_cursor":"18446744073709551615","next":"","retry_after":null,"limit":20,"limit_cut":false,"missing":[],` +
		`"served":{"bucket_requests":0,"clickhouse_queries":0,"took":"0s"},"roles":{"content":"body","conversation_id":"conv","message_id":"id","sequence":"seq","status":"state"}}`
	if status != http.StatusOK || body != want {
		t.Errorf("%d\n%s\nwant\n%s", status, body, want)
	}
	// With the names of JSON's own fashion, and numbers as numbers.
	if status, body := r.post("FetchRange", `{"conversation": "c", "aroundMessageId": 7, "limit": "3"}`, "Content-Type", "application/json; charset=utf-8"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if q := r.engine.last(t); q.Around == nil || *q.Around != 7 || q.Limit != 3 {
		t.Errorf("%+v", q)
	}
	// An empty page has all fields too.
	r.engine.page = &restore.Page{State: restore.Complete, Limit: 20}
	if _, body := r.post("FetchRange", `{"conversation": "none"}`); !strings.Contains(body, `{"messages":[],"state":"STATE_COMPLETE","has_more":false,"has_older":false,"min_cursor":"","max_cursor":"","next":""`) {
		t.Errorf("%s", body)
	}
}

// A partial and a pending page are answers like any other; what is missing is named,
// without keys and servers.
func TestPartialIsOK(t *testing.T) {
	t.Parallel()
	r := serve(t, nil)
	next := uint64(1 << 63)
	day, err := snowflake.ParseDay("2026-05-01")
	if err != nil {
		t.Fatal(err)
	}
	r.engine.page = &restore.Page{State: restore.Pending, HasMore: true, Next: &next, Limit: 200, Cut: true, RetryAfter: 200 * time.Millisecond, Requests: 2, Queries: 1, Took: 790 * time.Millisecond,
		Missing: []restore.Missing{
			{Slice: manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: "im_00", Table: "msg_07"}, Day: day},
				Key: "secret/key.parquet", MinCursor: 1, MaxCursor: 1<<64 - 1, Cause: restore.CauseBudget, Reason: "s3.internal:9000 hangs"},
			{Cause: restore.CauseManifest},
		}}
	status, body := r.post("FetchRange", `{"conversation": "c", "limit": 100000}`)
	if status != http.StatusOK || strings.Contains(body, "secret") || strings.Contains(body, "s3.internal") {
		t.Fatalf("%d %s", status, body)
	}
	for _, want := range []string{
		`"state":"STATE_PENDING","has_more":true`, `"next":"9223372036854775808","retry_after":"0.200s","limit":200,"limit_cut":true`, `"bucket_requests":2,"clickhouse_queries":1,"took":"0.790s"`,
		`{"day":"2026-05-01","shard":"im_00.msg_07","min_cursor":"1","max_cursor":"18446744073709551615","cause":"CAUSE_BUDGET","reason":"it was not there in time and is still being read"}`,
		`{"day":"","shard":"","min_cursor":"0","max_cursor":"0","cause":"CAUSE_MANIFEST","reason":"the manifest did not answer"}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	for _, s := range []restore.State{restore.Complete, restore.Partial, restore.Pending, restore.Thawing} {
		if got := stateOf(s).String(); got != "STATE_"+string(s) {
			t.Errorf("%s became %s", s, got)
		}
	}
	for _, c := range []restore.Cause{restore.CauseBudget, restore.CauseBusy, restore.CauseManifest, restore.CauseStores, restore.CauseLost, restore.CauseDamaged, restore.CauseArchived, restore.CauseWarm} {
		if got, words := causeOf(c); got.String() != "CAUSE_"+string(c) || words == "" {
			t.Errorf("%s became %s", c, got)
		}
	}
}

// Anchors: none, empty, a cursor up to 2^64-1, a message.
func TestAnchors(t *testing.T) {
	t.Parallel()
	r := serve(t, nil)
	show := func(q restore.Query) string {
		return fmt.Sprintf("%q before=%s after=%s oldest=%v around=%s limit=%d budget=%s", q.Conversation, decimal(q.Before), decimal(q.After), q.Oldest, decimal(q.Around), q.Limit, q.Budget)
	}
	for in, want := range map[string]string{
		`{"conversation": "c"}`:                                   `"c" before= after= oldest=false around= limit=0 budget=0s`,
		`{"conversation": "c", "before": ""}`:                     `"c" before= after= oldest=false around= limit=0 budget=0s`,
		`{"conversation": "c", "after": ""}`:                      `"c" before= after= oldest=true around= limit=0 budget=0s`,
		`{"conversation": "c", "before": "18446744073709551615"}`: `"c" before=18446744073709551615 after= oldest=false around= limit=0 budget=0s`,
		`{"conversation": "c", "after": "0", "limit": 7}`:         `"c" before= after=0 oldest=false around= limit=7 budget=0s`,
		`{"conversation": "c", "around_message_id": "0"}`:         `"c" before= after= oldest=false around=0 limit=0 budget=0s`,
		`{"conversation": "", "budget": "0.5s"}`:                  `"" before= after= oldest=false around= limit=0 budget=500ms`,
		`{"conversation_bytes": "AP8="}`:                          `"\x00\xff" before= after= oldest=false around= limit=0 budget=0s`,
		`{"conversation_bytes": ""}`:                              `"" before= after= oldest=false around= limit=0 budget=0s`,
		`{"conversation": "` + strings.Repeat("x", 255) + `"}`:    `"` + strings.Repeat("x", 255) + `" before= after= oldest=false around= limit=0 budget=0s`,
	} {
		if status, body := r.post("FetchRange", in); status != 200 {
			t.Errorf("%s: %d %s", in, status, body)
			continue
		}
		q := r.engine.last(t)
		if got := show(q); got != want || q.Conversation == nil || q.Only != nil {
			t.Errorf("%s became\n%s, want\n%s", in, got, want)
		}
	}
}

// What is wrong with a request is said, and the engine is not asked.
func TestWrongRequests(t *testing.T) {
	t.Parallel()
	r := serve(t, nil)
	ids := strings.TrimSuffix(strings.Repeat(`"1",`, 1001), ",")
	numbers := make([]string, 201)
	for i := range numbers {
		numbers[i] = fmt.Sprint(i)
	}
	tests := []struct{ method, in, want string }{
		{"FetchRange", `{}`, "want a conversation"},
		{"FetchRange", ``, "the body is empty"},
		{"FetchRange", `[`, "read the JSON"},
		{"FetchRange", `{"conversation": "c", "befor": "1"}`, "unknown field"},
		{"FetchRange", `{"conversation": "c", "before": "1", "after": "2"}`, "oneof"},
		{"FetchRange", `{"conversation": "c", "conversation_bytes": "AA=="}`, "not both"},
		{"FetchRange", `{"conversation": "` + strings.Repeat("x", 256) + `"}`, "256 bytes: it has at most 255"},
		{"FetchRange", `{"conversation": "c", "tenant": "` + strings.Repeat("x", 256) + `"}`, "a tenant of 256 bytes"},
		{"FetchRange", `{"conversation": "c", "before": "-1"}`, "want a cursor of 0..18446744073709551615"},
		{"FetchRange", `{"conversation": "c", "after": "18446744073709551616"}`, "want a cursor of"},
		{"FetchRange", `{"conversation": "c", "before": "1e3"}`, "want a cursor of"},
		{"FetchRange", `{"conversation": "c", "limit": -1}`, "read the JSON"},
		{"FetchRange", `{"conversation": "c", "budget": "-1s"}`, "budget: want a duration of 0s or more"},
		{"FetchRange", strings.Repeat(`{"conversation":`, 2000), "read the JSON"},
		{"GetMessages", `{"conversation": "c"}`, "0 message IDs: want 1 to 200"},
		{"GetMessages", `{"conversation": "c", "message_ids": [` + strings.Join(numbers, ",") + `]}`, "201 message IDs: want 1 to 200"},
		{"GetBoundary", `{}`, "0 conversations: want 1 to 1000"},
		{"GetBoundary", `{"conversations": [` + ids + `]}`, "1001 conversations: want 1 to 1000"},
		{"PutStatus", `{"conversation": "c", "message_id": "1"}`, "kind: want"},
		{"PutStatus", `{"conversation": "c", "message_id": "1", "kind": 99}`, "kind: want"},
		{"PutStatus", `{"message_id": "1", "kind": "STATUS_KIND_RECALLED"}`, "want a conversation"},
	}
	for _, tt := range tests {
		status, body := r.post(tt.method, tt.in)
		if status != http.StatusBadRequest || jsonOf(t, body)["code"] != "invalid_argument" || !strings.Contains(body, tt.want) {
			t.Errorf("%s %.80s: %d %.200s, want %s", tt.method, tt.in, status, body, tt.want)
		}
	}
	if len(r.engine.queries)+len(r.engine.batches)+len(r.engine.asked)+len(r.engine.put) > 0 {
		t.Error("the engine was asked")
	}
	if status, _ := r.post("FetchRange", `{"conversation": "`+strings.Repeat("x", maxBytes)+`"}`); status != http.StatusTooManyRequests {
		t.Errorf("a body of more than 1 MiB: %d", status)
	}
	if status, _ := r.post("FetchAll", `{}`); status != http.StatusNotFound {
		t.Errorf("an unknown method: %d", status)
	}
	r.engine.err = fmt.Errorf("%w: limit 5", restore.ErrQuery)
	if status, body := r.post("FetchRange", `{"conversation": "c"}`); status != http.StatusBadRequest || !strings.Contains(body, "limit 5") {
		t.Errorf("%d %s", status, body)
	}
}

// NULL, the empty text, a NUL byte, what is not UTF-8 and what is withheld are all
// different, in JSON and in protobuf.
func TestValues(t *testing.T) {
	t.Parallel()
	r := serve(t, nil)
	rows := rowsOf(t,
		[][]byte{bs("1"), bs("c"), bs("1"), nil, nil, bs("0")},
		[][]byte{bs("2"), bs("c"), bs("2"), {}, {}, bs("0")},
		[][]byte{bs("3"), bs("c"), bs("3"), {0}, {0}, bs("0")},
		[][]byte{bs("4"), bs("c"), bs("4"), {0xff, 'a'}, bs("text"), bs("0")},
		[][]byte{bs("5"), bs("c"), bs("5"), bs(secretBody), bs("raw"), bs("0")},
		[][]byte{bs("6"), bs("c"), bs("6"), bs("漢字 😀"), bs("raw"), bs("0")})
	at := time.Date(2026, 5, 1, 8, 42, 16, 717e6, time.UTC)
	rows[4].Status = &manifest.Status{Kind: manifest.StatusRecalled, Value: str("2"), At: at}
	rows[5].Status = &manifest.Status{Kind: manifest.StatusEdited, At: at}
	r.engine.page = &restore.Page{Rows: rows, State: restore.Complete}
	_, body := r.post("FetchRange", `{"conversation": "c"}`)
	for i, want := range []string{
		`"columns":{"body":{"null":true},"conv":{"text":"c"},"id":{"text":"1"},"raw":{"null":true},`,
		`"columns":{"body":{"text":""},"conv":{"text":"c"},"id":{"text":"2"},"raw":{"bytes":""},`,
		`"columns":{"body":{"text":"\u0000"},"conv":{"text":"c"},"id":{"text":"3"},"raw":{"bytes":"AA=="},`,
		`"columns":{"body":{"bytes":"/2E="},"conv":{"text":"c"},"id":{"text":"4"},"raw":{"bytes":"dGV4dA=="},`,
		`"status":{"kind":"STATUS_KIND_RECALLED","value":"2","at":"2026-05-01T08:42:16.717Z"},"columns":{"conv":{"text":"c"},"id":{"text":"5"},"raw":{"bytes":"cmF3"},"seq":{"text":"5"},"state":{"text":"2"}},"withheld":["body"]}`,
		`"status":{"kind":"STATUS_KIND_EDITED","at":"2026-05-01T08:42:16.717Z"},"columns":{"body":{"text":"漢字 😀"},`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("message %d: no %s in\n%s", i+1, want, body)
		}
	}
	if strings.Contains(body, secretBody) || strings.Contains(body, base64.StdEncoding.EncodeToString([]byte(secretBody))) {
		t.Error("a recalled message's body was given out")
	}
	// P1, M4 and every byte there is, through gRPC.
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	r.engine.page = &restore.Page{Rows: rowsOf(t, [][]byte{bs("18446744073709551615"), bs("c"), bs("9223372036854775808"), all, all, nil}), State: restore.Complete}
	p, err := r.client(h2c(t), connect.WithGRPC()).FetchRange(context.Background(), fetchReq("c"))
	if err != nil {
		t.Fatal(err)
	}
	m := p.GetMessages()[0]
	if m.GetMessageId() != 1<<64-1 || m.GetCursor() != 1<<63 || string(m.GetColumns()["body"].GetBytes()) != string(all) || string(m.GetColumns()["raw"].GetBytes()) != string(all) || !m.GetColumns()["state"].GetNull() {
		t.Errorf("%v", m)
	}
}

// All methods by gRPC, gRPC-Web, Connect's protobuf and Connect's JSON.
func TestProtocols(t *testing.T) {
	t.Parallel()
	r := serve(t, nil)
	r.engine.messages = &restore.Messages{Rows: aPage(t).Rows, Absent: []uint64{1<<64 - 2}, Unknown: []uint64{5}, State: restore.Partial, RetryAfter: time.Second}
	a, b := aPage(t), aPage(t)
	a.State, a.HasMore = restore.Partial, true
	r.engine.parts = []*restore.Page{a, b}
	ctx := context.Background()
	for name, c := range map[string]struct {
		http    *http.Client
		options []connect.ClientOption
	}{
		"gRPC": {h2c(t), []connect.ClientOption{connect.WithGRPC()}}, "gRPC with gzip": {h2c(t), []connect.ClientOption{connect.WithGRPC(), connect.WithSendGzip()}},
		"gRPC-Web": {http.DefaultClient, []connect.ClientOption{connect.WithGRPCWeb()}}, "Connect": {http.DefaultClient, nil}, "Connect JSON": {http.DefaultClient, []connect.ClientOption{connect.WithProtoJSON()}},
	} {
		t.Run(name, func(t *testing.T) {
			client := r.client(c.http, c.options...)
			p, err := client.FetchRange(ctx, fetchReq("c"))
			if err != nil || len(p.GetMessages()) != 1 || p.GetMinCursor() != "18446744073709551615" || p.GetState() != v1.State_STATE_COMPLETE {
				t.Fatalf("FetchRange: %v, %v", p, err)
			}
			stream, err := client.StreamRange(ctx, fetchReq("c"))
			if err != nil {
				t.Fatal(err)
			}
			var states []v1.State
			for stream.Receive() {
				states = append(states, stream.Msg().GetState())
			}
			if err := stream.Err(); err != nil || len(states) != 2 || states[1] != v1.State_STATE_COMPLETE {
				t.Errorf("StreamRange: %v, %v", states, err)
			}
			if err := stream.Close(); err != nil {
				t.Error(err)
			}
			m, err := client.GetMessages(ctx, &v1.GetMessagesRequest{Conversation: str("c"), MessageIds: []uint64{5, 1<<64 - 1, 5}})
			if err != nil || len(m.GetMessages()) != 1 || m.GetAbsent()[0] != 1<<64-2 || m.GetUnknown()[0] != 5 || m.GetRetryAfter().AsDuration() != time.Second {
				t.Errorf("GetMessages: %v, %v", m, err)
			}
			if q := r.engine.batches[len(r.engine.batches)-1]; fmt.Sprint(q.IDs) != "[5 18446744073709551615]" {
				t.Errorf("IDs %v", q.IDs)
			}
			where, err := client.GetBoundary(ctx, &v1.GetBoundaryRequest{Conversations: []string{"a", "bb"}, ConversationsBytes: [][]byte{{0xff, 0, 0}}})
			if err != nil || len(where.GetBoundaries()) != 3 {
				t.Fatalf("GetBoundary: %v, %v", where, err)
			}
			for i, w := range where.GetBoundaries() {
				if w.GetWarmFrom() != fmt.Sprint(uint64(1<<63)+uint64(i)+1) || w.GetColdMin() != "1" || w.GetColdMax() != "18446744073709551615" || (w.Conversation == nil) != (i == 2) || (w.ConversationBytes == nil) != (i < 2) {
					t.Errorf("boundary %d: %v", i, w)
				}
			}
			put, err := client.PutStatus(ctx, &v1.PutStatusRequest{Conversation: str("c"), MessageId: 1<<64 - 1, Kind: v1.StatusKind_STATUS_KIND_RECALLED, Value: str("2")})
			if err != nil || put.GetStatus().GetKind() != v1.StatusKind_STATUS_KIND_RECALLED || put.GetStatus().GetValue() != "2" || put.GetStatus().GetAt().AsTime().Year() != 2026 {
				t.Errorf("PutStatus: %v, %v", put, err)
			}
			if s := r.engine.put[len(r.engine.put)-1]; s.MessageID != 1<<64-1 || s.Kind != manifest.StatusRecalled || *s.Value != "2" || s.By != "unauthenticated" || string(s.Conversation) != "c" {
				t.Errorf("%+v", s)
			}
		})
	}
}

// What is not the caller's doing becomes a code without a word of servers and keys; the
// log has it under the number that the caller was given.
func TestErrors(t *testing.T) {
	t.Parallel()
	r := serve(t, nil)
	client := r.client(h2c(t), connect.WithGRPC())
	ctx := context.Background()
	fetch := func() error { _, err := client.FetchRange(ctx, fetchReq("c")); return err }
	where := func() error {
		_, err := client.GetBoundary(ctx, &v1.GetBoundaryRequest{Conversations: []string{"c"}})
		return err
	}
	put := func() error {
		_, err := client.PutStatus(ctx, &v1.PutStatusRequest{Conversation: str("c"), Kind: v1.StatusKind_STATUS_KIND_DELETED})
		return err
	}
	tests := []struct {
		name string
		call func() error
		err  error
		code connect.Code
		text string
	}{
		{"query", fetch, fmt.Errorf("fetch: %w: one anchor", restore.ErrQuery), connect.CodeInvalidArgument, "one anchor"},
		{"tenant", fetch, fmt.Errorf("row of s3://secret: %w", restore.ErrTenant), connect.CodePermissionDenied, restore.ErrTenant.Error()},
		{"status", put, fmt.Errorf("put: %w: value too long", manifest.ErrStatus), connect.CodeInvalidArgument, "value too long"},
		{"pending", where, fmt.Errorf("dial secret:3306: %w", restore.ErrPending), connect.CodeUnavailable, restore.ErrPending.Error()},
		{"own deadline", put, context.DeadlineExceeded, connect.CodeUnavailable, restore.ErrPending.Error()},
		{"canceled", fetch, fmt.Errorf("read: %w", context.Canceled), connect.CodeCanceled, ""},
		{"internal", fetch, errors.New("u:secret@tcp(secret:3306)"), connect.CodeInternal, "incident "},
	}
	for _, tt := range tests {
		r.engine.err = tt.err
		err := tt.call()
		codeIs(t, err, tt.code)
		if !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", tt.name, err)
		}
		var ce *connect.Error
		if tt.code == connect.CodeUnavailable && errors.As(err, &ce) {
			if len(ce.Details()) != 1 || ce.Details()[0].Type() != "google.rpc.RetryInfo" {
				t.Fatalf("%s: details %v", tt.name, ce.Details())
			}
			// Field 1 is a google.protobuf.Duration.
			b := ce.Details()[0].Bytes()
			var d durationpb.Duration
			if len(b) < 2 || b[0] != 1<<3|2 || proto.Unmarshal(b[2:], &d) != nil || d.AsDuration() != retryPending {
				t.Errorf("RetryInfo %x", b)
			}
		}
		if tt.code == connect.CodeInternal {
			_, incident, _ := strings.Cut(err.Error(), "incident ")
			if log := r.log.String(); len(incident) != 16 || !strings.Contains(log, incident) || !strings.Contains(log, "u:secret@tcp") {
				t.Errorf("incident %q is not in the log with its error", incident)
			}
		}
	}
}

// The caller's deadline is brought forward, so that the answer comes before it; and
// the engine gets the budget as it was asked.
func TestDeadlineIsBeaten(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &service{now: func() time.Time { return now }}
	for left, early := range map[time.Duration]time.Duration{800 * time.Millisecond: reserve, 100 * time.Millisecond: 10 * time.Millisecond, 0: 0, -time.Second: 0} {
		outer, cancel := context.WithDeadline(context.Background(), now.Add(left))
		inner, cancelInner := s.before(outer)
		if d, ok := inner.Deadline(); !ok || !d.Equal(now.Add(left-early)) {
			t.Errorf("%s became %s", left, d.Sub(now))
		}
		cancelInner()
		cancel()
	}
	r := serve(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := r.client(h2c(t), connect.WithGRPC()).FetchRange(ctx, &v1.FetchRangeRequest{Conversation: str("c"), Budget: durationpb.New(333 * time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	if q := r.engine.last(t); q.Budget != 333*time.Millisecond || r.engine.deadline.IsZero() {
		t.Errorf("budget %s, deadline %s", q.Budget, r.engine.deadline)
	}
	if _, err := r.client(http.DefaultClient).FetchRange(context.Background(), fetchReq("c")); err != nil || !r.engine.deadline.IsZero() {
		t.Errorf("a deadline without one: %v, %v", r.engine.deadline, err)
	}
}
