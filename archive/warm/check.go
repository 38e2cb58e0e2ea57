package warm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/message"
)

// Code names a kind of finding, for scripts.
type Code string

// The findings of Check. What each means is in docs/check.md.
const (
	CodeUnreachable     Code = "WARM_UNREACHABLE"
	CodeNoCreatedAt     Code = "WARM_NO_CREATED_AT"
	CodeRefused         Code = "TABLE_REFUSED"
	CodeUnreadable      Code = "TABLE_UNREADABLE"
	CodeIDs             Code = "TABLE_IDS_UNFIT"
	CodeFuture          Code = "TABLE_IDS_IN_FUTURE"
	CodeAtEpoch         Code = "TABLE_IDS_AT_EPOCH"
	CodeCreatedAt       Code = "TABLE_CREATED_AT_UNFIT"
	CodeTriggers        Code = "TABLE_TRIGGERS"
	CodeReferenced      Code = "TABLE_REFERENCED"
	CodeGenerated       Code = "TABLE_GENERATED_COLUMNS"
	CodePartitionsOdd   Code = "TABLE_PARTITIONS_ODD"
	CodeNoMaxvalue      Code = "TABLE_NO_MAXVALUE"
	CodePartitionsEnd   Code = "TABLE_PARTITIONS_END"
	CodePartitionsShort Code = "TABLE_PARTITIONS_BEHIND"
	CodeShape           Code = "TABLE_SHAPE_ODD"
	CodeProbe           Code = "PROBE_FAILED"
)

// Finding is something Check saw that is not right, or worth knowing.
type Finding struct {
	Code    Code
	Subject string // the table or the database
	What    string
	Remedy  string
	Refused bool // by the server, to this account: it may be there for others
}

// String is one line.
func (f Finding) String() string {
	if f.Remedy == "" {
		return f.What
	}
	return f.What + ": " + f.Remedy
}

const (
	checkTables = 8                // tables, or databases, that are looked at together
	checkTime   = 20 * time.Second // that looking at one of them may take
)

// Check finds the tables, as Discover does, and looks for what would keep them from
// being archived and purged. It reads a few rows of each table by its key and changes
// nothing. What it could not look at is among the findings.
func (w *Warm) Check(ctx context.Context) ([]*Table, []Finding) {
	found := make([][]Finding, len(w.databases))
	var g errgroup.Group
	g.SetLimit(checkTables)
	for i, d := range w.databases {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, checkTime)
			defer cancel()
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
		unreachable[w.databases[i]] = len(fs) > 0
	}
	if err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			if !w.known(unreachable, line) {
				what, remedy, _ := cutLast(line, ": ")
				all = append(all, Finding{Code: CodeRefused, Subject: subjectOf(line), What: what, Remedy: remedy})
			}
		}
	}
	perTable := make([][]Finding, len(tables))
	var tg errgroup.Group
	tg.SetLimit(checkTables)
	for i, t := range tables {
		tg.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, checkTime)
			defer cancel()
			perTable[i] = t.check(ctx)
			return nil
		})
	}
	_ = tg.Wait()
	for _, fs := range perTable {
		all = append(all, fs...)
	}
	if w.cfg.Columns[message.CreatedAt] == "" {
		all = append(all, Finding{Code: CodeNoCreatedAt, Subject: "source.columns", What: "source.columns.created_at is not set, so that the snowflake epoch cannot be compared with the rows' own time", Remedy: "set it if the tables have such a column"})
	}
	return tables, append(all, shapes(w.cfg.Tables, tables)...)
}

// subjectOf is the table or database that a line of Discover's error begins with.
func subjectOf(line string) string {
	words := strings.Fields(line)
	if len(words) > 1 && (words[0] == "table" || words[0] == "database") {
		return strings.TrimSuffix(words[1], ":")
	}
	return "source.databases"
}

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

// check says whether a database can be reached at all.
func (d *database) check(ctx context.Context) []Finding {
	if _, err := d.now(ctx); err != nil {
		return []Finding{{CodeUnreachable, d.where, fmt.Sprintf("database %s cannot be reached (%s)", d.where, oneLine(err)), connectRemedy(err), denied(err) || number(err) == erLoginDenied}}
	}
	return nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func connectRemedy(err error) string {
	switch number(err) {
	case erLoginDenied:
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
	add := func(code Code, what, remedy string) {
		found = append(found, Finding{Code: code, Subject: t.shard.String(), What: fmt.Sprintf("table %s: %s", t.shard, what), Remedy: remedy})
	}
	unlooked := func(err error) {
		add(CodeProbe, "could not be looked at ("+oneLine(err)+")", "see the server's message, then run check again")
	}
	s, err := t.d.session(ctx)
	if err != nil {
		unlooked(err)
		return found
	}
	defer s.close(ctx)
	def := t.def.Load()
	if _, _, err := t.next(ctx, s, t.name, def, 0, 0); err != nil {
		if denied(err) {
			add(CodeUnreadable, "this account may not read it", "GRANT SELECT ON "+t.name)
		} else {
			add(CodeUnreadable, "cannot be read ("+oneLine(err)+")", "see the server's message")
		}
		return found
	}
	t.checkIDs(ctx, s, def, add, unlooked)
	names, err := t.triggers(ctx, s)
	if err != nil {
		unlooked(err)
	} else if len(names) > 0 {
		add(CodeTriggers, "has the triggers "+strings.Join(names, ", "), "they fire for each row that the purge deletes; its partitions are not exchanged")
	}
	for _, r := range t.references {
		add(CodeReferenced, "is referenced by a foreign key of "+r, "rows that are still referenced cannot be purged")
	}
	var generated []string
	for _, c := range def.schema.Columns() {
		if c.Generated {
			generated = append(generated, c.Name)
		}
	}
	if len(generated) > 0 {
		add(CodeGenerated, "has the generated columns "+strings.Join(generated, ", "), "nothing to do: they are archived with their values, and the server makes them anew when rows are restored")
	}
	t.checkPartitions(ctx, s, add, unlooked)
	return found
}

// checkIDs looks at both ends of the message IDs.
func (t *Table) checkIDs(ctx context.Context, s *session, def *definition, add func(Code, string, string), unlooked func(error)) {
	if i := def.schema.Role(message.CreatedAt); i >= 0 {
		switch c := def.schema.Columns()[i]; c.Kind {
		case message.DateTime, message.Timestamp, message.Int, message.Uint:
		default:
			add(CodeCreatedAt, fmt.Sprintf("column %s (%s) cannot be the created_at", c.Name, c.SourceType), "name a DATETIME, a TIMESTAMP or an integer in source.columns, or none")
			return
		}
	}
	switch err := t.epochFits(ctx, s); {
	case errors.Is(err, ErrEpoch):
		what, remedy, _ := cutLast(oneLine(err), ": ")
		add(CodeIDs, what, remedy)
		return
	case err != nil:
		unlooked(err)
		return
	}
	if id, at, ok, err := t.future(ctx, s, def); err != nil {
		unlooked(err)
	} else if ok {
		add(CodeFuture, fmt.Sprintf("has rows of the future, such as message ID %d of %s", id, at.Format(time.RFC3339)), "look for a wrong clock among the ID generators")
	}
	if id, ok, err := t.next(ctx, s, t.name, def, 0, 0); err != nil {
		unlooked(err)
	} else if at := t.d.cfg.Layout.Time(id); ok && at.Sub(t.d.cfg.Layout.Epoch) < futureLimit {
		add(CodeAtEpoch, fmt.Sprintf("has message IDs of the snowflake epoch's first day, such as %d", id),
			"they look like numbers that were counted, not like snowflakes: see where they come from; they are archived as of that day")
	}
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
