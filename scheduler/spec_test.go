package scheduler

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func spec(t testing.TB, text, in string) *Spec {
	t.Helper()
	s, err := ParseSpec(text, zone(t, in))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestSpecIsStrict(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"0 2 * * *", "*/5 * * * *", "0 6 1 1,4,7,10 *", "0 5 * * 0", "10-59/5 1-3 * jan-mar MON-fri", "0 0 29 2 *", "0  2 * *  *", "*/59 */23 * * *", "05 02 * * *"} {
		if _, err := ParseSpec(good, time.UTC); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"":                         "want five fields",
		"0 2 * *":                  "want five fields",
		"0 0 2 * * *":              "want five fields",
		"@daily":                   "want five fields",
		"@every 1h":                "want five fields",
		"TZ=UTC 0 2 * * *":         "want five fields",
		"CRON_TZ=UTC 0 2 * *":      `minute "CRON_TZ=UTC": want numbers`,
		"60 2 * * *":               "end of range (60) above maximum (59)",
		"0 24 * * *":               "above maximum (23)",
		"0 2 0 * *":                "below minimum (1)",
		"0 2 32 * *":               "above maximum (31)",
		"0 2 * 13 *":               "above maximum (12)",
		"0 2 * * 7":                "above maximum (6)",
		"0 2 * * ?":                `day of week "?": want numbers`,
		"0,,5 2 * * *":             `minute "0,,5": want a number, a range or *`,
		", 2 * * *":                "want a number, a range or *",
		"5/10 * * * *":             "a step follows * or a range",
		"*/60 * * * *":             "want a step of 1 to 59",
		"*/0 * * * *":              "want a step of 1 to 59",
		"* */24 * * *":             "want a step of 1 to 23",
		"*/ * * * *":               "want a step of 1 to 59",
		"*/99999999999999 * * * *": "want a number as the step",
		"*/x * * * *":              "want a number as the step",
		"*5 * * * *":               "want numbers, names",
		"+5 * * * *":               "want numbers, names",
		"-5 * * * *":               "want five fields",
		"30-10 * * * *":            "beyond end of range",
		"1-2-3 * * * *":            "too many hyphens",
		"0 2 30 2 *":               "it is never due",
		"0 2 * foo *":              "failed to parse int",
		"0 2 * * *\n0 3 * * *":     "want five fields",
	} {
		if _, err := ParseSpec(bad, time.UTC); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
}

// occurrences lists what is due in (from, to].
func occurrences(s *Spec, from, to time.Time) (all []time.Time) {
	for at := s.Next(from); !at.IsZero() && !at.After(to); at = s.Next(at) {
		all = append(all, at)
	}
	return all
}

// J1: where the clock jumps a job with a fixed hour runs once a day all the same, and one
// that runs every hour runs every hour that passes.
func TestClockChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, spec, from, to, want string }{
		// Europe/Berlin: 2026-03-29 02:00 -> 03:00, 2026-10-25 03:00 -> 02:00.
		{"Europe/Berlin", "30 2 * * *", "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z", "2026-03-28T01:30:00Z 2026-03-29T01:00:00Z 2026-03-30T00:30:00Z"},
		{"Europe/Berlin", "30 2 * * *", "2026-10-24T00:00:00Z", "2026-10-27T00:00:00Z", "2026-10-24T00:30:00Z 2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		{"Europe/Berlin", "0 1,2,3 * * *", "2026-03-28T23:00:00Z", "2026-03-29T12:00:00Z", "2026-03-29T00:00:00Z 2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "*/20 2 * * *", "2026-03-28T23:00:00Z", "2026-03-29T12:00:00Z", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "*/20 2 * * *", "2026-10-24T23:00:00Z", "2026-10-25T12:00:00Z", "2026-10-25T00:00:00Z 2026-10-25T00:20:00Z 2026-10-25T00:40:00Z"},
		{"Europe/Berlin", "0 * * * *", "2026-03-28T23:30:00Z", "2026-03-29T03:30:00Z", "2026-03-29T00:00:00Z 2026-03-29T01:00:00Z 2026-03-29T02:00:00Z 2026-03-29T03:00:00Z"},
		{"Europe/Berlin", "30 * * * *", "2026-10-24T23:00:00Z", "2026-10-25T03:00:00Z", "2026-10-24T23:30:00Z 2026-10-25T00:30:00Z 2026-10-25T01:30:00Z 2026-10-25T02:30:00Z"},
		{"Europe/Berlin", "0 */2 * * *", "2026-10-24T21:30:00Z", "2026-10-25T04:00:00Z", "2026-10-24T22:00:00Z 2026-10-25T00:00:00Z 2026-10-25T01:00:00Z 2026-10-25T03:00:00Z"},
		// America/New_York: 2026-03-08 02:00 -> 03:00, 2026-11-01 02:00 -> 01:00.
		{"America/New_York", "0 2 * * *", "2026-03-08T00:00:00Z", "2026-03-10T00:00:00Z", "2026-03-08T07:00:00Z 2026-03-09T06:00:00Z"},
		{"America/New_York", "30 1 * * *", "2026-11-01T00:00:00Z", "2026-11-03T00:00:00Z", "2026-11-01T05:30:00Z 2026-11-02T06:30:00Z"},
		{"America/New_York", "15 * * * *", "2026-11-01T04:30:00Z", "2026-11-01T07:30:00Z", "2026-11-01T05:15:00Z 2026-11-01T06:15:00Z 2026-11-01T07:15:00Z"},
		// Australia/Lord_Howe: half an hour, 2026-04-05 02:00 -> 01:30, 2026-10-04 02:00 -> 02:30.
		{"Australia/Lord_Howe", "45 1 * * *", "2026-04-03T15:00:00Z", "2026-04-06T00:00:00Z", "2026-04-04T14:45:00Z 2026-04-05T15:15:00Z"},
		{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00:00Z", "2026-10-05T00:00:00Z", "2026-10-03T15:30:00Z 2026-10-04T15:15:00Z"},
		{"Australia/Lord_Howe", "45 * * * *", "2026-04-04T13:50:00Z", "2026-04-04T17:00:00Z", "2026-04-04T14:45:00Z 2026-04-04T15:15:00Z 2026-04-04T16:15:00Z"},
		// Pacific/Apia had no 2011-12-30.
		{"Pacific/Apia", "0 2 * * *", "2011-12-29T00:00:00Z", "2012-01-01T00:00:00Z", "2011-12-29T12:00:00Z 2011-12-30T12:00:00Z 2011-12-31T12:00:00Z"},
		{"Pacific/Apia", "0 2 30 * *", "2011-11-30T23:00:00Z", "2012-02-10T00:00:00Z", "2012-01-29T12:00:00Z"},
		{"Pacific/Apia", "0 */12 * * *", "2011-12-29T11:00:00Z", "2011-12-31T11:00:00Z", "2011-12-29T22:00:00Z 2011-12-30T10:00:00Z 2011-12-30T22:00:00Z 2011-12-31T10:00:00Z"},
		// America/Sao_Paulo had no midnight on 2018-11-04.
		{"America/Sao_Paulo", "0 0 * * *", "2018-11-03T12:00:00Z", "2018-11-05T12:00:00Z", "2018-11-04T03:00:00Z 2018-11-05T02:00:00Z"},
		{"UTC", "0 6 1 1,4,7,10 *", "2026-12-01T00:00:00Z", "2027-08-01T00:00:00Z", "2027-01-01T06:00:00Z 2027-04-01T06:00:00Z 2027-07-01T06:00:00Z"},
		{"UTC", "0 0 29 2 *", "2097-01-01T00:00:00Z", "2104-12-31T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"UTC", "0 0 13 * 5", "2026-02-07T00:00:00Z", "2026-02-21T00:00:00Z", "2026-02-13T00:00:00Z 2026-02-20T00:00:00Z"}, // either day
	} {
		var got []string
		for _, at := range occurrences(spec(t, c.spec, c.zone), instant(t, c.from), instant(t, c.to)) {
			got = append(got, at.UTC().Format(time.RFC3339))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s in %s:\n got %s\nwant %s", c.spec, c.zone, strings.Join(got, " "), c.want)
		}
	}
}

// Whatever the fixed time and the zone: a run on each day that there is, in order, wherever
// one begins to ask.
func TestOnceADay(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Pacific/Apia", "America/Sao_Paulo", "Asia/Tehran", "Africa/Casablanca", "Antarctica/Troll"} {
		z := zone(t, name)
		for range 4 {
			s := spec(t, fmt.Sprintf("%d %d * * *", rng.IntN(60), rng.IntN(4)), name) // clocks jump at night
			from := time.Date(2009+rng.IntN(15), 1, 1, 12, 0, 0, 0, z)
			if name == "Pacific/Apia" {
				from = time.Date(2011, 6, 1, 12, 0, 0, 0, z)
			}
			to := from.AddDate(1, 0, 0)
			days := map[string]int{}
			all := occurrences(s, from, to)
			for i, at := range all {
				days[at.In(z).Format(time.DateOnly)]++
				if i == 0 {
					continue
				}
				if !at.After(all[i-1]) {
					t.Fatalf("%s in %s: %s after %s", s, name, at, all[i-1])
				}
				between := all[i-1].Add(time.Duration(rng.Int64N(int64(at.Sub(all[i-1])))))
				if got := s.Next(between); !got.Equal(at) {
					t.Fatalf("%s in %s: after %s comes %s, want %s", s, name, between, got, at)
				}
				if got := s.Last(from, at.Add(time.Second)); !got.Equal(at) {
					t.Fatalf("%s in %s: the last until %s is %s", s, name, at, got)
				}
			}
			for at := from.Add(24 * time.Hour); at.Before(to.Add(-24 * time.Hour)); at = at.Add(time.Hour) {
				if day := at.In(z).Format(time.DateOnly); days[day] != 1 {
					t.Fatalf("%s in %s: %d runs on %s", s, name, days[day], day)
				}
			}
		}
	}
}

// The last of very many is found without counting them.
func TestLastOfMany(t *testing.T) {
	t.Parallel()
	from, until := instant(t, "1990-01-01T00:00:00Z"), instant(t, "2026-12-01T03:04:05Z")
	for text, want := range map[string]string{
		"* * * * *": "2026-12-01T03:04:00Z", "0 2 * * *": "2026-12-01T02:00:00Z", "0 5 * * 0": "2026-11-29T05:00:00Z", "0 6 1 1,4,7,10 *": "2026-10-01T06:00:00Z", "0 0 29 2 *": "2024-02-29T00:00:00Z",
	} {
		if got := spec(t, text, "UTC").Last(from, until); !got.Equal(instant(t, want)) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	s := spec(t, "0 2 * * *", "UTC")
	if got := s.Last(instant(t, "2026-12-01T02:00:00Z"), until); !got.IsZero() {
		t.Errorf("nothing is due, and %s is", got)
	}
}
