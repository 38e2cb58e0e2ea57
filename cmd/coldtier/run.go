package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/coldtier/coldtier/scheduler"
)

// maxRows is how many slices a text lists; JSON lists all.
const maxRows = 200

func andMore(w io.Writer, n int) {
	if n > maxRows {
		fmt.Fprintf(w, "... and %d more (--output json lists all)\n", n-maxRows)
	}
}

func warningLines(w io.Writer, warnings []string) {
	for _, s := range warnings {
		fmt.Fprintf(w, "warning: %s\n", printable(s))
	}
}

// joinClose closes the parts and adds its error.
func joinClose(err error, p *parts) error { return errors.Join(err, p.close()) }

// endTime is how long it may take to note that a run has ended, also after a signal: with
// the 15 s in which a purge settles its slices, less than the default of --grace.
const endTime = scheduler.EndTime

// recorded does a job and notes its begin, outcome and report in the manifest.
func (a *app) recorded(ctx context.Context, p *parts, job string, do func(context.Context) (report any, err error)) error {
	defer a.pushing(ctx, p, job)()
	return a.once(ctx, p, job, a.telemetry.source, func(ctx context.Context, run uint64) (report any, err error) {
		ctx, told := a.told(ctx, p, job, run)
		defer func() { told(err) }()
		return do(ctx)
	})
}
