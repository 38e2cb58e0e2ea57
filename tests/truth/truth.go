// Package truth compares what MySQL and the cold tier hold with what was loaded,
// by its own plain reading: SELECTs by the driver, Parquet files by parquet-go's
// row reader, ClickHouse by its client. It shares no code with the product's scan,
// reader or fingerprint; only which objects are live is asked of the manifest.
package truth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/parquet-go/parquet-go"
	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/manifest"
)

// Key names a message: its shard and its ID.
type Key struct {
	Shard string
	ID    uint64
}

// Rows are messages by name, each with a hash over its columns.
type Rows map[Key][32]byte

// Columns are those that are compared: the ones of package chat's tables.
var Columns = []string{"msg_id", "session_id", "sender_id", "receiver_type", "receiver_id", "msg_type", "content", "client_msg_id", "status", "create_time", "seq"}

func hash(values [][]byte) [32]byte {
	var b bytes.Buffer
	for _, v := range values {
		if v == nil {
			b.WriteString("NULL,")
			continue
		}
		fmt.Fprintf(&b, "%d=", len(v))
		b.Write(v)
		b.WriteByte(',')
	}
	return sha256.Sum256(b.Bytes())
}

// Warm reads the rows of tables, each "database.table".
func Warm(ctx context.Context, db *sql.DB, tables ...string) (Rows, error) {
	all := Rows{}
	for _, t := range tables {
		if err := warmTable(ctx, db, t, all); err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	return all, nil
}

func warmTable(ctx context.Context, db *sql.DB, table string, all Rows) error {
	rows, err := db.QueryContext(ctx, "SELECT "+strings.Join(Columns, ", ")+" FROM "+table)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err tells
	raw, into, values := make([]sql.RawBytes, len(Columns)), make([]any, len(Columns)), make([][]byte, len(Columns))
	for i := range raw {
		into[i] = &raw[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i := range raw {
			values[i] = raw[i]
		}
		id, err := strconv.ParseUint(string(raw[0]), 10, 64)
		if err != nil {
			return err
		}
		all[Key{table, id}] = hash(values)
	}
	return rows.Err()
}

// Cold is what the cold tier holds.
type Cold struct {
	Rows    Rows
	Doubled []Key // more than once among the live objects
	Objects int
	Bytes   int64
	Convs   int // different conversations
}

// Bucket reads every object that a live generation names.
func Bucket(ctx context.Context, m *manifest.Store, client *s3.Client, bucket, prefix string) (*Cold, error) {
	c := &Cold{Rows: Rows{}}
	convs := map[string]bool{}
	var mu sync.Mutex
	list, err := m.Slices(ctx, manifest.Filter{})
	if err != nil {
		return nil, err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, s := range list {
		if s.Live == 0 {
			continue
		}
		cp, err := m.LoadCopy(ctx, s.ID, s.Live)
		if err != nil {
			return nil, err
		}
		for _, o := range cp.Objects {
			g.Go(func() error {
				rows, conv, size, err := readObject(ctx, client, bucket, join(prefix, o.Key))
				if err != nil {
					return fmt.Errorf("object %s: %w", o.Key, err)
				}
				mu.Lock()
				defer mu.Unlock()
				c.Objects++
				c.Bytes += size
				for _, v := range conv {
					convs[v] = true
				}
				for _, r := range rows {
					k := Key{s.Shard.String(), r.id}
					if _, twice := c.Rows[k]; twice {
						c.Doubled = append(c.Doubled, k)
					}
					c.Rows[k] = r.sum
				}
				return nil
			})
		}
	}
	err = g.Wait()
	c.Convs = len(convs)
	return c, err
}

func join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "/" + key
}

type row struct {
	id  uint64
	sum [32]byte
}

func readObject(ctx context.Context, client *s3.Client, bucket, key string) (all []row, convs []string, size int64, err error) {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return nil, nil, 0, err
	}
	raw, err := io.ReadAll(out.Body)
	if err = errors.Join(err, out.Body.Close()); err != nil {
		return nil, nil, 0, err
	}
	f, err := parquet.OpenFile(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return nil, nil, 0, err
	}
	at := make([]int, len(Columns))
	for i, name := range Columns {
		leaf, ok := f.Schema().Lookup(name)
		if !ok {
			return nil, nil, 0, fmt.Errorf("no column %s", name)
		}
		at[i] = leaf.ColumnIndex
	}
	for _, rg := range f.RowGroups() {
		rows := rg.Rows()
		buf := make([]parquet.Row, 64)
		for {
			n, err := rows.ReadRows(buf)
			for _, r := range buf[:n] {
				values := make([][]byte, len(Columns))
				for i, c := range at {
					values[i] = text(Columns[i], r[c])
				}
				id, perr := strconv.ParseUint(string(values[0]), 10, 64)
				if perr != nil {
					return nil, nil, 0, errors.Join(perr, rows.Close())
				}
				all = append(all, row{id, hash(values)})
				if conv := string(values[1]); !slices.Contains(convs, conv) {
					convs = append(convs, conv)
				}
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, nil, 0, errors.Join(err, rows.Close())
			}
		}
		if err := rows.Close(); err != nil {
			return nil, nil, 0, err
		}
	}
	return all, convs, int64(len(raw)), nil
}

// text is MySQL's text of a Parquet value, for the types of the chat tables.
func text(column string, v parquet.Value) []byte {
	switch {
	case v.IsNull():
		return nil
	case column == "create_time": // TIMESTAMP(MILLIS)
		return []byte(time.UnixMilli(v.Int64()).UTC().Format("2006-01-02 15:04:05.000"))
	}
	switch v.Kind() {
	case parquet.Int32:
		return strconv.AppendInt(nil, int64(v.Int32()), 10)
	case parquet.Int64:
		return strconv.AppendInt(nil, v.Int64(), 10)
	default:
		return append([]byte{}, v.ByteArray()...)
	}
}

// ClickHouse reads the rows of every live copy in table database.messages.
func ClickHouse(ctx context.Context, m *manifest.Store, conn clickhouse.Conn, database string) (rows Rows, doubled []Key, err error) {
	rows = Rows{}
	list, err := m.Slices(ctx, manifest.Filter{})
	if err != nil {
		return nil, nil, err
	}
	for _, s := range list {
		if s.Live == 0 {
			continue
		}
		cp, err := m.LoadCopy(ctx, s.ID, s.Live)
		if err != nil {
			return nil, nil, err
		}
		query := fmt.Sprintf("SELECT toString(msg_id), %s FROM %s.messages FINAL WHERE _day = toDate('%s') AND _shard = '%s' AND _generation = %d AND _attempt = '%s'",
			"toString(session_id), toString(sender_id), toString(receiver_type), toString(receiver_id), toString(msg_type), content, client_msg_id, toString(status), toString(create_time), toString(seq)",
			database, s.Day, s.Shard, s.Live, cp.Attempt)
		result, err := conn.Query(ctx, query)
		if err != nil {
			return nil, nil, err
		}
		for result.Next() {
			texts := make([]string, len(Columns))
			into := make([]any, len(texts))
			for i := range texts {
				into[i] = &texts[i]
			}
			if err := result.Scan(into...); err != nil {
				return nil, nil, errors.Join(err, result.Close())
			}
			values := make([][]byte, len(texts))
			for i := range texts {
				values[i] = []byte(texts[i])
			}
			id, err := strconv.ParseUint(texts[0], 10, 64)
			if err != nil {
				return nil, nil, errors.Join(err, result.Close())
			}
			k := Key{s.Shard.String(), id}
			if _, twice := rows[k]; twice {
				doubled = append(doubled, k)
			}
			rows[k] = hash(values)
		}
		if err := errors.Join(result.Err(), result.Close()); err != nil {
			return nil, nil, err
		}
	}
	return rows, doubled, nil
}

// Report is what a comparison found.
type Report struct {
	Messages  int   // that there should be
	InWarm    int   // of them in MySQL, equal
	InCold    int   // of them in the cold tier, equal
	Lost      []Key // in neither
	Different []Key // where they are, they are another
	Phantom   []Key // in the cold tier, never loaded
}

// OK says that nothing is amiss.
func (r *Report) OK() bool { return len(r.Lost)+len(r.Different)+len(r.Phantom) == 0 }

// String sums the report up.
func (r *Report) String() string {
	return fmt.Sprintf("%d messages: %d in warm, %d in cold, %d lost, %d different, %d phantoms", r.Messages, r.InWarm, r.InCold, len(r.Lost), len(r.Different), len(r.Phantom))
}

// Compare holds what warm and cold have against what there should be. A row that
// warm has must be as it should; one that warm lacks must be so in cold. A cold row
// may be of an older version only while warm has the message.
func Compare(want, warm, cold Rows) *Report {
	r := &Report{Messages: len(want)}
	for k, sum := range want {
		w, inWarm := warm[k]
		c, inCold := cold[k]
		if inWarm && w == sum {
			r.InWarm++
		}
		if inCold && c == sum {
			r.InCold++
		}
		switch {
		case !inWarm && !inCold:
			r.Lost = append(r.Lost, k)
		case inWarm && w != sum, !inWarm && c != sum:
			r.Different = append(r.Different, k)
		}
	}
	for k := range cold {
		if _, ok := want[k]; !ok {
			r.Phantom = append(r.Phantom, k)
		}
	}
	return r
}

// Manifest opens a manifest database to ask which objects are live.
func Manifest(ctx context.Context, dsn, source string) (*manifest.Store, error) {
	return manifest.Open(ctx, manifest.Config{DSN: dsn, Source: source}, slog.New(slog.DiscardHandler))
}
