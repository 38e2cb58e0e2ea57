package warm

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// partitionsAhead is how far a table's partitions should reach into the future.
const partitionsAhead = 7 * 24 * time.Hour

// Purging is how the purge can take a table's rows, as far as the table decides it.
type Purging struct {
	Exchange bool // whole partitions can be exchanged
	Why      string
	// Of the partitions that can be: how many hold one day, how many hold several whole
	// days, and the most of these; and those that end within a day.
	Single, Several, Days, Odd int
}

// Purging tells how the table's rows can leave it. It asks what the purge asks (see
// Partition), so that it says what that will do.
func (t *Table) Purging(ctx context.Context) (Purging, error) {
	s, err := t.d.session(ctx)
	if err != nil {
		return Purging{}, err
	}
	defer s.close(ctx)
	p, err := t.purging(ctx, s)
	if err != nil {
		err = fmt.Errorf("table %s: partitions: %w", t.shard, err)
	}
	return p, err
}

func (t *Table) purging(ctx context.Context, s *session) (p Purging, err error) {
	if !strings.Contains(t.ShowCreate(), " PARTITION BY ") {
		p.Why = "it is not partitioned"
		return p, nil
	}
	all, err := t.partitions(ctx, s)
	if err != nil {
		return p, err
	}
	if len(all) == 0 {
		p.Why = "its partitions are not by RANGE of the plain message ID, or have subpartitions, or none ends before MAXVALUE"
		return p, nil
	}
	triggers, err := t.triggers(ctx, s)
	if err != nil {
		return p, err
	}
	zone, cuts := t.d.cfg.Zone, 0
	for i, part := range all {
		if !t.cut(part.Hi) {
			p.Odd++
			continue
		}
		if i > 0 && !t.cut(part.Lo) {
			continue // holds a part of a day at its beginning
		}
		cuts++
		days := 1
		if i > 0 { // the first begins at 0, wherever its first row is
			first, last := t.d.cfg.Layout.DayOf(part.Lo, zone), t.d.cfg.Layout.DayOf(part.Hi-1, zone)
			days = last.Sub(first) + 1
		}
		if days > 1 {
			p.Several, p.Days = p.Several+1, max(p.Days, days)
		} else {
			p.Single++
		}
	}
	switch {
	case len(triggers) > 0:
		p.Why = "it has triggers, which an exchange would pass by"
	case cuts == 0:
		p.Why = "no partition holds a whole day"
	default:
		p.Exchange = true
		p.Why = "each of its partitions holds a whole day"
		if p.Several > 0 {
			p.Why = fmt.Sprintf("its partitions hold whole days, up to %d, and go when all of these may go", p.Days)
		}
		if p.Odd > 0 {
			p.Why += fmt.Sprintf("; by rows where a day lies in two partitions, at the ends of %d", p.Odd)
		}
	}
	return p, nil
}

// cut says whether an ID is the first of a day.
func (t *Table) cut(id uint64) bool {
	lo, _, err := t.d.cfg.Layout.Window(t.d.cfg.Layout.DayOf(id, t.d.cfg.Zone), t.d.cfg.Zone)
	return err != nil || lo == id // beyond the last day there is none to cut
}

// checkPartitions says which partitions the purge cannot exchange, and where new rows go.
func (t *Table) checkPartitions(ctx context.Context, s *session, add func(Code, string, string), unlooked func(error)) {
	all, err := t.partitions(ctx, s)
	if err != nil {
		unlooked(err)
		return
	}
	if len(all) == 0 {
		return
	}
	var odd []string
	for _, p := range all {
		if !t.cut(p.Hi) {
			odd = append(odd, p.Name)
		}
	}
	if len(odd) > 0 {
		add(CodePartitionsOdd, fmt.Sprintf("%d of %d partitions end within a day of zone %s, such as %s", len(odd), len(all), t.d.cfg.Zone, odd[0]),
			"they are purged by rows; partitions that end where days do can be exchanged")
	}
	now, err := t.d.now(ctx)
	if err != nil {
		unlooked(err)
		return
	}
	end := t.d.cfg.Layout.Time(all[len(all)-1].Hi)
	left := end.Sub(now)
	when := end.In(t.d.cfg.Zone).Format(time.DateTime)
	switch maxvalue := strings.Contains(t.ShowCreate(), "MAXVALUE"); {
	case maxvalue && left < 0:
		add(CodePartitionsShort, "its last partition with a bound ends at "+when+", so that new messages go into that of MAXVALUE",
			"make partitions ahead of time; what lies in the partition of MAXVALUE is purged by rows")
	case maxvalue:
	case left < partitionsAhead:
		add(CodePartitionsEnd, "its last partition ends at "+when+", and there is none of MAXVALUE: later messages are refused",
			"add partitions, or one VALUES LESS THAN MAXVALUE")
	default:
		add(CodeNoMaxvalue, "has no partition of MAXVALUE: messages after "+when+" will be refused", "add partitions before then")
	}
}
