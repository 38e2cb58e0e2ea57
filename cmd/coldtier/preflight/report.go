// Package preflight looks at everything that coldtier's jobs rely on, before one of
// them meets it: the rights of accounts, clocks, replicas, tables, the bucket, ClickHouse
// and this machine. It changes nothing, reads a few rows of each table by its keys, and
// gives every look a time limit. What it could not look at is a finding, too.
//
// The adapters tell facts, or what they find by themselves; what a finding means, how bad
// it is and what to do is in one list, Catalogue, of which docs/check.md is the copy for people.
package preflight

import (
	"fmt"
	"strings"
	"sync"
)

// Severity is how bad a finding is. Each code has one.
type Severity string

// The severities, from good to bad.
const (
	OK    Severity = "ok"    // looked at, and as it should be
	Info  Severity = "info"  // worth knowing
	Warn  Severity = "warn"  // will hurt some day, or hurts already
	Error Severity = "error" // something does not work, or would lose something
)

// worse puts severities in order.
func (s Severity) worse() int {
	for i, o := range []Severity{OK, Info, Warn, Error} {
		if s == o {
			return i
		}
	}
	return 0
}

// Code names a kind of finding, for scripts. It stays when texts change.
type Code string

// Finding is one thing that was looked at.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Level    Severity `json:"level"` // the same, by its former name
	About    string   `json:"about"` // config, manifest, warm, bucket, clickhouse, drill, machine, metrics
	Subject  string   `json:"subject"`
	Text     string   `json:"text"`
	Remedy   string   `json:"remedy"`
}

// Report gathers findings. It is safe for concurrent use.
type Report struct {
	mu       sync.Mutex
	findings []Finding
	refuses  bool
}

// Add notes a finding. With an empty remedy it is the code's own.
func (r *Report) Add(about string, code Code, subject, text, remedy string) {
	k, ok := catalogue()[code]
	if !ok { // a test sees to it that there is none
		k = Kind{Severity: Error}
	}
	if remedy == "" && k.Severity != OK {
		remedy = k.Remedy
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.findings { // an account may be met at several places
		if f.Code == code && f.Subject == subject && f.Text == text {
			return
		}
	}
	r.refuses = r.refuses || k.Refuses
	r.findings = append(r.findings, Finding{Code: code, Severity: k.Severity, Level: k.Severity, About: about, Subject: subject, Text: text, Remedy: remedy})
}

// Addf is Add with the code's own remedy.
func (r *Report) Addf(about string, code Code, subject, format string, args ...any) {
	r.Add(about, code, subject, fmt.Sprintf(format, args...), "")
}

// Fail notes an error, a finding for each of its lines.
func (r *Report) Fail(about string, code Code, subject string, err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			r.Add(about, code, subject, line, "")
		}
	}
}

// Has says whether a code was found.
func (r *Report) Has(code Code) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.findings {
		if f.Code == code {
			return true
		}
	}
	return false
}

// Findings are all of them, with secrets taken out by clean.
func (r *Report) Findings(clean func(string) string) []Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Finding, len(r.findings))
	for i, f := range r.findings {
		f.Text, f.Remedy, f.Subject = clean(f.Text), clean(f.Remedy), clean(f.Subject)
		all[i] = f
	}
	return all
}

// Refuses says whether something was found that forbids to go on.
func (r *Report) Refuses() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refuses
}
