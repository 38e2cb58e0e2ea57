package message

import (
	"strings"
	"testing"
)

// P8: rows archived before a column was added, renamed or dropped.
func TestProjectMapsByNameOrRefuses(t *testing.T) {
	id, conv := Column{Name: "id", Kind: Uint, Bits: 64}, Column{Name: "conv", Kind: Int, Bits: 64}
	body := Column{Name: "body", Kind: Text, Nullable: true}
	schema := func(cols ...Column) *Schema {
		s, err := NewSchema(cols, map[Role]string{MessageID: "id", ConversationID: "conv"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	old := NewBatch(schema(id, conv, body))
	for _, v := range [][]byte{[]byte("x"), {}, nil} {
		if err := old.Append([][]byte{[]byte("18446744073709551615"), []byte("-2"), v}); err != nil {
			t.Fatal(err)
		}
	}
	added := Column{Name: "added", Kind: Text, Nullable: true}
	got, err := Project(old, schema(conv, added, body, id)) // another order, too
	if err != nil {
		t.Fatal(err)
	}
	if got.Len() != 3 || got.MessageID(0) != 1<<64-1 || got.Value(1, 0) != nil || string(got.Value(2, 0)) != "x" || got.Value(2, 1) == nil || got.Value(2, 2) != nil {
		t.Errorf("projected rows: %q", got.Row(nil, 0))
	}
	required := added
	required.Nullable = false
	notNull := body
	notNull.Nullable = false
	for want, to := range map[string]*Schema{"added": schema(id, conv, body, required), "body": schema(id, conv, notNull), "column body": schema(id, conv, added)} {
		if _, err := Project(old, to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("projection that loses %s: %v", want, err)
		}
	}
	if same, err := Project(old, schema(id, conv, body)); err != nil || same != old {
		t.Errorf("projection to an equal schema: %v", err)
	}
}
