package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Error is one thing wrong in a configuration file.
type Error struct {
	File         string
	Line, Column int
	Key          string // "source.snowflake.epoch"; empty for faults of the YAML itself
	Message      string
}

// Error is "FILE:LINE:COLUMN: KEY: MESSAGE", without a line where the file cannot be read. It never quotes a value of the file.
func (e *Error) Error() string {
	where := e.File + ": "
	if e.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d: ", e.File, e.Line, e.Column)
	}
	if e.Key != "" {
		where += e.Key + ": "
	}
	return where + e.Message
}

type pos struct{ line, column int }

func at(n ast.Node) pos {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return pos{1, 1}
	}
	switch v := n.(type) {
	case *ast.MappingValueNode:
		if v.Key != nil {
			n = v.Key // its own token is the colon
		}
	case *ast.MappingNode:
		if len(v.Values) > 0 && !v.IsFlowStyle {
			return at(v.Values[0])
		}
	}
	p := n.GetToken().Position
	return pos{max(p.Line, 1), max(p.Column, 1)}
}

// decoder collects everything wrong with a file.
type decoder struct {
	file     string
	lookup   Lookup
	redactor *Redactor
	errs     []*Error
}

func (d *decoder) fail(p pos, key, format string, args ...any) {
	d.errs = append(d.errs, &Error{d.file, p.line, p.column, key, fmt.Sprintf(format, args...)})
}

// err is everything wrong, in the order of the file.
func (d *decoder) err() error {
	slices.SortStableFunc(d.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	all := make([]error, len(d.errs))
	for i, e := range d.errs {
		all[i] = e
	}
	return errors.Join(all...)
}

// maxFile bounds the file, maxDepth its nesting: the parser recurses, and its time
// grows with the square of the depth.
const (
	maxFile  = 256 << 10
	maxDepth = 64
)

// parse gives the file's one mapping. The parser's own error text shows the lines
// around the fault, with whatever secret they hold, so only its message is taken.
func (d *decoder) parse(data []byte) (root ast.Node) {
	if len(data) > maxFile {
		d.fail(pos{1, 1}, "", "the file has %d bytes; a configuration has at most %d", len(data), maxFile)
		return nil
	}
	if p, deep := tooDeep(data); deep {
		d.fail(p, "", "nested too deeply")
		return nil
	}
	f, err := parseYAML(data)
	if err != nil {
		p, message := pos{1, 1}, "not YAML"
		var ye yaml.Error
		if errors.As(err, &ye) {
			message = ye.GetMessage()
			if strings.HasPrefix(message, "mapping key ") {
				message = "the key is set twice"
			}
			if t := ye.GetToken(); t != nil && t.Position != nil {
				p = pos{max(t.Position.Line, 1), max(t.Position.Column, 1)}
			}
		}
		if lines := strings.Split(string(data), "\n"); p.line <= len(lines) && strings.Contains(lines[p.line-1], "${") {
			message += " (inside {...} or [...] put a value that has ${...} in quotes)"
		}
		d.fail(p, "", "%s", message)
		return nil
	}
	for _, doc := range f.Docs {
		if doc == nil || doc.Body == nil {
			continue
		}
		if root != nil {
			d.fail(at(doc.Body), "", "a second document: want one")
			return nil
		}
		root = doc.Body
	}
	if root == nil {
		d.fail(pos{1, 1}, "", "the file is empty")
	}
	return root
}

// parseYAML turns a panic of the parser into an error.
func parseYAML(data []byte) (f *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("not YAML")
		}
	}()
	return parser.ParseBytes(data, 0)
}

// tooDeep finds brackets ("[[[[") or list marks in a row ("- - - -") that nest
// beyond maxDepth, before the parser sees them.
func tooDeep(data []byte) (pos, bool) {
	p := pos{1, 0}
	brackets, marks := 0, 0
	for i, c := range data {
		p.column++
		switch c {
		case '\n':
			p, marks = pos{p.line + 1, 0}, 0
		case ' ':
		case '-':
			if i+1 < len(data) && data[i+1] == ' ' {
				marks++
			}
		case '[', '{':
			brackets++
			marks = 0
		case ']', '}':
			brackets = max(brackets-1, 0)
			marks = 0
		default:
			marks = 0
		}
		if brackets > maxDepth || marks > maxDepth {
			return p, true
		}
	}
	return pos{}, false
}

// mapping reads a mapping key by key; end reports the keys nobody read.
type mapping struct {
	d      *decoder
	path   string
	pos    pos
	values map[string]ast.Node
	keys   map[string]pos
	order  []string
	known  []string
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// mapping makes a mapping of a node; of nil an empty one. What is no mapping is
// reported and taken as empty, so that no required key of it is reported too.
func (d *decoder) mapping(n ast.Node, path string, p pos) (*mapping, bool) {
	m := &mapping{d: d, path: path, pos: p, values: map[string]ast.Node{}, keys: map[string]pos{}}
	var pairs []*ast.MappingValueNode
	switch n := n.(type) {
	case nil:
		return m, true
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		d.fail(at(n), path, "want a mapping of keys, not %s", describe(n))
		return m, false
	}
	for _, kv := range pairs {
		key, ok := keyOf(kv)
		if !ok {
			d.fail(at(kv), path, "want plain keys")
			continue
		}
		if _, twice := m.values[key]; twice {
			d.fail(at(kv.Key), path, "a key is set twice")
			continue
		}
		m.values[key], m.keys[key] = kv.Value, at(kv.Key)
		m.order = append(m.order, key)
	}
	return m, true
}

func keyOf(kv *ast.MappingValueNode) (string, bool) {
	if kv == nil || kv.Key == nil || kv.Value == nil {
		return "", false
	}
	s, ok := kv.Key.(*ast.StringNode)
	if !ok {
		return "", false
	}
	return s.Value, true
}

// end reports unknown keys. A key that does not look like one is not quoted: a
// broken line may have made a key of a password.
func (m *mapping) end() {
	for _, k := range m.order {
		if slices.Contains(m.known, k) {
			continue
		}
		quoted := ""
		if made(k, 1, 32, "_") && k == strings.ToLower(k) && !strings.ContainsAny(k, "0123456789") {
			quoted = " " + k
		}
		m.d.fail(m.keys[k], m.path, "unknown key%s (known: %s)", quoted, strings.Join(m.known, ", "))
	}
}

// get gives the node of a key, which counts as known from now on.
func (m *mapping) get(key string) (ast.Node, bool) {
	m.known = append(m.known, key)
	n, ok := m.values[key]
	return n, ok
}

// require reports a missing key.
func (m *mapping) require(key, what string) {
	if _, ok := m.values[key]; !ok {
		m.d.fail(m.pos, join(m.path, key), "missing: want %s", what)
	}
}

// rejoin mends what the parser takes apart although YAML does not: "host:9000" in
// a list within braces, which it reads as the key "host" of 9000.
func rejoin(n ast.Node) ast.Node {
	kv, ok := n.(*ast.MappingValueNode)
	if m, is := n.(*ast.MappingNode); is && len(m.Values) == 1 {
		kv, ok = m.Values[0], true
	}
	if !ok || kv.Key == nil || kv.Value == nil || kv.Start == nil {
		return n
	}
	key, ok := kv.Key.(*ast.StringNode)
	if !ok || key.Token == nil || key.Token.Type != token.StringType {
		return n
	}
	switch kv.Value.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode:
	default:
		return n
	}
	value := kv.Value.GetToken()
	if c := kv.Start.Position; value.Position.Line != c.Line || value.Position.Column != c.Column+1 || value.Indicator == token.QuotedScalarIndicator {
		return n
	}
	joined := *key
	joined.Value = key.Value + ":" + value.Value
	return &joined
}

func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	case *ast.BoolNode:
		return "a boolean"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor or alias"
	case *ast.TagNode:
		return "a tag"
	}
	return "this"
}
