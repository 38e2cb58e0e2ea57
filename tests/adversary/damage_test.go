package adversary

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/tests/harness"
)

// The bucket has lost one object and ClickHouse the rows of another conversation, when
// rows that are in neither of them alone must be carried on: together they have all.
func TestEachStoreLostAnotherPart(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Strategy: "rows", Seed: 79, Messages: 300})
	want := e.Truth()
	e.SQL("CREATE TABLE one AS SELECT * FROM "+e.Tables[0]+" WHERE msg_id = ?", edge(e, "MAX"))
	e.Must("archive")
	e.Must("purge")
	key := e.DamageObject(func(b []byte) []byte { return b[:len(b)/2] })
	var other string
	for _, k := range slices.Backward(e.Keys()) {
		if _, conv, ok := strings.Cut(k, "/conv="); ok && k != key {
			other = strings.TrimSuffix(conv, ".parquet")
			break
		}
	}
	forget(e, fmt.Sprintf("toString(session_id) = '%s'", other))
	e.SQL("UPDATE one SET msg_id = msg_id + 1, seq = seq + 500000, content = 'late'")
	e.SQL("INSERT INTO " + e.Tables[0] + " SELECT * FROM one")
	e.SQL("DROP TABLE one")
	for k, v := range e.Truth() {
		want[k] = v
	}
	gone(e, want)
}
