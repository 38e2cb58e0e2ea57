package adversary

import (
	"strings"
	"testing"

	"github.com/coldtier/coldtier/tests/harness"
)

// A page around a message is found in whichever store has it.
func TestPageAroundFromEachStore(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 80, Messages: 200})
	var conv, id string
	if err := e.Warm.QueryRowContext(t.Context(), "SELECT session_id, MIN(msg_id) FROM "+e.Tables[0]+" GROUP BY 1 ORDER BY COUNT(*) DESC LIMIT 1").Scan(&conv, &id); err != nil {
		t.Fatal(err)
	}
	e.Must("archive")
	args := []string{"--output", "json", "fetch", "--conversation", conv, "--around", id, "--limit", "6", "--from"}
	for _, from := range []string{"s3", "clickhouse", "auto"} {
		e.Expect(0, []string{id, "COMPLETE"}, append(args, from)...)
	}
	for _, k := range e.Keys() {
		if strings.Contains(k, "/conv="+conv) {
			e.PutObject(k, []byte("damaged"))
		}
	}
	for _, from := range []string{"clickhouse", "auto"} {
		e.Expect(0, []string{id, "COMPLETE"}, append(args, from)...)
	}
}
