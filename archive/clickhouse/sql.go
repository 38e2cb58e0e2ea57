package clickhouse

import (
	"fmt"
	"strings"

	"github.com/coldtier/coldtier/manifest"
)

// CopyID names the rows in the table that belong together.
type CopyID = manifest.CopyID

func tuple(id CopyID) string {
	return fmt.Sprintf("(%s, %s, %d, %s)", quote(id.Day.String()), quote(id.Shard.String()), id.Generation, quote(id.Attempt))
}

// condition is true for the rows of a copy. Its day prunes partitions, and its shard is the
// start of the primary key.
func condition(id CopyID) string {
	return fmt.Sprintf("%s = toDate(%s) AND %s = %s AND %s = %s AND %s = %d", colDay, quote(id.Day.String()), colShard, quote(id.Shard.String()),
		colAttempt, quote(id.Attempt), colGeneration, id.Generation)
}

// ident writes a name that passed plainName.
func ident(name string) string { return "`" + name + "`" }

func idents(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = ident(n)
	}
	return strings.Join(q, ", ")
}

// quote writes a string literal, whatever its bytes.
func quote(text string) string {
	var b strings.Builder
	b.Grow(len(text) + 2)
	b.WriteByte('\'')
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '\'' || c == '\\' {
			fmt.Fprintf(&b, `\x%02X`, c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// The service columns, which come before the tables' own.
const (
	colDay        = "_day"
	colShard      = "_shard"
	colGeneration = "_generation"
	colAttempt    = "_attempt"
	colExact      = "_exact"
)

const serviceColumns = 5

func isService(name string) bool {
	switch name {
	case colDay, colShard, colGeneration, colAttempt, colExact:
		return true
	}
	return false
}
