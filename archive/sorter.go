package archive

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/coldtier/coldtier/archive/message"
)

// blockRows and blockBytes bound the blocks in which sorted rows are spilled and
// handed on; a block ends at the first row that reaches either.
const (
	blockRows  = 8192
	blockBytes = 256 << 10
)

// sorter sorts the rows of a slice by message.Compare in bounded memory: rows
// gather in memory; when they pass a limit they are sorted and spilled to a
// compressed file (a run); at the end the runs are merged. A spilled row that
// comes back damaged is found by zstd's checksum, and by the verification of the
// copy against the fingerprint that the scan computed.
type sorter struct {
	schema *message.Schema
	dir    string // for the runs; removed by close
	limit  int    // bytes gathered before a spill

	mu     sync.Mutex
	cur    []*message.Batch
	bytes  int
	rows   int
	runs   []string
	closed bool

	spills sync.WaitGroup
	token  chan struct{} // one spill at a time: it and the gathering rows are all that is in memory
	err    error         // of a spill; first one
}

// newSorter makes a sorter that holds at most about twice limit bytes.
func newSorter(s *message.Schema, dir string, limit int) *sorter {
	return &sorter{schema: s, dir: dir, limit: max(limit, blockBytes), token: make(chan struct{}, 1)}
}

// add takes a copy of a batch's rows. It may be called from several goroutines.
func (s *sorter) add(b *message.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	c := b.Clone()
	s.mu.Lock()
	if s.err != nil || s.closed {
		defer s.mu.Unlock()
		if s.err == nil {
			return errors.New("sorter is closed")
		}
		return s.err
	}
	s.cur, s.bytes, s.rows = append(s.cur, c), s.bytes+c.Memory(), s.rows+c.Len()
	if s.bytes < s.limit {
		s.mu.Unlock()
		return nil
	}
	full, name := s.cut()
	s.mu.Unlock()
	s.token <- struct{}{} // waits for the spill before this one: bounds the memory
	s.spills.Add(1)
	go func() {
		defer s.spills.Done()
		err := spill(name, s.schema, full)
		<-s.token
		if err != nil {
			s.mu.Lock()
			s.err = cmp.Or(s.err, err)
			s.mu.Unlock()
		}
	}()
	return nil
}

// cut takes the gathered rows out and names the run they will be. The caller holds mu.
func (s *sorter) cut() ([]*message.Batch, string) {
	full := s.cur
	s.cur, s.bytes = nil, 0
	name := filepath.Join(s.dir, fmt.Sprintf("run-%05d.zst", len(s.runs)))
	s.runs = append(s.runs, name)
	return full, name
}

// ref is a row of one of several batches with what decides most comparisons.
type ref struct {
	conv   uint64 // first bytes of the conversation ID
	cursor uint64
	batch  int32
	row    int32
}

func sortRefs(batches []*message.Batch) []ref {
	n := 0
	for _, b := range batches {
		n += b.Len()
	}
	refs := make([]ref, 0, n)
	for i, b := range batches {
		for r := range b.Len() {
			var prefix [8]byte
			copy(prefix[:], b.Conversation(r))
			refs = append(refs, ref{binary.BigEndian.Uint64(prefix[:]), b.Cursor(r), int32(i), int32(r)})
		}
	}
	slices.SortFunc(refs, func(x, y ref) int {
		if x.conv != y.conv {
			return cmp.Compare(x.conv, y.conv)
		}
		return message.Compare(batches[x.batch], int(x.row), batches[y.batch], int(y.row))
	})
	return refs
}

// blocks hands rows on in blocks of bounded size; each block is new.
type blocks struct {
	schema *message.Schema
	out    *message.Batch
	fn     func(*message.Batch) error
}

func (w *blocks) add(b *message.Batch, row int) error {
	if w.out == nil {
		w.out = message.NewBatch(w.schema)
	}
	if err := w.out.AppendFrom(b, row); err != nil {
		return err
	}
	if w.out.Len() >= blockRows || w.out.Bytes() >= blockBytes {
		return w.flush()
	}
	return nil
}

func (w *blocks) flush() error {
	if w.out == nil {
		return nil
	}
	b := w.out
	w.out = nil
	return w.fn(b)
}

func spill(name string, s *message.Schema, batches []*message.Batch) (err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("spill to disk: %w (archive needs room in its temporary folder)", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("spill to disk: %w", cerr)
		}
	}()
	zw, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		return fmt.Errorf("spill to disk: %w", err)
	}
	var buf []byte
	w := blocks{schema: s, fn: func(b *message.Batch) error {
		buf = b.AppendBinary(buf[:0])
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(buf)))
		if _, err := zw.Write(size[:]); err != nil {
			return err
		}
		_, err := zw.Write(buf)
		return err
	}}
	for _, r := range sortRefs(batches) {
		if err := w.add(batches[r.batch], int(r.row)); err != nil {
			return fmt.Errorf("spill to disk: %w", err)
		}
	}
	if err := errors.Join(w.flush(), zw.Close()); err != nil {
		return fmt.Errorf("spill to disk: %w", err)
	}
	return nil
}

// run reads one spilled run, block by block.
type run struct {
	f     *os.File
	z     *zstd.Decoder
	buf   []byte
	block *message.Batch
	row   int
	order int
}

func openRun(name string, s *message.Schema, order int) (*run, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read back spilled rows: %w", err)
	}
	z, err := zstd.NewReader(bufio.NewReaderSize(f, 64<<10), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(1<<20))
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("read back spilled rows: %w", err)
	}
	return &run{f: f, z: z, block: message.NewBatch(s), order: order}, nil
}

func (r *run) close() {
	r.z.Close()
	_ = r.f.Close() // read only
}

// next reads the next block; io.EOF at the end.
func (r *run) next() error {
	var size [8]byte
	if _, err := io.ReadFull(r.z, size[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		return fmt.Errorf("read back spilled rows: %w", err)
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > 4<<30 {
		return errors.New("read back spilled rows: block size is damaged")
	}
	r.buf = slices.Grow(r.buf[:0], int(n))[:n]
	if _, err := io.ReadFull(r.z, r.buf); err != nil {
		return fmt.Errorf("read back spilled rows: %w", err)
	}
	if err := r.block.DecodeBatch(r.buf); err != nil {
		return fmt.Errorf("read back spilled rows: %w", err)
	}
	r.row = 0
	return nil
}

type runHeap []*run

func (h runHeap) Len() int { return len(h) }
func (h runHeap) Less(i, j int) bool {
	if c := message.Compare(h[i].block, h[i].row, h[j].block, h[j].row); c != 0 {
		return c < 0
	}
	return h[i].order < h[j].order
}
func (h runHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)   { *h = append(*h, x.(*run)) }
func (h *runHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// sorted hands all rows to fn in order, in blocks that fn may keep. It ends the
// gathering: add fails from then on.
func (s *sorter) sorted(fn func(*message.Batch) error) error {
	s.spills.Wait()
	s.mu.Lock()
	s.closed = true
	err := s.err
	batches := s.cur
	s.cur, s.bytes = nil, 0
	s.mu.Unlock()
	if err != nil {
		return err
	}
	out := blocks{schema: s.schema, fn: fn}
	if len(s.runs) == 0 {
		for _, r := range sortRefs(batches) {
			if err := out.add(batches[r.batch], int(r.row)); err != nil {
				return err
			}
		}
		return out.flush()
	}
	if len(batches) > 0 {
		name := filepath.Join(s.dir, "run-last.zst")
		if err := spill(name, s.schema, batches); err != nil {
			return err
		}
		s.runs = append(s.runs, name)
	}
	return s.merge(&out)
}

func (s *sorter) merge(out *blocks) error {
	var h runHeap
	defer func() {
		for _, r := range h {
			r.close()
		}
	}()
	for i, name := range s.runs {
		r, err := openRun(name, s.schema, i)
		if err != nil {
			return err
		}
		h = append(h, r)
		if err := r.next(); err != nil {
			return err
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		r := h[0]
		if err := out.add(r.block, r.row); err != nil {
			return err
		}
		r.row++
		if r.row == r.block.Len() {
			if err := r.next(); errors.Is(err, io.EOF) {
				heap.Pop(&h)
				r.close()
				continue
			} else if err != nil {
				return err
			}
		}
		heap.Fix(&h, 0)
	}
	return out.flush()
}

// close waits for what is under way and removes the spilled files.
func (s *sorter) close() error {
	s.spills.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, name := range s.runs {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove spilled rows: %w", err))
		}
	}
	s.runs, s.cur = nil, nil
	return errors.Join(errs...)
}
