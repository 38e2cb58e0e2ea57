package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// Boundary says where a conversation's messages are.
type Boundary = manifest.Boundary

// Boundaries says of conversations where their messages are. Nothing of it is kept: it
// is as the manifest has it.
func (f *Fetcher) Boundaries(ctx context.Context, conversations [][]byte, budget time.Duration) ([]Boundary, error) {
	ctx, cancel := f.within(ctx, budget)
	defer cancel()
	var b []Boundary
	err := f.again(ctx, "boundaries", func() (err error) {
		b, err = f.Manifest.Boundaries(ctx, conversations)
		return err
	})
	return b, manifestError(ctx, err)
}

// PutStatus notes what happened to a message after it was archived. Every read that
// begins after it returned shows it.
func (f *Fetcher) PutStatus(ctx context.Context, s manifest.Status) (manifest.Status, error) {
	ctx, cancel := f.within(ctx, 0)
	defer cancel()
	s, err := f.Manifest.PutStatus(ctx, s)
	return s, manifestError(ctx, err)
}

// manifestError tells bad requests from a manifest that does not answer.
func manifestError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, manifest.ErrConversation), errors.Is(err, manifest.ErrStatus):
		return fmt.Errorf("%w: %w", ErrQuery, err)
	}
	return fmt.Errorf("%w: %s", ErrPending, plain(ctx, err))
}
