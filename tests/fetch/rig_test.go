package fetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/clickhouse"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The fetcher's times in these tests: what it promises in production, and a short end of
// what goes on in the background.
const (
	budget     = 800 * time.Millisecond
	hedgeAfter = 150 * time.Millisecond
	fillAfter  = 2 * time.Second
)

// How long a busy machine may take for what happens at once: less than what else would end
// it, which is the usual fill time-out of ten seconds, and for connections the clients' own
// limits of half a minute and more.
const (
	filled = fillAfter + 7*time.Second
	closed = 20 * time.Second
)

// number is how often a test does what it does: a few times, unless the environment says
// more.
func number(t testing.TB, usual int) int {
	t.Helper()
	text := os.Getenv("COLDTIER_TEST_CALLS")
	if text == "" {
		if testing.Short() {
			return max(usual/3, 1)
		}
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("COLDTIER_TEST_CALLS %q: want a number", text)
	}
	return n
}

// random is a source whose seed is in the log; COLDTIER_TEST_SEED gives it again.
func random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("COLDTIER_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("COLDTIER_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 3))
}

// cold is an archived set-up and what it must give.
type cold struct {
	*harness.Env
	truth  truth
	layout snowflake.Layout
}

// newCold archives lifelike chat. Some sequences are shared by two messages and some days
// overlap in theirs, as happens where several machines give them.
func newCold(t testing.TB, rng *rand.Rand, days, messages, conversations int) *cold {
	t.Helper()
	g, err := chat.New(chat.Config{Seed: rng.Uint64(), From: harness.First(days), Days: days, Messages: messages, Conversations: conversations})
	if err != nil {
		t.Fatal(err)
	}
	e := harness.New(t, harness.Options{Source: g, Days: days, Tables: 2})
	for _, table := range e.Tables {
		e.SQL("UPDATE " + table + " SET seq = seq + 9 WHERE msg_id % 17 = 0")
	}
	return archived(e, chat.Layout())
}

// archived archives a set-up as it is.
func archived(e *harness.Env, layout snowflake.Layout) *cold {
	e.T.Helper()
	c := &cold{Env: e, truth: readTruth(e), layout: layout}
	e.Must("archive")
	return c
}

// through says by which addresses a rig reaches the servers; empty: by their own.
type through struct {
	mysql, s3, clickhouse string // host:port
	bucket                string // other than the set-up's own
	maxConns              int    // of ClickHouse
}

// rig is the product's reader and the real adapters below it.
type rig struct {
	*restore.Fetcher
	c       *cold
	store   *manifest.Store
	objects objects
	rows    rows
	metrics *prometheus.Registry
	closed  bool
}

// addrs are the servers' own addresses.
func (c *cold) addrs() (my, s3, ch string) {
	c.T.Helper()
	cfg, err := mysql.ParseDSN(c.Manifest)
	if err != nil {
		c.T.Fatal(err)
	}
	return cfg.Addr, strings.TrimPrefix(c.S3.Endpoint, "http://"), c.ClickHouse.Addr
}

// stores opens the manifest, the bucket and ClickHouse as the program does.
func (c *cold) stores(t testing.TB, by through) *rig {
	t.Helper()
	cfg, err := mysql.ParseDSN(c.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, ch := c.S3.Endpoint, c.ClickHouse.Addr
	if by.mysql != "" {
		cfg.Addr = by.mysql
	}
	if by.s3 != "" {
		endpoint = "http://" + by.s3
	}
	if by.clickhouse != "" {
		ch = by.clickhouse
	}
	if by.bucket == "" {
		by.bucket = c.S3.Bucket
	}
	log := slog.New(slog.DiscardHandler)
	r := &rig{c: c}
	if r.store, err = manifest.Open(t.Context(), manifest.Config{DSN: cfg.FormatDSN(), Source: "im"}, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.close(t) })
	if r.objects.b, err = bucket.Open(t.Context(), bucket.Config{Name: by.bucket, Prefix: "im", Region: c.S3.Region, Endpoint: endpoint, PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(c.S3.Key, c.S3.Secret, "")}, log); err != nil {
		t.Fatal(err)
	}
	if r.rows.db, err = clickhouse.Open(t.Context(), clickhouse.Config{Addrs: []string{ch}, Protocol: c.ClickHouse.Protocol, Database: c.ClickHouse.Database,
		Username: "default", MaxConns: by.maxConns}, log); err != nil {
		t.Fatal(err)
	}
	return r
}

// rig makes a reader over stores; change may set what is not usual.
func (c *cold) rig(t testing.TB, by through, change ...func(*restore.Config, *restore.Deps)) *rig {
	t.Helper()
	r := c.stores(t, by)
	r.start(t, change...)
	return r
}

// start makes the rig's reader, anew if it has one: with empty caches.
func (r *rig) start(t testing.TB, change ...func(*restore.Config, *restore.Deps)) {
	t.Helper()
	if r.Fetcher != nil {
		if err := r.Fetcher.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r.metrics = prometheus.NewRegistry()
	cfg := restore.Config{Layout: r.c.layout, Budget: budget, HedgeAfter: hedgeAfter, FillAfter: fillAfter, Clock: time.Now}
	deps := restore.Deps{Manifest: r.store, Objects: r.objects, Rows: r.rows, Registry: r.metrics, Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&cfg, &deps)
	}
	var err error
	if r.Fetcher, err = restore.New(cfg, deps); err != nil {
		t.Fatal(err)
	}
}

// close ends all that the rig has.
func (r *rig) close(t testing.TB) {
	if r.closed {
		return
	}
	r.closed = true
	var errs []error
	if r.Fetcher != nil {
		errs = append(errs, r.Fetcher.Close())
	}
	errs = append(errs, r.store.Close())
	if r.objects.b != nil {
		errs = append(errs, r.objects.b.Close())
	}
	if r.rows.db != nil {
		errs = append(errs, r.rows.db.Close())
	}
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// metric is the sum of a metric's values over all its labels.
func (r *rig) metric(t testing.TB, name string) (sum float64) {
	t.Helper()
	all, err := r.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != "coldtier_fetch_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// objects is a bucket for restore, as the program has it.
type objects struct{ b *bucket.Bucket }

func (o objects) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	data, err := o.b.ReadRange(ctx, key, off, n)
	for of, is := range map[error]error{bucket.ErrNotFound: restore.ErrNotFound, bucket.ErrCorrupt: restore.ErrDamaged, bucket.ErrArchived: restore.ErrArchived} {
		if errors.Is(err, of) {
			return nil, fmt.Errorf("%w: %w", is, err)
		}
	}
	return data, err
}

// rows is ClickHouse for restore, as the program has it.
type rows struct{ db *clickhouse.DB }

func (r rows) Spans(ctx context.Context, spans []restore.Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error) {
	list := make([]clickhouse.Span, len(spans))
	for i, sp := range spans {
		list[i] = clickhouse.Span(sp)
	}
	return r.db.ReadSpans(ctx, list, s, conversation, limit)
}

// enough is a budget for tests that are not about time: a page is complete also on a busy
// machine.
const enough = 20 * time.Second

// withoutRows is a change of a rig: there is no ClickHouse, and enough time.
func withoutRows(cfg *restore.Config, d *restore.Deps) { cfg.Budget, d.Rows = enough, nil }

// until waits for something that nobody tells of, and says whether it came.
func until(within time.Duration, done func() bool) bool {
	for end := time.Now().Add(within); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return done()
		}
	}
	return true
}
