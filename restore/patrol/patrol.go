package patrol

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

const (
	messagesPrefix = "messages/day="
	requests       = 16       // commit records and marks read at once, of all days together
	recordBytes    = 64 << 20 // of commit records in memory
)

type patrol struct {
	Deps
	cfg     Config
	mends   bool // findings are mended
	literal string
	gets    *semaphore.Weighted
	memory  *semaphore.Weighted

	mu     sync.Mutex
	report *Report
}

// Run compares, and with Config.Heal mends. What is wrong is in the report, and in its
// Err, which Run returns; another error says that the patrol did not come to its end.
func Run(ctx context.Context, cfg Config, d Deps) (*Report, error) {
	if cfg.Workers <= 0 {
		cfg.Workers = 4
	}
	if _, err := path.Match(cfg.Filter.Shard, ""); err != nil {
		return nil, fmt.Errorf("shard pattern %q: %w", cfg.Filter.Shard, err)
	}
	cfg.Filter.States = nil
	p := &patrol{Deps: d, cfg: cfg, literal: literal(cfg.Filter.Shard), gets: semaphore.NewWeighted(requests), memory: semaphore.NewWeighted(recordBytes),
		mends:  cfg.Heal && !cfg.DryRun && d.Healer != nil,
		report: &Report{DryRun: cfg.DryRun, Heal: cfg.Heal, Grace: cfg.Grace.String(), Findings: []Finding{}, Codes: map[Code]int{}, Unlooked: []Unlooked{}}}
	begun := d.Clock()
	err := p.run(ctx)
	p.report.sort()
	p.report.Seconds = d.Clock().Sub(begun).Seconds()
	if ctx.Err() != nil {
		return p.report, context.Cause(ctx)
	}
	if err == nil {
		err = p.report.Err()
	}
	if err != nil {
		err = fmt.Errorf("patrol of source %s: %w", d.Manifest.Source(), err)
	}
	return p.report, err
}

func (p *patrol) run(ctx context.Context) error {
	owner, foreign, err := p.owner(ctx)
	if err != nil || foreign {
		return err
	}
	days, rows, err := p.days(ctx)
	if err != nil {
		return err
	}
	p.report.Days = len(days)
	for len(days) > 0 { // a month is a partition of ClickHouse, which is read for each of its days
		n := 1
		for n < len(days) && month(days[n]) == month(days[0]) {
			n++
		}
		if err := p.month(ctx, days[:n], rows); err != nil {
			return err
		}
		days = days[n:]
	}
	if err := p.rest(ctx); err != nil {
		return err
	}
	if owner != nil {
		if !p.ours() {
			owner.mend, owner.Left = nil, "no commit record in the bucket is known to be this manifest's"
		}
		p.settle(ctx, owner)
	}
	return nil
}

// ours says that the bucket is this manifest's, whatever the owner mark says: it has its
// commit records and no others.
func (p *patrol) ours() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.report.Codes
	return p.report.Records > 0 && c[RecordMissing]+c[RecordDifferent]+c[RecordUnknown] == 0
}

func (p *patrol) unlooked(what string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.report.Unlooked) < maxFindings {
		p.report.Unlooked = append(p.report.Unlooked, Unlooked{what, err.Error()})
	}
}

func (p *patrol) count(add func(*Report)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add(p.report)
}

// settle mends a finding if it can and may be, and reports it.
func (p *patrol) settle(ctx context.Context, f *Finding) {
	f.Mendable = f.mend != nil
	if f.Mendable && p.mends {
		done, err := f.mend(ctx)
		switch {
		case err == nil:
			f.Healed = done
		case errors.Is(err, manifest.ErrLeased), errors.Is(err, manifest.ErrState), errors.Is(err, manifest.ErrLeaseLost):
			f.busy, f.Left = true, err.Error()
		default:
			f.Left = err.Error()
		}
	}
	p.count(func(r *Report) { r.add(*f) })
}

// days lists all days that any store has anything of. rows is false when ClickHouse cannot
// be looked at.
func (p *patrol) days(ctx context.Context) (days []snowflake.Day, rows bool, err error) {
	all := map[snowflake.Day]bool{}
	add := func(list []snowflake.Day) {
		for _, d := range list {
			if f := p.cfg.Filter; (f.From == nil || !d.Before(*f.From)) && (f.To == nil || !f.To.Before(d)) {
				all[d] = true
			}
		}
	}
	list, err := p.Manifest.Days(ctx)
	if err != nil {
		return nil, false, err
	}
	add(list)
	for _, prefix := range []string{messagesPrefix, manifest.RecordsPrefix} {
		err := p.Bucket.Folders(ctx, prefix, func(folder string) error {
			if d, err := snowflake.ParseDay(strings.TrimSuffix(strings.TrimPrefix(folder, prefix), "/")); err == nil {
				add([]snowflake.Day{d})
			}
			return nil
		})
		if err != nil {
			if ctx.Err() != nil {
				return nil, false, context.Cause(ctx)
			}
			p.unlooked("days in the bucket", err)
		}
	}
	if list, err = p.Rows.Days(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		p.unlooked("ClickHouse", err)
	}
	add(list)
	return slices.SortedFunc(maps.Keys(all), snowflake.Day.Compare), err == nil, nil
}

// month goes over days of one month, several at once.
func (p *patrol) month(ctx context.Context, days []snowflake.Day, rows bool) error {
	counts := map[snowflake.Day]map[manifest.CopyID]uint64{}
	if rows {
		err := p.Rows.Counts(ctx, days[0], days[len(days)-1], func(id manifest.CopyID, n uint64) error {
			if counts[id.Day] == nil {
				counts[id.Day] = map[manifest.CopyID]uint64{}
			}
			counts[id.Day][id] = n
			return nil
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if rows = err == nil; !rows {
			p.unlooked("ClickHouse's rows of "+month(days[0]), err)
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(p.cfg.Workers)
	for _, d := range days {
		g.Go(func() error {
			x := &day{p: p, day: d, rows: rows, counts: counts[d]}
			return x.patrol(gctx)
		})
	}
	return g.Wait()
}

// literal is the beginning that all shards have that a pattern fits, as keys have it.
func literal(glob string) string {
	for i := range len(glob) {
		c := glob[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return glob[:min(i, maxLiteral)]
		}
	}
	return glob[:min(len(glob), maxLiteral)]
}

// maxLiteral is less than what the longest names are cut to in keys.
const maxLiteral = 100

// selected says whether a shard that the manifest does not have is looked at, by its name in keys.
func (p *patrol) selected(shard string) bool {
	if p.cfg.Filter.Shard == "" {
		return true
	}
	ok, _ := path.Match(p.cfg.Filter.Shard, shard) // the pattern was tried before
	return ok
}

// owner looks at the owner mark. foreign says that the bucket is another manifest's, so that
// there is nothing to compare.
func (p *patrol) owner(ctx context.Context) (missing *Finding, foreign bool, err error) {
	w := p.cfg.Owner
	key := manifest.OwnerKey(w.Source)
	f := Finding{Objects: []string{key}, Severity: Different}
	identity, err := archive.ReadOwner(ctx, p.Objects, w)
	switch {
	case ctx.Err() != nil:
		return nil, false, context.Cause(ctx)
	case errors.Is(err, archive.ErrUnowned):
		f.Code, f.What, f.Remedy = OwnerMissing, "the bucket has no owner mark", "see that bucket.name, prefix and endpoint are right; then the next coldtier archive makes it"
		if p.Healer != nil {
			f.mend = func(ctx context.Context) (string, error) {
				now, err := p.Manifest.Now(ctx)
				if err == nil {
					err = archive.ClaimOwner(ctx, p.Healer.Objects, w, now)
				}
				return "put the owner mark", err
			}
		}
		return &f, false, nil
	case errors.Is(err, archive.ErrOwnerDamaged):
		f.Code, f.What, f.Remedy = OwnerDamaged, err.Error(), "restore "+key+" from a former version of it; nothing is mended until then"
		p.mends = false
	case err != nil:
		p.unlooked("the owner mark", err)
		p.mends = false
		return nil, false, nil
	case identity != w.Identity:
		f.Code, f.Severity, foreign = OwnerForeign, Lost, true
		f.What = fmt.Sprintf("the bucket's owner mark names manifest %s, this one is %s: nothing was compared", identity, w.Identity)
		f.Remedy = "correct manifest.dsn, bucket.name, prefix or endpoint; a manifest that was made anew is filled by coldtier rebuild manifest"
	default:
		return nil, false, nil
	}
	p.settle(ctx, &f)
	return nil, foreign, nil
}
