package archive_test

import (
	"testing"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/tests/stack"
)

// Readings that were noted while the clock was a year ahead are none, and a round that was
// begun then is over: else nothing would be due for a year, or the same again and again.
func TestAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 3, 2, 1, 1)
	quarter := archive.Checking{Sample: archive.Fraction{Of: 1, All: 4}, Seed: 1}
	s.run(quarter)
	s.run(archive.Checking{OlderThan: 1})
	s.run(archive.Checking{Budget: 1, Seed: 1}) // notes an object apart
	db := stack.OpenMySQL(t, s.DSN)
	for _, q := range []string{
		"UPDATE checks SET objects_at = objects_at + INTERVAL 1 YEAR, rows_at = rows_at + INTERVAL 1 YEAR, rows_good_at = rows_good_at + INTERVAL 1 YEAR, read_at = read_at + INTERVAL 1 YEAR, good_at = good_at + INTERVAL 1 YEAR",
		"UPDATE object_checks SET read_at = read_at + INTERVAL 1 YEAR, good_at = good_at + INTERVAL 1 YEAR",
		"UPDATE check_rounds SET begun_at = begun_at + INTERVAL 1 YEAR",
	} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	s.read()
	if c := s.coverage(); c.Never.Slices != 4 || c.Never.Bytes != uint64(s.bytes()) || c.Oldest.GoodAt != nil {
		t.Errorf("the coverage is %+v", c)
	}
	for range 4 {
		s.run(quarter)
	}
	if n, most := s.read(); n != 7 || most != 1 {
		t.Errorf("four quarters read %d of 7 objects, up to %d times", n, most)
	}
	if c := s.coverage(); c.Never.Slices != 0 || c.Older[0].Slices != 0 {
		t.Errorf("the coverage is %+v", c)
	}
}
