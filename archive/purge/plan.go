package purge

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Selection narrows what is purged; the zero value is everything.
type Selection struct {
	From, To *snowflake.Day // inclusive
	Shard    string         // glob of DATABASE.TABLE
	Approved *Approved      // nil: a purge needs no approval
}

// Item is a slice that a plan lists. Execute touches it only if it is still this.
type Item struct {
	ID uint64 `json:"id"`
	manifest.SliceKey
	Lo         uint64 `json:"lo,string"`
	Hi         uint64 `json:"hi,string"`
	Generation uint32 `json:"generation"`
	Rows       uint64 `json:"rows"`  // of the copy
	Bytes      int64  `json:"bytes"` // of the copy's objects
}

// Job is what is done as one.
type Job struct {
	Strategy  Strategy `json:"strategy"` // Partition or Rows
	Partition *Range   `json:"partition,omitempty"`
	Staging   string   `json:"staging,omitempty"` // left by a run that ended in the middle
	Return    string   `json:"return,omitempty"`  // a staging table that the manifest has forgotten: its rows are put back, and nothing is deleted
	Slices    []Item   `json:"slices"`            // more than one only by partition

	by *Approved // nil: no approval is needed
}

// Left is a slice that is not touched, and why.
type Left struct {
	manifest.SliceKey
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
}

// Plan is what Execute would do, oldest day first.
type Plan struct {
	Made     time.Time `json:"made"` // by the manifest database's clock
	Lag      string    `json:"lag"`
	Approved string    `json:"approved_plan,omitempty"` // the ID of the approved plan that it does
	Warnings []string  `json:"warnings,omitempty"`
	Jobs     []Job     `json:"jobs"`
	Left     []Left    `json:"left"`

	used atomic.Bool
}

// Rows is the number of rows of all listed slices.
func (p *Plan) Rows() (n uint64) {
	for _, j := range p.Jobs {
		if j.Return != "" {
			continue
		}
		for _, s := range j.Slices {
			n += s.Rows
		}
	}
	return n
}

// Slices is the number of listed slices.
func (p *Plan) Slices() (n int) {
	for _, j := range p.Jobs {
		if j.Return == "" {
			n += len(j.Slices)
		}
	}
	return n
}

// listed counts also slices of which nothing is deleted.
func (p *Plan) listed() (n int) {
	for _, j := range p.Jobs {
		n += len(j.Slices)
	}
	return n
}

// Plan reads what is due and decides how it goes. It changes nothing.
func (p *Purger) Plan(ctx context.Context, sel Selection) (*Plan, error) {
	now, err := p.manifestNow(ctx)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Made: now, Lag: p.cfg.Lag.String(), Jobs: []Job{}, Left: []Left{}, Warnings: p.warnings()}
	all, err := p.store.Slices(ctx, manifest.Filter{States: []manifest.State{manifest.Verified, manifest.Purging}, From: sel.From, To: sel.To, Shard: sel.Shard})
	if err != nil {
		return nil, fmt.Errorf("plan of the purge: %w", err)
	}
	var due, waiting []manifest.Slice
	if sel.Approved != nil {
		plan.Approved = sel.Approved.ID
		var left []Left
		if all, waiting, left, err = p.approved(ctx, sel, all); err != nil {
			return nil, fmt.Errorf("plan of the purge: %w", err)
		}
		plan.Left = append(plan.Left, left...)
	}
	for _, s := range all {
		if o, why := p.wait(s, now); o != "" {
			if s.Staging == "" {
				waiting = append(waiting, s)
			}
			plan.Left = append(plan.Left, Left{s.SliceKey, o, why})
			continue
		}
		due = append(due, s)
	}
	if plan.Jobs, err = p.isolated(ctx, waiting, now); err != nil {
		return nil, fmt.Errorf("plan of the purge: %w", err)
	}
	if plan.Jobs == nil {
		plan.Jobs = []Job{}
	}
	for _, j := range plan.Jobs {
		plan.Left = slices.DeleteFunc(plan.Left, func(l Left) bool { return l.SliceKey == j.Slices[0].SliceKey })
	}
	near, err := p.neighbours(ctx, due)
	if err != nil {
		return nil, fmt.Errorf("plan of the purge: %w", err)
	}
	done := map[uint64]bool{}
	for _, s := range due {
		if done[s.ID] {
			continue
		}
		job, why, err := p.job(ctx, s, due, near[s.Shard])
		if err != nil {
			return nil, fmt.Errorf("plan of slice %s: %w", s.SliceKey, err)
		}
		if why != "" {
			plan.Left = append(plan.Left, Left{s.SliceKey, LeftOver, why})
			done[s.ID] = true
			continue
		}
		for _, i := range job.Slices {
			done[i.ID] = true
		}
		plan.Jobs = append(plan.Jobs, job)
	}
	for i := range plan.Jobs {
		plan.Jobs[i].by = sel.Approved
	}
	return plan, nil
}

func (p *Purger) warnings() []string {
	if p.cfg.Lag >= ShortLag {
		return nil
	}
	return []string{fmt.Sprintf("purge.lag is %s: rows are deleted less than %s after their verification", p.cfg.Lag, ShortLag)}
}

// wait says why a slice is not due, or nothing. The manifest decides again when it
// makes the grant.
func (p *Purger) wait(s manifest.Slice, now time.Time) (Outcome, string) {
	switch {
	case s.State == manifest.Purging && s.LeaseUntil != nil && s.LeaseUntil.After(now):
		return Leased, fmt.Sprintf("another run (%s) holds it until %s", s.LeaseOwner, s.LeaseUntil.UTC().Format(time.RFC3339))
	case s.Held && s.Staging == "": // rows that a crash left isolated are put back even if held
		return Held, "a hold forbids deleting it"
	case s.VerifiedAt == nil:
		return Early, "has no time of verification"
	case s.VerifiedAt.Add(p.cfg.Lag).After(now) && s.Staging == "":
		return Early, fmt.Sprintf("may go from %s on", s.VerifiedAt.Add(p.cfg.Lag).UTC().Format(time.RFC3339))
	case p.tables[s.Shard] == nil:
		return LeftOver, fmt.Sprintf("table %s is not among the configured ones", s.Shard)
	}
	return "", ""
}

func item(s manifest.Slice) Item {
	return Item{ID: s.ID, SliceKey: s.SliceKey, Lo: s.Lo, Hi: s.Hi, Generation: s.Generation, Rows: s.Rows, Bytes: s.Bytes}
}

// around is how many days before and after the due ones are looked at for slices
// that share a partition with them. Those further off are not missed: their rows
// would be met as rows of no slice.
const around = 31

// neighbours lists the slices, in any state, of the days around those that are due.
func (p *Purger) neighbours(ctx context.Context, due []manifest.Slice) (map[manifest.Shard][]manifest.Slice, error) {
	near := map[manifest.Shard][]manifest.Slice{}
	if len(due) == 0 || p.cfg.Strategy == Rows {
		return near, nil
	}
	from, to := due[0].Day.Add(-around), due[len(due)-1].Day.Add(around) // oldest day first
	all, err := p.store.Slices(ctx, manifest.Filter{From: &from, To: &to})
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		near[s.Shard] = append(near[s.Shard], s)
	}
	return near, nil
}

// job finds how a slice goes, and with which others. The text says why it can't.
func (p *Purger) job(ctx context.Context, s manifest.Slice, due, near []manifest.Slice) (Job, string, error) {
	if s.Staging != "" {
		j := Job{Strategy: Partition, Staging: s.Staging}
		for _, o := range due {
			if o.Shard == s.Shard && o.Staging == s.Staging {
				j.Slices = append(j.Slices, item(o))
			}
		}
		return j, "", nil
	}
	rows := Job{Strategy: Rows, Slices: []Item{item(s)}}
	if p.cfg.Strategy == Rows {
		return rows, "", nil
	}
	t := p.tables[s.Shard]
	r, ok, err := t.Partition(ctx, s.Lo, s.Hi)
	if err != nil {
		return Job{}, "", err
	}
	why := "no partition by message ID holds the slice whole"
	if ok {
		var items []Item
		if items, why, err = p.fills(ctx, t, r, due, near); err != nil {
			return Job{}, "", err
		}
		if why == "" {
			return Job{Strategy: Partition, Partition: &r, Slices: items}, "", nil
		}
	}
	if p.cfg.Strategy == Partition {
		return Job{}, "purge.strategy is partition, but " + why, nil
	}
	return rows, "", nil
}

// fills finds the slices that a partition holds. The text says why the partition
// can't go as a whole: a slice in it is not due, one reaches out of it, or it has
// rows or room for rows that belong to none of them. Only before its first slice
// (the oldest partition begins at 0) may it have room, when that is empty; the end
// of a partition without slices is where new messages arrive.
func (p *Purger) fills(ctx context.Context, t Table, r Range, due, near []manifest.Slice) ([]Item, string, error) {
	isDue := map[uint64]bool{}
	for _, s := range due {
		isDue[s.ID] = s.Staging == ""
	}
	in := slices.DeleteFunc(slices.Clone(near), func(s manifest.Slice) bool { return s.Hi <= r.Lo || s.Lo >= r.Hi })
	var items []Item
	for i, s := range in {
		switch {
		case s.Lo < r.Lo || s.Hi > r.Hi:
			return nil, fmt.Sprintf("partition %s holds a part only of slice %s", r.Name, s.SliceKey), nil
		case i > 0 && in[i-1].Hi != s.Lo:
			return nil, fmt.Sprintf("partition %s has IDs of no slice before %s", r.Name, s.SliceKey), nil
		case s.State == manifest.Purged: // must be found empty
		case !isDue[s.ID]:
			return nil, fmt.Sprintf("partition %s also holds slice %s, which is not due", r.Name, s.SliceKey), nil
		default:
			items = append(items, item(s))
		}
	}
	if len(items) == 0 || in[len(in)-1].Hi != r.Hi {
		return nil, fmt.Sprintf("partition %s goes on after its last slice", r.Name), nil
	}
	if in[0].Lo > r.Lo {
		f, err := t.Fingerprint(ctx, r.Lo, in[0].Lo)
		if err != nil {
			return nil, "", err
		}
		if f.Rows > 0 {
			return nil, fmt.Sprintf("partition %s holds %d rows older than its first slice", r.Name, f.Rows), nil
		}
	}
	for _, s := range in {
		if s.State != manifest.Purged {
			continue
		}
		f, err := t.Fingerprint(ctx, s.Lo, s.Hi)
		if err != nil {
			return nil, "", err
		}
		if f.Rows > 0 {
			return nil, fmt.Sprintf("partition %s holds %d late rows of slice %s", r.Name, f.Rows, s.SliceKey), nil
		}
	}
	return items, "", nil
}
