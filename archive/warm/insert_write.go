package warm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
)

// Written is what became of rows.
type Written struct {
	Inserted  uint64
	Present   uint64 // were there, equal
	Conflicts []Conflict
	Refused   []Refused
}

// Conflict is a row that the table has with other values, or whose place in a unique key
// another row has. The table's row was left as it is.
type Conflict struct {
	MessageID uint64
	Columns   []string // of the message's own row, that differ
	Key       string   // in which another row has its place
	Archived  message.Fingerprint
	Found     message.Fingerprint // of the message's own row; none where another row is in its place
}

// Refused is a row that the table cannot hold as it was archived.
type Refused struct {
	MessageID uint64
	Reason    string // without values
	Archived  message.Fingerprint
}

// Write puts rows into the table that are not in it; none that is there is changed. What
// it does not put is in what it gives. It may be repeated: with ErrAgain, what it did is
// not known. fresh says that most likely none of the rows is there.
func (k *Sink) Write(ctx context.Context, b *message.Batch, fresh bool) (Written, error) {
	w := &writing{k: k, b: b, text: k.x.t.buffer()}
	err := w.write(ctx, fresh)
	k.x.t.buffers.Put(&w.text)
	if err != nil {
		err = fmt.Errorf("table %s.%s: write messages: %w", k.x.t.d.name, k.x.name, err)
	}
	return w.out, err
}

// Compare is Write that writes nothing: rows that are not there are counted as absent.
func (k *Sink) Compare(ctx context.Context, b *message.Batch) (w Written, absent []uint64, err error) {
	x := &writing{k: k, b: b}
	fail := func(err error) (Written, []uint64, error) {
		return x.out, absent, fmt.Errorf("table %s.%s: compare messages: %w", k.x.t.d.name, k.x.name, err)
	}
	s, err := k.x.t.d.session(ctx)
	if err != nil {
		return fail(again(ctx, err))
	}
	defer s.close(ctx)
	left, err := x.sort(ctx, s, x.all())
	if err != nil {
		return fail(again(ctx, err))
	}
	for _, i := range left {
		absent = append(absent, b.MessageID(i))
	}
	return x.out, absent, nil
}

// writing is one call of Write.
type writing struct {
	k    *Sink
	b    *message.Batch
	s    *session
	h    message.Hasher
	out  Written
	text []byte
}

func (w *writing) all() []int {
	rows := make([]int, w.b.Len())
	for i := range rows {
		rows[i] = i
	}
	return rows
}

func (w *writing) write(ctx context.Context, fresh bool) (err error) {
	if w.s, err = w.k.x.t.d.session(ctx); err != nil {
		return again(ctx, err)
	}
	defer func() { w.s.close(ctx) }()
	rows := w.all()
	if !fresh {
		if rows, err = w.sort(ctx, w.s, rows); err != nil {
			return again(ctx, err)
		}
	}
	return again(ctx, w.each(ctx, rows))
}

// again marks errors after which the same may be tried again.
func again(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if !answered(err) && !errors.Is(err, errOurs) || errors.Is(err, ErrLocked) || errors.Is(err, ErrUnclear) || goneAway(err) {
		return fmt.Errorf("%w: %w", ErrAgain, err)
	}
	return err
}

// errOurs marks errors that no server has part in.
var errOurs = errors.New("internal")

// goneAway says whether a server's answer is that it ends the connection.
func goneAway(err error) bool {
	// Shutdown, a killed connection, too many of them, a statement killed, and not ready yet.
	return slices.Contains([]uint16{1053, 1927, 1040, 1317, 1080, 4031, 3169}, number(err))
}

// statementBytes is what the text of an INSERT is to have: more costs the server no less.
// LOAD DATA, which takes a few round trips more, has loadBytes, in which there is room
// for a batch of 4 MiB and the row that fills it.
const (
	statementBytes = 1 << 20
	loadBytes      = 5 << 20
)

// fill is how many of the first rows make a statement.
func (w *writing) fill(rows []int) int {
	limit := min(statementBytes, w.k.x.t.packet/2) // literals are longer than values
	if w.k.x.t.load.Load() {
		limit = loadBytes
	}
	if len(rows) == w.b.Len() && w.b.Bytes() <= limit { // which is no less than their size
		return len(rows)
	}
	n, size := 0, 0
	for _, i := range rows {
		size += w.size(i)
		if n > 0 && size > limit {
			break
		}
		n++
	}
	return n
}

// size is the bytes of a row's values, about.
func (w *writing) size(i int) (n int) {
	for _, c := range w.k.insert {
		n += len(w.b.Value(c, i)) + 4
	}
	return n
}

// put inserts rows that are not there, in one statement, or in halves and at last one by
// one when the server refuses it because of some of them.
func (w *writing) put(ctx context.Context, rows []int) error {
	t := w.k.x.t
	// One row goes by an INSERT, whose errors say more, unless it is longer than a packet:
	// LOAD DATA comes in as many as it takes.
	if t.load.Load() && (len(rows) > 1 || w.size(rows[0]) > t.packet/2) {
		ok, err := w.load(ctx, rows)
		if ok || err != nil {
			return err
		}
	}
	w.insert(rows)
	if len(w.text) > t.packet-packetSlack {
		if len(rows) == 1 {
			return w.bound(ctx, rows[0])
		}
		return w.halves(ctx, rows)
	}
	err := w.statement(ctx, rows, string(w.text))
	switch {
	case err == nil:
		w.out.Inserted += uint64(len(rows))
		return nil
	case !ofRows(err):
		return full(err)
	case len(rows) == 1:
		return w.one(ctx, rows[0], err)
	case isDuplicate(err): // of those that have come to be there, or of another unique key
		left, err := w.sort(ctx, w.s, rows)
		if err != nil {
			return err
		}
		if len(left) < len(rows) {
			return w.each(ctx, left)
		}
	}
	return w.halves(ctx, rows)
}

func (w *writing) halves(ctx context.Context, rows []int) error {
	half := len(rows) / 2
	if err := w.put(ctx, rows[:half]); err != nil {
		return err
	}
	return w.put(ctx, rows[half:])
}

// each puts rows in as many statements as it takes.
func (w *writing) each(ctx context.Context, rows []int) error {
	for len(rows) > 0 {
		n := w.fill(rows)
		if err := w.put(ctx, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// insert makes the text of an INSERT in w.text.
func (w *writing) insert(rows []int) {
	k := w.k
	w.text = append(w.text[:0], "INSERT INTO "+k.x.quoted+" ("+k.into+") VALUES "...)
	for n, i := range rows {
		if n > 0 {
			w.text = append(w.text, ',')
		}
		w.text = append(w.text, '(')
		for m, c := range k.insert {
			if m > 0 {
				w.text = append(w.text, ',')
			}
			w.text = appendValue(w.text, k.x.columns[k.at[c]], w.b.Value(c, i))
		}
		w.text = append(w.text, ')')
	}
}

// statement runs an INSERT of rows. Where the columns' types do not promise it, the rows
// are read back before they are committed.
func (w *writing) statement(ctx context.Context, rows []int, text string) error {
	if w.k.exact {
		_, err := w.s.exec(ctx, text)
		return err
	}
	return w.checked(ctx, rows, func() error {
		_, err := w.s.exec(ctx, text)
		return err
	})
}

// alteredError says that rows were other rows when they were in the table.
type alteredError struct{ columns []string }

func (e *alteredError) Error() string {
	return "written into column " + strings.Join(e.columns, ", ") + " the archived value becomes another"
}

// checked inserts rows in a transaction, and commits only when they are in the table as
// they were archived.
func (w *writing) checked(ctx context.Context, rows []int, insert func() error) error {
	if err := w.s.begin(ctx); err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			w.s.rollback(ctx)
		}
	}()
	if err := insert(); err != nil {
		return err
	}
	have, err := w.existing(ctx, w.s, rows)
	if err != nil {
		return err
	}
	for _, i := range rows {
		if f, ok := have[w.b.MessageID(i)]; !ok || f.hash != w.h.Batch(w.b, i, i+1) {
			return &alteredError{f.columns}
		}
	}
	committed = true
	return w.s.commit(ctx)
}

// load runs a LOAD DATA of rows. LOCAL makes of every error a warning, and skips what it
// cannot put: so it counts only where it put all rows without one. Not ok: nothing was
// written, and an INSERT says why.
func (w *writing) load(ctx context.Context, rows []int) (ok bool, err error) {
	k, t := w.k, w.k.x.t
	w.text = w.text[:0]
	for _, i := range rows {
		for m, c := range k.insert {
			if m > 0 {
				w.text = append(w.text, '\t')
			}
			w.text = appendField(w.text, w.b.Value(c, i))
		}
		w.text = append(w.text, '\n')
	}
	name := fmt.Sprintf("%s-%d", t.handler, t.handled.Add(1))
	text := w.text
	mysql.RegisterReaderHandler(name, func() io.Reader { return bytes.NewReader(text) })
	defer mysql.DeregisterReaderHandler(name)
	var n int64
	run := func() error {
		r, err := w.s.exec(ctx, "LOAD DATA LOCAL INFILE 'Reader::"+name+"' INTO TABLE "+k.x.quoted+" CHARACTER SET binary FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' ("+
			strings.Join(k.vars, ", ")+")"+k.sets)
		if err != nil {
			return err
		}
		if n, err = r.RowsAffected(); err != nil {
			return err
		}
		var warnings int
		if err := w.s.row(ctx, "SELECT @@warning_count", &warnings); err != nil {
			return err
		}
		if n != int64(len(rows)) || warnings > 0 {
			return errSkipped
		}
		return nil
	}
	if w.k.exact {
		err = w.transaction(ctx, run)
	} else {
		err = w.checked(ctx, rows, run)
	}
	var altered *alteredError
	switch {
	case err == nil:
		w.out.Inserted += uint64(len(rows))
		return true, nil
	case errors.Is(err, errSkipped), errors.As(err, &altered):
		return false, nil
	}
	if err = full(err); !answered(err) || goneAway(err) || errors.Is(err, ErrLocked) || errors.Is(err, ErrUnclear) || errors.Is(err, ErrFull) {
		return false, err
	}
	t.load.Store(false) // the server, or what stands before it, does not take it after all
	return false, nil
}

var errSkipped = errors.New("not all rows were put without a warning")

// transaction runs inserts in a transaction. Nothing is read in it, so its level is the
// server's.
func (w *writing) transaction(ctx context.Context, do func() error) error {
	if _, err := w.s.exec(ctx, "START TRANSACTION"); err != nil {
		return err
	}
	if err := do(); err != nil {
		w.s.rollback(ctx)
		return err
	}
	return w.s.commit(ctx)
}
