package archive

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/tests/stack"
)

func foldSchema(t *testing.T, status message.Column) *message.Schema {
	t.Helper()
	status.Name = "status"
	s, err := message.NewSchema([]message.Column{{Name: "msg_id", Kind: message.Uint, Bits: 64}, {Name: "conv", Kind: message.Text}, status, {Name: "content", Kind: message.Bytes, Nullable: true}},
		map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "conv", message.Status: "status", message.Content: "content"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wholeObjects is a bucket in memory whose objects are read in parts, too.
type wholeObjects struct{ *fewObjects }

func (o wholeObjects) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	b, err := o.Get(ctx, key)
	if err != nil || off+n > int64(len(b)) {
		return nil, fmt.Errorf("read [%d, %d): %w", off, off+n, err)
	}
	return b[off : off+n], nil
}

// copiedRows is a ClickHouse in memory.
type copiedRows struct {
	mu   sync.Mutex
	held map[manifest.CopyID]*message.Batch
}

type copyWriter struct {
	r  *copiedRows
	id manifest.CopyID
	b  *message.Batch
}

func (r *copiedRows) Fit(context.Context, []*message.Schema) error { return nil }

func (r *copiedRows) Insert(_ context.Context, id manifest.CopyID, s *message.Schema) (RowWriter, error) {
	return &copyWriter{r, id, message.NewBatch(s)}, nil
}

func (r *copiedRows) ReadCopy(_ context.Context, id manifest.CopyID, _ *message.Schema, fn func(*message.Batch) error) error {
	r.mu.Lock()
	b := r.held[id]
	r.mu.Unlock()
	return fn(b)
}

func (w *copyWriter) Write(_ context.Context, b *message.Batch, from, to int) error {
	for i := from; i < to; i++ {
		if err := w.b.AppendFrom(b, i); err != nil {
			return err
		}
	}
	return nil
}

func (w *copyWriter) Close(context.Context) error {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.held[w.id] = w.b
	return nil
}

func (w *copyWriter) Abort() {}

// warmRows is a warm table in memory: the values of each message but its ID.
type warmRows struct {
	schema *message.Schema
	rows   map[uint64][][]byte
}

func (w *warmRows) Shard() manifest.Shard                        { return manifest.Shard{Database: "im_00", Table: "msg_00"} }
func (w *warmRows) Schema() *message.Schema                      { return w.schema }
func (w *warmRows) ShowCreate() string                           { return "CREATE TABLE msg_00 (…)" }
func (w *warmRows) Reload(context.Context) error                 { return nil }
func (w *warmRows) Settle(context.Context, uint64, uint64) error { return nil }
func (w *warmRows) EpochFits(context.Context) error              { return nil }
func (w *warmRows) Server(context.Context) (string, error)       { return "server", nil }

func (w *warmRows) ids() (ids []uint64) {
	for id := range w.rows {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (w *warmRows) NextID(_ context.Context, from uint64) (uint64, bool, error) {
	for _, id := range w.ids() {
		if id >= from {
			return id, true, nil
		}
	}
	return 0, false, nil
}

// Scan gives chunks of 100, of 200 and of the remaining IDs.
func (w *warmRows) Scan(_ context.Context, from, to uint64, fn func(message.Chunk) error) error {
	var h message.Hasher
	at := from
	for _, next := range []uint64{from + 100, from + 300, to} {
		b := message.NewBatch(w.schema)
		for _, id := range w.ids() {
			if id < at || id >= next {
				continue
			}
			if err := b.Append(append([][]byte{[]byte(message.FormatID(id))}, w.rows[id]...)); err != nil {
				return err
			}
		}
		if err := fn(message.Chunk{From: at, To: next, Batch: b, Fingerprint: h.Batch(b, 0, b.Len())}); err != nil {
			return err
		}
		at = next
	}
	return nil
}

// foldLab is an archiver of one slice with everything but the manifest in memory.
type foldLab struct {
	t       *testing.T
	m       *manifest.Store
	warm    *warmRows
	objects wholeObjects
	a       *Archiver
	day     snowflake.Day
	lo      uint64
	log     bytes.Buffer
}

func newFoldLab(t *testing.T, status message.Column) *foldLab {
	t.Helper()
	m, err := manifest.Open(t.Context(), manifest.Config{DSN: stack.MySQL(t), Source: "im"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	layout := snowflake.Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}
	l := &foldLab{t: t, m: m, warm: &warmRows{foldSchema(t, status), map[uint64][][]byte{}}, objects: wholeObjects{&fewObjects{held: map[string][]byte{}}}, day: snowflake.MakeDay(2020, 5, 1)}
	if l.lo, _, err = layout.Window(l.day, time.UTC); err != nil {
		t.Fatal(err)
	}
	l.a, err = New(Deps{Manifest: m, Tables: []Table{l.warm}, Objects: l.objects, Rows: &copiedRows{held: map[manifest.CopyID]*message.Batch{}}, Layout: layout, Zone: time.UTC,
		Source: "im", Owner: "test", Clock: time.Now, Log: slog.New(slog.NewTextHandler(&l.log, nil))}, Config{TempDir: t.TempDir(), Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *foldLab) row(n uint64, status []byte) {
	l.warm.rows[l.lo+n] = [][]byte{[]byte("c"), status, fmt.Appendf(nil, "body %d", n)}
}

func (l *foldLab) put(n uint64, conv string, kind manifest.StatusKind, value *string) {
	l.t.Helper()
	if _, err := l.m.PutStatus(l.t.Context(), manifest.Status{Conversation: []byte(conv), MessageID: l.lo + n, Kind: kind, Value: value, By: "test"}); err != nil {
		l.t.Fatal(err)
	}
}

// archive makes the slice's next generation and gives it as its commit record says.
func (l *foldLab) archive() *manifest.Copy {
	l.t.Helper()
	p, err := l.a.Plan(l.t.Context(), Selection{From: &l.day, To: &l.day})
	if err != nil {
		l.t.Fatal(err)
	}
	r, err := l.a.Run(l.t.Context(), p, NoProgress{})
	if err != nil || len(r.Done) != 1 {
		l.t.Fatalf("%+v, %v", r, err)
	}
	raw, err := l.objects.Get(l.t.Context(), manifest.RecordKey(r.Done[0].Slice, r.Done[0].Generation))
	if err != nil {
		l.t.Fatal(err)
	}
	c, err := manifest.DecodeRecord(raw)
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// purge deletes chunks by the present grant and then meets drift.
func (l *foldLab) purge(seqs ...int) {
	l.t.Helper()
	ctx := l.t.Context()
	s := l.slice()
	lease, err := l.m.Claim(ctx, s.ID, "purge", []manifest.State{manifest.Verified}, "")
	if err != nil {
		l.t.Fatal(err)
	}
	g, err := l.m.GrantPurge(ctx, lease, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, seq := range seqs {
		ch := g.Copy().Chunks[seq]
		for _, st := range []manifest.ChunkState{manifest.ChunkDeleting, manifest.ChunkDeleted} {
			if err := g.ChunkState(ctx, seq, st); err != nil {
				l.t.Fatal(err)
			}
		}
		for id := range l.warm.rows {
			if id >= ch.From && id < ch.To {
				delete(l.warm.rows, id)
			}
		}
	}
	if err := g.Drifted(ctx, "test"); err != nil {
		l.t.Fatal(err)
	}
}

func (l *foldLab) slice() manifest.Slice {
	l.t.Helper()
	all, err := l.m.Slices(l.t.Context(), manifest.Filter{From: &l.day, To: &l.day})
	if err != nil || len(all) != 1 {
		l.t.Fatalf("%+v, %v", all, err)
	}
	return all[0]
}

// read gives the status column of each row of a copy, as the bucket has it.
func (l *foldLab) read(c *manifest.Copy) map[uint64]string {
	l.t.Helper()
	got := map[uint64]string{}
	err := l.a.verifier.readBack(l.t.Context(), c, func(b *message.Batch) error {
		for i := range b.Len() {
			n := b.MessageID(i) - l.lo
			if want := fmt.Sprintf("body %d", n); string(b.Value(3, i)) != want {
				l.t.Errorf("message %d has another body", n)
			}
			got[n] = "NULL"
			if v := b.Value(2, i); v != nil {
				got[n] = string(v)
			}
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return got
}

func (l *foldLab) want(c *manifest.Copy, columns map[uint64]string, statuses map[uint64]string) {
	l.t.Helper()
	if d := cmp.Diff(columns, l.read(c)); d != "" {
		l.t.Errorf("generation %d, the columns:\n%s", c.Generation, d)
	}
	got := map[uint64]string{}
	for _, st := range c.Statuses {
		text := string(st.Kind)
		if st.Value != nil {
			text += " " + *st.Value
		}
		if o := st.Original; o != nil {
			text += fmt.Sprintf(" was %q", o.Value)
		}
		got[st.MessageID-l.lo] = text
	}
	if d := cmp.Diff(statuses, got); d != "" {
		l.t.Errorf("generation %d, the record's statuses:\n%s", c.Generation, d)
	}
}

// A generation has the statuses of its messages in its record, and in the status
// column of carried rows alone; a status that is taken back leaves the column as it was.
func TestStatusesAreFolded(t *testing.T) {
	t.Parallel()
	l := newFoldLab(t, message.Column{Kind: message.Int, Bits: 8, Nullable: true, SourceType: "tinyint(4)"})
	l.row(1, []byte("0"))
	l.row(2, nil)
	l.row(3, []byte("0"))
	l.row(4, []byte("0"))
	l.row(5, []byte("0"))
	l.row(200, []byte("0"))
	l.row(201, []byte("0"))
	l.put(201, "c", manifest.StatusEdited, new("5")) // before its message is archived
	c := l.archive()
	l.want(c, map[uint64]string{1: "0", 2: "NULL", 3: "0", 4: "0", 5: "0", 200: "0", 201: "0"}, map[uint64]string{201: "edited 5"})
	first := c.Fingerprint()

	l.put(1, "c", manifest.StatusRecalled, new("2"))
	l.put(2, "c", manifest.StatusRecalled, new("2"))
	l.put(3, "c", manifest.StatusDeleted, nil)
	l.put(4, "c", manifest.StatusEdited, new("many")) // is no number
	l.put(5, "another", manifest.StatusEdited, new("9"))
	l.put(200, "c", manifest.StatusRecalled, new("2"))
	l.put(250, "c", manifest.StatusRecalled, new("2")) // is no message
	l.purge(0)
	c = l.archive()
	l.want(c, map[uint64]string{1: "2", 2: "2", 3: "0", 4: "0", 5: "0", 200: "0", 201: "0"},
		map[uint64]string{1: `recalled 2 was "0"`, 2: `recalled 2 was ""`, 3: "deleted", 4: "edited many", 200: "recalled 2", 201: "edited 5"})
	if c.Statuses[1].Original.Value != nil {
		t.Error("the NULL of message 2 is forgotten")
	}
	if c.Fingerprint() == first || c.Chunks[0].Warm.Rows > 0 || c.Chunks[0].Carried.Rows != 5 {
		t.Errorf("the chunks are %+v", c.Chunks)
	}
	if text := l.log.String(); !strings.Contains(text, fmt.Sprintf("message=%d", l.lo+4)) || strings.Contains(text, "many") || strings.Count(text, "level=WARN") != 1 {
		t.Errorf("the log is %s", text)
	}
	s := l.slice()
	if s.State != manifest.Verified || s.Live != 2 {
		t.Fatalf("the slice is %+v", s)
	}

	// Taken back, they read as before at once, and in the next generation in the column.
	l.put(1, "c", manifest.StatusNone, nil)
	l.put(2, "c", manifest.StatusNone, nil)
	sts, err := l.m.Statuses(t.Context(), manifest.StatusQuery{Conversation: []byte("c"), From: l.lo + 1, To: l.lo + 2, Limit: 9})
	if err != nil || len(sts) != 2 || *sts[0].Value != "0" || sts[1].Value != nil || !sts[1].Null {
		t.Errorf("taken back: %+v, %v", sts, err)
	}
	l.put(3, "c", manifest.StatusRecalled, new("-128"))
	l.purge(1)
	c = l.archive()
	l.want(c, map[uint64]string{1: "0", 2: "NULL", 3: "-128", 4: "0", 5: "0", 200: "2", 201: "5"},
		map[uint64]string{1: `none was "0"`, 2: `none was ""`, 3: `recalled -128 was "0"`, 4: "edited many", 200: `recalled 2 was "0"`, 201: `edited 5 was "0"`})

	// A row that is in warm again is as warm has it, and nothing is left to be taken back.
	l.row(3, []byte("7"))
	l.purge()
	c = l.archive()
	l.want(c, map[uint64]string{1: "0", 2: "NULL", 3: "7", 4: "0", 5: "0", 200: "2", 201: "5"},
		map[uint64]string{1: `none was "0"`, 2: `none was ""`, 3: "recalled -128", 4: "edited many", 200: `recalled 2 was "0"`, 201: `edited 5 was "0"`})
	l.put(3, "c", manifest.StatusNone, nil)
	if sts, err := l.m.Statuses(t.Context(), manifest.StatusQuery{Conversation: []byte("c"), From: l.lo + 3, To: l.lo + 3, Limit: 9}); err != nil || len(sts) > 0 {
		t.Errorf("taken back: %+v, %v", sts, err)
	}
}

// A record that a dead worker put is taken over with its statuses; one that was put
// meanwhile is not taken for folded.
func TestAdoptedStatuses(t *testing.T) {
	t.Parallel()
	l := newFoldLab(t, message.Column{Kind: message.Text, SourceType: "varchar(8)"})
	l.row(1, []byte("sent"))
	l.row(200, []byte("sent"))
	l.archive()
	l.put(1, "c", manifest.StatusRecalled, new("recalled"))
	l.purge(0)
	l.a.Step = func(name string) error {
		if name == "archive.record-put" {
			return context.Canceled
		}
		return nil
	}
	p, err := l.a.Plan(t.Context(), Selection{From: &l.day, To: &l.day})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := l.a.Run(t.Context(), p, NoProgress{}); err != nil || len(r.Left) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	l.a.Step = nil
	l.put(1, "c", manifest.StatusEdited, nil)
	c := l.archive()
	l.want(c, map[uint64]string{1: "recalled", 200: "sent"}, map[uint64]string{1: `recalled recalled was "sent"`})
	sts, err := l.m.Statuses(t.Context(), manifest.StatusQuery{Conversation: []byte("c"), Limit: 9})
	if err != nil || len(sts) != 1 || sts[0].Kind != manifest.StatusEdited || sts[0].Value == nil || *sts[0].Value != "sent" {
		t.Errorf("statuses: %+v, %v", sts, err)
	}
}
