package adversary

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/harness"
)

// answer is what these tests read of an answer of the served history.
type answer struct {
	Messages []struct {
		ID string `json:"message_id"`
	}
	State   string
	HasMore bool `json:"has_more"`
	Next    string
	Absent  []string
}

// call calls a method of the served history.
func call(t *testing.T, url, method, body string) (a answer) {
	t.Helper()
	resp, err := http.Post(url+"/coldtier.v1.ColdHistory/"+method, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", method, resp.StatusCode, b, err)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// busiest is the conversation of the first table with the most messages.
func busiest(e *harness.Env) (conv string) {
	e.T.Helper()
	if err := e.Warm.QueryRowContext(e.T.Context(), "SELECT session_id FROM "+e.Tables[0]+" GROUP BY 1 ORDER BY COUNT(*) DESC, 1 LIMIT 1").Scan(&conv); err != nil {
		e.T.Fatal(err)
	}
	return conv
}

// history pages a conversation to its end; what is not there at once is asked for again.
func history(t *testing.T, url, conv string) (ids []string) {
	t.Helper()
	next := ""
	for end := time.Now().Add(30 * time.Second); ; {
		a := call(t, url, "FetchRange", fmt.Sprintf(`{"conversation": %q, "before": %q, "limit": 50}`, conv, next))
		for _, m := range a.Messages {
			ids = append(ids, m.ID)
		}
		if a.Next != "" {
			next = a.Next
		}
		if a.State == "STATE_COMPLETE" && !a.HasMore {
			return ids
		}
		if time.Now().After(end) {
			t.Fatalf("conversation %s does not end: %s", conv, a.State)
		}
	}
}

// A purge that stands still, or was killed, with a partition exchanged out: messages that
// came late lie in no table and in no generation, and the history has them all the same,
// also those of a conversation that has nothing else. So it has when they are back.
func TestHistoryWhileAPartitionIsOut(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Messages: 300, Seed: 92, Partitioned: true, Strategy: "partition", Config: map[string]string{"fetch": "listen: 127.0.0.1:0\ndrain: 0s\nwarm: true"}})
	table, busy := e.Tables[0], busiest(e)
	e.SQL("ALTER TABLE " + table + " ADD KEY by_seq (session_id, seq)")
	lo, _ := e.Window(e.Days[0])
	s := e.Serve()
	for i, step := range []string{"purge.partition.exchanged-before-compared", "purge.partition.returned-before-recorded"} {
		e.Must("archive")
		lone := strconv.Itoa(777_000 + i)
		const columns = "sender_id, receiver_type, receiver_id, msg_type, content, client_msg_id, status, create_time"
		for j, conv := range []string{busy, lone} {
			e.SQL(fmt.Sprintf("INSERT INTO %s (msg_id, session_id, seq, %s) SELECT %d, %s, %d, %s FROM %s ORDER BY msg_id LIMIT 1", table, columns, lo+uint64(100+10*i+j), conv, 1_000_000+i, columns, table))
		}
		want := map[string]int{}
		for _, conv := range []string{busy, lone} {
			var n int
			if err := e.Warm.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table+" WHERE session_id = "+conv).Scan(&n); err != nil {
				t.Fatal(err)
			}
			want[conv] = n
		}
		look := func(when string) {
			t.Helper()
			for conv, n := range want {
				seen := map[string]bool{}
				for _, id := range history(t, s.URL, conv) {
					if seen[id] {
						t.Errorf("%s, %s: message %s of conversation %s comes twice", step, when, id, conv)
					}
					seen[id] = true
				}
				if len(seen) != n {
					t.Errorf("%s, %s: conversation %s has %d messages, want %d", step, when, conv, len(seen), n)
				}
			}
			late := fmt.Sprintf(`{"conversation": %q, "message_ids": ["%d"]}`, lone, lo+uint64(100+10*i+1))
			if a := call(t, s.URL, "GetMessages", late); len(a.Absent) > 0 {
				t.Errorf("%s, %s: message %v is called absent, %s", step, when, a.Absent, a.State)
			}
		}
		p := e.Start([]string{"COLDTIER_STOP_AT=" + step}, "purge")
		if !p.Stopped() {
			t.Fatalf("the purge does not come to %s: %s", step, p.Wait())
		}
		look("while it stands")
		p.Signal(syscall.SIGCONT)
		if r := p.Wait(); r.Exit == 0 {
			t.Errorf("the purge did not see the late messages: %s", r)
		}
		look("afterwards")
	}
}

// ask calls a method that may fail; raw is its answer as it came.
func ask(t *testing.T, url, method, body string) (a struct {
	answer
	raw    string
	status int
}) {
	t.Helper()
	resp, err := http.Post(url+"/coldtier.v1.ColdHistory/"+method, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a.raw, a.status = string(b), resp.StatusCode
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(b, &a.answer); err != nil {
			t.Fatal(err)
		}
	}
	return a
}
