package fetch

import (
	"bytes"
	"cmp"
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/tests/harness"
	truths "github.com/coldtier/coldtier/tests/truth"
)

// msg is a message as MySQL had it.
type msg struct {
	id, seq uint64
	values  [][]byte // in the order of truths.Columns
}

// truth is the history of each conversation, oldest first.
type truth map[string][]msg

// readTruth reads the warm tables.
func readTruth(e *harness.Env) truth {
	e.T.Helper()
	all := truth{}
	for _, table := range e.Tables {
		if err := all.read(e, table); err != nil {
			e.T.Fatalf("read %s: %v", table, err)
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b msg) int { return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.id, b.id)) })
	}
	return all
}

func (all truth) read(e *harness.Env, table string) error {
	rows, err := e.Warm.QueryContext(e.T.Context(), "SELECT "+strings.Join(truths.Columns, ", ")+" FROM "+table)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err tells
	raw, into := make([]sql.RawBytes, len(truths.Columns)), make([]any, len(truths.Columns))
	for i := range raw {
		into[i] = &raw[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		var m msg
		for i := range raw {
			m.values = append(m.values, bytes.Clone(raw[i]))
		}
		if m.id, err = strconv.ParseUint(string(raw[0]), 10, 64); err != nil {
			return err
		}
		if m.seq, err = strconv.ParseUint(string(raw[len(raw)-1]), 10, 64); err != nil {
			return err
		}
		conv := string(raw[1])
		all[conv] = append(all[conv], m)
	}
	return rows.Err()
}

// page is an answer, of the reader or of the server.
type page struct {
	rows              []msg
	state             restore.State
	hasMore, hasOlder bool
	next              *uint64
	limit             int
	cut               bool
	retryAfter        time.Duration
	missing           []restore.Missing
}

func pageOf(p *restore.Page) page {
	out := page{state: p.State, hasMore: p.HasMore, hasOlder: p.HasOlder, next: p.Next, limit: p.Limit, cut: p.Cut, retryAfter: p.RetryAfter, missing: p.Missing}
	out.rows = rowsOf(p.Rows)
	return out
}

func rowsOf(rows []restore.Row) (out []msg) {
	for _, r := range rows {
		out = append(out, rowOf(r))
	}
	return out
}

// rowOf is a row as a reader may see it. What is not among the columns shows as values of
// another number.
func rowOf(r restore.Row) msg {
	m := msg{id: r.MessageID(), seq: r.Cursor()}
	columns := r.Batch.Schema().Columns()
	for _, name := range truths.Columns {
		if i := slices.IndexFunc(columns, func(c message.Column) bool { return c.Name == name }); i >= 0 {
			m.values = append(m.values, r.Value(i))
		}
	}
	return m
}

// same says in what a message that was given differs.
func (m msg) same(got msg) error {
	if got.id != m.id || got.seq != m.seq {
		return fmt.Errorf("message %d of cursor %d, want %d of %d", got.id, got.seq, m.id, m.seq)
	}
	if len(got.values) != len(m.values) {
		return fmt.Errorf("message %d has %d columns, want %d", m.id, len(got.values), len(m.values))
	}
	for i, want := range m.values {
		if got := got.values[i]; (got == nil) != (want == nil) || !bytes.Equal(got, want) {
			return fmt.Errorf("message %d: column %s differs", m.id, truths.Columns[i])
		}
	}
	return nil
}

// ask is a random page of a conversation that is there, seldom of one that is not.
func (all truth) ask(rng *rand.Rand, names []string) restore.Query {
	name := names[rng.IntN(len(names))]
	q := restore.Query{Conversation: []byte(name)}
	if rng.IntN(40) == 0 {
		q.Conversation = strconv.AppendUint(nil, 7+rng.Uint64N(1000), 10)
	}
	list := all[name]
	m := list[rng.IntN(len(list))]
	cursor := m.seq
	switch rng.IntN(12) {
	case 0:
		cursor = 0
	case 1:
		cursor = math.MaxUint64
	case 2:
		cursor += rng.Uint64N(20)
	case 3:
		cursor -= min(cursor, rng.Uint64N(20))
	}
	switch rng.IntN(10) {
	case 0, 1:
	case 2:
		q.Oldest = true
	case 3, 4, 5:
		q.Before = &cursor
	case 6, 7:
		q.After = &cursor
	default:
		id := m.id
		if rng.IntN(4) == 0 {
			id += 1 + rng.Uint64N(1<<30)
		}
		q.Around = &id
	}
	switch rng.IntN(10) {
	case 0:
	case 1:
		q.Limit = 100_000
	case 2:
		q.Limit = 1 + rng.IntN(3)
	default:
		q.Limit = 1 + rng.IntN(60)
	}
	return q
}

// names are the conversations, those with most messages first and most often.
func (all truth) names() (names []string) {
	for n := range all {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(all[b]), len(all[a])), cmp.Compare(a, b)) })
	return append(names, names[:min(len(names), 10)]...)
}

// limitOf is the limit that applies to a query.
func limitOf(q restore.Query) int {
	switch {
	case q.Limit > restore.DefaultMax:
		return restore.DefaultMax
	case q.Limit > 0:
		return q.Limit
	case q.After != nil || q.Around != nil || q.Oldest:
		return restore.DefaultAfter
	}
	return restore.DefaultBefore
}

// side is the messages on the page's side of its anchor, nearest first.
func (all truth) side(q restore.Query) []msg {
	var out []msg
	for _, m := range all[string(q.Conversation)] {
		if (q.Before == nil || m.seq < *q.Before) && (q.After == nil || m.seq > *q.After) {
			out = append(out, m)
		}
	}
	if q.After == nil && !q.Oldest {
		slices.Reverse(out)
	}
	return out
}

// check holds a page against the truth: it is exact as far as it goes, has no gap, and
// says itself how far that is.
func (all truth) check(q restore.Query, p *restore.Page) error { return all.checkPage(q, pageOf(p)) }

func (all truth) checkPage(q restore.Query, p page) error {
	if q.Around != nil {
		return all.checkAround(q, p)
	}
	want := all.side(q)
	if err := exact(want, p.rows); err != nil {
		return err
	}
	full := fullPage(want, limitOf(q))
	if err := honest(q, p, len(p.rows) == full); err != nil {
		return err
	}
	if len(p.rows) < len(want) && !p.hasMore {
		return fmt.Errorf("%d of %d messages and no more, it says", len(p.rows), len(want))
	}
	if len(p.rows) > full {
		return fmt.Errorf("%d messages, want at most %d", len(p.rows), full)
	}
	anchor := cmp.Or(q.Before, q.After)
	if n := len(p.rows); n > 0 {
		anchor = &want[n-1].seq
	}
	return equal("next", p.next, anchor)
}

// fullPage is how many messages a full page has: messages of one cursor are not parted.
func fullPage(want []msg, limit int) int {
	n := min(limit, len(want))
	for n > 0 && n < len(want) && want[n].seq == want[n-1].seq {
		n++
	}
	return n
}

// exact says where rows are not the first of the messages.
func exact(want []msg, rows []msg) error {
	if len(rows) > len(want) {
		return fmt.Errorf("%d messages, there are only %d", len(rows), len(want))
	}
	for i, r := range rows {
		if err := want[i].same(r); err != nil {
			return fmt.Errorf("place %d of %d: %w", i, len(rows), err)
		}
	}
	return nil
}

// honest checks what a page says of itself.
func honest(q restore.Query, p page, full bool) error {
	if p.limit != limitOf(q) || p.cut != (q.Limit > restore.DefaultMax) {
		return fmt.Errorf("limit %d (cut: %v), want %d", p.limit, p.cut, limitOf(q))
	}
	if full != (p.state == restore.Complete) && !(full && len(p.rows) < p.limit) { // that nothing follows may not be known
		return fmt.Errorf("state %s of a page of %d messages; full: %v", p.state, len(p.rows), full)
	}
	if p.state == restore.Complete {
		if len(p.missing) > 0 || p.retryAfter != 0 {
			return fmt.Errorf("complete, and %d parts are missing, retry after %s", len(p.missing), p.retryAfter)
		}
		return nil
	}
	fetching := false
	for _, m := range p.missing {
		if m.Cause == "" || m.Reason == "" {
			return fmt.Errorf("a part is missing and has no cause or reason: %+v", m)
		}
		fetching = fetching || m.Cause != restore.CauseLost && m.Cause != restore.CauseDamaged
	}
	want := restore.Partial
	if len(p.rows) == 0 && fetching {
		want = restore.Pending
	}
	if p.state != want || len(p.missing) == 0 || p.retryAfter <= 0 || !p.hasMore && !p.hasOlder {
		return fmt.Errorf("state %s with %d messages, %d missing parts, retry after %s, more: %v; want %s", p.state, len(p.rows), len(p.missing), p.retryAfter, p.hasMore, want)
	}
	return nil
}

func equal(what string, got, want *uint64) error {
	if (got == nil) != (want == nil) || got != nil && *got != *want {
		return fmt.Errorf("%s differs: %s, want %s", what, show(got), show(want))
	}
	return nil
}

func show(n *uint64) string {
	if n == nil {
		return "none"
	}
	return strconv.FormatUint(*n, 10)
}

// checkAround is check for a page around a message: it is a run of the history that meets
// the message's place.
func (all truth) checkAround(q restore.Query, p page) error {
	list := all[string(q.Conversation)]
	limit := limitOf(q)
	at := slices.IndexFunc(list, func(m msg) bool { return m.id == *q.Around })
	start, end := 0, 0
	if len(p.rows) > 0 {
		if start = slices.IndexFunc(list, func(m msg) bool { return m.id == p.rows[0].id }); start < 0 {
			return fmt.Errorf("message %d was never there", p.rows[0].id)
		}
		end = start + len(p.rows)
		if err := exact(list[start:], p.rows); err != nil {
			return err
		}
	}
	if at < 0 { // it goes where its neighbours are
		if p.state == restore.Complete && len(p.rows) < min(limit/2, len(list)) {
			return fmt.Errorf("%d messages around one that is not there, of %d", len(p.rows), len(list))
		}
		return honest(q, p, p.state == restore.Complete)
	}
	if len(p.rows) == 0 {
		return honest(q, p, false)
	}
	for at > 0 && list[at-1].seq == list[at].seq {
		at--
	}
	older, newer := slices.Clone(list[:at]), list[at:]
	slices.Reverse(older)
	a, b := fullPage(older, limit/2), fullPage(newer, limit-limit/2)
	if start > at || end < at || start < at-a || end > at+b {
		return fmt.Errorf("places %d to %d do not meet the message's place %d, or reach beyond %d and %d", start, end, at, at-a, at+b)
	}
	if start > 0 && !p.hasOlder || end < len(list) && !p.hasMore {
		return fmt.Errorf("places %d to %d of %d: older %v, more %v", start, end, len(list), p.hasOlder, p.hasMore)
	}
	return honest(q, p, start == at-a && end == at+b)
}
