package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/manifest"
)

func parseText(t *testing.T, text string) families {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	f, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// documented are the metrics of docs/metrics.md: type and labels by name.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(coldtier_[a-z_]+)` \\| (\\w+) \\|([^|]*)\\|[^|]+\\|[^|]+\\|").FindAllStringSubmatch(string(text), -1) {
		var labels []string
		for _, l := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		if _, twice := all[m[1]]; twice {
			t.Errorf("%s is documented twice", m[1])
		}
		all[m[1]] = m[2] + " " + strings.Join(labels, " ")
	}
	return all
}

// What docs/metrics.md says is what a server and a job really tell: no metric, label or type
// more or less. And the server knows the whole.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	text := t.TempDir()
	l.config["metrics"] = map[string]any{"textfile": text}
	l.config["fetch"] = map[string]any{"listen": "127.0.0.1:0"}
	l.set("purge.lag", "0s")
	l.exec(fmt.Sprintf(createMessages, "msg_01"))
	l.fill("msg_00", 31, 40, 7)
	l.fill("msg_01", 31, 5, 8)
	l.want(0, "migrate")
	l.want(0, "archive")
	l.want(0, "hold", "add", "--shard", l.db+".msg_01", "--day", l.day(31).String(), "--reason", "test")

	s := l.serve()
	resp, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	p := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := p.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := families(parsed)
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"coldtier_slices", []string{"source", "im", "state", "verified"}, 2},
		{"coldtier_slices", []string{"source", "im", "state", "purged"}, 0},
		{"coldtier_holds", []string{"source", "im"}, 1},
		{"coldtier_slices_failed", []string{"source", "im"}, 0},
		{"coldtier_expected_rows", []string{"source", "im"}, 0},
		{"coldtier_stopped", []string{"job", "purge", "source", "im"}, 0},
	} {
		if got := m.value(t, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	if age := m.value(t, "coldtier_oldest_unpurged_age_seconds", "source", "im"); age <= 0 || age > 120 {
		t.Errorf("the oldest unpurged slice waits for %v s", age)
	}
	if age := m.value(t, "coldtier_oldest_unarchived_age_seconds", "source", "im"); age > 120 { // midnight may just have passed
		t.Errorf("the oldest day without a copy has waited for %v s", age)
	}
	if n := m.value(t, "coldtier_cold_bytes", "source", "im"); n < 1000 {
		t.Errorf("%v bytes are cold", n)
	}
	if n := len(m["coldtier_shard_skew_ratio"].GetMetric()); n != 1 {
		t.Errorf("%d shards are named", n)
	}

	data, err := os.ReadFile(filepath.Join(text, "coldtier_im_archive.prom"))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range parseText(t, string(data)) { // all of them have the job, as at a Pushgateway
		if m[name] == nil {
			for _, x := range f.Metric {
				x.Label = slices.DeleteFunc(x.Label, func(lb *dto.LabelPair) bool { return lb.GetName() == "job" })
			}
			m[name] = f
		}
	}
	reg := prometheus.NewRegistry() // what is there only with replicas
	newJobMetrics(reg, time.Now).lagged("db1:3306", time.Second, nil)
	more, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range more {
		if m[f.GetName()] == nil {
			m[f.GetName()] = f
		}
	}
	docs := documented(t)
	for name, f := range m {
		if !strings.HasPrefix(name, "coldtier_") {
			continue
		}
		labels := map[string]bool{}
		for _, x := range f.Metric {
			for _, lb := range x.Label {
				labels[lb.GetName()] = true
			}
		}
		delete(labels, "source")
		has := strings.ToLower(f.GetType().String()) + " " + strings.Join(slices.Sorted(maps.Keys(labels)), " ")
		switch want, ok := docs[name]; {
		case !ok:
			t.Errorf("docs/metrics.md lacks %s, a %s", name, has)
		case want != has:
			t.Errorf("docs/metrics.md says of %s %q, it is %q", name, want, has)
		}
	}
	for name := range docs {
		if m[name] == nil {
			t.Errorf("docs/metrics.md names %s, which nothing tells", name)
		}
	}
}

// J5: a run that copies nothing is an alarm where there should have been rows, and none where
// there was nothing to do.
func TestIdleRuns(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	text := t.TempDir()
	l.config["metrics"] = map[string]any{"textfile": text}
	l.fill("msg_00", 31+14, 3, 7) // 31 days ago is the youngest day that is old enough
	l.fill("msg_00", 31+7, 3, 7)
	l.want(0, "migrate")
	idle := func(job string) float64 {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(text, "coldtier_im_"+job+".prom"))
		if err != nil {
			t.Fatal(err)
		}
		return parseText(t, string(data)).value(t, "coldtier_idle_runs_total", "job", job, "source", "im")
	}
	l.want(0, "archive")
	if n := idle("archive"); n != 0 {
		t.Errorf("a run that copied something is idle %v times", n)
	}
	o := l.want(0, "archive")
	if n := idle("archive"); n != 1 || !strings.Contains(o.stderr, "although it should have") {
		t.Errorf("a run that copied nothing where there should be rows is idle %v times\n%s", n, o.stderr)
	}
	l.want(0, "archive", "--shard", "*")
	if n := idle("archive"); n != 0 {
		t.Errorf("a run of a selection is idle %v times", n)
	}
	l.fill("msg_00", 31, 2, 7) // they come late: the copy of the day is empty
	l.set("purge.lag", "0s")
	l.run("purge")
	l.want(0, "archive")
	l.want(0, "archive")
	if n := idle("archive"); n != 0 {
		t.Errorf("a run with nothing to do is idle %v times", n)
	}
}

func TestWorstShards(t *testing.T) {
	t.Parallel()
	sh := func(i int, ratio float64) manifest.ShardSkew {
		return manifest.ShardSkew{Shard: manifest.Shard{Database: "d", Table: fmt.Sprintf("t%02d", i)}, RowsRatio: ratio}
	}
	largest := sh(1, 1.2)
	if got := worst([]manifest.DaySkew{{Largest: &largest}}); len(got) != 1 || got[0].ratio != 1.2 {
		t.Errorf("of even days %v", got)
	}
	var many manifest.DaySkew
	for i := range 30 {
		many.Over = append(many.Over, sh(i, float64(5+i)))
	}
	top := many.Over[29]
	many.Largest = &top
	got := worst([]manifest.DaySkew{many, {Largest: &largest}})
	if len(got) != skewMost || got[0].shard.Table != "t29" || got[skewMost-1].shard.Table != "t10" {
		t.Errorf("of many %v", got)
	}
	if got := worst(nil); len(got) != 0 {
		t.Errorf("of none %v", got)
	}
}

func TestNewestDue(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 7, 1, 22, 30, 0, 0, time.UTC) // 00:30 on July 2 there
	if d := newestDue(now, 48*time.Hour, zone); d != snowflake.MakeDay(2026, 6, 29) {
		t.Error(d)
	}
	w := whole{zone: zone, after: 48 * time.Hour}
	day := snowflake.MakeDay(2026, 6, 29)
	if due, ok := w.due(manifest.Stats{Newest: &day}); !ok || !due.Equal(time.Date(2026, 7, 2, 22, 0, 0, 0, time.UTC)) {
		t.Errorf("the next day is due at %v, %v", due, ok)
	}
	old := day.Add(-3)
	if due, _ := w.due(manifest.Stats{Newest: &day, Uncopied: &old}); !due.Equal(time.Date(2026, 6, 28, 22, 0, 0, 0, time.UTC)) {
		t.Errorf("the oldest is due at %v", due)
	}
	if _, ok := w.due(manifest.Stats{}); ok {
		t.Error("an empty manifest has a due day")
	}
}

// fakePacing is a pace that says what it is told to.
type fakePacing struct {
	seconds map[warm.Cause]time.Duration
	pauses  []warm.Pause
}

func (f *fakePacing) Throttled() map[warm.Cause]time.Duration { return f.seconds }
func (f *fakePacing) Pauses() []warm.Pause                    { return f.pauses }

// Time that was spent in pauses is counted on when its pace has ended.
func TestPausesAreCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := newJobMetrics(reg, time.Now)
	now := func() families {
		t.Helper()
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		f := families{}
		for _, x := range all {
			f[x.GetName()] = x
		}
		return f
	}
	one := &fakePacing{map[warm.Cause]time.Duration{warm.CauseLag: 3 * time.Second}, []warm.Pause{{Cause: warm.CauseLag}, {Cause: warm.CauseHours}}}
	end := m.paces.watch(jobPurge, one)
	m.paused(warm.Pause{Job: jobPurge, Cause: warm.CauseLag})
	m.paused(warm.Pause{Job: jobPurge, Cause: warm.CauseLag, Ended: time.Now()})
	m.paused(warm.Pause{Job: jobPurge, Cause: warm.CauseStopped, Ended: time.Now()})
	f := now()
	if f.value(t, "coldtier_paused", "cause", "lag", "job", "purge") != 1 || f.value(t, "coldtier_paused_seconds_total", "cause", "lag", "job", "purge") != 3 ||
		f.value(t, "coldtier_pauses_total", "cause", "lag", "job", "purge") != 1 || f.value(t, "coldtier_pauses_total", "cause", "stopped", "job", "purge") != 1 ||
		f.value(t, "coldtier_paused", "cause", "lag", "job", "archive") != 0 {
		t.Errorf("while it lasts: %v", f["coldtier_paused"])
	}
	end()
	two := &fakePacing{seconds: map[warm.Cause]time.Duration{warm.CauseLag: time.Second}}
	defer m.paces.watch(jobPurge, two)()
	f = now()
	if f.value(t, "coldtier_paused", "cause", "lag", "job", "purge") != 0 || f.value(t, "coldtier_paused_seconds_total", "cause", "lag", "job", "purge") != 4 {
		t.Errorf("of the next pace: %v", f["coldtier_paused_seconds_total"])
	}
}
