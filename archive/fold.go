package archive

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"slices"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// fold puts the statuses of archived messages into a generation that is being made.
// Its record gets those of all messages that are in it. The status column is written
// in carried rows alone: rows that warm has are archived as warm has them, since the
// purge compares. Nothing else of a row changes, so a status never takes anything out
// of the archive.
type fold struct {
	all  []manifest.FoldedStatus // by message ID
	seen []bool                  // the message is in the generation
	log  *slog.Logger
}

func newFold(all []manifest.FoldedStatus, log *slog.Logger) *fold {
	return &fold{all: all, seen: make([]bool, len(all)), log: log}
}

// of is the place of a row's status, or -1. A status that was put for another
// conversation than the message is in is nobody's.
func (f *fold) of(b *message.Batch, row int) int {
	id := b.MessageID(row)
	i, _ := slices.BinarySearchFunc(f.all, id, func(s manifest.FoldedStatus, id uint64) int { return cmp.Compare(s.MessageID, id) })
	for ; i < len(f.all) && f.all[i].MessageID == id; i++ {
		if bytes.Equal(f.all[i].Conversation, b.Conversation(row)) {
			return i
		}
	}
	return -1
}

// warm notes the statuses of rows that warm has. Ranges are seen at once: no two of
// them have the same message.
func (f *fold) warm(b *message.Batch) {
	if len(f.all) == 0 {
		return
	}
	for row := range b.Len() {
		if i := f.of(b, row); i >= 0 {
			f.seen[i], f.all[i].Original = true, nil
		}
	}
}

// carried gives carried rows with their statuses in the status column.
func (f *fold) carried(ctx context.Context, b *message.Batch) (*message.Batch, error) {
	if len(f.all) == 0 {
		return b, nil
	}
	col := b.Schema().StatusColumn()
	write := map[int][]byte{} // by row
	for row := range b.Len() {
		i := f.of(b, row)
		if i < 0 {
			continue
		}
		f.seen[i] = true
		if col < 0 {
			continue
		}
		st, now := &f.all[i], b.Value(col, row)
		want := st.Column(now)
		switch {
		case bytes.Equal(now, want) && (now == nil) == (want == nil):
		case !b.Schema().Columns()[col].Fits(want), st.Original == nil && len(now) > manifest.MaxOriginal:
			f.log.WarnContext(ctx, "the status of a message does not fit its column, which stays as it is", "message", st.MessageID, "column", b.Schema().Columns()[col].Name)
		default:
			if st.Original == nil {
				st.Original = &manifest.Original{Value: bytes.Clone(now)}
			}
			write[row] = want
		}
	}
	if len(write) == 0 {
		return b, nil
	}
	out := message.NewBatch(b.Schema())
	var values [][]byte
	for row := range b.Len() {
		values = b.Row(values[:0], row)
		if v, ok := write[row]; ok {
			values[col] = v
		}
		if err := out.Append(values); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// statuses are those of the messages that were seen.
func (f *fold) statuses() (in []manifest.FoldedStatus) {
	for i := range f.all {
		if f.seen[i] {
			in = append(in, f.all[i])
		}
	}
	return in
}
