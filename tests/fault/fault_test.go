package fault

import (
	"database/sql"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
	"github.com/coldtier/coldtier/tests/truth"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The servers, one of which is behind a line.
const (
	warmServer     = "warm"
	manifestServer = "manifest"
	bucketServer   = "bucket"
	rowsServer     = "clickhouse"
)

// env is a set-up with a line to one server.
type env struct {
	*harness.Env
	*line
	server, strategy string
	db               *sql.DB // the manifest's, directly
	want             truth.Rows
	rng              *rand.Rand
}

// lease is how long a worker lasts that is cut off from the manifest: short enough to be waited
// for, and longer than a busy machine makes a worker wait that is not.
const lease = 5 * time.Second

func setup(t *testing.T, server, strategy string, messages int) *env {
	t.Helper()
	my, s3, ch := addrs(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	e := &env{server: server, strategy: strategy, rng: rand.New(rand.NewPCG(seed, 1))}
	o := harness.Options{Partitioned: strategy == "partition", Strategy: strategy, Seed: seed, Messages: messages}
	if server != "" {
		o.Config = map[string]string{"manifest": "lease: " + lease.String()}
	}
	switch server {
	case warmServer:
		e.line = newLine(t, my, true)
		o.MySQLAddr, o.ManifestAddr = e.addr, my
	case manifestServer:
		e.line = newLine(t, my, true)
		o.ManifestAddr = e.addr
	case bucketServer:
		e.line = newLine(t, s3, false)
		o.S3Endpoint = "http://" + e.addr
	case rowsServer:
		e.line = newLine(t, ch, false)
		o.ClickHouseAddr = e.addr
	}
	e.Env = harness.New(t, o)
	e.db = stack.OpenMySQL(t, e.Manifest)
	e.want = e.Truth()
	return e
}

// documented are the exit codes that the help text names, but for "refused": a broken
// line is neither drift nor damage nor a wrong epoch.
func documented(r harness.Result) bool { return r.Exit >= 0 && r.Exit <= 5 && r.Exit != 4 }

// named says whether an error tells which server or which slice it is about.
func (e *env) named(r harness.Result) bool {
	for _, w := range []string{e.addr, strings.TrimPrefix(e.Tables[0], e.Database+"."), e.S3.Bucket, "manifest", "interrupted by SIG"} {
		if strings.Contains(r.Stdout+r.Stderr, w) {
			return true
		}
	}
	return false
}

// ended demands what holds after every fault: a documented exit code, an error that
// says where, and no message lost or doubled (invariant 1).
func (e *env) ended(r harness.Result) {
	e.T.Helper()
	if !documented(r) || (r.Exit != 0 && !e.named(r)) {
		e.T.Errorf("want a documented exit code and an error that names the server or the slice: %s", r)
	}
	if strings.Contains(r.Stdout+r.Stderr, "panic") || strings.Contains(r.Stdout+r.Stderr, "goroutine ") {
		e.T.Errorf("it panicked: %s", r)
	}
	e.Verdict(e.want)
}

// expire makes the leases of a worker that has ended run out. It stands for the time that
// passes; TestLeaseOfADeadWorkerRunsOut of tests/crash waits for it.
func (e *env) expire() {
	e.T.Helper()
	for _, q := range []string{"slices SET lease_until", "server_slots SET held_until", "checks SET claim_until", "job_leases SET until"} {
		_, column, _ := strings.Cut(q, "SET ")
		if _, err := e.db.ExecContext(e.T.Context(), "UPDATE "+q+" = UTC_TIMESTAMP(6) WHERE "+column+" > UTC_TIMESTAMP(6)"); err != nil {
			e.T.Fatal(err)
		}
	}
}

// finish runs a verb until all is done. Nothing else may run.
func (e *env) finish(verb string) harness.Result {
	e.T.Helper()
	end := time.Now().Add(time.Minute)
	for {
		e.expire()
		r := e.Run(verb)
		switch {
		case r.Exit == 0 && e.all(verb):
			return r
		case r.Exit != 0 && r.Exit != 3 && r.Exit != 5 && !strings.Contains(r.Stdout+r.Stderr, "lease"): // short ones are lost on a machine that stands still
			e.T.Fatalf("a run after the fault: %s", r)
		case time.Now().After(end):
			e.T.Fatalf("still not done a minute after the fault: %s", r)
		}
	}
}

// all says whether a verb has brought every slice where it brings it.
func (e *env) all(verb string) bool {
	e.T.Helper()
	want := []manifest.State{manifest.Verified, manifest.Purging, manifest.Purged} // purging: a purge is to be finished
	if verb == "purge" {
		want = want[2:]
	}
	list := e.Slices()
	return len(list) > 0 && !slices.ContainsFunc(list, func(s manifest.Slice) bool { return !slices.Contains(want, s.State) })
}

// cold finishes the whole job, and demands every message in the cold tier alone.
func (e *env) cold() {
	e.T.Helper()
	e.finish("archive")
	e.Verdict(e.want)
	e.finish("purge")
	if n := e.Count(); n != 0 {
		e.T.Errorf("%d rows are left in warm", n)
	}
	if r := e.Verdict(e.want); r.InCold != len(e.want) {
		e.T.Error(r)
	}
}

// heavy says whether to take the time for more.
func heavy() bool { return os.Getenv("COLDTIER_TEST_HEAVY") != "" }

// each runs a test for every server that takes part in copying or in deleting, and
// for both strategies where rows are deleted; with -short, for what differs between
// kinds of servers alone.
func each(t *testing.T, fn func(t *testing.T, server, strategy string)) {
	t.Helper()
	for _, c := range [][2]string{{warmServer, "rows"}, {warmServer, "partition"}, {manifestServer, "rows"}, {manifestServer, "partition"}, {bucketServer, "rows"}, {rowsServer, "rows"}} {
		t.Run(c[0]+"/"+c[1], func(t *testing.T) {
			if testing.Short() && (c[0] == bucketServer || (c[0] == warmServer) == (c[1] == "rows")) && c[0] != rowsServer {
				t.Skip("the same as on the other set of servers")
			}
			t.Parallel()
			fn(t, c[0], c[1])
		})
	}
}

// verbs are those that use a server and whose work the strategy changes, in the
// order of the job.
func (e *env) verbs() []string {
	e.T.Helper()
	switch {
	case e.server == bucketServer || e.server == rowsServer:
		return []string{"archive", "verify"}
	case e.strategy == "partition":
		e.Must("archive")
		return []string{"purge"}
	}
	return []string{"archive", "purge"}
}
