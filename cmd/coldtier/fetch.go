package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/restore"
)

func (a *app) fetchCommand() *cobra.Command {
	var conversation, before, after, around, from string
	var limit int
	c := a.command(&cobra.Command{
		Use:   "fetch --conversation ID",
		Short: "Print one page of a conversation's cold history",
		Long: `Print one page of a conversation's cold history: the newest, or the one before or
after a cursor (both exclusive), or around a message. A page may be short but has
no gap; what could not be read is named.

In JSON every value is a string, numbers too, and NULL is null. A value that is not
UTF-8 is in base64, and its column is then listed in the message's "base64".`,
		Example: `  coldtier fetch --conversation 9007199254740993 --limit 20
  coldtier fetch --conversation 9007199254740993 --before 4711
  coldtier fetch --conversation 9007199254740993 --around 837851385029464064 --from s3`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		q := restore.Query{Conversation: []byte(conversation), Limit: limit, From: restore.Store(from)}
		for _, f := range []struct {
			name, text string
			into       **uint64
		}{{"before", before, &q.Before}, {"after", after, &q.After}, {"around", around, &q.Around}} {
			if f.text == "" {
				continue
			}
			n, err := strconv.ParseUint(f.text, 10, 64)
			if err != nil {
				return nil, usage("--%s %q: want a number of 0..18446744073709551615", f.name, f.text)
			}
			*f.into = &n
		}
		switch {
		case limit < 1:
			return nil, usage("--limit %d: want at least 1", limit)
		case q.From != restore.FromAny && q.From != restore.FromBucket && q.From != restore.FromClickHouse:
			return nil, usage("--from %q: want auto, s3 or clickhouse", from)
		}
		return a.fetch(ctx, q)
	})
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&conversation, "conversation", "", "`ID` of the conversation; required")
	f.StringVar(&before, "before", "", "the page before a `CURSOR`, newest first")
	f.StringVar(&after, "after", "", "the page after a `CURSOR`, oldest first")
	f.StringVar(&around, "around", "", "the page around a `MESSAGE_ID`, oldest first")
	f.IntVar(&limit, "limit", restore.DefaultBefore, "at most `N` messages, and at most fetch.max_limit")
	f.StringVar(&from, "from", string(restore.FromAny), "auto, s3 or clickhouse")
	_ = c.MarkFlagRequired("conversation") // it exists
	c.MarkFlagsMutuallyExclusive("before", "after", "around")
	return c
}

func (a *app) fetch(ctx context.Context, q restore.Query) (_ result, err error) {
	p, err := a.open(ctx, need{bucket: q.From == restore.FromBucket, rows: q.From == restore.FromClickHouse})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	if q.From != restore.FromClickHouse && p.bucket == nil {
		if err := a.openBucket(ctx, p); err != nil {
			return nil, setup(err)
		}
	}
	if q.From == restore.FromAny {
		// The bucket alone is enough: a page need not wait for ClickHouse to be well.
		if err := a.openRows(ctx, p); err != nil {
			a.log.Warn("ClickHouse cannot be asked; the page is read from the bucket", "error", err)
		}
	}
	page, err := a.fetcher(p).Fetch(ctx, q)
	if err != nil {
		return nil, err
	}
	r := newPage(q, page)
	if page.State != restore.Complete {
		return r, mark(fmt.Errorf("the page is %s: %s could not be read", page.State, count(len(page.Missing), "part")), errPartial)
	}
	return r, nil
}

type pageResult struct {
	Conversation string            `json:"conversation"`
	State        restore.State     `json:"state"`
	HasMore      bool              `json:"has_more"`
	MinCursor    *decimal          `json:"min_cursor"`
	MaxCursor    *decimal          `json:"max_cursor"`
	Next         *decimal          `json:"next"` // anchor of the next page in the same direction
	Limit        int               `json:"limit"`
	Messages     []messageResult   `json:"messages"`
	Missing      []restore.Missing `json:"missing"`
	Requests     int               `json:"bucket_requests"`
	Queries      int               `json:"clickhouse_queries"`

	content []string // what the text shows of each message
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
	Values    map[string]*string `json:"values"`
	Base64    []string           `json:"base64,omitempty"` // columns whose value is not UTF-8
}

func newPage(q restore.Query, p *restore.Page) *pageResult {
	r := &pageResult{
		Conversation: string(q.Conversation), State: p.State, HasMore: p.HasMore, MinCursor: decimalOf(p.MinCursor), MaxCursor: decimalOf(p.MaxCursor),
		Next: decimalOf(p.Next), Limit: p.Limit, Messages: []messageResult{}, Missing: append([]restore.Missing{}, p.Missing...), Requests: p.Requests, Queries: p.Queries,
	}
	for _, x := range p.Rows {
		s := x.Batch.Schema()
		m := messageResult{MessageID: decimal(x.MessageID()), Cursor: decimal(x.Cursor()), Store: x.Store, Values: map[string]*string{}}
		for i, c := range s.Columns() {
			v := x.Batch.Value(i, x.Index)
			if v == nil {
				m.Values[c.Name] = nil
				continue
			}
			text := string(v)
			if !utf8.Valid(v) {
				text = base64.StdEncoding.EncodeToString(v)
				m.Base64 = append(m.Base64, c.Name)
			}
			m.Values[c.Name] = &text
		}
		r.Messages = append(r.Messages, m)
		r.content = append(r.content, contentOf(s, x))
	}
	return r
}

// contentWidth is how much of a message the text shows.
const contentWidth = 60

func contentOf(s *message.Schema, x restore.Row) string {
	i := s.Role(message.Content)
	if i < 0 {
		return ""
	}
	v := x.Batch.Value(i, x.Index)
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
		fmt.Fprintf(w, "missing  cursors %d to %d of slice %s (%s): %s\n", m.MinCursor, m.MaxCursor, m.Slice, printable(m.Key), printable(m.Reason))
	}
	more := "no more"
	if r.HasMore {
		more = "more"
		if r.Next != nil {
			more = fmt.Sprintf("more from cursor %d", uint64(*r.Next))
		}
	}
	fmt.Fprintf(w, "%s, %s, %s\n", count(len(r.Messages), "message"), r.State, more)
}
