package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"
	_ "time/tzdata" // days are cut in a named zone, also where the image has no zone files

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/cmd/coldtier/config"
)

func main() {
	// What the driver writes to stderr by itself is also in the errors it returns.
	_ = mysql.SetLogger(&mysql.NopLogger{}) // fails for nil only
	a := &app{
		stdout: os.Stdout, stderr: os.Stderr, terminal: isTerminal(os.Stderr),
		now: time.Now, lookup: config.System(), log: slog.New(slog.DiscardHandler),
	}
	ctx, stop := signals(context.Background(), a.limits.grace.get, os.Exit)
	a.unhook = stop
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// app is one run of the tool.
type app struct {
	stdout, stderr io.Writer
	terminal       bool // stderr is one
	now            func() time.Time
	lookup         config.Lookup
	unhook         func() // ends what a batch verb does with signals; nil: nothing does

	configPath, output, logFormat string
	dryRun                        bool
	limits                        limits

	onPause func(warm.Pause) // is told of each pause of a job; nil: nobody is. It must not block

	log      *slog.Logger
	logLevel slog.LevelVar
	bars     *barGuard
	runs     runs
	// telemetry is there from the first configuration that was read on.
	telemetry *telemetry
	redactor  *config.Redactor

	begun  bool // a verb was reached: errors are no longer of usage
	verb   string
	result result
}
