package archive

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// Checking narrows a verification to what is due; what is set narrows it further.
//
// Samples, and budgets without OlderThan, go by rounds: what was read since the round began
// is not due, and when nothing is left the next round begins. So they cover everything.
type Checking struct {
	OlderThan time.Duration // parts that were read within it are not; 0: no matter when
	Sample    Fraction      // of the slices: those of a round that were not read since it began
	Budget    int64         // bytes that may be read from the bucket; 0: no limit
	Seed      uint64        // of the round that begins when a sample finds the former one done
}

// Fraction is Of/All; the zero Fraction is all.
type Fraction struct {
	Of  int `json:"of"`
	All int `json:"all"`
}

// String is "1/8".
func (f Fraction) String() string { return fmt.Sprintf("%d/%d", f.Of, f.All) }

// Due is what a verification would read, in this order. Making it changes nothing.
type Due struct {
	Now      time.Time            `json:"now"`              // by the manifest database's clock
	Before   *time.Time           `json:"before,omitempty"` // what was read since is not due
	Round    *manifest.CheckRound `json:"round,omitempty"`  // it belongs to
	NewRound bool                 `json:"new_round,omitempty"`
	Slices   int                  `json:"slices"` // generations that are relied on, of the selection
	Most     int                  `json:"most"`   // of Checks that are read at most: the sample
	Checks   []manifest.Check     `json:"checks,omitempty"`
	Bytes    int64                `json:"bytes"` // of all of Checks
	Budget   int64                `json:"budget,omitempty"`
	former   *manifest.CheckRound
}

// Due lists what is due, least recently read first: of each slice the generation that
// serves reads, and the newest where that is not verified yet.
func (v *Verifier) Due(ctx context.Context, sel Selection, c Checking) (*Due, error) {
	now, err := v.Manifest.Now(ctx)
	if err != nil {
		return nil, err
	}
	f := manifest.Filter{From: sel.From, To: sel.To, Shard: sel.Shard}
	all, err := v.Manifest.Checks(ctx, f)
	if err != nil {
		return nil, err
	}
	d := &Due{Now: now, Slices: len(all), Most: len(all), Budget: c.Budget}
	if c.OlderThan > 0 {
		before := now.Add(-c.OlderThan)
		d.Before = &before
	}
	if c.Sample.All > 0 {
		d.Most = (len(all)*c.Sample.Of + c.Sample.All - 1) / c.Sample.All
	}
	if c.Sample.All > 0 || c.Budget > 0 && c.OlderThan == 0 {
		if err := v.round(ctx, d, all, f, c.Seed); err != nil {
			return nil, err
		}
	}
	due := d.parts()
	for _, k := range all {
		p := manifest.Part{Read: k.ReadAt}
		if k.Different {
			p.Error = "different"
		}
		if due.is(p) {
			d.Checks, d.Bytes = append(d.Checks, k), d.Bytes+k.Bytes
		}
	}
	if c.Sample.All > 0 {
		seed := d.Round.Seed
		slices.SortStableFunc(d.Checks, func(a, b manifest.Check) int { return slices.Compare(lot(seed, a), lot(seed, b)) })
	}
	return d, nil
}

// round says which round a verification belongs to. One is done when nothing in the whole
// manifest is left of it.
func (v *Verifier) round(ctx context.Context, d *Due, all []manifest.Check, f manifest.Filter, seed uint64) (err error) {
	if d.Round, err = v.Manifest.CheckRound(ctx); err != nil {
		return err
	}
	if d.Round != nil && !d.Round.Begun.After(d.Now) { // else the clock was ahead, and it would not end before that time
		whole := all
		if f.From != nil || f.To != nil || f.Shard != "" {
			if whole, err = v.Manifest.Checks(ctx, manifest.Filter{}); err != nil {
				return err
			}
		}
		left := slices.ContainsFunc(whole, func(k manifest.Check) bool { return k.ReadAt == nil || k.ReadAt.Before(d.Round.Begun) })
		if left {
			return nil
		}
	}
	d.former, d.NewRound = d.Round, true
	d.Round = &manifest.CheckRound{Seed: seed, Begun: d.Now}
	return nil
}

// lot is a generation's place in a round.
func lot(seed uint64, k manifest.Check) []byte {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, seed) // a hash takes everything
	_, _ = h.Write([]byte(k.SliceKey.String()))
	_ = binary.Write(h, binary.BigEndian, k.Generation)
	return h.Sum(nil)
}

func (d *Due) parts() *due {
	p := &due{before: d.Before}
	if d.Round != nil {
		p.round = &d.Round.Begun
	}
	if d.Budget > 0 {
		left := d.Budget
		p.budget = &left
	}
	return p
}

// RunDue verifies what is due. Generations that another run reads, or has read meanwhile,
// are passed over, and of a sample others taken instead.
func (v *Verifier) RunDue(ctx context.Context, d *Due, progress Progress) (*VerifyReport, error) {
	begun := v.Clock()
	if d.NewRound {
		round, err := v.Manifest.NextCheckRound(ctx, d.former, *d.Round)
		if err != nil {
			return nil, err
		}
		if round == nil {
			return nil, errors.New("the round of samples that was begun is not in the manifest")
		}
		d.Round, d.NewRound = round, false
	}
	r := &VerifyReport{}
	due := d.parts()
	progress.Slices(min(d.Most, len(d.Checks)))
	done := 0
	for i, k := range d.Checks {
		if done >= d.Most {
			break
		}
		if due.spent() {
			r.Left = len(d.Checks) - i
			break
		}
		if r.TimeUp = v.timeUp(); r.TimeUp != nil {
			r.Left += min(len(d.Checks)-i, d.Most-done)
			break
		}
		o := v.timed(ctx, k, due, progress)
		if o.elsewhere {
			continue
		}
		if errors.Is(o.Err, errReadElsewhere) && errors.Is(o.Err, manifest.ErrLeased) {
			r.Elsewhere++
			continue
		}
		done++
		if o.ObjectsLeft > 0 {
			r.Left++
		}
		r.add(o)
	}
	r.Seconds = v.Clock().Sub(begun).Seconds()
	return r, nil
}
