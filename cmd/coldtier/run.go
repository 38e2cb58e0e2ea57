package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/coldtier/coldtier/manifest"
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

// endTime is how long the note that a run has ended may take, also after a signal: with
// the 15 s in which a purge settles its slices, less than grace.
const endTime = 5 * time.Second

// recorded does a job and notes its begin, outcome and report in the manifest.
func (a *app) recorded(ctx context.Context, p *parts, job string, do func() (report any, err error)) error {
	id, err := p.manifest.BeginRun(ctx, job, p.owner)
	if err != nil {
		return err
	}
	report, err := do()
	outcome := "done"
	if err != nil {
		_, outcome = exit(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if e := p.manifest.EndRun(ctx, id, outcome, report); e != nil {
		if err == nil {
			return e
		}
		if !errors.Is(e, manifest.ErrState) {
			a.log.Warn("the run's end could not be noted", "run", id, "error", e)
		}
	}
	return err
}
