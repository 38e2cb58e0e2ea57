// Demo shows the main job with the real commands on real servers, and then counts
// by other means whether anything was lost. It is run by `make demo`.
//
//	demo PROGRAM FOLDER [-messages N]
package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/dustin/go-humanize"
	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/stack"
	"github.com/coldtier/coldtier/tests/truth"
)

const days = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: demo PROGRAM FOLDER [-messages N]")
		os.Exit(2)
	}
	flags := flag.NewFlagSet("demo", flag.ExitOnError)
	messages := flags.Int("messages", 12000, "how many messages to invent")
	_ = flags.Parse(os.Args[3:]) // exits on an error
	d := &demo{program: os.Args[1], dir: os.Args[2], messages: *messages}
	if err := d.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

type demo struct {
	program, dir string
	messages     int

	mysql      *mysql.Config
	db         *sql.DB
	s3         stack.S3
	clickhouse stack.ClickHouse
	conn       clickhouse.Conn
	days       []snowflake.Day
	tables     []string
	config     string
}

func (d *demo) run(ctx context.Context) error {
	if err := d.connect(ctx); err != nil {
		return err
	}
	defer func() { _, _ = d.db.Close(), d.conn.Close() }()
	stats, err := d.load(ctx)
	if err != nil {
		return err
	}
	want, err := truth.Warm(ctx, d.db, d.tables...)
	if err != nil {
		return err
	}
	warmBytes, err := d.warmBytes(ctx)
	if err != nil {
		return err
	}
	busiest, most, err := d.busiest(ctx)
	if err != nil {
		return err
	}
	d.say("%s messages of %d days, %s of bodies, are in %d tables of two databases (one of each pair partitioned by day). Now the real commands.",
		humanize.Comma(int64(stats.Messages)), days, humanize.IBytes(uint64(stats.BodyBytes)), len(d.tables))
	if err := d.configure("168h"); err != nil {
		return err
	}
	var before, after string
	steps := []struct {
		note string
		args []string
		keep *string
	}{
		{"create the manifest's tables and ClickHouse's", []string{"migrate"}, nil},
		{"look at everything before touching anything", []string{"check"}, nil},
		{"copy every day that is old enough, and prove each copy equal", []string{"archive"}, nil},
		{"what is where", []string{"status"}, nil},
		{"the last page of the busiest conversation", []string{"fetch", "--conversation", busiest, "--limit", "8"}, &before},
		{"purge: deletes nothing yet, the lag of seven days has only begun", []string{"purge"}, nil},
	}
	var archive time.Duration
	for _, s := range steps {
		began := time.Now()
		out, err := d.coldtier(ctx, s.note, s.args...)
		if err != nil {
			return err
		}
		if s.keep != nil {
			*s.keep = out
		}
		if s.args[0] == "archive" {
			archive = time.Since(began)
		}
	}
	if n, err := d.count(ctx); err != nil || n != len(want) {
		return errors.Join(err, fmt.Errorf("%d of %d rows are left in warm: the lag did not hold", n, len(want)))
	}
	d.say("Eight days later. (The demo does not wait: its own configuration now says purge.lag: 0s, and coldtier warns of it.)")
	if err := d.configure("0s"); err != nil {
		return err
	}
	began := time.Now()
	if _, err := d.coldtier(ctx, "purge: proves each row once more under a lock, then deletes", "purge"); err != nil {
		return err
	}
	purge := time.Since(began)
	if after, err = d.coldtier(ctx, "the same page, now from the cold tier alone", "fetch", "--conversation", busiest, "--limit", "8"); err != nil {
		return err
	}
	if before != after {
		return errors.New("the page differs from the one before the purge")
	}
	pages, err := d.serve(ctx, busiest, most)
	if err != nil {
		return err
	}
	return d.verdict(ctx, want, warmBytes, archive, purge, pages)
}

func (d *demo) say(format string, args ...any) {
	fmt.Printf("\n== "+format+"\n", args...)
}

// connect finds the servers that `stack run` started and makes databases and a bucket.
func (d *demo) connect(ctx context.Context) (err error) {
	if d.mysql, err = mysql.ParseDSN(os.Getenv("COLDTIER_TEST_MYSQL")); err != nil {
		return fmt.Errorf("COLDTIER_TEST_MYSQL: %w", err)
	}
	d.mysql.InterpolateParams = true
	d.mysql.Params = map[string]string{"time_zone": "'+00:00'"}
	if d.db, err = sql.Open("mysql", d.mysql.FormatDSN()); err != nil {
		return err
	}
	u, err := url.Parse(os.Getenv("COLDTIER_TEST_S3"))
	if err != nil {
		return fmt.Errorf("COLDTIER_TEST_S3: %w", err)
	}
	secret, _ := u.User.Password()
	d.s3 = stack.S3{Endpoint: u.Scheme + "://" + u.Host, Region: "us-east-1", Key: u.User.Username(), Secret: secret, Bucket: "cold"}
	protocol, addr, _ := strings.Cut(os.Getenv("COLDTIER_TEST_CLICKHOUSE"), "://")
	d.clickhouse = stack.ClickHouse{Addr: addr, Protocol: protocol, Database: "cold"}
	o := &clickhouse.Options{Addr: []string{addr}}
	if protocol == "http" {
		o.Protocol = clickhouse.HTTP
	}
	if d.conn, err = clickhouse.Open(o); err != nil {
		return err
	}
	for _, name := range []string{"im_00", "im_01", "coldtier"} {
		if _, err := d.db.ExecContext(ctx, "CREATE DATABASE "+name+" DEFAULT CHARACTER SET utf8mb4"); err != nil {
			return err
		}
	}
	if err := d.conn.Exec(ctx, "CREATE DATABASE cold"); err != nil {
		return err
	}
	_, err = d.s3.Client().CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &d.s3.Bucket})
	return err
}

// load fills four tables with chat of the last days.
func (d *demo) load(ctx context.Context) (chat.Stats, error) {
	g, err := chat.New(chat.Config{Seed: 2026, From: snowflake.DayAt(time.Now(), time.UTC).Add(-days - 1), Days: days, Messages: d.messages})
	if err != nil {
		return chat.Stats{}, err
	}
	d.days = g.Days()
	var targets []chat.Target
	for _, db := range []string{"im_00", "im_01"} {
		for i, parts := range [][]snowflake.Day{d.days, nil} {
			name := fmt.Sprintf("%s.msg_content_%02d", db, i)
			if err := chat.Create(ctx, d.db, name, parts); err != nil {
				return chat.Stats{}, err
			}
			d.tables = append(d.tables, name)
			targets = append(targets, chat.Target{DB: d.db, Table: name})
		}
	}
	return chat.Load(ctx, g, targets...)
}

func (d *demo) warmBytes(ctx context.Context) (n int64, err error) {
	for _, t := range d.tables {
		if _, err := d.db.ExecContext(ctx, "ANALYZE TABLE "+t); err != nil {
			return 0, err
		}
	}
	err = d.db.QueryRowContext(ctx, "SELECT CAST(SUM(data_length + index_length) AS UNSIGNED) FROM information_schema.tables WHERE table_schema IN ('im_00', 'im_01')").Scan(&n)
	return n, err
}

func (d *demo) busiest(ctx context.Context) (conversation string, most int, err error) {
	for _, t := range d.tables {
		var c string
		var n int
		if err := d.db.QueryRowContext(ctx, "SELECT session_id, COUNT(*) n FROM "+t+" GROUP BY session_id ORDER BY n DESC LIMIT 1").Scan(&c, &n); err != nil {
			return "", 0, err
		}
		if n > most {
			conversation, most = c, n
		}
	}
	return conversation, most, nil
}

func (d *demo) count(ctx context.Context) (n int, err error) {
	for _, t := range d.tables {
		var c int
		if err := d.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+t).Scan(&c); err != nil {
			return 0, err
		}
		n += c
	}
	return n, nil
}

func (d *demo) dsn(database string) string {
	return fmt.Sprintf("%s:${MYSQL_PASSWORD}@tcp(%s)/%s", d.mysql.User, d.mysql.Addr, database)
}

// configure writes the configuration and, the first time, shows it.
func (d *demo) configure(lag string) error {
	text := fmt.Sprintf(`source:
  name: im
  timezone: UTC
  snowflake: {epoch: 2015-01-01T00:00:00Z, time_shift: 22}
  databases:
    - dsn: %s
    - dsn: %s
  tables: [msg_content_*]
  columns: {message_id: msg_id, conversation_id: session_id, sequence: seq, sender_id: sender_id,
            message_type: msg_type, status: status, content: content, created_at: create_time}
manifest: {dsn: "%s"}
bucket: {name: cold, prefix: im, endpoint: "%s", path_style: true}
clickhouse: {addrs: ["%s"], protocol: %s, database: cold}
archive: {after: 1s}    # a platform would say 180d
purge: {lag: %s}
fetch: {listen: "127.0.0.1:0", drain: 0s}    # port 0: any that is free
`, d.dsn("im_00"), d.dsn("im_01"), d.dsn("coldtier"), d.s3.Endpoint, d.clickhouse.Addr, d.clickhouse.Protocol, lag)
	if d.config == "" {
		d.say("the configuration")
		fmt.Print(text)
	}
	d.config = filepath.Join(d.dir, "coldtier.yaml")
	return os.WriteFile(d.config, []byte(text), 0o600)
}

// coldtier runs a command as its user would, and gives what it printed.
func (d *demo) coldtier(ctx context.Context, note string, args ...string) (string, error) {
	fmt.Printf("\n# %s\n$ coldtier %s\n", note, strings.Join(args, " "))
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, d.program, append([]string{"--config", d.config}, args...)...)
	cmd.Env = d.environ()
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &out), os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("coldtier %s: %w", args[0], err)
	}
	return out.String(), nil
}

func (d *demo) environ() []string {
	return append(os.Environ(), "MYSQL_PASSWORD="+d.mysql.Passwd, "AWS_ACCESS_KEY_ID="+d.s3.Key, "AWS_SECRET_ACCESS_KEY="+d.s3.Secret)
}

// verdict prints the last screen. Every figure of it is counted past the product.
func (d *demo) verdict(ctx context.Context, want truth.Rows, warmBytes int64, archive, purge time.Duration, pages []time.Duration) (err error) {
	m := d.mysql.Clone()
	m.DBName, m.Params = "coldtier", nil
	store, err := truth.Manifest(ctx, m.FormatDSN(), "im")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	cold, err := truth.Bucket(ctx, store, d.s3.Client(), d.s3.Bucket, "im")
	if err != nil {
		return err
	}
	rows, doubled, err := truth.ClickHouse(ctx, store, d.conn, d.clickhouse.Database)
	if err != nil {
		return err
	}
	warm, err := truth.Warm(ctx, d.db, d.tables...)
	if err != nil {
		return err
	}
	bucket, inRows := truth.Compare(want, warm, cold.Rows), truth.Compare(want, warm, rows)
	lost, twice := len(bucket.Lost)+len(inRows.Lost), len(cold.Doubled)+len(doubled)
	d.say("The end: what SQL, a plain Parquet reader and a plain ClickHouse client count")
	line := func(name, format string, args ...any) {
		fmt.Printf("%-18s "+format+"\n", append([]any{name}, args...)...)
	}
	size := func(n int64) string { return humanize.IBytes(uint64(n)) }
	line("messages", "%s loaded; left in MySQL %s; in the bucket %s; in ClickHouse %s", comma(len(want)), comma(len(warm)), comma(bucket.InCold), comma(inRows.InCold))
	line("conversations", "%s", comma(cold.Convs))
	line("objects", "%s (one Parquet file for each conversation, day and table)", comma(cold.Objects))
	line("bytes", "%s warm (tables and indexes), %s cold in the bucket", size(warmBytes), size(cold.Bytes))
	line("archive", "%.1f s, %s rows/s, both copies read back and compared", archive.Seconds(), comma(int(float64(len(want))/archive.Seconds())))
	line("purge", "%.1f s, %s rows/s", purge.Seconds(), comma(int(float64(len(want))/purge.Seconds())))
	line("pages", "%d of 20 by RPC: median %s, slowest %s", len(pages), pages[len(pages)/2].Round(100*time.Microsecond), pages[len(pages)-1].Round(100*time.Microsecond))
	line("verdict", "%d lost, %d doubled, %d changed", lost, twice, len(bucket.Different)+len(inRows.Different))
	if lost+twice > 0 || !bucket.OK() || !inRows.OK() || len(warm) > 0 {
		return fmt.Errorf("the copies are not what was loaded: bucket %s; ClickHouse %s", bucket, inRows)
	}
	return nil
}

func comma(n int) string { return humanize.Comma(int64(n)) }
