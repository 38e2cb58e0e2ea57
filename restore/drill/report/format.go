package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/shopspring/decimal"
)

// secondsText writes a time as one reads it: 3.21 s, 4 min 05 s, 3 h 12 min, 2.1 days.
func secondsText(s float64) string {
	switch {
	case s <= 0:
		return "0 s"
	case s < .0001:
		return "< 0.1 ms"
	case s < .9995:
		return trim(s*1000, 3) + " ms"
	case s < 59.95:
		return trim(s, 3) + " s"
	case s < 3600:
		n := int(math.Round(s))
		return fmt.Sprintf("%d min %02d s", n/60, n%60)
	case s < 48*3600:
		n := int(math.Round(s / 60))
		return fmt.Sprintf("%d h %02d min", n/60, n%60)
	}
	return trim(s/86400, 3) + " days"
}

// shortSeconds is secondsText in one unit, for the edge of a chart.
func shortSeconds(s float64) string {
	switch {
	case s < 59.95:
		return secondsText(s)
	case s < 5995:
		return trim(s/60, 3) + " min"
	case s < 48*3600:
		return trim(s/3600, 3) + " h"
	}
	return secondsText(s)
}

// trim writes a number with so many significant digits, and none of them for show.
func trim(f float64, digits int) string {
	if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return "0"
	}
	places := digits - 1 - int(math.Floor(math.Log10(math.Abs(f))))
	if places < 0 {
		return humanize.Comma(int64(math.Round(f)))
	}
	s := strconv.FormatFloat(f, 'f', places, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func msText(ms float64) string {
	if ms >= 999.5 {
		return shortSeconds(ms / 1000)
	}
	return trim(ms, 3) + " ms"
}

func bytesText(n float64) string {
	if n < 0 {
		n = 0
	}
	return humanize.IBytes(uint64(n))
}

func rateText(n float64, unit string) string {
	if n == 0 {
		return "–"
	}
	return trim(n, 3) + " " + unit
}

// number writes any of the numbers of a report with separators.
func number(v any) string {
	switch v := v.(type) {
	case int:
		return humanize.Comma(int64(v))
	case int64:
		return humanize.Comma(v)
	case uint64:
		return humanize.Comma(int64(min(v, math.MaxInt64)))
	case uint32:
		return humanize.Comma(int64(v))
	case float64:
		return trim(v, 4)
	}
	return fmt.Sprint(v)
}

func percent(f float64) string {
	switch p := f * 100; {
	case f >= 1:
		return "100 %"
	case p > 99.9: // not all is never written as all
		return "99.9 %"
	default:
		return trim(p, 3) + " %"
	}
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func date(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// plural is "1 check" or "3 checks".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return humanize.Comma(int64(n)) + " " + noun + "s"
}

// counted is "3 commit records" or, though Count names the things in the plural, "1 commit record".
func counted(c Count) string {
	what := c.What
	if c.Count == 1 {
		for _, noun := range []string{"slice", "row", "object", "conversation", "record", "generation", "segment", "page", "minute", "message"} {
			if before, after, ok := strings.Cut(what, noun+"s"); ok {
				what = before + noun + after
				break
			}
		}
	}
	return number(c.Count) + " " + what
}

// moneyText rounds an amount to cents, or to two digits where it is smaller.
func moneyText(s string) string {
	d, err := decimal.NewFromString(s)
	if err != nil {
		return s
	}
	if d.Abs().GreaterThanOrEqual(decimal.New(1, -1)) || d.IsZero() {
		return d.StringFixed(2)
	}
	return trim(d.InexactFloat64(), 2)
}
