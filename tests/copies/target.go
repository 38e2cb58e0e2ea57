package copies

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/warm"
	"github.com/coldtier/coldtier/cmd/coldtier/intomysql"
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
	return &IntoMySQL{Target: intomysql.Target{Target: x}}
}

// IntoMySQL is a database for rehydrate. Before, when not nil, is called before each write.
type IntoMySQL struct {
	intomysql.Target
	Before func(b *message.Batch) error
}

// Table implements rehydrate.Target.
func (t *IntoMySQL) Table(ctx context.Context, name string) (rehydrate.Table, error) {
	x, err := t.Target.Table(ctx, name)
	if err != nil {
		return nil, err
	}
	return table{x, t}, nil
}

type table struct {
	rehydrate.Table
	t *IntoMySQL
}

func (x table) Sink(s *message.Schema) (rehydrate.Sink, error) {
	k, err := x.Table.Sink(s)
	if err != nil {
		return nil, err
	}
	return sink{k, x.t}, nil
}

type sink struct {
	rehydrate.Sink
	t *IntoMySQL
}

func (s sink) Write(ctx context.Context, b *message.Batch, fresh bool) (rehydrate.Written, error) {
	if s.t.Before != nil {
		if err := s.t.Before(b); err != nil {
			return rehydrate.Written{}, err
		}
	}
	return s.Sink.Write(ctx, b, fresh)
}
