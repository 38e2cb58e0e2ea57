package copies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/restore/rehydrate"
)

// Target opens a database to restore into, as the program does.
func Target(t testing.TB, c warm.TargetConfig) *IntoMySQL {
	t.Helper()
	c.Now = time.Now
	x, err := warm.OpenTarget(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return &IntoMySQL{Target: x}
}

// IntoMySQL is a database for rehydrate. Before, when not nil, is called before each write.
type IntoMySQL struct {
	*warm.Target
	Before func(b *message.Batch) error
}

func known(err error) error {
	for of, is := range map[error]error{warm.ErrAgain: rehydrate.ErrAgain, warm.ErrNoTable: rehydrate.ErrNoTable, warm.ErrUnfit: rehydrate.ErrUnfit} {
		if errors.Is(err, of) {
			return fmt.Errorf("%w: %w", is, err)
		}
	}
	return err
}

// Table implements rehydrate.Target.
func (t *IntoMySQL) Table(ctx context.Context, name string) (rehydrate.Table, error) {
	x, err := t.Target.Table(ctx, name)
	if err != nil {
		return nil, known(err)
	}
	return table{x, t}, nil
}

// Create implements rehydrate.Target.
func (t *IntoMySQL) Create(ctx context.Context, name, showCreate string) ([]string, error) {
	notes, err := t.Target.Create(ctx, name, showCreate)
	return notes, known(err)
}

type table struct {
	*warm.TargetTable
	t *IntoMySQL
}

func (x table) Sink(s *message.Schema) (rehydrate.Sink, error) {
	k, err := x.TargetTable.Sink(s)
	if err != nil {
		return nil, known(err)
	}
	return sink{k, x.t}, nil
}

type sink struct {
	*warm.Sink
	t *IntoMySQL
}

func (s sink) Any(ctx context.Context, from, to uint64) (bool, error) {
	is, err := s.Sink.Any(ctx, from, to)
	return is, known(err)
}

func (s sink) Settle(ctx context.Context, from, to uint64) (bool, error) {
	is, err := s.Sink.Settle(ctx, from, to)
	return is, known(err)
}

func (s sink) Fingerprint(ctx context.Context, from, to uint64, conversations [][]byte) (message.Fingerprint, error) {
	f, err := s.Sink.Fingerprint(ctx, from, to, conversations)
	return f, known(err)
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

func (s sink) Write(ctx context.Context, b *message.Batch, fresh bool) (rehydrate.Written, error) {
	if s.t.Before != nil {
		if err := s.t.Before(b); err != nil {
			return rehydrate.Written{}, err
		}
	}
	w, err := s.Sink.Write(ctx, b, fresh)
	return written(w), known(err)
}

func (s sink) Compare(ctx context.Context, b *message.Batch) (rehydrate.Written, []uint64, error) {
	w, absent, err := s.Sink.Compare(ctx, b)
	return written(w), absent, known(err)
}
