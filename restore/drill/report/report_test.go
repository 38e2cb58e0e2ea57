package report

import (
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// The verdict is green only if nothing failed and nothing that must be done was left out.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(r *Report)
		want   Verdict
		why    string
	}{
		"all passed": {func(*Report) {}, Pass, ""},
		"one skipped": {func(r *Report) {
			r.Checks = append(r.Checks, Check{Step: StepCanary, Name: "x", Verdict: Skipped, Reason: "none"})
		}, Pass, ""},
		"one failed":            {func(r *Report) { r.Checks[1].Verdict, r.Checks[1].Reason = Fail, "4 rows instead of 5" }, Fail, "restore: a: 4 rows instead of 5"},
		"no verdict":            {func(r *Report) { r.Checks[1].Verdict = "" }, Fail, "restore: a"},
		"nothing was checked":   {func(r *Report) { r.Checks = nil }, Fail, "no check of the step manifest passed"},
		"a step was skipped":    {func(r *Report) { r.Checks[4].Verdict, r.Checks[4].Reason = Skipped, "no time" }, Fail, "no check of the step read passed"},
		"a step was left out":   {func(r *Report) { r.Checks = slices.Delete(r.Checks, 2, 3) }, Fail, "no check of the step compare passed"},
		"it ended early":        {func(r *Report) { r.Error = "the bucket is away" }, Fail, "the bucket is away"},
		"a slice is not equal":  {func(r *Report) { r.Sample.Slices = []Slice{{Verdict: Fail}} }, Fail, "was not restored equal"},
		"a slice is not judged": {func(r *Report) { r.Sample.Slices = []Slice{{}} }, Fail, "was not restored equal"},
	} {
		r := small()
		c.change(r)
		got, why := r.Judge()
		if got != c.want || !strings.Contains(strings.Join(why, "\n"), c.why) || (got == Pass) != (len(why) == 0) {
			t.Errorf("%s: %s, %v", name, got, why)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(r *Report){
		"ID or source is missing":              func(r *Report) { r.Drill = "" },
		"before it began":                      func(r *Report) { r.Ended = r.Began.Add(-1) },
		"that no other check of it has":        func(r *Report) { r.Checks[1] = r.Checks[0] },
		"skipped without a reason":             func(r *Report) { r.Checks[10].Reason = "" },
		"passed, and yet it names failures":    func(r *Report) { r.Checks[0].Failures, r.Checks[0].Failed = []Place{{}}, 1 },
		"0 failures, and it names 1":           func(r *Report) { r.Checks[0].Verdict, r.Checks[0].Failures = Fail, []Place{{}} },
		"unknown verdict":                      func(r *Report) { r.Checks[0].Verdict = "good" },
		".Measures.Recovery.Seconds is +Inf":   func(r *Report) { r.Measures.Recovery.Seconds = math.Inf(1) },
		".Trend[2].Key.Coverage is NaN":        func(r *Report) { r.Trend[2].Coverage = math.NaN() },
		".Sample.Rows is 9007199254740992":     func(r *Report) { r.Sample.Rows = 1 << 53 },
		".Checks[0].Compared[1].Count is -1":   func(r *Report) { r.Checks[0].Compared[1].Count = -1 },
		"201 pages, but 200 by state":          func(r *Report) { r.Measures.Reads[0].Pages++ },
		"200 by state and 199 times":           func(r *Report) { r.Measures.Reads[1].Latency.Count-- },
		".Measures.Cost.Monthly.Quantity is N": func(r *Report) { r.Measures.Cost.Monthly.Quantity = math.NaN() },
	} {
		r := full()
		change(r)
		if f, err := Seal(r, nil); err == nil || f != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestLatency(t *testing.T) {
	t.Parallel()
	var times []time.Duration
	for i := range 100 {
		times = append(times, time.Duration(100-i)*10*time.Millisecond)
	}
	l := NewLatency(times, 800*time.Millisecond)
	if l.Count != 100 || l.MinMS != 10 || l.MeanMS != 505 || l.P50MS != 500 || l.P90MS != 900 || l.P95MS != 950 || l.P99MS != 990 || l.MaxMS != 1000 {
		t.Errorf("%+v", l)
	}
	n, before := 0, 0.0
	edge := false
	for _, b := range l.Buckets {
		want := 0
		for _, d := range times {
			if ms := float64(d.Milliseconds()); ms > before && ms <= b.UpToMS {
				want++
			}
		}
		if b.Count != want || b.UpToMS <= before {
			t.Errorf("up to %v ms: %d, want %d", b.UpToMS, b.Count, want)
		}
		n, before, edge = n+b.Count, b.UpToMS, edge || b.UpToMS == 800
	}
	if n != 100 || !edge || before != 1000 {
		t.Errorf("%+v", l.Buckets)
	}
	if l := NewLatency(nil); l.Count != 0 || l.Buckets == nil {
		t.Errorf("of nothing: %+v", l)
	}
	if l := NewLatency([]time.Duration{0}); l.Count != 1 || l.Buckets[0].Count != 1 {
		t.Errorf("of no time: %+v", l)
	}
	if s := NewStage("x", 0, 5, 5, 1); s.RowsPerSecond != 0 {
		t.Errorf("a rate of no time: %v", s.RowsPerSecond)
	}
}

func TestCover(t *testing.T) {
	t.Parallel()
	day := snowflake.MakeDay(2025, 12, 31)
	c := Cover(full().Began, []Covered{{day.Next(), 1, false, true}, {day, 2, true, false}, {day, 4, true, true}, {day.Next(), 8, false, false}}, "note")
	want := Coverage{Since: full().Began, Slices: 4, Before: 2, Covered: 3, Rows: 15, RowsDone: 7, Months: []Month{{"2025-12", 2, 2, 2}, {"2026-01", 2, 0, 1}}, Note: "note"}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
}

// Money is exact, and only what left or changed the bucket has a price.
func TestPriceOf(t *testing.T) {
	t.Parallel()
	traffic := []Traffic{{StoreBucket, OpGet, 1_234_567, 3 << 30}, {StoreBucket, OpGet, 433, 0}, {StoreBucket, OpPut, 10, 1 << 40}, {StoreBucket, OpList, 3, 1 << 29}, {"scratch", OpQuery, 9, 9}, {"clickhouse", OpGet, 9, 1 << 40}}
	c, err := PriceOf(Prices{Currency: "USD", GetPer1000: "0.0004", PutPer1000: "0.005", ListPer1000: "0.005", GBRead: "0.09", GBMonth: "0.023"}, traffic, 10<<30)
	if err != nil {
		t.Fatal(err)
	}
	var money []string
	for _, i := range c.Items {
		money = append(money, i.Money)
	}
	if !slices.Equal(money, []string{"0.494", "0.00005", "0.000015", "0.315"}) || c.Total != "0.809065" || c.Monthly == nil || c.Monthly.Money != "0.23" || c.Currency != "USD" {
		t.Errorf("%+v, %v", c, c.Monthly)
	}
	if c, err := PriceOf(Prices{Currency: "USD"}, traffic, 1); err != nil || len(c.Items) != 0 || c.Total != "0" || c.Note == "" || c.Monthly != nil {
		t.Errorf("without prices: %+v, %v", c, err)
	}
	if _, err := PriceOf(Prices{GBRead: "much"}, traffic, 0); err == nil {
		t.Error("a price that is no number")
	}
}

// texts calls a function on each text of a report.
func texts(v reflect.Value, f func(s *string)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				texts(v.Field(i), f)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			texts(v.Index(i), f)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			texts(v.Elem(), f)
		}
	case reflect.String:
		s := v.String()
		f(&s)
		v.SetString(s)
	}
}

// Names come from databases and servers: whatever they hold is text on the page, and none
// of it is markup. The page with them has the same elements as the page without.
func TestNothingIsInjected(t *testing.T) {
	t.Parallel()
	tags := regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)
	values := regexp.MustCompile(`"[^"]*"`)
	elements := func(html []byte) []string {
		all := tags.FindAllString(string(html), -1)
		for i := range all {
			all[i] = values.ReplaceAllString(all[i], `""`)
		}
		return all
	}
	for _, evil := range []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</style></title></svg><b>`, `{{.}}`, "`${alert(1)}`", `javascript:alert(1)`, "\x00\xff<!--", `]]>`, "\u202eevil"} {
		plain, bad := red(), red()
		same := func(s *string) bool { // what is no free text
			switch *s {
			case string(Pass), string(Fail), string(Skipped), "", string(Info), string(Warning), string(Alarm), string(ScopeAll), string(ScopeShard):
				return true
			}
			return false
		}
		texts(reflect.ValueOf(plain).Elem(), func(s *string) {
			if !same(s) {
				*s = "x"
			}
		})
		texts(reflect.ValueOf(bad).Elem(), func(s *string) {
			if !same(s) {
				*s = evil
			}
		})
		sum := strings.Repeat("0", 64)
		a, err1 := Page(plain, sum)
		b, err2 := Page(bad, sum)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if x, y := elements(a), elements(b); !slices.Equal(x, y) {
			for i := range min(len(x), len(y)) {
				if x[i] != y[i] {
					t.Errorf("%q: element %d is %s, want %s", evil, i, y[i], x[i])
					break
				}
			}
			t.Errorf("%q: %d elements, want %d", evil, len(y), len(x))
		}
	}
	if _, err := Page(full(), `"><script>`); err == nil {
		t.Error("a sum that is none is taken")
	}
}

// The page needs nothing but itself: an auditor opens it from a disk, offline.
func TestPageStandsAlone(t *testing.T) {
	t.Parallel()
	signer, _ := pair(t)
	for _, r := range []*Report{full(), red(), small(), {Drill: "x", Source: "im", Began: full().Began, Ended: full().Ended}} {
		page := string(seal(t, r, signer).HTML)
		for _, no := range []string{"<script", "<link", "<img", "<iframe", "src=", "href=", "url(", "@import", " on", "ZgotmplZ", "NaN", "+Inf", "%!"} {
			if no == " on" {
				if regexp.MustCompile(`<[^>]* on[a-z]+=`).MatchString(page) {
					t.Error("an event handler is on the page")
				}
				continue
			}
			if strings.Contains(page, no) {
				t.Errorf("%s is on the page", no)
			}
		}
		if pageOf([]byte(page)) == "" {
			t.Error("the page does not name its JSON")
		}
		for _, must := range []string{"default-src 'none'", "prefers-color-scheme: dark", "@media print", signer.ID(), "openssl pkeyutl"} {
			if !strings.Contains(page, must) {
				t.Errorf("%s is not on the page", must)
			}
		}
		for _, c := range r.Checks {
			if !strings.Contains(page, c.Name) {
				t.Errorf("check %s is not on the page", c.Name)
			}
			for _, p := range c.Failures {
				if !strings.Contains(page, p.What) || !strings.Contains(page, p.Object) {
					t.Errorf("failure %s is not on the page", p.What)
				}
			}
		}
	}
	if page := string(seal(t, full(), nil).HTML); !strings.Contains(page, "This report is unsigned") {
		t.Error("the page does not say that it is unsigned")
	}
}

// Charts stay inside their box whatever the numbers are.
func TestChartsStayInTheirBox(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *Report){
		"as they are": func(*Report) {},
		"no time": func(r *Report) {
			for i := range r.Measures.Reads {
				r.Measures.Reads[i].Latency = NewLatency(make([]time.Duration, 200))
			}
		},
		"late": func(r *Report) {
			for i := range r.Measures.Reads {
				r.Measures.Reads[i].Latency = NewLatency(slices.Repeat([]time.Duration{time.Hour, time.Nanosecond}, 100))
			}
		},
		"no budget": func(r *Report) { r.Measures.Reads[0].BudgetMS = 0 },
		"a budget within a bar": func(r *Report) { // of the report, which has no edge there
			for i := range r.Measures.Reads {
				r.Measures.Reads[i].Latency = NewLatency(slices.Repeat([]time.Duration{790 * time.Millisecond}, 200))
			}
		},
		"one drill": func(r *Report) { r.Trend = r.Trend[:1] },
		"ten years": func(r *Report) {
			var all []Covered
			for i := range 3650 {
				all = append(all, Covered{Day: snowflake.MakeDay(2016, 1, 1).Add(i), Now: i%7 == 0})
			}
			r.Sample.Coverage = Cover(r.Began, all, "")
		},
	} {
		r := full()
		change(r)
		all := append(histograms(r.Measures.Reads), quantiles(r.Measures.Reads), months(r.Sample.Coverage))
		all = append(all, trends(append(r.Trend, Past{Began: r.Began, Key: r.Key()}))...)
		if len(all) < 5 {
			t.Errorf("%s: %d charts", name, len(all))
		}
		late := false
		for _, c := range all {
			in := func(x, y float64) bool { return x >= 0 && x <= c.Width+.01 && y >= 0 && y <= c.Height+.01 }
			for _, b := range c.Bars {
				late = late || b.Class == "bad"
				if !in(b.X, b.Y) || !in(b.X+b.W, b.Y+b.H) || b.W <= 0 {
					t.Errorf("%s, %s: bar %+v is outside", name, c.Title, b)
				}
			}
			for _, l := range c.Lines {
				if !in(l.X1, l.Y1) || !in(l.X2, l.Y2) {
					t.Errorf("%s, %s: line %+v is outside", name, c.Title, l)
				}
			}
			for _, d := range c.Dots {
				if !in(d.X, d.Y) {
					t.Errorf("%s, %s: dot %+v is outside", name, c.Title, d)
				}
			}
			for _, k := range c.Ticks {
				if len([]rune(k.Text)) > 8 { // what fits at the left
					t.Errorf("%s, %s: tick %q is too long", name, c.Title, k.Text)
				}
			}
			if len(c.Ticks) < 2 || len(c.Ticks) > 8 {
				t.Errorf("%s, %s: %d ticks", name, c.Title, len(c.Ticks))
			}
		}
		if late != (name == "late") {
			t.Errorf("%s: a bar says that pages were late: %t", name, late)
		}
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for in, want := range map[float64]string{0: "0 s", .00001: "< 0.1 ms", .0123: "12.3 ms", .9996: "1 s", 59.94: "59.9 s", 59.96: "1 min 00 s", 245: "4 min 05 s", 3599.4: "59 min 59 s", 11520: "3 h 12 min", 181440: "2.1 days", 15_574_000: "180 days"} {
		if got := secondsText(in); got != want {
			t.Errorf("%v s is %s, want %s", in, got, want)
		}
	}
	for in, want := range map[float64]string{0: "0 %", .5: "50 %", .99999: "99.9 %", 1: "100 %", .0001: "0.01 %"} {
		if got := percent(in); got != want {
			t.Errorf("%v is %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{"0": "0.00", "0.14581782": "0.15", "12.3": "12.30", "0.000123": "0.00012", "x": "x"} {
		if got := moneyText(in); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
}

// The key counts the checks that were made.
func TestKeyCountsChecks(t *testing.T) {
	r := Report{Checks: []Check{{Verdict: Pass}, {Verdict: Fail}, {Verdict: Skipped}, {Verdict: Pass}}}
	if k := r.Key(); k.Checks != 3 || k.Failed != 1 {
		t.Errorf("%d checks, %d failed", k.Checks, k.Failed)
	}
}

func TestCounted(t *testing.T) {
	for want, c := range map[string]Count{
		"1 commit record": {What: "commit records", Count: 1}, "2 commit records": {What: "commit records", Count: 2}, "0 slices": {What: "slices"},
		"1 slice with statuses that were put later": {What: "slices with statuses that were put later", Count: 1}, "1 byte read": {What: "byte read", Count: 1},
	} {
		if got := counted(c); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
