package canary

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/rehydrate"
)

// ErrRefused says that a canary was not planted, and why.
var ErrRefused = errors.New("canary refused")

// ErrColumns says that the columns of a canary's messages are not set as the table wants them.
var ErrColumns = errors.New("the table's columns want other values")

// Table reads rows of a warm table.
type Table interface {
	Schema() *message.Schema
	// Messages reads those rows with the IDs that belong to the conversation.
	Messages(ctx context.Context, conversation []byte, ids []uint64, staging string) (*message.Batch, error)
}

// Plot is a warm table that canaries are planted in.
type Plot interface {
	Table
	// Newest reads the newest rows of a conversation. ErrNoIndex: it would read the whole table.
	Newest(ctx context.Context, conversation []byte, limit int) (*message.Batch, error)
	// LocalTime says whether created_at is written in the source's zone.
	LocalTime(ctx context.Context) (bool, error)
}

// ErrNoIndex says that a table has no index by which a conversation's rows are found.
var ErrNoIndex = errors.New("no index on the conversation")

// Writer is a warm table as it is written.
type Writer interface {
	Columns() []message.Column
	HasDefault(column string) bool
	// Sink takes rows of some columns.
	Sink(s *message.Schema) (rehydrate.Writer, error)
}

// Planter plants canaries. Roles are the configuration's.
type Planter struct {
	Manifest *manifest.Store
	Layout   snowflake.Layout
	Zone     *time.Location
	Roles    map[message.Role]string
}

// Seed is what is to be planted.
type Seed struct {
	ID           string
	Shard        manifest.Shard
	Conversation string
	At           time.Time // of the first message
	Set          map[string]string
}

// Planted is what became of a canary.
type Planted struct {
	manifest.Canary
	Messages []string `json:"message_ids"`
	Outcome  string   `json:"outcome"` // planted, there (it was planted before), would be planted
	Warning  string   `json:"warning,omitempty"`
}

// Plant plants one canary, once: one of the same ID and shard that is there already is
// left as it is. dry: nothing is changed.
func (p *Planter) Plant(ctx context.Context, seed Seed, plot Plot, w Writer, dry bool) (out Planted, err error) {
	fail := func(err error) (Planted, error) {
		return out, fmt.Errorf("canary %s of %s: %w", seed.ID, seed.Shard, err)
	}
	c, err := p.Manifest.Canary(ctx, seed.ID, seed.Shard)
	known := err == nil
	switch {
	case known && c.Conversation != seed.Conversation:
		return fail(fmt.Errorf("%w: one of this ID is in conversation %s already", ErrRefused, c.Conversation))
	case known && c.PlantedAt != nil:
		return planted(c, "there", ""), nil
	case err != nil && !errors.Is(err, manifest.ErrNotFound):
		return fail(err)
	}
	if out.Warning, err = p.mayOwn(ctx, seed, plot); err != nil {
		return fail(err)
	}
	spec, err := p.spec(ctx, seed, plot, w)
	if err != nil {
		return fail(err)
	}
	if known {
		if spec, err = read(c); err != nil {
			return fail(err)
		}
	}
	sink, err := w.Sink(spec.Schema)
	if err != nil {
		return fail(err)
	}
	if !known {
		if c, err = p.choose(ctx, seed, spec, sink); err != nil {
			return fail(err)
		}
		if dry {
			return planted(c, "would be planted", out.Warning), nil
		}
		if c, err = p.Manifest.NoteCanary(ctx, c); err != nil {
			return fail(err)
		}
		if spec, err = read(c); err != nil { // another process may have been first
			return fail(err)
		}
	}
	if dry {
		return planted(c, "would be planted", out.Warning), nil
	}
	if err := write(ctx, spec, sink); err != nil {
		return fail(err)
	}
	if err := finish(ctx, &c, spec, plot); err != nil {
		return fail(err)
	}
	if err := p.Manifest.PlantedCanary(ctx, c); err != nil {
		return fail(err)
	}
	if c, err = p.Manifest.Canary(ctx, seed.ID, seed.Shard); err != nil {
		return fail(err)
	}
	return planted(c, "planted", out.Warning), nil
}

func planted(c manifest.Canary, outcome, warning string) Planted {
	out := Planted{Canary: c, Outcome: outcome, Warning: warning}
	for _, id := range c.MessageIDs {
		out.Messages = append(out.Messages, message.FormatID(id))
	}
	return out
}

// mayOwn refuses a conversation that has messages of others, in warm or archived.
func (p *Planter) mayOwn(ctx context.Context, seed Seed, plot Plot) (warning string, err error) {
	all, err := p.Manifest.Canaries(ctx)
	if err != nil {
		return "", err
	}
	own := map[uint64]bool{}
	for _, c := range all {
		if c.Conversation == seed.Conversation {
			for _, id := range c.MessageIDs {
				own[id] = true
			}
		}
	}
	newest, err := plot.Newest(ctx, []byte(seed.Conversation), len(own)+1)
	switch {
	case errors.Is(err, ErrNoIndex):
		warning = "whether the conversation has messages of others in warm was not looked at: " + err.Error()
	case err != nil:
		return "", err
	default:
		for i := range newest.Len() {
			if !own[newest.MessageID(i)] {
				return "", fmt.Errorf("%w: conversation %s has a message that no canary has, %d: name a conversation that belongs to no user", ErrRefused, seed.Conversation, newest.MessageID(i))
			}
		}
	}
	refs, err := p.Manifest.Segments(ctx, manifest.SegmentQuery{Conversation: []byte(seed.Conversation), Oldest: true, Limit: math.MaxInt32})
	if err != nil {
		return "", err
	}
	rows := 0
	for _, r := range refs {
		rows += int(r.Span.Rows)
	}
	if rows > len(own) {
		return "", fmt.Errorf("%w: conversation %s has %d archived messages, and canaries have %d: name a conversation that belongs to no user", ErrRefused, seed.Conversation, rows, len(own))
	}
	return warning, nil
}

// spec says which columns are given.
func (p *Planter) spec(ctx context.Context, seed Seed, plot Plot, w Writer) (*Spec, error) {
	schema, err := given(w.Columns(), func(r message.Role) string { return p.Roles[r] }, w.HasDefault, seed.Set, seed.Conversation)
	if err != nil {
		return nil, err
	}
	zone := "UTC"
	local, err := plot.LocalTime(ctx)
	if err != nil {
		return nil, err
	}
	if local {
		zone = p.Zone.String()
	}
	return &Spec{Version: specVersion, Epoch: p.Layout.Epoch, Shift: p.Layout.Shift, Zone: zone, Schema: schema, Set: seed.Set}, nil
}

// choose takes message IDs that the table has not: of the milliseconds from Seed.At on, and
// of low bits that the canary's ID decides.
func (p *Planter) choose(ctx context.Context, seed Seed, spec *Spec, sink rehydrate.Writer) (manifest.Canary, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return manifest.Canary{}, err
	}
	c := manifest.Canary{ID: seed.ID, Shard: seed.Shard, Conversation: seed.Conversation, FirstSeq: 1, Spec: raw}
	first, err := p.Layout.Lowest(seed.At.Truncate(time.Millisecond))
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	const tries = 16
	for try := range tries {
		c.MessageIDs = nil
		for n := range Messages {
			low := binary.BigEndian.Uint64(stream(seed.ID, seed.Shard, Messages*(1+try)+n, 8)) & (1<<p.Layout.Shift - 1)
			id := first + uint64(n)<<p.Layout.Shift + low
			if p.Layout.Shift == 0 {
				id = first + uint64(try*Messages+n)
			}
			c.MessageIDs = append(c.MessageIDs, id)
		}
		of, err := read(c)
		if err != nil {
			return c, err
		}
		b, err := of.Rows()
		if err != nil {
			return c, err
		}
		_, absent, err := sink.Compare(ctx, b)
		if err != nil {
			return c, err
		}
		if len(absent) == Messages {
			return c, nil
		}
	}
	return c, fmt.Errorf("%w: the table has messages of all IDs that were tried at %s: name another instant", ErrRefused, seed.At.UTC().Format(time.RFC3339))
}

// read makes the spec of what the manifest has of a canary.
func read(c manifest.Canary) (*Spec, error) {
	s := &Spec{}
	if err := json.Unmarshal(c.Spec, s); err != nil {
		return nil, fmt.Errorf("canary %s of %s: %w: %w", c.ID, c.Shard, manifest.ErrCorrupt, err)
	}
	s.id, s.shard, s.conv, s.ids, s.first = c.ID, c.Shard, c.Conversation, c.MessageIDs, c.FirstSeq
	return s, nil
}

func write(ctx context.Context, spec *Spec, sink rehydrate.Writer) error {
	b, err := spec.Rows()
	if err != nil {
		return err
	}
	w, err := sink.Write(ctx, b, false)
	if err != nil {
		return err
	}
	var problems []error
	for _, c := range w.Conflicts {
		problems = append(problems, fmt.Errorf("%w: message %d: the table has another in its place (%s)", ErrRefused, c.MessageID, strings.Join(append(slices.Clone(c.Columns), c.Key), " ")))
	}
	for _, r := range w.Refused {
		problems = append(problems, fmt.Errorf("%w: message %d: %s", ErrRefused, r.MessageID, r.Reason))
	}
	return errors.Join(problems...)
}

// rest is what the server put into columns that were not given.
type rest struct {
	Columns []string   `json:"columns"`
	Rows    [][][]byte `json:"rows"` // by message, then column; null is NULL
}

// finish reads a canary back from warm, compares what was given, and notes the rest.
func finish(ctx context.Context, c *manifest.Canary, spec *Spec, t Table) error {
	want, err := spec.Rows()
	if err != nil {
		return err
	}
	got, err := t.Messages(ctx, []byte(c.Conversation), c.MessageIDs, "")
	if err != nil {
		return err
	}
	if problem, columns, _ := compare(want, rest{}, c.MessageIDs, got); problem != "" {
		return fmt.Errorf("%w: what was written reads otherwise (%s %s)", ErrDiffers, problem, strings.Join(columns, ", "))
	}
	var r rest
	var at []int
	for i, col := range got.Schema().Columns() {
		if spec.Schema.Index(col.Name) < 0 {
			r.Columns, at = append(r.Columns, col.Name), append(at, i)
		}
	}
	for _, id := range c.MessageIDs {
		row := rowOf(got, id)
		values := make([][]byte, len(at))
		for n, i := range at {
			values[n] = got.Value(i, row)
		}
		r.Rows = append(r.Rows, values)
	}
	if c.Rest, err = json.Marshal(r); err != nil {
		return err
	}
	var h message.Hasher
	c.Fingerprint = h.Batch(got, 0, got.Len())
	return nil
}

// rowOf is the row of a message, -1 where there is none, -2 where there are several.
func rowOf(b *message.Batch, id uint64) int {
	at := -1
	for i := range b.Len() {
		if b.MessageID(i) == id {
			if at >= 0 {
				return -2
			}
			at = i
		}
	}
	return at
}
