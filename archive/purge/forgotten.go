package purge

import (
	"context"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// isolated finds, of the slices that may not be purged yet, those with rows in a staging
// table that only a mark knows of, since the manifest was rebuilt: nobody sees these rows
// until they are back, which no hold and no lag must delay. Nothing of them is deleted.
func (p *Purger) isolated(ctx context.Context, waiting []manifest.Slice, now time.Time) (jobs []Job, err error) {
	if len(waiting) == 0 {
		return nil, nil
	}
	begun, err := p.store.Begun(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, s := range waiting {
		t := p.tables[s.Shard]
		if t == nil || !begun[s.ID] || s.LeaseUntil != nil && s.LeaseUntil.After(now) {
			continue
		}
		key := manifest.MarkKey(s.SliceKey, s.Live, manifest.MarkPurging)
		b, err := p.marks.GetMark(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("purge mark %s: %w", key, err)
		}
		if b == nil {
			continue
		}
		m, err := manifest.DecodeMark(b)
		if err != nil || m.SliceKey != s.SliceKey || m.Staging == "" || seen[m.Staging] { // one that is damaged stops the purge itself
			continue
		}
		exists, err := t.StagingExists(ctx, m.Staging)
		if err != nil {
			return nil, err
		}
		if exists {
			seen[m.Staging] = true
			jobs = append(jobs, Job{Strategy: Partition, Return: m.Staging, Slices: []Item{item(s)}})
		}
	}
	return jobs, nil
}

// giveBack does a job that only puts rows back.
func (w *work) giveBack(ctx context.Context) error {
	name := w.job.Return
	if err := w.table.ReturnStaging(ctx, name); err != nil {
		return fmt.Errorf("rows of staging table %s are not back yet, the next run goes on: %w", name, err)
	}
	w.units[0].by = Partition
	return fmt.Errorf("%w: %s", errReturned, name)
}
