package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/cmd/coldtier/status"
	"github.com/coldtier/coldtier/cmd/coldtier/status/statustest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func drawn(r *status.Report, look statusLook) string {
	var b bytes.Buffer
	drawStatus(&b, r, look)
	return b.String()
}

// What a status looks like, with all there can be on it, at several widths.
func TestStatusLooks(t *testing.T) {
	t.Parallel()
	days := statustest.Sample()
	days.Days = days.Days[len(days.Days)-12:]
	days.Selected = &status.Selection{From: &days.Days[0].Day, To: &days.Days[11].Day, Shard: "im_0*"}
	days.Growth.Few, days.Growth.Days = true, 5
	for name, c := range map[string]struct {
		r    *status.Report
		look statusLook
	}{
		"pipe": {statustest.Sample(), statusLook{}},
		"w120": {statustest.Sample(), statusLook{width: 120}},
		"w80":  {statustest.Sample(), statusLook{width: 80}},
		"w40":  {statustest.Sample(), statusLook{width: 40}},
		"days": {days, statusLook{days: true}},
	} {
		got := drawn(c.r, c.look)
		path := filepath.Join("testdata", "status-"+name+".txt")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not as in %s (go test -run TestStatusLooks -update writes it anew):\n%s", name, path, got)
		}
		if c.look.width > 0 {
			for l := range strings.Lines(got) {
				// A word that is longer than the line has to stand out.
				if n := visible(strings.TrimSuffix(l, "\n")); n > c.look.width && strings.ContainsAny(strings.TrimSpace(l), " ") {
					t.Errorf("%s: %d characters: %s", name, n, l)
				}
			}
		}
		if strings.Contains(got, "\x1b") {
			t.Errorf("%s has codes of a terminal without being asked for colours", name)
		}
	}
}

// What is narrowed comes before all else, which is said to be of all slices.
func TestStatusTellsWhatIsNarrowed(t *testing.T) {
	t.Parallel()
	r := statustest.Sample()
	r.Days = nil
	day := r.Due
	r.Selected = &status.Selection{From: &day, To: &day}
	got := drawn(r, statusLook{days: true})
	at := -1
	for _, want := range []string{"selected: " + day.String() + "\nno slices\n", "\nof all slices, whatever is selected\nSTATE", "\nbehind with ", "\ncold tier: "} {
		if i := strings.Index(got, want); i <= at {
			t.Errorf("%q is at %d, after %d:\n%s", want, i, at, got)
		} else {
			at = i
		}
	}
	for sel, want := range map[*status.Selection]string{{From: &day}: "from " + day.String() + " on", {To: &day, Shard: "im_*"}: "up to " + day.String() + ", im_*", {Shard: "im_*"}: "im_*"} {
		if got := sel.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// With colours it says the same, and every code is taken back on its line.
func TestStatusColours(t *testing.T) {
	t.Parallel()
	plain, colour := drawn(statustest.Sample(), statusLook{width: 100}), drawn(statustest.Sample(), statusLook{width: 100, colour: true})
	var b strings.Builder
	for l := range strings.Lines(colour) {
		if strings.Count(l, "\x1b[0m")*2 != strings.Count(l, "\x1b[") {
			t.Errorf("a code is not taken back: %q", l)
		}
		for {
			before, after, ok := strings.Cut(l, "\x1b[")
			b.WriteString(before)
			if !ok {
				break
			}
			_, l, _ = strings.Cut(after, "m")
		}
	}
	trim := func(s string) (lines []string) {
		for l := range strings.Lines(s) {
			lines = append(lines, strings.TrimRight(l, " \n"))
		}
		return lines
	}
	if got, want := strings.Join(trim(b.String()), "\n"), strings.Join(trim(plain), "\n"); got != want {
		t.Errorf("with colours it says\n%s\nwithout\n%s", got, want)
	}
}

// A calendar of years shows the last 53 weeks and sums up the rest; one of chosen days
// shows them all.
func TestCalendarOfYears(t *testing.T) {
	t.Parallel()
	r := statustest.Sample()
	last := r.Days[0]
	for i := range 1000 {
		d := last
		d.Day = last.Day.Add(i - 1000)
		r.Days = append(r.Days, status.Day{})
		copy(r.Days[i+1:], r.Days[i:])
		r.Days[i] = d
	}
	out := drawn(r, statusLook{width: 80})
	for _, w := range []string{"2022: 150 days, all purged\n", "2023: 365 days, all purged\n", "2024: 366 days, all purged\n", "2025: "} {
		if !strings.Contains(out, w) {
			t.Errorf("it lacks %q:\n%s", w, out)
		}
	}
	if n := strings.Count(out, "Mon "); n != 1 {
		t.Errorf("%d bands of weeks:\n%s", n, out)
	}
	if n := strings.Count(drawn(r, statusLook{width: 80, days: true}), "Mon "); n != 3 {
		t.Errorf("%d bands of all weeks, want 3", n)
	}
}

// A cell stands where its day belongs.
func TestCalendarCells(t *testing.T) {
	t.Parallel()
	r := statustest.Sample()
	day := snowflake.MakeDay(2026, 2, 14) // a Saturday, 15 weeks and 4 days before 2026-06-03
	weeks := r.Calendar(r.Days[0].Day, r.Due)
	w := weeks[len(weeks)-1-16]
	if c := w.Days[5]; c.Day != day || c.Mark != status.Failed || !c.Part || c.Of == nil || c.Of.Failed != 1 {
		t.Errorf("the cell of %s is %+v", day, c)
	}
	if wd := w.Monday.Start(time.UTC).Weekday(); wd != time.Monday {
		t.Errorf("weeks begin on %s", wd)
	}
	for n, d := 0, snowflake.MakeDay(1969, 12, 20); n < 40; n, d = n+1, d.Next() { // also before 1970
		if m := status.Monday(d); m.Start(time.UTC).Weekday() != time.Monday || d.Sub(m) < 0 || d.Sub(m) > 6 {
			t.Errorf("the Monday of %s is %s", d, m)
		}
	}
	for _, w := range weeks {
		for _, c := range w.Days {
			if in := !c.Day.Before(r.Days[0].Day) && !r.Due.Before(c.Day); c.In != in || in != (c.Of != nil) {
				t.Errorf("cell %+v", c)
			}
		}
	}
}
