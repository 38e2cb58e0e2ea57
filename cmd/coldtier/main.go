package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"
	_ "time/tzdata" // days are cut in a named zone, also where the image has no zone files

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
)

func main() {
	// What the driver writes to stderr by itself is also in the errors it returns.
	_ = mysql.SetLogger(&mysql.NopLogger{}) // fails for nil only
	ctx, stop := signals(context.Background(), os.Exit)
	a := &app{
		stdout: os.Stdout, stderr: os.Stderr, terminal: isTerminal(os.Stderr),
		now: time.Now, lookup: config.System(), log: slog.New(slog.DiscardHandler),
	}
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

	configPath, output, logFormat string
	dryRun                        bool

	log      *slog.Logger
	bars     *barGuard
	redactor *config.Redactor

	begun  bool // a verb was reached: errors are no longer of usage
	verb   string
	result result
}
