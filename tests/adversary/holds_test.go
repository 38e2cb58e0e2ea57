package adversary

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// A manifest that is set back to before a hold knows nothing of it. The bucket does: what is
// held is not purged, also when the hold's number has been given anew; and a hold that cannot
// be read stops all.
func TestHoldsOfASetBackManifest(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"forgotten", "number given anew", "number given anew, not mirrored", "number given anew, not mirrored, unreadable", "number given anew, rebuilt", "unreadable"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := harness.New(t, harness.Options{Seed: 104, Messages: 100, Strategy: "rows"})
			e.Must("archive")
			restore := backup(e)
			e.Must("hold", "add", "--shard", e.Tables[0], "--day", e.Days[0].String(), "--reason", "a court's", "--by", "t")
			restore()
			if _, err := stack.OpenMySQL(t, e.Manifest).ExecContext(t.Context(), "ALTER TABLE holds AUTO_INCREMENT = 1"); err != nil {
				t.Fatal(err)
			}
			key := "im/" + manifest.HoldKey("im", 1)
			good := e.Object(key)
			count := 1
			switch how {
			case "number given anew":
				e.Must("hold", "add", "--conversation", "17", "--reason", "another", "--by", "u")
				count = 2
			case "number given anew, not mirrored", "number given anew, not mirrored, unreadable": // who placed it was killed
				if _, err := e.Store().AddHold(t.Context(), manifest.Hold{Kind: manifest.HoldConversation, Subject: "17", Reason: "another", By: "u"}); err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(how, "unreadable") {
					e.PutObject(key, good[1:])
					e.Expect(4, []string{key[3:], "cannot be read"}, "purge")
					e.PutObject(key, good)
				}
				count = 2
			case "number given anew, rebuilt":
				e.Must("hold", "add", "--conversation", "17", "--reason", "another", "--by", "u")
				e.Manifest = stack.MySQL(t)
				e.Change(func(*harness.Options) {})
				e.Must("rebuild", "manifest")
				e.Must("archive")
				count = 2
			case "unreadable":
				e.PutObject(key, good[1:])
				e.Expect(4, []string{key[3:], "cannot be read"}, "purge")
				e.Expect(0, []string{key[3:], "cannot be read"}, "archive")
				e.PutObject(key, good)
			}
			n := e.Count()
			e.Expect(0, nil, "purge")
			if e.Count() != n || n == 0 {
				t.Errorf("%d of %d rows of a held slice are in warm", e.Count(), n)
			}
			holds, err := e.Store().Holds(t.Context(), false)
			if err != nil || len(holds) != count {
				t.Errorf("holds %+v, %v", holds, err)
			}
			for _, h := range holds {
				if h.Kind == manifest.HoldSlice {
					e.Must("hold", "release", strconv.FormatUint(h.ID, 10), "--by", "t")
				}
			}
			gone(e, e.Truth())
			if u, err := e.Store().Unmirrored(t.Context()); err != nil || u.Holds != 0 {
				t.Errorf("%+v, %v", u, err)
			}
		})
	}
}

// A hold of a restore into warm is prolonged where it is, under its number. A manifest that is
// set back to before that takes it for one that has run out; the bucket knows better.
func TestProlongedHoldOfASetBackManifest(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 303, Messages: 100, Strategy: "rows"})
	want := e.Truth()
	gone(e, want)
	bring := func(keep string) { e.Must("restore", "--into", e.WarmDSN, "--into-warm", "--keep-for", keep) }
	bring("1h")
	e.Must("archive")
	restore := backup(e)
	bring("30d")
	restore()
	key := "im/" + manifest.HoldKey("im", 1)
	later := func(d time.Duration) {
		t.Helper()
		if _, err := stack.OpenMySQL(t, e.Manifest).ExecContext(t.Context(), "UPDATE holds SET expires_at = UTC_TIMESTAMP(6) + INTERVAL ? SECOND", int(d.Seconds())); err != nil {
			t.Fatal(err)
		}
	}
	later(-time.Minute) // what the manifest knows of it has run out
	good := e.Object(key)
	e.PutObject(key, good[1:])
	e.Expect(4, []string{key[3:], "cannot be read"}, "purge")
	e.PutObject(key, good)
	e.Expect(0, []string{"held"}, "purge")
	if n := e.Count(); n != len(want) {
		t.Errorf("%d of %d rows of a slice that was to be kept are in warm", n, len(want))
	}
	e.Must("hold", "release", "1", "--by", "t")
	e.Must("archive")
	e.Expect(0, nil, "purge") // a release is not forgotten for what the bucket had before
	if n := e.Count(); n != 0 {
		t.Errorf("%d rows are left in warm", n)
	}
	e.Verdict(want)
}
