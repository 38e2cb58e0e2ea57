package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
)

// Load reads and checks the file at path. Everything wrong with it is in the
// error, as *Error values.
func Load(path string, l Lookup) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		why := "cannot be read"
		if errors.Is(err, os.ErrNotExist) {
			why = "does not exist; name the configuration with --config FILE"
		}
		return nil, &Error{File: path, Message: "the file " + why}
	}
	return Parse(path, data, l)
}

// Parse is Load for a file already read; name is what errors call it.
func Parse(name string, data []byte, l Lookup) (*Config, error) {
	c := defaults()
	c.Redactor = &Redactor{}
	d := &decoder{file: name, lookup: l, redactor: c.Redactor}
	if root := d.parse(data); root != nil {
		if m, ok := d.mapping(root, "", at(root)); ok {
			d.config(m, &c)
		}
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return &c, nil
}

func (d *decoder) config(m *mapping, c *Config) {
	m.section("source", true, func(s *mapping) { d.source(s, &c.Source) })
	m.section("manifest", true, func(s *mapping) {
		s.require("dsn", "the address of the manifest's MySQL database")
		s.dsn("dsn", &c.Manifest.DSN)
		s.formatted("lease", func(t string) (err error) {
			if c.Manifest.Lease, err = ParseDuration(t); err == nil && (c.Manifest.Lease < time.Second || c.Manifest.Lease > time.Hour) {
				err = errors.New("want 1s to 1h")
			}
			return err
		})
	})
	m.section("bucket", true, func(s *mapping) { bucket(s, &c.Bucket) })
	m.section("clickhouse", true, func(s *mapping) { clickhouse(s, &c.ClickHouse) })
	m.section("archive", false, func(s *mapping) { archive(s, &c.Archive) })
	m.section("purge", false, func(s *mapping) { purge(s, &c.Purge) })
	m.section("prices", false, func(s *mapping) { costs(s, &c.Prices) })
	m.section("fetch", false, func(s *mapping) { fetch(s, &c.Fetch) })
	m.section("drill", false, func(s *mapping) { drill(s, &c.Drill) })
	m.section("canary", false, func(s *mapping) { d.canary(s, &c.Canary) })
	m.section("metrics", false, func(s *mapping) { d.metrics(s, &c.Metrics) })
	m.section("traces", false, func(s *mapping) { d.traces(s, &c.Traces) })
	m.section("schedule", false, func(s *mapping) { schedule(s, &c.Schedule) })
	m.end()
}

func (d *decoder) source(m *mapping, s *Source) {
	m.require("name", "a name for this platform, such as im")
	m.text("name", &s.Name, checkName)
	m.value("timezone", func(t string) (err error) {
		s.Zone, err = parseZone(t)
		return err
	})
	m.section("snowflake", true, func(m *mapping) {
		shift := int(s.Layout.Shift)
		m.number("time_shift", &shift, 0, snowflake.MaxShift)
		s.Layout.Shift = uint(shift)
		m.require("epoch", "the instant of ID 0, such as 2015-01-01T00:00:00Z")
		m.formatted("epoch", func(t string) error {
			e, err := time.Parse(time.RFC3339, t)
			if err != nil {
				return errors.New("want an instant such as 2015-01-01T00:00:00Z")
			}
			if e.Nanosecond()%int(time.Millisecond) != 0 {
				return errors.New("want whole milliseconds")
			}
			s.Layout.Epoch = e.UTC()
			return s.Layout.Validate()
		})
	})
	m.require("databases", "a list of warm databases")
	m.list("databases", 1, func(n ast.Node, path string) {
		db, ok := d.mapping(n, path, at(n))
		if !ok {
			return
		}
		var one Database
		db.require("dsn", "the address of a warm MySQL database")
		db.dsn("dsn", &one.DSN)
		db.list("replicas", 0, func(n ast.Node, path string) {
			var r DSN
			d.dsn(n, path, &r)
			one.Replicas = append(one.Replicas, r)
		})
		db.end()
		s.Databases = append(s.Databases, one)
	})
	m.require("tables", "a list of table names or patterns")
	m.texts("tables", &s.Tables, 1, checkGlob)
	s.Columns = map[message.Role]string{}
	m.section("columns", true, func(m *mapping) {
		m.require(message.MessageID.String(), "the name of the column with the message ID")
		m.require(message.ConversationID.String(), "the name of the column with the conversation ID")
		for _, r := range message.Roles() {
			var name string
			m.text(r.String(), &name, checkColumn)
			if name != "" {
				s.Columns[r] = name
			}
		}
	})
	m.section("body", false, func(m *mapping) {
		m.laterEmpty("databases")
		m.laterEmpty("tables")
		m.laterEmpty("columns")
	})
}

func bucket(m *mapping, b *Bucket) {
	m.require("name", "the bucket's name")
	m.text("name", &b.Name, checkBucketName)
	m.text("prefix", &b.Prefix, checkPrefix)
	m.text("region", &b.Region, func(s string) error {
		if s == "" { // the SDK's own configuration has it
			return nil
		}
		return checkName(s)
	})
	m.text("endpoint", &b.Endpoint, checkEndpoint)
	m.flag("path_style", &b.PathStyle)
	m.flag("compatible", &b.Compatible)
	m.size("quota", &b.Quota, 0, math.MaxInt64)
	// The classes that need thawing are left out: a copy is read back right after
	// it was written.
	m.text("storage_class", &b.StorageClass, checkOneOf("STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "REDUCED_REDUNDANCY"))
	m.text("sse", &b.SSE, checkOneOf("", "AES256", "aws:kms", "aws:kms:dsse"))
	m.text("kms_key", &b.KMSKey, func(s string) error {
		if s != "" && !strings.HasPrefix(b.SSE, "aws:kms") {
			return errors.New("has no effect without sse: aws:kms")
		}
		return nil
	})
}

func clickhouse(m *mapping, c *ClickHouse) {
	m.require("addrs", "a list of HOST:PORT")
	m.texts("addrs", &c.Addrs, 1, checkAddr)
	m.text("protocol", &c.Protocol, checkOneOf("native", "http"))
	m.text("database", &c.Database, checkIdentifier)
	m.text("username", &c.Username, nil)
	m.secret("password", &c.Password)
	m.text("cluster", &c.Cluster, func(s string) error {
		if s == "" {
			return nil
		}
		return checkName(s)
	})
	m.flag("tls", &c.TLS)
}

func archive(m *mapping, a *Archive) {
	m.duration("after", &a.After)
	m.later("layout", "conversation")
	m.later("pack_below", "128KiB")
	m.size("memory", &a.Memory, 64<<20, math.MaxInt64)
	m.number("workers", &a.Workers, 0, 256)
	m.number("per_server", &a.PerServer, 0, 1024)
	m.text("verify", &a.Verify, checkOneOf("full", "later"))
	pace(m, &a.Pace)
}

func purge(m *mapping, p *Purge) {
	m.duration("lag", &p.Lag)
	m.text("strategy", &p.Strategy, checkOneOf("auto", "partition", "rows"))
	m.text("approval", &p.Approval, checkOneOf("none", "required"))
	pace(m, &p.Pace)
}

// section reads a mapping under a key; a required one that is missing is read as
// empty, so that each of its required keys is reported.
func (m *mapping) section(key string, required bool, read func(*mapping)) {
	n, ok := m.get(key)
	if !ok && !required {
		return
	}
	p := m.pos
	if ok {
		p = m.keys[key]
	}
	if s, ok := m.d.mapping(n, join(m.path, key), p); ok {
		read(s)
		s.end()
	}
}

// value reads a scalar that is written as text.
func (m *mapping) value(key string, set func(string) error) {
	if n, ok := m.get(key); ok {
		m.d.value(n, join(m.path, key), set)
	}
}

// scalar gives a value's text with its variables put in. bare says that it was
// written without quotes and is no text by YAML's rules (a number, a boolean).
func (d *decoder) scalar(n ast.Node, path, want string) (text string, bare, ok bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.LiteralNode:
		if n.Value != nil {
			text = n.Value.Value
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true, true
	default:
		d.fail(at(n), path, "want %s, not %s", want, describe(n))
		return "", false, false
	}
	text, gave, err := d.lookup.expand(text)
	if err != nil {
		d.fail(at(n), path, "%v", err)
		return "", false, false
	}
	// A number or a boolean may come from a variable; from quotes it may not.
	return text, len(gave) > 0, true
}

// formatted reads a scalar of a form that no number and no boolean has, so that set's
// own error tells best what is wrong with one.
func (m *mapping) formatted(key string, set func(string) error) {
	if n, ok := m.get(key); ok {
		m.d.read(n, join(m.path, key), false, set)
	}
}

func (d *decoder) value(n ast.Node, path string, set func(string) error) { d.read(n, path, true, set) }

func (d *decoder) read(n ast.Node, path string, text bool, set func(string) error) {
	n = rejoin(n)
	s, _, ok := d.scalar(n, path, "a text")
	if !ok {
		return
	}
	if text && !textual(n) {
		d.fail(at(n), path, "want a text, not %s: put it in quotes", describe(n))
		return
	}
	if strings.ContainsRune(s, 0) {
		d.fail(at(n), path, "holds a NUL character")
		return
	}
	if err := set(s); err != nil {
		d.fail(at(n), path, "%v", err)
	}
}

func textual(n ast.Node) bool {
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return true
	}
	return false
}

func (m *mapping) text(key string, dst *string, check func(string) error) {
	m.value(key, func(s string) error {
		*dst = s
		if check != nil {
			return check(s)
		}
		return nil
	})
}

func (m *mapping) secret(key string, dst *Secret) {
	m.value(key, func(s string) error {
		m.d.redactor.Add(s)
		*dst = NewSecret(s)
		return nil
	})
}

func (m *mapping) dsn(key string, dst *DSN) {
	if n, ok := m.get(key); ok {
		m.d.dsn(n, join(m.path, key), dst)
	}
}

func (d *decoder) dsn(n ast.Node, path string, dst *DSN) {
	d.value(n, path, func(s string) (err error) {
		*dst, err = ParseDSN(s)
		d.redactor.AddDSN(*dst)
		return err
	})
}

func (m *mapping) duration(key string, dst *time.Duration) {
	m.formatted(key, func(s string) (err error) {
		*dst, err = ParseDuration(s)
		return err
	})
}

func (m *mapping) size(key string, dst *int64, least, most int64) {
	m.formatted(key, func(s string) (err error) {
		if *dst, err = ParseSize(s); err == nil && (*dst < least || *dst > most) {
			return fmt.Errorf("want at least %dMiB", least>>20)
		}
		return err
	})
}

func (m *mapping) number(key string, dst *int, least, most int) {
	n, ok := m.get(key)
	if !ok {
		return
	}
	want := fmt.Sprintf("a whole number of %d..%d", least, most)
	text, bare, ok := m.d.scalar(n, join(m.path, key), want)
	if !ok {
		return
	}
	v, err := strconv.Atoi(text)
	if !bare || err != nil || v < least || v > most {
		m.d.fail(at(n), join(m.path, key), "want %s", want)
		return
	}
	*dst = v
}

func (m *mapping) flag(key string, dst *bool) {
	n, ok := m.get(key)
	if !ok {
		return
	}
	text, bare, ok := m.d.scalar(n, join(m.path, key), "true or false")
	if !ok {
		return
	}
	if !bare || (text != "true" && text != "false") {
		m.d.fail(at(n), join(m.path, key), "want true or false")
		return
	}
	*dst = text == "true"
}

func (m *mapping) list(key string, least int, each func(n ast.Node, path string)) {
	n, ok := m.get(key)
	if !ok {
		return
	}
	path := join(m.path, key)
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		m.d.fail(at(n), path, "want a list, not %s", describe(n))
		return
	}
	if len(seq.Values) < least {
		m.d.fail(at(n), path, "the list is empty")
	}
	for i, v := range seq.Values {
		each(v, fmt.Sprintf("%s[%d]", path, i))
	}
}

func (m *mapping) texts(key string, dst *[]string, least int, check func(string) error) {
	m.list(key, least, func(n ast.Node, path string) {
		m.d.value(n, path, func(s string) error {
			*dst = append(*dst, s)
			return check(s)
		})
	})
}

const notYet = "not in this version: remove the key or leave it at its default"

// later is a key whose capability this version does not have: nothing but its
// default is taken.
func (m *mapping) later(key, only string) {
	m.value(key, func(s string) error {
		if s == only {
			return nil
		}
		if only == "" {
			return errors.New(notYet + `, ""`)
		}
		return errors.New(notYet + ", " + only)
	})
}

// laterEmpty is later for a list or mapping, whose default is empty.
func (m *mapping) laterEmpty(key string) {
	n, ok := m.get(key)
	if !ok {
		return
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		ok = len(n.Values) == 0
	case *ast.SequenceNode:
		ok = len(n.Values) == 0
	default:
		ok = false
	}
	if !ok {
		m.d.fail(at(n), join(m.path, key), notYet+", empty")
	}
}
