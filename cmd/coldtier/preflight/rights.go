package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coldtier/coldtier/archive/warm"
)

// account is one account on one server, and the warm tables that it is configured for.
type account struct {
	where  string // host:port
	rights *warm.Rights
	tables []place
}

func (a account) subject() string { return "account " + a.rights.Account + " at " + a.where }

// judgeAccount says what is wrong with an account whatever it is used for.
func (p *Preflight) judgeAccount(about string, a account) {
	if has := administers(a.rights); len(has) > 0 {
		shown := has[:min(len(has), 6)]
		more := ""
		if len(has) > len(shown) {
			more = fmt.Sprintf(" and %d more", len(has)-len(shown))
		}
		p.Addf(about, AccountAdmin, a.subject(), "has %s%s on *.*", strings.Join(shown, ", "), more)
	}
	if levels := a.rights.MayGrant(); len(levels) > 0 {
		p.Addf(about, AccountGrants, a.subject(), "may hand on its rights on %s", strings.Join(levels, ", "))
	}
}

// judgeWarm compares an account's rights on its warm tables with what the roles need.
func (p *Preflight) judgeWarm(a account, x rules) {
	p.judgeAccount("warm", a)
	if len(a.tables) == 0 {
		return
	}
	tables := map[string]int{}
	for _, t := range a.tables {
		tables[t.database]++
	}
	var able []string
	allowed := spec{}
	for _, role := range p.roles {
		s := role.onWarm(x)
		allowed.may = slices.Concat(allowed.may, s.need, s.may)
		missing := map[string][]place{}
		for _, t := range a.tables {
			if lacks := a.rights.Lacks(t.database, t.table, s.need...); len(lacks) > 0 {
				key := strings.Join(lacks, ", ")
				missing[key] = append(missing[key], t)
			}
		}
		if len(missing) == 0 && len(s.need) > 0 {
			able = append(able, string(role))
		}
		for _, key := range slices.Sorted(maps.Keys(missing)) {
			on := folded(missing[key], tables)
			remedy := fmt.Sprintf("%s (deploy/sql/warm/%s.sql)", granting(a.rights, key, missing[key], tables), role)
			if role == Purge && x.partitions && strings.Contains(key, "ALTER") && !strings.Contains(key, "DELETE") {
				remedy += ", or set purge.strategy: rows"
			}
			if p.For == All {
				p.Add("warm", WarmRoleNot, a.subject(), fmt.Sprintf("cannot %s: it lacks %s on %s", role, key, on), "nothing, where another account does it; else "+remedy)
			} else {
				p.Add("warm", WarmRights, a.subject(), fmt.Sprintf("lacks %s on %s, which %s needs", key, on, role), remedy)
			}
		}
	}
	if len(able) > 0 {
		p.Addf("warm", AccountReady, a.subject(), "has what the warm tables ask for: %s", strings.Join(able, ", "))
	}
	if p.For == All && slices.Contains(able, string(Archive)) && slices.Contains(able, string(Purge)) {
		p.Addf("warm", AccountShared, a.subject(), "may archive and delete warm rows")
	}
	beyond := map[string][]place{}
	for _, t := range a.tables {
		if has := excess(a.rights, t.database, t.table, allowed); len(has) > 0 && p.listed(a) {
			key := strings.Join(has, ", ")
			beyond[key] = append(beyond[key], t)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(beyond)) {
		on := folded(beyond[key], tables)
		p.Add("warm", WarmExcess, a.subject(), fmt.Sprintf("may %s on %s, which %s", key, on, p.doers()), revoking(a.rights, key, beyond[key]))
	}
}

// granting is the GRANT that gives what is missing on warm tables. Of the grants on whole
// databases whose names match one, the server takes one alone, so that one is extended.
func granting(rights *warm.Rights, key string, missing []place, of map[string]int) string {
	return fmt.Sprintf("GRANT %s ON %s TO the account of the role", key, foldedBy(missing, of, func(p place) string {
		if p.table != "" {
			return p.String()
		}
		return cmp.Or(rights.Counting(p.database), rights.Pattern(p.database)) + ".*"
	}))
}

// grantingManifest is the GRANT that gives what is missing of all that is wanted on the
// manifest. Where a pattern counts for it that was meant for other databases, a grant of
// its own takes that one's place, and so has to give all.
func grantingManifest(rights *warm.Rights, missing, want []string, p place) string {
	statement := func(privileges []string, on string) string {
		return fmt.Sprintf("GRANT %s ON %s TO the account of the role", strings.Join(privileges, ", "), on)
	}
	if p.table != "" {
		return statement(missing, p.String())
	}
	own := rights.Pattern(p.database)
	switch counts := rights.Counting(p.database); counts {
	case "":
		return statement(missing, own+".*")
	case own, quoted(p.database):
		return statement(missing, counts+".*")
	default:
		text := statement(want, own+".*") + ": of grants whose names match the server takes one alone, here that on " + counts
		if _, hidden := rights.Hidden(p.database); len(hidden) > 0 {
			text += ", and not that on " + strings.Join(hidden, ", ") + ", where _ is a wildcard"
		}
		return text
	}
}

// revoking is the REVOKE that takes away what is too much, on what it was granted.
func revoking(rights *warm.Rights, key string, beyond []place) string {
	var levels []string
	for _, p := range beyond {
		for _, l := range rights.From(p.database, p.table, strings.Split(key, ", ")...) {
			if !slices.Contains(levels, l) {
				levels = append(levels, l)
			}
		}
	}
	return fmt.Sprintf("REVOKE %s ON %s FROM the account", key, shortList(levels, 4))
}

// doers says who never does what is beyond the roles that are judged.
func (p *Preflight) doers() string {
	if p.For == All {
		return "no role does"
	}
	return string(p.For) + " never does"
}

// listed says whether what an account has beyond its roles is told one by one: not of an
// administrator, of whom that is told, unless it is to do one role.
func (p *Preflight) listed(a account) bool { return p.For != All || len(administers(a.rights)) == 0 }

// judgeManifest compares an account's rights on the manifest with what the roles need.
func (p *Preflight) judgeManifest(a account, database string) {
	p.judgeAccount("manifest", a)
	fits := true
	allowed := spec{}
	for _, role := range p.roles {
		all, tables, may := role.onManifest()
		allowed.may = slices.Concat(allowed.may, may.need, may.may)
		lacks := func(t place, want []string) {
			missing := a.rights.Lacks(t.database, t.table, want...)
			if len(missing) == 0 {
				return
			}
			fits = false
			key := strings.Join(missing, ", ")
			remedy := fmt.Sprintf("%s (deploy/sql/manifest/%s.sql)", grantingManifest(a.rights, missing, want, t), role)
			if p.For == All {
				p.Add("manifest", WarmRoleNot, a.subject(), fmt.Sprintf("cannot %s: it lacks %s on %s", role, key, t), "nothing, where another account does it; else "+remedy)
				return
			}
			p.Add("manifest", ManifestRights, a.subject(), fmt.Sprintf("lacks %s on %s, which %s needs", key, t, role), remedy)
		}
		lacks(place{database: database}, all)
		for _, t := range slices.Sorted(maps.Keys(tables)) {
			lacks(place{database, t}, tables[t])
		}
	}
	if fits {
		p.Addf("manifest", AccountReady, a.subject(), "has what the manifest asks for")
	}
	if slices.Contains(p.roles, Archive) {
		if missing := a.rights.Lacks(database, "", migrates...); len(missing) > 0 {
			p.Addf("manifest", ManifestNoMigrate, a.subject(), "may not %s on %s, as migrate does", strings.Join(missing, ", "), place{database: database})
		}
	}
	if p.For == Fetch {
		want := statuses()
		for _, t := range slices.Sorted(maps.Keys(want)) {
			if missing := a.rights.Lacks(database, t, want[t]...); len(missing) > 0 {
				p.Addf("manifest", ManifestNoStatus, a.subject(), "lacks %s on %s", strings.Join(missing, ", "), place{database, t})
			}
		}
	}
	p.beyond(a, place{database, guarded}, allowed, p.doers())
	if p.For == Purge {
		for _, t := range approving {
			p.beyond(a, place{database, t.table}, spec{may: t.may}, "would let it approve what it deletes")
		}
	}
}

// beyond names what the account may change in a table of the manifest and should not.
func (p *Preflight) beyond(a account, t place, allowed spec, why string) {
	if has := excess(a.rights, t.database, t.table, allowed); len(has) > 0 && p.listed(a) {
		key := strings.Join(has, ", ")
		p.Add("manifest", ManifestExcess, a.subject(), fmt.Sprintf("may %s on %s, which %s", key, t, why), revoking(a.rights, key, []place{t})+", see deploy/sql/manifest")
	}
}
