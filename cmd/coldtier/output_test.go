package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/restore/patrol"
)

func TestSpan(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": -time.Second, "45s": 45*time.Second + 300*time.Millisecond, "3m": 3 * time.Minute, "3m20s": 200 * time.Second, "1h": time.Hour,
		"23h59m": 24*time.Hour - time.Minute, "7d": 168 * time.Hour, "6d23h": 167*time.Hour + 10*time.Second, "6d": 144*time.Hour + 29*time.Minute,
	} {
		if got := span(d); got != want {
			t.Errorf("%s became %q, want %q", d, got, want)
		}
	}
}

// No line of a table ends in blanks, whose last cell may be empty.
func TestTable(t *testing.T) {
	var b strings.Builder
	table(&b, "DAY\tTOOK\t", []string{row("2026-05-01", "1s", ""), row("2026-05-02", "12s", "late")})
	if got, want := b.String(), "DAY         TOOK\n2026-05-01  1s\n2026-05-02  12s   late\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRate(t *testing.T) {
	for _, c := range []struct {
		rows uint64
		s    float64
		want string
	}{{0, 2, ""}, {5, 0, ""}, {12_000, 2, ", 6,000 rows/s"}} {
		if got := rate(c.rows, c.s); got != c.want {
			t.Errorf("%d rows in %g s: %q", c.rows, c.s, got)
		}
	}
}

// A late row on a day that was purged makes a copy of all its rows, of which one is in warm:
// that is what a dry run says is deleted.
func TestPurgePlanCountsWhatIsInWarm(t *testing.T) {
	var b strings.Builder
	plan := &purge.Plan{Jobs: []purge.Job{{Strategy: purge.Rows, Slices: []purge.Item{{Rows: 485}}}}}
	(&purgePlan{Plan: plan, Forecast: &purgeForecast{Deletes: &purge.Totals{Slices: 1, Chunks: 1, Rows: 1}}}).text(&b)
	if got, want := b.String(), "1 slice with 1 row would be deleted, 0 left\n"; !strings.HasSuffix(got, want) {
		t.Errorf("%q does not end in %q", got, want)
	}
}

// A verb that ended with an error before it had done anything does not say that there was
// nothing to do, or to find.
func TestNothingIsSaidOfWhatFailed(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func() result{
		"migrate": func() result { return &migrateResult{} },
		"archive": func() result { return &archiveResult{Report: &archive.Report{}} },
		"patrol":  func() result { return &patrolResult{Report: &patrol.Report{}} },
		"verify":  func() result { return &verifyResult{VerifyReport: &archive.VerifyReport{}, Due: &archive.Due{}} },
	} {
		for _, err := range []error{nil, errors.New("it failed")} {
			var out, errs bytes.Buffer
			a := &app{stdout: &out, stderr: &errs, redactor: &config.Redactor{}, result: make()}
			a.finish(t.Context(), err)
			whole := strings.Contains(out.String(), "nothing to do") || strings.Contains(out.String(), "nothing found;")
			if whole != (err == nil) {
				t.Errorf("%s, which ended with %v, says %q", name, err, out.String())
			}
		}
	}
}
