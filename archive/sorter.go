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

// blockRows and blockBytes bound the blocks in which sorted rows are handed on; a
// block ends at the first row that reaches either.
const (
	blockRows  = 8192
	blockBytes = 256 << 10
)

// A run is spilled in blocks of a 64th of what is gathered, within these bounds: a
// merge holds one block of each run, and has about 40 runs for each ten times that
// a slice is larger than archive.memory.
const (
	minSpill = 16 << 10
	maxSpill = 256 << 10
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
	codec  *codec
	plain  []byte // of the merge, one block at a time

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
func newSorter(s *message.Schema, dir string, limit int) (*sorter, error) {
	c, err := newCodec()
	if err != nil {
		return nil, fmt.Errorf("compressor: %w", err)
	}
	return &sorter{schema: s, dir: dir, codec: c, limit: max(limit, blockBytes), token: make(chan struct{}, 1)}, nil
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
		err := s.spill(name, full)
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

// blocks hands rows on in blocks of bounded size.
type blocks struct {
	schema *message.Schema
	bytes  int
	out    *message.Batch
	spare  *message.Batch // a block that fn gives back
	fn     func(*message.Batch) error
}

func (w *blocks) add(b *message.Batch, row int) error {
	if w.out == nil {
		if w.out, w.spare = w.spare, nil; w.out == nil {
			w.out = message.NewBatch(w.schema)
		} else {
			w.out.Reset()
		}
	}
	if err := w.out.AppendFrom(b, row); err != nil {
		return err
	}
	if w.out.Len() >= blockRows || w.out.Bytes() >= w.bytes {
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

// codec compresses blocks, each for itself, so that a run that is being read holds
// no more than its present block.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() (*codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(8<<30))
	return &codec{enc, dec}, err
}

// spill sorts batches and writes them to a file: for each block its compressed size,
// 8 bytes, and the block; a size of 0 ends the file.
func (s *sorter) spill(name string, batches []*message.Batch) (err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("spill to disk: %w (archive needs room in its temporary folder)", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("spill to disk: %w", cerr)
		}
	}()
	out := bufio.NewWriterSize(f, 64<<10)
	var plain, packed []byte
	write := func(block []byte) error {
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(block)))
		if _, err := out.Write(size[:]); err != nil {
			return err
		}
		_, err := out.Write(block)
		return err
	}
	w := blocks{schema: s.schema, bytes: min(max(s.limit/64, minSpill), maxSpill)}
	w.fn = func(b *message.Batch) error {
		plain = b.AppendBinary(plain[:0])
		packed = s.codec.enc.EncodeAll(plain, packed[:0])
		w.spare = b // it was written: its memory can be used again
		return write(packed)
	}
	for _, r := range sortRefs(batches) {
		if err := w.add(batches[r.batch], int(r.row)); err != nil {
			return fmt.Errorf("spill to disk: %w", err)
		}
	}
	if err := errors.Join(w.flush(), write(nil), out.Flush()); err != nil {
		return fmt.Errorf("spill to disk: %w", err)
	}
	return nil
}

// run reads one spilled run, block by block.
type run struct {
	s      *sorter
	f      *os.File
	at     int64
	packed []byte
	block  *message.Batch
	row    int
	order  int
}

func (s *sorter) openRun(name string, order int) (*run, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read back spilled rows: %w", err)
	}
	return &run{s: s, f: f, block: message.NewBatch(s.schema), order: order}, nil
}

func (r *run) close() { _ = r.f.Close() } // read only

// next reads the next block; io.EOF at the end of the run, never before.
func (r *run) next() error {
	var head [8]byte
	if _, err := r.f.ReadAt(head[:], r.at); err != nil {
		return fmt.Errorf("read back spilled rows: %w", noEOF(err))
	}
	n := binary.LittleEndian.Uint64(head[:])
	switch {
	case n == 0:
		return io.EOF
	case n > 4<<30:
		return errors.New("read back spilled rows: a block's size is damaged")
	}
	r.packed = slices.Grow(r.packed[:0], int(n))[:n]
	if _, err := r.f.ReadAt(r.packed, r.at+8); err != nil {
		return fmt.Errorf("read back spilled rows: %w", noEOF(err))
	}
	r.at += 8 + int64(n)
	var err error
	if r.s.plain, err = r.s.codec.dec.DecodeAll(r.packed, r.s.plain[:0]); err != nil {
		return fmt.Errorf("read back spilled rows: %w", err)
	}
	if err := r.block.DecodeBatch(r.s.plain); err != nil {
		return fmt.Errorf("read back spilled rows: %w", err)
	}
	if r.row = 0; r.block.Len() == 0 {
		return errors.New("read back spilled rows: a block is empty")
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
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
	out := blocks{schema: s.schema, bytes: blockBytes, fn: fn}
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
		if err := s.spill(name, batches); err != nil {
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
		r, err := s.openRun(name, i)
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
