package archive

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Work is what is to be done with one slice.
type Work struct {
	manifest.Slice
	Action Action `json:"action"`
	New    bool   `json:"new"` // not yet in the manifest
	table  Table
	lot    uint64 // its place among the slices of its day
	empty  bool   // it had no rows when the plan was made, if that was looked at
}

// Action is what a run does with a slice.
type Action string

// The actions.
const (
	ActionCopy   Action = "copy"   // copy, commit, verify
	ActionVerify Action = "verify" // committed by a run that did not live to verify it
	ActionLate   Action = "late"   // rows turned up after the purge: copy a further generation
)

// Plan is what a run would do, oldest day first. Making it changes nothing.
type Plan struct {
	Newest snowflake.Day `json:"newest_day"` // the youngest day that is old enough
	Work   []Work        `json:"slices"`
}

// Plan lists the slices that are old enough and not yet copied and verified.
//
// Every day of a table from its first to the youngest that is old enough gets a
// slice, also one without rows, so that "nothing there" and "not looked at" differ.
// A table's first day is the oldest that it has rows or slices for, or the
// selection's From.
func (a *Archiver) Plan(ctx context.Context, sel Selection) (*Plan, error) {
	now, err := a.Manifest.Now(ctx)
	if err != nil {
		return nil, err
	}
	newest := snowflake.DayAt(now.Add(-a.cfg.After), a.Zone).Add(-1)
	if a.cfg.After <= 0 {
		newest = snowflake.DayAt(now, a.Zone).Add(-1) // a day in progress is never archived
	}
	for _, d := range []*snowflake.Day{sel.From, sel.To} {
		if d != nil && newest.Before(*d) {
			return nil, fmt.Errorf("day %s: %w: archive.after is %s, so %s is the youngest day that may be (by the manifest database's clock, %s)",
				d, ErrTooYoung, a.cfg.After, newest, now.UTC().Format(time.RFC3339))
		}
	}
	if sel.From != nil && sel.To != nil && sel.To.Before(*sel.From) {
		return nil, fmt.Errorf("no day lies from %s to %s: the first is after the last", sel.From, sel.To)
	}
	var wanted []Table
	for _, t := range a.Tables {
		if ok, err := matchShard(sel.Shard, t.Shard()); err != nil {
			return nil, err
		} else if ok {
			wanted = append(wanted, t)
		}
	}
	tables, err := a.allDays(ctx, wanted, newest, sel.Filled)
	if err != nil {
		return nil, err
	}
	if len(tables) == 0 {
		return nil, fmt.Errorf("%w --shard %q: want DATABASE.TABLE, with * for any text", ErrNoTable, sel.Shard)
	}
	last := newest
	if sel.To != nil {
		last = *sel.To
	}
	lists := make([][]Work, len(tables))
	for i, td := range tables {
		first := td.first
		if sel.From != nil {
			first = *sel.From
		}
		if lists[i], err = a.work(td, first, last); err != nil {
			return nil, fmt.Errorf("table %s: %w", td.table.Shard(), err)
		}
		tables[i] = tableDays{} // there may be hundreds of slices of each of a thousand tables
	}
	return &Plan{Newest: newest, Work: byDay(lists)}, nil
}

// byDay joins lists that are in order of days. Of the same day the first list's come
// first. Sorting what they hold takes a hundred times as long.
func byDay(lists [][]Work) []Work {
	n := 0
	for _, l := range lists {
		n += len(l)
	}
	all := make([]Work, 0, n)
	for len(all) < n {
		var day *snowflake.Day
		for _, l := range lists {
			if len(l) > 0 && (day == nil || l[0].Day.Before(*day)) {
				day = &l[0].Day
			}
		}
		now := *day
		for i, l := range lists {
			for len(l) > 0 && l[0].Day == now {
				all, l = append(all, l[0]), l[1:]
			}
			lists[i] = l
		}
	}
	return all
}

func matchShard(glob string, s manifest.Shard) (bool, error) {
	if glob == "" {
		return true, nil
	}
	ok, err := path.Match(glob, s.String())
	if err != nil {
		return false, fmt.Errorf("shard glob %q: %w", glob, err)
	}
	return ok, nil
}

// planAtOnce is how many tables are looked at at once.
const planAtOnce = 4

// allDays looks at tables, several at once: each takes a few round trips.
func (a *Archiver) allDays(ctx context.Context, tables []Table, newest snowflake.Day, filled bool) ([]tableDays, error) {
	all := make([]tableDays, len(tables))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(planAtOnce)
	for i, t := range tables {
		g.Go(func() (err error) {
			if err := t.EpochFits(ctx); err != nil {
				return err
			}
			if all[i], err = a.days(ctx, t, newest, filled); err != nil {
				return fmt.Errorf("table %s: %w", t.Shard(), err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return all, nil
}

// tableDays is what a table and the manifest hold of its days up to the newest
// that is old enough.
type tableDays struct {
	table  Table
	known  map[snowflake.Day]manifest.Slice
	filled map[snowflake.Day]bool // days with rows in warm, of those that were looked at
	all    bool                   // that were all
	first  snowflake.Day          // oldest of both
}

func (a *Archiver) days(ctx context.Context, t Table, newest snowflake.Day, filled bool) (tableDays, error) {
	td := tableDays{table: t, known: map[snowflake.Day]manifest.Slice{}, filled: map[snowflake.Day]bool{}, all: filled, first: newest}
	known, err := a.Manifest.SlicesOf(ctx, t.Shard(), newest)
	if err != nil {
		return td, err
	}
	for _, s := range known {
		if err := SameWindow(a.Layout, a.Zone, s); err != nil {
			return td, err
		}
		td.known[s.Day] = s
		if s.Day.Before(td.first) {
			td.first = s.Day
		}
	}
	_, end, err := a.Layout.Window(newest, a.Zone)
	if err != nil {
		return td, err
	}
	// From row to row and over the rest of its day: as many queries as days with rows.
	// Unless all days are to be looked at, only the oldest row and the days that were
	// purged count: as many queries as of these have rows, and a few.
	for from := uint64(0); from < end; {
		id, ok, err := t.NextID(ctx, from)
		if err != nil {
			return td, err
		}
		if !ok || id >= end {
			break
		}
		day := a.Layout.DayOf(id, a.Zone)
		td.filled[day] = true
		if day.Before(td.first) {
			td.first = day
		}
		if _, from, err = a.Layout.Window(day, a.Zone); err != nil {
			return td, err
		}
		if filled {
			continue
		}
		next := slices.IndexFunc(known, func(s manifest.Slice) bool { return s.State == manifest.Purged && s.Lo >= from })
		if next < 0 {
			break
		}
		from = known[next].Lo
	}
	return td, nil
}

// SameWindow refuses to go on when days are cut otherwise than when a slice was
// made: new slices would overlap the old ones, or leave hours between them that
// belong to none.
func SameWindow(layout snowflake.Layout, zone *time.Location, s manifest.Slice) error {
	lo, hi, err := layout.Window(s.Day, zone)
	if err == nil && (lo != s.Lo || hi != s.Hi) {
		err = fmt.Errorf("it would have message IDs [%d, %d)", lo, hi)
	}
	if err != nil {
		return fmt.Errorf("%w: slice %s has message IDs [%d, %d): source.timezone or source.snowflake was changed, set it back: %w", ErrUnsafe, s.SliceKey, s.Lo, s.Hi, err)
	}
	return nil
}

func (a *Archiver) work(td tableDays, first, last snowflake.Day) ([]Work, error) {
	var out []Work
	for day := first; !last.Before(day); day = day.Next() {
		w := Work{Action: ActionCopy, table: td.table, empty: td.all && !td.filled[day]}
		s, known := td.known[day]
		if known {
			w.Slice = s
			switch s.State {
			case manifest.Pending, manifest.Copying:
			case manifest.Committed:
				if a.cfg.Verify == VerifyLater {
					continue
				}
				w.Action = ActionVerify
			case manifest.Purged:
				if !td.filled[day] {
					continue
				}
				w.Action = ActionLate
			default:
				continue
			}
			out = append(out, w)
			continue
		}
		lo, hi, err := a.Layout.Window(day, a.Zone)
		if err != nil {
			return nil, err
		}
		if lo == hi { // a day that never was: the zone skipped it
			continue
		}
		w.New = true
		w.Slice = manifest.Slice{SliceKey: manifest.SliceKey{Source: a.Source, Shard: td.table.Shard(), Day: day}, Lo: lo, Hi: hi, State: manifest.Pending}
		out = append(out, w)
	}
	return out, nil
}
