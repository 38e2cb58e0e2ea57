package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// result is what a verb gives: JSON by its own fields, and text.
type result interface {
	text(w io.Writer)
}

// partial is a part of a result that would say that there was nothing to do, or to find: the
// verb may have ended with an error before it came to it.
type partial struct{ cut bool }

func (p *partial) endedBy(err error) { p.cut = err != nil }

// document is what --output json prints, once, whatever happened.
type document struct {
	Command  string   `json:"command,omitempty"`
	ExitCode int      `json:"exit_code"`
	Result   result   `json:"result"`
	Error    *failure `json:"error"`
}

type failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// maxErrors is how many of many errors are printed.
const maxErrors = 20

// finish prints the result and the error and gives the exit code.
func (a *app) finish(ctx context.Context, err error) int {
	if err != nil && ctx.Err() != nil && !errors.Is(err, errInterrupted) { // else it tells so itself
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	err = refusal(err)
	code, kind := exit(err)
	if r, ok := a.result.(interface{ endedBy(error) }); ok {
		r.endedBy(err)
	}
	if a.output == formatJSON {
		d := document{Command: a.verb, ExitCode: code, Result: a.result}
		if err != nil {
			d.Error = &failure{kind, a.redactor.Text(err.Error())}
		}
		if code2 := a.printJSON(d); code2 != exitDone && code == exitDone {
			code = code2
		}
	} else if a.result != nil {
		a.result.text(a.stdout)
	}
	if err != nil {
		a.printError(err)
	}
	return code
}

func (a *app) printJSON(d document) int {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		a.printError(fmt.Errorf("print the result: %w", err))
		return exitFailed
	}
	return exitDone
}

// printError writes an error, or each of several, on one line.
func (a *app) printError(err error) {
	n := 0
	for line := range strings.SplitSeq(a.redactor.Text(err.Error()), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if n++; n <= maxErrors {
			fmt.Fprintf(a.stderr, "coldtier: %s\n", printable(line))
		}
	}
	if n > maxErrors {
		fmt.Fprintf(a.stderr, "coldtier: and %d more\n", n-maxErrors)
	}
}

// printable makes text safe for a terminal: what is not printable is escaped.
func printable(s string) string {
	clean := true
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i, w := 0, 0; i < len(s); i += w {
		var r rune
		r, w = utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && w == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case !unicode.IsPrint(r) && r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// shortened is printable text of at most n characters.
func shortened(s string, n int) string {
	p := []rune(printable(s))
	if len(p) <= n {
		return string(p)
	}
	return string(p[:n-1]) + "…"
}

// table prints columns; the cells of a row are separated by tabs.
func table(w io.Writer, header string, rows []string) {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, header)
	for _, r := range rows {
		fmt.Fprintln(t, r)
	}
	_ = t.Flush() // into memory
	for line := range strings.Lines(b.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n")) // an empty last cell is padded
	}
}

func row(cells ...any) string {
	s := make([]string, len(cells))
	for i, c := range cells {
		s[i] = fmt.Sprint(c)
	}
	return strings.Join(s, "\t")
}

func bytesText(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

func count[N int | int64 | uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(int64(min(uint64(n), 1<<62))) + " " + one + "s"
}

// amount is a number of things in a table's cell.
func amount[N int | int64 | uint64](n N) string { return humanize.Comma(int64(min(uint64(n), 1<<62))) }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// span is a time to come or gone by, in its two largest units: 6d23h, 3h12m, 45s.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	d = max(d, 0)
	whole := func(unit time.Duration, name string) string {
		if n := d / unit; n > 0 {
			d %= unit
			return fmt.Sprintf("%d%s", n, name)
		}
		return ""
	}
	switch {
	case d >= day:
		d = d.Round(time.Hour)
		return whole(day, "d") + whole(time.Hour, "h")
	case d >= time.Hour:
		d = d.Round(time.Minute)
		return whole(day, "d") + whole(time.Hour, "h") + whole(time.Minute, "m")
	case d >= time.Minute:
		d = d.Round(time.Second)
		return whole(time.Hour, "h") + whole(time.Minute, "m") + whole(time.Second, "s")
	}
	return d.Round(time.Second).String()
}

// seconds is a duration for people.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond).String()
}

// rate is how fast rows went, to follow how long it took; nothing where none went.
func rate(rows uint64, s float64) string {
	if rows == 0 || s <= 0 {
		return ""
	}
	return ", " + humanize.Comma(int64(float64(rows)/s+.5)) + " rows/s"
}
