package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/manifest"
)

// Warm looks at the warm servers, their replicas, accounts and tables, and gives the tables.
func (p *Preflight) Warm(ctx context.Context, w *warm.Warm) []*warm.Table {
	tables, found := w.Check(ctx)
	bad := map[string]bool{}
	for _, f := range found {
		if f.Refused && !p.needsWarm() {
			p.Addf("warm", WarmNotNeeded, f.Subject, "the account sees nothing of database %s, where %s needs nothing", f.Subject, p.For)
			continue
		}
		p.Add("warm", Code(f.Code), f.Subject, f.What, f.Remedy)
		bad[f.Subject] = bad[f.Subject] || f.Code == warm.CodeUnreadable
	}
	for _, t := range tables {
		if s := t.Shard().String(); !bad[s] {
			p.Addf("warm", TableReady, s, "table %s: %d columns, which can be carried exactly", s, t.Schema().Len())
		}
		if !p.cfg.Fetch.Warm || !p.does(Fetch) {
			continue
		}
		if index, err := t.PageIndex(); err != nil {
			p.Addf("warm", TableNoPages, t.Shard().String(), "fetch.warm: %s", oneLine(err))
		} else {
			p.Addf("warm", TablePages, t.Shard().String(), "table %s: pages walk the index %s", t.Shard(), index)
		}
	}
	unreachable := map[string]bool{}
	for _, f := range found {
		unreachable[f.Subject] = unreachable[f.Subject] || f.Code == warm.CodeUnreachable
	}
	partitions := false
	if p.does(Purge) {
		partitions = p.strategies(ctx, tables)
	}
	servers := map[string][]warm.Place{}
	for _, x := range w.Places() {
		if !unreachable[x.Addr()+"/"+x.Database()] {
			servers[x.Addr()] = append(servers[x.Addr()], x)
		}
	}
	addrs := slices.Sorted(maps.Keys(servers))
	each(len(addrs), func(i int) {
		p.server(ctx, servers[addrs[i]], tables, rules{partitions, p.cfg.Purge.Strategy == "rows", p.cfg.Fetch.Warm})
	})
	p.sample(ctx, w, tables)
	p.Spills(ctx, tables)
	return tables
}

// needsWarm says whether a role is judged that cannot do without warm.
func (p *Preflight) needsWarm() bool {
	return slices.ContainsFunc(p.roles, func(r Role) bool { return len(r.onWarm(rules{fetchWarm: p.cfg.Fetch.Warm}).need) > 0 })
}

// strategies tells how each table will be purged, and whether one goes by partitions.
func (p *Preflight) strategies(ctx context.Context, tables []*warm.Table) bool {
	partitioned := make([]bool, len(tables))
	each(len(tables), func(i int) {
		shard := tables[i].Shard().String()
		p.probe(ctx, "warm", shard, "its partitions", func(ctx context.Context) error {
			x, err := tables[i].Purging(ctx)
			if err != nil {
				return err
			}
			switch {
			case p.cfg.Purge.Strategy == "rows":
				p.Addf("warm", TableRows, shard, "table %s is purged by rows: purge.strategy says so", shard)
			case x.Exchange:
				partitioned[i] = true
				p.Addf("warm", TablePartition, shard, "table %s is purged by exchanging partitions: %s", shard, x.Why)
			case p.cfg.Purge.Strategy == "partition":
				p.Addf("warm", TableNoPurge, shard, "table %s: purge.strategy is partition, but %s", shard, x.Why)
			default:
				p.Addf("warm", TableRows, shard, "table %s is purged by rows: %s", shard, x.Why)
			}
			return nil
		})
	})
	return slices.Contains(partitioned, true)
}

// server looks at one server with its databases.
func (p *Preflight) server(ctx context.Context, places []warm.Place, tables []*warm.Table, x rules) {
	first := places[0]
	subject := "server " + first.Addr()
	p.probe(ctx, "warm", subject, "its clock", func(ctx context.Context) error {
		begun := p.now()
		t, err := first.Now(ctx)
		if err == nil {
			p.clock("warm", "warm server "+first.Addr(), t, begun, p.now())
		}
		return err
	})
	var server warm.Server
	p.probe(ctx, "warm", subject, "its settings", func(ctx context.Context) (err error) {
		if server, err = first.Server(ctx); err != nil {
			return err
		}
		p.judgeServer(subject, server)
		return nil
	})
	p.accounts(ctx, places, server, tables, x)
}

// judgeServer judges a warm server's settings.
func (p *Preflight) judgeServer(subject string, server warm.Server) {
	p.judgePacket("warm", subject, server)
	if p.does(Purge) && (server.On("read_only") || server.On("super_read_only")) {
		p.Addf("warm", WarmReadOnly, subject, "is read_only, so that nothing can be purged")
	}
	if server.On("log_bin") && server.Var("binlog_format") == "STATEMENT" {
		p.Addf("warm", WarmStatement, subject, "binlog_format is STATEMENT")
	}
	if v := server.Var("innodb_file_per_table"); v != "" && !server.On("innodb_file_per_table") {
		p.Addf("warm", WarmOneTablespace, subject, "innodb_file_per_table is off")
	}
}

// accounts judges the accounts of a server, then its replicas, as far as they may see them.
func (p *Preflight) accounts(ctx context.Context, places []warm.Place, server warm.Server, tables []*warm.Table, x rules) {
	subject := "server " + places[0].Addr()
	// One account may be configured for several databases of the server, and several for one.
	accounts := map[string]*account{}
	var first *warm.Rights
	for i, place := range places {
		p.probe(ctx, "warm", subject, "the rights on database "+place.Database(), func(ctx context.Context) error {
			r, err := place.Rights(ctx)
			if err != nil {
				return err
			}
			if i == 0 {
				first = r
			}
			a := accounts[r.Account]
			if a == nil {
				a = &account{where: place.Addr(), rights: r}
				accounts[r.Account] = a
			}
			for _, t := range tables {
				if t.Shard().Database == place.Database() {
					a.tables = append(a.tables, placeOf(t.Shard()))
				}
			}
			return nil
		})
	}
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		p.judgeWarm(*accounts[name], x)
	}
	if first != nil && server.Version != "" {
		p.replicas(ctx, places, server, first)
	}
}

func placeOf(s manifest.Shard) place { return place{s.Database, s.Table} }

// replicas compares what is listed with what is there.
func (p *Preflight) replicas(ctx context.Context, places []warm.Place, server warm.Server, rights *warm.Rights) {
	subject := "server " + places[0].Addr()
	p.probe(ctx, "warm", subject, "whether it is a replica", func(ctx context.Context) error {
		switch sources, err := places[0].Sources(ctx); {
		case warm.Denied(err): // it is a guess less
		case err != nil:
			return err
		case len(sources) > 0:
			p.Addf("warm", WarmIsReplica, subject, "replicates from %s:%s", sources[0].Host, sources[0].Port)
		}
		return nil
	})
	listed := make([][]warm.Replica, len(places))
	seen := map[string]bool{}
	for i, place := range places {
		within, cancel := context.WithTimeout(ctx, probeTime)
		listed[i] = place.Replicas(within)
		cancel()
		for _, r := range listed[i] {
			if !seen[r.Where] {
				seen[r.Where] = true
				p.replica(r, place.Addr(), server)
			}
		}
	}
	p.probe(ctx, "warm", subject, "its replicas", func(ctx context.Context) error {
		attached, err := places[0].Attached(ctx, rights)
		if errors.Is(err, warm.ErrUnseen) {
			p.Addf("warm", ReplicasUnseen, subject, "which replicas are attached cannot be seen by %s", rights.Account)
			return nil
		}
		if err != nil {
			return err
		}
		databases := make([]string, len(places))
		for i, place := range places {
			databases[i] = place.Database()
		}
		p.unlisted(subject, databases, listed, attached)
		return nil
	})
}

// replica judges one listed replica.
func (p *Preflight) replica(r warm.Replica, of string, server warm.Server) {
	subject := "replica " + r.Where
	if r.Err != nil {
		p.Addf("warm", ReplicaSilent, subject, "replica %s of %s does not tell how it is: %s", r.Where, of, oneLine(r.Err))
		return
	}
	p.clock("warm", subject, r.Now, r.Begun, r.Ended)
	if len(r.Sources) == 0 {
		p.Addf("warm", ReplicaNot, subject, "replica %s of %s is no replica", r.Where, of)
		return
	}
	if !slices.ContainsFunc(r.Sources, func(s warm.Source) bool { return s.IsOf(server) }) {
		s := r.Sources[0]
		p.Addf("warm", ReplicaOther, subject, "replica %s is listed for %s and replicates from %s:%s (server %s%s)", r.Where, of, s.Host, s.Port, s.ID, s.UUID)
	}
	if !r.Server.On("read_only") && !r.Server.On("super_read_only") {
		p.Addf("warm", ReplicaWritable, subject, "replica %s takes writes: read_only is off", r.Where)
	}
	switch limit := p.cfg.Purge.MaxReplicaLag; {
	case r.Stopped != nil:
		p.Addf("warm", ReplicaStopped, subject, "replica %s %s", r.Where, oneLine(r.Stopped))
	case limit > 0 && r.Lag > limit:
		p.Addf("warm", ReplicaLags, subject, "replica %s lags %s, and purge.max_replica_lag is %s", r.Where, r.Lag, limit)
	default:
		p.Addf("warm", ReplicaWell, subject, "replica %s of %s lags %s", r.Where, of, r.Lag)
	}
}

// unlisted names what is attached and not listed, with the databases for which it is not.
// Where the server tells hosts alone, only their number can be compared.
func (p *Preflight) unlisted(subject string, databases []string, listed [][]warm.Replica, attached []warm.Attached) {
	anonymous := 0
	for _, a := range attached {
		if a.ID == "" && a.UUID == "" {
			anonymous++
			continue
		}
		var missing []string
		for i, database := range databases {
			if !slices.ContainsFunc(listed[i], func(r warm.Replica) bool { return r.Err == nil && a.Is(r.Server) }) {
				missing = append(missing, database)
			}
		}
		if len(missing) > 0 {
			where := a.Where
			if where == "" {
				where = "a host that it does not tell"
			}
			p.Addf("warm", ReplicaUnlisted, subject, "replica number %s%s at %s is attached and not listed for %s", a.ID, uuid(a), where, shortList(missing, 4))
		}
	}
	for i, database := range databases {
		if n := len(listed[i]); anonymous > n {
			var hosts []string
			for _, a := range attached {
				hosts = append(hosts, a.Where)
			}
			p.Addf("warm", ReplicaUnlisted, subject, "%d replicas read its binary log (from %s), and %d are listed for %s", anonymous, shortList(hosts, 4), n, database)
			return
		}
	}
}

func uuid(a warm.Attached) string {
	if a.UUID == "" {
		return ""
	}
	return " (" + a.UUID + ")"
}

func shortList(all []string, most int) string {
	if more := len(all) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), more)
	}
	return strings.Join(all, ", ")
}

// sample looks for conversations and message IDs in more than one table.
func (p *Preflight) sample(ctx context.Context, w *warm.Warm, tables []*warm.Table) {
	if len(tables) < 2 {
		return
	}
	const subject = "sample of messages"
	s, err := w.Sample(ctx, tables, rand.Perm)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		lines := strings.Split(err.Error(), "\n")
		p.Addf("warm", ProbeFailed, subject, "in %d tables: %s", len(lines), lines[0])
	}
	names := func(in []manifest.Shard) string {
		var all []string
		for _, t := range in {
			all = append(all, t.String())
		}
		return shortList(all, 4)
	}
	for i, c := range slices.Sorted(maps.Keys(s.Shared)) {
		if i == 0 {
			p.Addf("warm", SampleSplit, subject, "%d of %d sampled conversations have rows in more than one table, such as %q in %s", len(s.Shared), s.Conversations, c, names(s.Shared[c]))
		}
	}
	for i, id := range slices.Sorted(maps.Keys(s.Twice)) {
		if i == 0 {
			p.Addf("warm", SampleTwice, subject, "%d of %d sampled message IDs are in more than one table, such as %d in %s", len(s.Twice), s.IDs, id, names(s.Twice[id]))
		}
	}
	if n := len(s.NoIndex); n > 0 {
		p.Addf("warm", SampleNoIndex, subject, "%d of %d tables have no index on the conversation and the cursor, such as %s: conversations were not looked for there", n, len(tables), s.NoIndex[0])
	}
	if len(s.Shared)+len(s.Twice) == 0 && err == nil {
		p.Addf("warm", SampleClean, subject, "%d conversations (in %d tables) and %d message IDs (in %d) lie in one table each", s.Conversations, s.Tables, s.IDs, len(tables))
	}
}
