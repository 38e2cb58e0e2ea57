package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
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
	of      int // rows there will be; 0: unknown, and the bar counts slices
}

// tellEvery is the pause between log lines.
const tellEvery = 10 * time.Second

func (a *app) newMeter(what string) *meter {
	return a.meterOf(&meter{what: what}, -1)
}

// newRowMeter is a meter of work whose rows are known before, so that it tells when the
// work will have ended.
func (a *app) newRowMeter(what string, rows uint64, slices int) *meter {
	of := int(rows) //nolint:gosec // a count of rows
	return a.meterOf(&meter{what: what, of: of, slices: slices}, of, progressbar.OptionShowIts(), progressbar.OptionSetItsString("rows"), progressbar.OptionSetPredictTime(true))
}

func (a *app) meterOf(m *meter, of int, options ...progressbar.Option) *meter {
	m.log, m.now, m.begun = a.log, a.now, a.now()
	m.told = m.begun
	if a.terminal {
		m.bar = progressbar.NewOptions(of, append(options, progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetDescription(m.what),
			progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())...)
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
	m.tell()
}

// tell draws the bar; one that cannot be drawn is no error of the work.
func (m *meter) tell() {
	if m.bar != nil {
		if m.of > 0 {
			_ = m.bar.Set(min(m.rows, m.of))
			m.bar.Describe(fmt.Sprintf("%s of %s", humanize.Comma(int64(m.done)), count(m.slices, "slice")))
			return
		}
		_ = m.bar.Set(m.done)
		m.bar.Describe(fmt.Sprintf("%s, %s", m.what, count(m.rows, "row")))
		return
	}
	now := m.now()
	if now.Sub(m.told) < tellEvery {
		return
	}
	m.told = now
	rate := float64(m.rows) / now.Sub(m.begun).Seconds()
	told := []any{"slices_done", m.done, "slices", m.slices, "rows", m.rows, "rows_per_second", int(rate)}
	if m.of > 0 && m.rows > 0 {
		left := time.Duration(float64(max(m.of-m.rows, 0)) / rate * float64(time.Second))
		told = append(told, "of_rows", m.of, "eta", left.Round(time.Second).String())
	}
	m.log.Info(m.what, told...)
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
