package warm

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// shapes compares the definitions of tables of the same glob: those that differ from
// most of them are named with the difference.
func shapes(globs []string, tables []*Table) (found []Finding) {
	done := map[*Table]bool{}
	for _, g := range globs {
		groups := map[string][]*Table{}
		for _, t := range tables {
			if ok, _ := path.Match(g, t.shard.Table); ok && !done[t] { // validated by Open
				done[t] = true
				shape := strings.Join(shapeOf(t.ShowCreate()), "\n")
				groups[shape] = append(groups[shape], t)
			}
		}
		if len(groups) < 2 {
			continue
		}
		usual := ""
		for shape, list := range groups {
			if n, most := len(list), len(groups[usual]); usual == "" || n > most || n == most && earlier(list[0], groups[usual][0]) {
				usual = shape
			}
		}
		var odd []*Table
		for shape, list := range groups {
			if shape != usual {
				odd = append(odd, list...)
			}
		}
		slices.SortFunc(odd, func(a, b *Table) int { return cmp.Compare(a.shard.String(), b.shard.String()) })
		for _, t := range odd {
			found = append(found, Finding{Code: CodeShape, Subject: t.shard.String(),
				What:   fmt.Sprintf("table %s differs from %d of the tables %s: %s", t.shard, len(groups[usual]), g, difference(strings.Split(usual, "\n"), shapeOf(t.ShowCreate()))),
				Remedy: "bring them to one definition, so that a day's copies read alike, or name tables of another kind by a configuration of their own"})
		}
	}
	return found
}

func earlier(a, b *Table) bool { return a.shard.String() < b.shard.String() }

var (
	counted     = regexp.MustCompile(` AUTO_INCREMENT=\d+`)
	partitioned = regexp.MustCompile(`(?s)\n\s*(/\*!\d+ )?PARTITION BY .*`)
	constraint  = regexp.MustCompile("^CONSTRAINT `[^`]*` ")
)

// spellings are what MySQL and MariaDB, and versions of each, write otherwise of the same
// definition, and how it is compared.
var spellings = []struct {
	of *regexp.Regexp
	as string
}{
	{regexp.MustCompile(`^(\S+ (?:tiny|small|medium|big)?int)\(\d+\)`), "$1"},
	{regexp.MustCompile(`^(\S+ year)\(4\)`), "$1"},
	{regexp.MustCompile("^(\\S+) longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin(.*) CHECK \\(json_valid\\(`[^`]*`\\)\\)"), "$1 json$2"},
	{regexp.MustCompile(` COLLATE[ =]utf8mb4_(?:0900_ai_ci|general_ci|uca1400_ai_ci)\b`), ""}, // what a server takes where none is named
	{regexp.MustCompile(` DEFAULT NULL\b`), ""},
	{regexp.MustCompile(` DEFAULT '(-?\d+(?:\.\d+)?)'`), " DEFAULT $1"},
	{regexp.MustCompile(`(?i)\bcurrent_timestamp(?:(\([1-6]\))|\(0?\))?`), "CURRENT_TIMESTAMP$1"},
}

// shapeOf is a definition without what tables of one kind may differ in: where the
// counter stands, partitions, the names of constraints, and how a server spells it.
func shapeOf(showCreate string) (lines []string) {
	showCreate = counted.ReplaceAllString(partitioned.ReplaceAllString(showCreate, ""), "")
	for i, line := range strings.Split(showCreate, "\n") {
		if i == 0 { // the table's name
			continue
		}
		line = constraint.ReplaceAllString(strings.TrimSuffix(strings.TrimSpace(line), ","), "")
		for _, s := range spellings {
			line = s.of.ReplaceAllString(line, s.as)
		}
		lines = append(lines, line)
	}
	return lines
}

// difference says in which lines a definition differs from the usual one.
func difference(usual, have []string) string {
	const most = 6
	var parts []string
	for _, l := range usual {
		if !slices.Contains(have, l) {
			parts = append(parts, "lacks "+l)
		}
	}
	for _, l := range have {
		if !slices.Contains(usual, l) {
			parts = append(parts, "has "+l)
		}
	}
	if len(parts) == 0 {
		return "the order of its columns or keys"
	}
	if more := len(parts) - most; more > 0 {
		parts = append(parts[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}
