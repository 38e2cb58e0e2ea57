package selection

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
)

// overlay is the statuses that were put on a slice's messages; nil: none.
type overlay struct {
	all   []manifest.FoldedStatus // by message ID
	until *time.Time
}

// statuses reads those of the selected part of a slice.
func (r *Reader) statuses(ctx context.Context, sel Selection, s Slice) (*overlay, error) {
	all, err := r.Manifest.StatusesBetween(ctx, s.From, s.To)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &overlay{all, sel.Until}, nil
}

// of says what the status column of a row is to read, if not what it does. The rule is
// the archiver's when it makes the next generation: a status goes by message and
// conversation, and one that the column cannot hold leaves it as it is.
func (o *overlay) of(b *message.Batch, row int) (col int, text []byte, changed bool) {
	if o == nil {
		return 0, nil, false
	}
	if col = b.Schema().StatusColumn(); col < 0 {
		return 0, nil, false
	}
	id := b.MessageID(row)
	i, _ := slices.BinarySearchFunc(o.all, id, func(s manifest.FoldedStatus, id uint64) int { return cmp.Compare(s.MessageID, id) })
	for ; i < len(o.all) && o.all[i].MessageID == id; i++ {
		if !bytes.Equal(o.all[i].Conversation, b.Conversation(row)) {
			continue
		}
		st, now := o.all[i], b.Value(col, row)
		if o.until != nil && st.At.After(*o.until) { // then it had not been put
			st.Kind, st.Value = manifest.StatusNone, nil
		}
		text = st.Column(now)
		if bytes.Equal(text, now) && (text == nil) == (now == nil) || !b.Schema().Columns()[col].Fits(text) {
			return 0, nil, false
		}
		return col, text, true
	}
	return 0, nil, false
}
