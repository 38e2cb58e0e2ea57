package report

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// Judge gives the verdict that follows from the checks, and why it is fail. A drill is
// green when no check and no slice failed, nothing ended it early, and each required step has a check that passed.
func (r *Report) Judge() (Verdict, []string) {
	var why []string
	if r.Error != "" {
		why = append(why, r.Error)
	}
	passed := map[string]bool{}
	for _, c := range r.Checks {
		switch c.Verdict {
		case Pass:
			passed[c.Step] = true
		case Skipped:
		default:
			text := c.Step + ": " + c.Name
			if c.Reason != "" {
				text += ": " + c.Reason
			}
			why = append(why, text)
		}
	}
	for _, s := range Required() {
		if !passed[s] {
			why = append(why, "no check of the step "+s+" passed")
		}
	}
	for _, s := range r.Sample.Slices {
		if s.Verdict != Pass {
			why = append(why, fmt.Sprintf("slice %s %s was not restored equal", s.Day, s.Shard))
		}
	}
	if len(why) > 0 {
		return Fail, why
	}
	return Pass, nil
}

// Validate says whether a report is whole and agrees with itself.
func (r *Report) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case r.FormatVersion > FormatVersion:
		return fmt.Errorf("report of format %d: this coldtier knows up to %d: use a newer one", r.FormatVersion, FormatVersion)
	case r.FormatVersion != FormatVersion:
		return fmt.Errorf("report of format %d: want %d", r.FormatVersion, FormatVersion)
	}
	if r.Drill == "" || r.Source == "" {
		bad("the drill's ID or source is missing")
	}
	if r.Signing == "" {
		bad("it does not say whether it is signed")
	}
	if r.Began.IsZero() || r.Ended.Before(r.Began) {
		bad("it ended (%s) before it began (%s)", r.Ended, r.Began)
	}
	names := map[[2]string]bool{}
	for _, c := range r.Checks {
		at := [2]string{c.Step, c.Name}
		switch {
		case !slices.Contains([]Verdict{Pass, Fail, Skipped}, c.Verdict):
			bad("check %s of %s: unknown verdict %q", c.Name, c.Step, c.Verdict)
		case c.Step == "" || c.Name == "" || names[at]:
			bad("check %q of step %q: want a step, and a name that no other check of it has", c.Name, c.Step)
		case c.Verdict == Skipped && c.Reason == "":
			bad("check %s of %s: skipped without a reason", c.Name, c.Step)
		case c.Verdict == Pass && (len(c.Failures) > 0 || c.Failed > 0):
			bad("check %s of %s: passed, and yet it names failures", c.Name, c.Step)
		case c.Failed < len(c.Failures):
			bad("check %s of %s: %d failures, and it names %d", c.Name, c.Step, c.Failed, len(c.Failures))
		}
		names[at] = true
	}
	if v, why := r.Judge(); v != r.Verdict {
		bad("the verdict is %q, but by the checks it is %q (%v)", r.Verdict, v, why)
	}
	for _, x := range r.Measures.Reads {
		if n := total(x.States); n != x.Pages || x.Latency.Count != x.Pages {
			bad("round of reads %s: %d pages, but %d by state and %d times", x.Name, x.Pages, n, x.Latency.Count)
		}
	}
	if err := safe(reflect.ValueOf(*r), ""); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func total(all []ReadState) (n int) {
	for _, s := range all {
		n += s.Pages
	}
	return n
}

// maxNumber is the first whole number that JSON readers confuse with the next.
const maxNumber = 1 << 53

// safe refuses numbers that JSON cannot carry, or not exactly, and negative counts.
func safe(v reflect.Value, path string) error {
	switch v.Kind() { //nolint:exhaustive // the others hold no numbers
	case reflect.Struct:
		var errs []error
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				return nil // time.Time, snowflake.Day
			}
			if f.Name != "Seed" && f.Name != "FromID" && f.Name != "ToID" { // strings
				errs = append(errs, safe(v.Field(i), path+"."+f.Name))
			}
		}
		return errors.Join(errs...)
	case reflect.Slice:
		var errs []error
		for i := range v.Len() {
			errs = append(errs, safe(v.Index(i), path+"["+strconv.Itoa(i)+"]"))
		}
		return errors.Join(errs...)
	case reflect.Pointer:
		if !v.IsNil() {
			return safe(v.Elem(), path)
		}
	case reflect.Int, reflect.Int64:
		if n := v.Int(); n < 0 || n >= maxNumber {
			return fmt.Errorf("%s is %d: want 0 to 2^53-1", path, n)
		}
	case reflect.Uint64, reflect.Uint32:
		if n := v.Uint(); n >= maxNumber {
			return fmt.Errorf("%s is %d: want 0 to 2^53-1", path, n)
		}
	case reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%s is %v: want a number", path, f)
		}
	}
	return nil
}
