package export_test

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/export"
	"github.com/coldtier/coldtier/restore/selection"
	"github.com/coldtier/coldtier/tests/copies"
)

func schema(t testing.TB, content string, more ...message.Column) *message.Schema {
	t.Helper()
	roles := map[message.Role]string{message.MessageID: "id", message.ConversationID: "conv", message.Status: "st"}
	if content != "" {
		roles[message.Content] = content
	}
	s, err := message.NewSchema(append([]message.Column{
		{Name: "id", Kind: message.Uint, Bits: 64, SourceType: "bigint unsigned"}, {Name: "conv", Kind: message.Text, SourceType: "varchar(64)", Charset: "utf8mb4"},
		{Name: "st", Kind: message.Int, Bits: 8, Nullable: true, SourceType: "tinyint"}, {Name: "body", Kind: message.Bytes, Nullable: true, SourceType: "blob"},
	}, more...), roles)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var shard = manifest.Shard{Database: "im_00", Table: "msg"}

// day is the first ID of a day.
func day(t testing.TB, d int) (snowflake.Day, uint64) {
	t.Helper()
	day := snowflake.MakeDay(2024, 3, d)
	lo, _, err := copies.Layout().Window(day, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	return day, lo
}

// texts makes a row; "<nil>" is NULL.
func texts(values ...string) (row [][]byte) {
	for _, v := range values {
		if v == "<nil>" {
			row = append(row, nil)
		} else {
			row = append(row, append([]byte{}, v...))
		}
	}
	return row
}

func run(t testing.TB, r *selection.Reader, sel selection.Selection, o export.Options) ([]byte, *export.Report, error) {
	t.Helper()
	var out bytes.Buffer
	rep, err := export.Run(t.Context(), r, sel, &out, o)
	if err == nil && int64(out.Len()) != rep.Bytes {
		t.Errorf("%d bytes are written, %d said", out.Len(), rep.Bytes)
	}
	return out.Bytes(), rep, err
}

// table is what a reader found in an export: by column; "<nil>" is NULL.
type table []map[string]string

// readNDJSON undoes the base64 that _base64 lists.
func readNDJSON(t testing.TB, data []byte) (all table) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	for d.More() {
		var raw map[string]json.RawMessage
		if err := d.Decode(&raw); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		row := map[string]string{"_withheld": "false", "_status": "<nil>", "_status_at": "<nil>"}
		var encoded, withheld []string
		for k, into := range map[string]any{"_base64": &encoded, "_withheld": &withheld} {
			if raw[k] != nil {
				if err := json.Unmarshal(raw[k], into); err != nil {
					t.Fatal(err)
				}
				delete(raw, k)
			}
		}
		if len(withheld) > 0 {
			row["_withheld"] = "true"
		}
		if raw["_status"] != nil {
			var st struct{ Kind, At string }
			if err := json.Unmarshal(raw["_status"], &st); err != nil {
				t.Fatal(err)
			}
			row["_status"], row["_status_at"] = st.Kind, st.At
			delete(raw, "_status")
		}
		for k, v := range raw {
			var text *string
			if err := json.Unmarshal(v, &text); err != nil {
				t.Fatal(k, err)
			}
			row[k] = "<nil>"
			if text != nil {
				row[k] = *text
			}
			if slices.Contains(encoded, k) {
				row[k] = decode(t, *text)
			}
			if (row[k] == "<nil>") != slices.Contains(withheld, k) && slices.Contains(withheld, k) {
				t.Errorf("column %s is withheld and there", k)
			}
		}
		all = append(all, row)
	}
	return all
}

func decode(t testing.TB, text string) string {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func readCSV(t testing.TB, data []byte) (all table) {
	t.Helper()
	records, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	for _, rec := range records[1:] {
		row := map[string]string{}
		for i, v := range rec {
			name, binary := strings.CutSuffix(records[0][i], ":base64")
			switch {
			case v == `\N`:
				row[name] = "<nil>"
			case binary:
				row[name] = decode(t, v)
			case strings.HasSuffix(v, "N") && strings.Trim(v[:len(v)-1], `\`) == "" && len(v) > 1:
				row[name] = v[1:]
			default:
				row[name] = v
			}
		}
		all = append(all, row)
	}
	return all
}

// same compares the columns that the wanted rows name.
func same(t *testing.T, name string, got, want table) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d rows, want %d", name, len(got), len(want))
	}
	for i, w := range want {
		for k, v := range w {
			if g, ok := got[i][k]; !ok || g != v {
				t.Errorf("%s: row %d, column %s reads %q, want %q", name, i, k, g, v)
			}
		}
	}
}
