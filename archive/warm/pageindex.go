package warm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
)

// index is one index of a table that FORCE INDEX takes.
type index struct {
	name   string
	unique bool
	parts  []string // columns, in lower case
	down   []bool   // in descending order
	whole  bool     // of whole columns, and can be walked
}

// readIndexes puts SHOW INDEX's rows together.
func readIndexes(rows []map[string][]byte) (out []*index) {
	for _, r := range rows {
		if string(r["visible"]) == "NO" || string(r["ignored"]) == "YES" {
			continue
		}
		name := string(r["key_name"])
		if len(out) == 0 || out[len(out)-1].name != name {
			out = append(out, &index{name: name, unique: string(r["non_unique"]) == "0", whole: true})
		}
		x := out[len(out)-1]
		x.parts = append(x.parts, strings.ToLower(string(r["column_name"])))
		x.down = append(x.down, string(r["collation"]) == "D")
		x.whole = x.whole && r["sub_part"] == nil && r["column_name"] != nil && string(r["index_type"]) == "BTREE"
	}
	return out
}

// uniqueKey finds an index that makes the message ID unique by itself.
func uniqueKey(all []*index, id string) (string, error) {
	found := ""
	for _, x := range all {
		if x.unique && x.whole && len(x.parts) == 1 && strings.EqualFold(x.parts[0], id) && (found == "" || x.name == primary) {
			found = x.name
		}
	}
	if found == "" {
		return "", fmt.Errorf("column %s has no unique key of its own: add PRIMARY KEY (%s) or UNIQUE KEY (%s)", id, id, id)
	}
	return quote(found), nil
}

const primary = "PRIMARY"

// pageIndex is how a page of a conversation is read from a table.
type pageIndex struct {
	name  string // "" where no index will do
	order string // the columns, quoted, by which the index gives a conversation's rows
	byID  bool   // order ends with the message ID
	ties  bool   // rows of equal cursors come in no known order: those at a page's end are to be read whole
	add   string // where no index will do: the one to add
}

// findPageIndex chooses the index that pages walk.
//
// An index of InnoDB ends with those columns of the primary key that it does not name,
// and the servers know that (suffixed); only MariaDB does not of a partitioned table. A range of an
// index whose cursors descend is walked in one direction alone by MySQL; for the other it
// sorts all of it.
func findPageIndex(all []*index, schema *message.Schema, suffixed bool) pageIndex {
	column := func(i int) string { return schema.Columns()[i].Name }
	conv, id, cursor := column(schema.Role(message.ConversationID)), column(schema.Role(message.MessageID)), column(schema.Cursor())
	found := pageIndex{add: fmt.Sprintf("ADD KEY (%s, %s)", quote(conv), quote(cursor))}
	all = slices.DeleteFunc(slices.Clone(all), func(x *index) bool { return !x.whole })
	is := func(part, name string) bool { return strings.EqualFold(part, name) }

	distinct := cursor == id // no two rows of a conversation have the same cursor
	suffix := &index{}
	for _, x := range all {
		other := func(part string) bool { return !is(part, conv) && !is(part, cursor) }
		distinct = distinct || x.unique && !slices.ContainsFunc(x.parts, other)
		if x.name == primary && suffixed {
			suffix = x
		}
	}
	best := 0
	for _, x := range all {
		parts, down := slices.Clone(x.parts), slices.Clone(x.down)
		for i, p := range suffix.parts {
			if !slices.Contains(parts, p) {
				parts, down = append(parts, p), append(down, suffix.down[i])
			}
		}
		if len(parts) < 2 || !is(parts[0], conv) || !is(parts[1], cursor) || down[1] {
			continue
		}
		p, worth := pageIndex{name: x.name, order: quote(cursor)}, 2
		switch {
		case distinct:
		case len(parts) > 2 && is(parts[2], id) && !down[2]:
			p.byID = true
		default:
			p.ties, worth = true, 1
		}
		if x.name == primary { // the rows themselves are in it
			worth += 2
		}
		if worth > best {
			found, best = p, worth
		}
	}
	return found
}

// PageIndex names the index that a conversation's pages walk. Without one a page would
// read the whole table, so it is refused: ErrNoPageIndex, with what to add.
func (t *Table) PageIndex() (string, error) { return t.pageIndex(t.def.Load()) }

func (t *Table) pageIndex(def *definition) (string, error) {
	if def.page.name == "" {
		return "", fmt.Errorf("table %s: %w: ALTER TABLE %s %s", t.shard, ErrNoPageIndex, t.name, def.page.add)
	}
	return def.page.name, nil
}
