package stack

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
)

// Strings are the values of a query of one column.
func Strings(t testing.TB, db *sql.DB, query string, args ...any) (all []string) {
	t.Helper()
	each(t, db, query, args, func(_ []string, values []sql.RawBytes) { all = append(all, string(values[0])) })
	return all
}

// Rows are the texts of a table's rows as the server writes them, with the names of the
// columns, by the value of the first.
func Rows(t testing.TB, db *sql.DB, table string) map[string]string {
	t.Helper()
	all := map[string]string{}
	each(t, db, "SELECT * FROM "+table, nil, func(names []string, values []sql.RawBytes) {
		var b strings.Builder
		for i, v := range values {
			if v == nil {
				fmt.Fprintf(&b, " %s=NULL", names[i])
			} else {
				fmt.Fprintf(&b, " %s=%q", names[i], v)
			}
		}
		all[string(values[0])] = b.String()
	})
	return all
}

func each(t testing.TB, db *sql.DB, query string, args []any, row func(names []string, values []sql.RawBytes)) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	values, into := make([]sql.RawBytes, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		row(names, values)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
