package clickhouse

import (
	"fmt"
	"strings"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// CopyID names one try to copy a slice: the rows in the table that belong together.
// The attempt is unique, so rows of a try that failed are never taken for others'.
type CopyID struct {
	Shard      manifest.Shard
	Day        snowflake.Day
	Generation uint32
	Attempt    string
}

// String is "2026-05-01 im_00.msg_00 g1-0a1b".
func (id CopyID) String() string {
	return fmt.Sprintf("%s %s g%d-%s", id.Day, id.Shard, id.Generation, id.Attempt)
}

func (id CopyID) tuple() string {
	return fmt.Sprintf("(%s, %s, %d, %s)", quote(id.Day.String()), quote(id.Shard.String()), id.Generation, quote(id.Attempt))
}

// condition is true for the rows of a copy. Its day prunes partitions, and its shard is the
// start of the primary key.
func (id CopyID) condition() string {
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
