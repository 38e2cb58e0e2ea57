package rpc

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// recheck is how often a watched file is looked at.
const recheck = time.Second

// watched is what some files say, read anew when one of them changes. When they then
// cannot be read, what they said before goes on to count and the log says so: a half
// written file must not lock everybody out.
type watched[T any] struct {
	paths []string
	parse func(contents [][]byte) (T, error)
	now   func() time.Time
	log   *slog.Logger

	mu     sync.Mutex
	value  T
	infos  []fs.FileInfo
	looked time.Time
}

// watch reads the files for the first time, when any fault is an error.
func watch[T any](now func() time.Time, log *slog.Logger, parse func([][]byte) (T, error), paths ...string) (*watched[T], error) {
	w := &watched[T]{paths: paths, parse: parse, now: now, log: log, looked: now()}
	var err error
	w.infos, err = w.stat()
	if err != nil {
		return nil, err
	}
	if w.value, err = w.read(); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *watched[T]) stat() ([]fs.FileInfo, error) {
	infos := make([]fs.FileInfo, len(w.paths))
	for i, p := range w.paths {
		var err error
		if infos[i], err = os.Stat(p); err != nil {
			return nil, fmt.Errorf("look at a file that callers are known by: %w", err)
		}
	}
	return infos, nil
}

func (w *watched[T]) read() (T, error) {
	var none T
	contents := make([][]byte, len(w.paths))
	for i, p := range w.paths {
		var err error
		if contents[i], err = os.ReadFile(p); err != nil {
			return none, fmt.Errorf("read a file that callers are known by: %w", err)
		}
	}
	v, err := w.parse(contents)
	if err != nil {
		return none, fmt.Errorf("%s: %w", w.paths[0], err)
	}
	return v, nil
}

// get is what the files say now, or said at most recheck ago.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if now.Sub(w.looked) < recheck && !now.Before(w.looked) {
		return w.value
	}
	w.looked = now
	infos, err := w.stat()
	if err != nil {
		w.log.Error("what it said before goes on to count", "error", err)
		return w.value
	}
	if w.same(infos) {
		return w.value
	}
	// A file that is being written is read again when it has changed once more.
	w.infos = infos
	v, err := w.read()
	if err != nil {
		w.log.Error("what it said before goes on to count", "error", err)
		return w.value
	}
	w.value = v
	w.log.Info("read anew", "file", w.paths[0])
	return w.value
}

func (w *watched[T]) same(infos []fs.FileInfo) bool {
	for i, n := range infos {
		o := w.infos[i]
		if !os.SameFile(o, n) || !o.ModTime().Equal(n.ModTime()) || o.Size() != n.Size() {
			return false
		}
	}
	return true
}
