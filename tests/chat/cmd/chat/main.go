// Chat makes message tables and fills them with lifelike chat, invented or from a
// dump of real chat:
//
//	chat -dsn 'user:password@tcp(127.0.0.1:3306)/' -tables im_00.msg_content_00:daily,im_01.msg_content_00 \
//	    -from 2026-05-01 -days 3 -messages 100000
//	chat -dsn ... -tables bench.msg_content_00 -tsv chat.tsv.gz -rows 1000000
//
// A table followed by ":daily" is partitioned by day. Databases are made when they
// are missing; a table that exists is an error.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/tests/chat"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chat:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dsn := flag.String("dsn", "", "server, `user:password@tcp(host:port)/`")
	tables := flag.String("tables", "", "tables, `database.table[:daily],...`; each conversation goes into one of them")
	seed := flag.Uint64("seed", 1, "seed of the generator")
	messages := flag.Int("messages", 10_000, "how many messages to invent")
	from := flag.String("from", "2026-05-01", "first `day` (UTC)")
	days := flag.Int("days", 1, "number of days")
	conversations := flag.Int("conversations", 0, "number of conversations; 0 for a usual number")
	tsv := flag.String("tsv", "", "load this dump (`file`, perhaps .gz) of real chat instead")
	rows := flag.Int("rows", 0, "copy the dump on to so many `rows`; 0 for the dump as it is")
	flag.Parse()
	if *dsn == "" || *tables == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	var source chat.Source
	if *tsv != "" {
		s, err := chat.OpenTSV(*tsv, *rows)
		if err != nil {
			return err
		}
		source = s
	} else {
		day, err := snowflake.ParseDay(*from)
		if err != nil {
			return err
		}
		g, err := chat.New(chat.Config{Seed: *seed, From: day, Days: *days, Messages: *messages, Conversations: *conversations})
		if err != nil {
			return err
		}
		source = g
	}
	db, err := sql.Open("mysql", *dsn)
	if err != nil {
		return errors.New("the DSN cannot be read: want user:password@tcp(host:port)/") // the driver's words may hold the password
	}
	defer func() { _ = db.Close() }()
	var targets []chat.Target
	for name := range strings.SplitSeq(*tables, ",") {
		name, daily := strings.CutSuffix(name, ":daily")
		database, _, ok := strings.Cut(name, ".")
		if !ok {
			return fmt.Errorf("table %q: want database.table", name)
		}
		if _, err := db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS `"+database+"` DEFAULT CHARACTER SET utf8mb4"); err != nil {
			return err
		}
		var partitions []snowflake.Day
		if daily {
			partitions = source.Days()
		}
		if err := chat.Create(ctx, db, name, partitions); err != nil {
			return err
		}
		targets = append(targets, chat.Target{DB: db, Table: name})
	}
	begin := time.Now()
	stats, err := chat.Load(ctx, source, targets...)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	fmt.Printf("%d messages, %.1f MB of bodies, in %.1f s (%.0f rows/s)\n", stats.Messages, float64(stats.BodyBytes)/1e6,
		took.Seconds(), float64(stats.Messages)/took.Seconds())
	return nil
}
