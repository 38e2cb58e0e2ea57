package export_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/export"
	"github.com/coldtier/coldtier/restore/selection"
	"github.com/coldtier/coldtier/tests/copies"
)

func recalled(conv string, id uint64) manifest.Status {
	return manifest.Status{Conversation: []byte(conv), MessageID: id, Kind: manifest.StatusRecalled, By: "test"}
}

// readers are the formats and how they are read back.
var readers = map[export.Format]func(testing.TB, []byte) table{export.NDJSON: readNDJSON, export.CSV: readCSV, export.Parquet: readParquet}

// A status is told and in its column; the body of a recalled or deleted message is kept
// back, also as of before, unless it is asked for.
func TestStatusesAreApplied(t *testing.T) {
	t.Parallel()
	x := copies.New(t)
	day1, lo1 := day(t, 1)
	day2, lo2 := day(t, 2)
	var rows [2][][][]byte
	for i := range 7 {
		rows[0] = append(rows[0], texts(message.FormatID(lo1+uint64(i)), "c", "0", fmt.Sprint("body ", i), fmt.Sprint("note ", i)))
		rows[1] = append(rows[1], texts(message.FormatID(lo2+uint64(i)), "c", "0", fmt.Sprint("body ", i), fmt.Sprint("note ", i)))
	}
	note := message.Column{Name: "note", Kind: message.Text, SourceType: "text"}
	x.Commit(copies.Copy{Shard: shard, Day: day1, Schema: schema(t, "body", note), Rows: rows[0]})
	x.Commit(copies.Copy{Shard: shard, Day: day2, Schema: schema(t, "", note), Rows: rows[1]}) // no column is the content
	put := func(i uint64, conv string, kind manifest.StatusKind, value string) {
		t.Helper()
		for _, lo := range []uint64{lo1, lo2} {
			st := manifest.Status{Conversation: []byte(conv), MessageID: lo + i, Kind: kind, By: "test"}
			if value != "" {
				st.Value = &value
			}
			if _, err := x.Store.PutStatus(t.Context(), st); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(0, "c", manifest.StatusRecalled, "2")
	put(1, "c", manifest.StatusDeleted, "")
	put(2, "c", manifest.StatusEdited, "3")
	put(3, "other", manifest.StatusRecalled, "2")
	put(4, "c", manifest.StatusRecalled, "2")
	put(4, "c", manifest.StatusNone, "")
	then, err := x.Store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put(5, "c", manifest.StatusRecalled, "4")

	for format, read := range readers {
		for _, c := range []struct {
			name       string
			withheld   bool
			until      *time.Time
			hidden     string
			st, status map[int]string
		}{
			{"now", false, nil, "015", map[int]string{0: "2", 2: "3", 5: "4"}, map[int]string{0: "recalled", 1: "deleted", 2: "edited", 5: "recalled"}},
			{"with withheld", true, nil, "", map[int]string{0: "2", 2: "3", 5: "4"}, map[int]string{0: "recalled", 1: "deleted", 2: "edited", 5: "recalled"}},
			{"as of then", false, &then, "015", map[int]string{0: "2", 2: "3"}, map[int]string{0: "recalled", 1: "deleted", 2: "edited"}},
			{"as of then, with withheld", true, &then, "", map[int]string{0: "2", 2: "3"}, map[int]string{0: "recalled", 1: "deleted", 2: "edited"}},
		} {
			data, rep, err := run(t, x.Reader(false), selection.Selection{Until: c.until}, export.Options{Format: format, Withheld: c.withheld})
			if err != nil {
				t.Fatal(err)
			}
			var want table
			for n := range 14 {
				i := n % 7
				w := map[string]string{"st": "0", "body": fmt.Sprint("body ", i), "note": fmt.Sprint("note ", i), "_status": "<nil>", "_withheld": "false"}
				if s, ok := c.st[i]; ok {
					w["st"] = s
				}
				if s, ok := c.status[i]; ok {
					w["_status"] = s
				} else {
					w["_status_at"] = "<nil>"
				}
				if strings.Contains(c.hidden, fmt.Sprint(i)) {
					w["body"], w["_withheld"] = "<nil>", "true"
					if n >= 7 {
						w["note"] = "<nil>"
					}
				}
				want = append(want, w)
			}
			same(t, fmt.Sprintf("%s, %s", format, c.name), read(t, data), want)
			if rep.Statuses != uint64(2*len(c.status)) || rep.Withheld != uint64(2*len(c.hidden)) {
				t.Errorf("%s, %s: %+v", format, c.name, rep)
			}
			if hidden := strings.Contains(string(data), "body 5"); format == export.NDJSON && hidden == (c.hidden != "") {
				t.Errorf("%s: a withheld body is in the file: %t", c.name, hidden)
			}
		}
	}
}

// Rows that are lost are named and all others exported; with none there is no report of
// rows; what ClickHouse has in their place is exported and named.
func TestDamage(t *testing.T) {
	t.Parallel()
	x := copies.New(t)
	d, lo := day(t, 1)
	var rows [][][]byte
	for i := range 9 {
		rows = append(rows, texts(message.FormatID(lo+uint64(i)), fmt.Sprint("c", i/3), "0", fmt.Sprint("body ", i)))
	}
	c := x.Commit(copies.Copy{Shard: shard, Day: d, Schema: schema(t, "body"), Rows: rows})
	if err := x.Bucket.Delete(t.Context(), c.Objects[1].Key); err != nil {
		t.Fatal(err)
	}
	for format, read := range readers {
		data, rep, err := run(t, x.Reader(false), selection.Selection{}, export.Options{Format: format})
		if !errors.Is(err, selection.ErrLost) || !strings.Contains(err.Error(), c.Objects[1].Key) || rep.Rows != 6 || rep.Left() != 3 {
			t.Errorf("%s: %+v, %v", format, rep, err)
		}
		var want table
		for _, i := range []int{0, 1, 2, 6, 7, 8} {
			want = append(want, map[string]string{"id": message.FormatID(lo + uint64(i)), "body": fmt.Sprint("body ", i)})
		}
		same(t, string(format), read(t, data), want)
		data, rep, err = run(t, x.Reader(true), selection.Selection{}, export.Options{Format: format})
		if err != nil || rep.Rows != 9 || rep.Left() != 0 || len(rep.Damaged) != 1 || len(read(t, data)) != 9 {
			t.Errorf("%s with ClickHouse: %+v, %v", format, rep, err)
		}
	}
	_, rep, err := run(t, x.Reader(false), selection.Selection{Conversations: [][]byte{[]byte("c1")}}, export.Options{Format: export.CSV})
	if !errors.Is(err, selection.ErrLost) || rep.Rows != 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	// What cannot be written is an error, never a short file.
	full := errors.New("no space left")
	for format := range readers {
		if _, err := export.Run(t.Context(), x.Reader(true), selection.Selection{}, &limited{left: 10, err: full}, export.Options{Format: format}); !errors.Is(err, full) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

type limited struct {
	left int
	err  error
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, l.err
	}
	l.left -= len(p)
	return len(p), nil
}
