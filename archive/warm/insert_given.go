package warm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
)

// Columns are the table's columns as they were when it was looked at. MariaDB's JSON is a
// LONGTEXT with a CHECK, and is said to be json.
func (x *TargetTable) Columns() []message.Column {
	all := slices.Clone(x.columns)
	for i, c := range all {
		if c.Kind == message.Text && strings.Contains(x.showCreate, "json_valid("+quote(c.Name)+")") {
			all[i].SourceType = "json"
		}
	}
	return all
}

// HasDefault says whether a row may leave a column out.
func (x *TargetTable) HasDefault(column string) bool { return x.defaults[column] }

// LocalTime says whether the newest rows' created_at fits their IDs in the source's zone,
// and better than in UTC. Both are allowed, see EpochFits; who writes rows has to do as
// the others do.
func (t *Table) LocalTime(ctx context.Context) (bool, error) {
	s, err := t.d.session(ctx)
	if err != nil {
		return false, err
	}
	defer s.close(ctx)
	def := t.def.Load()
	low, err := t.lowest(ctx, s, def)
	if err != nil || low == "" {
		return false, err
	}
	rows, err := t.sample(ctx, s, def, true)
	if err != nil {
		return false, fmt.Errorf("table %s: %w", t.shard, err)
	}
	local := 0
	for _, r := range rows {
		if len(r.own) == 2 && r.own[1].Sub(r.byID).Abs() < r.own[0].Sub(r.byID).Abs() {
			local++
		}
	}
	return local > len(rows)/2, nil
}
