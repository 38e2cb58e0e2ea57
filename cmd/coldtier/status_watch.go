package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/coldtier/coldtier/cmd/coldtier/status"
)

// gatherTimeout is how long a watched manifest may take to answer.
const gatherTimeout = 30 * time.Second

// watched is what a watch knows: the last report, and since when there is none.
type watched struct {
	last *status.Report
	at   time.Time // when it came
	err  error     // of the last question; nil: it was answered
	away time.Time // when the first question that was not answered began
	asks time.Time // when the question that is under way began; zero: none is
}

// note takes the end of a question.
func (s *watched) note(r *status.Report, err error, now time.Time) {
	switch {
	case err == nil:
		s.last, s.at, s.err, s.away = r, now, nil, time.Time{}
	case s.err == nil:
		s.err, s.away = err, s.asks
	default:
		s.err = err
	}
	s.asks = time.Time{}
}

// watchStatus shows the status again and again until ctx ends, which is its good end.
func (a *app) watchStatus(ctx context.Context, g *status.Gatherer, q status.Query, look statusLook, every time.Duration) error {
	show := a.statusLines()
	resized := make(chan os.Signal, 1)
	if f, ok := a.stdout.(*os.File); ok && isTerminal(f) {
		s := openScreen(f)
		defer s.close()
		signal.Notify(resized, syscall.SIGWINCH)
		defer signal.Stop(resized)
		show = func(w *watched, now time.Time) { s.draw(a.watchText(w, look, every, now)) }
	}
	type answer struct {
		r   *status.Report
		err error
	}
	answers := make(chan answer, 1)
	w := &watched{}
	ask := func() {
		w.asks = a.now()
		go func() {
			ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
			defer cancel()
			r, err := g.Gather(ctx, q)
			answers <- answer{r, err}
		}()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	ask()
	for {
		select {
		case x := <-answers:
			w.note(x.r, x.err, a.now())
		case <-tick.C:
			if w.asks.IsZero() {
				ask()
				continue // its answer is shown
			}
		case <-resized:
		case <-ctx.Done():
			return nil
		}
		if ctx.Err() != nil { // what was asked may have ended for it
			return nil
		}
		show(w, a.now())
	}
}

// watchText is what is drawn: the last report, and above it what is wrong with it.
func (a *app) watchText(w *watched, look statusLook, every time.Duration, now time.Time) func(width int) string {
	return func(width int) string {
		look.width = width
		var b strings.Builder
		p := &painter{&b, look}
		switch {
		case w.err != nil:
			p.line("%s since %s (%s): %s", p.code("1;37;41", " THE MANIFEST DOES NOT ANSWER "), stamp(w.away), status.Span(now.Sub(w.away)), printable(a.redact(w.err.Error())))
			if w.last != nil {
				p.line("below is what it said %s ago", status.Span(now.Sub(w.at)))
			}
			p.put("")
		case !w.asks.IsZero() && now.Sub(w.asks) > every:
			p.line("the manifest was asked %s ago", status.Span(now.Sub(w.asks)))
			p.put("")
		}
		if w.last != nil {
			drawStatus(&b, w.last, look)
		}
		return b.String()
	}
}

func (a *app) redact(s string) string {
	if a.redactor == nil {
		return s
	}
	return a.redactor.Text(s)
}

// statusLines shows a watch where there is no terminal: a line when something changed.
func (a *app) statusLines() func(*watched, time.Time) {
	said, away := "", false
	return func(w *watched, now time.Time) {
		if w.err != nil {
			if !away {
				fmt.Fprintf(a.stdout, "%s  the manifest does not answer: %s\n", stamp(now), printable(a.redact(w.err.Error())))
			}
			away = true
			return
		}
		if w.last == nil {
			return
		}
		line := compact(w.last)
		if away || line != said {
			fmt.Fprintf(a.stdout, "%s  %s\n", stamp(w.last.Now), line)
		}
		said, away = line, false
	}
}

// compact is a report in a line.
func compact(r *status.Report) string {
	var parts []string
	for _, s := range r.States {
		parts = append(parts, fmt.Sprintf("%s %s", amount(s.Slices), s.State))
	}
	if len(parts) == 0 {
		parts = append(parts, "no slices")
	}
	for _, x := range []struct {
		n    int
		what string
	}{{sumOf(r, func(d status.Day) int { return d.Failed }), "failed"}, {sumOf(r, func(d status.Day) int { return d.Held }), "held"},
		{len(r.Behind.Archive), "shards behind with archive"}, {len(r.Behind.Purge), "shards behind with purge"}, {len(r.Attention), "to look at"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", amount(x.n), x.what))
		}
	}
	var jobs []string
	for _, l := range r.Running {
		jobs = append(jobs, printable(l.Job))
	}
	if slices.Sort(jobs); len(jobs) > 0 {
		parts = append(parts, "running "+strings.Join(jobs, " "))
	}
	return strings.Join(parts, ", ")
}

// screen is a terminal that is drawn on, beside what was on it before.
type screen struct{ f *os.File }

func openScreen(f *os.File) *screen {
	_, _ = io.WriteString(f, "\x1b[?1049h\x1b[?25l\x1b[2J") // another screen, no cursor
	return &screen{f}
}

// close brings back what was there before.
func (s *screen) close() { _, _ = io.WriteString(s.f, "\x1b[0m\x1b[?25h\x1b[?1049l") }

// draw draws a frame over the former, line by line and in one write, so that it does not
// flicker. What does not fit below is left out.
func (s *screen) draw(text func(width int) string) {
	width, height, err := term.GetSize(int(s.f.Fd()))
	if err != nil || width < 1 || height < 2 {
		width, height = 80, 24
	}
	_, _ = io.WriteString(s.f, frame(text(width), height))
}

// frame is what draws a text: each line is cleared behind its end, and the rest of the screen.
func frame(text string, height int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if more := len(lines) - height; more > 0 {
		lines = append(lines[:height-1], fmt.Sprintf("… %d more lines: enlarge the terminal, or leave with Ctrl-C and run coldtier status", more+1))
	}
	var b strings.Builder
	b.WriteString("\x1b[?2026h\x1b[H") // show what follows at once, where the terminal can
	b.WriteString(strings.Join(lines, "\x1b[K\r\n"))
	b.WriteString("\x1b[K\x1b[J\x1b[?2026l")
	return b.String()
}
