package warm

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// align gives a staging table the columns that its table got since the exchange, with the
// values that the ALTER of the table would have given its rows: who altered the table could
// not know of rows that were out of it. What the table has no longer stays in the staging
// table, and is lost with it as it is in the table.
//
// A column that has another name looks like one that was dropped and one that was added, and
// its values must not be lost for that: where there are both, somebody has to say which it is.
func (t *Table) align(ctx context.Context, s *session, name string) error {
	now, err := t.d.definitions(ctx, s, t.shard.Table)
	if err != nil {
		return err
	}
	was, err := t.d.definitions(ctx, s, name)
	if err != nil {
		return err
	}
	added, dropped := beyond(now, was), beyond(was, now)
	switch {
	case len(added) == 0:
		return nil
	case len(dropped) > 0:
		return fmt.Errorf("the table has no columns %s any more, and %s are new: give the staging table's columns their new names (ALTER TABLE %s CHANGE …), drop there what was dropped, and purge again",
			names(dropped), names(added), t.staging(name))
	}
	var adds []string
	for _, c := range added {
		adds = append(adds, "ADD COLUMN "+c.text)
	}
	_, err = s.exec(ctx, "ALTER TABLE "+t.staging(name)+" "+strings.Join(adds, ", "))
	return err
}

// columnText is a column as SHOW CREATE TABLE writes it.
type columnText struct{ name, text string }

func (d *database) definitions(ctx context.Context, s *session, table string) (all []columnText, err error) {
	var name, showCreate string
	if err := s.row(ctx, "SHOW CREATE TABLE "+quote(d.name)+"."+quote(table), &name, &showCreate); err != nil {
		return nil, err
	}
	return columnTexts(showCreate), nil
}

// beyond are the columns of one list that another lacks.
func beyond(list, other []columnText) (more []columnText) {
	for _, c := range list {
		if !slices.ContainsFunc(other, func(o columnText) bool { return strings.EqualFold(o.name, c.name) }) {
			more = append(more, c)
		}
	}
	return more
}

func names(list []columnText) string {
	var all []string
	for _, c := range list {
		all = append(all, c.name)
	}
	return strings.Join(all, ", ")
}
