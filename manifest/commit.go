package manifest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
)

// check refuses a copy that contradicts itself.
func (c *Copy) check() error {
	if c.Schema == nil || c.Attempt == "" || len(c.Attempt) > 64 || c.Generation == 0 {
		return errors.New("a copy needs a schema, a generation from 1 and an attempt of 1 to 64 bytes")
	}
	at := c.Lo
	for i, ch := range c.Chunks {
		if ch.Seq != i || ch.From != at || ch.To <= ch.From {
			return fmt.Errorf("chunk %d [%d, %d) of number %d: want number %d and a range that begins at %d", i, ch.From, ch.To, ch.Seq, i, at)
		}
		at = ch.To
	}
	if at != c.Hi {
		return fmt.Errorf("the chunks end at message ID %d, the slice at %d", at, c.Hi)
	}
	var sum message.Fingerprint
	for i := range c.Objects {
		o := &c.Objects[i]
		if o.Key == "" || len(o.Key) > 1024 || o.Key[0] == '/' {
			return fmt.Errorf("object key %q: want 1 to 1024 bytes that do not begin with a slash", o.Key)
		}
		var rows int64
		for _, sp := range o.Segs {
			if len(sp.Conversation) > MaxConversation {
				return fmt.Errorf("object %s: conversation %.40q… of %d bytes: %w: at most %d bytes", o.Key, sp.Conversation, len(sp.Conversation), ErrConversation, MaxConversation)
			}
			if sp.Rows <= 0 || uint64(sp.Rows) != sp.Fingerprint.Rows || sp.MinCursor > sp.MaxCursor || sp.FirstRow < 0 ||
				sp.FirstGroup < 0 || sp.LastGroup < sp.FirstGroup || sp.LastGroup >= len(o.File.RowGroups) {
				return fmt.Errorf("object %s: the segment of conversation %q contradicts itself or its file: %+v", o.Key, sp.Conversation, sp)
			}
			rows += sp.Rows
			sum = sum.Add(sp.Fingerprint)
		}
		if rows != o.File.Rows || o.File.Size < 0 {
			return fmt.Errorf("object %s: %d rows in its segments, %d in its file of %d bytes", o.Key, rows, o.File.Rows, o.File.Size)
		}
	}
	if want := c.Fingerprint(); sum != want {
		return fmt.Errorf("the segments hold %s, the chunks %s", sum, want)
	}
	return c.checkStatuses()
}

// Commit makes a copy a generation of the lease's slice, in one transaction:
// either all of it is in the manifest and the slice is committed, or nothing. The
// slice must be in copying and the generation greater than all it has. recordKey
// and recordSum are the bucket's commit record, which must be in the bucket
// already.
//
// Called again for the same attempt it does nothing, so it may be repeated after
// an error that left the outcome open. Another attempt for a generation that
// exists is ErrState.
func (s *Store) Commit(ctx context.Context, l *Lease, c *Copy, recordKey string, recordSum [32]byte) error {
	return s.Adopt(ctx, l, c, recordKey, recordSum, Progress{})
}

// Adopt is Commit of a generation that the bucket has already. Where a purge of it was
// begun the manifest was set back to before that: nothing is purged but what was verified,
// so it is the live generation at once, with its chunks as the purge marks know them. Else,
// if it were found to differ, the next one would be made of warm and of the generation
// before it, and what only this one has would be in neither. So it is where it carries rows
// and nothing is live.
func (s *Store) Adopt(ctx context.Context, l *Lease, c *Copy, recordKey string, recordSum [32]byte, p Progress) error {
	fail := func(err error) error {
		return fmt.Errorf("commit slice %s generation %d attempt %s: %w", c.SliceKey, c.Generation, c.Attempt, err)
	}
	sl := l.Slice()
	if c.SliceKey != sl.SliceKey || c.Lo != sl.Lo || c.Hi != sl.Hi {
		return fail(fmt.Errorf("the lease is on slice %s [%d, %d)", sl.SliceKey, sl.Lo, sl.Hi))
	}
	if err := c.check(); err != nil {
		return fail(err)
	}
	done, err := s.committed(ctx, s.db, sl.ID, c)
	if err != nil {
		return fail(err)
	}
	if !done {
		if err := s.commit(ctx, l, c, recordKey, recordSum, p); err != nil {
			// An answer that was lost: look whether it is there. That it is
			// not proves nothing yet; the caller may call again.
			if done, _ := s.committed(ctx, s.db, sl.ID, c); !done {
				return fail(err)
			}
		}
	}
	l.update(func(s *Slice) {
		s.State, s.Generation, s.Rows, s.Bytes = Committed, c.Generation, c.Fingerprint().Rows, c.Bytes()
		if c.goesLive(p, s.Live) {
			s.Live = c.Generation
		}
	})
	return nil
}

// committed says whether the manifest has this attempt as this generation.
func (s *Store) committed(ctx context.Context, q reader, id uint64, c *Copy) (bool, error) {
	var attempt string
	err := q.QueryRowContext(ctx, "SELECT attempt FROM copies WHERE slice_id = ? AND generation = ?", id, c.Generation).Scan(&attempt)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	case attempt != c.Attempt:
		return false, fmt.Errorf("%w: attempt %s is this generation", ErrState, attempt)
	}
	return true, nil
}

func (s *Store) commit(ctx context.Context, l *Lease, c *Copy, recordKey string, recordSum [32]byte, p Progress) error {
	packet, err := s.maxPacket(ctx)
	if err != nil {
		return err
	}
	// A worker that may not is told before it sends everything.
	if err := l.write(ctx, s.db, renewed, []any{micros(s.ttl)}, "s.state = 'copying' AND s.generation < ?", c.Generation); err != nil {
		return err
	}
	// Outside of the transaction: a schema is only ever added.
	if err := s.addSchema(ctx, c.Schema); err != nil {
		return err
	}
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return err
	}
	id := l.id
	return s.inTx(ctx, func(tx *sql.Tx) error {
		// Rows that only this lease's token has first, so that the locks on
		// what others may wait for (the generation, the slice) are held
		// for two statements only.
		w := &copyWriter{id: id, token: l.token, src: src, limit: min(statementBytes, packet/2)}
		if err := w.write(ctx, tx, c.after(p)); err != nil {
			return err
		}
		if err := s.keepsDeleted(ctx, tx, id, c); err != nil {
			return err
		}
		if err := w.foldStatuses(ctx, tx, c); err != nil {
			return err
		}
		f := c.Fingerprint()
		if _, err := tx.ExecContext(ctx, "INSERT INTO copies (slice_id, generation, token, attempt, schema_hash, show_create, copied_at, row_count, bytes, record_key, record_sum, committed_at, marks) "+
			"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), ?)",
			id, c.Generation, l.token, c.Attempt, c.Schema.Hash(), c.ShowCreate, c.CopiedAt.UTC(), f.Rows, c.Bytes(), []byte(recordKey), recordSum[:], p.bits()); err != nil {
			return err
		}
		begun, err := purgeBegun(ctx, tx, id)
		if err != nil {
			return err
		}
		// Carried rows are gone from warm, even if no purge of ours took them.
		carries := c.carries()
		if err := l.write(ctx, tx, "s.state = 'committed', s.generation = ?, s.copy_token = ?, s.row_count = ?, s.bytes = ?, s.failed = 0, s.error = NULL, "+
			"s.purge_begun = s.purge_begun OR ?, "+renewed, []any{c.Generation, l.token, f.Rows, c.Bytes(), carries, micros(s.ttl)},
			"s.state = 'copying' AND s.generation < ?", c.Generation); err != nil {
			return err
		}
		var changed []string
		live := c.goesLive(p, l.Slice().Live)
		if live {
			if err := l.write(ctx, tx, "s.live_generation = ?, s.live_token = ?, s.purge_begun = 1", []any{c.Generation, l.token}, "s.generation = ?", c.Generation); err != nil {
				return err
			}
		}
		if live || carries && !begun {
			changed = append(changed, liveVersion)
		}
		if len(c.Statuses) > 0 {
			changed = append(changed, statusVersion)
		}
		return s.bump(ctx, tx, changed...)
	})
}

// goesLive says whether a copy is live from its commit on, since it alone may have rows
// that warm has not.
func (c *Copy) goesLive(p Progress, live uint32) bool { return p.Begun || live == 0 && c.carries() }

// after is the copy with its chunks as a purge of it has left them, and as Doubt has.
func (c *Copy) after(p Progress) *Copy {
	now := *c
	now.Chunks = slices.Clone(c.Chunks)
	for i := range now.Chunks {
		ch := &now.Chunks[i]
		if st := p.State(ch.Seq); st != ChunkPresent || ch.State != ChunkDeleting {
			ch.State = st
		}
	}
	return &now
}

// Doubt takes chunks for deleting whose rows a purge of an earlier generation took from warm
// since this copy was made: it says of them that warm has them. That can only be where the
// manifest was set back meanwhile. earlier is nil where that generation cannot be read.
func (c *Copy) Doubt(earlier *Copy, p Progress) {
	if !p.Begun || p.At.Before(c.CopiedAt) && p.Damaged == nil {
		return
	}
	for i := range c.Chunks {
		ch := &c.Chunks[i]
		taken := earlier == nil
		for j := 0; !taken && j < len(earlier.Chunks); j++ {
			e := &earlier.Chunks[j]
			taken = e.From < ch.To && ch.From < e.To && p.State(e.Seq) != ChunkPresent
		}
		if taken && ch.State != ChunkDeleted {
			ch.State = ChunkDeleting
		}
	}
}

func (s *Store) addSchema(ctx context.Context, m *message.Schema) error {
	definition, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = s.db.ExecContext(ctx, "INSERT IGNORE INTO table_schemas (hash, definition) VALUES (?, ?)", m.Hash(), string(definition))
	return err
}

// keepsDeleted refuses a generation that has fewer rows than the purge has deleted
// from warm on the word of the live one.
func (s *Store) keepsDeleted(ctx context.Context, tx *sql.Tx, id uint64, c *Copy) error {
	var deleted uint64
	err := tx.QueryRowContext(ctx, "SELECT CAST(COALESCE(SUM(c.warm_rows * (c.state = 'deleted') + c.carried_rows), 0) AS UNSIGNED) FROM slices s "+
		"JOIN chunks c ON c.slice_id = s.id AND c.token = s.live_token WHERE s.id = ? AND s.live_generation > 0", id).Scan(&deleted)
	if err != nil {
		return err
	}
	if rows := c.Fingerprint().Rows; rows < deleted {
		return fmt.Errorf("%w: it has %d rows, but %d are only in the live generation: the rows of deleted chunks must be carried on", ErrState, rows, deleted)
	}
	return nil
}

// copyWriter inserts the chunks, objects and segments of a copy.
type copyWriter struct {
	id, token uint64
	src       uint32
	limit     int
}

func (w *copyWriter) into(ctx context.Context, q reader, head string) *inserter {
	return &inserter{ctx: ctx, q: q, head: head + " VALUES ", limit: w.limit}
}

func (w *copyWriter) write(ctx context.Context, q reader, c *Copy) error {
	in := w.into(ctx, q, "INSERT INTO chunks (slice_id, token, seq, from_id, to_id, warm_hi, warm_lo, warm_rows, carried_hi, carried_lo, carried_rows, state)")
	for _, ch := range c.Chunks {
		for _, n := range []uint64{w.id, w.token, uint64(ch.Seq), ch.From, ch.To, ch.Warm.Hi, ch.Warm.Lo, ch.Warm.Rows, ch.Carried.Hi, ch.Carried.Lo, ch.Carried.Rows} { //nolint:gosec // numbers from 0
			in.num(n)
		}
		in.bytes([]byte(ch.State))
		if err := in.end(); err != nil {
			return fmt.Errorf("insert chunks: %w", err)
		}
	}
	if err := in.flush(); err != nil {
		return fmt.Errorf("insert chunks: %w", err)
	}
	if err := w.objects(ctx, q, c); err != nil {
		return fmt.Errorf("insert objects: %w", err)
	}
	if err := w.segments(ctx, q, c); err != nil {
		return fmt.Errorf("insert segments: %w", err)
	}
	return nil
}

func (w *copyWriter) objects(ctx context.Context, q reader, c *Copy) error {
	prefix := ObjectPrefix(c.SliceKey, c.Generation, c.Attempt)
	in := w.into(ctx, q, "INSERT INTO objects (slice_id, token, seq, name, file)")
	var buf []byte
	for i := range c.Objects {
		o := &c.Objects[i]
		in.num(w.id)
		in.num(w.token)
		in.num(uint64(i))
		in.bytes([]byte(shortKey(prefix, o.Key)))
		buf = appendFile(buf[:0], &o.File)
		in.bytes(buf)
		if err := in.end(); err != nil {
			return err
		}
	}
	return in.flush()
}

// shortKey leaves out of a key what longKey knows: the copy's prefix.
func shortKey(prefix, key string) string {
	if name, ok := strings.CutPrefix(key, prefix); ok && name != "" && name[0] != '/' {
		return name
	}
	return "/" + key
}

func longKey(prefix, name string) string {
	if key, ok := strings.CutPrefix(name, "/"); ok {
		return key
	}
	return prefix + name
}

func (w *copyWriter) segments(ctx context.Context, q reader, c *Copy) error {
	in := w.into(ctx, q, "INSERT INTO segments (slice_id, token, object_seq, seq, source_id, day, conversation, min_cursor, max_cursor, first_row, row_count, first_group, last_group, sum_hi, sum_lo)")
	day := []byte(c.Day.String())
	for i := range c.Objects {
		for j := range c.Objects[i].Segs {
			sp := &c.Objects[i].Segs[j]
			in.num(w.id)
			in.num(w.token)
			in.num(uint64(i))
			in.num(uint64(j))
			in.num(uint64(w.src))
			in.bytes(day)
			in.bytes(sp.Conversation)
			in.num(sp.MinCursor)
			in.num(sp.MaxCursor)
			in.num(uint64(sp.FirstRow))   //nolint:gosec // checked
			in.num(uint64(sp.Rows))       //nolint:gosec // checked
			in.num(uint64(sp.FirstGroup)) //nolint:gosec // checked
			in.num(uint64(sp.LastGroup))  //nolint:gosec // checked
			in.num(sp.Fingerprint.Hi)
			in.num(sp.Fingerprint.Lo)
			if err := in.end(); err != nil {
				return err
			}
		}
	}
	return in.flush()
}
