package adversary

import (
	"fmt"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/harness"
)

// That one table of a database is dropped does not keep the conversations of its others
// waiting, of which nothing is in the cold tier yet and no server knows where they are.
func TestOneWarmTableIsDropped(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Messages: 300, Seed: 93, Tables: 2, Config: map[string]string{"fetch": "listen: 127.0.0.1:0\ndrain: 0s\nwarm: true"}})
	for _, table := range e.Tables {
		e.SQL("ALTER TABLE " + table + " ADD KEY by_seq (session_id, seq)")
	}
	conv := busiest(e)
	s := e.Serve()
	e.SQL("DROP TABLE " + e.Tables[1])
	for end := time.Now().Add(30 * time.Second); ; { // it is seen within some seconds
		a := call(t, s.URL, "FetchRange", fmt.Sprintf(`{"conversation": %q}`, conv))
		if a.State == "STATE_COMPLETE" {
			if len(a.Messages) == 0 {
				t.Error("the page is complete and empty")
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the page of a conversation in another table is %s", a.State)
		}
		time.Sleep(50 * time.Millisecond) // as retry_after asks
	}
}
