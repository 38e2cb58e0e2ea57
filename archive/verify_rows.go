package archive

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// rows reads every row of a copy in ClickHouse. Rows come sorted by conversation, so each
// conversation is compared as it ends, and the first that differs is named.
func (v *Verifier) rows(ctx context.Context, c *manifest.Copy) error {
	want := map[string]message.Fingerprint{}
	for i := range c.Objects {
		for _, s := range c.Objects[i].Segs {
			want[string(s.Conversation)] = want[string(s.Conversation)].Add(s.Fingerprint)
		}
	}
	all := c.Fingerprint()
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w: slice %s generation %d: %w", ErrRows, ErrMismatch, c.SliceKey, c.Generation, fmt.Errorf(format, args...))
	}
	var h message.Hasher
	var got, of message.Fingerprint
	var conv []byte
	var differs error // the first conversation
	end := func() {
		w, known := want[string(conv)]
		delete(want, string(conv))
		if differs == nil && (!known || w != of) {
			differs = fmt.Errorf("conversation %.64q has %s, its commit says %s", conv, of, w)
		}
	}
	begun := false
	err := v.Rows.ReadCopy(ctx, c.ID(), c.Schema, func(b *message.Batch) error {
		for i := 0; i < b.Len(); {
			next, n := b.Conversation(i), i+1
			for n < b.Len() && bytes.Equal(b.Conversation(n), next) {
				n++
			}
			if begun && !bytes.Equal(conv, next) {
				end()
				of = message.Fingerprint{}
			}
			begun, conv = true, append(conv[:0], next...)
			f := h.Batch(b, i, n)
			of, got, i = of.Add(f), got.Add(f), n
		}
		return nil
	})
	if err != nil {
		return err
	}
	if begun {
		end()
	}
	if got == all {
		return nil
	}
	if differs == nil && len(want) > 0 {
		lost := slices.Min(slices.Collect(maps.Keys(want)))
		differs = fmt.Errorf("conversation %.64q has no rows, its commit says %s", lost, want[lost])
	}
	if differs == nil {
		return fail("it holds %s, its commit says %s", got, all)
	}
	return fail("it holds %s, its commit says %s: %w", got, all, differs)
}
