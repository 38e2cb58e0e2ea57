package segment

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

// The footer says between which message IDs each row group lies, also where the order
// within the file is by a sequence that has nothing to do with them.
func TestFooterBoundsTheMessageIDs(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	for name, of := range map[string]struct {
		column message.Column
		most   uint64
	}{
		"BIGINT UNSIGNED": {message.Column{Name: "msg_id", Kind: message.Uint, Bits: 64}, math.MaxInt64},
		"BIGINT":          {message.Column{Name: "msg_id", Kind: message.Int, Bits: 64}, math.MaxInt64},
		"INT UNSIGNED":    {message.Column{Name: "msg_id", Kind: message.Uint, Bits: 32}, math.MaxUint32},
		"beyond 2^63":     {message.Column{Name: "msg_id", Kind: message.Uint, Bits: 64}, math.MaxUint64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(r.Uint64(), 2))
			s, err := message.NewSchema([]message.Column{of.column, {Name: "conv", Kind: message.Int, Bits: 64}, {Name: "seq", Kind: message.Uint, Bits: 64}, {Name: "body", Kind: message.Bytes}},
				map[message.Role]string{message.MessageID: "msg_id", message.ConversationID: "conv", message.Sequence: "seq"})
			if err != nil {
				t.Fatal(err)
			}
			b := message.NewBatch(s)
			for seq := range 2000 {
				id := of.most - r.Uint64N(of.most/2)
				if err := b.Append([][]byte{fmt.Append(nil, id), []byte("7"), fmt.Append(nil, seq), noise(r, 300)}); err != nil {
					t.Fatal(err)
				}
			}
			f, _, data := write(t, s, Options{RowGroupBytes: 16 << 10}, b)
			rd, err := OpenFooter(f, data[f.Footer.Offset:])
			if err != nil {
				t.Fatal(err)
			}
			at, told := 0, 0
			for g, rg := range f.RowGroups {
				low, high, known := rd.MessageIDs(g)
				wantLow, wantHigh := uint64(math.MaxUint64), uint64(0)
				for i := at; i < at+int(rg.Rows); i++ {
					wantLow, wantHigh = min(wantLow, b.MessageID(i)), max(wantHigh, b.MessageID(i))
				}
				at += int(rg.Rows)
				if !known {
					continue
				}
				told++
				if low != wantLow || high != wantHigh {
					t.Errorf("row group %d: IDs %d to %d, the footer says %d to %d", g, wantLow, wantHigh, low, high)
				}
			}
			if told < len(f.RowGroups) && of.most < math.MaxUint64 {
				t.Errorf("of %d row groups %d are known", len(f.RowGroups), told)
			}
		})
	}
	if _, _, known := (&Reader{}).MessageIDs(0); known {
		t.Error("a reader without a footer knows message IDs")
	}
}
