package integration

import (
	"math"
	"os"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/harness"
)

// figure is a number of a plan.
type figure struct {
	Value float64
	Basis string
}

// forecast is what a dry run of archive says.
type forecast struct {
	Slices, Rows, Objects, Put, Get figure
	Body                            figure `json:"body_bytes"`
	Bytes                           figure `json:"object_bytes"`
	Inserts                         figure `json:"clickhouse_inserts"`
	Sizes                           []struct {
		Below   int64 `json:"below_bytes"`
		Objects figure
	}
	Time struct {
		Minutes *float64
		Runs    int
	}
	Money *struct {
		Now      float64
		PerMonth float64 `json:"per_month"`
	}
}

func planned(t *testing.T, e *harness.Env, args ...string) forecast {
	t.Helper()
	var out struct{ Forecast forecast }
	e.Must(append([]string{"--output", "json", "archive", "--dry-run"}, args...)...).Result(t, &out)
	return out.Forecast
}

// did is what an archive came to.
type did struct {
	Rows, Objects, Bytes, Seconds float64
	Sizes                         []float64
}

func archived(t *testing.T, e *harness.Env, args ...string) (d did) {
	t.Helper()
	e.Must(append([]string{"--output", "json", "archive"}, args...)...).Result(t, &d)
	return d
}

// off is by how much an estimate missed.
func off(f figure, really float64) float64 { return f.Value/really - 1 }

// judge compares a plan with what it came to.
func judge(t *testing.T, what string, f forecast, d did, rows, objects, bytes float64) {
	t.Helper()
	t.Logf("%s: rows %+.1f %% (%.0f), objects %+.1f %% (%.0f), bytes %+.1f %% (%.0f)", what, 100*off(f.Rows, d.Rows), d.Rows, 100*off(f.Objects, d.Objects), d.Objects, 100*off(f.Bytes, d.Bytes), d.Bytes)
	for _, x := range []struct {
		name        string
		f           figure
		really, may float64
	}{{"rows", f.Rows, d.Rows, rows}, {"objects", f.Objects, d.Objects, objects}, {"bytes", f.Bytes, d.Bytes, bytes}} {
		if math.Abs(off(x.f, x.really)) > x.may || x.f.Basis != "estimated" {
			t.Errorf("%s: %s are %s %.0f, really %.0f", what, x.name, x.f.Basis, x.f.Value, x.really)
		}
	}
	var sum float64
	for _, s := range f.Sizes {
		sum += s.Objects.Value
	}
	if sum != f.Objects.Value || len(f.Sizes) != 5 {
		t.Errorf("%s: %v objects by size of %v", what, f.Sizes, f.Objects)
	}
}

// What a plan of archive says is about what the run comes to: before the first copy, by
// former copies of the tables themselves, and by those of their siblings.
func TestPlansOfArchiveComeTrue(t *testing.T) {
	t.Parallel()
	t.Run("invented", func(t *testing.T) {
		t.Parallel()
		forecasts(t, harness.Options{Seed: 141, Tables: 2, Days: 4, Messages: 8_000})
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		forecasts(t, harness.Options{Source: chat.RealMonth(t, 0), Tables: 2})
	})
}

func forecasts(t *testing.T, o harness.Options) {
	e := harness.New(t, o)
	e.SQL("ANALYZE TABLE " + e.Tables[0])
	half := e.Days[len(e.Days)/2]
	one := []string{"--shard", e.Tables[0], "--to", half.Add(-1).String()}
	f := planned(t, e, one...)
	if f.Time.Minutes != nil || f.Time.Runs != 0 || f.Money != nil {
		t.Errorf("before the first run: time %+v, money %+v", f.Time, f.Money)
	}
	judge(t, "first", f, archived(t, e, one...), 0.25, 0.3, 0.4)

	f = planned(t, e, "--shard", e.Tables[0])
	if f.Time.Minutes == nil || f.Time.Runs != 1 {
		t.Errorf("after the first run: time %+v", f.Time)
	}
	judge(t, "by its own past", f, archived(t, e, "--shard", e.Tables[0]), 0.25, 0.3, 0.3)

	b, err := os.ReadFile(e.Config)
	if err == nil {
		err = os.WriteFile(e.Config, append(b, "prices: {currency: EUR, put_1000: 0.005, get_1000: 0.0004, storage_gib_month: 0.023, clickhouse_gib_month: 0.1}\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	f = planned(t, e)
	if m, now, month := f.Money, (f.Put.Value*0.005+f.Get.Value*0.0004)/1000, f.Bytes.Value/(1<<30)*0.123; m == nil || math.Abs(m.Now-now) > 1e-9 || math.Abs(m.PerMonth-month) > 1e-9 {
		t.Errorf("money %+v, want %f now and %f a month", m, now, month)
	}
	d := archived(t, e)
	judge(t, "by its sibling's past", f, d, 0.25, 0.35, 0.35)
	if off(f.Put, d.Objects+f.Slices.Value) > 0.36 || f.Get.Value != f.Objects.Value || f.Inserts.Value < 1 {
		t.Errorf("requests: %v PUT, %v GET, %v INSERT for %v objects", f.Put, f.Get, f.Inserts, d.Objects)
	}

	// Of a purge the manifest knows all.
	var p struct {
		Forecast struct {
			Basis   string
			Deletes struct {
				Slices, Chunks int
				Rows           int
				Oldest, Newest time.Time
				Tables         []struct {
					Rows           int
					Oldest, Newest time.Time
				}
			}
		}
	}
	e.Must("--output", "json", "plan", "purge").Result(t, &p)
	g := p.Forecast.Deletes
	sum := 0
	for i, x := range g.Tables {
		sum += x.Rows
		var first, last uint64
		if err := e.Warm.QueryRowContext(t.Context(), "SELECT MIN(msg_id), MAX(msg_id) FROM "+e.Tables[i]).Scan(&first, &last); err != nil {
			t.Fatal(err)
		}
		if l := chat.Layout(); !x.Oldest.Equal(l.Time(first)) || !x.Newest.Equal(l.Time(last)) {
			t.Errorf("%s from %s to %s, want %s to %s", e.Tables[i], x.Oldest, x.Newest, l.Time(first), l.Time(last))
		}
	}
	if p.Forecast.Basis != "exact" || g.Rows != e.Count() || sum != g.Rows || g.Slices != 2*len(e.Days) || len(g.Tables) != 2 {
		t.Errorf("the purge would delete %+v; warm has %d rows in %d slices", g, e.Count(), 2*len(e.Days))
	}
	e.Must("plan") // as text, all of it
}
