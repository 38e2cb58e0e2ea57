package warm

import (
	"context"

	"github.com/coldtier/coldtier/manifest"
)

// DeleteChunk deletes a chunk's rows if they are, under a lock, exactly those that
// the grant's copy has. Nothing is deleted unless it returns nil or ErrUnclear:
//
//   - ErrDrift: the rows, or the table's columns, are not what was copied.
//   - ErrLocked: others hold locks on them; try later.
//   - ErrUnclear: the commit's outcome is not known. The rows are all there or all
//     gone; read them before the next step.
//   - the grant's own error, when it no longer holds.
func (t *Table) DeleteChunk(ctx context.Context, g *manifest.PurgeGrant, c manifest.Chunk) error {
	return t.deleteChunk(ctx, g, c)
}

// DropStaging drops a staging table, and with it the rows that an exchange took out
// of the warm table, if they are exactly those of the grants' copies. ErrDrift and
// ErrLocked: it is still there. ErrUnclear: it may be gone.
func (t *Table) DropStaging(ctx context.Context, gs []*manifest.PurgeGrant, name string) error {
	all := make([]grant, len(gs))
	for i, g := range gs {
		all[i] = g
	}
	return t.dropStaging(ctx, all, name)
}
