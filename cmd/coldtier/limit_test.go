package main

import (
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/stack"
)

// A run whose time is up ends between two steps: nothing is leased any more, what was left
// is named, and the next run goes on from there. So do purge and verify.
func TestRunsEndWhenTheirTimeIsUp(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for d := 31; d <= 50; d++ {
		l.fill("msg_00", d, 2, 17)
	}
	l.set("purge.lag", "0s")
	l.want(0, "migrate")
	m := stack.OpenMySQL(t, l.config["manifest"].(map[string]any)["dsn"].(string))
	proxy := l.slowBucket()
	proxy.Latency(200 * time.Millisecond)
	clean := func(states string) {
		t.Helper()
		var busy, slots, other int
		if err := m.QueryRow("SELECT COALESCE(SUM(lease_until > UTC_TIMESTAMP(6)), 0), (SELECT COUNT(*) FROM server_slots WHERE held_until > UTC_TIMESTAMP(6)), SUM(state NOT IN ("+states+")) FROM slices").
			Scan(&busy, &slots, &other); err != nil || busy != 0 || slots != 0 || other != 0 {
			t.Errorf("%d slices are leased, %d slots held, %d slices in none of the states %s; %v", busy, slots, other, states, err)
		}
	}
	o := l.want(exitPartial, "archive", "--max-duration", "2s")
	if !strings.Contains(o.stderr, "time is up (--max-duration 2s)") || !strings.Contains(o.stderr, "left, the first 20") {
		t.Errorf("%s", o.stderr)
	}
	clean("'pending', 'committed', 'verified'")
	var left int
	if err := m.QueryRow("SELECT COUNT(*) FROM slices WHERE state <> 'verified'").Scan(&left); err != nil || left == 0 {
		t.Fatalf("%d slices are left, %v", left, err)
	}
	proxy.Heal()
	l.want(0, "archive", "--day", l.day(31).String()) // so that verify and purge have something to do
	for _, verb := range [][]string{{"verify"}, {"verify", "--older-than", "1ms"}, {"purge"}} {
		o = l.want(exitPartial, append(verb, "--max-duration", "1ms")...)
		if !strings.Contains(o.stderr, "time is up (--max-duration 1ms)") || !strings.Contains(o.stderr, "left") {
			t.Errorf("%v: %s", verb, o.stderr)
		}
		clean("'pending', 'committed', 'verified'")
	}
	far := func(m time.Duration) string { return l.now.Add(12*time.Hour + m*time.Minute).Format("15:04") }
	l.want(0, "archive", "--max-duration", "1h", "--until", far(0))
	clean("'verified'")
	l.want(0, "purge", "--until", far(1))
	clean("'purged'")
	if n := l.rows("msg_00"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	l.want(exitUsage, "archive", "--until", "6")
	l.want(exitUsage, "purge", "--max-duration", "long")
}

// A slice that was interrupted for time again and again is not begun by a run that has no
// more of it, and the run says what to do.
func TestSliceTooLargeForItsRuns(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fill("msg_00", 31, 2, 17)
	l.fill("msg_00", 32, 2, 17)
	l.want(0, "migrate")
	l.want(0, "archive", "--day", l.day(32).String())
	m := stack.OpenMySQL(t, l.config["manifest"].(map[string]any)["dsn"].(string))
	if _, err := m.Exec("UPDATE slices SET state = 'pending', interrupted = 3, tried_seconds = 7200"); err != nil {
		t.Fatal(err)
	}
	o := l.want(exitPartial, "archive", "--max-duration", "1h")
	for _, part := range []string{"interrupted 3 times, after up to 2h0m0s", "run coldtier archive --day " + l.day(32).String() + " --shard " + l.db + ".msg_00 without --max-duration"} {
		if !strings.Contains(o.stderr, part) {
			t.Errorf("does not say %q: %s", part, o.stderr)
		}
	}
	eventually(t, m, "SELECT SUM(state = 'verified') = 1 AND SUM(interrupted = 3) = 1 FROM slices")
	l.want(0, "archive", "--max-duration", "3h")
	eventually(t, m, "SELECT SUM(state = 'verified') = 2 AND SUM(interrupted) = 0 FROM slices")
}
