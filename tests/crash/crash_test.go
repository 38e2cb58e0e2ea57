// Package crash kills, stops and pauses the built program at every named step and
// at random moments, and demands that no message is lost or doubled, at the moment
// of the crash as well as after the same command was run again.
package crash

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
	"github.com/coldtier/coldtier/tests/truth"
)

func TestMain(m *testing.M) { harness.Main(m) }

// lab is a set-up whose one table has a shadow: a plain table with what there
// should be, which the product does not know of. Each write goes to both in one
// transaction.
type lab struct {
	*harness.Env
	m      *manifest.Store
	db     *sql.DB // of the manifest
	ch     clickhouse.Conn
	table  string
	shadow string
	timed  bool // leases ran out by time
}

func setup(t *testing.T, o harness.Options) *lab {
	t.Helper()
	if o.Messages == 0 {
		o.Messages = 40 * max(o.Days, 1)
	}
	e := harness.New(t, o)
	l := &lab{Env: e, m: e.Store(), db: stack.OpenMySQL(t, e.Manifest), ch: e.ClickHouse.Open(t), table: e.Tables[0], shadow: e.Database + ".shadow"}
	l.SQL("CREATE TABLE " + l.shadow + " (PRIMARY KEY (msg_id)) AS SELECT * FROM " + l.table)
	return l
}

// want is what there should be.
func (l *lab) want() truth.Rows {
	l.T.Helper()
	rows, err := truth.Warm(l.T.Context(), l.Warm, l.shadow)
	if err != nil {
		l.T.Fatal(err)
	}
	want := truth.Rows{}
	for k, sum := range rows {
		want[truth.Key{Shard: l.table, ID: k.ID}] = sum
	}
	return want
}

// stagings are the staging tables that are there.
func (l *lab) stagings() (names []string) {
	l.T.Helper()
	rows, err := l.Warm.QueryContext(l.T.Context(), "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME LIKE 'coldtier%'", l.Database)
	if err != nil {
		l.T.Fatal(err)
	}
	defer func() { _ = rows.Close() }() // Err says it
	for rows.Next() {
		var n string
		if err := rows.Scan(&n); err != nil {
			l.T.Fatal(err)
		}
		names = append(names, n)
	}
	if err := rows.Err(); err != nil {
		l.T.Fatal(err)
	}
	return names
}

// warm is what MySQL holds, isolated rows included: invariant 1 counts them.
func (l *lab) warm() truth.Rows {
	l.T.Helper()
	warm := l.Truth()
	for _, name := range l.stagings() {
		isolated, err := truth.Warm(l.T.Context(), l.Warm, l.Database+"."+name)
		if err != nil {
			l.T.Fatal(err)
		}
		for k, sum := range isolated {
			k.Shard = l.table
			if w, twice := warm[k]; twice && w != sum {
				l.T.Errorf("message %d is in the table and in %s with different values", k.ID, name)
			}
			warm[k] = sum
		}
	}
	return warm
}

// verdict is harness.Env.Verdict that counts isolated rows as warm. No process may
// be running.
func (l *lab) verdict() {
	l.T.Helper()
	ctx, cancel := context.WithTimeout(l.T.Context(), 2*time.Minute)
	defer cancel()
	want, warm := l.want(), l.warm()
	cold, err := truth.Bucket(ctx, l.m, l.S3.Client(), l.S3.Bucket, "im")
	if err != nil {
		l.T.Fatal(err)
	}
	rows, doubled, err := truth.ClickHouse(ctx, l.m, l.ch, l.ClickHouse.Database)
	if err != nil {
		l.T.Fatal(err)
	}
	if r := truth.Compare(want, warm, cold.Rows); !r.OK() || len(cold.Doubled) > 0 {
		l.T.Errorf("bucket: %s, %d doubled, lost %v, different %v, phantom %v", r, len(cold.Doubled), r.Lost, r.Different, r.Phantom)
	}
	if r := truth.Compare(want, warm, rows); !r.OK() || len(doubled) > 0 {
		l.T.Errorf("ClickHouse: %s, %d doubled, lost %v, different %v, phantom %v", r, len(doubled), r.Lost, r.Different, r.Phantom)
	}
}

// day are the arguments that choose the i-th day.
func (l *lab) day(i int) []string { return []string{"--day", l.Days[i].String()} }

// kill runs a command that has to die at a step.
func (l *lab) kill(at string, args ...string) {
	l.T.Helper()
	if r := l.Start([]string{"COLDTIER_CRASH_AT=" + at}, args...).Wait(); r.Exit != -1 {
		l.T.Fatalf("it never came to %s: %s", at, r)
	}
}

// until runs a command until it exits with 0, as long as the only reason not to is
// another's lease.
func (l *lab) until(args ...string) {
	l.T.Helper()
	for end := time.Now().Add(time.Minute); ; {
		r := l.Run(args...)
		if r.Exit == 0 {
			return
		}
		if r.Exit != 5 || time.Now().After(end) {
			l.T.Fatal(r)
		}
	}
}

// slices are all slices, oldest first.
func (l *lab) slices() []manifest.Slice {
	l.T.Helper()
	list, err := l.m.Slices(l.T.Context(), manifest.Filter{})
	if err != nil {
		l.T.Fatal(err)
	}
	return list
}

// leases is how many leases last, by the manifest database's clock.
func (l *lab) leases() (n int) {
	l.T.Helper()
	if err := l.db.QueryRowContext(l.T.Context(), "SELECT COUNT(*) FROM slices WHERE lease_until > UTC_TIMESTAMP(6)").Scan(&n); err != nil {
		l.T.Fatal(err)
	}
	return n
}

// expire makes the leases of dead or paused workers run out. It stands for the time
// that passes; TestLeaseOfADeadWorkerRunsOut and TestPausedBeyondTheLease wait for it.
func (l *lab) expire() {
	l.T.Helper()
	if _, err := l.db.ExecContext(l.T.Context(), "UPDATE slices SET lease_until = UTC_TIMESTAMP(6) WHERE lease_until > UTC_TIMESTAMP(6)"); err != nil {
		l.T.Fatal(err)
	}
}

// finish runs archive and purge until all is purged, and demands every message in
// the cold tier, once. In between, late rows and drift are told by exit codes 3 and 4.
func (l *lab) finish() {
	l.T.Helper()
	for end := time.Now().Add(90 * time.Second); ; {
		l.expire()
		var last []harness.Result
		for _, verb := range []string{"archive", "purge"} {
			r := l.Run(verb)
			if last = append(last, r); r.Exit != 0 && r.Exit != 3 && r.Exit != 4 {
				l.T.Errorf("no further run should fail: %s", r)
			}
		}
		open := slices.ContainsFunc(l.slices(), func(s manifest.Slice) bool { return s.State != manifest.Purged })
		if !open && l.Count() == 0 {
			break
		}
		if time.Now().After(end) {
			l.T.Fatalf("not all is purged; %d rows are in warm; slices %+v; the last runs: %v", l.Count(), l.slices(), last)
		}
	}
	if names := l.stagings(); len(names) > 0 {
		l.T.Errorf("staging tables are left: %v", names)
	}
	want := l.want()
	if r := l.Verdict(want); r.InCold != len(want) {
		l.T.Error(r)
	}
}

// leftovers are the days that have objects or ClickHouse rows which no committed
// generation names. Anything that a committed generation has there beside what it
// names, and any commit record without a generation, fails the test.
func (l *lab) leftovers() map[snowflake.Day]bool {
	l.T.Helper()
	named, attempts, days := map[string]bool{"im/" + manifest.OwnerKey("im"): true}, map[string]bool{}, map[snowflake.Day]bool{}
	var committed []string // prefixes
	marks := map[string]bool{}
	for _, s := range l.slices() {
		for g := uint32(1); g <= s.Generation; g++ {
			c, err := l.m.LoadCopy(l.T.Context(), s.ID, g)
			if err != nil {
				l.T.Fatal(err)
			}
			named["im/"+manifest.RecordKey(s.SliceKey, g)] = true
			for _, kind := range []manifest.MarkKind{manifest.MarkPurging, manifest.MarkStopped, manifest.MarkPurged} {
				marks["im/"+manifest.MarkKey(s.SliceKey, g, kind)] = true
			}
			if s.State == manifest.Purged && g == s.Generation {
				named["im/"+manifest.MarkKey(s.SliceKey, g, manifest.MarkPurged)] = true
			}
			attempts[s.Day.String()+" "+c.Attempt] = true
			committed = append(committed, "im/"+manifest.ObjectPrefix(s.SliceKey, g, c.Attempt))
			for _, o := range c.Objects {
				named["im/"+o.Key] = true
			}
		}
	}
	day := func(text string) {
		d, err := snowflake.ParseDay(text)
		if err != nil {
			l.T.Fatal(err)
		}
		days[d] = true
	}
	for _, key := range l.Keys() {
		if named[key] {
			delete(named, key)
			continue
		}
		if marks[key] {
			continue
		}
		if !strings.HasPrefix(key, "im/messages/day=") || slices.ContainsFunc(committed, func(p string) bool { return strings.HasPrefix(key, p) }) {
			l.T.Errorf("object %s is not named by its generation", key)
			continue
		}
		day(strings.TrimPrefix(key, "im/messages/day=")[:len("2006-01-02")])
	}
	for key := range named {
		l.T.Errorf("object %s is named and not there", key)
	}
	rows, err := l.ch.Query(l.T.Context(), "SELECT DISTINCT toString(_day), _attempt FROM "+l.ClickHouse.Database+".messages")
	if err != nil {
		l.T.Fatal(err)
	}
	defer func() { _ = rows.Close() }() // Err says it
	for rows.Next() {
		var d, attempt string
		if err := rows.Scan(&d, &attempt); err != nil {
			l.T.Fatal(err)
		}
		if !attempts[d+" "+attempt] {
			day(d)
		}
	}
	if err := rows.Err(); err != nil {
		l.T.Fatal(err)
	}
	return days
}

// both runs one write on the table and its shadow, if it changes a row of the table.
func (l *lab) both(write string, args ...any) bool {
	l.T.Helper()
	ctx := l.T.Context()
	tx, err := l.Warm.BeginTx(ctx, nil)
	if err != nil {
		l.T.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	r, err := tx.ExecContext(ctx, strings.ReplaceAll(write, "TABLE", l.table), args...)
	if err != nil {
		l.T.Fatal(err)
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		if err != nil {
			l.T.Error(err)
		}
		return false
	}
	if _, err := tx.ExecContext(ctx, strings.ReplaceAll(write, "TABLE", l.shadow), args...); err != nil {
		l.T.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		l.T.Fatal(err)
	}
	return true
}

// edit changes a message where MySQL has it.
func (l *lab) edit(id uint64) bool {
	l.T.Helper()
	return l.both("UPDATE TABLE SET content = CONCAT('edited ', content), status = status + 1 WHERE msg_id = ?", id)
}

// late inserts a new message behind an existing one.
func (l *lab) late(behind uint64) {
	l.T.Helper()
	for id := behind + 1; ; id++ {
		var taken bool
		if err := l.Warm.QueryRowContext(l.T.Context(), "SELECT COUNT(*) > 0 FROM "+l.shadow+" WHERE msg_id = ?", id).Scan(&taken); err != nil {
			l.T.Fatal(err)
		}
		if taken {
			continue
		}
		l.both("INSERT INTO TABLE (msg_id, session_id, sender_id, receiver_id, content, client_msg_id, create_time, seq) "+
			"SELECT ?, session_id, sender_id, receiver_id, 'late', 'late', create_time, seq + 1000000 FROM "+l.shadow+" WHERE msg_id = ?", id, behind)
		return
	}
}

// ids are the message IDs of a day, ascending.
func (l *lab) ids(i int) (ids []uint64) {
	l.T.Helper()
	lo, hi := l.Window(l.Days[i])
	for k := range l.want() {
		if k.ID >= lo && k.ID < hi {
			ids = append(ids, k.ID)
		}
	}
	slices.Sort(ids)
	if len(ids) < 3 {
		l.T.Fatalf("day %s has %d messages, which is too few", l.Days[i], len(ids))
	}
	return ids
}

func (l *lab) last(i int) uint64 {
	l.T.Helper()
	ids := l.ids(i)
	return ids[len(ids)-1]
}

// state is all that a worker without a lease may not change: the manifest's slices
// and chunks, commit records, what MySQL holds. Objects under its own attempt are
// leftovers, which do no harm.
func (l *lab) state() string {
	l.T.Helper()
	var b strings.Builder
	for _, s := range l.slices() {
		s.LeaseUntil, s.LeaseOwner = nil, ""
		at := func(t *time.Time) string {
			if t == nil {
				return "-"
			}
			return t.String()
		}
		fmt.Fprintln(&b, s.SliceKey, s.State, s.Reason, s.Live, s.Generation, s.Rows, s.Failed, s.Tries, s.Staging, at(s.VerifiedAt), at(s.PurgedAt))
		for g := uint32(1); g <= s.Generation; g++ {
			c, err := l.m.LoadCopy(l.T.Context(), s.ID, g)
			if err != nil {
				l.T.Fatal(err)
			}
			for _, ch := range c.Chunks {
				fmt.Fprintln(&b, "chunk", g, ch.Seq, ch.State, ch.Staged)
			}
		}
	}
	keys := slices.DeleteFunc(l.Keys(), func(k string) bool { return strings.HasPrefix(k, "im/messages/") })
	slices.Sort(keys)
	fmt.Fprintln(&b, strings.Join(keys, "\n"))
	var warm []string
	for k, sum := range l.Truth() {
		warm = append(warm, fmt.Sprintf("warm %d %x", k.ID, sum[:4]))
	}
	slices.SortFunc(warm, cmp.Compare)
	fmt.Fprintln(&b, strings.Join(warm, "\n"))
	fmt.Fprintln(&b, l.stagings())
	return b.String()
}
