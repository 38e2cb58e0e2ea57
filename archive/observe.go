package archive

import (
	"context"

	"github.com/coldtier/coldtier/manifest"
)

// Stage is a part of the work on a slice that the ports do not show as it is: a scan and an
// insert are told by whoever decorates Scanner and Rows.
type Stage string

// The stages.
const (
	StageEncode Stage = "encode" // one object's rows to Parquet
	StagePut    Stage = "put"    // one object to the bucket
	StageCommit Stage = "commit" // the commit record and the manifest's transaction
	StageVerify Stage = "verify" // reading a copy back
)

// Observer is told how the work on slices goes. Its methods may be called from several
// goroutines.
type Observer interface {
	// Slice begins the work on a slice. What it gives is the context of all that is done
	// for the slice; done is called once, at its end.
	Slice(ctx context.Context, s manifest.SliceKey) (_ context.Context, done func(error))
	// Stage begins a stage of the slice of ctx. done is told what went through it; it is
	// not called for what failed before its end.
	Stage(ctx context.Context, stage Stage) (done func(rows uint64, bytes int64))
}

// unobserved is an Observer that tells nobody.
type unobserved struct{}

func (unobserved) Slice(ctx context.Context, _ manifest.SliceKey) (context.Context, func(error)) {
	return ctx, func(error) {}
}

func (unobserved) Stage(context.Context, Stage) func(uint64, int64) { return func(uint64, int64) {} }
