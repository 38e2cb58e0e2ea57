package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	driver "github.com/ClickHouse/clickhouse-go/v2"
)

// Code names a kind of finding, for scripts.
type Code string

// The findings of Look. What each means is in docs/check.md.
const (
	CodeReadOnly    Code = "CLICKHOUSE_READ_ONLY"
	CodeAsync       Code = "CLICKHOUSE_ASYNC_INSERT"
	CodeNotTaken    Code = "CLICKHOUSE_SETTING_NOT_TAKEN"
	CodeEngine      Code = "CLICKHOUSE_ENGINE_LOSES"
	CodeTTL         Code = "CLICKHOUSE_TTL"
	CodePartitions  Code = "CLICKHOUSE_PARTITION_KEY"
	CodeNoQuorum    Code = "CLICKHOUSE_NO_QUORUM"
	CodeReplica     Code = "CLICKHOUSE_REPLICA_READ_ONLY"
	CodeParts       Code = "CLICKHOUSE_TOO_MANY_PARTS"
	CodeDisk        Code = "CLICKHOUSE_DISK_LOW"
	CodeDiskUnknown Code = "CLICKHOUSE_DISK_UNKNOWN"
	CodeNotLooked   Code = "CLICKHOUSE_NOT_LOOKED_AT"
)

const (
	lookTime  = 15 * time.Second // for each thing that is looked at
	leastFree = 0.10             // of a disk
)

// Finding is something Look saw that is not right, or worth knowing.
type Finding struct {
	Code    Code
	Subject string
	What    string
	Remedy  string
}

// Now is the time of the server's clock, to the second.
func (d *DB) Now(ctx context.Context) (time.Time, error) {
	var unix uint32
	err := d.query(ctx, nil, "SELECT toUnixTimestamp(now())", func(scan func(...any) error) error { return scan(&unix) })
	if err != nil {
		return time.Time{}, fmt.Errorf("the clock of ClickHouse at %v: %w", d.cfg.Addrs, err)
	}
	return time.Unix(int64(unix), 0).UTC(), nil
}

// Look reads what could lose, delay or refuse inserts: the user's profile, what became of
// the settings that are pinned on every connection, the table and its engine, replicas,
// parts and disks. It changes nothing. What this server has not, or does not tell, is a
// finding of its own.
func (d *DB) Look(ctx context.Context) (found []Finding) {
	for _, l := range []struct {
		what string
		look func(context.Context) ([]Finding, error)
	}{
		{"the user's profile", d.profile},
		{"the settings in force", d.inForce},
		{"the table", d.lookTables},
		{"the replicas", d.replicas},
		{"the parts", d.parts},
		{"the disks", d.disks},
	} {
		fs, err := func() ([]Finding, error) {
			ctx, cancel := context.WithTimeout(ctx, lookTime)
			defer cancel()
			return l.look(ctx)
		}()
		if err != nil {
			fs = append(fs, Finding{CodeNotLooked, d.subject(), fmt.Sprintf("%s could not be looked at: %s", l.what, tell(ctx, err)), "grant SELECT on the system database's tables to clickhouse.username, or see to it by hand"})
		}
		found = append(found, fs...)
	}
	return found
}

func (d *DB) subject() string { return "server " + strings.Join(d.cfg.Addrs, ", ") }

func (d *DB) tableSubject(table string) string { return d.cfg.Database + "." + table }

// settingsOf reads settings by name.
func settingsOf(ctx context.Context, query func(context.Context, string, func(scan func(...any) error) error) error, names ...string) (map[string]string, error) {
	var list []string
	for _, n := range names {
		list = append(list, quote(n))
	}
	m := map[string]string{}
	err := query(ctx, "SELECT name, value FROM system.settings WHERE name IN ("+join(list)+")", func(scan func(...any) error) error {
		var name, value string
		err := scan(&name, &value)
		m[name] = value
		return err
	})
	return m, err
}

// profile reads the settings of a connection on which none is pinned.
func (d *DB) profile(ctx context.Context) (found []Finding, err error) {
	opt := d.options()
	conn, err := driver.Open(&opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	m, err := settingsOf(ctx, func(ctx context.Context, q string, fn func(scan func(...any) error) error) error {
		rows, err := conn.Query(ctx, q)
		if err != nil {
			return err
		}
		for rows.Next() {
			if err := fn(rows.Scan); err != nil {
				return errors.Join(err, rows.Close())
			}
		}
		return errors.Join(rows.Err(), rows.Close())
	}, "readonly", "async_insert", "wait_for_async_insert")
	if err != nil {
		return nil, err
	}
	return d.judgeProfile(m), nil
}

func (d *DB) judgeProfile(m map[string]string) (found []Finding) {
	if m["readonly"] != "0" && m["readonly"] != "" {
		found = append(found, Finding{CodeReadOnly, d.subject(), fmt.Sprintf("the profile of user %s has readonly = %s: it may not insert, or not set what coldtier relies on", d.cfg.Username, m["readonly"]), "give the user a profile without readonly"})
	}
	if m["async_insert"] == "1" && m["wait_for_async_insert"] == "0" {
		found = append(found, Finding{CodeAsync, d.subject(), fmt.Sprintf("the profile of user %s has async_insert = 1 and wait_for_async_insert = 0: inserts are answered before they are kept, and lost in a crash; "+
			"coldtier sets both otherwise on each of its connections, others do not", d.cfg.Username), "set wait_for_async_insert = 1 in the profile"})
	}
	return found
}

// inForce compares what is pinned on each connection with what the server made of it.
func (d *DB) inForce(ctx context.Context) (found []Finding, err error) {
	pinned := d.srv.settings(d.cfg)
	var names []string
	for n := range pinned {
		if n != "max_execution_time" { // the driver lowers it to the statement's own deadline
			names = append(names, n)
		}
	}
	m, err := settingsOf(ctx, func(ctx context.Context, q string, fn func(scan func(...any) error) error) error {
		return d.query(ctx, nil, q, fn)
	}, names...)
	if err != nil {
		return nil, err
	}
	return d.judgeForce(pinned, m), nil
}

func (d *DB) judgeForce(pinned map[string]any, m map[string]string) (found []Finding) {
	for _, n := range slices.Sorted(maps.Keys(m)) {
		if want := fmt.Sprint(pinned[n]); m[n] != "" && m[n] != want {
			found = append(found, Finding{CodeNotTaken, d.subject(), fmt.Sprintf("setting %s is %s on coldtier's own connections, although it sets %s", n, m[n], want),
				"take the constraint or the proxy away that overrules it"})
		}
	}
	return found
}

// rowsTable is the table that holds rows.
func (d *DB) rowsTable() string {
	if d.cfg.Cluster != "" {
		return localName
	}
	return tableName
}

var dayFunction = regexp.MustCompile(`^(toYYYYMM|toYYYYMMDD|toStartOfMonth|toMonday|toYear|toDate)\((` + "`?" + `)` + colDay + "`?" + `\)$|^` + colDay + `$`)

// lookedTable is a table as system.tables tells it.
type lookedTable struct{ name, engine, full, create, partition string }

func (d *DB) lookTables(ctx context.Context) (found []Finding, err error) {
	var tables []lookedTable
	err = d.query(ctx, nil, fmt.Sprintf("SELECT name, engine, engine_full, create_table_query, partition_key FROM system.tables WHERE database = %s AND name IN (%s, %s)", quote(d.cfg.Database), quote(tableName), quote(localName)),
		func(scan func(...any) error) error {
			var t lookedTable
			err := scan(&t.name, &t.engine, &t.full, &t.create, &t.partition)
			tables = append(tables, t)
			return err
		})
	if err != nil {
		return nil, err
	}
	m, err := settingsOf(ctx, func(ctx context.Context, q string, fn func(scan func(...any) error) error) error {
		return d.query(ctx, nil, q, fn)
	},
		"insert_quorum", "max_partitions_per_insert_block")
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		if t.name == tableName || d.cfg.Cluster != "" { // else it is of a cluster that is not configured any more
			found = append(found, d.judgeTable(t, m)...)
		}
	}
	return found, nil
}

// judgeTable judges a table by the settings of the connection.
func (d *DB) judgeTable(t lookedTable, settings map[string]string) (found []Finding) {
	add := func(code Code, what, remedy string) {
		found = append(found, Finding{code, d.tableSubject(t.name), fmt.Sprintf("table %s.%s %s", d.cfg.Database, t.name, what), remedy})
	}
	holds := t.name == d.rowsTable()
	if holds && !strings.HasSuffix(t.engine, "MergeTree") || !holds && t.engine != "Distributed" {
		add(CodeEngine, fmt.Sprintf("has engine %s: what is inserted there is not kept as a table of coldtier's keeps it (a Buffer loses its rows in a crash, Null and Memory all of them)", t.engine),
			"let coldtier migrate make the table, in a clickhouse.database of its own")
		return found
	}
	if !holds {
		return nil
	}
	if ttl.MatchString(" " + t.full) {
		add(CodeTTL, "has a TTL: the server deletes or moves its rows by time", "ALTER TABLE ... REMOVE TTL; coldtier alone drops rows there")
	} else if columnTTL.MatchString(t.create) {
		add(CodeTTL, "has a column with a TTL: the server empties it by time", "ALTER TABLE ... MODIFY COLUMN ... REMOVE TTL")
	}
	if !dayFunction.MatchString(t.partition) {
		limit := ""
		if n := settings["max_partitions_per_insert_block"]; n != "" && n != "0" {
			limit = fmt.Sprintf(", and one that would touch more than %s is refused (max_partitions_per_insert_block)", n)
		}
		add(CodePartitions, fmt.Sprintf("is partitioned by %q and not by its day: an insert touches many partitions%s", t.partition, limit), "let coldtier migrate make the table, then coldtier rebuild clickhouse")
	}
	if strings.HasPrefix(t.engine, "Replicated") && settings["insert_quorum"] == "0" {
		add(CodeNoQuorum, "is replicated, and an insert is answered when one replica has it (insert_quorum = 0)", "set insert_quorum = 2 in the user's profile where a replica may be lost; verify finds what went missing")
	}
	return found
}

var (
	ttl       = regexp.MustCompile(`\sTTL\s`)
	columnTTL = regexp.MustCompile(`(?m)\sTTL\s[^,\n]*[,)]`)
)

// replicas looks for replicas that take no inserts.
func (d *DB) replicas(ctx context.Context) (found []Finding, err error) {
	err = d.query(ctx, nil, fmt.Sprintf("SELECT table, toString(is_readonly), toString(is_session_expired) FROM system.replicas WHERE database = %s", quote(d.cfg.Database)), func(scan func(...any) error) error {
		var table, readonly, expired string
		if err := scan(&table, &readonly, &expired); err != nil {
			return err
		}
		found = append(found, d.judgeReplica(table, readonly == "1" || expired == "1")...)
		return nil
	})
	return found, err
}

func (d *DB) judgeReplica(table string, lost bool) []Finding {
	if !lost {
		return nil
	}
	return []Finding{{CodeReplica, d.tableSubject(table), fmt.Sprintf("the replica of table %s.%s takes no inserts: it has lost Keeper", d.cfg.Database, table), "bring Keeper (ZooKeeper) and the replica's session back"}}
}

// parts looks at how near the table is to the number of parts at which inserts are held
// back or refused.
func (d *DB) parts(ctx context.Context) (found []Finding, err error) {
	var delay, throw uint64
	err = d.query(ctx, nil, "SELECT name, value FROM system.merge_tree_settings WHERE name IN ('parts_to_delay_insert', 'parts_to_throw_insert')", func(scan func(...any) error) error {
		var name, value string
		err := scan(&name, &value)
		n, _ := strconv.ParseUint(value, 10, 64) // a number on every server
		if name == "parts_to_delay_insert" {
			delay = n
		} else {
			throw = n
		}
		return err
	})
	if err != nil || delay == 0 {
		return nil, err
	}
	err = d.query(ctx, nil, fmt.Sprintf("SELECT partition, toUInt64(count()) AS n FROM system.parts WHERE database = %s AND table = %s AND active GROUP BY partition HAVING n >= %d ORDER BY n DESC LIMIT 1", quote(d.cfg.Database), quote(d.rowsTable()), max(1, delay*3/4)),
		func(scan func(...any) error) error {
			var partition string
			var n uint64
			if err := scan(&partition, &n); err != nil {
				return err
			}
			found = append(found, Finding{CodeParts, d.tableSubject(d.rowsTable()), fmt.Sprintf("partition %s of table %s.%s has %d parts; from %d on inserts are delayed, from %d on refused", partition, d.cfg.Database, d.rowsTable(), n, delay, throw),
				"let merges catch up: fewer workers, or more CPU and disk for ClickHouse"})
			return nil
		})
	return found, err
}

// disks looks at the room on the disks. Old servers do not tell.
func (d *DB) disks(ctx context.Context) (found []Finding, err error) {
	known, err := d.count(ctx, "SELECT toUInt64(count()) FROM system.tables WHERE database = 'system' AND name = 'disks'")
	if err != nil {
		return nil, err
	}
	if known == 0 {
		return []Finding{{CodeDiskUnknown, d.subject(), "ClickHouse " + d.srv.version + " does not tell how full its disks are", "watch them by other means"}}, nil
	}
	err = d.query(ctx, nil, "SELECT name, toUInt64(free_space), toUInt64(total_space) FROM system.disks WHERE total_space > 0", func(scan func(...any) error) error {
		var name string
		var free, total uint64
		if err := scan(&name, &free, &total); err != nil {
			return err
		}
		found = append(found, d.judgeDisk(name, free, total)...)
		return nil
	})
	return found, err
}

// judgeDisk judges the room on a disk. Those in an object store say that they have all
// the room there is.
func (d *DB) judgeDisk(name string, free, total uint64) []Finding {
	if float64(free) >= leastFree*float64(total) {
		return nil
	}
	return []Finding{{CodeDisk, d.subject(), fmt.Sprintf("disk %s of ClickHouse has %.0f%% of its room left (%d of %d bytes)", name, 100*float64(free)/float64(total), free, total), "make room before the next archive"}}
}
