package message

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Kind is the family of a column's values.
type Kind uint8

// The kinds. Each is exact: a value goes through every store and comes back as
// the same canonical text.
const (
	_         Kind = iota
	Int            // signed integer of Bits
	Uint           // unsigned integer of Bits
	Decimal        // exact decimal of Precision digits, Scale of them behind the point
	Float          // IEEE 754 single
	Double         // IEEE 754 double
	Bit            // BIT(Bits), as an unsigned number
	Text           // UTF-8 text: CHAR, VARCHAR, TEXT, ENUM, SET, JSON
	Bytes          // raw bytes: BINARY, VARBINARY, BLOB
	Date           // calendar date
	DateTime       // date and time of day without a zone, Scale digits of a second
	Timestamp      // instant, in UTC, Scale digits of a second
	Time           // signed duration up to 838:59:59, Scale digits of a second
	Year           // 1901..2155 or 0
)

var kindNames = [...]string{Int: "int", Uint: "uint", Decimal: "decimal", Float: "float", Double: "double", Bit: "bit", Text: "text",
	Bytes: "bytes", Date: "date", DateTime: "datetime", Timestamp: "timestamp", Time: "time", Year: "year"}

// String is the kind's name, as in the schema's JSON.
func (k Kind) String() string {
	if int(k) < len(kindNames) && k != 0 {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MarshalText writes the kind's name.
func (k Kind) MarshalText() ([]byte, error) {
	if k == 0 || int(k) >= len(kindNames) {
		return nil, fmt.Errorf("column kind %d is unknown", uint8(k))
	}
	return []byte(kindNames[k]), nil
}

// UnmarshalText reads a kind's name.
func (k *Kind) UnmarshalText(b []byte) error {
	i := slices.Index(kindNames[1:], string(b))
	if i < 0 {
		return fmt.Errorf("column kind %q is unknown", b)
	}
	*k = Kind(i + 1) //nolint:gosec // an index of a short array
	return nil
}

// Opaque says that values of the kind are bytes whose canonical text is stored as
// it is; all other kinds have a typed form.
func (k Kind) Opaque() bool { return k == Text || k == Bytes }

// Column is one column of a message table.
type Column struct {
	Name       string `json:"name"`
	Kind       Kind   `json:"kind"`
	Bits       int    `json:"bits,omitempty"`       // Int, Uint: 8, 16, 32, 64; Bit: 1..64
	Precision  int    `json:"precision,omitempty"`  // Decimal: all digits
	Scale      int    `json:"scale,omitempty"`      // Decimal: digits behind the point; times: digits of a second
	Nullable   bool   `json:"nullable,omitempty"`   // may be NULL
	Generated  bool   `json:"generated,omitempty"`  // computed by the server: archived, but not inserted on restore
	Enumerated bool   `json:"enumerated,omitempty"` // ENUM or SET: few distinct values
	SourceType string `json:"source_type"`          // the source's own words, e.g. "bigint(20) unsigned"
	Charset    string `json:"charset,omitempty"`    // the source's character set of a text column
	Collation  string `json:"collation,omitempty"`
}

// Role is what a column means to coldtier.
type Role uint8

// The roles. MessageID and ConversationID are required, the others optional.
const (
	MessageID Role = iota
	ConversationID
	Sequence
	SenderID
	MessageType
	Status
	Content
	CreatedAt
	TenantID
	numRoles
)

var roleNames = [numRoles]string{"message_id", "conversation_id", "sequence", "sender_id", "message_type", "status", "content", "created_at", "tenant_id"}

// String is the role's name, as in the configuration.
func (r Role) String() string { return roleNames[r] }

// Roles lists all roles.
func Roles() []Role {
	all := make([]Role, numRoles)
	for i := range all {
		all[i] = Role(i)
	}
	return all
}

// Schema is the ordered columns of a message table and the roles some of them
// play. It does not change once made.
type Schema struct {
	columns []Column
	roles   [numRoles]int // index of the column, -1 for none
	hash    string
}

// NewSchema makes a schema; roles maps each role to a column's name.
func NewSchema(columns []Column, roles map[Role]string) (*Schema, error) {
	s := &Schema{columns: slices.Clone(columns)}
	seen := map[string]bool{}
	for _, c := range columns {
		if c.Name == "" {
			return nil, errors.New("a column has no name")
		}
		if seen[c.Name] {
			return nil, fmt.Errorf("column %s occurs twice", c.Name)
		}
		seen[c.Name] = true
		if _, err := c.Kind.MarshalText(); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	for r := range s.roles {
		s.roles[r] = -1
	}
	for _, r := range Roles() {
		name := roles[r]
		if name == "" {
			continue
		}
		if s.roles[r] = s.Index(name); s.roles[r] < 0 {
			return nil, fmt.Errorf("column %s, which is to be the %s, does not exist: correct source.columns.%s", name, r, r)
		}
	}
	for _, r := range []Role{MessageID, ConversationID, Sequence} {
		i := s.roles[r]
		if i < 0 {
			if r == Sequence {
				continue
			}
			return nil, fmt.Errorf("no column is the %s", r)
		}
		c := s.columns[i]
		integer := c.Kind == Int || c.Kind == Uint
		if c.Nullable {
			return nil, fmt.Errorf("column %s may be NULL, so it cannot be the %s: make it NOT NULL, or name another in source.columns", c.Name, r)
		}
		if !integer && (r != ConversationID || !c.Kind.Opaque()) {
			return nil, fmt.Errorf("column %s (%s) cannot be the %s: want an integer", c.Name, c.SourceType, r)
		}
	}
	j, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	sum := sha256.Sum256(j)
	s.hash = hex.EncodeToString(sum[:16])
	return s, nil
}

// Columns are the columns in the table's order; do not change them.
func (s *Schema) Columns() []Column { return s.columns }

// Len is the number of columns.
func (s *Schema) Len() int { return len(s.columns) }

// Index is the place of a column by name, or -1.
func (s *Schema) Index(name string) int {
	return slices.IndexFunc(s.columns, func(c Column) bool { return c.Name == name })
}

// Role is the place of the column that plays a role, or -1.
func (s *Schema) Role(r Role) int { return s.roles[r] }

// Cursor is the place of the column readers page by: the sequence, else the message ID.
func (s *Schema) Cursor() int {
	if i := s.roles[Sequence]; i >= 0 {
		return i
	}
	return s.roles[MessageID]
}

// Hash identifies the schema: equal for equal columns and roles, 32 hexadecimal digits.
func (s *Schema) Hash() string { return s.hash }

// Equal says whether two schemas have the same columns and roles.
func (s *Schema) Equal(o *Schema) bool { return s.hash == o.hash }

type schemaJSON struct {
	Columns []Column          `json:"columns"`
	Roles   map[string]string `json:"roles"`
}

// MarshalJSON writes {"columns": [...], "roles": {"message_id": "msg_id", ...}}.
func (s *Schema) MarshalJSON() ([]byte, error) {
	out := schemaJSON{Columns: s.columns, Roles: map[string]string{}}
	for r, i := range s.roles {
		if i >= 0 {
			out.Roles[roleNames[r]] = s.columns[i].Name
		}
	}
	return json.Marshal(out)
}

// ParseSchema reads what MarshalJSON wrote.
func ParseSchema(b []byte) (*Schema, error) {
	var in schemaJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	roles := map[Role]string{}
	for name, column := range in.Roles {
		i := slices.Index(roleNames[:], name)
		if i < 0 {
			return nil, fmt.Errorf("schema: role %q is unknown", name)
		}
		roles[Role(i)] = column //nolint:gosec // nine roles
	}
	return NewSchema(in.Columns, roles)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Schema) UnmarshalJSON(b []byte) error {
	p, err := ParseSchema(b)
	if err != nil {
		return err
	}
	*s = *p
	return nil
}
