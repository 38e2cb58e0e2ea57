package warm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/message"
)

// Finding is something Check saw that is not right. One that is Fatal keeps
// something from working, or would lose something.
type Finding struct {
	Fatal  bool   `json:"fatal"`
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// String is one line.
func (f Finding) String() string {
	if f.Remedy == "" {
		return f.What
	}
	return f.What + ": " + f.Remedy
}

// maxSkew is how far this machine's clock may be from a database's.
const maxSkew = time.Minute

// Check looks for what would keep the warm tables from being archived and purged.
// It changes nothing.
func (w *Warm) Check(ctx context.Context) []Finding {
	found := make([][]Finding, len(w.databases))
	var g errgroup.Group
	g.SetLimit(8)
	for i, d := range w.databases {
		g.Go(func() error {
			found[i] = d.check(ctx)
			return nil
		})
	}
	_ = g.Wait() // what is wrong is in the findings
	tables, err := w.Discover(ctx)
	var all []Finding
	unreachable := map[*database]bool{}
	for i, fs := range found {
		all = append(all, fs...)
		for _, f := range fs {
			unreachable[w.databases[i]] = unreachable[w.databases[i]] || f.Fatal && strings.Contains(f.What, noConnection)
		}
	}
	if err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			if !w.known(unreachable, line) {
				what, remedy, _ := cutLast(line, ": ")
				all = append(all, Finding{true, what, remedy})
			}
		}
	}
	perTable := make([][]Finding, len(tables))
	var tg errgroup.Group
	tg.SetLimit(8)
	for i, t := range tables {
		tg.Go(func() error {
			perTable[i] = t.check(ctx)
			return nil
		})
	}
	_ = tg.Wait()
	for _, fs := range perTable {
		all = append(all, fs...)
	}
	if w.cfg.Columns[message.CreatedAt] == "" {
		all = append(all, Finding{false, "source.columns.created_at is not set, so that the snowflake epoch cannot be compared with the rows' own time", "set it if the tables have such a column"})
	}
	return all
}

const noConnection = "cannot be reached"

// known says whether a line of Discover's error is about a database that check has
// found unreachable itself.
func (w *Warm) known(unreachable map[*database]bool, line string) bool {
	for d := range unreachable {
		if unreachable[d] && strings.HasPrefix(line, "database "+d.where+": ") {
			return true
		}
	}
	return false
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// check looks at a database as a whole.
func (d *database) check(ctx context.Context) (found []Finding) {
	begun := d.cfg.Now()
	now, err := d.now(ctx)
	if err != nil {
		return []Finding{{true, fmt.Sprintf("database %s %s (%s)", d.where, noConnection, oneLine(err)), connectRemedy(err)}}
	}
	ended := d.cfg.Now()
	here := begun.Add(ended.Sub(begun) / 2)
	if skew := here.Sub(now); skew.Abs() > maxSkew {
		found = append(found, Finding{true, fmt.Sprintf("the clock of database %s is %s off from this machine's", d.where, skew.Round(time.Second)), "synchronise both by NTP"})
	}
	for _, r := range d.replicas {
		if _, err := r.lag(ctx); err != nil {
			found = append(found, Finding{true, fmt.Sprintf("replica %s of database %s: its lag cannot be read (%s)", r.where, d.where, oneLine(err)),
				"purge waits for replicas, so correct source.databases.replicas or repair it"})
		}
	}
	return found
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func connectRemedy(err error) string {
	switch number(err) {
	case 1045:
		return "correct user and password in source.databases"
	case erAccessDenied:
		return "grant the account SELECT on it"
	case 1049:
		return "the server has no such database, correct source.databases"
	case 0:
		return "check that the server runs and that host and port in source.databases are right"
	}
	return "see the server's message"
}

// check looks at one table.
func (t *Table) check(ctx context.Context) (found []Finding) {
	add := func(fatal bool, what, remedy string) {
		found = append(found, Finding{fatal, fmt.Sprintf("table %s: %s", t.shard, what), remedy})
	}
	s, err := t.d.session(ctx)
	if err != nil {
		add(true, oneLine(err), "see the server's message")
		return found
	}
	defer s.close(ctx)
	def := t.def.Load()
	if _, _, err := t.next(ctx, s, t.name, def, 0, 0); err != nil {
		if denied(err) {
			add(true, "this account may not read it", "GRANT SELECT ON "+t.name)
		} else {
			add(true, "cannot be read ("+oneLine(err)+")", "see the server's message")
		}
		return found
	}
	// EXPLAIN needs the privileges of the statement and has no effect.
	if _, err := s.named(ctx, fmt.Sprintf("EXPLAIN DELETE FROM %s WHERE %s < 0", t.name, def.id)); denied(err) {
		add(false, "this account may archive it, but not purge it", "for the purge, GRANT DELETE ON "+t.name+" to the account it runs as")
	}
	if err := t.epochFits(ctx, s); err != nil {
		what, remedy, _ := cutLast(oneLine(err), ": ")
		add(true, what, remedy)
	} else if id, at, ok, err := t.future(ctx, s, def); err != nil {
		add(true, oneLine(err), "see the server's message")
	} else if ok {
		add(false, fmt.Sprintf("has rows of the future, such as message ID %d of %s", id, at.Format(time.RFC3339)), "look for a wrong clock among the ID generators")
	}
	if names, err := t.triggers(ctx, s); err != nil {
		add(true, oneLine(err), "see the server's message")
	} else if len(names) > 0 {
		add(false, "has the triggers "+strings.Join(names, ", "), "they fire for each row that the purge deletes; its partitions are not exchanged")
	}
	for _, r := range t.references {
		add(false, "is referenced by a foreign key of "+r, "rows that are still referenced cannot be purged")
	}
	t.checkPartitions(ctx, s, add)
	return found
}

// future finds the newest row if its ID's time is still to come.
func (t *Table) future(ctx context.Context, s *session, def *definition) (uint64, time.Time, bool, error) {
	now, err := t.d.now(ctx)
	if err != nil {
		return 0, time.Time{}, false, err
	}
	from, err := t.d.cfg.Layout.Lowest(now.Add(epochTolerance))
	if err != nil {
		return 0, time.Time{}, false, nil //nolint:nilerr // no ID can be made that late
	}
	id, ok, err := t.next(ctx, s, t.name, def, from, 0)
	return id, t.d.cfg.Layout.Time(id), ok, err
}

// checkPartitions says which partitions the purge cannot exchange.
func (t *Table) checkPartitions(ctx context.Context, s *session, add func(fatal bool, what, remedy string)) {
	all, err := t.partitions(ctx, s)
	if err != nil {
		add(true, oneLine(err), "see the server's message")
		return
	}
	var odd []string
	for _, p := range all {
		day := t.d.cfg.Layout.DayOf(p.Hi, t.d.cfg.Zone)
		if lo, _, err := t.d.cfg.Layout.Window(day, t.d.cfg.Zone); err == nil && lo != p.Hi {
			odd = append(odd, p.Name)
		}
	}
	if len(odd) > 0 {
		add(false, fmt.Sprintf("%d of %d partitions end within a day of zone %s, such as %s", len(odd), len(all), t.d.cfg.Zone, odd[0]),
			"they are purged by rows; partitions that end where days do can be exchanged")
	}
	if len(all) == 0 {
		return
	}
	missing, err := t.missing(ctx, s, "ALTER", "CREATE", "DROP", "INSERT", "LOCK TABLES")
	switch {
	case err != nil:
		add(false, "privileges cannot be read ("+oneLine(err)+")", "see the server's message")
	case len(missing) > 0:
		add(false, "this account lacks "+strings.Join(missing, ", ")+" for the purge by partitions", "GRANT "+strings.Join(missing, ", ")+" ON "+quote(t.shard.Database)+".* to the account that purges, or set purge.strategy: rows")
	}
}

// missing tells which privileges the account has neither on the table, its database
// nor everywhere. Privileges by roles are not seen.
func (t *Table) missing(ctx context.Context, s *session, want ...string) (missing []string, err error) {
	has := map[string]bool{}
	err = s.rows(ctx, `SELECT PRIVILEGE_TYPE AS p FROM information_schema.USER_PRIVILEGES
		UNION SELECT PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES WHERE `+literal(t.shard.Database)+` LIKE TABLE_SCHEMA
		UNION SELECT PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES WHERE TABLE_SCHEMA = `+literal(t.shard.Database)+` AND TABLE_NAME = `+literal(t.shard.Table),
		func(v [][]byte) error {
			has[strings.ToUpper(string(v[0]))] = true
			return nil
		})
	for _, p := range want {
		if !has[p] {
			missing = append(missing, p)
		}
	}
	return missing, err
}
