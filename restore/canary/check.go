package canary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	"github.com/coldtier/coldtier/restore/selection"
)

// ErrDiffers says that a canary is lost or is no longer what was planted.
var ErrDiffers = errors.New("a canary is lost or changed")

// Rows reads ClickHouse.
type Rows interface {
	// Spans gives a conversation's rows in the spans, at most limit.
	Spans(ctx context.Context, spans []restore.Span, s *message.Schema, conversation []byte, limit int) (*message.Batch, error)
}

// Deps are what a check works with. It changes nothing.
type Deps struct {
	Manifest *manifest.Store
	Reader   *selection.Reader                  // of the bucket alone
	Rows     Rows                               // nil: ClickHouse is not looked at
	Tables   func(manifest.Shard) (Table, bool) // nil: warm is not looked at
	Layout   snowflake.Layout
	Zone     *time.Location
}

// Place is where a canary was looked for.
type Place string

// The places.
const (
	Warm       Place = "warm"
	Bucket     Place = "bucket"
	ClickHouse Place = "clickhouse"
)

// Problem is what is wrong with a canary in a place.
type Problem string

// The problems.
const (
	Lost       Problem = "lost"       // a message that must be there is not
	Changed    Problem = "changed"    // a message is not what was planted, or is there twice
	Unread     Problem = "unread"     // the place could not be read: nothing is known
	Unfinished Problem = "unfinished" // it was not planted to its end: plant it again
)

// Finding is what was found of the messages of a canary that are of one day, in one place.
type Finding struct {
	Canary       string         `json:"canary"`
	Shard        manifest.Shard `json:"shard"`
	Conversation string         `json:"conversation"`
	Day          snowflake.Day  `json:"day"`
	Place        Place          `json:"place"`
	Found        int            `json:"found"`             // messages that are as they were planted
	Problem      Problem        `json:"problem,omitempty"` // "": none
	Messages     []string       `json:"messages,omitempty"`
	Columns      []string       `json:"columns,omitempty"` // that are other
	Reason       string         `json:"reason,omitempty"`
	err          error
}

// String names the finding, without contents.
func (f *Finding) String() string {
	text := fmt.Sprintf("canary %s of %s, conversation %s, %s: %s in %s", f.Canary, f.Shard, f.Conversation, f.Day, f.Problem, f.Place)
	if len(f.Messages) > 0 {
		text += fmt.Sprintf(": messages %v", f.Messages)
	}
	if len(f.Columns) > 0 {
		text += fmt.Sprintf(" in columns %v", f.Columns)
	}
	if f.Reason != "" {
		text += ": " + f.Reason
	}
	return text
}

// Err is nil when all is well; ErrDiffers when anything is lost or changed, and another
// error when something could not be looked at.
func Err(all []Finding) error {
	var errs []error
	for i := range all {
		switch f := &all[i]; f.Problem {
		case "":
		case Lost, Changed:
			errs = append(errs, fmt.Errorf("%w: %s", ErrDiffers, f))
		default:
			errs = append(errs, errors.Join(errors.New(f.String()), f.err))
		}
	}
	return errors.Join(errs...)
}

// Check looks for all canaries wherever they should be now, byte for byte. Its error says
// that it could not look at all; what is wrong with canaries is in the findings, of which
// there is one for each place that was looked at.
func Check(ctx context.Context, d Deps) ([]Finding, error) {
	all, err := d.Manifest.Canaries(ctx)
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, c := range all {
		if err := ctx.Err(); err != nil {
			return out, context.Cause(ctx)
		}
		found, err := d.canary(ctx, c)
		if err != nil {
			return out, fmt.Errorf("look for canary %s of %s: %w", c.ID, c.Shard, err)
		}
		out = append(out, found...)
	}
	return out, nil
}

// part is a canary's messages of one day.
type part struct {
	d    *Deps
	c    manifest.Canary
	day  snowflake.Day
	ids  []uint64
	want *message.Batch // of all the canary's messages
	rest rest
}

func (d *Deps) canary(ctx context.Context, c manifest.Canary) (out []Finding, err error) {
	spec, err := read(c)
	if err != nil {
		return nil, err
	}
	want, err := spec.Rows()
	if err != nil {
		return nil, err
	}
	var r rest
	if c.Rest != nil {
		if err := json.Unmarshal(c.Rest, &r); err != nil {
			return nil, fmt.Errorf("%w: %w", manifest.ErrCorrupt, err)
		}
	}
	for ids := c.MessageIDs; len(ids) > 0; {
		day := d.Layout.DayOf(ids[0], d.Zone)
		n := 1
		for n < len(ids) && d.Layout.DayOf(ids[n], d.Zone) == day {
			n++
		}
		p := &part{d, c, day, ids[:n], want, r}
		ids = ids[n:]
		if c.PlantedAt == nil {
			f := p.finding(Warm)
			f.Problem, f.Reason = Unfinished, "run coldtier canary plant with the same --id again"
			out = append(out, f)
			continue
		}
		found, err := p.look(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func (p *part) finding(place Place) Finding {
	return Finding{Canary: p.c.ID, Shard: p.c.Shard, Conversation: p.c.Conversation, Day: p.day, Place: place}
}

// stand is where a slice stands, as far as it decides where a canary must be.
type stand struct {
	live       uint32
	warm, cold bool // it must be there
	refs       []manifest.SegmentRef
}

// stand reads where the slice stands. A slice that a purge was begun on has its canaries in the live
// generation, if they were planted before that was copied.
func (p *part) stand(ctx context.Context) (st stand, err error) {
	st.warm = true
	list, err := p.d.Manifest.Slices(ctx, manifest.Filter{From: &p.day, To: &p.day})
	if err != nil {
		return st, err
	}
	i := slices.IndexFunc(list, func(s manifest.Slice) bool { return s.Shard == p.c.Shard })
	if i < 0 || list[i].Live == 0 {
		return st, nil
	}
	s := list[i]
	head, err := p.d.Manifest.LoadHead(ctx, s.ID, s.Live)
	if err != nil {
		return st, err
	}
	refs, err := p.d.Manifest.Segments(ctx, manifest.SegmentQuery{Conversation: []byte(p.c.Conversation), Days: []snowflake.Day{p.day}, Oldest: true, Limit: math.MaxInt32})
	if err != nil {
		return st, err
	}
	begun := s.State == manifest.Purging || s.State == manifest.Purged
	for _, r := range refs {
		if r.SliceID == s.ID {
			st.refs = append(st.refs, r)
			begun = begun || r.PurgeBegun
		}
	}
	st.live, st.cold = s.Live, p.c.PlantedAt.Before(head.CopiedAt)
	st.warm = !begun || !st.cold
	return st, nil
}

// looks is how often a canary is looked for again when its slice moved on meanwhile.
const looks = 4

// look looks for the messages wherever they should be. Warm is read first: rows leave it only
// after they are live in cold. What seems wrong while the slice moves on is looked at again.
func (p *part) look(ctx context.Context) (out []Finding, err error) {
	for range looks {
		st, err := p.stand(ctx)
		if err != nil {
			return nil, err
		}
		out = nil
		if p.d.Tables != nil {
			out = append(out, p.warm(ctx, st))
		}
		if st.live > 0 {
			out = append(out, p.bucket(ctx, st))
			if p.d.Rows != nil {
				out = append(out, p.clickhouse(ctx, st))
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !slices.ContainsFunc(out, func(f Finding) bool { return f.Problem != "" }) {
			return out, nil
		}
		now, err := p.stand(ctx)
		if err != nil {
			return nil, err
		}
		if now.live == st.live && now.warm == st.warm && now.cold == st.cold {
			return out, nil
		}
	}
	return out, nil
}

func (p *part) warm(ctx context.Context, st stand) Finding {
	f := p.finding(Warm)
	t, ok := p.d.Tables(p.c.Shard)
	if !ok {
		if !st.warm { // a table that was dropped after its rows were purged
			return f
		}
		return unread(f, errors.New("there is no such warm table"))
	}
	b, err := t.Messages(ctx, []byte(p.c.Conversation), p.ids, "")
	if err != nil {
		return unread(f, err)
	}
	return p.compare(f, b, st.warm)
}

func (p *part) bucket(ctx context.Context, st stand) Finding {
	f := p.finding(Bucket)
	sel := selection.Selection{Conversations: [][]byte{[]byte(p.c.Conversation)}, From: &p.day, To: &p.day}
	list, err := p.d.Reader.Slices(ctx, sel)
	if err != nil {
		return unread(f, err)
	}
	var parts []*message.Batch
	for _, s := range list {
		if s.Shard != p.c.Shard {
			continue
		}
		_, err := p.d.Reader.Read(ctx, sel, s, func(b *message.Batch) error {
			parts = append(parts, b)
			return nil
		})
		switch {
		case errors.Is(err, selection.ErrLost), errors.Is(err, selection.ErrMismatch):
			if f.Problem, f.Reason = Changed, err.Error(); errors.Is(err, selection.ErrNotFound) {
				f.Problem = Lost
			}
			return f
		case err != nil:
			return unread(f, err)
		}
	}
	b, err := joined(parts, p.want.Schema())
	if err != nil {
		return unread(f, err)
	}
	return p.compare(f, b, st.cold)
}

func joined(parts []*message.Batch, none *message.Schema) (*message.Batch, error) {
	if len(parts) == 0 {
		return message.NewBatch(none), nil
	}
	all := message.NewBatch(parts[0].Schema())
	for _, b := range parts {
		for i := range b.Len() {
			if err := all.AppendFrom(b, i); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (p *part) clickhouse(ctx context.Context, st stand) Finding {
	f := p.finding(ClickHouse)
	if len(st.refs) == 0 {
		return p.compare(f, message.NewBatch(p.want.Schema()), st.cold)
	}
	var spans []restore.Span
	rows := 0
	for _, r := range st.refs {
		spans = append(spans, restore.Span{Copy: manifest.CopyID{Shard: r.Slice.Shard, Day: r.Slice.Day, Generation: r.Generation, Attempt: r.Attempt}, Min: r.Span.MinCursor, Max: r.Span.MaxCursor})
		rows += int(r.Span.Rows)
	}
	b, err := p.d.Rows.Spans(ctx, spans, st.refs[0].Schema, []byte(p.c.Conversation), rows+1)
	if err != nil {
		return unread(f, err)
	}
	return p.compare(f, b, st.cold)
}

func unread(f Finding, err error) Finding {
	f.Problem, f.Reason, f.err = Unread, err.Error(), err
	return f
}

// compare says what is wrong with the messages among rows of their conversation.
func (p *part) compare(f Finding, got *message.Batch, must bool) Finding {
	problem, columns, ids := compare(p.want, p.rest, p.ids, got)
	f.Found = len(p.ids) - len(ids)
	if problem == Lost && !must {
		return f
	}
	f.Problem, f.Columns = problem, columns
	for _, id := range ids {
		f.Messages = append(f.Messages, message.FormatID(id))
	}
	return f
}

// compare finds the messages that are lost or changed. Rows may have columns that came
// after the canary; one that it had and that is gone counts as NULL.
func compare(want *message.Batch, r rest, ids []uint64, got *message.Batch) (problem Problem, columns []string, bad []uint64) {
	differs := map[string]bool{}
	var lost, changed []uint64
	for n := range want.Len() {
		id := want.MessageID(n)
		if !slices.Contains(ids, id) {
			continue
		}
		row := rowOf(got, id)
		if row == -1 {
			lost = append(lost, id)
			continue
		}
		same := row >= 0
		value := func(name string, v []byte) {
			var have []byte
			if i := got.Schema().Index(name); i >= 0 {
				have = got.Value(i, row)
			}
			if (v == nil) != (have == nil) || !bytes.Equal(v, have) {
				same, differs[name] = false, true
			}
		}
		if same {
			for i, c := range want.Schema().Columns() {
				value(c.Name, want.Value(i, n))
			}
			for i, name := range r.Columns {
				value(name, r.Rows[n][i])
			}
		}
		if !same {
			changed = append(changed, id)
		}
	}
	for name := range differs {
		columns = append(columns, name)
	}
	slices.Sort(columns)
	switch {
	case len(changed) > 0:
		return Changed, columns, append(changed, lost...)
	case len(lost) > 0:
		return Lost, nil, lost
	}
	return "", nil, nil
}
