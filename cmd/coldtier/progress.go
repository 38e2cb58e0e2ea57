package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// meter tells how long work goes: a bar on a terminal, a log line now and then
// elsewhere. It is safe for concurrent use.
type meter struct {
	mu      sync.Mutex
	what    string
	bar     *progressbar.ProgressBar // nil: log lines
	bars    *barGuard
	log     *slog.Logger
	now     func() time.Time
	begun   time.Time
	told    time.Time
	bySlice bool // rows are told slice by slice
	slices  int
	done    int
	rows    int
}

// tellEvery is the pause between log lines.
const tellEvery = 10 * time.Second

func (a *app) newMeter(what string) *meter {
	m := &meter{what: what, log: a.log, now: a.now, begun: a.now()}
	m.told = m.begun
	if a.terminal {
		m.bar = progressbar.NewOptions(-1, progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
		m.bars = a.bars
		m.bars.set(m.bar)
	}
	return m
}

// Slices says how many slices there are.
func (m *meter) Slices(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slices += n
	if m.bar != nil {
		m.bar.ChangeMax(m.slices)
	}
}

// Rows counts rows that were read.
func (m *meter) Rows(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows += n
	m.tell()
}

// SliceDone counts a slice, and its rows where Rows does not.
func (m *meter) SliceDone(rows int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done++
	if m.bySlice {
		m.rows += rows
	}
	if m.bar != nil {
		_ = m.bar.Add(1) // a bar that cannot be drawn is no error of the work
	}
	m.tell()
}

func (m *meter) tell() {
	if m.bar != nil {
		m.bar.Describe(fmt.Sprintf("%s, %s", m.what, count(m.rows, "row")))
		return
	}
	if now := m.now(); now.Sub(m.told) >= tellEvery {
		m.told = now
		m.log.Info(m.what, "slices_done", m.done, "slices", m.slices, "rows", m.rows, "rows_per_second", int(float64(m.rows)/now.Sub(m.begun).Seconds()))
	}
}

// end removes the bar. It may be called again.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bar == nil {
		return
	}
	_ = m.bar.Exit() // ends its goroutine
	_ = m.bar.Clear()
	m.bar = nil
	m.bars.set(nil)
}

// barGuard writes log lines above a bar instead of into it, and without secrets.
type barGuard struct {
	mu  sync.Mutex
	a   *app
	w   io.Writer
	bar *progressbar.ProgressBar
}

func (g *barGuard) set(b *progressbar.ProgressBar) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bar = b
}

func (g *barGuard) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bar != nil {
		_ = g.bar.Clear()
	}
	if _, err := io.WriteString(g.w, g.a.redactor.Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
