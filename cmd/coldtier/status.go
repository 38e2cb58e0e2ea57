package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

func (a *app) statusCommand() *cobra.Command {
	var s selection
	var runs int
	c := a.command(&cobra.Command{
		Use:   "status",
		Short: "Show what is where",
		Long: `Show the slices by state and by day, what the purge waits for, failures, holds and
the last runs. Only the manifest is asked. ROWS and BYTES are those of the newest
copies; PURGE is when the last verified slice of the day may go.`,
		Example: `  coldtier status
  coldtier status --from 2026-05-01 --to 2026-05-31
  coldtier --output json status | jq '.result.days[] | select(.failed > 0)'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, _ []string) (result, error) {
		if err := s.parse(); err != nil {
			return nil, err
		}
		if runs < 0 {
			return nil, usage("--runs %d: want 0 or more", runs)
		}
		return a.status(ctx, s, runs)
	})
	s.flags(c)
	c.Flags().IntVar(&runs, "runs", 5, "show the last `N` runs")
	return c
}

// maxListed is the number of slices beyond which a status without a selection
// leaves out the days that are wholly purged.
const maxListed = 200_000

type statusResult struct {
	Source   string                  `json:"source"`
	Now      time.Time               `json:"now"` // by the manifest database's clock
	Lag      string                  `json:"purge_lag"`
	States   []manifest.StateSummary `json:"states"` // of all slices, whatever is selected
	Days     []dayStatus             `json:"days"`
	NoPurged bool                    `json:"purged_days_left_out,omitempty"`
	Failed   []sliceStatus           `json:"failed"`
	Held     []sliceStatus           `json:"held"`
	Holds    int                     `json:"holds"` // in force, of any kind
	Runs     []runStatus             `json:"runs"`
}

type dayStatus struct {
	Day       snowflake.Day          `json:"day"`
	Slices    int                    `json:"slices"`
	States    map[manifest.State]int `json:"states"`
	Rows      uint64                 `json:"rows"`
	Bytes     int64                  `json:"bytes"`
	Failed    int                    `json:"failed"`
	Held      int                    `json:"held"`
	PurgeFrom *time.Time             `json:"purge_from,omitempty"` // when the last verified slice may go
	Remaining string                 `json:"purge_in,omitempty"`
}

type sliceStatus struct {
	manifest.SliceKey
	State manifest.State `json:"state"`
	Tries int            `json:"tries,omitempty"`
	Error string         `json:"error,omitempty"`
}

type runStatus struct {
	ID      uint64          `json:"id"`
	Job     string          `json:"job"`
	Host    string          `json:"host"`
	Started time.Time       `json:"started"`
	Ended   *time.Time      `json:"ended,omitempty"`
	Outcome string          `json:"outcome"`
	Report  json.RawMessage `json:"report,omitempty"`
}

func (a *app) status(ctx context.Context, sel selection, runs int) (_ result, err error) {
	p, err := a.open(ctx, need{})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	if err := sel.matches(ctx, p); err != nil {
		return nil, err
	}
	sum, err := p.manifest.Summary(ctx)
	if err != nil {
		return nil, err
	}
	lag := p.cfg.Purge.Lag
	r := &statusResult{Source: p.cfg.Source.Name, Now: sum.Now, Lag: lag.String(), States: append([]manifest.StateSummary{}, sum.States...), Holds: sum.Holds,
		Days: []dayStatus{}, Failed: []sliceStatus{}, Held: []sliceStatus{}, Runs: []runStatus{}}
	f := manifest.Filter{From: sel.from, To: sel.to, Shard: sel.shard}
	total := 0
	for _, s := range sum.States {
		total += s.Slices
	}
	if sel == (selection{}) && total > maxListed {
		f.States = []manifest.State{manifest.Pending, manifest.Copying, manifest.Committed, manifest.Verified, manifest.Purging}
		r.NoPurged = true
	}
	all, err := p.manifest.Slices(ctx, f)
	if err != nil {
		return nil, err
	}
	r.byDay(all, lag)
	last, err := p.manifest.LastRuns(ctx, "", runs)
	if err != nil {
		return nil, err
	}
	for _, l := range last {
		s := runStatus{l.ID, l.Job, l.Host, l.Started, l.Ended, l.Outcome, l.Report}
		if s.Outcome == "" {
			s.Outcome = "running"
			if sum.Now.Sub(l.Started) > 24*time.Hour {
				s.Outcome = "died"
			}
		}
		r.Runs = append(r.Runs, s)
	}
	return r, nil
}

// byDay sums slices up, which come oldest day first.
func (r *statusResult) byDay(all []manifest.Slice, lag time.Duration) {
	for _, s := range all {
		if n := len(r.Days); n == 0 || r.Days[n-1].Day != s.Day {
			r.Days = append(r.Days, dayStatus{Day: s.Day, States: map[manifest.State]int{}})
		}
		d := &r.Days[len(r.Days)-1]
		d.Slices++
		d.States[s.State]++
		d.Rows += s.Rows
		d.Bytes += s.Bytes
		if s.Failed {
			d.Failed++
			r.Failed = append(r.Failed, sliceStatus{s.SliceKey, s.State, s.Tries, s.Error})
		}
		if s.Held {
			d.Held++
			r.Held = append(r.Held, sliceStatus{SliceKey: s.SliceKey, State: s.State})
		}
		if s.State == manifest.Verified && s.VerifiedAt != nil {
			if at := s.VerifiedAt.Add(lag); d.PurgeFrom == nil || at.After(*d.PurgeFrom) {
				d.PurgeFrom, d.Remaining = &at, max(at.Sub(r.Now), 0).Round(time.Second).String()
			}
		}
	}
}

func (r *statusResult) text(w io.Writer) {
	fmt.Fprintf(w, "source %s, %s, purge lag %s\n", r.Source, stamp(r.Now), r.Lag)
	if len(r.States) == 0 {
		fmt.Fprintln(w, "\nno slices yet: run coldtier archive")
	} else {
		fmt.Fprintln(w)
		var rows []string
		for _, s := range r.States {
			rows = append(rows, row(s.State, s.Slices, s.Rows, bytesText(int64(s.Bytes)), s.First, s.Last)) //nolint:gosec // sizes of objects
		}
		table(w, "STATE\tSLICES\tROWS\tBYTES\tFIRST DAY\tLAST DAY", rows)
		fmt.Fprintln(w)
		r.dayTable(w)
	}
	for _, s := range r.Failed {
		fmt.Fprintf(w, "\nfailed  %s (%s, %d tries): %s", s.SliceKey, s.State, s.Tries, printable(s.Error))
	}
	for _, s := range r.Held {
		fmt.Fprintf(w, "\nheld    %s (%s)", s.SliceKey, s.State)
	}
	if len(r.Failed)+len(r.Held) > 0 {
		fmt.Fprintln(w)
	}
	if r.Holds > 0 {
		fmt.Fprintf(w, "\n%s in force (coldtier hold list)\n", count(r.Holds, "hold"))
	}
	if len(r.Runs) > 0 {
		fmt.Fprintln(w)
		var rows []string
		for _, l := range r.Runs {
			took := ""
			if l.Ended != nil {
				took = l.Ended.Sub(l.Started).Round(time.Millisecond).String()
			}
			rows = append(rows, row(l.ID, l.Job, stamp(l.Started), took, l.Outcome, printable(l.Host)))
		}
		table(w, "RUN\tJOB\tSTARTED\tTOOK\tOUTCOME\tHOST", rows)
	}
}

func (r *statusResult) dayTable(w io.Writer) {
	if r.NoPurged {
		fmt.Fprintln(w, "days that are wholly purged are left out; name days with --from and --to to see them")
	}
	order := []manifest.State{manifest.Pending, manifest.Copying, manifest.Committed, manifest.Verified, manifest.Purging, manifest.Purged}
	var rows []string
	for _, d := range r.Days {
		states := ""
		for _, s := range slices.DeleteFunc(slices.Clone(order), func(s manifest.State) bool { return d.States[s] == 0 }) {
			if states != "" {
				states += ", "
			}
			states += fmt.Sprintf("%d %s", d.States[s], s)
		}
		when := ""
		if d.PurgeFrom != nil {
			when = "now"
			if d.PurgeFrom.After(r.Now) {
				when = "in " + d.Remaining
			}
		}
		rows = append(rows, row(d.Day, states, d.Rows, bytesText(d.Bytes), d.Failed, d.Held, when))
	}
	table(w, "DAY\tSLICES\tROWS\tBYTES\tFAILED\tHELD\tPURGE", rows)
}
