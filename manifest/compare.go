package manifest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// Difference is something that two manifests of a source say differently.
type Difference struct {
	Slice      *SliceKey `json:"slice,omitempty"`      // nil: of a hold or a status
	Generation uint32    `json:"generation,omitempty"` // 0: of the slice, or of none
	What       string    `json:"what"`
	// InFlight: it is no fault of either, but what the live manifest is doing now, or has
	// done since the other was made: a copy that is not committed yet, a commit or a purge
	// since, a hold or a status that is not in the bucket yet.
	InFlight bool `json:"in_flight,omitempty"`
}

// String names the slice and what differs.
func (d Difference) String() string {
	switch {
	case d.Slice == nil:
		return d.What
	case d.Generation == 0:
		return fmt.Sprintf("slice %s: %s", d.Slice, d.What)
	}
	return fmt.Sprintf("slice %s generation %d: %s", d.Slice, d.Generation, d.What)
}

// maxDifferences is how many differences Compare gives.
const maxDifferences = 1000

var errEnough = errors.New("enough differences")

// Compare says what a rebuilt manifest says otherwise than the live one. What the bucket
// cannot know is no difference: times of verification, runs, leases, failures, and how far
// a purge that goes on has come. It gives at most 1,000 differences and reads both row by
// row, in bounded memory; what changes meanwhile may be among them, in flight or not.
func Compare(ctx context.Context, live, rebuilt *Store) ([]Difference, error) {
	c := &comparison{ctx: ctx, live: live, rebuilt: rebuilt}
	err := c.all()
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err != nil {
		return c.found, fmt.Errorf("compare two manifests of source %s: %w", live.source, err)
	}
	return c.found, nil
}

type comparison struct {
	ctx           context.Context
	live, rebuilt *Store
	found         []Difference
}

func (c *comparison) add(d Difference) error {
	c.found = append(c.found, d)
	if len(c.found) >= maxDifferences {
		return errEnough
	}
	return nil
}

func (c *comparison) all() error {
	days := map[snowflake.Day]bool{}
	var order []snowflake.Day
	for _, s := range []*Store{c.live, c.rebuilt} {
		list, err := s.days(c.ctx)
		if err != nil {
			return err
		}
		for _, d := range list {
			if !days[d] {
				days[d], order = true, append(order, d)
			}
		}
	}
	for _, d := range order {
		if err := c.day(d); err != nil {
			return err
		}
	}
	if err := c.holds(); err != nil {
		return err
	}
	return c.statuses()
}

// days lists the days of a source's slices.
func (s *Store) days(ctx context.Context) (all []snowflake.Day, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT DISTINCT day FROM slices WHERE source_id = ? ORDER BY day", src)
	if err != nil {
		return nil, fmt.Errorf("list the manifest's days: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var d snowflake.Day
		if err := rows.Scan(&d); err != nil {
			return nil, fmt.Errorf("list the manifest's days: %w", err)
		}
		all = append(all, d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the manifest's days: %w", err)
	}
	return all, nil
}

func (c *comparison) day(d snowflake.Day) error {
	list := func(s *Store) (map[Shard]Slice, []Slice, error) {
		all, err := s.Slices(c.ctx, Filter{From: &d, To: &d})
		by := map[Shard]Slice{}
		for _, sl := range all {
			by[sl.Shard] = sl
		}
		return by, all, err
	}
	// The rebuilt one first: what the live one gets meanwhile then is more, not less.
	theirs, rebuilt, err := list(c.rebuilt)
	if err != nil {
		return err
	}
	mine, all, err := list(c.live)
	if err != nil {
		return err
	}
	for _, sl := range all {
		other, ok := theirs[sl.Shard]
		if ok {
			err = c.slice(sl, other)
		} else {
			err = c.lacks(sl)
		}
		if err != nil {
			return err
		}
	}
	for _, sl := range rebuilt {
		if _, ok := mine[sl.Shard]; ok {
			continue
		}
		if err := c.add(Difference{Slice: &sl.SliceKey, Generation: sl.Generation, What: "the live manifest lacks the slice"}); err != nil {
			return err
		}
	}
	return nil
}

// lacks is that the rebuilt manifest has no such slice. One that was never committed is in
// no bucket.
func (c *comparison) lacks(sl Slice) error {
	switch {
	case sl.Generation > 0:
		return c.add(Difference{Slice: &sl.SliceKey, Generation: sl.Generation, What: "the rebuilt manifest lacks the slice", InFlight: sl.Generation == 1 && sl.State == Committed})
	case sl.State != Pending:
		return c.add(Difference{Slice: &sl.SliceKey, What: "it is " + string(sl.State) + ", and not committed yet", InFlight: true})
	}
	return nil
}

// copyHead is what a manifest says of a generation once.
type copyHead struct {
	token                        uint64
	attempt, schema, show, where string
	copied                       time.Time
	rows, bytes                  uint64
	sum                          []byte
}

func (s *Store) heads(ctx context.Context, id uint64) (map[uint32]copyHead, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT generation, token, attempt, schema_hash, show_create, record_key, copied_at, row_count, bytes, record_sum FROM copies WHERE slice_id = ?", id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := map[uint32]copyHead{}
	for rows.Next() {
		var g uint32
		var h copyHead
		if err := rows.Scan(&g, &h.token, &h.attempt, &h.schema, &h.show, &h.where, &h.copied, &h.rows, &h.bytes, &h.sum); err != nil {
			return nil, err
		}
		all[g] = h
	}
	return all, rows.Err()
}

func (c *comparison) slice(a, b Slice) error {
	if a.Lo != b.Lo || a.Hi != b.Hi {
		if err := c.add(Difference{Slice: &a.SliceKey, What: fmt.Sprintf("message IDs [%d, %d) in the live manifest, [%d, %d) in the rebuilt one", a.Lo, a.Hi, b.Lo, b.Hi)}); err != nil {
			return err
		}
	}
	mine, err := c.live.heads(c.ctx, a.ID)
	if err != nil {
		return err
	}
	theirs, err := c.rebuilt.heads(c.ctx, b.ID)
	if err != nil {
		return err
	}
	for g := range max(a.Generation, b.Generation) {
		g++
		x, ok := mine[g]
		y, also := theirs[g]
		switch {
		case !ok && !also: // a number that was skipped
		case !also:
			err = c.add(Difference{Slice: &a.SliceKey, Generation: g, What: "the rebuilt manifest lacks the generation", InFlight: g == a.Generation && a.Live != g && g > b.Generation})
		case !ok:
			// Put, and not committed yet, or the live manifest was set back.
			busy := g == a.Generation+1 && (a.State == Copying || a.State == Pending)
			err = c.add(Difference{Slice: &a.SliceKey, Generation: g, What: "the live manifest lacks the generation", InFlight: busy})
		default:
			err = c.copies(a, b, g, x, y)
		}
		if err != nil {
			return err
		}
	}
	return c.purge(a, b)
}

// purge compares what is known of the purge, which the bucket knows at its begin and end.
func (c *comparison) purge(a, b Slice) error {
	what, flight := "", false
	switch {
	case a.State == Purged && a.Generation == b.Generation && b.State != Purged:
		what, flight = fmt.Sprintf("it is purged in the live manifest, %s in the rebuilt one", b.State), b.State == Verified
	case b.State == Purged && a.Generation == b.Generation && a.State != Purged && a.Reason != ReasonLate:
		what, flight = fmt.Sprintf("it is %s in the live manifest, purged in the rebuilt one", a.State), a.State == Purging
	case b.Live > a.Live && a.Generation == b.Generation:
		what = fmt.Sprintf("generation %d serves reads in the live manifest, %d in the rebuilt one", a.Live, b.Live)
	}
	if what == "" {
		return nil
	}
	return c.add(Difference{Slice: &a.SliceKey, What: what, InFlight: flight})
}

func (c *comparison) copies(a, b Slice, g uint32, x, y copyHead) error {
	differ := func(what string, is bool) error {
		if !is {
			return nil
		}
		return c.add(Difference{Slice: &a.SliceKey, Generation: g, What: what})
	}
	for _, d := range []struct {
		what string
		is   bool
	}{
		{fmt.Sprintf("attempt %s in the live manifest, %s in the rebuilt one", x.attempt, y.attempt), x.attempt != y.attempt},
		{"the columns differ", x.schema != y.schema},
		{"the table's definition differs", x.show != y.show},
		{fmt.Sprintf("commit record %s in the live manifest, %s in the rebuilt one", x.where, y.where), x.where != y.where},
		{"the commit record's SHA-256 differs", !bytes.Equal(x.sum, y.sum)},
		{fmt.Sprintf("copied at %s in the live manifest, %s in the rebuilt one", x.copied.Format(time.RFC3339Nano), y.copied.Format(time.RFC3339Nano)), !x.copied.Equal(y.copied)},
		{fmt.Sprintf("%d rows, %d bytes in the live manifest, %d and %d in the rebuilt one", x.rows, x.bytes, y.rows, y.bytes), x.rows != y.rows || x.bytes != y.bytes},
	} {
		if err := differ(d.what, d.is); err != nil {
			return err
		}
	}
	if x.attempt != y.attempt { // all the rest is another copy's
		return nil
	}
	for _, t := range []struct{ table, columns, order string }{
		{"chunks", "seq, from_id, to_id, warm_hi, warm_lo, warm_rows, carried_hi, carried_lo, carried_rows", "seq"},
		{"objects", "seq, name, HEX(file)", "seq"},
		{"segments", "object_seq, seq, HEX(conversation), day, min_cursor, max_cursor, first_row, row_count, first_group, last_group, sum_hi, sum_lo", "object_seq, seq"},
	} {
		query := "SELECT " + t.columns + " FROM " + t.table + " WHERE slice_id = ? AND token = ? ORDER BY " + t.order
		at, err := sameRows(c.ctx, c.live.db.DB, c.rebuilt.db.DB, query, []any{a.ID, x.token}, []any{b.ID, y.token})
		if err != nil {
			return fmt.Errorf("slice %s generation %d: %s: %w", a.SliceKey, g, t.table, err)
		}
		if err := differ(fmt.Sprintf("its %s differ, the first is row %s", t.table, at), at != ""); err != nil {
			return err
		}
	}
	return nil
}

// sameRows reads two results side by side and gives the first row that differs, "" none.
func sameRows(ctx context.Context, a, b *sql.DB, query string, argsA, argsB []any) (at string, err error) {
	x, err := newCursor(ctx, a, query, argsA)
	if err != nil {
		return "", err
	}
	defer x.close()
	y, err := newCursor(ctx, b, query, argsB)
	if err != nil {
		return "", err
	}
	defer y.close()
	for n := 0; ; n++ {
		okX, errX := x.next()
		okY, errY := y.next()
		if err := errors.Join(errX, errY); err != nil {
			return "", err
		}
		switch {
		case !okX && !okY:
			return "", nil
		case !okX:
			return fmt.Sprintf("%d, which the live manifest lacks", n), nil
		case !okY:
			return fmt.Sprintf("%d, which the rebuilt manifest lacks", n), nil
		}
		for i := range x.row {
			if !bytes.Equal(x.row[i], y.row[i]) {
				return fmt.Sprintf("%d, by its %s", n, x.names[i]), nil
			}
		}
	}
}

// cursor reads a result row by row.
type cursor struct {
	rows  *sql.Rows
	names []string
	row   []sql.RawBytes
	into  []any
}

func newCursor(ctx context.Context, db *sql.DB, query string, args []any) (*cursor, error) {
	rows, err := db.QueryContext(ctx, query, args...) //nolint:rowserrcheck // close closes it, next asks for its error
	if err != nil {
		return nil, err
	}
	c := &cursor{rows: rows}
	if c.names, err = rows.Columns(); err != nil {
		c.close()
		return nil, err
	}
	c.row, c.into = make([]sql.RawBytes, len(c.names)), make([]any, len(c.names))
	for i := range c.row {
		c.into[i] = &c.row[i]
	}
	return c, nil
}

func (c *cursor) next() (bool, error) {
	if !c.rows.Next() {
		return false, c.rows.Err()
	}
	return true, c.rows.Scan(c.into...)
}

func (c *cursor) close() { _ = c.rows.Close() }

func (c *comparison) holds() error {
	mine, err := c.live.allHolds(c.ctx)
	if err != nil {
		return err
	}
	theirs, err := c.rebuilt.allHolds(c.ctx)
	if err != nil {
		return err
	}
	for id, h := range mine {
		o, ok := theirs[id]
		what := ""
		switch {
		case !ok:
			what = fmt.Sprintf("hold %d on %s %s: the rebuilt manifest lacks it", id, h.Kind, h.Subject)
		case h.Kind != o.Kind || h.Subject != o.Subject || h.By != o.By || h.Reason != o.Reason || !h.At.Equal(o.At) || h.ReleasedBy != o.ReleasedBy ||
			!sameTime(h.ReleasedAt, o.ReleasedAt) || !sameTime(h.ExpiresAt, o.ExpiresAt):
			what = fmt.Sprintf("hold %d on %s %s differs", id, h.Kind, h.Subject)
		default:
			continue
		}
		if err := c.add(Difference{What: what, InFlight: !h.mirrored}); err != nil {
			return err
		}
	}
	for id, h := range theirs {
		if _, ok := mine[id]; !ok {
			if err := c.add(Difference{What: fmt.Sprintf("hold %d on %s %s: the live manifest lacks it", id, h.Kind, h.Subject)}); err != nil {
				return err
			}
		}
	}
	return nil
}

func sameTime(a, b *time.Time) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Equal(*b))
}

// statuses compares the statuses side by side, in the order of their key.
func (c *comparison) statuses() error {
	open := func(s *Store) (*cursor, error) {
		src, err := s.sourceOf(c.ctx, false)
		if err != nil {
			return nil, err
		}
		return newCursor(c.ctx, s.db.DB, "SELECT HEX(conversation), LPAD(message_id, 20, '0'), message_id, kind, value, put_by, put_at, folded, has_original, original, mirrored FROM statuses WHERE source_id = ? ORDER BY conversation, message_id", []any{src})
	}
	y, err := open(c.rebuilt)
	if err != nil {
		return err
	}
	defer y.close()
	x, err := open(c.live)
	if err != nil {
		return err
	}
	defer x.close()
	const id, mirrored = 2, 10
	okX, errX := x.next()
	okY, errY := y.next()
	for {
		if err := errors.Join(errX, errY); err != nil {
			return err
		}
		if !okX && !okY {
			return nil
		}
		order := 0
		switch {
		case !okX:
			order = 1
		case !okY:
			order = -1
		default:
			if order = bytes.Compare(x.row[0], y.row[0]); order == 0 {
				order = bytes.Compare(x.row[1], y.row[1])
			}
		}
		var d *Difference
		switch {
		case order < 0:
			d = &Difference{What: fmt.Sprintf("the status of message %s: the rebuilt manifest lacks it", x.row[id]), InFlight: string(x.row[mirrored]) == "0"}
		case order > 0:
			d = &Difference{What: fmt.Sprintf("the status of message %s: the live manifest lacks it", y.row[id])}
		default:
			for i := id + 1; i < mirrored && d == nil; i++ {
				if !bytes.Equal(x.row[i], y.row[i]) || (x.row[i] == nil) != (y.row[i] == nil) {
					d = &Difference{What: fmt.Sprintf("the status of message %s differs by its %s", x.row[id], x.names[i]), InFlight: string(x.row[mirrored]) == "0"}
				}
			}
		}
		if d != nil {
			if err := c.add(*d); err != nil {
				return err
			}
		}
		if order <= 0 {
			okX, errX = x.next()
		}
		if order >= 0 {
			okY, errY = y.next()
		}
	}
}
