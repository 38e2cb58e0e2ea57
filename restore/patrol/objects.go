package patrol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/manifest"
)

// part is a generation that the manifest names, in the order of keys.
type part struct {
	prefix string
	n      *manifest.Named
	c      manifest.NamedCopy
}

// maxNamed is how many objects a finding names.
const maxNamed = 20

// merge walks the manifest's objects beside the bucket's listing.
type merge struct {
	d     *day
	parts []part // that are not begun
	now   part   // the one whose objects are expected
	left  []manifest.NamedObject
	lost  Finding
	sizes Finding
	odd   []oddObject
}

// oddObject is one whose key is not below its attempt's prefix.
type oddObject struct {
	part
	o manifest.NamedObject
}

// objects compares the day's objects with the manifest, all generations of all slices.
func (d *day) objects(ctx context.Context) error {
	m := &merge{d: d}
	for i := range d.named {
		for _, c := range d.named[i].Copies {
			m.parts = append(m.parts, part{manifest.ObjectPrefix(d.named[i].SliceKey, c.Generation, c.Attempt), &d.named[i], c})
		}
	}
	// None of them begins with another: each ends with a slash, and all have as many.
	slices.SortFunc(m.parts, func(a, b part) int { return cmp.Compare(a.prefix, b.prefix) })
	n := 0
	err := d.p.Bucket.List(ctx, messagesPrefix+d.day.String()+"/shard="+d.p.literal, func(l Listed) error {
		n++
		return m.listed(ctx, l)
	})
	d.p.count(func(r *Report) { r.Listed += n })
	var inner *manifestError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &inner):
		return inner.error
	case err != nil:
		d.p.unlooked("the objects of "+d.day.String(), err)
		m.giveUp()
		return nil
	}
	d.listed = true
	return m.end(ctx)
}

// manifestError tells an error of the manifest from one of the listing that it ends.
type manifestError struct{ error }

// listed takes one object of the listing.
func (m *merge) listed(ctx context.Context, l Listed) error {
	if err := m.upTo(ctx, l.Key); err != nil {
		return &manifestError{err}
	}
	if len(m.left) > 0 && m.left[0].Key == l.Key {
		if o := m.left[0]; o.Size != l.Size {
			if m.sizes.Count++; len(m.sizes.Objects) < maxNamed {
				m.sizes.Objects = append(m.sizes.Objects, l.Key)
			}
			if m.sizes.What == "" {
				m.sizes.What = fmt.Sprintf("object %s has %d bytes, the manifest says %d", l.Key, l.Size, o.Size)
			}
		}
		m.left = m.left[1:]
		return nil
	}
	shard, rest, ok := strings.Cut(strings.TrimPrefix(l.Key, messagesPrefix+m.d.day.String()+"/shard="), "/")
	attempt, _, also := strings.Cut(rest, "/")
	if _, known := m.d.shards[shard]; !known && !m.d.p.selected(shard) {
		return nil
	}
	g := group{slice: shard}
	if ok && also {
		generation, name, _ := strings.Cut(strings.TrimPrefix(attempt, "g"), "-")
		number, _ := strconv.ParseUint(generation, 10, 32) // 0: no name of ours
		g.generation, g.attempt = uint32(number), name
	}
	prefix := l.Key
	if ok && also {
		prefix = strings.TrimSuffix(l.Key, strings.TrimPrefix(rest, attempt+"/"))
	}
	if m.d.groups[prefix] == nil {
		m.d.groups[prefix] = &g
	}
	m.d.groups[prefix].add(l)
	return nil
}

// upTo takes what is expected before a key for missing.
func (m *merge) upTo(ctx context.Context, key string) error {
	for {
		for len(m.left) > 0 && m.left[0].Key < key {
			m.missing(m.left[0])
			m.left = m.left[1:]
		}
		if len(m.left) > 0 || len(m.parts) == 0 || m.parts[0].prefix > key {
			return nil
		}
		if err := m.endPart(ctx); err != nil {
			return err
		}
		if err := m.begin(ctx); err != nil {
			return err
		}
	}
}

func (m *merge) missing(o manifest.NamedObject) {
	m.lost.Count, m.lost.Bytes = m.lost.Count+1, m.lost.Bytes+o.Size
	if len(m.lost.Objects) < maxNamed {
		m.lost.Objects = append(m.lost.Objects, o.Key)
	}
}

// begin loads the objects of the next generation.
func (m *merge) begin(ctx context.Context) error {
	m.now, m.parts = m.parts[0], m.parts[1:]
	m.lost, m.sizes = of(m.now.n, m.now.c.Generation), of(m.now.n, m.now.c.Generation)
	all, err := m.d.p.Manifest.NamedObjects(ctx, m.now.n, m.now.c)
	if errors.Is(err, manifest.ErrCorrupt) {
		m.disagree(err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	var rows, bytes int64
	for _, o := range all {
		rows, bytes = rows+o.Rows, bytes+o.Size
		if !strings.HasPrefix(o.Key, m.now.prefix) {
			m.odd = append(m.odd, oddObject{m.now, o})
			continue
		}
		m.left = append(m.left, o)
	}
	slices.SortFunc(m.left, func(a, b manifest.NamedObject) int { return cmp.Compare(a.Key, b.Key) })
	m.d.p.count(func(r *Report) { r.Objects, r.Bytes = r.Objects+len(all), r.Bytes+bytes })
	if uint64(rows) != m.now.c.Rows || bytes != m.now.c.Bytes {
		m.disagree(fmt.Sprintf("its objects have %d rows and %d bytes, the generation %d and %d: the manifest disagrees with itself", rows, bytes, m.now.c.Rows, m.now.c.Bytes))
	}
	return nil
}

func (m *merge) disagree(what string) {
	m.d.bad[m.now.prefix] = true
	f := of(m.now.n, m.now.c.Generation)
	f.Code, f.Severity, f.What = ManifestDifferent, Different, what
	f.Remedy = "compare with the bucket: coldtier rebuild manifest --beside DSN; then restore a backup of the manifest, or coldtier rebuild manifest --replace"
	m.d.find(f)
}

// endPart reports what was found of a generation.
func (m *merge) endPart(ctx context.Context) error {
	p := m.now
	m.now = part{}
	if p.n == nil {
		return nil
	}
	if m.lost.Count > 0 {
		// A listing that leaves out what is there is the store's fault, and no loss.
		_, err := m.d.p.Bucket.Head(ctx, m.lost.Objects[0])
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			err = errors.New("it is in the bucket, and the listing lacks it")
			fallthrough
		case !errors.Is(err, archive.ErrNotFound):
			m.d.bad[p.prefix] = true
			m.d.p.unlooked("object "+m.lost.Objects[0], err)
		default:
			f := m.lost
			f.Code = ObjectMissing
			f.What = fmt.Sprintf("%d of its objects are not in the bucket, the first %s", f.Count, f.Objects[0])
			m.report(p, f)
		}
	}
	if m.sizes.Count > 0 {
		f := m.sizes
		f.Code = ObjectSize
		m.report(p, f)
	}
	return nil
}

func (m *merge) report(p part, f Finding) {
	m.d.bad[p.prefix] = true
	f.Severity, f.Remedy = Lost, remedyOfObject(p.n)
	if !relied(p.n, f.Generation) {
		f.Severity = Note
		f.What += " (a later generation has taken its place)"
		f.Remedy = "none is needed"
	}
	m.d.find(f)
}

// end takes all that is still expected for missing.
func (m *merge) end(ctx context.Context) error {
	const last = "\xff"
	if err := m.upTo(ctx, last); err != nil {
		return err
	}
	if err := m.endPart(ctx); err != nil {
		return err
	}
	for _, x := range m.odd {
		l, err := m.d.p.Bucket.Head(ctx, x.o.Key)
		f := of(x.n, x.c.Generation)
		f.Objects, f.Count = []string{x.o.Key}, 1
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, archive.ErrNotFound):
			f.Code, f.What, f.Bytes = ObjectMissing, "object "+x.o.Key+" is not in the bucket", x.o.Size
			m.report(x.part, f)
		case err != nil:
			m.d.bad[x.prefix] = true
			m.d.p.unlooked("object "+x.o.Key, err)
		case l.Size != x.o.Size:
			f.Code, f.What = ObjectSize, fmt.Sprintf("object %s has %d bytes, the manifest says %d", x.o.Key, l.Size, x.o.Size)
			m.report(x.part, f)
		}
	}
	return nil
}

// giveUp: the listing ended early. What it had not come to may be missing or not, so nothing
// is mended by it.
func (m *merge) giveUp() {
	for i := range m.d.named {
		for _, c := range m.d.named[i].Copies {
			m.d.bad[manifest.ObjectPrefix(m.d.named[i].SliceKey, c.Generation, c.Attempt)] = true
		}
	}
}

// orphans sums up the objects that nothing names. The manifest is read again for it: an
// attempt may have been committed while the bucket was listed.
func (d *day) orphans(ctx context.Context) error {
	if len(d.groups) == 0 || !d.listed || d.blind {
		return nil
	}
	f := d.p.cfg.Filter
	f.From, f.To = &d.day, &d.day
	named, err := d.p.Manifest.Named(ctx, f)
	if err != nil {
		return err
	}
	now := map[string]*manifest.Named{}
	for i := range named {
		now[manifest.ShardName(named[i].Shard)] = &named[i]
	}
	var sum Orphans
	var first string
	for prefix, g := range d.groups {
		n := now[g.slice]
		switch {
		case d.foreign[g.slice], d.spoken[prefix], d.spoken[doubtful(g.slice, g.generation)]:
			continue
		case n != nil && n.Has(g.generation, g.attempt) && !d.isNamed(g):
			continue // committed since
		case n != nil && (n.State == manifest.Copying || leased(n, d.now)), g.newest.Add(d.p.cfg.Grace).After(d.now):
			d.p.count(func(r *Report) { r.Young += g.objects })
			continue
		}
		sum.add(*g)
		if first == "" || g.first < first {
			first = g.first
		}
		d.p.count(func(r *Report) { r.Orphans.add(*g) })
	}
	if sum.Objects > 0 {
		d.find(Finding{Code: ObjectOrphans, Severity: Note, Objects: []string{first}, Count: sum.Objects, Bytes: sum.Bytes,
			What:   fmt.Sprintf("%d objects of %s with %d bytes that no committed generation names, the oldest of %s, the first %s", sum.Objects, d.day, sum.Bytes, sum.Oldest.UTC().Format("2006-01-02 15:04:05"), first),
			Remedy: "none is needed: copies that did not come to their end have left them. They cost room, and are deleted by nothing here"})
	}
	return nil
}

// isNamed says whether a group is of a generation that was named before the listing: then
// its objects are more than that generation names.
func (d *day) isNamed(g *group) bool {
	i, ok := d.shards[g.slice]
	return ok && d.named[i].Has(g.generation, g.attempt)
}
