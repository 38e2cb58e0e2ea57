package clickhouse

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/tests/stack"
)

// chatRows is rows shaped like a real message table's.
func chatRows(b *testing.B, n int) *message.Batch {
	b.Helper()
	s := schema(b,
		message.Column{Name: "sender_id", Kind: message.Int, Bits: 64, SourceType: "bigint"},
		message.Column{Name: "msg_type", Kind: message.Int, Bits: 8, SourceType: "tinyint"},
		message.Column{Name: "status", Kind: message.Text, Enumerated: true, SourceType: "enum"},
		message.Column{Name: "extra", Kind: message.Text, Nullable: true, SourceType: "varchar(255)"},
		message.Column{Name: "create_time", Kind: message.DateTime, Scale: 3, SourceType: "datetime(3)"},
	)
	const seed = 7
	r := rand.New(rand.NewPCG(seed, seed))
	out := message.NewBatch(s)
	body := make([]byte, 4000)
	for i := range body {
		body[i] = byte(' ' + r.IntN(90))
	}
	for i := range n {
		extra := fmt.Appendf(nil, `{"k":%d}`, i%100)
		if i%3 == 0 {
			extra = nil
		}
		start := r.IntN(len(body) / 2)
		row := [][]byte{fmt.Append(nil, 837851385029464064+i), fmt.Append(nil, 9007199254740993+i/9), fmt.Append(nil, i%9), body[start : start+r.IntN(600)],
			fmt.Append(nil, r.IntN(1000000)), fmt.Append(nil, i%6), []byte([]string{"sent", "read", "recalled"}[i%3]), extra,
			message.AppendDateTime(nil, 1_780_000_000_000_000+int64(i)*1000, 3)}
		if err := out.Append(row); err != nil {
			b.Fatal(err)
		}
	}
	return out
}

// BenchmarkInsert sends 100,000 rows by the Inserter, and the same rows row by row
// through a bare driver's batch, of values that are typed already; it tells the ratio.
func BenchmarkInsert(b *testing.B) {
	const n = 100_000
	rows := chatRows(b, n)
	d := migrated(b, nil, rows.Schema())
	own, bare := time.Duration(0), time.Duration(0)
	b.SetBytes(int64(rows.Bytes()))
	k := 0
	for b.Loop() {
		k++
		start := time.Now()
		insert(b, d, copyID(fmt.Sprintf("own%d", k)), rows)
		own += time.Since(start)
		b.StopTimer()
		start = time.Now()
		bareInsert(b, d, copyID(fmt.Sprintf("bare%d", k)), rows)
		bare += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(float64(n*k)/own.Seconds(), "rows/s")
	b.ReportMetric(float64(n*k)/bare.Seconds(), "bare-rows/s")
	b.ReportMetric(bare.Seconds()/own.Seconds(), "of-bare")
}

func bareInsert(b *testing.B, d *DB, id CopyID, rows *message.Batch) {
	b.Helper()
	ctx := testContext(b)
	i, err := d.Insert(ctx, id, rows.Schema())
	if err != nil {
		b.Fatal(err)
	}
	batch, err := d.conn.PrepareBatch(ctx, "INSERT INTO "+d.qualified(tableName)+" ("+idents(i.names)+")")
	if err != nil {
		b.Fatal(err)
	}
	day, err := time.Parse(time.DateOnly, id.Day.String())
	if err != nil {
		b.Fatal(err)
	}
	old := d.srv.major < 20
	for row := range rows.Len() {
		msg, _ := message.ParseUint(rows.Value(0, row))
		conv, _ := message.ParseInt(rows.Value(1, row))
		seq, _ := message.ParseUint(rows.Value(2, row))
		sender, _ := message.ParseInt(rows.Value(4, row))
		kind, _ := message.ParseInt(rows.Value(5, row))
		var extra *string
		if v := rows.Value(7, row); v != nil {
			s := string(v)
			extra = &s
		}
		var at any
		micros, _ := message.ParseDateTime(rows.Value(8, row), 3)
		if at = time.UnixMicro(micros).UTC(); old {
			at = string(rows.Value(8, row))
		}
		if err := batch.Append(day, id.Shard.String(), id.Generation, id.Attempt, "", msg, conv, seq, string(rows.Value(3, row)), sender, int8(kind), string(rows.Value(6, row)), extra, at); err != nil {
			b.Fatal(err)
		}
	}
	if err := batch.Send(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkBlockBytes sends 100,000 rows in blocks of several sizes, and tells the most
// memory that was live beside the rows themselves.
func BenchmarkBlockBytes(b *testing.B) {
	rows := chatRows(b, 100_000)
	for _, mib := range []int{2, 4, 8, 16} {
		b.Run(fmt.Sprintf("%dMiB", mib), func(b *testing.B) {
			d := migrated(b, func(c *Config) { c.BlockBytes = mib << 20 }, rows.Schema())
			b.SetBytes(int64(rows.Bytes()))
			defer debug.SetGCPercent(debug.SetGCPercent(5))
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			base, peak := m.HeapAlloc, uint64(0)
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				tick := time.NewTicker(2 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-stop:
						return
					case <-tick.C:
						runtime.ReadMemStats(&m)
						peak = max(peak, m.HeapAlloc)
					}
				}
			}()
			k := 0
			for b.Loop() {
				k++
				insert(b, d, copyID(fmt.Sprintf("%d", k)), rows)
			}
			close(stop)
			<-done
			b.ReportMetric(float64(peak-base)/(1<<20), "peak-MiB")
			b.ReportMetric(float64(rows.Len()*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkReadCopy reads 300,000 rows back, in order.
func BenchmarkReadCopy(b *testing.B) {
	const n = 300_000
	rows := chatRows(b, n)
	d := migrated(b, nil, rows.Schema())
	insert(b, d, copyID("a"), rows)
	b.SetBytes(int64(rows.Bytes()))
	for b.Loop() {
		got := 0
		if err := d.ReadCopy(testContext(b), copyID("a"), rows.Schema(), func(x *message.Batch) error { got += x.Len(); return nil }); err != nil || got != n {
			b.Fatalf("%d rows, %v", got, err)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkReadPage reads pages of 20 out of 300,000 rows.
func BenchmarkReadPage(b *testing.B) {
	rows := chatRows(b, 300_000)
	d := open(b, stack.NewClickHouse(b), nil)
	if _, err := d.Migrate(testContext(b), []*message.Schema{rows.Schema()}, false); err != nil {
		b.Fatal(err)
	}
	insert(b, d, copyID("a"), rows)
	i := 0
	for b.Loop() {
		i++
		q := pageQuery{Conversation: fmt.Append(nil, 9007199254740993+i*37%30000), Limit: 20, Newest: true}
		if p, err := readPage(testContext(b), d, []CopyID{copyID("a")}, rows.Schema(), q); err != nil || p.Len() == 0 {
			b.Fatalf("%v", err)
		}
	}
}
