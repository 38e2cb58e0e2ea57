package snowflake

import (
	"errors"
	"math"
	"testing"
	"time"
)

var epoch2015 = Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// The days of a zone tile its time: each instant belongs to exactly one day, and
// the windows of neighbouring days meet without gap or overlap, over every change
// of clocks. Zones: ordinary DST, DST at midnight (Santiago, Beirut, Havana, Asuncion),
// half-hour DST, no DST, and a day that never was (Apia, 2011-12-30).
func TestDaysTileTime(t *testing.T) {
	for _, name := range []string{"UTC", "America/New_York", "Europe/Berlin", "Asia/Shanghai", "America/Santiago",
		"Asia/Beirut", "America/Havana", "America/Asuncion", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo"} {
		z := zone(t, name)
		l := Layout{Epoch: time.Date(2005, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}
		prev := uint64(0)
		for d := MakeDay(2005, 1, 3); d.Before(MakeDay(2028, 1, 1)); d = d.Next() {
			lo, hi, err := l.Window(d, z)
			if err != nil {
				t.Fatalf("%s %s: %v", name, d, err)
			}
			if prev != 0 && lo != prev {
				t.Fatalf("%s %s: window begins at %d, the day before ended at %d", name, d, lo, prev)
			}
			prev = hi
			if lo == hi { // a day that never was
				if name != "Pacific/Apia" {
					t.Fatalf("%s %s is empty", name, d)
				}
				continue
			}
			for _, id := range []uint64{lo, lo + (hi-lo)/2, hi - 1} {
				if got := l.DayOf(id, z); got != d {
					t.Fatalf("%s: ID %d of day %s is said to be of %s", name, id, d, got)
				}
			}
			if h := time.Duration(hi>>22-lo>>22) * time.Millisecond; h < 23*time.Hour || h > 25*time.Hour {
				t.Fatalf("%s %s lasts %s", name, d, h)
			}
		}
	}
}

func TestHoursOfDSTDays(t *testing.T) {
	ny := zone(t, "America/New_York")
	for day, want := range map[string]time.Duration{"2026-03-08": 23, "2026-03-09": 24, "2026-11-01": 25} {
		d, err := ParseDay(day)
		if err != nil {
			t.Fatal(err)
		}
		lo, hi, err := epoch2015.Window(d, ny)
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Duration(hi>>22-lo>>22) * time.Millisecond; got != want*time.Hour {
			t.Errorf("%s in New York lasts %s, want %d h", day, got, want)
		}
	}
}

func TestKnownID(t *testing.T) {
	// The first message of the month of real chat that the project is tried on.
	if got, want := epoch2015.Time(837851385029464064), time.Date(2021, 5, 1, 0, 42, 16, 717e6, time.UTC); !got.Equal(want) {
		t.Errorf("time is %s, want %s", got, want)
	}
}

func TestEdges(t *testing.T) {
	if _, _, err := epoch2015.Window(MakeDay(2014, 12, 31), time.UTC); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("the day before the epoch: %v", err)
	}
	if lo, _, err := epoch2015.Window(MakeDay(2015, 1, 1), zone(t, "Asia/Shanghai")); err != nil || lo != 0 {
		t.Errorf("the day the epoch falls into: lo %d, %v", lo, err)
	}
	if d := epoch2015.DayOf(math.MaxUint64, time.UTC); d.String() != "2154-05-15" {
		t.Errorf("the highest ID is of %s", d)
	}
	if _, _, err := epoch2015.Window(MakeDay(2155, 1, 1), time.UTC); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("a day beyond the last ID: %v", err)
	}
	for _, bad := range []Layout{{}, {Epoch: time.Unix(1, 0), Shift: 60}, {Epoch: time.Date(1, 1, 1, 1, 0, 0, 0, time.UTC), Shift: 22}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func FuzzWindow(f *testing.F) {
	f.Add(uint64(837851385029464064), uint8(22), "America/New_York")
	f.Add(uint64(1), uint8(0), "UTC")
	f.Add(uint64(math.MaxUint64), uint8(22), "America/Havana")
	f.Fuzz(func(t *testing.T, id uint64, shift uint8, name string) {
		z, err := time.LoadLocation(name)
		if err != nil || shift > MaxShift || shift < 8 {
			return
		}
		l := Layout{Epoch: epoch2015.Epoch, Shift: uint(shift)}
		if l.Time(id).Year() > 9000 {
			return
		}
		d := l.DayOf(id, z)
		lo, hi, err := l.Window(d, z)
		if errors.Is(err, ErrOutOfRange) && id>>shift > l.maxMillis()-86400_000*2 {
			return
		}
		if err != nil {
			t.Fatalf("ID %d is of day %s, which has no window: %v", id, d, err)
		}
		if id < lo || id >= hi {
			t.Fatalf("ID %d is of day %s in %s, whose window is [%d, %d)", id, d, name, lo, hi)
		}
	})
}
