package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
)

const (
	formatText = "text"
	formatJSON = "json"
)

// verb does the work of a command. A result is printed also when there is an error.
type verb func(ctx context.Context, args []string) (result, error)

// run runs one command line and gives the exit code.
func (a *app) run(ctx context.Context, args []string) (code int) {
	// A panic that nobody recovers exits with 2, which would say bad usage.
	defer func() {
		if r := recover(); r != nil {
			code = exitFailed
			a.printError(fmt.Errorf("internal error, please report it: %v\n%s", r, debug.Stack()))
		}
	}()
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	c, err := root.ExecuteContextC(ctx)
	switch {
	case a.begun:
	case err == nil: // help or the version
		return exitDone
	default:
		a.verb = verbOf(c)
		err = usage("%w (see %s --help)", plainly(err), c.CommandPath())
		if wantsJSON(args) { // a fault of the command line may come before --output is read
			a.output = formatJSON
		}
	}
	code = a.finish(ctx, err)
	if a.telemetry != nil {
		if err := a.telemetry.tracer.close(ctx); err != nil {
			a.log.Warn("the last spans are lost", "error", err)
		}
	}
	return code
}

// wantsJSON finds --output json in a command line that may be wrong elsewhere.
func wantsJSON(args []string) bool {
	for i, s := range args {
		if s == "--output="+formatJSON || s == "--output" && i+1 < len(args) && args[i+1] == formatJSON {
			return true
		}
	}
	return false
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "coldtier",
		Short: "Move old messages from MySQL to Parquet on S3 and to ClickHouse, proven equal",
		Long: `coldtier copies old messages, day by day, from MySQL to Parquet files on S3 and
rows in ClickHouse, proves that the copies are equal, and after a lag deletes the
rows from MySQL.

Exit codes: 0 done; 1 failed; 2 bad usage, configuration or surroundings;
3 done in part (what was left is named); 4 refused for safety (drift, hold, clock
skew, mismatch); 5 another run holds the lease.`,
		Example: `  coldtier check                               is everything there and as it must be?
  coldtier archive --dry-run                   which slices would be copied?
  coldtier archive && coldtier purge           the daily work
  coldtier --output json status | jq .result   for a script`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(c, args[0])
			}
			return c.Help()
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	f := root.PersistentFlags()
	f.SortFlags = false
	f.StringVar(&a.configPath, "config", "coldtier.yaml", "configuration `FILE`")
	f.StringVar(&a.output, "output", formatText, "text or json")
	f.StringVar(&a.logFormat, "log-format", formatText, "text or json")
	root.AddCommand(a.commands()...)
	return root
}

// command makes a cobra command of a verb.
func (a *app) command(c *cobra.Command, do verb) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := a.start(); err != nil {
			return err
		}
		a.begun, a.verb, a.limits.args = true, verbOf(c), given(c)
		r, err := do(c.Context(), args)
		a.result = r
		return err
	}
	return c
}

// verbOf is a command's name without the program's, which alone has none.
func verbOf(c *cobra.Command) string {
	_, name, _ := strings.Cut(c.CommandPath(), " ")
	return name
}

// changes adds --dry-run to a command that changes something.
func (a *app) changes(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.dryRun, "dry-run", false, "say what would be done, change nothing")
	return c
}

// start checks the global flags and begins logging.
func (a *app) start() error {
	if a.output != formatText && a.output != formatJSON {
		return errors.New("--output: want text or json")
	}
	var h slog.Handler
	a.bars = &barGuard{a: a, w: a.stderr}
	switch a.logFormat {
	case formatText:
		h = slog.NewTextHandler(a.bars, &slog.HandlerOptions{Level: &a.logLevel})
	case formatJSON:
		h = slog.NewJSONHandler(a.bars, &slog.HandlerOptions{Level: &a.logLevel})
	default:
		return errors.New("--log-format: want text or json")
	}
	a.log = slog.New(placed{Handler: h, runs: &a.runs})
	return nil
}

// load reads the configuration. From here on its secrets are kept out of
// everything that goes to stderr.
func (a *app) load() (*config.Config, error) {
	c, err := config.Load(a.configPath, a.lookup)
	if err != nil {
		return nil, err
	}
	a.redactor = c.Redactor
	for _, name := range []string{"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		if s, ok := a.lookup.Env(name); ok {
			a.redactor.Add(s)
		}
	}
	if a.telemetry == nil {
		if a.telemetry, err = newTelemetry(c, a.now, a.log); err != nil {
			return nil, err
		}
		a.onPause = a.telemetry.paused
	}
	return c, nil
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
