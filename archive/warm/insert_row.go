package warm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/archive/message"
)

// found is a row that the table has.
type found struct {
	hash    message.Fingerprint
	columns []string // that differ from the archived row
}

// mostIDs bounds the list of a statement that reads rows by their message IDs.
const mostIDs = 1000

// existing reads those of rows that the table has, by message ID.
func (w *writing) existing(ctx context.Context, s *session, rows []int) (map[uint64]found, error) {
	k := w.k
	out := make(map[uint64]found, len(rows))
	at := make(map[uint64]int, len(rows))
	idAt := k.schema.Role(message.MessageID)
	top := highest(k.x.columns[k.at[idAt]])
	for len(rows) > 0 {
		some := rows[:min(len(rows), mostIDs)]
		rows = rows[len(some):]
		list := make([]byte, 0, 20*len(some))
		for _, i := range some {
			id := w.b.MessageID(i)
			if id > top { // for a number that the column cannot hold MariaDB reads the whole table
				continue
			}
			if len(list) > 0 {
				list = append(list, ',')
			}
			list, at[id] = append(list, message.FormatID(id)...), i
		}
		if len(list) == 0 {
			continue
		}
		err := s.rows(ctx, fmt.Sprintf("SELECT %s FROM %s FORCE INDEX (%s) WHERE %s IN (%s)", k.def.selects, k.x.quoted, k.key, k.id, list), func(row [][]byte) error {
			id, ok := message.ParseUint(row[idAt])
			if !ok {
				return fmt.Errorf("%w: message ID %q is no number in 0..2^64-1", errOurs, row[idAt])
			}
			f := found{hash: w.h.Row(row)}
			if i := at[id]; f.hash != w.h.Batch(w.b, i, i+1) {
				f.columns = w.differing(i, row)
			}
			out[id] = f
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// differing names the columns in which a row of the table differs from an archived one.
func (w *writing) differing(i int, row [][]byte) (names []string) {
	for c, col := range w.k.schema.Columns() {
		if v := w.b.Value(c, i); (v == nil) != (row[c] == nil) || string(v) != string(row[c]) {
			names = append(names, col.Name)
		}
	}
	return names
}

// sort counts those of rows that the table has, and gives the others.
func (w *writing) sort(ctx context.Context, s *session, rows []int) (left []int, err error) {
	have, err := w.existing(ctx, s, rows)
	if err != nil {
		return nil, err
	}
	for _, i := range rows {
		id := w.b.MessageID(i)
		f, ok := have[id]
		switch {
		case !ok:
			left = append(left, i)
		case len(f.columns) == 0:
			w.out.Present++
		default:
			w.out.Conflicts = append(w.out.Conflicts, Conflict{MessageID: id, Columns: f.columns, Archived: w.h.Batch(w.b, i, i+1), Found: f.hash})
		}
	}
	return left, nil
}

// one says what is with a row whose INSERT the server has refused, and puts it where
// only the strict mode has.
func (w *writing) one(ctx context.Context, i int, why error) error {
	if isDuplicate(why) {
		left, err := w.sort(ctx, w.s, []int{i})
		if err != nil || len(left) == 0 {
			return err
		}
		w.out.Conflicts = append(w.out.Conflicts, Conflict{MessageID: w.b.MessageID(i), Key: keyOf(why), Archived: w.h.Batch(w.b, i, i+1)})
		return nil
	}
	// The value 0 of an ENUM, which reads '', can be written in no strict mode.
	var err error
	if answered(why) && !tooLarge(why) {
		w.insert([]int{i})
		err = w.leniently(ctx, i, string(w.text))
		if err == nil {
			w.out.Inserted++
			return nil
		}
		if !ofRows(err) {
			return full(err)
		}
	}
	var altered *alteredError
	if errors.As(err, &altered) {
		why = altered
	}
	w.refuse(i, reason(why))
	return nil
}

func (w *writing) refuse(i int, reason string) {
	w.out.Refused = append(w.out.Refused, Refused{MessageID: w.b.MessageID(i), Reason: reason, Archived: w.h.Batch(w.b, i, i+1)})
}

// leniently inserts a row in the mode in which the server makes fit what does not, and
// keeps it only if that changed nothing.
func (w *writing) leniently(ctx context.Context, i int, text string) error {
	w.s.once = true // the connection is not used again: its mode is another
	if _, err := w.s.exec(ctx, "SET SESSION sql_mode = '"+sqlMode+"'"); err != nil {
		return err
	}
	err := w.checked(ctx, []int{i}, func() error {
		_, err := w.s.exec(ctx, text)
		return err
	})
	if w.s.cut {
		return err
	}
	if _, e := w.s.exec(ctx, "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,"+sqlMode+"'"); e != nil {
		return errors.Join(err, e)
	}
	return err
}

// bound inserts a row whose statement is longer than a packet with its values beside the
// statement, each in packets of its own.
func (w *writing) bound(ctx context.Context, i int) error {
	k := w.k
	var binds []string
	var args []any
	for _, c := range k.insert {
		binds = append(binds, bindExpr(k.x.columns[k.at[c]]))
		if v := w.b.Value(c, i); v != nil {
			args = append(args, v)
		} else {
			args = append(args, nil)
		}
	}
	st, err := w.s.conn.PrepareContext(ctx, "INSERT INTO "+k.x.quoted+" ("+k.into+") VALUES ("+strings.Join(binds, ", ")+")")
	if err != nil {
		return w.s.note(ctx, err)
	}
	defer func() { _ = st.Close() }()
	err = w.checked(ctx, []int{i}, func() error {
		_, err := st.ExecContext(ctx, args...)
		return w.s.note(ctx, err)
	})
	switch {
	case err == nil:
		w.out.Inserted++
	case isDuplicate(err):
		return w.one(ctx, i, err)
	case tooLarge(err) || w.s.cut && w.size(i) > k.x.t.packet-packetSlack && ctx.Err() == nil:
		// A server may close the connection instead of an answer.
		if err := w.reconnect(ctx); err != nil {
			return err
		}
		w.refuse(i, fmt.Sprintf("its %d bytes are more than the target takes in a packet: raise max_allowed_packet there, of %d", w.size(i), k.x.t.packet))
	case ofRows(err):
		w.refuse(i, reason(err))
	default:
		return full(err)
	}
	return nil
}

// reconnect goes on with another connection where this one was closed.
func (w *writing) reconnect(ctx context.Context) error {
	if !w.s.cut {
		return nil
	}
	w.s.close(ctx)
	s, err := w.k.x.t.d.session(ctx)
	if err != nil {
		w.s = &session{d: w.k.x.t.d, conn: w.s.conn}
		return err
	}
	w.s = s
	return nil
}

func tooLarge(err error) bool {
	// 1153 packet, 1301 result of a function, 1105 of a parameter that came in parts
	return errors.Is(err, mysql.ErrPktTooLarge) || slices.Contains([]uint16{1153, 1301, 1105}, number(err))
}

func isDuplicate(err error) bool { return slices.Contains([]uint16{1062, 1586, 1859}, number(err)) }

// ofRows says whether a statement failed because of the rows it was to write, so that
// others may be written.
func ofRows(err error) bool {
	var altered *alteredError
	if errors.As(err, &altered) || tooLarge(err) || isDuplicate(err) {
		return true
	}
	return slices.Contains([]uint16{
		1048,                               // NULL where none may be
		1264, 1265, 1292, 1366, 1406, 1411, // does not fit the column
		1690, 3854, 1300, 3988, // out of range, no character of the set
		3140, 3141, 3156, 3157, 4038, // JSON
		3819, 4025, // CHECK
		1526, 1748, 1591, // no partition for it
		1216, 1452, // foreign key
		1118, 139, // row too long for a page
		1364, 1416, 3105, 1906,
	}, number(err))
}

// full marks the errors of a server that has no room left.
func full(err error) error {
	n := number(err)
	// Of other faults, too, are 1005 (a table cannot be made) and 1030: 28 is no space left on
	// the device, 135 none in the tablespace.
	if slices.Contains([]uint16{1021, 1114, 1026, 3}, n) || (n == 1005 || n == 1030) && regexp.MustCompile(`\b(error|errno:) (28|135)\b`).MatchString(err.Error()) {
		return fmt.Errorf("%w: make room there and run the same again: %w", ErrFull, err)
	}
	return err
}

// reason is what a server says of a row it refuses, without the values it quotes.
func reason(err error) string {
	var altered *alteredError
	if errors.As(err, &altered) {
		return altered.Error()
	}
	n := number(err)
	if n == 0 {
		return err.Error()
	}
	var my *mysql.MySQLError
	errors.As(err, &my)
	text := fmt.Sprintf("the server refuses it with error %d", n)
	switch n {
	case 1526, 1748, 1591:
		text = "the table has no partition for its message ID: add one"
	case 1048:
		text = "NULL is not allowed"
	}
	for _, what := range []string{"column", "constraint"} {
		if m := regexp.MustCompile("(?i)" + what + " ['`\"]([^'`\"]+)['`\"]").FindStringSubmatch(my.Message); m != nil {
			return text + " (" + what + " " + m[1] + ")"
		}
	}
	return text
}

// keyOf is the name of the unique key in which a row has its place taken. The rest of what
// the server says quotes values.
func keyOf(err error) string {
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		if i := strings.LastIndex(my.Message, "for key '"); i >= 0 {
			name := strings.TrimSuffix(my.Message[i+len("for key '"):], "'")
			if dot := strings.LastIndex(name, "."); dot >= 0 { // MySQL names the table before it
				name = name[dot+1:]
			}
			return name
		}
	}
	return "unique"
}
