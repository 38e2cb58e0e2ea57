package warm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// grant is what deleting looks at in a *manifest.PurgeGrant.
type grant interface {
	Slice() manifest.Slice
	Copy() *manifest.Copy
	Check(ctx context.Context) error
}

// deleteTime bounds how long a chunk's rows may stay locked.
const deleteTime = 30 * time.Second

// begin starts a transaction in REPEATABLE READ, whatever the server's default is.
// Under READ COMMITTED a locking read locks no gaps, so that a row inserted between
// the fingerprint and the delete would be deleted without a copy.
func (s *session) begin(ctx context.Context) error {
	if _, err := s.exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
		return err
	}
	_, err := s.exec(ctx, "START TRANSACTION")
	return err
}

// rollback ends a transaction without effect. When it cannot be told to the server,
// closing the connection does it.
func (s *session) rollback(ctx context.Context) {
	if s.cut {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	if _, err := s.exec(ctx, "ROLLBACK"); err != nil {
		s.cut = true
	}
}

// commit commits. Once COMMIT is sent its outcome is known only from an OK: any
// error is ErrUnclear, also one that the server answers. An end of ctx does not
// interrupt it, since that would only make the outcome unclear.
func (s *session) commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		s.rollback(ctx)
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTime)
	defer cancel()
	if _, err := s.exec(ctx, "COMMIT"); err != nil {
		s.cut = true
		return fmt.Errorf("commit: %w: %w", ErrUnclear, err)
	}
	return nil
}

// deleteChunk deletes a chunk's rows in one transaction: lock and fingerprint,
// compare, delete, ask the grant once more, commit.
func (t *Table) deleteChunk(ctx context.Context, g grant, c manifest.Chunk) error {
	err := t.deleteChunkTx(ctx, g, c)
	if err != nil {
		return fmt.Errorf("table %s: delete of chunk %d, message IDs [%d, %d): %w", t.shard, c.Seq, c.From, c.To, err)
	}
	return nil
}

func (t *Table) deleteChunkTx(ctx context.Context, g grant, c manifest.Chunk) (err error) {
	if err := t.covers(g, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, deleteTime, fmt.Errorf("took longer than %s", deleteTime))
	defer cancel()
	s, err := t.d.session(ctx)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	if err := s.begin(ctx); err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			s.rollback(ctx)
		}
	}()
	def := t.def.Load()
	found, err := t.fingerprint(ctx, s, rows{table: t.name, def: def, where: def.between(c.From, c.To), lock: " FOR UPDATE"})
	if err != nil {
		return err
	}
	if found != c.Warm {
		return fmt.Errorf("%w: found %s, archived %s", ErrDrift, found, c.Warm)
	}
	// The locking read holds the table's definition still until the end of the transaction.
	if err := t.sameColumns(ctx, s, t.shard.Table, g.Copy()); err != nil {
		return err
	}
	if found.Rows == 0 {
		return nil
	}
	// The form with USING is the one that takes an index hint: a scan of the whole table
	// would lock all of it.
	q := fmt.Sprintf("DELETE FROM %s USING %s FORCE INDEX (%s) WHERE %s", t.name, t.name, def.key, def.between(c.From, c.To))
	result, err := s.exec(ctx, q)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if n < 0 || uint64(n) != c.Warm.Rows {
		return fmt.Errorf("%w: the delete met %d rows, archived are %d", ErrDrift, n, c.Warm.Rows)
	}
	if err := g.Check(ctx); err != nil {
		return err
	}
	committed = true // from here on the outcome is the server's
	return s.commit(ctx)
}

// covers says whether a grant allows deleting a chunk of this table.
func (t *Table) covers(g grant, c manifest.Chunk) error {
	slice, copied := g.Slice(), g.Copy()
	if slice.Shard != t.shard {
		return fmt.Errorf("the grant is for slice %s", slice.SliceKey)
	}
	if c.From > c.To || c.From < slice.Lo || c.To > slice.Hi {
		return fmt.Errorf("lies outside slice %s, message IDs [%d, %d)", slice.SliceKey, slice.Lo, slice.Hi)
	}
	for _, own := range copied.Chunks {
		if own.Seq == c.Seq && own.From == c.From && own.To == c.To && own.Warm == c.Warm {
			return nil
		}
	}
	return fmt.Errorf("is no chunk of generation %d of slice %s", copied.Generation, slice.SliceKey)
}

// sameColumns is ErrDrift when a table's columns are not those that were copied: a
// column that was added since is not in the copy.
func (t *Table) sameColumns(ctx context.Context, s *session, table string, copied *manifest.Copy) error {
	if copied.Schema == nil {
		return errors.New("the copy has no schema")
	}
	now, _, _, err := t.d.columns(ctx, s, table)
	if err != nil {
		return fmt.Errorf("columns: %w", err)
	}
	if !now.SameColumns(copied.Schema) {
		return fmt.Errorf("%w: columns changed since generation %d was copied", ErrDrift, copied.Generation)
	}
	return nil
}
