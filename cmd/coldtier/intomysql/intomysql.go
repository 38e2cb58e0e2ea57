// Package intomysql lets rehydrate write into a database that package warm opens.
package intomysql

import (
	"context"
	"errors"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/restore/rehydrate"
)

// Target is a database for rehydrate.
type Target struct{ *warm.Target }

// Table implements rehydrate.Target.
func (t Target) Table(ctx context.Context, name string) (rehydrate.Table, error) {
	x, err := t.Target.Table(ctx, name)
	if err != nil {
		return nil, named(err)
	}
	return Table{x}, nil
}

// Create implements rehydrate.Target.
func (t Target) Create(ctx context.Context, name, showCreate string) ([]string, error) {
	notes, err := t.Target.Create(ctx, name, showCreate)
	return notes, named(err)
}

// Table is a table of it.
type Table struct{ *warm.TargetTable }

// Sink implements rehydrate.Table.
func (t Table) Sink(s *message.Schema) (rehydrate.Sink, error) {
	k, err := t.TargetTable.Sink(s)
	if err != nil {
		return nil, named(err)
	}
	return sink{k}, nil
}

type sink struct{ *warm.Sink }

func (s sink) Any(ctx context.Context, from, to uint64) (bool, error) {
	is, err := s.Sink.Any(ctx, from, to)
	return is, named(err)
}

func (s sink) Settle(ctx context.Context, from, to uint64) (bool, error) {
	is, err := s.Sink.Settle(ctx, from, to)
	return is, named(err)
}

func (s sink) Fingerprint(ctx context.Context, from, to uint64, conversations [][]byte) (message.Fingerprint, error) {
	f, err := s.Sink.Fingerprint(ctx, from, to, conversations)
	return f, named(err)
}

func (s sink) Write(ctx context.Context, b *message.Batch, fresh bool) (rehydrate.Written, error) {
	w, err := s.Sink.Write(ctx, b, fresh)
	return written(w), named(err)
}

func (s sink) Compare(ctx context.Context, b *message.Batch) (rehydrate.Written, []uint64, error) {
	w, absent, err := s.Sink.Compare(ctx, b)
	return written(w), absent, named(err)
}

func written(w warm.Written) rehydrate.Written {
	out := rehydrate.Written{Inserted: w.Inserted, Present: w.Present}
	for _, c := range w.Conflicts {
		out.Conflicts = append(out.Conflicts, rehydrate.Conflict(c))
	}
	for _, c := range w.Refused {
		out.Refused = append(out.Refused, rehydrate.Refused(c))
	}
	return out
}

// known is an error of warm that rehydrate knows by its own name, with the same text.
type known struct {
	error
	as error
}

func (k known) Unwrap() []error { return []error{k.error, k.as} }

// named gives an error of warm the name that rehydrate has for it.
func named(err error) error {
	for _, e := range [][2]error{{warm.ErrAgain, rehydrate.ErrAgain}, {warm.ErrNoTable, rehydrate.ErrNoTable}, {warm.ErrUnfit, rehydrate.ErrUnfit}} {
		if errors.Is(err, e[0]) {
			err = known{err, e[1]}
		}
	}
	return err
}
