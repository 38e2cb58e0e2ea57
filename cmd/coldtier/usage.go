package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// group is a command that only has others below it: alone it does nothing, which a
// script must not take for work done.
func group(c *cobra.Command, below ...*cobra.Command) *cobra.Command {
	var names []string
	for _, b := range below {
		names = append(names, b.Name())
	}
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(c, args[0])
		}
		return fmt.Errorf("say what to do: %s", strings.Join(names, ", "))
	}
	c.AddCommand(below...)
	return c
}

// noArgs refuses arguments, which no verb takes but by flags.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return nil
}

// unknown refuses a verb that is not there, and says which may be meant.
func unknown(c *cobra.Command, name string) error {
	err := fmt.Errorf("unknown command %q", name)
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(name); len(near) > 0 {
		err = fmt.Errorf("%w: is %s meant?", err, strings.Join(near, " or "))
	}
	return err
}

// onlyWith refuses flags where the other one is not given, without which they would do nothing.
func onlyWith(c *cobra.Command, other string, names ...string) {
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		for _, name := range names {
			if f := c.Flags(); f.Changed(name) && !f.Changed(other) {
				return fmt.Errorf("--%s does nothing without --%s", name, other)
			}
		}
		if before != nil {
			return before(c, args)
		}
		return nil
	}
}

// plainly is the library's complaint about flags in words of people.
func plainly(err error) error {
	text := err.Error()
	var names, given string
	switch {
	case scan(text, "required flag(s) ", &names, " not set"):
		names = strings.ReplaceAll(strings.ReplaceAll(names, `"`, ""), ", ", " ")
		return fmt.Errorf("%s missing", flags(names, " and "))
	case scan(text, "if any flags in the group [", &names, "] are set they must all be set; missing [", &given, "]"):
		return fmt.Errorf("%s belong together: %s missing", flags(names, " and "), flags(given, " and "))
	case scan(text, "if any flags in the group [", &names, "] are set none of the others can be; [", &given, "] were all set"):
		return fmt.Errorf("%s exclude each other", flags(given, " and "))
	case scan(text, "at least one of the flags in the group [", &names, "] is required"):
		return fmt.Errorf("%s missing", flags(names, " or "))
	}
	return err
}

// flags are names in their written form.
func flags(names, and string) string { return "--" + strings.Join(strings.Fields(names), and+"--") }

// scan takes text apart at its fixed parts; what lies between goes into the pointers.
func scan(text string, form ...any) bool {
	for i := 0; i < len(form); i++ {
		switch part := form[i].(type) {
		case string:
			rest, ok := strings.CutPrefix(text, part)
			if !ok {
				return false
			}
			text = rest
		case *string:
			end := strings.Index(text, form[i+1].(string)) //nolint:forcetypeassert,gosec // a fixed part follows each
			if end < 0 {
				return false
			}
			*part, text = text[:end], text[end:]
		}
	}
	return text == ""
}
