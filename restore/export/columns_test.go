package export

import (
	"strings"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
)

// The wider type holds all values of both, whichever came first.
func TestWider(t *testing.T) {
	t.Parallel()
	dec := func(p, s int) message.Column { return message.Column{Kind: message.Decimal, Precision: p, Scale: s} }
	of := func(k message.Kind, bits, scale int) message.Column {
		return message.Column{Kind: k, Bits: bits, Scale: scale}
	}
	for _, c := range []struct{ a, b, want message.Column }{
		{dec(10, 2), dec(9, 4), dec(12, 4)},
		{dec(9, 2), dec(30, 4), dec(30, 4)},
		{of(message.Int, 8, 0), of(message.Int, 64, 0), of(message.Int, 64, 0)},
		{of(message.Int, 32, 0), of(message.Uint, 32, 0), of(message.Int, 64, 0)},
		{of(message.Int, 64, 0), of(message.Uint, 64, 0), of(message.Text, 64, 0)},
		{of(message.DateTime, 0, 0), of(message.DateTime, 0, 6), of(message.DateTime, 0, 6)},
		{of(message.Text, 0, 0), of(message.Bytes, 0, 0), of(message.Bytes, 0, 0)},
		{of(message.Date, 0, 0), of(message.Year, 0, 0), of(message.Text, 0, 0)},
	} {
		for _, got := range []message.Column{wider(c.a, c.b), wider(c.b, c.a)} {
			if got.Kind != c.want.Kind || got.Kind != message.Text && got != c.want {
				t.Errorf("%+v and %+v: %+v, want %+v", c.a, c.b, got, c.want)
			}
		}
	}
}

// A column that nobody knew of when the columns were chosen is not dropped in silence.
func TestAColumnThatComesLate(t *testing.T) {
	t.Parallel()
	s, err := message.NewSchema([]message.Column{{Name: "id", Kind: message.Uint, Bits: 64}, {Name: "late", Kind: message.Text}},
		map[message.Role]string{message.MessageID: "id", message.ConversationID: "id"})
	if err != nil {
		t.Fatal(err)
	}
	c := &columns{all: s.Columns()[:1], rows: map[string]*mapped{}}
	if _, _, err := c.row(s); err == nil || !strings.Contains(err.Error(), "column late") {
		t.Error(err)
	}
}
