package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// What every platform with this shift puts into the low bits.
const (
	usualShift   = 22
	sequenceBits = 12
)

func (a *app) idCommand() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "id MESSAGE_ID...",
		Short: "Say what a snowflake ID says: its time, day, machine and sequence",
		Long: `Say what snowflake IDs say, by source.snowflake and source.timezone of the
configuration. No server is asked.`,
		Example: `  coldtier id 837851385029464064
  coldtier --output json id 837851385029464064`,
		Args: cobra.MinimumNArgs(1),
	}, a.id)
}

type idResult struct {
	IDs []idSays `json:"ids"`
}

type idSays struct {
	ID       uint64        `json:"id,string"`
	Time     time.Time     `json:"time"`
	Day      snowflake.Day `json:"day"`
	Timezone string        `json:"timezone"`           // whose day
	Lo       *decimal      `json:"day_from,omitempty"` // of the day; none where its IDs end within it
	Hi       *decimal      `json:"day_to,omitempty"`   // the first ID of the next day
	Machine  *uint64       `json:"machine,omitempty"`
	Sequence *uint64       `json:"sequence,omitempty"`
	Low      uint64        `json:"low_bits,string"`
	local    time.Time
}

func (a *app) id(_ context.Context, args []string) (result, error) {
	c, err := a.load()
	if err != nil {
		return nil, err
	}
	l, zone := c.Source.Layout, c.Source.Zone
	r := &idResult{}
	for _, arg := range args {
		id, err := strconv.ParseUint(arg, 10, 64)
		if err != nil {
			return nil, usage("message ID %q: want a number of 0..18446744073709551615", arg)
		}
		p := l.Split(id)
		s := idSays{ID: id, Time: p.Time, Day: l.DayOf(id, zone), Timezone: zone.String(), Low: p.Low, local: p.Time.In(zone)}
		if lo, hi, err := l.Window(s.Day, zone); err == nil {
			s.Lo, s.Hi = decimalOf(&lo), decimalOf(&hi)
		}
		if l.Shift == usualShift {
			machine, sequence := p.Low>>sequenceBits, p.Low&(1<<sequenceBits-1)
			s.Machine, s.Sequence = &machine, &sequence
		}
		r.IDs = append(r.IDs, s)
	}
	return r, nil
}

func (r *idResult) text(w io.Writer) {
	for i, s := range r.IDs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "id        %d\n", s.ID)
		fmt.Fprintf(w, "time      %s\n", s.Time.Format("2006-01-02T15:04:05.000Z"))
		if s.Timezone != "UTC" {
			fmt.Fprintf(w, "          %s\n", s.local.Format("2006-01-02T15:04:05.000-07:00"))
		}
		fmt.Fprintf(w, "day       %s (%s)", s.Day, s.Timezone)
		if s.Lo != nil {
			fmt.Fprintf(w, ", IDs %d to %d", uint64(*s.Lo), uint64(*s.Hi)-1)
		}
		fmt.Fprintln(w)
		if s.Machine != nil {
			fmt.Fprintf(w, "machine   %d\nsequence  %d\n", *s.Machine, *s.Sequence)
		} else {
			fmt.Fprintf(w, "low bits  %d\n", s.Low)
		}
	}
}
