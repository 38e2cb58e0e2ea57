package archive

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/coldtier/coldtier/manifest"
)

// Estimator is a warm table, for about what a copy of it will come to. None of it scans.
type Estimator interface {
	// EstimateRows is what the server takes parts of [lo, hi) to have, by its index.
	EstimateRows(ctx context.Context, lo, hi uint64) ([]uint64, error)
	// KnownRows are some numbers of rows of [lo, hi), and what the server takes each for.
	KnownRows(ctx context.Context, lo, hi uint64) ([][2]uint64, error)
	// Sample gives conversation and size of the body of the first rows of [lo, hi).
	Sample(ctx context.Context, lo, hi uint64, limit int, fn func(conversation string, body int64)) error
}

// The bounds of what an estimate costs, and what it takes where nothing is known yet.
const (
	estimateQueries = 4096   // looks into indexes; with more slices than that some of each table stand for the others
	estimateAtOnce  = 8      // queries at once
	knownTables     = 8      // tables of which rows are counted off, to know how far off the servers are
	sampleSlices    = 8      // slices of which rows are read
	sampleRows      = 20_000 // of each, where there is no former copy; else:
	sampleBodies    = 1_000
	pastCopies      = 64 // former copies whose objects are looked at

	objectOverhead = 2_500   // bytes of an object beside its rows: footer, page headers, dictionaries
	bodyRatio      = 0.4     // of a body's bytes, when compressed
	rowOverhead    = 40      // bytes of a row beside its body
	insertBytes    = 4 << 20 // of rows in one insert into ClickHouse
)

// SizeBounds are the sizes in bytes that part objects into classes.
func SizeBounds() []int64 { return []int64{4 << 10, 64 << 10, 1 << 20, 16 << 20} }

// Figure is a number and whether it is exact.
type Figure struct {
	Value uint64 `json:"value"`
	Basis Basis  `json:"basis"`
}

// Basis says how a figure was come by.
type Basis string

// The bases.
const (
	Exact     Basis = "exact"
	Estimated Basis = "estimated"
)

func (f *Figure) add(n uint64, exact bool) {
	f.Value += n
	if !exact {
		f.Basis = Estimated
	} else if f.Basis == "" {
		f.Basis = Exact
	}
}

// Estimate is what a run of a plan would come to.
type Estimate struct {
	Slices      Figure   `json:"slices"`
	Empty       int      `json:"empty_slices"` // of them, without rows now
	Rows        Figure   `json:"rows"`
	BodyBytes   Figure   `json:"body_bytes"` // in MySQL
	Objects     Figure   `json:"objects"`
	ObjectBytes Figure   `json:"object_bytes"` // in the bucket
	Sizes       []uint64 `json:"-"`            // objects by size, see SizeBounds; nil: nothing is known of them
	Puts        Figure   `json:"put"`
	Gets        Figure   `json:"get"`
	Lists       Figure   `json:"list"`
	Inserts     Figure   `json:"clickhouse_inserts"`
	Rests       []string `json:"rests_on"` // what the estimates rest on
}

// ratios are what a row comes to.
type ratios struct {
	bytes   float64 // of objects
	objects float64
}

type estimation struct {
	*Archiver
	of      func(manifest.Shard) Estimator
	rows    []uint64 // by place in the plan's work
	curve   curve
	past    map[manifest.Shard]manifest.Past
	byShard map[manifest.Shard]ratios
	bySlice map[int]ratios // of slices that were sampled
	all     ratios
	classes []float64 // objects by size, of those that were looked at
	body    float64   // bytes of a row's body
	looked  int       // slices of which the server was asked
	sampled int       // and of which rows were read
	copies  int       // former copies whose objects were looked at
}

// Estimate says what a run of a plan would come to, in a bounded number of bounded queries
// however many tables and days there are. It changes nothing.
func (a *Archiver) Estimate(ctx context.Context, p *Plan, of func(manifest.Shard) Estimator) (*Estimate, error) {
	e := &estimation{Archiver: a, of: of, rows: make([]uint64, len(p.Work)), byShard: map[manifest.Shard]ratios{}, bySlice: map[int]ratios{}}
	steps := []func(context.Context, *Plan) error{e.count, e.former, e.sample}
	for _, step := range steps {
		if err := step(ctx, p); err != nil {
			return nil, fmt.Errorf("estimate of the plan: %w", err)
		}
	}
	return e.sum(p), nil
}

// known says that the manifest has the figures of a slice's copy: exactly where the copy is
// only verified, about where it is made again.
func known(w *Work) (rows uint64, exact, ok bool) {
	switch {
	case w.Action == ActionVerify:
		return w.Rows, true, true
	case w.Generation > 0:
		return w.Rows, false, true
	case w.empty:
		return 0, true, true
	}
	return 0, false, false
}

// count asks the servers for about how many rows slices have. Where there are too many
// slices, some of each table are asked for and the others taken for their mean.
func (e *estimation) count(ctx context.Context, p *Plan) error {
	byShard := map[manifest.Shard][]int{}
	for i := range p.Work {
		if rows, _, ok := known(&p.Work[i]); ok {
			e.rows[i] = rows
			continue
		}
		byShard[p.Work[i].Shard] = append(byShard[p.Work[i].Shard], i)
	}
	if err := e.calibrate(ctx, p, byShard); err != nil {
		return err
	}
	each := max(2, estimateQueries/max(1, len(byShard)))
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(estimateAtOnce)
	for shard, all := range byShard {
		asked := spread(all, each)
		e.looked += len(asked)
		g.Go(func() error {
			t := e.of(shard)
			var sum uint64
			for _, i := range asked {
				parts, err := t.EstimateRows(ctx, p.Work[i].Lo, p.Work[i].Hi)
				if err != nil {
					return err
				}
				n := e.curve.rows(parts)
				sum += n
				mu.Lock()
				e.rows[i] = n
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			for _, i := range all {
				if e.rows[i] == 0 {
					e.rows[i] = sum / uint64(len(asked))
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// spread is at most n of a list, evenly from its first to its last.
func spread[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	out := make([]T, n)
	for i := range out {
		out[i] = list[i*(len(list)-1)/max(1, n-1)]
	}
	return out
}

// former learns from former copies what a row comes to: of the shard itself, else of its siblings.
func (e *estimation) former(ctx context.Context, p *Plan) (err error) {
	if e.past, err = e.Manifest.Past(ctx); err != nil {
		return err
	}
	var shards, others []manifest.Shard
	wanted := map[manifest.Shard]bool{}
	for i := range p.Work {
		wanted[p.Work[i].Shard] = true
	}
	for s := range e.past {
		if wanted[s] {
			shards = append(shards, s)
		} else {
			others = append(others, s)
		}
	}
	byName := func(a, b manifest.Shard) int { return cmp.Compare(a.String(), b.String()) }
	slices.SortFunc(shards, byName)
	slices.SortFunc(others, byName)
	looked := slices.Clone(spread(shards, pastCopies))
	if n := pastCopies/4 - len(looked); n > 0 {
		looked = append(looked, spread(others, n)...)
	}
	found := make([]manifest.PastObjects, len(looked))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(estimateAtOnce / 2)
	for i, s := range looked {
		g.Go(func() (err error) {
			found[i], err = e.Manifest.PastObjects(ctx, s, max(1, pastCopies/len(looked)/4), SizeBounds())
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	e.classes = make([]float64, len(SizeBounds())+1)
	var objects, rows, sumRows, sumBytes float64
	for i, f := range found {
		objects, rows = objects+float64(f.Objects), rows+float64(f.Rows)
		for c, n := range f.Below {
			e.classes[c] += float64(n)
		}
		if f.Rows > 0 {
			e.copies += f.Copies
			e.byShard[looked[i]] = ratios{objects: float64(f.Objects) / float64(f.Rows)}
		}
	}
	for s, past := range e.past {
		sumRows, sumBytes = sumRows+float64(past.Rows), sumBytes+float64(past.Bytes)
		r := e.byShard[s]
		r.bytes = float64(past.Bytes) / float64(past.Rows)
		e.byShard[s] = r
	}
	if rows > 0 && sumRows > 0 {
		e.all = ratios{bytes: sumBytes / sumRows, objects: objects / rows}
	}
	return nil
}

// sample reads some rows: for the size of bodies, and where there is no former copy also
// for how many objects they will be.
func (e *estimation) sample(ctx context.Context, p *Plan) error {
	var some []int
	for i := range p.Work {
		if e.rows[i] > 0 && p.Work[i].Action == ActionCopy && !p.Work[i].empty {
			some = append(some, i)
		}
	}
	first, limit := e.all.objects == 0, sampleBodies
	if first {
		limit = sampleRows
	}
	some, typical := e.choose(some)
	var mu sync.Mutex
	var rows, body, scaled, objects, bytes float64
	classes := make([]float64, len(SizeBounds())+1)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(estimateAtOnce / 2)
	for _, i := range some {
		g.Go(func() error {
			w := &p.Work[i]
			convs, n, b := map[string]*conversation{}, 0, int64(0)
			if err := e.of(w.Shard).Sample(ctx, w.Lo, w.Hi, limit, func(name string, body int64) {
				c := convs[name]
				if c == nil {
					c = &conversation{}
					convs[name] = c
				}
				c.rows, c.body, n, b = c.rows+1, c.body+body, n+1, b+body
			}); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			rows, body = rows+float64(n), body+float64(b)
			if n < limit { // these are all
				e.rows[i] = uint64(n)
			}
			if first && n > 0 {
				total := float64(n)
				if n == limit { // there may be more
					total = max(total, float64(e.rows[i]))
				}
				o, size := grown(convs, total/float64(n), classes)
				e.bySlice[i] = ratios{bytes: size / total, objects: o / total}
				if typical[i] {
					scaled, objects, bytes = scaled+total, objects+o, bytes+size
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if rows > 0 {
		e.body, e.sampled = body/rows, len(some)
	}
	if first && scaled > 0 {
		e.all, e.classes = ratios{bytes: bytes / scaled, objects: objects / scaled}, classes
	}
	return nil
}

// choose picks slices to sample: half of them evenly, which stand for those that are not
// sampled, and the biggest of the others, which on their own make up much of the whole.
func (e *estimation) choose(all []int) (some []int, typical map[int]bool) {
	some, typical = slices.Clone(spread(all, sampleSlices/2)), map[int]bool{}
	for _, i := range some {
		typical[i] = true
	}
	rest := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return typical[i] })
	slices.SortStableFunc(rest, func(i, j int) int { return cmp.Compare(e.rows[j], e.rows[i]) })
	return append(some, rest[:min(len(rest), sampleSlices/2)]...), typical
}

type conversation struct {
	rows int
	body int64
}

// grown is how many objects, of how many bytes, the conversations of a sample stand for in
// a slice that has so many times its rows. Conversations that the sample has more than
// once are taken to be all of their kind; of those that it has once there are as many more as
// the square root says (the guaranteed-error estimator of distinct values).
func grown(convs map[string]*conversation, times float64, classes []float64) (objects, bytes float64) {
	for _, c := range convs {
		n, scale := 1.0, times
		if c.rows == 1 {
			n = math.Sqrt(times)
			scale = times / n
		}
		size := objectOverhead + scale*(bodyRatio*float64(c.body)+rowOverhead*float64(c.rows))
		at := 0
		for bounds := SizeBounds(); at < len(bounds) && size >= float64(bounds[at]); {
			at++
		}
		classes[at] += n
		objects, bytes = objects+n, bytes+n*size
	}
	return objects, bytes
}

// ratios gives what a row of a shard comes to: by its own past, else as its siblings.
func (e *estimation) ratios(s manifest.Shard) ratios {
	r := e.byShard[s]
	if r.bytes == 0 {
		r.bytes = e.all.bytes
	}
	if r.objects == 0 {
		r.objects = e.all.objects
	}
	return r
}

func (e *estimation) sum(p *Plan) *Estimate {
	out := &Estimate{Rests: []string{}}
	withPast := map[manifest.Shard]bool{}
	shards := map[manifest.Shard]bool{}
	for i := range p.Work {
		w := &p.Work[i]
		shards[w.Shard] = true
		if e.past[w.Shard].Rows > 0 {
			withPast[w.Shard] = true
		}
		rows, exact, ok := known(w)
		if exact && ok && rows == 0 {
			out.Empty++
		}
		if !ok {
			rows = e.rows[i]
		}
		out.Slices.add(1, true)
		out.Rows.add(rows, exact)
		none := exact && rows == 0
		r, own := e.bySlice[i]
		if !own {
			r = e.ratios(w.Shard)
		}
		objects := 0.0
		if rows > 0 {
			objects = max(1, math.Round(float64(rows)*r.objects))
		}
		bytes, sure := uint64(float64(rows)*r.bytes+.5), none
		if ok && !w.empty && w.Generation > 0 {
			bytes, sure = uint64(max(w.Bytes, 0)), exact
		}
		out.BodyBytes.add(uint64(float64(rows)*e.body+.5), none)
		out.Objects.add(uint64(objects), none)
		out.ObjectBytes.add(bytes, sure)
		if w.Action != ActionVerify {
			out.Puts.add(uint64(objects)+1, none) // the commit record, too
			out.Inserts.add(uint64(math.Ceil(float64(rows)*(e.body+rowOverhead)/insertBytes)), none)
		} else {
			out.Puts.add(0, true)
			out.Inserts.add(0, true)
		}
		gets := uint64(0)
		if e.cfg.Verify != VerifyLater || w.Action == ActionVerify {
			gets = uint64(objects)
		}
		out.Gets.add(gets, none)
		out.Lists.add(0, true)
	}
	out.Sizes = e.share(out.Objects.Value)
	out.rest(e, len(withPast), len(shards))
	return out
}

// share deals objects out to the classes of sizes as those that were looked at.
func (e *estimation) share(objects uint64) []uint64 {
	var all float64
	for _, n := range e.classes {
		all += n
	}
	if all == 0 {
		return nil
	}
	out := make([]uint64, len(e.classes))
	most, given := 0, uint64(0)
	for i, n := range e.classes {
		out[i] = uint64(n / all * float64(objects))
		if given += out[i]; out[i] > out[most] {
			most = i
		}
	}
	out[most] += objects - min(given, objects)
	return out
}

func (out *Estimate) rest(e *estimation, own, shards int) {
	say := func(format string, args ...any) { out.Rests = append(out.Rests, fmt.Sprintf(format, args...)) }
	if e.looked > 0 {
		say("rows: what the optimizers say of %d slices", e.looked)
	}
	switch {
	case e.copies > 0 && own == shards:
		say("objects: former copies of the tables themselves, %d looked at", e.copies)
	case e.copies > 0:
		say("objects: former copies of %d of %d tables, for the others those of their siblings; %d looked at", own, shards, e.copies)
	case e.all.objects > 0:
		say("objects: no former copy; a sample of rows, %d bytes an object and %d %% of the bodies", objectOverhead, int(bodyRatio*100))
	}
	if e.sampled > 0 {
		say("bodies: the first rows of %d slices", e.sampled)
	}
}
