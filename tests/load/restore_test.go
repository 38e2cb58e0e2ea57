package load

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/rehydrate"
	"github.com/coldtier/coldtier/restore/selection"
	"github.com/coldtier/coldtier/tests/copies"
	"github.com/coldtier/coldtier/tests/stack"
)

const restoreTable = "CREATE TABLE `msg` (\n  `msg_id` bigint unsigned NOT NULL,\n  `session_id` bigint NOT NULL,\n  `sender_id` bigint NOT NULL,\n  `receiver_id` bigint NOT NULL,\n" +
	"  `msg_type` tinyint NOT NULL,\n  `content` mediumblob,\n  `client_msg_id` varchar(64) NOT NULL,\n  `status` tinyint NOT NULL,\n  `create_time` datetime(3) NOT NULL,\n  `seq` bigint unsigned NOT NULL,\n" +
	"  PRIMARY KEY (`msg_id`),\n  KEY `idx_session_time` (`session_id`,`msg_id`)\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"

func number(name string, or int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return or
}

// aDay is a day of messages in random conversations, in the order of their IDs.
func aDay(b *testing.B, day snowflake.Day, messages, conversations int) (*message.Schema, [][][]byte) {
	b.Helper()
	s, err := message.NewSchema([]message.Column{
		{Name: "msg_id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"}, {Name: "session_id", Kind: message.Int, Bits: 64, SourceType: "bigint"},
		{Name: "sender_id", Kind: message.Int, Bits: 64, SourceType: "bigint"}, {Name: "receiver_id", Kind: message.Int, Bits: 64, SourceType: "bigint"},
		{Name: "msg_type", Kind: message.Int, Bits: 8, SourceType: "tinyint"}, {Name: "content", Kind: message.Bytes, Nullable: true, SourceType: "mediumblob"},
		{Name: "client_msg_id", Kind: message.Text, SourceType: "varchar(64)", Charset: "utf8mb4"}, {Name: "status", Kind: message.Int, Bits: 8, SourceType: "tinyint"},
		{Name: "create_time", Kind: message.DateTime, Scale: 3, SourceType: "datetime(3)"}, {Name: "seq", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"},
	}, map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "session_id", message.Sequence: "seq", message.Content: "content", message.CreatedAt: "create_time"})
	if err != nil {
		b.Fatal(err)
	}
	lo, hi, err := copies.Layout().Window(day, time.UTC)
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 7))
	step := (hi - lo) / uint64(messages)
	var rows [][][]byte
	for i := range messages {
		id := lo + uint64(i)*step + r.Uint64N(step)
		var body []byte
		for range 2 + r.IntN(40) {
			body = fmt.Appendf(body, "word%d ", r.Uint32N(1<<12))
		}
		conv := int64(r.IntN(conversations)) + 1<<40
		rows = append(rows, [][]byte{[]byte(message.FormatID(id)), fmt.Append(nil, conv), fmt.Append(nil, r.IntN(1000)), fmt.Append(nil, conv), []byte("1"), body,
			fmt.Appendf(nil, "%016x", r.Uint64()), []byte("0"), []byte(copies.Layout().Time(id).Format("2006-01-02 15:04:05.000")), fmt.Append(nil, i)})
	}
	return s, rows
}

// inS3 is a bucket with the objects of a tier, read as the program reads it.
type inS3 struct{ b *bucket.Bucket }

func (o inS3) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	return o.b.ReadRange(ctx, key, off, n)
}

// A restore of four days out of the bucket, columns fitted, rows compared, beside LOAD DATA of the
// same rows from one file in the order of the primary key, and beside myloader of mydumper's dump
// of the same table, where these are installed. In turns, into new tables of one server.
// Where all share few processors, the bucket's server takes its part of the restore's time.
// COLDTIER_BENCH_ROWS, and COLDTIER_BENCH_CONVERSATIONS of each day, say how much.
func BenchmarkRestore(b *testing.B) {
	const days = 4
	perDay, conversations := number("COLDTIER_BENCH_ROWS", 200_000)/days, number("COLDTIER_BENCH_CONVERSATIONS", 500)
	messages := days * perDay
	tier := copies.New(b)
	var rows [][][]byte
	var objects []manifest.Object
	var archived message.Fingerprint
	for d := range days {
		day := snowflake.MakeDay(2024, 3, 1+d)
		s, list := aDay(b, day, perDay, conversations)
		c := tier.Commit(copies.Copy{Shard: manifest.Shard{Database: "im_00", Table: "msg"}, Day: day, Schema: s, ShowCreate: restoreTable, Rows: list})
		rows, objects, archived = append(rows, list...), append(objects, c.Objects...), archived.Add(c.Fingerprint())
	}
	b.Setenv("VGW_KEEP_ALIVE", "true") // as S3 does, and this server only when told
	_, s3 := stack.StartVersityGW(b)
	real, err := bucket.Open(b.Context(), bucket.Config{Name: s3.Bucket, Region: "us-east-1", Endpoint: s3.Endpoint, PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s3.Key, s3.Secret, "")}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = real.Close() })
	for _, o := range objects {
		data, err := tier.Bucket.Get(b.Context(), o.Key)
		if err != nil {
			b.Fatal(err)
		}
		if err := real.Put(b.Context(), o.Key, bytes.NewReader(data), int64(len(data)), bucket.PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	dsn := stack.MySQL(b)
	db := stack.OpenMySQL(b, dsn+"?allowAllFiles=true")
	if _, err := db.ExecContext(b.Context(), "SET GLOBAL local_infile = 1"); err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "msg.tsv")
	writeTSV(b, file, rows)
	load := func() error { return loadFile(db, "loaded", file) }
	restore := func() error {
		r, err := rehydrate.New(rehydrate.Deps{Reader: selection.New(selection.Deps{Manifest: tier.Store, Objects: inS3{real}, Layout: copies.Layout()}, selection.Config{}),
			Manifest: tier.Store, Target: copies.Target(b, warm.TargetConfig{DSN: dsn})}, rehydrate.Config{Names: "restored", Create: true, Memory: 256 << 20, Now: time.Now,
			Sleep: func(context.Context, time.Duration) error { return nil }})
		if err != nil {
			return err
		}
		p, err := r.Plan(context.Background(), selection.Selection{})
		if err != nil {
			return err
		}
		rep, err := r.Execute(context.Background(), p)
		if err != nil {
			return err
		}
		var found message.Fingerprint
		for i := range rep.Slices {
			found = found.Add(rep.Slices[i].Found)
		}
		if rep.Inserted != uint64(messages) || found != archived {
			return fmt.Errorf("%+v", rep)
		}
		return nil
	}
	ways := []struct {
		name, table string
		run         func() error
	}{{"load-data", "loaded", load}, {"restore", "restored", restore}}
	if run := myloader(b, dsn, db, file); run != nil {
		ways = append(ways, struct {
			name, table string
			run         func() error
		}{"myloader", "dumped", run})
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for _, w := range ways {
			if _, err := db.ExecContext(b.Context(), "DROP TABLE IF EXISTS "+w.table); err != nil {
				b.Fatal(err)
			}
			begun := time.Now()
			if err := w.run(); err != nil {
				b.Fatalf("%s: %v", w.name, err)
			}
			took[w.name] = append(took[w.name], time.Since(begun))
			var n int
			if err := db.QueryRowContext(b.Context(), "SELECT COUNT(*) FROM "+w.table).Scan(&n); err != nil || n != messages {
				b.Fatalf("%s: %d rows, want %d (%v)", w.name, n, messages, err)
			}
		}
	}
	own := median(took["restore"])
	for _, w := range ways {
		m := median(took[w.name])
		b.ReportMetric(float64(messages)/m.Seconds(), w.name+"-rows/s")
		if w.name != "restore" {
			b.ReportMetric(own.Seconds()/m.Seconds(), "restore/"+w.name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

func writeTSV(b *testing.B, path string, rows [][][]byte) {
	b.Helper()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for _, r := range rows {
		for i, v := range r {
			if i > 0 {
				_ = w.WriteByte('\t') // Flush tells
			}
			_, _ = w.Write(v) // these have nothing to escape
		}
		_ = w.WriteByte('\n')
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		b.Fatal(err)
	}
}

func loadFile(db *sql.DB, table, file string) error {
	if _, err := db.Exec(strings.Replace(restoreTable, "`msg`", table, 1)); err != nil {
		return err
	}
	_, err := db.Exec("LOAD DATA LOCAL INFILE '" + file + "' INTO TABLE " + table + " CHARACTER SET binary")
	return err
}

// myloader dumps a table that holds the rows, and gives what loads it into table dumped;
// nil where the programs are missing.
func myloader(b *testing.B, dsn string, db *sql.DB, file string) func() error {
	b.Helper()
	for _, name := range []string{"mydumper", "myloader"} {
		if _, err := exec.LookPath(name); err != nil {
			b.Logf("%s is not installed: not compared with", name)
			return nil
		}
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		b.Fatal(err)
	}
	if err := loadFile(db, "dumped", file); err != nil {
		b.Fatal(err)
	}
	host, port, _ := strings.Cut(cfg.Addr, ":")
	dir := filepath.Join(b.TempDir(), "dump")
	run := func(name string, args ...string) error {
		out, err := exec.Command(name, append([]string{"-h", host, "-P", port, "-u", cfg.User, "-p", cfg.Passwd, "-t", "3"}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return nil
	}
	if err := run("mydumper", "-B", cfg.DBName, "-x", "^"+cfg.DBName+"[.]dumped$", "-r", "50000", "-o", dir); err != nil {
		b.Logf("not compared with: %v", err)
		return nil
	}
	return func() error { return run("myloader", "-B", cfg.DBName, "-d", dir, "-o") }
}
