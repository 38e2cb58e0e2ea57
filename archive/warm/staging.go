package warm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// maxName is the longest table name.
const maxName = 64

// staging is a staging table's quoted name, in the table's database.
func (t *Table) staging(name string) string { return quote(t.shard.Database) + "." + quote(name) }

func checkStaging(name string) error {
	if !strings.HasPrefix(name, StagingPrefix) || len(name) > maxName {
		return fmt.Errorf("staging table %s: want a name of at most %d characters that begins with %s", name, maxName, StagingPrefix)
	}
	return nil
}

func (t *Table) stagingError(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("table %s: staging table %s: %w", t.shard, name, err)
}

// Stagings lists the staging tables that are there, whoever made them.
func (w *Warm) Stagings(ctx context.Context) (all []manifest.Shard, err error) {
	for _, d := range w.databases {
		s, err := d.session(ctx)
		if err != nil {
			return nil, err
		}
		err = s.rows(ctx, "SELECT TABLE_NAME AS n FROM information_schema.TABLES WHERE TABLE_SCHEMA = "+literal(d.name)+" ORDER BY TABLE_NAME", func(v [][]byte) error {
			if name := string(v[0]); strings.HasPrefix(name, StagingPrefix) {
				all = append(all, manifest.Shard{Database: d.name, Table: name})
			}
			return nil
		})
		s.close(ctx)
		if err != nil {
			return nil, fmt.Errorf("database %s: list staging tables: %w", d.where, err)
		}
	}
	return all, nil
}

// StagingExists says whether a staging table is there.
func (t *Table) StagingExists(ctx context.Context, name string) (bool, error) {
	s, err := t.d.session(ctx)
	if err != nil {
		return false, err
	}
	defer s.close(ctx)
	ok, err := t.stagingExists(ctx, s, name)
	return ok, t.stagingError(name, err)
}

func (t *Table) stagingExists(ctx context.Context, s *session, name string) (bool, error) {
	var n int
	err := s.row(ctx, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = "+literal(t.shard.Database)+" AND TABLE_NAME = "+literal(name), &n)
	return n > 0, err
}

// CreateStaging makes an empty, unpartitioned table with the table's columns and
// keys. A crash in it leaves an empty table, which ReturnStaging removes.
func (t *Table) CreateStaging(ctx context.Context, name string) error {
	if err := checkStaging(name); err != nil {
		return err
	}
	s, err := t.d.ddl(ctx)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	if _, err := s.exec(ctx, "CREATE TABLE "+t.staging(name)+" LIKE "+t.name); err != nil {
		return t.stagingError(name, err)
	}
	_, err = s.exec(ctx, "ALTER TABLE "+t.staging(name)+" REMOVE PARTITIONING")
	if number(err) == 1505 { // the table was not partitioned
		err = nil
	}
	return t.stagingError(name, err)
}

// StagingFingerprint is the fingerprint of a staging table's rows [from, to).
func (t *Table) StagingFingerprint(ctx context.Context, name string, from, to uint64) (message.Fingerprint, error) {
	s, err := t.d.session(ctx)
	if err != nil {
		return message.Fingerprint{}, err
	}
	defer s.close(ctx)
	f, err := t.fingerprintRange(ctx, s, t.staging(name), t.def.Load(), from, to)
	return f, t.stagingError(name, err)
}

func (t *Table) empty(ctx context.Context, s *session, table string) (bool, error) {
	var one int
	err := s.row(ctx, "SELECT 1 FROM "+table+" LIMIT 1", &one)
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return false, err
}

// Exchange takes a partition's rows out of the table, into an empty staging table.
// ErrLocked and ErrIncompatible: it did not. Any other error: it may have.
//
// It needs no grant, since ReturnStaging undoes it; but the rows are out of their
// readers' sight until then.
func (t *Table) Exchange(ctx context.Context, p Partition, name string) error {
	if err := checkStaging(name); err != nil {
		return err
	}
	s, err := t.d.ddl(ctx)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	// Rows in it would get into the table.
	empty, err := t.empty(ctx, s, t.staging(name))
	if err == nil && !empty {
		err = errors.New("is not empty before the exchange")
	}
	if err == nil {
		err = t.swap(ctx, s, p, name)
	}
	return t.stagingError(name, err)
}

// dropStaging drops a staging table whose rows lie, all of them, in the grants'
// slices and are what those slices' copies hold. Nobody else can write to it between
// the comparison and the drop, since both happen under its lock.
func (t *Table) dropStaging(ctx context.Context, gs []grant, name string) error {
	if err := checkStaging(name); err != nil {
		return err
	}
	if len(gs) == 0 {
		return t.stagingError(name, errors.New("drop without a grant"))
	}
	s, err := t.d.ddl(ctx)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	if _, err := s.exec(ctx, "LOCK TABLES "+t.staging(name)+" WRITE"); err != nil {
		for _, g := range gs { // a table that is gone may be the work of who has the lease now
			if lost := g.Check(ctx); lost != nil {
				return t.stagingError(name, errors.Join(lost, err))
			}
		}
		return t.stagingError(name, err)
	}
	granted := uint64(0)
	for _, g := range gs {
		n, err := t.sameRows(ctx, s, name, g)
		if err != nil {
			return t.stagingError(name, err)
		}
		granted += n
	}
	var all uint64
	if err := s.row(ctx, "SELECT COUNT(*) FROM "+t.staging(name), &all); err != nil {
		return t.stagingError(name, err)
	}
	if all != granted {
		return t.stagingError(name, fmt.Errorf("%w: holds %d rows, the granted slices have %d", ErrDrift, all, granted))
	}
	for _, g := range gs {
		if err := g.Check(ctx); err != nil {
			return t.stagingError(name, err)
		}
	}
	return t.stagingError(name, t.drop(ctx, s, name))
}

// sameRows compares a staging table's rows of a granted slice with its copy, and
// counts them.
func (t *Table) sameRows(ctx context.Context, s *session, name string, g grant) (uint64, error) {
	slice, copied := g.Slice(), g.Copy()
	if slice.Shard != t.shard {
		return 0, fmt.Errorf("the grant is for slice %s", slice.SliceKey)
	}
	if err := t.sameColumns(ctx, s, name, copied); err != nil {
		return 0, err
	}
	found, err := t.fingerprintRange(ctx, s, t.staging(name), t.def.Load(), slice.Lo, slice.Hi)
	if err != nil {
		return 0, err
	}
	var want message.Fingerprint
	for _, c := range copied.Chunks {
		want = want.Add(c.Warm)
	}
	if found != want {
		return 0, fmt.Errorf("%w: slice %s: found %s, archived %s", ErrDrift, slice.SliceKey, found, want)
	}
	return found.Rows, nil
}

// dropTime is longer than other statements have: a big table's files are removed in it.
const dropTime = 5 * time.Minute

func (t *Table) drop(ctx context.Context, s *session, name string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	_, err := s.exec(ctx, "DROP TABLE "+t.staging(name))
	if err != nil && !answered(err) {
		return fmt.Errorf("drop: %w: %w", ErrUnclear, err)
	}
	return err
}

// ReturnStaging puts a staging table's rows back into the table and drops it when
// none is left. Rows that arrived in the table since the exchange stay there. It may be
// called again after any failure: each of its steps leaves every row in the
// table, in the staging table, or equal in both.
//
// A message that has come to be in both with different values is ErrConflict; both
// are kept, all others are returned.
func (t *Table) ReturnStaging(ctx context.Context, name string) error {
	if err := checkStaging(name); err != nil {
		return err
	}
	s, err := t.d.ddl(ctx)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	if ok, err := t.stagingExists(ctx, s, name); err != nil || !ok {
		return t.stagingError(name, err)
	}
	if err := t.align(ctx, s, name); err != nil {
		return t.stagingError(name, err)
	}
	// What was read of the table before may leave out a column, or ask for one that is gone. A
	// column that cannot be archived is no hindrance here.
	stale := t.Reload(ctx)
	err = t.swapBack(ctx, s, name)
	if err == nil {
		err = t.moveBack(ctx, s, name)
	}
	if err != nil {
		return t.stagingError(name, errors.Join(err, stale))
	}
	if _, err := s.exec(ctx, "LOCK TABLES "+t.staging(name)+" WRITE"); err != nil {
		return t.stagingError(name, err)
	}
	empty, err := t.empty(ctx, s, t.staging(name))
	if err == nil && !empty {
		err = errors.New("has rows whose message IDs are no snowflakes, or that arrived just now: it is kept")
	}
	if err == nil {
		err = t.drop(ctx, s, name)
	}
	return t.stagingError(name, err)
}

// swapBack exchanges the partition again when that leaves fewer rows to be moved
// one by one: the usual case of a partition that was emptied and is to be full again.
func (t *Table) swapBack(ctx context.Context, s *session, name string) error {
	def := t.def.Load()
	lo, ok, err := t.next(ctx, s, t.staging(name), def, 0, 0)
	if err != nil || !ok {
		return err
	}
	p, ok, err := t.partition(ctx, s, lo, lo+1)
	if err != nil || !ok {
		return err
	}
	var out, in uint64
	if out, err = t.count(ctx, s, t.staging(name), def, 0, math.MaxUint64); err != nil {
		return err
	}
	if in, err = t.count(ctx, s, t.name, def, p.Lo, p.Hi); err != nil {
		return err
	}
	if out <= in || out <= uint64(t.d.cfg.ChunkRows) { //nolint:gosec // positive
		return nil
	}
	err = t.swap(ctx, s, p, name)
	if errors.Is(err, ErrIncompatible) { // rows of other partitions in it, or a changed definition
		return nil
	}
	return err
}

// count is the number of rows, as far as it matters: of many only that they are many.
func (t *Table) count(ctx context.Context, s *session, table string, def *definition, from, to uint64) (n uint64, err error) {
	err = s.row(ctx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 FROM %s FORCE INDEX (%s) WHERE %s LIMIT %d) AS r", table, def.key, def.between(from, to), 4*t.d.cfg.ChunkRows), &n)
	return n, err
}
