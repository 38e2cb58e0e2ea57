package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/message"
)

func lookup(env map[string]string) Lookup {
	return Lookup{
		Env: func(n string) (string, bool) { v, ok := env[n]; return v, ok },
		File: func(p string) ([]byte, error) {
			if v, ok := env["file:"+p]; ok {
				return []byte(v), nil
			}
			return nil, fmt.Errorf("open %s: %w", p, fs.ErrNotExist)
		},
	}
}

func read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The whole file of the design, with every key at its default, is taken, and its
// values are the defaults that a small file gets.
func TestDefaultsAreTheDesigns(t *testing.T) {
	env := map[string]string{"WARM_PASSWORD": "p@ss:w/o?r#d{}", "MANIFEST_PASSWORD": "other"}
	full, err := Parse("full.yaml", []byte(read(t, "full.yaml")), lookup(env))
	if err != nil {
		t.Fatal(err)
	}
	small, err := Parse("small.yaml", []byte(read(t, "small.yaml")), lookup(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := full.Source.Databases[0].DSN; got.password.Reveal() != env["WARM_PASSWORD"] || got.Database() != "im_00" {
		t.Errorf("a password of special characters did not come through: %q", got.password.Reveal())
	}
	if full.Archive != small.Archive || full.Purge != small.Purge || !reflect.DeepEqual(full.Fetch, small.Fetch) || !reflect.DeepEqual(full.Drill, small.Drill) || !reflect.DeepEqual(full.Schedule, small.Schedule) {
		t.Errorf("defaults differ from the design:\n%+v\n%+v", full, small)
	}
	if full.Archive.After != 180*24*time.Hour || full.Archive.Memory != 512<<20 || full.Purge.Lag != 168*time.Hour || full.Purge.MaxReplicaLag != 5*time.Second {
		t.Errorf("%+v %+v", full.Archive, full.Purge)
	}
	want := Fetch{Listen: "127.0.0.1:8080", Budget: 800 * time.Millisecond, HedgeAfter: 150 * time.Millisecond, FillTimeout: 10 * time.Second,
		Cache: 256 << 20, MaxLimit: 200, Limits: Limits{256, 64, 8}, Drain: 5 * time.Second}
	if !reflect.DeepEqual(full.Fetch, want) {
		t.Errorf("%+v, want %+v", full.Fetch, want)
	}
	if full.Bucket.Region != small.Bucket.Region || full.Bucket.StorageClass != small.Bucket.StorageClass || small.ClickHouse.Protocol != "native" ||
		small.ClickHouse.Database != "cold" || small.ClickHouse.Username != "default" || small.Source.Layout.Shift != 22 || small.Source.Zone != time.UTC {
		t.Errorf("%+v %+v", full.Bucket, small)
	}
	if full.Source.Columns[message.Sequence] != "seq" || len(full.Source.Columns) != 8 {
		t.Errorf("columns: %v", full.Source.Columns)
	}
}

// Each fault names its line and column and what is wanted instead.
func TestFaultsHavePositions(t *testing.T) {
	small := read(t, "small.yaml")
	tests := []struct{ name, old, new, want string }{
		{"unknown key", "  name: cold", "  name: cold\n  colour: red", `15:3: bucket: unknown key colour (known: name, prefix, `},
		{"unknown section", "manifest:", "serve: {}\nmanifest:", `11:1: unknown key serve (known: source, `},
		{"unknown role", "    message_id: msg_id", "    message_id: msg_id\n    colour: x", `10:5: source.columns: unknown key colour`},
		{"key twice", "  name: cold", "  name: cold\n  name: cold", `15:3: the key is set twice`},
		{"key twice in flow", "  addrs: [ch:9000]", "  {addrs: [ch:9000], addrs: [ch:9000]}", `16:22: the key is set twice`},
		{"missing key", "  name: cold", "  prefix: im", `13:1: bucket.name: missing: want the bucket's name`},
		{"missing section", "bucket:\n  name: cold\n", "", `1:1: bucket.name: missing`},
		{"missing epoch", "    epoch: 2015-01-01T00:00:00Z", "    time_shift: 22", `3:3: source.snowflake.epoch: missing`},
		{"missing message_id", "    message_id: msg_id\n", "", `8:3: source.columns.message_id: missing`},
		{"section is text", "bucket:\n  name: cold", "bucket: cold", `13:9: bucket: want a mapping of keys, not a text`},
		{"section is empty", "bucket:\n  name: cold", "bucket:", `13:8: bucket: want a mapping of keys, not nothing`},
		{"text is number", "name: im", "name: 12", `2:9: source.name: want a text, not a number: put it in quotes`},
		{"text is bool", "name: im", "name: true", `2:9: source.name: want a text, not a boolean: put it in quotes`},
		{"text is list", "name: im", "name: [im]", `source.name: want a text, not a list`},
		{"text is null", "name: im", "name: ~", `2:9: source.name: want a text, not nothing`},
		{"list is text", "tables: [msg_*]", "tables: msg_*", `7:11: source.tables: want a list, not a text`},
		{"list is empty", "tables: [msg_*]", "tables: []", `7:11: source.tables: the list is empty`},
		{"bad name", "name: im", "name: a/b", `2:9: source.name: want 1 to 64 letters`},
		{"bad glob", "tables: [msg_*]", "tables: [a, 'msg_[']", `7:15: source.tables[1]: not a pattern`},
		{"bad zone", "name: im", "name: im\n  timezone: Mars/Olympus", `3:13: source.timezone: unknown time zone`},
		{"local zone", "name: im", "name: im\n  timezone: Local", `3:13: source.timezone: want a time zone such as UTC`},
		{"bad epoch", "2015-01-01T00:00:00Z", "2015-01-01", `4:12: source.snowflake.epoch: want an instant such as 2015-01-01T00:00:00Z`},
		{"epoch of year 1", "2015-01-01T00:00:00Z", "0001-01-01T00:00:01Z", `4:12: source.snowflake.epoch: snowflake epoch 0001`},
		{"epoch as number", "2015-01-01T00:00:00Z", "1420070400000", `4:12: source.snowflake.epoch: want an instant such as 2015-01-01T00:00:00Z`},
		{"epoch of microseconds", "2015-01-01T00:00:00Z", "2015-01-01T00:00:00.000001Z", `4:12: source.snowflake.epoch: want whole milliseconds`},
		{"bad shift", "    epoch:", "    time_shift: 33\n    epoch:", `4:17: source.snowflake.time_shift: want a whole number of 0..32`},
		{"shift in quotes", "    epoch:", "    time_shift: '22'\n    epoch:", `4:17: source.snowflake.time_shift: want a whole number`},
		{"negative shift", "    epoch:", "    time_shift: -1\n    epoch:", `4:17: source.snowflake.time_shift: want a whole number`},
		{"no database in DSN", "/coldtier", "/", `12:8: manifest.dsn: MySQL address without a database`},
		{"no user in DSN", "u:hunter2hunter2@tcp(db:3306)/coldtier", "tcp(db:3306)/coldtier", `12:8: manifest.dsn: not a MySQL address: want USER`},
		{"bad replica", "/im_00", "/im_00\n      replicas: [x]", `7:18: source.databases[0].replicas[0]: not a MySQL address`},
		{"database key", "/im_00", "/im_00\n      lag: 1s", `7:7: source.databases[0]: unknown key lag (known: dsn, replicas)`},
		{"database is text", "- dsn: u:", "- u:", `6:7: source.databases[0]: want a mapping of keys, not a text`},
		{"bad bucket", "name: cold", "name: Cold", `14:9: bucket.name: want a bucket's name`},
		{"bad prefix", "name: cold", "name: cold\n  prefix: /im", `15:11: bucket.prefix: want a key prefix`},
		{"bad endpoint", "name: cold", "name: cold\n  endpoint: s3.local:9000", `15:13: bucket.endpoint: want http://HOST`},
		{"endpoint with secret", "name: cold", "name: cold\n  endpoint: http://k:hunter2hunter2@s3", `15:13: bucket.endpoint: want http://HOST:PORT or https://HOST:PORT (credentials`},
		{"bad flag", "name: cold", "name: cold\n  path_style: yes", `15:15: bucket.path_style: want true or false`},
		{"archive class", "name: cold", "name: cold\n  storage_class: DEEP_ARCHIVE", `15:18: bucket.storage_class: want one of: STANDARD, `},
		{"key without kms", "name: cold", "name: cold\n  kms_key: x", `15:12: bucket.kms_key: has no effect without sse: aws:kms`},
		{"bad addr", "[ch:9000]", "[ch:9000, ch]", `16:20: clickhouse.addrs[1]: want HOST:PORT`},
		{"bad port", "[ch:9000]", "['ch:99999']", `16:11: clickhouse.addrs[0]: want HOST:PORT`},
		{"bad protocol", "[ch:9000]", "[ch:9000]\n  protocol: https", `17:13: clickhouse.protocol: want one of: native, http`},
		{"bad duration", "bucket:", "archive: {after: 180}\nbucket:", `13:18: archive.after: want a duration such as 800ms, 168h or 180d`},
		{"bad duration unit", "bucket:", "archive: {after: 6months}\nbucket:", `13:18: archive.after: want a duration such as 800ms, 168h or 180d`},
		{"negative duration", "bucket:", "purge: {lag: -1h}\nbucket:", `13:14: purge.lag: want a duration`},
		{"endless duration", "bucket:", "purge: {lag: 106752d}\nbucket:", `13:14: purge.lag: want a duration`},
		{"bad size", "bucket:", "archive: {memory: 512MB}\nbucket:", `13:19: archive.memory: want a size such as 128KiB`},
		{"small size", "bucket:", "archive: {memory: 1MiB}\nbucket:", `13:19: archive.memory: want at least 64MiB`},
		{"endless size", "bucket:", "archive: {memory: 9999999999TiB}\nbucket:", `13:19: archive.memory: want a size`},
		{"bad strategy", "bucket:", "purge: {strategy: fast}\nbucket:", `13:19: purge.strategy: want one of: auto, partition, rows`},
		{"bad hours", "bucket:", "purge: {hours: '25:00-26:00'}\nbucket:", `13:16: purge.hours: want hours such as`},
		{"hours as number", "bucket:", "purge: {hours: 22}\nbucket:", `13:16: purge.hours: want hours such as`},
		{"size as number", "bucket:", "archive: {memory: 536870912}\nbucket:", `13:19: archive.memory: want a size such as`},
		{"duration as boolean", "bucket:", "purge: {lag: true}\nbucket:", `13:14: purge.lag: want a duration`},
		{"query that changes", "bucket:", "purge: {pause_query: 'DROP TABLE m'}\nbucket:", `13:22: purge.pause_query: want a statement that begins with SELECT, WITH or SHOW`},
		{"empty query", "bucket:", "purge: {pause_query: ' '}\nbucket:", `13:22: purge.pause_query: want a statement that begins with SELECT, WITH or SHOW`},
		{"empty hours", "bucket:", "purge: {hours: '02:00-02:00'}\nbucket:", `13:16: purge.hours: want hours such as`},
		{"huge number", "bucket:", "fetch: {max_limit: 99999999999999999999}\nbucket:", `13:20: fetch.max_limit: want a whole number`},
		{"later: packed", "bucket:", "archive: {layout: packed}\nbucket:", `13:19: archive.layout: not in this version: remove the key or leave it at its default, conversation`},
		{"unknown auth", "bucket:", "fetch: {auth: {token: hunter2hunter2}}\nbucket:", `13:16: fetch.auth: unknown key token (known: clients, tokens, jwt, insecure_transport)`},
		{"bad listen", "bucket:", "fetch: {listen: '8080'}\nbucket:", `13:17: fetch.listen: want HOST:PORT`},
		{"bad listen port", "bucket:", "fetch: {listen: '127.0.0.1:http'}\nbucket:", `13:17: fetch.listen: want HOST:PORT`},
		{"open without callers", "bucket:", "fetch: {listen: ':8080'}\nbucket:", `13:17: fetch.listen: anybody who reaches this address could read all messages`},
		{"open by name", "bucket:", "fetch: {listen: 'localhost.example:8080'}\nbucket:", `fetch.listen: anybody who reaches this address`},
		{"open with TLS alone", "bucket:", "fetch: {listen: '[::]:8080', tls: {cert: c, key: k}}\nbucket:", `fetch.listen: anybody who reaches this address`},
		{"tokens in the clear", "bucket:", "fetch: {listen: '0.0.0.0:8080', auth: {tokens: t}}\nbucket:", `13:17: fetch.listen: tokens would cross the network in the clear`},
		{"JWTs in the clear", "bucket:", "fetch: {listen: '0.0.0.0:8080', auth: {jwt: {issuer: i, audience: a, jwks: j}}}\nbucket:", `13:17: fetch.listen: tokens would cross`},
		{"budget too small", "bucket:", "fetch: {budget: 9ms}\nbucket:", `13:17: fetch.budget: want 10ms to 1m0s`},
		{"budget too big", "bucket:", "fetch: {budget: 61s}\nbucket:", `13:17: fetch.budget: want 10ms to 1m0s`},
		{"late hedge", "bucket:", "fetch: {hedge_after: 800ms}\nbucket:", `13:22: fetch.hedge_after: want hedge_after (800ms) below budget (800ms)`},
		{"budget below the hedge", "bucket:", "fetch: {budget: 100ms}\nbucket:", `13:17: fetch.budget: want hedge_after (150ms) below budget (100ms)`},
		{"small cache", "bucket:", "fetch: {cache: 1MiB}\nbucket:", `13:16: fetch.cache: want at least 16MiB`},
		{"no calls", "bucket:", "fetch: {limits: {process: 0}}\nbucket:", `13:27: fetch.limits.process: want a whole number of 1..1000000`},
		{"certificate without key", "bucket:", "fetch: {tls: {cert: c}}\nbucket:", `13:21: fetch.tls.cert: want both cert and key`},
		{"client CA without certificate", "bucket:", "fetch: {tls: {client_ca: c}}\nbucket:", `13:26: fetch.tls.client_ca: has no effect without cert`},
		{"clients without CA", "bucket:", "fetch: {auth: {clients: [a]}}\nbucket:", `13:26: fetch.auth.clients[0]: has no effect without fetch.tls.client_ca`},
		{"half a JWT", "bucket:", "fetch: {auth: {jwt: {audience: a, jwks: j}}}\nbucket:", `13:32: fetch.auth.jwt.audience: want all of issuer, audience and jwks`},
		{"keys by http", "bucket:", "fetch: {auth: {jwt: {issuer: i, audience: a, jwks: 'http://hunter2@x/'}}}\nbucket:", `fetch.auth.jwt.jwks: want a file or an https URL`},
		{"bad schedule", "bucket:", "schedule: {archive: '0 24 * * *'}\nbucket:", `13:21: schedule.archive: want five fields, minute hour day-of-month month day-of-week, such as 0 2 * * *: end of range (24) above maximum (23): 24`},
		{"schedule of four fields", "bucket:", "schedule: {archive: '', drill: '0 2 * *'}\nbucket:", `13:32: schedule.drill: want five fields`},
		{"schedule by a word", "bucket:", "schedule: {purge: '@daily'}\nbucket:", `13:19: schedule.purge: want five fields`},
		{"schedule as number", "bucket:", "schedule: {verify: 5}\nbucket:", `13:20: schedule.verify: want five fields`},
		{"schedule that is never due", "bucket:", "schedule: {patrol: '0 0 31 2 *'}\nbucket:", `13:20: schedule.patrol: it is never due`},
		{"schedule in no zone", "bucket:", "schedule: {timezone: Local}\nbucket:", `13:22: schedule.timezone: want a time zone`},
		{"schedule of an unknown job", "bucket:", "schedule: {restore: '0 2 * * *'}\nbucket:", `schedule: unknown key restore`},
		{"sample of nothing", "bucket:", "schedule: {verify_sample: 0/8}\nbucket:", `13:27: schedule.verify_sample: want a part such as 1/8`},
		{"later: body", "manifest:", "  body: {tables: [x]}\nmanifest:", `source.body.tables: not in this version`},
		{"unset variable", "hunter2hunter2@tcp(db:3306)/coldtier", "${NOT_SET}@tcp(db:3306)/coldtier", `12:8: manifest.dsn: environment variable NOT_SET is not set`},
		{"missing file", "hunter2hunter2@tcp(db:3306)/coldtier", "${file:/no/such}@tcp(db:3306)/coldtier", `12:8: manifest.dsn: file /no/such does not exist`},
		{"open variable", "hunter2hunter2@tcp(db:3306)/coldtier", "${NOT_SET", `12:8: manifest.dsn: ${ without its }`},
		{"odd variable", "hunter2hunter2@tcp(db:3306)/coldtier", "${A-B}", `12:8: manifest.dsn: ${...} wants the name`},
		{"bare variable in flow", "manifest:\n  dsn: u:hunter2hunter2@", "manifest: {dsn: u:${X}@", `11:23: '@' is a reserved character (inside {...} or [...] put a value that has ${...} in quotes)`},
		{"broken YAML", "name: cold", "name: 'cold", `14:9: could not find end character`},
		{"tab", "  name: cold", "\tname: cold", `14:`},
		{"anchor", "name: cold", "name: &x cold", `14:9: bucket.name: want a text, not an anchor or alias`},
		{"alias", "name: cold", "name: *x", `14:9: bucket.name: want a text, not an anchor or alias`},
		{"tag", "name: cold", "name: !!str cold", `14:9: bucket.name: want a text, not a tag`},
		{"second document", "bucket:", "---\nbucket:", `a second document`},
		{"too deep", "bucket:", "x: " + strings.Repeat("[", 1000) + "\nbucket:", `13:68: nested too deeply`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(small, tt.old) {
				t.Fatalf("the file has no %q", tt.old)
			}
			_, err := Parse("c.yaml", []byte(strings.Replace(small, tt.old, tt.new, 1)), lookup(nil))
			if err == nil {
				t.Fatal("taken")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error\n%v\nwant\n%s", err, tt.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the password: %v", err)
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("the error is a %T", err)
			}
			checkLines(t, err)
		})
	}
	for name, in := range map[string]string{"empty": "", "comment": "# only\n", "scalar": "hunter2hunter2", "list": "[hunter2hunter2]", "huge": strings.Repeat("#\n", maxFile)} {
		if _, err := Parse("c.yaml", []byte(in), lookup(nil)); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.HasPrefix(err.Error(), "c.yaml:1:1: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load("testdata/none.yaml", System()); err == nil || !strings.Contains(err.Error(), "--config FILE") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func checkLines(t testing.TB, err error) {
	t.Helper()
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !regexp.MustCompile(`^c\.yaml:[1-9][0-9]*:[1-9][0-9]*: `).MatchString(line) {
			t.Errorf("no position in %q", line)
		}
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	_, err := Parse("c.yaml", []byte("bucket: {name: X, colour: red}\narchive: {after: x}\n"), lookup(nil))
	if err == nil {
		t.Fatal("taken")
	}
	want := []string{"c.yaml:1:1: source.name: missing", "c.yaml:1:1: manifest.dsn", "c.yaml:1:16: bucket.name", "c.yaml:1:19: bucket: unknown key colour", "c.yaml:2:18: archive.after"}
	rest := err.Error()
	for _, w := range want { // in this order
		_, after, ok := strings.Cut(rest, w)
		if !ok {
			t.Fatalf("no %q in the rest of\n%v", w, err)
		}
		rest = after
	}
}

// What may listen where: with callers that are known, and tokens that stay secret.
func TestListening(t *testing.T) {
	small := read(t, "small.yaml")
	for _, in := range []string{
		"{listen: '127.0.0.1:0'}", "{listen: '[::1]:8080'}", "{listen: 'localhost:8080'}", "{listen: '127.0.0.1:1', auth: {tokens: t}}",
		"{listen: ':8080', tls: {cert: c, key: k, client_ca: a}}",
		"{listen: ':8080', tls: {cert: c, key: k}, auth: {tokens: t}}",
		"{listen: ':8080', tls: {cert: c, key: k}, auth: {jwt: {issuer: i, audience: a, jwks: 'https://x/keys'}}}",
		"{listen: 'history.internal:8080', auth: {tokens: t, insecure_transport: true}}",
	} {
		if _, err := Parse("c.yaml", []byte(small+"fetch: "+in+"\n"), lookup(nil)); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// A variable's value is data: it cannot add keys, whatever it holds.
func TestVariablesCannotChangeTheStructure(t *testing.T) {
	env := map[string]string{
		"P": "x\nbucket: {name: evil}\n# '\" ]} ", "file:/run/secret": "from-file\r\n", "N": "7", "B": "true", "CH": "host-1:9000",
	}
	in := strings.NewReplacer(
		"u:hunter2hunter2@tcp(db:3306)/coldtier", "'u:${P}@tcp(db:3306)/coldtier'",
		"[ch:9000]", "['${CH}']\n  password: ${file:/run/secret}\n  username: a$${b}$c\nfetch: {max_limit: '${N}'}",
		"name: cold", "name: cold\n  path_style: ${B}",
	).Replace(read(t, "small.yaml"))
	c, err := Parse("c.yaml", []byte(in), lookup(env))
	if err != nil {
		t.Fatal(err)
	}
	if c.Manifest.DSN.password.Reveal() != env["P"] || c.Bucket.Name != "cold" {
		t.Errorf("password %q, bucket %q", c.Manifest.DSN.password.Reveal(), c.Bucket.Name)
	}
	if c.ClickHouse.Password.Reveal() != "from-file" || c.ClickHouse.Username != "a${b}$c" || c.ClickHouse.Addrs[0] != "host-1:9000" || c.Fetch.MaxLimit != 7 || !c.Bucket.PathStyle {
		t.Errorf("%+v %+v %q", c.ClickHouse, c.Fetch, c.ClickHouse.Password.Reveal())
	}
}

// Whatever prints a configuration, no password is in it.
func TestSecretsAreNeverPrinted(t *testing.T) {
	in := strings.Replace(read(t, "small.yaml"), "[ch:9000]", "[ch:9000]\n  password: hunter2hunter2", 1)
	c, err := Parse("c.yaml", []byte(in), lookup(nil))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, v := range []any{c, *c, c.Manifest.DSN, &c.Manifest.DSN, c.ClickHouse, c.ClickHouse.Password, struct{ c Config }{*c}, struct{ s Secret }{c.ClickHouse.Password}, struct{ r *Redactor }{c.Redactor}, c.Redactor} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&b, verb+"\n", v)
		}
		if j, err := json.Marshal(v); err == nil {
			b.Write(j)
		}
		slog.New(slog.NewTextHandler(&b, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "v", v)
	}
	if strings.Contains(b.String(), "hunter2") || strings.Contains(b.String(), fmt.Sprintf("%x", "hunter2")) {
		i := strings.Index(b.String(), "hunter2")
		t.Errorf("a password in ...%.200s", b.String()[max(i-100, 0):])
	}
	if got := c.Manifest.DSN.String(); got != "u:***@tcp(db:3306)/coldtier" {
		t.Errorf("DSN prints as %s", got)
	}
	if c.Manifest.DSN.Reveal() != "u:hunter2hunter2@tcp(db:3306)/coldtier" {
		t.Error("the DSN itself changed")
	}
}

func TestRedactor(t *testing.T) {
	var r Redactor
	r.Add("long p@ss/word")
	r.Add("long p@ss/word and more")
	r.Add("test")
	for in, want := range map[string]string{
		"dial u:long p@ss/word@tcp":        "dial u:***@tcp",
		"x long p@ss/word and more x":      "x *** x",
		"http://u:long%20p%40ss%2Fword@h":  "http://u:***@h",
		"the latest test of test:test@tcp": "the latest test of test:***@tcp",
	} {
		if got := r.Text(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	var b strings.Builder
	if n, err := r.Writer(&b).Write([]byte("a long p@ss/word b")); n != 18 || err != nil || b.String() != "a *** b" {
		t.Errorf("%d %v %q", n, err, b.String())
	}
	if got := (*Redactor)(nil).Text("x"); got != "x" {
		t.Errorf("no redactor: %q", got)
	}
}

// An error about an address never quotes it: the driver's own would show the
// password of one without "@".
func TestBadDSNsAreNotQuoted(t *testing.T) {
	for _, s := range []string{"u:hunter2/db", "hunter2", "u:hunter2@db/x", "u:hunter2@tcp(db:3306)", "u:hunter2@tcp(db/x", "u:hunter2@tcp(db)/x?tls=hunter2", "u:hunter2@tcp(db)/x?timeout=hunter2", "@tcp(h)/hunter2", "u:hunter2@tcp(h)/"} {
		if _, err := ParseDSN(s); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestValues(t *testing.T) {
	for in, want := range map[string]time.Duration{"800ms": 800 * time.Millisecond, "168h": 168 * time.Hour, "180d": 180 * day, "1d12h": 36 * time.Hour, "0s": 0, "0d": 0, "1h30m": 90 * time.Minute} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "d", "0", "1", "-1d", "1d-1h", "1h1d", "1.5d", "+1h", "1w", "106751d24h", "1d ", "NaNh", "1e3h"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("%q is taken as %v", in, got)
		}
	}
	for in, want := range map[string]int64{"128KiB": 128 << 10, "10GiB": 10 << 30, "7B": 7, "1MiB": 1 << 20, "2TiB": 2 << 40} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "B", "1", "1KB", "1 KiB", "-1B", "1.5GiB", "8388608TiB", "1kib"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("%q is taken as %v", in, got)
		}
	}
	for in, ok := range map[string]bool{"": true, "22:00-06:00": true, "00:00-24:00": true, "23:59-24:00": true, "22:00-06:00, 12:00-13:00": true, "22:00-22:00": false, "9:00-10:00": false, "22:00": false, "24:00-01:00": false, "01:00-02:60": false, "a-b": false} {
		if err := checkHours(in); (err == nil) != ok {
			t.Errorf("hours %q: %v", in, err)
		}
	}
}

// Nothing makes the reader panic, and every error has its place.
func FuzzParse(f *testing.F) {
	for _, s := range []string{read(f, "full.yaml"), read(f, "small.yaml"), "", "a: [", "source: {databases: [{dsn: ~}, 1, [], {}]}", "source: {columns: {message_id: |\n x}}", "? a\n: b\n", "<<: {a: 1}\n", "bucket: &a {x: *a}\n", "%YAML 1.2\n---\na: b\n...\n", "archive: {after: ${X}}"} {
		f.Add([]byte(s))
	}
	env := lookup(map[string]string{"X": "hunter2hunter2", "WARM_PASSWORD": "hunter2hunter2", "MANIFEST_PASSWORD": "hunter2hunter2"})
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("c.yaml", data, env)
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
		if err != nil {
			checkLines(t, err)
			if strings.Contains(err.Error(), "hunter2hunter2") && !strings.Contains(string(data), "hunter2") {
				t.Fatalf("a variable's value in %v", err)
			}
			return
		}
		if s := fmt.Sprintf("%+v", c); strings.Contains(s, "hunter2hunter2") && !strings.Contains(string(data), "hunter2") && strings.Contains(s, ":hunter2") {
			t.Fatalf("a password in %s", s)
		}
	})
}
