package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Errors of a rebuild.
var (
	// ErrNothing says that the bucket has no commit record of the source.
	ErrNothing = errors.New("the bucket has no commit record of the source")
	// ErrTarget says that the target cannot be the one.
	ErrTarget = errors.New("refused as the target of a rebuild")
	// ErrPartly says that something was left, and is named in the report.
	ErrPartly = errors.New("rebuilt in part")
)

// Objects is the bucket.
type Objects interface {
	// List calls fn for every object whose key begins with a prefix, in the keys' order.
	List(ctx context.Context, prefix string, fn func(key string, size int64) error) error
	// Get reads a whole object; archive.ErrNotFound when it is missing, archive.ErrDamaged
	// when its bytes are others than were put.
	Get(ctx context.Context, key string) ([]byte, error)
}

// Progress is told how a rebuild goes.
type Progress interface {
	Slices(n int)       // so many more slices are to be done
	SliceDone(rows int) // one more slice is done, with so many rows in its newest generation
}

// NoProgress is a Progress that nobody watches.
type NoProgress struct{}

// Slices implements Progress.
func (NoProgress) Slices(int) {}

// SliceDone implements Progress.
func (NoProgress) SliceDone(int) {}

// Config says what is rebuilt and how.
type Config struct {
	Bucket, Prefix string // for errors
	Replace        bool   // a target that is not empty is made what the bucket says; what the bucket lacks is kept
	Beside         bool   // the target is not to be the bucket's manifest: it gets an identity of its own, so that nothing can work with it
	DryRun         bool   // look and count, change nothing
	Workers        int    // slices at once; 0: 4
}

// Deps are what a rebuild works with. Progress, Step and Log may be nil.
type Deps struct {
	Target   *manifest.Store
	Objects  Objects
	Clock    func() time.Time // for durations alone
	Log      *slog.Logger
	Progress Progress
	// Step is called at each named point between two effects; crash tests kill the process in it.
	Step func(name string) error
}

// Problem is an object of the bucket that could not be used.
type Problem struct {
	Key   string `json:"key"`
	Error string `json:"error"`
}

// Kept is a slice that the target had and that was left as it was.
type Kept struct {
	Slice  manifest.SliceKey `json:"slice"`
	Reason string            `json:"reason"`
}

// Report is what a rebuild made.
type Report struct {
	DryRun      bool      `json:"dry_run"`
	Identity    string    `json:"identity"` // of the bucket's owner
	Resumed     bool      `json:"resumed"`  // it went on with one that had not ended; the counts are of this run
	Slices      int       `json:"slices"`
	Before      int       `json:"slices_before"` // made by the run that this one goes on with
	Purged      int       `json:"purged"`        // of Slices
	Purging     int       `json:"purging"`       // of Slices: a purge was begun
	Generations int       `json:"generations"`
	Objects     int       `json:"objects"`
	Segments    int       `json:"segments"`
	Rows        uint64    `json:"rows"` // of newest generations
	Bytes       int64     `json:"bytes"`
	Holds       int       `json:"holds"`
	Statuses    int       `json:"statuses"`
	Foreign     int       `json:"foreign"` // commit records of other sources, which are no concern of this one
	Problems    []Problem `json:"problems"`
	Kept        []Kept    `json:"kept"`
	Warnings    []string  `json:"warnings,omitempty"`
	Seconds     float64   `json:"seconds"`
}

// Err says what was not done: nil when all was.
func (r *Report) Err() error {
	n := len(r.Problems) + len(r.Kept)
	switch {
	case n == 0:
		return nil
	case len(r.Problems) > 0:
		return fmt.Errorf("%w: objects that could not be used: %d, the first %s: %s; slices left as they were: %d", ErrPartly, len(r.Problems), r.Problems[0].Key, r.Problems[0].Error, len(r.Kept))
	}
	return fmt.Errorf("%w: slices left as they were: %d, the first %s: %s", ErrPartly, len(r.Kept), r.Kept[0].Slice, r.Kept[0].Reason)
}

// maxRecords is how many bytes of commit records are taken apart at once; they take about
// ten times that.
const maxRecords = 16 << 20

type rebuilder struct {
	Deps
	cfg    Config
	r      *manifest.Rebuild
	memory *semaphore.Weighted

	mu     sync.Mutex
	report Report
}

// Manifest rebuilds the target's manifest from the bucket. What cannot be used is named in
// the report and left out; the rest is done. After an error other than ErrPartly the
// target may be half rebuilt: the same call goes on.
func Manifest(ctx context.Context, cfg Config, d Deps) (*Report, error) {
	if cfg.Workers <= 0 {
		cfg.Workers = 4
	}
	if d.Progress == nil {
		d.Progress = NoProgress{}
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	b := &rebuilder{Deps: d, cfg: cfg, memory: semaphore.NewWeighted(maxRecords)}
	b.report = Report{DryRun: cfg.DryRun, Problems: []Problem{}, Kept: []Kept{}}
	begun := d.Clock()
	err := b.run(ctx)
	b.report.Seconds = d.Clock().Sub(begun).Seconds()
	if err == nil {
		err = b.report.Err()
	}
	if err != nil {
		return &b.report, fmt.Errorf("rebuild the manifest of source %s: %w", d.Target.Source(), err)
	}
	return &b.report, nil
}

func (b *rebuilder) step(name string) error {
	if b.Step == nil {
		return nil
	}
	return b.Step(name)
}

func (b *rebuilder) run(ctx context.Context) error {
	if err := b.fits(ctx); err != nil {
		return err
	}
	if b.cfg.DryRun {
		if err := b.days(ctx, b.count); err != nil {
			return err
		}
		return b.rest(ctx)
	}
	if _, err := b.Target.Migrate(ctx, false); err != nil {
		return err
	}
	identity := b.report.Identity
	if b.cfg.Beside {
		identity = ""
	}
	var err error
	if b.r, err = b.Target.BeginRebuild(ctx, identity, b.cfg.Replace); err != nil {
		return err
	}
	b.report.Resumed = b.r.Resumed
	if err := b.step("rebuild.begun"); err != nil {
		return err
	}
	if err := b.slices(ctx); err != nil {
		return err
	}
	if err := b.step("rebuild.slices"); err != nil {
		return err
	}
	if err := b.rest(ctx); err != nil {
		return err
	}
	left, err := b.r.Left(ctx, maxKept)
	if err != nil {
		return err
	}
	named := map[manifest.SliceKey]bool{}
	for _, k := range b.report.Kept {
		named[k.Slice] = true
	}
	for _, s := range left {
		if !named[s.SliceKey] {
			b.report.Kept = append(b.report.Kept, Kept{s.SliceKey, fmt.Sprintf("the manifest has generation %d of it, the bucket no commit record that can be read", s.Generation)})
		}
	}
	if err := b.step("rebuild.before-end"); err != nil {
		return err
	}
	return b.r.End(ctx)
}

// maxKept is how many slices that the bucket knows nothing of are named.
const maxKept = 1000

// fits refuses a bucket or a target that cannot be the right one, before anything changes.
func (b *rebuilder) fits(ctx context.Context) error {
	foreign, err := b.Target.Foreign(ctx)
	switch {
	case err != nil:
		return err
	case foreign:
		return fmt.Errorf("%w: its database has tables, and none of them is a manifest's: name an empty database", ErrTarget)
	}
	b.report.Identity, err = archive.ReadOwner(ctx, b.Objects, archive.Owner{Bucket: b.cfg.Bucket, Prefix: b.cfg.Prefix, Source: b.Target.Source()})
	if errors.Is(err, archive.ErrUnowned) {
		b.report.Warnings = append(b.report.Warnings, "the bucket has no owner mark; the next coldtier archive makes it")
		err = nil
	}
	if err != nil {
		return err
	}
	mine, err := b.Target.Identity(ctx)
	if err != nil {
		return err
	}
	if b.cfg.Beside && mine != "" && mine == b.report.Identity {
		return fmt.Errorf("%w: it is the bucket's own manifest (identity %s): beside it means another, empty database", ErrTarget, mine)
	}
	none := errors.New("found one")
	err = b.Objects.List(ctx, manifest.RecordsPrefix, func(key string, _ int64) error {
		if n, ok := manifest.ParseRecordKey(key); ok && n.Kind == manifest.KeyRecord {
			return none
		}
		return nil
	})
	if errors.Is(err, none) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%w: bucket %s, prefix %q: correct bucket.name, prefix or endpoint", ErrNothing, b.cfg.Bucket, b.cfg.Prefix)
	}
	return err
}

// found is what the bucket lists of a slice, by generation.
type found map[uint32]map[string]int64

// days lists the records, day by day.
func (b *rebuilder) days(ctx context.Context, do func(ctx context.Context, day snowflake.Day, shards map[string]found) error) error {
	var day snowflake.Day
	shards := map[string]found{}
	flush := func() error {
		if len(shards) == 0 {
			return nil
		}
		all := shards
		shards = map[string]found{}
		return do(ctx, day, all)
	}
	err := b.Objects.List(ctx, manifest.RecordsPrefix, func(key string, size int64) error {
		n, ok := manifest.ParseRecordKey(key)
		if !ok {
			b.problem(key, errors.New("its name is none of a commit record or a purge mark"))
			return nil
		}
		if n.Day != day {
			if err := flush(); err != nil {
				return err
			}
			day = n.Day
		}
		f := shards[n.Shard]
		if f == nil {
			f = found{}
			shards[n.Shard] = f
		}
		if f[n.Generation] == nil {
			f[n.Generation] = map[string]int64{}
		}
		f[n.Generation][n.Kind] = size
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

func (b *rebuilder) problem(key string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report.Problems = append(b.report.Problems, Problem{key, err.Error()})
}

// count is what a dry run does of a day.
func (b *rebuilder) count(_ context.Context, _ snowflake.Day, shards map[string]found) error {
	for _, f := range shards {
		b.report.Slices++
		newest := uint32(0)
		for g, kinds := range f {
			if _, ok := kinds[manifest.KeyRecord]; ok {
				newest = max(newest, g)
				b.report.Generations++
			}
		}
		_, purged := f[newest][manifest.KeyPurged]
		_, purging := f[newest][manifest.KeyPurging]
		switch {
		case purged:
			b.report.Purged++
		case purging:
			b.report.Purging++
		}
	}
	return nil
}

func (b *rebuilder) slices(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(b.cfg.Workers)
	err := b.days(gctx, func(ctx context.Context, day snowflake.Day, shards map[string]found) error {
		done, err := b.r.Done(ctx, day)
		if err != nil {
			return err
		}
		names := map[string]bool{}
		for sh := range done {
			names[manifest.ShardName(sh)] = true
		}
		b.Progress.Slices(len(shards))
		for name, f := range shards {
			if names[name] {
				b.mu.Lock()
				b.report.Before++
				b.mu.Unlock()
				b.Progress.SliceDone(0)
				continue
			}
			g.Go(func() error {
				rows, err := b.slice(ctx, day, name, f)
				b.Progress.SliceDone(int(rows)) //nolint:gosec // a slice's
				return err
			})
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		return nil
	})
	return errors.Join(g.Wait(), err)
}
