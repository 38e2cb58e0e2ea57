package main

import (
	"errors"
	"slices"

	"github.com/coldtier/coldtier/archive"
)

// mostOutcomes is how many slices of each kind the manifest keeps of a run: a backfill has
// hundreds of thousands.
const mostOutcomes = 1000

// briefReport is a report with the first of its slices, and how many there were.
type briefReport struct {
	*archive.Report
	Slices struct {
		Done   int `json:"done"`
		Left   int `json:"left"`
		Failed int `json:"failed"`
	} `json:"slices"`
}

func briefly(r *archive.Report) *briefReport {
	short := *r
	b := &briefReport{Report: &short}
	b.Slices.Done, b.Slices.Left, b.Slices.Failed = len(r.Done), len(r.Left), len(r.Failed)
	for _, list := range []*[]archive.Outcome{&short.Done, &short.Left, &short.Failed} {
		*list = (*list)[:min(len(*list), mostOutcomes)]
	}
	return b
}

// firstLeft is the slice that tells most of why slices were left.
func firstLeft(left []archive.Outcome) archive.Outcome {
	for _, is := range []func(archive.Outcome) bool{
		func(o archive.Outcome) bool { return errors.Is(o.Err, archive.ErrTooLarge) },
		func(o archive.Outcome) bool { return !leased(o) },
	} {
		if i := slices.IndexFunc(left, is); i >= 0 {
			return left[i]
		}
	}
	return left[0]
}
