package adversary

import (
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/harness"
)

// A page is not taken for complete because ClickHouse, emptied or replaced since the
// copy was verified, answers that it has nothing.
func TestEmptiedClickHouseMakesNoGap(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Days: 3, Messages: 600, Seed: 71})
	var conv string
	var n int
	if err := e.Warm.QueryRowContext(t.Context(), "SELECT session_id, COUNT(*) n FROM "+e.Tables[0]+" GROUP BY 1 ORDER BY n DESC LIMIT 1").Scan(&conv, &n); err != nil {
		t.Fatal(err)
	}
	e.Must("archive")
	page := []string{"--output", "json", "fetch", "--conversation", conv, "--from", "clickhouse"}
	e.Expect(0, []string{"COMPLETE"}, page...)
	for _, lose := range []string{"_day = '" + e.Days[1].String() + "'", "1"} {
		forget(e, lose)
		for _, limit := range []int{5, 20, 200} {
			for _, dir := range []string{"before", "after"} {
				want := n
				if dir == "after" {
					want--
				}
				if got := e.Pages(conv, "auto", dir, limit); len(got) != want {
					t.Errorf("without the rows of %s, by %d %s: %d messages, want %d", lose, limit, dir, len(got), want)
				}
			}
		}
	}
	if r := e.Run(page...); !strings.Contains(r.Stdout, "PARTIAL") {
		t.Errorf("the page of an emptied ClickHouse is not partial: %s", r)
	}
}

// forget deletes rows in ClickHouse past the product, and waits until they are gone.
func forget(e *harness.Env, where string) {
	e.T.Helper()
	conn := e.ClickHouse.Open(e.T)
	table := e.ClickHouse.Database + ".messages"
	if err := conn.Exec(e.T.Context(), "ALTER TABLE "+table+" DELETE WHERE "+where); err != nil {
		e.T.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var n uint64
		if err := conn.QueryRow(e.T.Context(), "SELECT count() FROM "+table+" WHERE "+where).Scan(&n); err != nil {
			e.T.Fatal(err)
		}
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			e.T.Fatalf("ClickHouse still has %d rows where %s", n, where)
		}
	}
}
