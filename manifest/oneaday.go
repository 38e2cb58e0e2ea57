package manifest

import (
	"context"
	"fmt"
)

// SliceOfEachDay gives one slice of each day, oldest first: enough to see how the days
// are cut, of however many tables.
func (s *Store) SliceOfEachDay(ctx context.Context) ([]Slice, error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	all, err := s.listSlices(ctx, "s.id IN (SELECT m.id FROM (SELECT MIN(id) AS id FROM slices WHERE source_id = ? GROUP BY day) m) ORDER BY s.day", []any{src}, "")
	if err != nil {
		return nil, fmt.Errorf("a slice of each day: %w", err)
	}
	return all, nil
}
