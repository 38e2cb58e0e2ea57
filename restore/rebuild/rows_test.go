package rebuild

import (
	"context"
	"errors"
	"testing"

	"github.com/coldtier/coldtier/archive"
	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/manifest"
)

var errLost = errors.New("lost")

// lostObjects is a bucket that gives nothing.
type lostObjects struct{}

func (lostObjects) ReadRange(context.Context, string, int64, int64) ([]byte, error) {
	return nil, errLost
}

// insertOnly is a ClickHouse that counts how inserts end.
type insertOnly struct {
	Rows
	closed, aborted int
}

func (r *insertOnly) Insert(context.Context, manifest.CopyID, *message.Schema) (archive.RowWriter, error) {
	return r, nil
}

func (r *insertOnly) Write(context.Context, *message.Batch, int, int) error { return nil }

func (r *insertOnly) Close(context.Context) error {
	r.closed++
	return nil
}

func (r *insertOnly) Abort() { r.aborted++ }

// An insert whose last object cannot be read is never ended as if it were whole.
func TestAnInsertThatLacksAnObjectIsAborted(t *testing.T) {
	t.Parallel()
	const tries = 20_000 // what went wrong was a race
	r := &insertOnly{}
	b := &rowBuilder{RowDeps: RowDeps{Objects: lostObjects{}, Rows: r}}
	c := &manifest.Copy{Objects: []manifest.Object{{Key: "k", File: segment.File{Size: 1}, Segs: []segment.Span{{Conversation: []byte("c")}}}}}
	for range tries {
		if err := b.insert(t.Context(), c); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
	}
	if r.closed > 0 || r.aborted != tries {
		t.Errorf("of %d inserts %d were ended and %d aborted", tries, r.closed, r.aborted)
	}
}
