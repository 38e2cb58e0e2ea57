package warm

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Querier is a connection, or a pool of them.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Rights are what an account of a MySQL or MariaDB server may do: by itself, and by
// the roles that are active when it logs in.
type Rights struct {
	Account string // user@host, as the server took it
	mariadb bool
	literal bool // wildcards in names of databases are none: partial_revokes of MySQL
	holders []*holder
}

// holder is the account, or on MariaDB one of its roles: there each is looked at by
// itself. MySQL puts the grants of active roles among the account's.
type holder struct {
	name   string
	grants []rightsGrant
}

// rightsGrant is one line of SHOW GRANTS.
type rightsGrant struct {
	revoke          bool
	database, table string              // "": all
	privileges      map[string][]string // upper case; the columns it is for, none: all
	option          bool
}

// allPrivileges stands for each but GRANT OPTION.
const allPrivileges = "ALL PRIVILEGES"

// GrantOption is the privilege to hand privileges on.
const GrantOption = "GRANT OPTION"

// ReadRights asks a server for the rights of the account that is connected.
func ReadRights(ctx context.Context, q Querier) (*Rights, error) {
	r := &Rights{}
	who, err := looked(ctx, q, "SELECT CURRENT_USER() AS u, VERSION() AS v")
	if err != nil {
		return nil, fmt.Errorf("rights: %w", err)
	}
	r.Account, r.mariadb = string(who[0]["u"]), strings.Contains(string(who[0]["v"]), "MariaDB")
	partial, err := looked(ctx, q, "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'")
	if err != nil {
		return nil, fmt.Errorf("rights: %w", err)
	}
	r.literal = len(partial) == 1 && string(partial[0]["value"]) == "ON"
	lines, err := looked(ctx, q, "SHOW GRANTS")
	if err != nil {
		return nil, fmt.Errorf("rights: %w", err)
	}
	for _, l := range lines {
		for _, text := range l { // its one column is named by the account
			r.add(string(text))
		}
	}
	return r, nil
}

// ParseRights reads the lines of SHOW GRANTS of a server of a version.
func ParseRights(version string, partialRevokes bool, lines ...string) *Rights {
	r := &Rights{mariadb: strings.Contains(version, "MariaDB"), literal: partialRevokes}
	for _, l := range lines {
		r.add(l)
	}
	return r
}

// looked reads a small result by column names in lower case.
func looked(ctx context.Context, q Querier, query string) ([]map[string][]byte, error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return namedRows(rows)
}

// add reads one line. Those that give no privilege of ours (roles, proxies, default
// roles) are left out: what roles give is in lines of its own.
func (r *Rights) add(line string) {
	t := tokens(line)
	g := rightsGrant{privileges: map[string][]string{}}
	switch {
	case t.take("REVOKE"):
		g.revoke = true
	case !t.take("GRANT"):
		return
	}
	if len(t) == 0 || t[0].quoted { // a role
		return
	}
	for {
		name := t.words(",", "(", "ON", "TO", "FROM")
		if name == "" || name == "PROXY" {
			return
		}
		if name == "ALL" {
			name = allPrivileges
		}
		var columns []string
		if t.take("(") {
			for len(t) > 0 && !t.take(")") {
				if c := t.next(); c.text != "," || c.quoted {
					columns = append(columns, c.text)
				}
			}
		}
		g.privileges[name] = columns
		if !t.take(",") {
			break
		}
	}
	if !t.take("ON") || !t.level(&g) || !t.take("TO") && !t.take("FROM") {
		return
	}
	who := t.next().text
	if t.take("@") {
		who += "@" + t.next().text
	}
	for len(t) > 1 {
		g.option = g.option || t[0].is("GRANT") && t[1].is("OPTION")
		t = t[1:]
	}
	r.holder(who).grants = append(r.holder(who).grants, g)
}

func (r *Rights) holder(name string) *holder {
	for _, h := range r.holders {
		if h.name == name {
			return h
		}
	}
	h := &holder{name: name}
	r.holders = append(r.holders, h)
	return h
}

// token is a word, a name in quotes, or a sign.
type token struct {
	text   string
	quoted bool
}

func (t token) is(word string) bool { return !t.quoted && strings.EqualFold(t.text, word) }

type tokenList []token

// tokens takes a line of SHOW GRANTS apart.
func tokens(line string) (all tokenList) {
	for i := 0; i < len(line); {
		switch c := line[i]; {
		case c == ' ':
			i++
		case c == '`' || c == '\'' || c == '"':
			var name strings.Builder
			for i++; i < len(line); i++ {
				if line[i] == c {
					if i+1 >= len(line) || line[i+1] != c {
						break
					}
					i++
				}
				name.WriteByte(line[i])
			}
			i++
			all = append(all, token{name.String(), true})
		case strings.IndexByte(",().@*;", c) >= 0:
			all = append(all, token{string(c), false})
			i++
		default:
			end := i
			for end < len(line) && strings.IndexByte(" ,().@*;`'\"", line[end]) < 0 {
				end++
			}
			all = append(all, token{line[i:end], false})
			i = end
		}
	}
	return all
}

func (t *tokenList) next() (first token) {
	if len(*t) > 0 {
		first, *t = (*t)[0], (*t)[1:]
	}
	return first
}

// take drops the first token if it is the word.
func (t *tokenList) take(word string) bool {
	if len(*t) == 0 || !(*t)[0].is(word) {
		return false
	}
	*t = (*t)[1:]
	return true
}

// words joins words up to one of the ends.
func (t *tokenList) words(ends ...string) string {
	var all []string
	for len(*t) > 0 && !slices.ContainsFunc(ends, (*t)[0].is) {
		all = append(all, strings.ToUpper(t.next().text))
	}
	return strings.Join(all, " ")
}

// level reads what a grant is on; false where that is no table.
func (t *tokenList) level(g *rightsGrant) bool {
	if t.take("FUNCTION") || t.take("PROCEDURE") || t.take("PACKAGE") || t.take("LIBRARY") {
		return false
	}
	t.take("TABLE")
	if d := t.next(); d.quoted || d.text != "*" {
		g.database = d.text
	}
	if !t.take(".") {
		return false
	}
	if n := t.next(); n.quoted || n.text != "*" {
		g.table = n.text
	}
	return true
}

// Global lists the privileges on everything, sorted.
func (r *Rights) Global() []string {
	has := map[string]bool{}
	for _, h := range r.holders {
		for _, g := range h.grants {
			if g.database != "" || g.revoke {
				continue
			}
			g.hold(has)
		}
	}
	return slices.Sorted(maps.Keys(has))
}

// hold adds the privileges of whole tables, and the grant option.
func (g *rightsGrant) hold(has map[string]bool) {
	for p, columns := range g.privileges {
		if columns == nil && p != "USAGE" {
			has[p] = true
		}
	}
	if g.option {
		has[GrantOption] = true
	}
}

// On lists the privileges on a table, by whatever level they are granted, sorted. ""
// as the table asks for those on all tables of the database. A privilege for some
// columns alone is not among them: see Columns.
func (r *Rights) On(database, table string) []string {
	all := map[string]bool{}
	for _, h := range r.holders {
		has := map[string]bool{}
		for _, g := range h.grants {
			if g.database == "" && !g.revoke {
				g.hold(has)
			}
		}
		for _, g := range h.grants {
			if g.revoke && g.database == database { // of what is granted on everything
				if _, whole := g.privileges[allPrivileges]; whole {
					clear(has)
				}
				if has[allPrivileges] {
					delete(has, allPrivileges)
					for _, p := range TablePrivileges() {
						has[p] = true
					}
				}
				for p := range g.privileges {
					delete(has, p)
				}
			}
		}
		for _, g := range r.matching(h, database) {
			g.hold(has)
		}
		for _, g := range h.grants {
			if g.database == database && table != "" && g.table == table && !g.revoke {
				g.hold(has)
			}
		}
		maps.Copy(all, has)
	}
	return slices.Sorted(maps.Keys(all))
}

// matching is the grant on a whole database that counts for it. Of several that match its
// name both servers take one alone: that whose first wildcard comes latest. A plain "_" is
// one, too, so that `im\_%` comes before `im_00`; MariaDB takes the very name first.
func (r *Rights) matching(h *holder, database string) (found []rightsGrant) {
	best := -1
	for _, g := range h.grants {
		if g.revoke || g.table != "" || g.database == "" {
			continue
		}
		exact := math.MaxInt
		switch {
		case r.literal && g.database != database, !r.literal && !like(g.database, database):
			continue
		case r.literal, r.mariadb && g.database == database:
		default:
			if i := wildcard(g.database); i >= 0 {
				exact = i
			}
		}
		switch {
		case exact == best:
			found = append(found, g)
		case exact > best:
			found, best = []rightsGrant{g}, exact
		}
	}
	return found
}

// Pattern is how a grant on a whole database names it, in quotes: "_" is a wildcard there
// unless the server takes none.
func (r *Rights) Pattern(database string) string {
	if r.literal {
		return quote(database)
	}
	return quote(strings.NewReplacer(`_`, `\_`, `%`, `\%`).Replace(database))
}

// Counting is the name, in quotes, by which the grant is made that counts for a whole
// database; "" where none matches.
func (r *Rights) Counting(database string) string {
	for _, h := range r.holders {
		if counts := r.matching(h, database); len(counts) > 0 {
			return quote(counts[0].database)
		}
	}
	return ""
}

// Hidden are the grants on whole databases that match a database's name and do not count,
// since the server takes another one alone, as they name it. By is that one.
func (r *Rights) Hidden(database string) (by string, hidden []string) {
	for _, h := range r.holders {
		counts := r.matching(h, database)
		for _, g := range h.grants {
			if g.revoke || g.table != "" || g.database == "" || !like(g.database, database) || r.literal {
				continue
			}
			if len(counts) > 0 && counts[0].database != g.database && !slices.Contains(hidden, quote(g.database)) {
				by, hidden = quote(counts[0].database), append(hidden, quote(g.database))
			}
		}
	}
	return by, hidden
}

// From lists the levels on which any of the privileges is granted that the account has on
// a table, such as `im\_%`.*, as a REVOKE must name them.
func (r *Rights) From(database, table string, which ...string) (levels []string) {
	for _, h := range r.holders {
		counts := r.matching(h, database)
		for _, g := range h.grants {
			whole := g.table == "" && g.database != "" && slices.ContainsFunc(counts, func(c rightsGrant) bool { return c.database == g.database })
			exact := g.database == database && g.table != "" && g.table == table
			if g.revoke || g.database != "" && !whole && !exact {
				continue
			}
			gives := func(p string) bool { _, ok := g.privileges[p]; return ok }
			if level := g.level(); (gives(allPrivileges) || slices.ContainsFunc(which, gives)) && !slices.Contains(levels, level) {
				levels = append(levels, level)
			}
		}
	}
	return levels
}

// level is what the grant is on, as the server tells it.
func (g *rightsGrant) level() string {
	part := func(name string) string {
		if name == "" {
			return "*"
		}
		return quote(name)
	}
	return part(g.database) + "." + part(g.table)
}

// wildcard is where the first wildcard of a pattern is; -1: nowhere.
func wildcard(pattern string) int {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '%', '_':
			return i
		}
	}
	return -1
}

// like matches as LIKE does.
func like(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	switch c := pattern[0]; {
	case c == '%':
		for i := 0; i <= len(text); i++ {
			if like(pattern[1:], text[i:]) {
				return true
			}
		}
		return false
	case c == '\\' && len(pattern) > 1:
		return text != "" && text[0] == pattern[1] && like(pattern[2:], text[1:])
	default:
		return text != "" && (c == '_' || c == text[0]) && like(pattern[1:], text[1:])
	}
}

// Lacks lists those of the privileges that the account has not on the table.
func (r *Rights) Lacks(database, table string, want ...string) (missing []string) {
	has := r.On(database, table)
	for _, p := range want {
		if !slices.Contains(has, p) && (p == GrantOption || !slices.Contains(has, allPrivileges)) {
			missing = append(missing, p)
		}
	}
	return missing
}

// Has lists those of the privileges that the account has on the table, also for some
// columns alone.
func (r *Rights) Has(database, table string, which ...string) (present []string) {
	missing := r.Lacks(database, table, which...)
	for _, p := range which {
		if !slices.Contains(missing, p) || len(r.Columns(database, table, p)) > 0 {
			present = append(present, p)
		}
	}
	return present
}

// Columns lists the columns for which alone a privilege is granted.
func (r *Rights) Columns(database, table, privilege string) (columns []string) {
	for _, h := range r.holders {
		for _, g := range h.grants {
			if g.database == database && g.table == table && !g.revoke {
				columns = append(columns, g.privileges[privilege]...)
			}
		}
	}
	return columns
}

// MayGrant lists what the account may hand on: the levels of its grants WITH GRANT OPTION.
func (r *Rights) MayGrant() (levels []string) {
	for _, h := range r.holders {
		for _, g := range h.grants {
			if level := g.level(); g.option && !slices.Contains(levels, level) {
				levels = append(levels, level)
			}
		}
	}
	return levels
}

// TablePrivileges are those that ALL PRIVILEGES on a table or a database stands for.
func TablePrivileges() []string {
	return []string{"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "REFERENCES", "INDEX", "ALTER", "CREATE TEMPORARY TABLES", "LOCK TABLES",
		"EXECUTE", "CREATE VIEW", "SHOW VIEW", "CREATE ROUTINE", "ALTER ROUTINE", "EVENT", "TRIGGER"}
}
