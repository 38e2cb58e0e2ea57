package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
)

// pageResult is a page, read here or by a server.
type pageResult struct {
	Conversation string          `json:"conversation"`
	State        restore.State   `json:"state"`
	HasMore      bool            `json:"has_more"`
	HasOlder     bool            `json:"has_older"` // around a message only
	MinCursor    *decimal        `json:"min_cursor"`
	MaxCursor    *decimal        `json:"max_cursor"`
	Next         *decimal        `json:"next"` // anchor of the next page in the same direction
	Limit        int             `json:"limit"`
	LimitCut     bool            `json:"limit_cut"`
	RetryAfter   *float64        `json:"retry_after_seconds"` // null when there is nothing to wait for
	Messages     []messageResult `json:"messages"`
	Missing      []missingResult `json:"missing"`
	Requests     int             `json:"bucket_requests"`
	Queries      int             `json:"clickhouse_queries"`

	content []string // what the text shows of each message
}

// missingResult is a part that could not be read. A server keeps the key to itself.
type missingResult struct {
	Day       string        `json:"day"` // empty: not known which
	Shard     string        `json:"shard"`
	Key       string        `json:"key,omitempty"`
	MinCursor decimal       `json:"min_cursor"`
	MaxCursor decimal       `json:"max_cursor"`
	Cause     restore.Cause `json:"cause"`
	Reason    string        `json:"reason"`
}

// decimal is a 64-bit number that JSON has as a string, since JavaScript's numbers
// lose its last digits.
type decimal uint64

// MarshalText writes the number in decimal.
func (d decimal) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(d), 10), nil }

func decimalOf(n *uint64) *decimal {
	if n == nil {
		return nil
	}
	d := decimal(*n)
	return &d
}

type messageResult struct {
	MessageID decimal            `json:"message_id"`
	Cursor    decimal            `json:"cursor"`
	Store     restore.Store      `json:"store"`
	Status    *putStatusResult   `json:"status,omitempty"`
	Values    map[string]*string `json:"values"`
	Base64    []string           `json:"base64,omitempty"`   // columns whose value is not UTF-8
	Withheld  []string           `json:"withheld,omitempty"` // columns that the status keeps back
}

// putStatusResult is what happened to a message after it was archived.
type putStatusResult struct {
	Kind  manifest.StatusKind `json:"kind"`
	Value *string             `json:"value,omitempty"`
	At    time.Time           `json:"at"`
}

// put sets a column's value.
func (m *messageResult) put(column string, v []byte) {
	if v == nil {
		m.Values[column] = nil
		return
	}
	text := string(v)
	if !utf8.Valid(v) {
		text = base64.StdEncoding.EncodeToString(v)
		m.Base64 = append(m.Base64, column)
	}
	m.Values[column] = &text
}

// sorted brings the columns into an order, whoever they come from.
func (m messageResult) sorted() messageResult {
	slices.Sort(m.Base64)
	slices.Sort(m.Withheld)
	return m
}

func waitOf(s restore.State, after time.Duration) *float64 {
	if s == restore.Complete {
		return nil
	}
	f := after.Seconds()
	return &f
}

func localPage(q restore.Query, p *restore.Page) *pageResult {
	r := &pageResult{
		Conversation: string(q.Conversation), State: p.State, HasMore: p.HasMore, HasOlder: p.HasOlder, MinCursor: decimalOf(p.MinCursor), MaxCursor: decimalOf(p.MaxCursor),
		Next: decimalOf(p.Next), Limit: p.Limit, LimitCut: p.Cut, RetryAfter: waitOf(p.State, p.RetryAfter), Messages: []messageResult{}, Missing: []missingResult{},
		Requests: p.Requests, Queries: p.Queries,
	}
	for _, m := range p.Missing {
		x := missingResult{Key: m.Key, MinCursor: decimal(m.MinCursor), MaxCursor: decimal(m.MaxCursor), Cause: m.Cause, Reason: m.Reason}
		if m.Slice != (manifest.SliceKey{}) {
			x.Day, x.Shard = m.Slice.Day.String(), m.Slice.Shard.String()
		}
		r.Missing = append(r.Missing, x)
	}
	for _, x := range p.Rows {
		s := x.Batch.Schema()
		m := messageResult{MessageID: decimal(x.MessageID()), Cursor: decimal(x.Cursor()), Store: x.Store, Values: map[string]*string{}}
		if x.Status != nil && x.Status.Kind != manifest.StatusNone {
			m.Status = &putStatusResult{x.Status.Kind, x.Status.Value, x.Status.At}
		}
		for i, c := range s.Columns() {
			if x.Withheld(i) {
				m.Withheld = append(m.Withheld, c.Name)
				continue
			}
			m.put(c.Name, x.Value(i))
		}
		r.Messages = append(r.Messages, m.sorted())
		i := s.Role(message.Content)
		switch {
		case i < 0:
			r.content = append(r.content, "")
		case x.Withheld(i):
			r.content = append(r.content, withheldText(x.Status.Kind))
		default:
			r.content = append(r.content, contentText(x.Value(i)))
		}
	}
	return r
}

func withheldText(k manifest.StatusKind) string { return "(" + string(k) + ")" }

// contentWidth is how much of a message the text shows.
const contentWidth = 60

func contentText(v []byte) string {
	if v == nil {
		return "NULL"
	}
	text := string(v[:min(len(v), 4*contentWidth)])
	size := ""
	if len(v) > contentWidth {
		size = fmt.Sprintf(" (%s)", bytesText(int64(len(v))))
	}
	return shortened(text, contentWidth) + size
}

func (r *pageResult) text(w io.Writer) {
	var rows []string
	for i, m := range r.Messages {
		rows = append(rows, row(uint64(m.Cursor), uint64(m.MessageID), m.Store, r.content[i]))
	}
	if len(rows) > 0 {
		table(w, "CURSOR\tMESSAGE\tFROM\tCONTENT", rows)
	}
	for _, m := range r.Missing {
		where := ""
		if m.Day != "" {
			where = " of slice " + m.Day + " " + printable(m.Shard)
		}
		if m.Key != "" {
			where += " (" + printable(m.Key) + ")"
		}
		fmt.Fprintf(w, "missing  cursors %d to %d%s: %s\n", uint64(m.MinCursor), uint64(m.MaxCursor), where, printable(m.Reason))
	}
	more := "no more"
	if r.HasMore {
		more = "more"
		if r.Next != nil {
			more = fmt.Sprintf("more from cursor %d", uint64(*r.Next))
		}
	}
	if r.HasOlder {
		more += ", older ones too"
	}
	fmt.Fprintf(w, "%s, %s, %s\n", count(len(r.Messages), "message"), r.State, more)
}
