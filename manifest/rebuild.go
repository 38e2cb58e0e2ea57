package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// Errors of a rebuild.
var (
	// ErrHalfRebuilt says that a rebuild of the manifest was begun and has not ended.
	ErrHalfRebuilt = errors.New("the manifest is half rebuilt: run the same `coldtier rebuild manifest` again, which goes on where it stopped")
	// ErrNotEmpty says that a manifest is not one to build anew.
	ErrNotEmpty = errors.New("the manifest is not empty")
)

// Rebuild makes the manifest of a source anew out of what the bucket has. From its begin
// to its end Check and Claim refuse the manifest. It may stop anywhere and be begun
// again; several processes may be at it at once. It is safe for concurrent use.
type Rebuild struct {
	s       *Store
	src     uint32
	id      string
	base    uint64 // lease tokens of former lives of the manifest are below it
	Resumed bool   // one that was not ended goes on
}

// RebuiltCopy is a generation as the bucket has it.
type RebuiltCopy struct {
	*Copy
	RecordKey string
	RecordSum [32]byte
	Progress  Progress // of its purge
}

// RebuiltSlice is what the bucket knows of a slice: its generations, ascending, at least one.
type RebuiltSlice struct {
	Copies []RebuiltCopy
}

// BeginRebuild begins a rebuild, or goes on with one that was not ended. The manifest must
// have its tables and be empty of the source's slices, holds and statuses: else
// ErrNotEmpty, unless replace is set. Then what the bucket lacks is kept. identity, when
// not "", becomes the manifest's. While a worker holds a lease it is ErrLeased.
func (s *Store) BeginRebuild(ctx context.Context, identity string, replace bool) (*Rebuild, error) {
	fail := func(err error) (*Rebuild, error) { return nil, fmt.Errorf("begin to rebuild the manifest: %w", err) }
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return fail(err)
	}
	r := &Rebuild{s: s, src: src}
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		var was string
		if err := tx.QueryRowContext(ctx, "SELECT identity, rebuilding, CAST(UNIX_TIMESTAMP(UTC_TIMESTAMP(6)) * 1000000 AS UNSIGNED) FROM sources WHERE id = ? FOR UPDATE", src).Scan(&was, &r.id, &r.base); err != nil {
			return err
		}
		if r.Resumed = r.id != ""; r.Resumed {
			return nil
		}
		filled, err := s.filled(ctx, tx, src)
		if err != nil {
			return err
		}
		switch {
		case filled != "" && !replace:
			return fmt.Errorf("%w: source %s has %s: name an empty database, or rebuild what is damaged with --replace", ErrNotEmpty, s.source, filled)
		case filled != "" && identity != "" && identity != was:
			return fmt.Errorf("%w: source %s has %s, and its identity is %s, not %s", ErrNotEmpty, s.source, filled, was, identity)
		case identity == "":
			identity = was
		}
		r.id = newIdentity()
		_, err = tx.ExecContext(ctx, "UPDATE sources SET rebuilding = ?, identity = ? WHERE id = ?", r.id, identity, src)
		return err
	})
	if err != nil {
		return fail(err)
	}
	if !r.Resumed {
		if err := r.newNumbers(ctx); err != nil {
			return fail(err)
		}
	}
	// From here on nobody claims a slice.
	var leased int
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM slices WHERE source_id = ? AND lease_until > UTC_TIMESTAMP(6) LOCK IN SHARE MODE", src).Scan(&leased); err != nil {
		return fail(err)
	}
	if leased == 0 {
		return r, nil
	}
	err = fmt.Errorf("%w: workers hold %d slices: stop them, or wait until their leases run out", ErrLeased, leased)
	if !r.Resumed {
		if _, e := s.db.ExecContext(ctx, "UPDATE sources SET rebuilding = '' WHERE id = ? AND rebuilding = ?", src, r.id); e != nil {
			err = errors.Join(err, e)
		}
	}
	return fail(err)
}

// newNumbers makes the slices that are to come have numbers that none had in a former
// life of the manifest, as their lease tokens: who has kept one, of a database that was
// emptied under him, finds no slice by it instead of another.
func (r *Rebuild) newNumbers(ctx context.Context) error {
	undo := errors.New("the number is used up also by a row that is taken back")
	err := r.s.inTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO slices (id, source_id, day, db_name, table_name, lo, hi, state) SELECT GREATEST(?, COALESCE(MAX(id), 0) + 1), ?, '1000-01-01', '', '', 0, 0, 'pending' FROM slices", r.base, r.src); err != nil {
			return err
		}
		return undo
	})
	if !errors.Is(err, undo) {
		return fmt.Errorf("begin new numbers of slices: %w", err)
	}
	return nil
}

// filled says what a source has, or nothing.
func (s *Store) filled(ctx context.Context, tx *sql.Tx, src uint32) (what string, err error) {
	for _, t := range []string{"slices", "holds", "statuses"} {
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM "+t+" WHERE source_id = ? LIMIT 1) x", src).Scan(&n); err != nil {
			return "", err
		}
		if n > 0 {
			return t, nil
		}
	}
	return "", nil
}

// Foreign says whether the database has tables and none of them is the manifest's.
func (s *Store) Foreign(ctx context.Context) (bool, error) {
	var tables, ours int
	err := s.db.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(table_name = ?), 0) FROM information_schema.tables WHERE table_schema = DATABASE()", versionTable).Scan(&tables, &ours)
	if err != nil {
		return false, fmt.Errorf("look at the tables of the manifest's database: %w", err)
	}
	return tables > 0 && ours == 0, nil
}

// notRebuilding refuses a manifest that is half rebuilt.
func (s *Store) notRebuilding(ctx context.Context, q reader) error {
	var id string
	err := q.QueryRowContext(ctx, "SELECT rebuilding FROM sources WHERE name = ?", s.source).Scan(&id)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("look whether the manifest is being rebuilt: %w", err)
	case id != "":
		return ErrHalfRebuilt
	}
	return nil
}

// running refuses when this rebuild was ended by another process.
func (r *Rebuild) running(ctx context.Context, tx *sql.Tx) error {
	var id string
	if err := tx.QueryRowContext(ctx, "SELECT rebuilding FROM sources WHERE id = ? LOCK IN SHARE MODE", r.src).Scan(&id); err != nil {
		return err
	}
	if id != r.id {
		return fmt.Errorf("%w: the rebuild was ended by another process", ErrState)
	}
	return nil
}

// Done gives the shards whose slices of a day this rebuild has made already.
func (r *Rebuild) Done(ctx context.Context, day snowflake.Day) (map[Shard]bool, error) {
	rows, err := r.s.db.QueryContext(ctx, "SELECT db_name, table_name FROM slices WHERE source_id = ? AND day = ? AND rebuild = ?", r.src, day, r.id)
	if err != nil {
		return nil, fmt.Errorf("list the rebuilt slices of %s: %w", day, err)
	}
	defer func() { _ = rows.Close() }()
	done := map[Shard]bool{}
	for rows.Next() {
		var sh Shard
		if err := rows.Scan(&sh.Database, &sh.Table); err != nil {
			return nil, fmt.Errorf("list the rebuilt slices of %s: %w", day, err)
		}
		done[sh] = true
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the rebuilt slices of %s: %w", day, err)
	}
	return done, nil
}

// Slice makes a slice what the bucket says, in one transaction. kept says why a slice that
// the manifest has was left as it is: it knows something that the bucket does not.
//
// The newest generation decides where the slice stands. Its purge ended: purged. It was
// begun: verified, with the lag anew and the chunks as the marks know them. Else
// committed, and the next run verifies it; until then the newest generation before it
// that was verified for certain serves reads.
func (r *Rebuild) Slice(ctx context.Context, sl RebuiltSlice) (kept string, err error) {
	if len(sl.Copies) == 0 {
		return "", errors.New("rebuild a slice: it has no generation")
	}
	k := sl.Copies[0].SliceKey
	fail := func(err error) (string, error) { return "", fmt.Errorf("rebuild slice %s: %w", k, err) }
	if err := r.s.checkKey(Slice{SliceKey: k, Lo: sl.Copies[0].Lo, Hi: sl.Copies[0].Hi}); err != nil {
		return fail(err)
	}
	for i, c := range sl.Copies {
		if c.SliceKey != k || c.Lo != sl.Copies[0].Lo || c.Hi != sl.Copies[0].Hi || i > 0 && c.Generation <= sl.Copies[i-1].Generation {
			return fail(fmt.Errorf("%w: generation %d is of slice %s [%d, %d)", ErrCorrupt, c.Generation, c.SliceKey, c.Lo, c.Hi))
		}
		if err := c.check(); err != nil {
			return fail(err)
		}
		if err := r.s.addSchema(ctx, c.Schema); err != nil {
			return fail(err)
		}
	}
	packet, err := r.s.maxPacket(ctx)
	if err != nil {
		return fail(err)
	}
	err = r.s.inTx(ctx, func(tx *sql.Tx) error {
		kept = ""
		if err := r.running(ctx, tx); err != nil {
			return err
		}
		old, err := r.old(ctx, tx, k)
		if err != nil || old.rebuild == r.id {
			return err
		}
		if kept = old.keep(sl); kept != "" {
			return nil
		}
		return r.write(ctx, tx, &sl, old, min(statementBytes, packet/2))
	})
	if err != nil {
		return fail(err)
	}
	return kept, nil
}

// oldSlice is what the manifest has of a slice that is to be rebuilt; the zero id: nothing.
type oldSlice struct {
	id, leaseToken uint64
	rebuild        string
	staging        string
	begun          bool
	touched        bool // a purge was at the live generation, as far as its chunks tell
	live           uint32
	state          State
	purgedAt       *time.Time
	generations    map[uint32]string // attempts
}

func (r *Rebuild) old(ctx context.Context, tx *sql.Tx, k SliceKey) (o oldSlice, err error) {
	err = tx.QueryRowContext(ctx, "SELECT id, lease_token, rebuild, staging, purge_begun, live_generation, state, purged_at FROM slices WHERE source_id = ? AND day = ? AND db_name = ? AND table_name = ? FOR UPDATE",
		r.src, k.Day, k.Shard.Database, k.Shard.Table).Scan(&o.id, &o.leaseToken, &o.rebuild, &o.staging, &o.begun, &o.live, &o.state, &o.purgedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return oldSlice{}, nil
	}
	if err != nil || o.rebuild == r.id {
		return o, err
	}
	// purge_begun alone may stand for rows that were carried. Without chunks nothing is known.
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) = 0 OR SUM(c.state <> 'present') > 0 FROM slices s JOIN chunks c ON c.slice_id = s.id AND c.token = s.live_token WHERE s.id = ?", o.id).Scan(&o.touched); err != nil {
		return o, err
	}
	o.touched = o.begun && (o.touched || o.state == Purging || o.state == Purged)
	rows, err := tx.QueryContext(ctx, "SELECT generation, attempt FROM copies WHERE slice_id = ?", o.id)
	if err != nil {
		return o, err
	}
	defer func() { _ = rows.Close() }()
	o.generations = map[uint32]string{}
	for rows.Next() {
		var g uint32
		var attempt string
		if err := rows.Scan(&g, &attempt); err != nil {
			return o, err
		}
		o.generations[g] = attempt
	}
	return o, rows.Err()
}

// keep says why a slice must stay as the manifest has it.
func (o *oldSlice) keep(sl RebuiltSlice) string {
	if o.staging != "" {
		return fmt.Sprintf("a purge by partition is in the middle of it (staging table %s): let `coldtier purge` end it first", o.staging)
	}
	have := map[uint32]string{}
	for _, c := range sl.Copies {
		have[c.Generation] = c.Attempt
	}
	for g, attempt := range o.generations {
		switch there, ok := have[g]; {
		case !ok:
			return fmt.Sprintf("the manifest has generation %d, whose commit record is not in the bucket or cannot be read", g)
		case there != attempt:
			return fmt.Sprintf("generation %d is attempt %s in the manifest and %s in the bucket", g, attempt, there)
		}
	}
	return ""
}

func (r *Rebuild) write(ctx context.Context, tx *sql.Tx, sl *RebuiltSlice, old oldSlice, limit int) error {
	id := old.id
	newest := &sl.Copies[len(sl.Copies)-1]
	k := newest.SliceKey
	if id == 0 {
		res, err := tx.ExecContext(ctx, "INSERT INTO slices (source_id, day, db_name, table_name, lo, hi, state) VALUES (?, ?, ?, ?, ?, ?, 'pending')",
			r.src, k.Day, k.Shard.Database, k.Shard.Table, newest.Lo, newest.Hi)
		if err != nil {
			return err
		}
		n, err := res.LastInsertId()
		if err != nil {
			return err
		}
		id = uint64(n) //nolint:gosec // counts from 1
	}
	base := max(r.base, old.leaseToken+1)
	marks := make([]int, len(sl.Copies)) // that are in the bucket
	for i := range sl.Copies {
		c := &sl.Copies[i]
		marks[i] = c.Progress.bits()
		// A purge from before there were marks is known to the manifest alone, until the
		// next run mirrors it.
		if c.Generation == old.live && old.touched && !c.Progress.Begun {
			c.Progress = Progress{Begun: true, Purged: old.state == Purged, At: c.CopiedAt}
			if old.purgedAt != nil {
				c.Progress.At = *old.purgedAt
			}
		}
	}
	st := rebuiltState(sl, old)
	for i := range sl.Copies {
		c := &sl.Copies[i]
		for j := range c.Chunks {
			c.Chunks[j].State = c.Progress.State(c.Chunks[j].Seq)
		}
		for _, earlier := range sl.Copies[:i] {
			c.Doubt(earlier.Copy, earlier.Progress)
		}
	}
	if old.id != 0 {
		for _, t := range []string{"copies", "chunks", "objects", "segments"} {
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+t+" WHERE slice_id = ?", id); err != nil {
				return err
			}
		}
	}
	for i := range sl.Copies {
		c := &sl.Copies[i]
		token := base + uint64(i)
		w := &copyWriter{id: id, token: token, src: r.src, limit: limit}
		if err := w.write(ctx, tx, c.Copy); err != nil {
			return err
		}
		if err := w.foldStatuses(ctx, tx, c.Copy); err != nil {
			return err
		}
		var verified, superseded *time.Time
		if st.live >= c.Generation {
			verified = &c.CopiedAt // a time not known any more, nor asked for
		}
		if st.live > c.Generation {
			superseded = &c.CopiedAt
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO copies (slice_id, generation, token, attempt, schema_hash, show_create, copied_at, row_count, bytes, record_key, record_sum, committed_at, verified_at, superseded_at, marks) "+
			"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", id, c.Generation, token, c.Attempt, c.Schema.Hash(), c.ShowCreate, c.CopiedAt.UTC(), c.Fingerprint().Rows, c.Bytes(),
			[]byte(c.RecordKey), c.RecordSum[:], c.CopiedAt.UTC(), verified, superseded, marks[i]); err != nil {
			return err
		}
	}
	last := base + uint64(len(sl.Copies)) - 1
	liveToken := uint64(0)
	for i := range sl.Copies {
		if sl.Copies[i].Generation == st.live {
			liveToken = base + uint64(i)
		}
	}
	set := "verified_at = NULL, purged_at = NULL"
	var args []any
	switch st.state {
	case Purged:
		set, args = "verified_at = UTC_TIMESTAMP(6), purged_at = ?", []any{newest.Progress.At.UTC()}
	case Verified: // the lag begins anew
		set = "verified_at = UTC_TIMESTAMP(6), purged_at = NULL"
	}
	_, err := tx.ExecContext(ctx, "UPDATE slices SET state = ?, reason = '', lo = ?, hi = ?, generation = ?, copy_token = ?, live_generation = ?, live_token = ?, row_count = ?, bytes = ?, purge_begun = ?, "+
		"failed = 0, error = NULL, tries = 0, staging = '', lease_token = ?, lease_until = NULL, lease_owner = '', rebuild = ?, "+set+" WHERE id = ?",
		append(append([]any{string(st.state), newest.Lo, newest.Hi, newest.Generation, last, st.live, liveToken, newest.Fingerprint().Rows, newest.Bytes(), st.begun, last, r.id}, args...), id)...)
	return err
}

type rebuilt struct {
	state State
	live  uint32
	begun bool
}

// rebuiltState decides where a slice stands.
func rebuiltState(sl *RebuiltSlice, old oldSlice) (st rebuilt) {
	newest := &sl.Copies[len(sl.Copies)-1]
	st.begun, st.live = old.begun, old.live
	for i := range sl.Copies {
		c := &sl.Copies[i]
		carries := c.carries()
		st.begun = st.begun || c.Progress.Begun || carries
		switch {
		case c.Progress.Begun: // nothing is purged but what was verified
			st.live = max(st.live, c.Generation)
		case carries && i > 0: // its rows came from a verified one; the nearest has them
			st.live = max(st.live, sl.Copies[i-1].Generation)
		case carries: // no other has them
			st.live = max(st.live, c.Generation)
		}
	}
	switch {
	case newest.Progress.Purged:
		st.state = Purged
	case newest.Progress.Begun:
		st.state = Verified
	default:
		st.state = Committed
	}
	return st
}

// Left lists slices with copies that the bucket has no commit record of, which stay as
// they were, at most limit.
func (r *Rebuild) Left(ctx context.Context, limit int) ([]Slice, error) {
	return r.s.listSlices(ctx, "s.source_id = ? AND s.rebuild <> ? AND s.generation > 0 ORDER BY s.day, s.db_name, s.table_name LIMIT ?", []any{r.src, r.id, limit}, "")
}

// End ends the rebuild: the manifest may be used. Ended already is no error.
func (r *Rebuild) End(ctx context.Context) error {
	err := r.s.inTx(ctx, func(tx *sql.Tx) error {
		if err := r.s.bump(ctx, tx, liveVersion, statusVersion, moveVersion); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE sources SET rebuilding = '' WHERE id = ? AND rebuilding = ?", r.src, r.id)
		return err
	})
	if err != nil {
		return fmt.Errorf("end the rebuild of the manifest: %w", err)
	}
	return nil
}
