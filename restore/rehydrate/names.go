package rehydrate

import (
	"fmt"
	"strings"

	"github.com/coldtier/coldtier/manifest"
)

// Names maps shards to the names of the target's tables: a name with {database} and
// {table} in it, which stand for the shard's. Empty is {table}: the shard's own name.
type Names string

// Of is a shard's table.
func (n Names) Of(s manifest.Shard) string {
	if n == "" {
		return s.Table
	}
	return strings.NewReplacer("{database}", s.Database, "{table}", s.Table).Replace(string(n))
}

// maxTableName is what the servers take, in characters.
const maxTableName = 64

// check refuses names under which rows of two shards would come together: each slice is
// compared with what its table holds of its message IDs, which then would be both's.
func (n Names) check(shards []manifest.Shard) error {
	seen := map[string]manifest.Shard{}
	for _, s := range shards {
		name := n.Of(s)
		if name == "" || len([]rune(name)) > maxTableName {
			return fmt.Errorf("%w: %q is no name of a table: want 1 to %d characters", ErrRefused, name, maxTableName)
		}
		if o, twice := seen[strings.ToLower(name)]; twice {
			return fmt.Errorf("%w: %s and %s would both go into table %s: narrow the shards, or give names of their own, such as --table '{database}_{table}'", ErrRefused, o, s, name)
		}
		seen[strings.ToLower(name)] = s
	}
	return nil
}
