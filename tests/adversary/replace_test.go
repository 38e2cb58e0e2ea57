package adversary

import (
	"testing"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
)

// A manifest that was set back to a backup is made whole by a rebuild over itself: what was
// copied, purged, held and recalled since is known again.
func TestReplaceASetBackManifest(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Strategy: "rows", Seed: 108, Messages: 200})
	e.Must("archive")
	restore := backup(e)
	first, last := edge(e, "MIN"), edge(e, "MAX")
	e.SQL("CREATE TABLE one AS SELECT * FROM "+e.Tables[0]+" WHERE msg_id = ?", first)
	e.SQL("UPDATE "+e.Tables[0]+" SET content = 'edited' WHERE msg_id = ?", last)
	want := e.Truth()
	e.Expect(4, []string{"drift"}, "purge")
	e.Must("archive")
	e.Must("purge")
	var conv string
	if err := e.Warm.QueryRowContext(t.Context(), "SELECT session_id FROM one").Scan(&conv); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Store().PutStatus(t.Context(), manifest.Status{Conversation: []byte(conv), MessageID: first, Kind: manifest.StatusRecalled, By: "t"}); err != nil {
		t.Fatal(err)
	}
	e.Must("hold", "add", "--conversation", conv, "--reason", "a test", "--by", "t")
	e.Must("archive") // mirrors
	live := e.Slices()
	restore()
	e.Must("rebuild", "manifest", "--replace")
	e.Verdict(want)
	now := e.Slices()
	if len(live) != 1 || len(now) != 1 || now[0].State != manifest.Purged || now[0].Live != live[0].Live {
		t.Errorf("slices %+v, were %+v", now, live)
	}
	st, err := e.Store().Statuses(t.Context(), manifest.StatusQuery{Conversation: []byte(conv), Limit: 10})
	if err != nil || len(st) != 1 || st[0].Kind != manifest.StatusRecalled {
		t.Errorf("statuses %+v, %v", st, err)
	}
	if holds, err := e.Store().Holds(t.Context(), false); err != nil || len(holds) != 1 {
		t.Errorf("holds %+v, %v", holds, err)
	}
	e.SQL("INSERT INTO " + e.Tables[0] + " SELECT * FROM one")
	e.SQL("UPDATE "+e.Tables[0]+" SET msg_id = ?, seq = seq + 500000", first+1)
	for k, v := range e.Truth() {
		want[k] = v
	}
	e.Must("archive")
	// The recall is in the column of the new generation now.
	if _, err := e.Store().PutStatus(t.Context(), manifest.Status{Conversation: []byte(conv), MessageID: first, Kind: manifest.StatusNone, By: "t"}); err != nil {
		t.Fatal(err)
	}
	e.Must("archive")
	loseManifest(e)
	e.Must("rebuild", "manifest")
	e.Must("archive")
	st, err = e.Store().Statuses(t.Context(), manifest.StatusQuery{Conversation: []byte(conv), Limit: 10})
	if err != nil || len(st) > 1 || len(st) == 1 && st[0].Kind != manifest.StatusNone {
		t.Errorf("after it was taken back: statuses %+v, %v", st, err)
	}
}
