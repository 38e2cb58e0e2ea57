package patrol

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/manifest"
)

// beside compares the commit records and purge marks of the day with the manifest.
func (d *day) beside(ctx context.Context) error {
	d.records = map[string]generations{}
	listed, others := 0, Finding{Code: RecordName, Severity: Note, Remedy: "find out who put it there; coldtier does not look at it"}
	err := d.p.Bucket.List(ctx, manifest.RecordsPrefix+d.day.String()+"/shard="+d.p.literal, func(l Listed) error {
		listed++
		n, ok := manifest.ParseRecordKey(l.Key)
		if !ok {
			if others.Count++; len(others.Objects) < maxNamed {
				others.Objects = append(others.Objects, l.Key)
			}
			return nil
		}
		if _, known := d.shards[n.Shard]; !known && !d.p.selected(n.Shard) {
			return nil
		}
		if d.records[n.Shard] == nil {
			d.records[n.Shard] = generations{}
		}
		if d.records[n.Shard][n.Generation] == nil {
			d.records[n.Shard][n.Generation] = map[string]int64{}
		}
		d.records[n.Shard][n.Generation][n.Kind] = l.Size
		return nil
	})
	d.p.count(func(r *Report) { r.Listed += listed })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		d.p.unlooked("the commit records of "+d.day.String(), err)
		d.blind = true
		return nil
	}
	if others.Count > 0 {
		others.What = fmt.Sprintf("%d objects that have no name of a commit record or a purge mark, the first %s", others.Count, others.Objects[0])
		d.find(others)
	}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(requests)
	each := func(do func(context.Context) ([]Finding, error)) {
		g.Go(func() error {
			found, err := do(gctx)
			mu.Lock()
			defer mu.Unlock()
			d.found = append(d.found, found...)
			return err
		})
	}
	for i := range d.named {
		n := &d.named[i]
		there := d.records[manifest.ShardName(n.Shard)]
		for _, c := range n.Copies {
			each(func(ctx context.Context) ([]Finding, error) { return d.record(ctx, n, c) })
		}
		each(func(ctx context.Context) ([]Finding, error) { return d.marks(ctx, n, there[n.Live]) })
	}
	for _, shard := range slices.Sorted(maps.Keys(d.records)) {
		for generation, kinds := range d.records[shard] {
			if i, ok := d.shards[shard]; ok {
				if _, named := d.named[i].Copy(generation); named {
					continue
				}
			}
			each(func(ctx context.Context) ([]Finding, error) { return d.unknown(ctx, &mu, shard, generation, kinds) })
		}
	}
	return g.Wait()
}

// get reads a commit record or a mark; of what size is what the listing says.
func (d *day) get(ctx context.Context, key string, size int64) ([]byte, error) {
	p := d.p
	if err := p.gets.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer p.gets.Release(1)
	weight := min(max(size, 0), recordBytes)
	if err := p.memory.Acquire(ctx, weight); err != nil {
		return nil, context.Cause(ctx)
	}
	defer p.memory.Release(weight)
	b, err := p.Objects.Get(ctx, key)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return b, err
}

// unreadable says that a get tells nothing about the object; it is noted, unless all ends.
func (d *day) unreadable(ctx context.Context, key string, err error) ([]Finding, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	d.p.unlooked(key, err)
	return nil, nil
}

// record compares a generation's commit record with the manifest's checksum.
func (d *day) record(ctx context.Context, n *manifest.Named, c manifest.NamedCopy) ([]Finding, error) {
	f := of(n, c.Generation)
	f.Objects = []string{c.RecordKey}
	if want := manifest.RecordKey(n.SliceKey, c.Generation); want != c.RecordKey {
		f.Code, f.Severity = ManifestDifferent, Different
		f.What, f.Remedy = fmt.Sprintf("the manifest says that its commit record is %s, it must be %s", c.RecordKey, want), "restore a backup of the manifest, or coldtier rebuild manifest --replace"
		return []Finding{f}, nil
	}
	raw, err := d.get(ctx, c.RecordKey, d.records[manifest.ShardName(n.Shard)][c.Generation][manifest.KeyRecord])
	switch {
	case errors.Is(err, archive.ErrNotFound):
		return d.lostRecord(ctx, f, n, c)
	case errors.Is(err, archive.ErrDamaged):
		f.What = "its commit record is damaged: " + err.Error()
	case err != nil:
		return d.unreadable(ctx, c.RecordKey, err)
	case sha256.Sum256(raw) == c.RecordSum:
		d.p.count(func(r *Report) { r.Records++ })
		return nil, nil
	default:
		f.What = "its commit record has another SHA-256 than the manifest says, and cannot be read"
		if r, err := manifest.DecodeRecord(raw); err == nil {
			f.What = fmt.Sprintf("its commit record is of attempt %s of slice %s of source %q, copied at %s; the manifest says attempt %s: one of both is not of this history", r.Attempt, r.SliceKey, r.Source,
				r.CopiedAt.UTC().Format("2006-01-02 15:04:05"), c.Attempt)
		}
	}
	f.Code, f.Severity = RecordDifferent, Lost
	f.Remedy = "restore a former version of the object; if there is none, move it away: then --heal puts it again from the manifest, if that still knows all of it"
	if !relied(n, c.Generation) {
		f.Severity = Note
	}
	return []Finding{f}, nil
}

// lostRecord: it is put again if the manifest still makes the very same bytes.
func (d *day) lostRecord(ctx context.Context, f Finding, n *manifest.Named, c manifest.NamedCopy) ([]Finding, error) {
	f.Code, f.Severity, f.What = RecordMissing, Lost, "its commit record is not in the bucket, so a lost manifest could not be rebuilt"
	if !relied(n, c.Generation) {
		f.Severity = Different
	}
	raw, err := d.p.Manifest.Record(ctx, n.ID, c.Generation)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		f.Remedy = "restore a former version of the object; the manifest cannot make it again: " + err.Error()
	case sha256.Sum256(raw) != c.RecordSum:
		f.Remedy = "restore a former version of the object; the manifest no longer knows all that was in it (statuses that were put again since), so it cannot be made again"
	default:
		f.Remedy = "coldtier patrol --heal puts it again from the manifest, with the very checksum it had"
		f.mend = func(ctx context.Context) (string, error) { return d.p.putRecord(ctx, n, c) }
	}
	return []Finding{f}, nil
}

// unknown is a commit record or mark of a generation that the manifest does not have.
func (d *day) unknown(ctx context.Context, mu *sync.Mutex, shard string, generation uint32, kinds map[string]int64) ([]Finding, error) {
	base := fmt.Sprintf("%s%s/shard=%s.g%d.", manifest.RecordsPrefix, d.day, shard, generation)
	var n *manifest.Named
	if i, ok := d.shards[shard]; ok {
		n = &d.named[i]
	}
	f := Finding{Generation: generation, Severity: Different, Count: 1,
		Remedy: "if the manifest was set back to a backup, restore a newer one, or coldtier rebuild manifest --replace: until then purge and archive keep what the marks speak of"}
	if n != nil {
		f.Slice = &n.SliceKey
	}
	if _, ok := kinds[manifest.KeyRecord]; !ok {
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			f.Objects = append(f.Objects, base+kind)
		}
		f.Code, f.What = MarkUnknown, "the purge mark "+f.Objects[0]+" is of a generation that the manifest does not have, and its commit record is not in the bucket"
		f.Severity = Lost
		f.Remedy = "restore the commit record " + base + "parquet from a former version or a replica: a purge has begun to delete rows on its word"
		return []Finding{f}, nil
	}
	key := base + "parquet"
	f.Code, f.Objects = RecordUnknown, []string{key}
	raw, err := d.get(ctx, key, kinds[manifest.KeyRecord])
	if errors.Is(err, archive.ErrNotFound) {
		return nil, nil
	}
	var c *manifest.Copy
	if err == nil {
		c, err = manifest.DecodeRecord(raw)
	} else if !errors.Is(err, archive.ErrDamaged) {
		d.doubt(mu, shard, generation)
		return d.unreadable(ctx, key, err)
	}
	if err != nil {
		d.doubt(mu, shard, generation)
		f.What = fmt.Sprintf("the commit record %s is of a generation that the manifest does not have, and cannot be read: %v", key, err)
		return []Finding{f}, nil
	}
	if c.Source != d.p.Manifest.Source() {
		mu.Lock()
		d.foreign[shard] = true
		mu.Unlock()
		d.p.count(func(r *Report) { r.Foreign++ })
		return nil, nil
	}
	mu.Lock()
	d.spoken[manifest.ObjectPrefix(c.SliceKey, c.Generation, c.Attempt)] = true
	mu.Unlock()
	f.Slice, f.Attempt = &c.SliceKey, c.Attempt
	now, known, err := d.p.Manifest.NamedSlice(ctx, c.SliceKey)
	if err != nil {
		return nil, err
	}
	if known && (now.Has(c.Generation, c.Attempt) || leased(&now, d.now)) {
		d.inFlight()
		return nil, nil
	}
	f.What = fmt.Sprintf("the commit record %s of attempt %s, copied at %s with %d rows, is of a generation that the manifest does not have", key, c.Attempt, c.CopiedAt.UTC().Format("2006-01-02 15:04:05"), c.Fingerprint().Rows)
	if known && (now.State == manifest.Pending || now.State == manifest.Copying) && c.Generation > now.Generation && len(kinds) == 1 {
		f.What += "; the slice is " + string(now.State)
		f.Remedy = "the next coldtier archive takes it over: a run has died between the record and the manifest, or the manifest was set back"
		if c.CopiedAt.Add(d.p.cfg.Grace).After(d.now) {
			f.Severity = Note
		}
	}
	return []Finding{f}, nil
}

// doubt: an attempt of the generation may be named by a record that could not be read.
func (d *day) doubt(mu *sync.Mutex, shard string, generation uint32) {
	mu.Lock()
	defer mu.Unlock()
	d.spoken[doubtful(shard, generation)] = true
}

func doubtful(shard string, generation uint32) string {
	return fmt.Sprintf("%s.g%d", shard, generation)
}

// marks compares the purge marks of the live generation with what the manifest says of
// its purge.
func (d *day) marks(ctx context.Context, n *manifest.Named, there map[string]int64) ([]Finding, error) {
	if n.Live == 0 {
		return nil, nil
	}
	var m manifest.Marks
	var keys []string
	for kind, into := range map[manifest.MarkKind]*[]byte{manifest.MarkPurging: &m.Purging, manifest.MarkStopped: &m.Stopped, manifest.MarkPurged: &m.Purged} {
		size, ok := there[string(kind)]
		if !ok {
			continue
		}
		key := manifest.MarkKey(n.SliceKey, n.Live, kind)
		b, err := d.get(ctx, key, size)
		switch {
		case errors.Is(err, archive.ErrDamaged):
			b = nil // counts for the worst that it may have said
		case errors.Is(err, archive.ErrNotFound):
			continue
		case err != nil:
			return d.unreadable(ctx, key, err)
		}
		*into = append([]byte{}, b...) // not nil, also when it is empty
		keys = append(keys, key)
	}
	slices.Sort(keys)
	c, ok := n.Copy(n.Live)
	if !ok {
		f := of(n, n.Live)
		f.Code, f.Severity, f.What = ManifestDifferent, Different, "the manifest names a live generation and does not have it"
		f.Remedy = "restore a backup of the manifest, or coldtier rebuild manifest --replace"
		return []Finding{f}, nil
	}
	f := of(n, n.Live)
	f.Objects, f.Severity = keys, Different
	p := m.Progress(n.SliceKey, n.Live, c.Attempt)
	switch {
	case p.Damaged != nil:
		f.Code, f.What = MarkDamaged, p.Damaged.Error()
		f.Remedy = "restore a former version of the object; until then it counts for a purge that may have taken any row, so nothing is lost"
	case n.State == manifest.Purged && !p.Purged, gone(n) && !p.Begun:
		f.Code, f.What = MarkMissing, fmt.Sprintf("a purge of it has begun (the slice is %s), and the bucket has no mark of it: a lost manifest would not know that MySQL no longer has its rows", n.State)
		f.Remedy = "coldtier patrol --heal, or the next coldtier archive if the mark never was there"
		if h := d.p.Healer; h != nil {
			f.mend = func(ctx context.Context) (string, error) { return "put the mark", h.Mirror.Purge(ctx, n.ID) }
		}
	default:
		forgotten, err := d.forgotten(ctx, n, p)
		if err != nil || forgotten == "" {
			return nil, err
		}
		f.Code, f.What = PurgeForgotten, forgotten
		f.Remedy = "if the manifest was set back to a backup, restore a newer one, or coldtier rebuild manifest --replace; until then purge and archive go by the marks, too, and keep every row"
	}
	ok, err := d.still(ctx, n)
	if err != nil {
		return nil, err
	}
	if !ok && p.Damaged == nil {
		d.inFlight()
		return nil, nil
	}
	return []Finding{f}, nil
}

// forgotten says what the bucket knows of a purge and the manifest does not.
func (d *day) forgotten(ctx context.Context, n *manifest.Named, p manifest.Progress) (what string, err error) {
	switch {
	case !p.Begun, n.State == manifest.Purged, n.State == manifest.Purging && !p.Purged:
		return "", nil
	case !p.Purged && !p.Known:
		// A purge that could not put where it stopped, or was killed; the next one tells.
		if n.Purge {
			return "", nil
		}
		return "the bucket knows that a purge of it was begun, the manifest does not", nil
	}
	c, err := d.p.Manifest.LoadHead(ctx, n.ID, n.Live)
	if err != nil {
		return "", err
	}
	news := 0
	for i, ch := range c.Chunks {
		if ch.State == manifest.ChunkPresent && ch.Warm.Rows > 0 && p.State(i) != manifest.ChunkPresent {
			news++
		}
	}
	switch {
	case news == 0:
		return "", nil
	case n.Reason == manifest.ReasonLate && p.Purged: // all of its rows count as gone
		return "", nil
	case p.Purged:
		return fmt.Sprintf("the bucket knows that it was purged, in the manifest it is %s", n.State), nil
	}
	return fmt.Sprintf("the bucket knows that a purge has taken %d chunks that the manifest takes for untouched", news), nil
}
