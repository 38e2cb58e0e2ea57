package throttle

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// atOnce is how long what was stopped may go on on a busy machine: less than what it waits for
// in these tests, as its rate has it. (That it looks each second is tested without a machine,
// in archive/warm.)
const atOnce = 15 * time.Second

// A stop ends a scan and a purge by rows that are under way, before their next chunk, and
// keeps others from beginning, until it is lifted.
func TestStopWhileAtWork(t *testing.T) {
	t.Parallel()
	// Three ranges of 1,200 rows in two chunks each, at a rate by which the second is waited for for 25 s.
	e := harness.New(t, harness.Options{Messages: 3600, Seed: 63, Strategy: "rows"})
	want := e.Truth()
	slow := map[string]string{"archive": "rows_per_second: 20", "purge": "rows_per_second: 20"}
	for _, job := range []string{"archive", "purge"} {
		e.Change(func(o *harness.Options) { o.Config = slow })
		p := e.Start(nil, job)
		state := map[string]manifest.State{"archive": manifest.Copying, "purge": manifest.Purging}[job]
		until(t, job+" is at work", func() bool {
			s := e.Slices()
			return len(s) == 1 && s[0].State == state && (job == "archive" || e.Count() < len(want))
		})
		e.Expect(0, []string{"ops stopped " + job}, "stop", job, "--reason", "ticket 4711", "--by", "ops")
		begun := time.Now()
		r := p.Wait()
		if d := time.Since(begun); d > atOnce {
			t.Errorf("%s goes on for %s: %s", job, d, r)
		}
		if r.Exit != 3 || !strings.Contains(r.Stderr, "ops stopped "+job) || !strings.Contains(r.Stderr, "ticket 4711") {
			t.Errorf("%s", r)
		}
		if s := e.Slices()[0]; s.Failed || s.State != map[string]manifest.State{"archive": manifest.Pending, "purge": manifest.Verified}[job] {
			t.Errorf("%+v", s)
		}
		clean(e)
		if job == "purge" {
			if n := e.Count(); n == 0 || n == len(want) {
				t.Errorf("%d of %d rows are in warm", n, len(want))
			}
		}
		e.Expect(3, []string{"ticket 4711", "coldtier resume " + job}, job)
		e.Must(job, "--dry-run")
		var doc struct{ Kind string }
		envelope(t, e.Run("--output", "json", job), &doc)
		if doc.Kind != "stopped" {
			t.Errorf("the error's kind is %q", doc.Kind)
		}
		e.Expect(0, []string{"ticket 4711"}, "status")
		e.Expect(0, []string{"lifted", "ticket 4711"}, "resume", job)
		e.Expect(0, []string{"was not stopped"}, "resume", job)
		e.Change(func(o *harness.Options) { o.Config = nil })
		e.Must(job)
	}
	e.Verdict(want)
	if n := e.Count(); n != 0 {
		t.Errorf("%d rows are left in warm", n)
	}
}

// A stop of all, of which the bucket hears: who must not go on does not, and who may does.
func TestStopOfAll(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Messages: 60, Seed: 64})
	e.Must("archive")
	e.Expect(0, []string{"would be stopped"}, "stop", "all", "--reason", "r", "--dry-run")
	e.Must("stop", "all", "--reason", "failover", "--for", "1h")
	for _, args := range [][]string{{"archive"}, {"purge"}, {"patrol", "--heal"}, {"canary", "plant", "--conversation", "1"}, {"restore", "--into", e.WarmDSN, "--into-warm"}} {
		e.Expect(3, []string{"failover", "coldtier resume all"}, args...)
	}
	for _, args := range [][]string{{"verify"}, {"patrol"}, {"status"}, {"purge", "--dry-run"}} {
		e.Must(args...)
	}
	e.Expect(0, []string{"was not stopped"}, "resume", "purge") // which is another stop
	e.Expect(3, []string{"failover"}, "purge")

	// A manifest that was set back to before the stop, and one that is rebuilt, know it again.
	m := stack.OpenMySQL(t, e.Manifest)
	exec(t, m, "DELETE FROM stops")
	e.Expect(3, []string{"failover"}, "purge")
	e.Must("rebuild", "manifest", "--replace")
	e.Expect(3, []string{"failover"}, "purge")
	old := e.Manifest
	e.Manifest = stack.MySQL(t)
	e.Change(func(*harness.Options) {})
	e.Must("rebuild", "manifest")
	e.Expect(3, []string{"failover"}, "purge")
	e.Must("resume", "all")
	e.Manifest = old
	e.Change(func(*harness.Options) {})
	e.Must("resume", "all")
	e.Must("purge")
	e.Expect(0, []string{"lifted by"}, "stop", "list", "--all")

	// One that cannot be read may be a stop of anything.
	key := "im/" + manifest.StopKey("im", strings.Repeat("0", 32))
	e.PutObject(key, []byte("{"))
	e.Expect(4, []string{"cannot be read", "stops/"}, "purge")
	e.DeleteObject(key)
	e.Must("purge")
	for _, args := range [][]string{{"stop"}, {"stop", "drill", "--reason", "r"}, {"stop", "all"}, {"stop", "all", "--reason", " "}, {"stop", "all", "--reason", "r", "--for", "soon"}, {"resume"}, {"resume", "drill"}} {
		e.Expect(2, nil, args...)
	}
}

// A stop of all also ends what else changes warm or the stores, and the same command does
// the rest later.
func TestStopOfAllWhileAtWork(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Messages: 600, Days: 6, Seed: 66})
	want := e.Truth()
	e.Must("archive")
	e.Must("purge")
	s3, err := url.Parse(e.S3.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	far := stack.NewProxy(t, s3.Host)
	far.Latency(250 * time.Millisecond)
	manifests := stack.OpenMySQL(t, e.Manifest)
	for name, c := range map[string]struct {
		args   []string
		slow   []string // more of them, while it is to be stopped
		atWork func() bool
	}{
		"restore": {[]string{"restore", "--into", e.WarmDSN, "--into-warm", "--inserts"}, []string{"--rows-per-second", "10"}, func() bool { return e.Count() > 0 }},
		"patrol":  {[]string{"patrol", "--heal", "--workers", "1"}, nil, func() bool { return true }},
	} {
		e.Change(func(o *harness.Options) { o.S3Endpoint = "http://" + far.Addr })
		p := e.Start(nil, slices.Concat(c.args, c.slow)...)
		until(t, name+" is at work", func() bool {
			return len(stack.Strings(t, manifests, "SELECT job FROM runs WHERE ended_at IS NULL AND job = '"+name+"'")) == 1 && c.atWork()
		})
		e.Change(func(o *harness.Options) { o.S3Endpoint = "" })
		e.Must("stop", "all", "--reason", "ticket 4712")
		begun := time.Now()
		r := p.Wait()
		if d := time.Since(begun); d > atOnce {
			t.Errorf("%s goes on for %s: %s", name, d, r)
		}
		if r.Exit != 3 || !strings.Contains(r.Stderr, "ticket 4712") || !strings.Contains(r.Stderr, "coldtier resume all") {
			t.Errorf("%s", r)
		}
		outcomes := stack.Strings(t, manifests, "SELECT outcome FROM runs WHERE job = '"+name+"'")
		if len(outcomes) != 1 || outcomes[0] != "stopped" {
			t.Errorf("the outcome of the %s is %q", name, outcomes)
		}
		if n := e.Count(); name == "restore" && n == len(want) {
			t.Error("all was restored before the stop")
		}
		clean(e)
		e.Must("resume", "all")
		e.Must(c.args...)
	}
	if n := e.Count(); n != len(want) {
		t.Errorf("%d of %d rows are in warm again", n, len(want))
	}
	e.Verdict(want)
}

// A stop needs nothing but the manifest: it is placed when all else is broken.
func TestStopWhenAllElseIsBroken(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Messages: 60, Seed: 65})
	s3, err := url.Parse(e.S3.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	gone := stack.NewProxy(t, s3.Host)
	gone.Cut()
	e.Change(func(o *harness.Options) {
		o.ManifestAddr = addr(t, e.Manifest)
		o.MySQLAddr, o.ClickHouseAddr, o.S3Endpoint = gone.Addr, gone.Addr, "http://"+gone.Addr
	})
	e.Expect(0, []string{"stopped purge", "warning", "not in the bucket yet"}, "stop", "purge", "--reason", "all is broken")
	e.Expect(3, []string{"all is broken"}, "purge")
	e.Expect(0, []string{"all is broken"}, "stop", "list")
	e.Change(func(o *harness.Options) { o.ManifestAddr, o.MySQLAddr, o.ClickHouseAddr, o.S3Endpoint = "", "", "", "" })
	e.Must("archive") // which puts it into the bucket
	found := false
	for _, k := range e.Keys() {
		found = found || strings.Contains(k, "manifest/stops/")
	}
	if !found {
		t.Errorf("the bucket does not know of the stop: %v", e.Keys())
	}
}
