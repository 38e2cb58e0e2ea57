package load

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/coldtier/coldtier/archive/bucket"
	"github.com/coldtier/coldtier/archive/clickhouse"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/tests/stack"
)

// perDay is how many messages the conversation has each day, all in one row group.
const perDay = 60

var conversation = []byte("9007199254740993")

// cold is a conversation of many days in real stores.
type cold struct {
	manifest *manifest.Store
	bucket   *bucket.Bucket
	rows     *clickhouse.DB
	s3       stack.S3
	ch       stack.ClickHouse
	layout   snowflake.Layout
	days     int
	refs     []manifest.SegmentRef // by rising cursor
}

type adapter struct{ *clickhouse.DB }

func (a adapter) Spans(ctx context.Context, spans []restore.Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error) {
	list := make([]clickhouse.Span, len(spans))
	for i, sp := range spans {
		list[i] = clickhouse.Span(sp)
	}
	return a.ReadSpans(ctx, list, s, conversation, limit)
}

func newCold(b *testing.B, days int) *cold {
	b.Helper()
	ctx := context.Background()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	s, err := message.NewSchema([]message.Column{
		{Name: "msg_id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"}, {Name: "session_id", Kind: message.Int, Bits: 64, SourceType: "bigint"},
		{Name: "seq", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"}, {Name: "sender_id", Kind: message.Int, Bits: 64, SourceType: "bigint"},
		{Name: "content", Kind: message.Text, Nullable: true, SourceType: "mediumtext"},
	}, map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "session_id", message.Sequence: "seq", message.SenderID: "sender_id", message.Content: "content"})
	must(err)
	c := &cold{s3: stack.Bucket(b), ch: stack.NewClickHouse(b), days: days, layout: snowflake.Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}}
	c.manifest, err = manifest.Open(ctx, manifest.Config{DSN: stack.MySQL(b), Source: "im"}, log)
	must(err)
	b.Cleanup(func() { _ = c.manifest.Close() })
	_, err = c.manifest.Migrate(ctx, false)
	must(err)
	c.bucket, err = bucket.Open(ctx, bucket.Config{Name: c.s3.Bucket, Region: "us-east-1", Endpoint: c.s3.Endpoint, PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(c.s3.Key, c.s3.Secret, "")}, log)
	must(err)
	b.Cleanup(func() { _ = c.bucket.Close() })
	c.rows, err = clickhouse.Open(ctx, clickhouse.Config{Addrs: []string{c.ch.Addr}, Protocol: c.ch.Protocol, Database: c.ch.Database, Username: "default", MaxConns: 32}, log)
	must(err)
	b.Cleanup(func() { _ = c.rows.Close() })
	_, err = c.rows.Migrate(ctx, []*message.Schema{s}, false)
	must(err)
	rng := rand.New(rand.NewPCG(1, 2))
	first := snowflake.MakeDay(2016, 1, 1)
	for d := range days {
		c.day(b, s, first.Add(d), d, rng)
	}
	refs, err := c.manifest.Segments(ctx, manifest.SegmentQuery{Conversation: conversation, Limit: days + 1, Oldest: true})
	must(err)
	c.refs = refs
	return c
}

func (c *cold) day(b *testing.B, s *message.Schema, day snowflake.Day, n int, rng *rand.Rand) {
	b.Helper()
	ctx := context.Background()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	lo, hi, err := c.layout.Window(day, time.UTC)
	must(err)
	key := manifest.SliceKey{Source: "im", Shard: manifest.Shard{Database: "im_00", Table: "msg"}, Day: day}
	_, err = c.manifest.Ensure(ctx, []manifest.Slice{{SliceKey: key, Lo: lo, Hi: hi, State: manifest.Pending}})
	must(err)
	found, err := c.manifest.Slices(ctx, manifest.Filter{From: &day, To: &day})
	must(err)
	lease, err := c.manifest.Claim(ctx, found[0].ID, "bench", []manifest.State{manifest.Pending}, manifest.Copying)
	must(err)
	batch := message.NewBatch(s)
	for i := range perDay {
		var body []byte
		for range 4 + rng.IntN(24) {
			body = fmt.Appendf(body, "word%d ", rng.Uint32N(1<<12))
		}
		must(batch.Append([][]byte{fmt.Append(nil, lo+uint64(i)<<24), conversation, fmt.Append(nil, n*perDay+i+1), fmt.Append(nil, rng.IntN(40)), body}))
	}
	var h message.Hasher
	cp := &manifest.Copy{SliceKey: key, Lo: lo, Hi: hi, Generation: 1, Attempt: lease.Attempt(), Schema: s, CopiedAt: time.Unix(0, 0).UTC(),
		Chunks: []manifest.Chunk{{From: lo, To: hi, Warm: h.Batch(batch, 0, batch.Len()), State: manifest.ChunkPresent}}}
	var buf bytes.Buffer
	w, err := segment.NewWriter(&buf, s, segment.Meta{Source: "im", Shard: key.Shard.String(), Day: day.String(), Generation: 1, Attempt: cp.Attempt}, segment.Options{})
	must(err)
	must(w.Write(batch, 0, batch.Len()))
	file, spans, err := w.Close()
	must(err)
	name := manifest.ConversationKey(key, 1, cp.Attempt, conversation)
	must(c.bucket.Put(ctx, name, bytes.NewReader(buf.Bytes()), int64(buf.Len()), bucket.PutOptions{}))
	cp.Objects = []manifest.Object{{Key: name, File: file, Segs: spans}}
	in, err := c.rows.Insert(ctx, cp.ID(), s)
	must(err)
	must(in.Write(ctx, batch, 0, batch.Len()))
	must(in.Close(ctx))
	must(c.manifest.Commit(ctx, lease, cp, manifest.RecordKey(key, 1), [32]byte{}))
	must(c.manifest.Verified(ctx, lease, 1))
	must(lease.Release(ctx, manifest.Verified))
}

// pair is the bare way and the product's, each for the newest 20 messages of a day.
type pair struct{ bare, product func(day int) error }

func (c *cold) fetcher(b *testing.B, rows bool) *restore.Fetcher {
	b.Helper()
	d := restore.Deps{Manifest: c.manifest, Objects: c.bucket, Log: slog.New(slog.DiscardHandler)}
	if rows {
		d.Rows = adapter{c.rows}
	}
	f, err := restore.New(restore.Config{Layout: c.layout, Budget: 30 * time.Second, HedgeAfter: 10 * time.Second, Clock: time.Now}, d)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	return f
}

func page(f *restore.Fetcher, day int, from restore.Store) error {
	before := uint64(day+1)*perDay + 1
	p, err := f.Fetch(context.Background(), restore.Query{Conversation: conversation, Before: &before, Limit: 20, From: from})
	if err == nil && (len(p.Rows) != 20 || p.State != restore.Complete || p.Requests+p.Queries > 1) {
		err = fmt.Errorf("%d rows, %s, %d requests, %d queries", len(p.Rows), p.State, p.Requests, p.Queries)
	}
	return err
}

// measure runs both in turns with so many callers, and reports the medians' ratio.
func (c *cold) measure(b *testing.B, callers int, p pair) {
	b.Helper()
	var mu sync.Mutex
	var bare, product []time.Duration
	timed := func(into *[]time.Duration, run func(int) error, day int) {
		begun := time.Now()
		err := run(day)
		took := time.Since(begun)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			b.Error(err)
		}
		*into = append(*into, took)
	}
	for i := 0; b.Loop(); i++ {
		for _, x := range []struct {
			into *[]time.Duration
			run  func(int) error
		}{{&bare, p.bare}, {&product, p.product}} {
			var wg sync.WaitGroup
			for n := range callers {
				wg.Go(func() { timed(x.into, x.run, (i*7919+n*104729)%c.days) })
			}
			wg.Wait()
		}
	}
	x, y := median(bare), median(product)
	b.ReportMetric(float64(x.Microseconds()), "bare-p50-µs")
	b.ReportMetric(float64(y.Microseconds()), "page-p50-µs")
	b.ReportMetric(float64(quantile(product, .99).Microseconds()), "page-p99-µs")
	b.ReportMetric(float64(y)/float64(x), "ratio")
}

func median(d []time.Duration) time.Duration { return quantile(d, .5) }

func quantile(d []time.Duration, q float64) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[int(q*float64(len(s)-1))]
}

func BenchmarkPage(b *testing.B) {
	for _, days := range []int{10, 1000, 3000} {
		b.Run(fmt.Sprintf("days=%d", days), func(b *testing.B) {
			c := newCold(b, days)
			client := c.s3.Client()
			get := func(day int) error {
				ref := c.refs[day]
				rg := ref.File.RowGroups[0]
				out, err := client.GetObject(context.Background(), &s3.GetObjectInput{Bucket: &c.s3.Bucket, Key: aws.String(ref.Key), Range: aws.String(fmt.Sprintf("bytes=%d-%d", rg.Offset, rg.Offset+rg.Length-1))})
				if err != nil {
					return err
				}
				defer func() { _ = out.Body.Close() }()
				var buf bytes.Buffer
				_, err = buf.ReadFrom(out.Body)
				return err
			}
			conn := c.ch.Open(b)
			sql := func(day int) error {
				ref := c.refs[day]
				rows, err := conn.Query(context.Background(), fmt.Sprintf("SELECT _exact, msg_id, session_id, seq, sender_id, content FROM `%s`.messages PREWHERE _shard IN ('%s') AND session_id = %s AND _day IN ('%s') AND _attempt IN ('%s') "+
					"WHERE (_day, _shard, _generation, _attempt) IN (('%s', '%s', 1, '%s')) AND seq > %d AND seq < %d ORDER BY toString(session_id), seq, msg_id LIMIT 200", c.ch.Database,
					ref.Slice.Shard, conversation, ref.Slice.Day, ref.Attempt, ref.Slice.Day, ref.Slice.Shard, ref.Attempt, ref.Span.MinCursor-1, ref.Span.MaxCursor+1))
				if err != nil {
					return err
				}
				defer func() { _ = rows.Close() }()
				n := 0
				for rows.Next() {
					var exact string
					var id, seq uint64
					var session, sender int64
					var content *string
					if err := rows.Scan(&exact, &id, &session, &seq, &sender, &content); err != nil {
						return err
					}
					n++
				}
				if n != perDay {
					return fmt.Errorf("%d rows: %w", n, rows.Err())
				}
				return rows.Err()
			}
			bucketOnly, both, warm := c.fetcher(b, false), c.fetcher(b, true), c.fetcher(b, true)
			for d := range min(days, 10) {
				if err := page(warm, d, restore.FromAny); err != nil {
					b.Fatal(err)
				}
			}
			for _, callers := range []int{1, 16, 64} {
				b.Run(fmt.Sprintf("bucket/callers=%d", callers), func(b *testing.B) {
					c.measure(b, callers, pair{get, func(day int) error { return page(bucketOnly, day, restore.FromBucket) }})
				})
				b.Run(fmt.Sprintf("clickhouse/callers=%d", callers), func(b *testing.B) {
					c.measure(b, callers, pair{sql, func(day int) error { return page(both, day, restore.FromClickHouse) }})
				})
				b.Run(fmt.Sprintf("cache/callers=%d", callers), func(b *testing.B) {
					c.measure(b, callers, pair{get, func(day int) error { return page(warm, day%10, restore.FromAny) }})
				})
			}
		})
	}
}
