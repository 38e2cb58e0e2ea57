package purge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/manifest"
)

// Edges finds the ends of a table's IDs.
type Edges interface {
	// Edges are the lowest and the highest message ID in [lo, hi); not ok: there is none.
	Edges(ctx context.Context, lo, hi uint64) (first, last uint64, ok bool, err error)
}

// TableTotals are what a plan deletes of one table.
type TableTotals struct {
	Shard      manifest.Shard `json:"shard"`
	Slices     int            `json:"slices"`
	Partitions int            `json:"partitions"` // exchanged as a whole
	Chunks     int            `json:"chunks"`     // with rows to delete
	Rows       uint64         `json:"rows"`       // that warm still has, by the manifest
	Bytes      int64          `json:"bytes"`      // of the copies' objects
	Oldest     *time.Time     `json:"oldest"`     // message that goes
	Newest     *time.Time     `json:"newest"`

	items []Item
}

// Totals are what a plan deletes. All of it is exact: the manifest knows it, and Execute
// deletes nothing else.
type Totals struct {
	Slices     int           `json:"slices"`
	Partitions int           `json:"partitions"`
	Chunks     int           `json:"chunks"`
	Rows       uint64        `json:"rows"`
	Bytes      int64         `json:"bytes"`
	ByRows     uint64        `json:"rows_by_rows"` // of Rows, those deleted chunk by chunk
	Oldest     *time.Time    `json:"oldest"`
	Newest     *time.Time    `json:"newest"`
	Tables     []TableTotals `json:"tables"`
}

// totalsAtOnce is how many tables are asked at once.
const totalsAtOnce = 8

// Totals says what a plan deletes; at is the time of a message ID. It changes nothing.
func (p *Purger) Totals(ctx context.Context, plan *Plan, at func(id uint64) time.Time) (*Totals, error) {
	var ids []uint64
	for _, j := range plan.Jobs {
		for _, s := range j.Slices {
			ids = append(ids, s.ID)
		}
	}
	left, err := p.store.ToDelete(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("totals of the purge: %w", err)
	}
	out := &Totals{Tables: []TableTotals{}}
	place := map[manifest.Shard]int{}
	for _, j := range plan.Jobs {
		if j.Return != "" { // deletes nothing
			continue
		}
		for n, s := range j.Slices {
			i, ok := place[s.Shard]
			if !ok {
				i = len(out.Tables)
				place[s.Shard] = i
				out.Tables = append(out.Tables, TableTotals{Shard: s.Shard})
			}
			t, d := &out.Tables[i], left[s.ID]
			t.Slices, t.Chunks, t.Rows, t.Bytes = t.Slices+1, t.Chunks+d.Chunks, t.Rows+d.Rows, t.Bytes+s.Bytes
			if d.Rows > 0 {
				t.items = append(t.items, s)
			}
			if j.Strategy == Rows {
				out.ByRows += d.Rows
			} else if n == 0 {
				t.Partitions++
			}
		}
	}
	if err := p.times(ctx, out, at); err != nil {
		return nil, fmt.Errorf("totals of the purge: %w", err)
	}
	slices.SortFunc(out.Tables, func(a, b TableTotals) int { return cmp.Compare(a.Shard.String(), b.Shard.String()) })
	for _, t := range out.Tables {
		out.Slices, out.Partitions, out.Chunks, out.Rows, out.Bytes = out.Slices+t.Slices, out.Partitions+t.Partitions, out.Chunks+t.Chunks, out.Rows+t.Rows, out.Bytes+t.Bytes
		if t.Oldest != nil && (out.Oldest == nil || t.Oldest.Before(*out.Oldest)) {
			out.Oldest = t.Oldest
		}
		if t.Newest != nil && (out.Newest == nil || t.Newest.After(*out.Newest)) {
			out.Newest = t.Newest
		}
	}
	return out, nil
}

// times asks the tables for the first message of the oldest slice that has rows, and for the
// last of the newest.
func (p *Purger) times(ctx context.Context, out *Totals, at func(id uint64) time.Time) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(totalsAtOnce)
	for i := range out.Tables {
		t := &out.Tables[i]
		if len(t.items) == 0 {
			continue
		}
		g.Go(func() error {
			oldest, newest := t.items[0], t.items[len(t.items)-1] // oldest day first
			first, _, ok1, err := p.tables[t.Shard].Edges(ctx, oldest.Lo, oldest.Hi)
			if err != nil {
				return err
			}
			_, last, ok2, err := p.tables[t.Shard].Edges(ctx, newest.Lo, newest.Hi)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if ok1 {
				t.Oldest = new(at(first).UTC())
			}
			if ok2 {
				t.Newest = new(at(last).UTC())
			}
			return nil
		})
	}
	return g.Wait()
}
