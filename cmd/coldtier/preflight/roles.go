package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coldtier/coldtier/archive/warm"
)

// Role is a job and the account that does it: those of deploy/sql.
type Role string

// The roles. All stands for each that the configuration allows.
const (
	Archive Role = "archive"
	Purge   Role = "purge"
	Fetch   Role = "fetch"
	Restore Role = "restore"
	Drill   Role = "drill"
	Patrol  Role = "patrol"
	Canary  Role = "canary"
	Approve Role = "approve"
	All     Role = "all"
)

// ParseRole reads --for.
func ParseRole(s string) (Role, error) {
	for _, r := range []Role{Archive, Purge, Fetch, Restore, Drill, Patrol, Canary, Approve, All} {
		if string(r) == s {
			return r, nil
		}
	}
	return "", fmt.Errorf("--for %q: want archive, purge, fetch, restore, drill, patrol, canary, approve or all", s)
}

// rules are what decides how much a role needs.
type rules struct {
	partitions bool // a table is partitioned, and purge.strategy lets partitions go whole
	rows       bool // purge.strategy: rows
	fetchWarm  bool // fetch.warm
}

// spec is what a role needs, and what more it may have without being warned of, on a
// table.
type spec struct{ need, may []string }

var (
	readAndWrite = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	migrates     = []string{"CREATE", "ALTER", "DROP", "INDEX", "REFERENCES"}
	exchanges    = []string{"CREATE", "ALTER", "DROP", "INSERT", "LOCK TABLES", "TRIGGER"}
)

// changing are the privileges that change something, or let others wait.
var changing = []string{"INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "INDEX", "TRIGGER", "LOCK TABLES", "EVENT", "CREATE VIEW", "CREATE ROUTINE", "ALTER ROUTINE", "DELETE HISTORY"}

// onWarm is what a role needs on each warm table.
func (r Role) onWarm(x rules) spec {
	switch r {
	case Archive:
		return spec{need: []string{"SELECT"}}
	case Purge:
		if x.partitions {
			return spec{need: slices.Concat([]string{"SELECT", "DELETE"}, exchanges)}
		}
		if x.rows {
			return spec{need: []string{"SELECT", "DELETE"}, may: []string{"TRIGGER"}}
		}
		return spec{need: []string{"SELECT", "DELETE"}, may: exchanges} // for the day when a table is partitioned
	case Fetch:
		if x.fetchWarm {
			return spec{need: []string{"SELECT"}}
		}
		return spec{may: []string{"SELECT"}}
	case Restore:
		return spec{may: []string{"SELECT", "INSERT", "TRIGGER"}} // for --into-warm
	case Patrol:
		return spec{need: []string{"SELECT"}}
	case Canary:
		return spec{need: []string{"SELECT", "INSERT", "TRIGGER"}}
	}
	return spec{}
}

// guarded is the table of the manifest that stands for those that few roles change.
const guarded = "slices"

// approving are the tables of the manifest by which somebody else than the purge says
// what it may delete, with what the purge may do there.
var approving = []struct {
	table string
	may   []string
}{{"approvals", nil}, {"approved_slices", nil}, {"policies", nil}, {"plans", []string{"INSERT"}}, {"plan_slices", []string{"INSERT"}}}

// onManifest is what a role needs on the manifest: on all of it, and beyond that on some
// of its tables. Allowed are what it may have on the guarded table.
func (r Role) onManifest() (all []string, tables map[string][]string, allowed spec) {
	reads := []string{"SELECT"}
	switch r {
	case Archive:
		return readAndWrite, nil, spec{need: readAndWrite, may: migrates}
	case Purge:
		tables = map[string][]string{}
		for _, t := range []string{guarded, "chunks", "sources", "runs", "job_leases"} {
			tables[t] = []string{"INSERT", "UPDATE", "DELETE"}
		}
		return reads, tables, spec{need: readAndWrite}
	case Restore:
		return reads, map[string][]string{"runs": {"INSERT", "UPDATE"}, "job_leases": {"INSERT", "UPDATE", "DELETE"}}, spec{may: []string{"LOCK TABLES"}}
	case Drill:
		return reads, map[string][]string{"runs": {"INSERT", "UPDATE"}, "job_leases": {"INSERT", "UPDATE"}, "drills": {"INSERT", "UPDATE"}, "drill_slices": {"INSERT", "UPDATE"}}, spec{}
	case Patrol:
		tables = map[string][]string{guarded: {"INSERT", "UPDATE"}, "copies": {"INSERT", "UPDATE"}, "sources": {"INSERT", "UPDATE"}, "canaries": {"INSERT", "UPDATE"}}
		for _, t := range []string{"runs", "job_leases", "checks", "object_checks", "check_rounds"} {
			tables[t] = []string{"INSERT", "UPDATE", "DELETE"}
		}
		return reads, tables, spec{may: []string{"INSERT", "UPDATE"}}
	case Canary:
		return reads, map[string][]string{"canaries": {"INSERT", "UPDATE"}, "runs": {"INSERT", "UPDATE"}, "job_leases": {"INSERT", "UPDATE", "DELETE"}}, spec{}
	case Approve:
		return reads, map[string][]string{"approvals": {"INSERT"}, "approved_slices": {"INSERT"}, "revocations": {"INSERT"}}, spec{}
	}
	return reads, nil, spec{}
}

// statuses are what PutStatus needs beyond.
func statuses() map[string][]string {
	return map[string][]string{"statuses": {"INSERT", "UPDATE"}, "sources": {"UPDATE"}}
}

// excess lists what changes something and is not among the allowed.
func excess(rights *warm.Rights, database, table string, s spec) []string {
	var beyond []string
	for _, p := range changing {
		if !slices.Contains(s.need, p) && !slices.Contains(s.may, p) {
			beyond = append(beyond, p)
		}
	}
	return rights.Has(database, table, beyond...)
}

// administers lists the rights of an administrator that the account has everywhere.
func administers(rights *warm.Rights) (has []string) {
	for _, p := range rights.Global() {
		switch p {
		case "ALL PRIVILEGES", "SUPER", "FILE", "CREATE USER", "SHUTDOWN", "RELOAD", "SYSTEM_USER", "SYSTEM_VARIABLES_ADMIN", "ROLE_ADMIN", "SET_USER_ID",
			"SET_ANY_DEFINER", "SET USER", "BINLOG ADMIN", "BINLOG_ADMIN", "READ_ONLY ADMIN", "READ ONLY ADMIN", "CONNECTION ADMIN", "CONNECTION_ADMIN",
			"REPLICATION SLAVE ADMIN", "REPLICATION_SLAVE_ADMIN", "REPLICATION MASTER ADMIN":
			has = append(has, p)
		}
	}
	return has
}

// place is where rights are looked at: a table of a database, in words, too.
type place struct{ database, table string }

// String is as in a GRANT.
func (p place) String() string {
	if p.table == "" {
		return quoted(p.database) + ".*"
	}
	return quoted(p.database) + "." + quoted(p.table)
}

func quoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// folded names places in which the same is missing: all tables of a database as one, and
// of many the first few.
func folded(list []place, of map[string]int) string { return foldedBy(list, of, place.String) }

func foldedBy(list []place, of map[string]int, name func(place) string) string {
	const most = 4
	per := map[string][]place{}
	var names []string
	for _, p := range list {
		if len(per[p.database]) == 0 {
			names = append(names, p.database)
		}
		per[p.database] = append(per[p.database], p)
	}
	var parts []string
	for _, n := range names {
		if len(per[n]) == of[n] && of[n] > 1 {
			parts = append(parts, name(place{database: n}))
			continue
		}
		for _, p := range per[n] {
			parts = append(parts, name(p))
		}
	}
	if more := len(parts) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(parts[:most], ", "), more)
	}
	return strings.Join(parts, ", ")
}
