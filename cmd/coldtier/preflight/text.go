package preflight

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// shownAlike is how many findings of one code are printed each by itself; of more, only
// the first few are.
const (
	shownAlike = 4
	shownFirst = 3
)

// Write prints findings for people: what is worst first, by subject; then what is in
// order, shortly; and a summary at the end. clean makes text safe for a terminal.
func Write(w io.Writer, all []Finding, clean func(string) string) {
	var bad []Finding
	for _, f := range all {
		if f.Severity != OK {
			bad = append(bad, f)
		}
	}
	bad = fewer(bad)
	worst := map[string]int{}
	for _, f := range bad {
		worst[f.Subject] = max(worst[f.Subject], f.Severity.worse())
	}
	order := map[string]int{}
	for i, f := range bad {
		if _, ok := order[f.Subject]; !ok {
			order[f.Subject] = i
		}
	}
	slices.SortStableFunc(bad, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(worst[b.Subject], worst[a.Subject]), cmp.Compare(order[a.Subject], order[b.Subject]), cmp.Compare(b.Severity.worse(), a.Severity.worse()))
	})
	last := ""
	for _, f := range bad {
		if f.Subject != last {
			last = f.Subject
			fmt.Fprintf(w, "\n%s\n", clean(f.Subject))
		}
		fmt.Fprintf(w, "%-5s  %s: %s\n", f.Severity, f.Code, clean(f.Text))
		if f.Remedy != "" {
			fmt.Fprintf(w, "       -> %s\n", clean(f.Remedy))
		}
	}
	good(w, all, clean)
	n := map[Severity]int{}
	for _, f := range all {
		n[f.Severity]++
	}
	fmt.Fprintf(w, "\n%s, %s, %s; %d in order\n", count(n[Error], "error"), count(n[Warn], "warning"), count(n[Info], "note"), n[OK])
}

// fewer leaves out most of many findings of one code and remedy, as of a thousand tables
// that are alike, and says so in the last one that stays.
func fewer(all []Finding) (out []Finding) {
	alike := func(f Finding) string { return string(f.Code) + "\x00" + f.About }
	n := map[string]int{}
	for _, f := range all {
		n[alike(f)]++
	}
	seen := map[string]int{}
	for _, f := range all {
		k := alike(f)
		seen[k]++
		switch more := n[k] - shownFirst; {
		case n[k] <= shownAlike || seen[k] < shownFirst:
		case seen[k] == shownFirst:
			f.Text += fmt.Sprintf(" (and %d more; all are in --output json)", more)
		default:
			continue
		}
		out = append(out, f)
	}
	return out
}

// good prints what is in order; of many findings of one code only the first.
func good(w io.Writer, all []Finding, clean func(string) string) {
	var codes []Code
	of := map[Code][]Finding{}
	for _, f := range all {
		if f.Severity == OK {
			if len(of[f.Code]) == 0 {
				codes = append(codes, f.Code)
			}
			of[f.Code] = append(of[f.Code], f)
		}
	}
	if len(codes) > 0 {
		fmt.Fprintln(w)
	}
	for _, c := range codes {
		list := of[c]
		shown := len(list)
		if shown > shownAlike {
			shown = 1
		}
		for _, f := range list[:shown] {
			text := f.Text
			if !strings.Contains(text, strings.TrimPrefix(f.Subject, "clock of ")) {
				text = f.Subject + " " + text
			}
			if more := len(list) - shown; more > 0 {
				text += fmt.Sprintf(" (and %d more)", more)
			}
			fmt.Fprintf(w, "%-5s  %s: %s\n", OK, c, clean(text))
		}
	}
}

func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
