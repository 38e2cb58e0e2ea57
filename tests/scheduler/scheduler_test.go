// Package scheduler tests jobs and the scheduler as processes: leases, deadlines, panics,
// signals, absence.
package scheduler

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

func TestMain(m *testing.M) { harness.Main(m) }

// rig is a set-up with a schedule.
type rig struct {
	*harness.Env
	db *sql.DB // the manifest's
}

func set(t *testing.T, days int, schedule string, change ...func(*harness.Options)) *rig {
	t.Helper()
	o := harness.Options{Days: days, Messages: 60 * days, Strategy: "rows", Config: map[string]string{"archive": "workers: 1"}}
	for _, c := range change {
		c(&o)
	}
	e := harness.New(t, o)
	f, err := os.OpenFile(e.Config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(f, "schedule: {%s}\n", schedule); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return &rig{e, stack.OpenMySQL(t, e.Manifest+"?parseTime=true")}
}

// hour is that of a schedule, so many hours after the one that is farthest from now: whenever
// the tests run, its next occurrence does not come while they do.
func hour(after int) int { return (time.Now().UTC().Hour() + 12 + after) % 24 }

// only is a schedule of archives alone.
func only() string { return daily(hour(0)) }

func daily(hour int) string {
	return fmt.Sprintf(`archive: "0 %d * * *", purge: "", verify: "", patrol: "", drill: ""`, hour)
}

// absent makes schedules done up to some days ago.
func (r *rig) absent(days int, jobs ...string) {
	r.T.Helper()
	for _, job := range jobs {
		if _, err := r.db.ExecContext(r.T.Context(), "INSERT INTO job_leases (source_id, name, mark) SELECT id, ?, UTC_TIMESTAMP(6) - INTERVAL ? DAY FROM sources", "schedule/"+job, days); err != nil {
			r.T.Fatal(err)
		}
	}
}

func (r *rig) runs(job string) []manifest.Run {
	r.T.Helper()
	all, err := r.Store().LastRuns(r.T.Context(), job, 10)
	if err != nil {
		r.T.Fatal(err)
	}
	return all
}

// leases counts the leases that last.
func (r *rig) leases() (n int) {
	r.T.Helper()
	if err := r.db.QueryRowContext(r.T.Context(), "SELECT COUNT(*) FROM job_leases WHERE until IS NOT NULL").Scan(&n); err != nil {
		r.T.Fatal(err)
	}
	return n
}

func (r *rig) eventually(what string, is func() bool) {
	r.T.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.T.Fatalf("never: %s", what)
		}
	}
}

// logged waits for a line of a process's log and gives what the pattern's group matches.
func (r *rig) logged(p *harness.Process, pattern string) (found string) {
	r.T.Helper()
	re := regexp.MustCompile(pattern)
	r.eventually("the log has "+pattern, func() bool {
		m := re.FindStringSubmatch(p.Stderr())
		if m != nil {
			found = m[len(m)-1]
		}
		return m != nil
	})
	return found
}

// stopped waits until the job of a scheduler has stopped itself, and gives its process ID.
func (r *rig) stopped(p *harness.Process, job string) int {
	r.T.Helper()
	pid, err := strconv.Atoi(r.logged(p, `msg="run begun" job=`+job+` pid=(\d+)`))
	if err != nil {
		r.T.Fatal(err)
	}
	r.T.Cleanup(func() {
		if state(pid) == 'T' { // what a test that failed has left
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	r.eventually("the job stops", func() bool {
		s := state(pid)
		if s == 0 {
			r.T.Fatalf("the job ended: %s", p.Stderr())
		}
		return s == 'T'
	})
	return pid
}

// state is the letter that the kernel has for what a process does; 0: there is none.
func state(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if _, rest, _ := strings.Cut(string(stat), ") "); err == nil && rest != "" {
		return rest[0]
	}
	return 0
}

func signal(t testing.TB, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// end ends schedulers, which must exit with 0.
func end(t *testing.T, all ...*harness.Process) {
	t.Helper()
	for _, p := range all {
		p.Signal(syscall.SIGTERM)
	}
	for _, p := range all {
		if res := p.Wait(); res.Exit != 0 {
			t.Errorf("the scheduler ends with %s", res)
		}
	}
}

// Two schedulers are started at once: one does the occurrence, and the other knows.
func TestDoubleStart(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	at := hour(0)
	r := set(t, 2, daily(at))
	want := r.Truth()
	r.absent(1, "archive")
	a := r.Start([]string{"COLDTIER_STOP_AT=archive.claimed"}, "scheduler", "--listen", "127.0.0.1:0")
	pid := r.stopped(a, "archive")
	b := r.Start(nil, "scheduler")
	r.logged(b, `msg="another process does it" job=archive`)
	signal(t, pid, syscall.SIGCONT)
	r.eventually("the archive ends", func() bool { all := r.runs("archive"); return len(all) > 0 && all[0].Ended != nil })
	r.logged(a, `msg="run ended" job=archive .*outcome=done`)
	r.logged(a, `msg="next run" job=archive`)
	runs := r.runs("archive")
	if len(runs) != 1 || runs[0].Outcome != "done" || runs[0].Scheduled == nil || runs[0].Scheduled.Hour() != at || runs[0].Why != "" {
		t.Errorf("%+v", runs)
	}
	address := r.logged(a, `msg="telling metrics and health" address=(\S+)`)
	if got := get(t, "http://"+address+"/healthz"); got != "ok\n" {
		t.Errorf("health: %q", got)
	}
	if got := get(t, "http://"+address+"/"); !strings.Contains(got, "/healthz") || !strings.Contains(got, "/metrics") {
		t.Errorf("what is where: %q", got)
	}
	metrics := get(t, "http://"+address+"/metrics")
	for _, line := range []string{`coldtier_job_runs_total{outcome="done",source="im",verb="archive"} 1`, `coldtier_job_runs_total{outcome="panic",source="im",verb="archive"} 0`, `coldtier_job_running{source="im",verb="archive"} 0`} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	end(t, a, b)
	if n := r.leases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	r.Verdict(want)
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, res.Status, err)
	}
	return string(b)
}

// J4: SIGTERM in the middle of an archive under a scheduler: both end within the grace time,
// all leases are given back, the occurrence is not done; the next scheduler finishes it. The
// same when the scheduler is killed, of which its job is told.
func TestSIGTERMInTheMiddle(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			slow := stack.NewProxy(t, strings.TrimPrefix(stack.Bucket(t).Endpoint, "http://"))
			r := set(t, 6, only(), func(o *harness.Options) { o.S3Endpoint = "http://" + slow.Addr })
			want := r.Truth()
			r.absent(1, "archive")
			slow.Latency(200 * time.Millisecond)
			a := r.Start(nil, "scheduler", "--grace", "30s")
			pid, err := strconv.Atoi(r.logged(a, `msg="run begun" job=archive pid=(\d+)`))
			if err != nil {
				t.Fatal(err)
			}
			r.eventually("a slice is archived", func() bool {
				all, err := r.Store().Slices(t.Context(), manifest.Filter{States: []manifest.State{manifest.Verified}})
				return err == nil && len(all) > 0
			})
			a.Signal(sig)
			// At the end of its grace time it would kill the job, which could then not note below
			// that it was interrupted.
			if res := a.Wait(); sig == syscall.SIGTERM && res.Exit != 0 {
				t.Errorf("%s", res)
			}
			r.eventually("the job ends", func() bool { return state(pid) == 0 || state(pid) == 'Z' })
			runs := r.runs("archive")
			if len(runs) != 1 || runs[0].Ended == nil || !strings.Contains(runs[0].Why, "interrupted by SIGTERM") {
				t.Fatalf("%+v", runs)
			}
			left := 0
			if sig == syscall.SIGKILL { // the scheduler's lease runs out
				left = 1
			}
			if n := r.leases(); n != left {
				t.Errorf("%d leases are left, want %d", n, left)
			}
			if _, err := r.db.ExecContext(t.Context(), "UPDATE job_leases SET until = UTC_TIMESTAMP(6) WHERE until IS NOT NULL"); err != nil {
				t.Fatal(err)
			}
			slow.Heal()
			b := r.Start(nil, "scheduler")
			r.logged(b, `msg="run ended" job=archive .*outcome=done`)
			end(t, b)
			if again := r.runs("archive"); len(again) != 2 || again[0].Outcome != "done" || !again[0].Scheduled.Equal(*runs[0].Scheduled) {
				t.Errorf("%+v", again)
			}
			r.Verdict(want)
		})
	}
}

// J2: after five days of absence one run archives every day, the oldest first; then the purge
// catches up, by one run as well.
func TestFiveDaysOfAbsence(t *testing.T) {
	t.Parallel()
	r := set(t, 5, fmt.Sprintf(`archive: "0 %d * * *", purge: "0 %d * * *", verify: "", patrol: "", drill: ""`, hour(0), hour(2)))
	want := r.Truth()
	r.absent(5, "archive", "purge")
	s := r.Start(nil, "scheduler")
	r.logged(s, `msg="catching up by one run what was missed" job=archive`)
	r.logged(s, `msg="run ended" job=purge .*outcome=done`)
	end(t, s)
	rows, err := r.db.QueryContext(t.Context(), "SELECT s.day FROM slices s JOIN copies c ON c.slice_id = s.id WHERE s.state = 'purged' ORDER BY c.committed_at")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var got []string
	for rows.Next() {
		var day time.Time
		if err := rows.Scan(&day); err != nil {
			t.Fatal(err)
		}
		got = append(got, day.Format(time.DateOnly))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	var days []string
	for _, d := range r.Days {
		days = append(days, d.String())
	}
	if strings.Join(got, " ") != strings.Join(days, " ") {
		t.Errorf("archived and purged %v, want %v", got, days)
	}
	archives, purges := r.runs("archive"), r.runs("purge")
	if len(archives) != 1 || len(purges) != 1 || purges[0].Started.Before(*archives[0].Ended) {
		t.Errorf("%+v\n%+v", archives, purges)
	}
	if n := r.Count(); n != 0 {
		t.Errorf("%d rows are left in warm", n)
	}
	r.Verdict(want)
}

// A panic, and a run beyond its deadline, are recorded; the next run finishes the work.
func TestPanicAndDeadline(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	r := set(t, 3, only())
	want := r.Truth()
	if res := r.Start([]string{"COLDTIER_PANIC_AT=run.begun"}, "archive", "--to", r.Days[2].String()).Wait(); res.Exit != 1 || !strings.Contains(res.Stderr, "the job panicked: at run.begun") {
		t.Fatal(res)
	}
	run := r.runs("archive")[0]
	if run.Outcome != "panic" || !strings.Contains(run.Why, "step_crash.go") || run.Fence != 1 || strings.Join(run.Args, " ") != "--to="+r.Days[2].String() {
		t.Errorf("%+v", run)
	}
	deadline := 500 * time.Millisecond
	p := r.Start([]string{"COLDTIER_STOP_AT=archive.claimed"}, "archive", "--deadline", deadline.String())
	for ; !p.Stopped(); deadline *= 2 { // a busy machine may take longer to claim
		if res := p.Wait(); deadline > time.Minute || !strings.Contains(res.Stderr, "archive took longer than "+deadline.String()) {
			t.Fatal(res)
		}
		p = r.Start([]string{"COLDTIER_STOP_AT=archive.claimed"}, "archive", "--deadline", (2 * deadline).String())
	}
	time.Sleep(deadline * 6 / 5) // beyond it
	p.Signal(syscall.SIGCONT)
	longer := "archive took longer than " + deadline.String()
	if res := p.Wait(); res.Exit != 1 && res.Exit != 3 || !strings.Contains(res.Stderr, longer) {
		t.Fatal(res)
	}
	if run = r.runs("archive")[0]; !strings.Contains(run.Why, longer) || run.Outcome != "partial" && run.Outcome != "deadline" {
		t.Errorf("%+v", run)
	}
	r.Must("archive")
	if n := r.leases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	r.Verdict(want)
}

// A job that does not end with its deadline, since it hangs, is killed: the scheduler does not
// wait for it for ever.
func TestJobThatHangsBeyondItsDeadline(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	r := set(t, 1, only())
	want := r.Truth()
	r.absent(2, "archive")
	p := r.Start([]string{"COLDTIER_STOP_AT=archive.claimed"}, "scheduler", "--deadline", "10s", "--grace", "2s") // it claims in less, also on a busy machine
	pid := r.stopped(p, "archive")                                                                                // and nobody wakes it
	r.eventually("the job is gone", func() bool { return state(pid) == 0 })
	r.logged(p, `run ended.*outcome=deadline`)
	end(t, p)
	if _, err := r.db.ExecContext(t.Context(), "UPDATE slices SET lease_until = NULL"); err != nil { // it runs out
		t.Fatal(err)
	}
	r.Must("archive")
	r.Verdict(want)
}

// One patrol at a time; archives by any number of workers, one for each name.
func TestLeasesOfVerbs(t *testing.T) {
	harness.Once(t)
	t.Parallel()
	r := set(t, 2, only())
	stop := func(environ string, args ...string) *harness.Process {
		t.Helper()
		p := r.Start([]string{"COLDTIER_STOP_AT=run.begun", environ}, args...)
		if !p.Stopped() {
			t.Fatal(p.Wait())
		}
		return p
	}
	first := stop("JOB_COMPLETION_INDEX=3", "archive")
	r.Expect(5, []string{"job archive/3", "lease"}, "archive", "--worker", "3")
	r.Expect(2, []string{"--worker"}, "archive", "--worker", "a b")
	r.Must("archive", "--worker", "4")
	first.Signal(syscall.SIGCONT)
	if res := first.Wait(); res.Exit != 0 {
		t.Error(res)
	}
	patrol := stop("", "patrol")
	r.Expect(5, []string{"job patrol", "lease"}, "patrol")
	if run := r.runs("patrol")[0]; !run.Alive || run.Lease != "patrol" {
		t.Errorf("%+v", run)
	}
	patrol.Signal(syscall.SIGKILL)
	patrol.Wait()
	r.Expect(5, []string{"lease"}, "patrol")
	if _, err := r.db.ExecContext(t.Context(), "UPDATE job_leases SET until = UTC_TIMESTAMP(6)"); err != nil {
		t.Fatal(err)
	}
	r.Must("patrol")
	if runs := r.runs("patrol"); len(runs) != 2 || runs[0].Fence <= runs[1].Fence || runs[1].Alive || runs[1].Ended != nil {
		t.Errorf("%+v", runs)
	}
}
