package clickhouse

import (
	"context"
	"fmt"
	"strings"

	"github.com/coldtier/coldtier/archive/message"
)

// group is a run of a copy's conversations, consecutive in the order of their text.
type group struct {
	rows   uint64
	ranges []textRange
}

// textRange is the conversations from the text lo to the text hi. Of numeric IDs all
// texts of a range have one sign and one length, so that the order of their numbers is
// the order of their texts (reversed below zero) and a range of texts is a range of the
// primary key.
type textRange struct{ lo, hi string }

// groups lists a copy's conversations in the order of their text, cut into groups of
// about groupRows rows. It keeps the groups' ends only, so its memory does not grow with
// the number of conversations in a group.
func (r *reader) groups(ctx context.Context, id CopyID) (groups []group, err error) {
	conv, number := r.conversation(), !r.conversationKind().Opaque()
	text := conv
	if number {
		text = "toString(" + conv + ")"
	}
	statement := fmt.Sprintf("SELECT %s AS _text, count() FROM %s PREWHERE %s GROUP BY %s ORDER BY _text", text, r.d.qualified(tableName), condition(id), conv)
	err = r.d.query(ctx, readSettings(), statement, func(scan func(...any) error) error {
		var c string
		var rows uint64
		if err := scan(&c, &rows); err != nil {
			return fmt.Errorf("%w: %w", ErrNoTable, err)
		}
		if n := len(groups); n == 0 || groups[n-1].rows+rows > r.d.groupRows {
			groups = append(groups, group{})
		}
		g := &groups[len(groups)-1]
		g.rows += rows
		g.add(c, number)
		return nil
	})
	return groups, err
}

func (g *group) add(text string, number bool) {
	for i := range g.ranges {
		if r := &g.ranges[i]; !number || sameSign(r.lo, text) {
			r.hi = text
			return
		}
	}
	g.ranges = append(g.ranges, textRange{text, text})
}

// sameSign says whether two numbers' texts have one sign and one length.
func sameSign(a, b string) bool {
	return len(a) == len(b) && (a[0] == '-') == (b[0] == '-')
}

// condition is true for the rows of the group's conversations.
func (g *group) condition(conv string, kind message.Kind) string {
	var or []string
	for _, r := range g.ranges {
		lo, hi := r.lo, r.hi
		switch {
		case kind.Opaque():
			lo, hi = quote(lo), quote(hi)
		case strings.HasPrefix(lo, "-"):
			lo, hi = hi, lo
		}
		if lo == hi {
			or = append(or, fmt.Sprintf("%s = %s", conv, lo))
		} else {
			or = append(or, fmt.Sprintf("(%s >= %s AND %s <= %s)", conv, lo, conv, hi))
		}
	}
	return "(" + strings.Join(or, " OR ") + ")"
}
