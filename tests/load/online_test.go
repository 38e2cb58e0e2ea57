package load

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/chat"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

func TestMain(m *testing.M) { harness.Main(m) }

// online is the traffic of a platform that goes on while coldtier works: new messages and
// pages of conversations, so many a second. It is open-loop: each request has the time at
// which it is due, whatever became of those before, and is timed from then. So one that
// waits since the server is slow counts with its wait, and a slow server gets no fewer.
type online struct {
	db            *sql.DB
	table         string
	conversations []string
	inserts       int // a second
	pages         int // a second
	next          atomic.Uint64
}

// measured are latencies from when each request was due.
type measured struct {
	mu             sync.Mutex
	inserts, pages []time.Duration
	failed         []error
}

func (m *measured) take(into *[]time.Duration, d time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.failed = append(m.failed, err)
		return
	}
	*into = append(*into, d)
}

// run makes traffic until the context ends, and waits for what is under way.
func (o *online) run(ctx context.Context) *measured {
	m := &measured{}
	var wg sync.WaitGroup
	stream := func(rate int, into *[]time.Duration, one func(context.Context) error) {
		if rate == 0 {
			return
		}
		wg.Go(func() {
			begun, every := time.Now(), time.Second/time.Duration(rate)
			for n := 0; ; n++ {
				due := begun.Add(time.Duration(n) * every)
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(due)):
				}
				wg.Go(func() {
					err := one(context.WithoutCancel(ctx))
					m.take(into, time.Since(due), err)
				})
			}
		})
	}
	stream(o.inserts, &m.inserts, o.insert)
	stream(o.pages, &m.pages, o.page)
	wg.Wait()
	return m
}

func (o *online) insert(ctx context.Context) error {
	n := o.next.Add(1)
	now := time.Now().UTC()
	id, err := chat.Layout().Lowest(now)
	if err != nil {
		return err
	}
	_, err = o.db.ExecContext(ctx, "INSERT INTO "+o.table+" (msg_id, session_id, sender_id, receiver_id, content, client_msg_id, create_time, seq) VALUES (?, ?, 1, 1, ?, ?, ?, ?)",
		id+n%(1<<22), o.conversations[n%uint64(len(o.conversations))], "a message of the load", fmt.Sprintf("load-%d", n), now, 1<<40+n)
	return err
}

func (o *online) page(ctx context.Context) error {
	rows, err := o.db.QueryContext(ctx, "SELECT msg_id, content FROM "+o.table+" WHERE session_id = ? ORDER BY seq DESC LIMIT 20", o.conversations[rand.IntN(len(o.conversations))])
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id uint64
		var content sql.RawBytes
		if err := rows.Scan(&id, &content); err != nil {
			return err
		}
	}
	return rows.Err()
}

// newOnline makes traffic for the first table of a set-up, over connections of its own.
func newOnline(t testing.TB, e *harness.Env, inserts, pages int) *online {
	t.Helper()
	o := &online{db: stack.OpenMySQL(t, e.WarmDSN+"?interpolateParams=true&time_zone=%27%2B00%3A00%27"), table: e.Tables[0], inserts: inserts, pages: pages}
	o.db.SetMaxOpenConns(64)
	o.db.SetMaxIdleConns(64)
	rows, err := o.db.QueryContext(t.Context(), "SELECT DISTINCT session_id FROM "+o.table+" LIMIT 1000")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var c string
		if err := rows.Scan(&c); err != nil {
			t.Fatal(err)
		}
		o.conversations = append(o.conversations, c)
	}
	if err := rows.Err(); err != nil || len(o.conversations) == 0 {
		t.Fatalf("%d conversations, %v", len(o.conversations), err)
	}
	return o
}

// while makes traffic as long as fn runs.
func (o *online) while(t testing.TB, fn func()) *measured {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan *measured, 1)
	go func() { got <- o.run(ctx) }()
	fn()
	cancel()
	m := <-got
	if len(m.failed) > 0 {
		t.Errorf("%d requests failed, the first: %v", len(m.failed), m.failed[0])
	}
	return m
}

// The traffic and an archive run go on beside each other: a tiny run of what
// BenchmarkOnline measures.
func TestOnlineLoad(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Messages: 600, Seed: 81})
	m := newOnline(t, e, 40, 40).while(t, func() {
		e.Must("archive")
		time.Sleep(500 * time.Millisecond) // traffic, also where the run is over at once
	})
	if len(m.inserts) < 10 || len(m.pages) < 10 {
		t.Errorf("%d messages were sent, %d pages read", len(m.inserts), len(m.pages))
	}
	for _, d := range [][]time.Duration{m.inserts, m.pages} {
		if p50, p99 := quantile(d, .5), quantile(d, .99); p50 <= 0 || p50 > p99 {
			t.Errorf("P50 %s, P99 %s", p50, p99)
		}
	}
	e.Must("purge")
	if n := e.Count(); n != len(m.inserts) {
		t.Errorf("%d rows are in warm, %d messages were sent", n, len(m.inserts))
	}
}

// A request that has to wait counts from when it was due: 20 requests a second that take
// 0.2 s each on one connection are late by ever more.
func TestLoadIsOpenLoop(t *testing.T) {
	t.Parallel()
	db := stack.OpenMySQL(t, stack.MySQL(t))
	db.SetMaxOpenConns(1)
	o := &online{db: db, pages: 20, conversations: []string{"1"}, table: "(SELECT 1 msg_id, '' content, 1 session_id, 1 seq, SLEEP(0.2)) x"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	m := o.run(ctx)
	if len(m.failed) > 0 || len(m.pages) < 15 || quantile(m.pages, 1) < 2*time.Second {
		t.Errorf("%d requests, the slowest took %s: %v", len(m.pages), quantile(m.pages, 1), m.failed)
	}
}

// BenchmarkOnline measures what archive runs cost a platform's traffic: without one, with
// all limits off, with the defaults, and with a rate. Each run copies days of its own. It
// is not repeated: b.N is 1.
//
//	make bench PKG=./tests/load BENCH=Online
func BenchmarkOnline(b *testing.B) {
	const messages, days = 120_000, 3
	server := stack.StartMariaDB(b, "--innodb-buffer-pool-size=128M")
	b.Setenv("COLDTIER_TEST_MYSQL", server.DSN())
	e := harness.New(b, harness.Options{Days: days, Messages: messages, Seed: 82})
	o := newOnline(b, e, 200, 200)
	day := 0
	off := "max_impact: 0\nmax_replica_lag: 0s\nmax_threads_running: 0"
	for _, c := range []struct{ name, limits string }{
		{"no_archive", ""}, {"limits=off", off}, {"limits=default", "max_impact: 4"}, {"limits=rate", "max_impact: 4\nrows_per_second: 5000"},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.StopTimer()
			e.Change(func(o *harness.Options) { o.Config = map[string]string{"archive": c.limits} })
			m := o.while(b, func() {
				b.StartTimer()
				if c.limits == "" {
					time.Sleep(20 * time.Second)
				} else {
					r := e.Must("archive", "--day", e.Days[day].String())
					for l := range strings.Lines(r.Stdout) {
						if strings.Contains(l, "rows/s") || strings.Contains(l, "held back") {
							b.Log(strings.TrimSpace(l))
						}
					}
				}
				b.StopTimer()
			})
			for _, x := range []struct {
				name string
				d    []time.Duration
			}{{"insert", m.inserts}, {"page", m.pages}} {
				b.ReportMetric(float64(quantile(x.d, .5).Microseconds())/1000, x.name+"-p50-ms")
				b.ReportMetric(float64(quantile(x.d, .99).Microseconds())/1000, x.name+"-p99-ms")
				b.ReportMetric(float64(quantile(x.d, 1).Microseconds())/1000, x.name+"-max-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
		if c.limits != "" {
			day++
		}
	}
}
