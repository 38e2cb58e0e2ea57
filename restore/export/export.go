package export

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/selection"
)

// Format is how rows are written.
type Format string

// The formats.
const (
	NDJSON  Format = "ndjson"
	CSV     Format = "csv"
	Parquet Format = "parquet"
)

// Options say how rows are written.
type Options struct {
	Format   Format
	Withheld bool     // give also what readers may not see of recalled and deleted messages
	Progress Progress // nil: nobody is told
}

// Progress is told how far an export is.
type Progress interface {
	Slices(n int)
	Rows(n int)
	SliceDone(rows int)
}

// Report is what an export wrote.
type Report struct {
	Format   Format              `json:"format"`
	Slices   int                 `json:"slices"`
	Rows     uint64              `json:"rows"`
	Bytes    int64               `json:"bytes"` // written
	Statuses uint64              `json:"statuses"`
	Withheld uint64              `json:"withheld"` // rows of which something is kept back
	Read     int64               `json:"bytes_read"`
	Requests int                 `json:"bucket_requests"`
	Damaged  []*selection.Damage `json:"damaged,omitempty"`
}

// Left is how many rows may have been left out: of a damaged part not all need be
// selected.
func (r *Report) Left() (n int64) {
	for _, d := range r.Damaged {
		if !d.Replaced {
			n += d.Rows
		}
	}
	return n
}

// ErrFormat says that there is no such format.
var ErrFormat = errors.New("unknown export format")

// encoder writes rows in a format.
type encoder interface {
	row(r *row) error
	close() error
}

// row is a row by the export's columns.
type row struct {
	id       uint64
	values   [][]byte         // canonical texts; nil: NULL
	source   []message.Column // what the texts are of, where there is one
	status   *manifest.Status // nil: none
	withheld []string         // columns that are kept back
}

// Run writes the selected rows to w. When rows are lost all others are written, and the
// error is selection.ErrLost; after any other error what was written is no export.
func Run(ctx context.Context, r *selection.Reader, sel selection.Selection, w io.Writer, o Options) (*Report, error) {
	rep := &Report{Format: o.Format}
	list, err := r.Slices(ctx, sel)
	if err != nil {
		return rep, err
	}
	cols := columnsOf(list)
	count := &counter{w: w}
	out := bufio.NewWriterSize(count, 1<<20)
	x := &exporter{r: r, sel: sel, o: o, rep: rep, cols: cols}
	switch o.Format {
	case NDJSON:
		x.enc = newNDJSON(out, cols)
	case CSV:
		x.enc, err = newCSV(out, cols)
	case Parquet:
		x.enc, err = newParquet(out, cols)
	default:
		err = fmt.Errorf("%w %q: want %s, %s or %s", ErrFormat, o.Format, NDJSON, CSV, Parquet)
	}
	if err != nil {
		return rep, err
	}
	if o.Progress != nil {
		o.Progress.Slices(len(list))
	}
	var lost []error
	for _, s := range list {
		if err := x.slice(ctx, s); errors.Is(err, selection.ErrLost) {
			lost = append(lost, err)
		} else if err != nil {
			return rep, err
		}
	}
	if err := x.enc.close(); err != nil {
		return rep, fmt.Errorf("end the %s export: %w", o.Format, err)
	}
	if err := out.Flush(); err != nil {
		return rep, fmt.Errorf("write the %s export: %w", o.Format, err)
	}
	rep.Bytes = count.n
	return rep, errors.Join(lost...)
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

type exporter struct {
	r    *selection.Reader
	sel  selection.Selection
	o    Options
	rep  *Report
	cols *columns
	enc  encoder
}

// slice writes a slice's rows.
func (x *exporter) slice(ctx context.Context, s selection.Slice) error {
	// Read before the rows are: one that is put between is in neither or in the column alone.
	statuses, err := x.r.Manifest.StatusesBetween(ctx, s.From, s.To)
	if err != nil {
		return fmt.Errorf("slice %s: %w", s.SliceKey, err)
	}
	read, err := x.r.Read(ctx, x.sel, s, func(b *message.Batch) error { return x.batch(b, statuses) })
	x.rep.Slices++
	x.rep.Read += read.Bytes
	x.rep.Requests += read.Requests
	x.rep.Damaged = append(x.rep.Damaged, read.Damaged...)
	if x.o.Progress != nil {
		x.o.Progress.SliceDone(int(min(read.Rows, 1<<31-1)))
	}
	return err
}

func (x *exporter) batch(b *message.Batch, statuses []manifest.FoldedStatus) error {
	r, at, err := x.cols.row(b.Schema())
	if err != nil {
		return err
	}
	for i := range b.Len() {
		r.id = b.MessageID(i)
		for c, from := range at {
			if r.values[c] = nil; from >= 0 {
				r.values[c] = b.Value(from, i)
			}
		}
		x.status(r, at, b, i, statuses)
		if err := x.enc.row(r); err != nil {
			return fmt.Errorf("message %d: %w", r.id, err)
		}
	}
	x.rep.Rows += uint64(b.Len()) //nolint:gosec // not negative
	if x.o.Progress != nil {
		x.o.Progress.Rows(b.Len())
	}
	return nil
}

// status tells the status of a row, and keeps back what is to be.
func (x *exporter) status(r *row, at []int, b *message.Batch, i int, all []manifest.FoldedStatus) {
	r.status, r.withheld = nil, r.withheld[:0]
	st := find(all, b, i)
	if st == nil || st.Kind == manifest.StatusNone {
		return
	}
	if x.sel.Until == nil || !st.At.After(*x.sel.Until) {
		r.status = st
		x.rep.Statuses++
	}
	if x.o.Withheld || !st.Kind.Hides() {
		return
	}
	reader := restore.Row{Batch: b, Index: i, Status: st}
	for c, from := range at {
		if from >= 0 && reader.Withheld(from) {
			r.values[c] = nil
			r.withheld = append(r.withheld, x.cols.all[c].Name)
		}
	}
	if len(r.withheld) > 0 {
		x.rep.Withheld++
	}
}

// find gives the status of a row, which goes by message and conversation.
func find(all []manifest.FoldedStatus, b *message.Batch, i int) *manifest.Status {
	id := b.MessageID(i)
	at, _ := slices.BinarySearchFunc(all, id, func(s manifest.FoldedStatus, id uint64) int {
		switch {
		case s.MessageID < id:
			return -1
		case s.MessageID > id:
			return 1
		}
		return 0
	})
	for ; at < len(all) && all[at].MessageID == id; at++ {
		if string(all[at].Conversation) == string(b.Conversation(i)) {
			return &all[at].Status
		}
	}
	return nil
}
