package rpc

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/coldtier/coldtier/restore"
)

// Every read and put has its line: who, what, which range, how many; never a body.
func TestAudit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/tokens", `{"token": "a-token-of-20-characters", "name": "history", "tenant": "acme", "conversations": ["c", "d"]}`)
	r := serve(t, func(c *Config, _ *Deps) { c.Auth.Tokens = dir + "/tokens" })
	token := []string{"Authorization", "Bearer a-token-of-20-characters"}
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	r.engine.page = &restore.Page{State: restore.Partial, Rows: rowsOf(t,
		[][]byte{bs("12"), bs("c"), bs("5"), bs(secretBody), nil, nil}, [][]byte{bs("11"), bs("c"), bs("18446744073709551615"), bs(secretBody), nil, nil}, [][]byte{bs("13"), bs("c"), bs("4"), nil, nil, nil})}
	r.engine.messages = &restore.Messages{State: restore.Complete, Rows: r.engine.page.Rows[:1]}
	r.post("FetchRange", `{"conversation": "c", "before": "77", "limit": 3}`, token...)
	r.post("FetchRange", `{"conversation": "c", "after": ""}`, token...)
	r.post("FetchRange", `{"conversation": "c", "around_message_id": "18446744073709551614"}`, token...)
	r.post("FetchRange", `{"conversation": "e"}`, token...)
	r.post("FetchRange", `{"conversation_bytes": "AP8="}`, token...)
	r.post("FetchRange", `{"conversation": "c", "before": "x"}`, token...)
	r.post("GetMessages", `{"conversation": "c", "message_ids": ["12", "18446744073709551615"]}`, token...)
	r.post("GetBoundary", `{"conversations": ["c", "d"]}`, token...)
	r.post("PutStatus", `{"conversation": "c", "message_id": "12", "kind": "STATUS_KIND_RECALLED", "value": "`+secretBody+`"}`, token...)
	r.engine.err = restore.ErrTenant
	r.post("FetchRange", `{"conversation": "c"}`, token...)
	r.engine.err = errors.New("broken " + "s3")
	r.post("FetchRange", `{"conversation": "c"}`, token...)
	r.post("FetchRange", `{"conversation": "c"}`) // nobody: not a read
	fields := []string{"who", "how", "method", "tenant", "conversations", "direction", "anchor", "message_ids", "status", "limit", "rows", "min_cursor", "max_cursor", "state", "code"}
	want := []string{
		"history token FetchRange acme [c] before 77 <nil> <nil> 3 3 4 18446744073709551615 PARTIAL ok",
		"history token FetchRange acme [c] oldest <nil> <nil> <nil> <nil> 3 4 18446744073709551615 PARTIAL ok",
		"history token FetchRange acme [c] around 18446744073709551614 <nil> <nil> <nil> 3 4 18446744073709551615 PARTIAL ok",
		"history token FetchRange  [e] newest <nil> <nil> <nil> <nil> 0 <nil> <nil> <nil> permission_denied",
		"history token FetchRange  [base64:AP8=] newest <nil> <nil> <nil> <nil> 0 <nil> <nil> <nil> permission_denied",
		"history token FetchRange  [c] before <nil> <nil> <nil> <nil> 0 <nil> <nil> <nil> invalid_argument",
		"history token GetMessages acme [c] <nil> <nil> [12 18446744073709551615] <nil> <nil> 1 5 5 COMPLETE ok",
		"history token GetBoundary acme [c d] <nil> <nil> <nil> <nil> <nil> 0 <nil> <nil> <nil> ok",
		"history token PutStatus acme [c] <nil> <nil> [12] recalled <nil> 0 <nil> <nil> <nil> begun",
		"history token PutStatus acme [c] <nil> <nil> [12] recalled <nil> 0 <nil> <nil> <nil> ok",
		"history token FetchRange acme [c] newest <nil> <nil> <nil> <nil> 0 <nil> <nil> <nil> permission_denied",
		"history token FetchRange acme [c] newest <nil> <nil> <nil> <nil> 0 <nil> <nil> <nil> internal",
	}
	lines := r.lines()
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d\n%s", len(lines), len(want), r.audit)
	}
	for i, l := range lines {
		if got := show(l, fields...); got != want[i] {
			t.Errorf("line %d\n%s\nwant\n%s", i+1, got, want[i])
		}
		when, err := time.Parse(time.RFC3339Nano, l["time"].(string))
		if err != nil || when.Before(at) || !strings.HasPrefix(l["peer"].(string), "127.0.0.1:") {
			t.Errorf("line %d: %v", i+1, l)
		}
		if (l["code"] == "internal") != (l["incident"] != nil) {
			t.Errorf("line %d: incident %v", i+1, l["incident"])
		}
	}
	if all := r.audit.String(); strings.Contains(all, secretBody) || strings.Contains(all, "a-token-of") || strings.Contains(all, "broken") {
		t.Errorf("what must not be in the audit log is: %s", all)
	}
}

// failing is a disk that is full.
type failing struct{ ok int }

func (f *failing) Write(p []byte) (int, error) {
	if f.ok--; f.ok < 0 {
		return len(p) / 2, errors.New("no space left on secret device")
	}
	return len(p), nil
}

// What cannot be noted is not given out; a put that cannot be noted is not done.
func TestAuditFails(t *testing.T) {
	t.Parallel()
	disk := &failing{}
	r := serve(t, func(_ *Config, d *Deps) { d.Audit = NewAudit(disk) })
	r.engine.messages = &restore.Messages{State: restore.Complete}
	for method, body := range map[string]string{"FetchRange": forC, "GetMessages": `{"conversation": "c", "message_ids": ["1"]}`, "GetBoundary": `{"conversations": ["c"]}`,
		"PutStatus": `{"conversation": "c", "message_id": "1", "kind": "STATUS_KIND_DELETED"}`} {
		status, answer := r.post(method, body)
		if status != 503 || jsonOf(t, answer)["code"] != "unavailable" || !strings.Contains(answer, errAudit.Error()) || strings.Contains(answer, "secret") || strings.Contains(answer, "messages") {
			t.Errorf("%s: %d %s", method, status, answer)
		}
	}
	if len(r.engine.put) > 0 {
		t.Error("a put that could not be noted was done")
	}
	r.engine.parts = []*restore.Page{aPage(t), aPage(t), aPage(t)}
	disk.ok = 2 // the third part is not noted
	stream, err := r.client(h2c(t), connect.WithGRPC()).StreamRange(context.Background(), fetchReq("c"))
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	for stream.Receive() {
		parts++
	}
	codeIs(t, stream.Err(), connect.CodeUnavailable)
	if parts != 2 {
		t.Errorf("%d parts were given, want the 2 that were noted", parts)
	}
	if n := r.count("coldtier_rpc_audit_failures_total"); n != 5 {
		t.Errorf("%v failures are counted", n)
	}
	if !strings.Contains(r.log.String(), "no space left") {
		t.Error("the log does not say why")
	}
}

// The file is appended to, follows a rotation, and a line that was torn spoils none.
func TestAuditFile(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/audit"
	write(t, path, `{"torn": `)
	a, err := OpenAudit(path)
	if err != nil {
		t.Fatal(err)
	}
	put := func() {
		t.Helper()
		if err := a.write(entry{Method: "FetchRange", Code: codeOK}); err != nil {
			t.Fatal(err)
		}
	}
	put()
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	put()
	if err := a.Reopen(); err != nil {
		t.Fatal(err)
	}
	put()
	first, err := os.ReadFile(path + ".1")
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(first), "\n")
	if len(lines) != 4 || lines[0] != `{"torn": ` || jsonOf(t, lines[1])["code"] != "ok" || jsonOf(t, lines[2])["code"] != "ok" || lines[3] != "" || strings.Count(string(second), "\n") != 1 {
		t.Errorf("%q\n%q", first, second)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("others may read it: %v, %v", info.Mode(), err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.write(entry{}); !errors.Is(err, errAudit) {
		t.Errorf("after closing: %v", err)
	}
	if _, err := OpenAudit(t.TempDir() + "/no/such/folder"); err == nil {
		t.Error("a folder that is not there is taken")
	}
	// A line that was torn while writing.
	torn := NewAudit(&failing{})
	if err := torn.write(entry{}); err == nil || !torn.torn {
		t.Errorf("%v, torn %v", err, torn.torn)
	}
	var b strings.Builder
	torn.out = io.Writer(&b)
	if err := torn.write(entry{Code: "x"}); err != nil || !strings.HasPrefix(b.String(), "\n{") {
		t.Errorf("%v %q", err, b.String())
	}
}
