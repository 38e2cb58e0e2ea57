package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/restore"
)

func (a *app) fetchCommand() *cobra.Command {
	var conversation, before, after, around, from, tenant string
	var oldest bool
	var limit int
	var s remote
	c := &cobra.Command{
		Use:   "fetch --conversation ID",
		Short: "Print one page of a conversation's cold history",
		Long: `Print one page of a conversation's cold history: the newest, or the one before or
after a cursor (both exclusive), or around a message. A page may be short but has
no gap; what could not be read is named, and the exit code is 3.

With --server a running "coldtier serve" is asked, and no configuration is read.

In JSON every value is a string, numbers too, and NULL is null. A value that is not
UTF-8 is in base64, and its column is then listed in the message's "base64". A
column that a recalled or deleted message's status keeps back is in its "withheld".`,
		Example: `  coldtier fetch --conversation 9007199254740993 --limit 20
  coldtier fetch --conversation 9007199254740993 --before 4711
  coldtier fetch --conversation 9007199254740993 --around 837851385029464064 --from s3
  coldtier fetch --conversation 9007199254740993 --oldest --server https://history:8080 --token-file token`,
		Args: noArgs,
	}
	c = a.command(c, func(ctx context.Context, _ []string) (result, error) {
		q := restore.Query{Conversation: []byte(conversation), Limit: limit, From: restore.Store(from), Oldest: oldest, Tenant: tenant}
		for _, f := range []struct {
			name, text string
			into       **uint64
		}{{"before", before, &q.Before}, {"after", after, &q.After}, {"around", around, &q.Around}} {
			if f.text == "" {
				continue
			}
			n, err := strconv.ParseUint(f.text, 10, 64)
			if err != nil {
				return nil, usage("--%s %q: want a number of 0..18446744073709551615", f.name, f.text)
			}
			*f.into = &n
		}
		switch {
		case limit < 1 && c.Flags().Changed("limit"), limit > maxLimit:
			return nil, usage("--limit %d: want 1 to %d", limit, maxLimit)
		case q.From != restore.FromAny && q.From != restore.FromBucket && q.From != restore.FromClickHouse:
			return nil, usage("--from %q: want auto, s3 or clickhouse", from)
		}
		if err := s.check(c.Flags().Changed); err != nil {
			return nil, err
		}
		if s.url != "" {
			return a.fetchRemote(ctx, s, q)
		}
		if tenant != "" {
			q.Only = &tenant
		}
		return a.fetch(ctx, q)
	})
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&conversation, "conversation", "", "`ID` of the conversation; required")
	f.StringVar(&before, "before", "", "the page before a `CURSOR`, newest first")
	f.StringVar(&after, "after", "", "the page after a `CURSOR`, oldest first")
	f.StringVar(&around, "around", "", "the page around a `MESSAGE_ID`, oldest first")
	f.BoolVar(&oldest, "oldest", false, "the oldest page, oldest first")
	f.IntVar(&limit, "limit", 0, fmt.Sprintf("at most `N` messages, and at most fetch.max_limit (default %d, oldest first %d)", restore.DefaultBefore, restore.DefaultAfter))
	f.StringVar(&tenant, "tenant", "", "give it only if it is this `TENANT`'s; with --server: whom it is for")
	f.StringVar(&from, "from", string(restore.FromAny), "auto, s3 or clickhouse")
	s.flags(c)
	_ = c.MarkFlagRequired("conversation") // it exists
	c.MarkFlagsMutuallyExclusive("before", "after", "around", "oldest")
	c.MarkFlagsMutuallyExclusive("from", "server")
	return c
}

// maxLimit is more than any server gives, and fits into its request.
const maxLimit = 1_000_000

// localBudget is what a page may take that the command reads itself: it has no
// connections yet, and nobody who scrolls waits for it.
const (
	localBudget = 30 * time.Second
	localHedge  = 3 * time.Second // until the bucket is asked, too: the first answer comes with a connection
)

func (a *app) fetch(ctx context.Context, q restore.Query) (_ result, err error) {
	p, err := a.open(ctx, need{bucket: q.From == restore.FromBucket, rows: q.From == restore.FromClickHouse})
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, p) }()
	if q.From != restore.FromClickHouse && p.bucket == nil {
		if err := a.openBucket(ctx, p); err != nil {
			return nil, setup(err)
		}
	}
	if q.From == restore.FromAny { // a page need not wait for ClickHouse to be well
		p.late = newLateRows(ctx, a, p)
		p.closers = append(p.closers, p.late)
	}
	f, err := a.history(ctx, p, localBudget, localHedge, false, nil)
	if err != nil {
		return nil, err
	}
	page, err := f.Fetch(ctx, q)
	if err != nil {
		return nil, err
	}
	return pageIs(localPage(q, page))
}

// pageIs gives a page, and that it is not all when it isn't.
func pageIs(r *pageResult) (result, error) {
	if r.State != restore.Complete {
		return r, mark(fmt.Errorf("the page is %s: %s could not be read", r.State, count(len(r.Missing), "part")), errPartial)
	}
	return r, nil
}
