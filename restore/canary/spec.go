package canary

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Messages is how many messages a canary has: fewer than half of the newest rows by which
// a table's timestamps are judged.
const Messages = 9

// specVersion is how contents are made. A canary is for ever compared with those of its version.
const specVersion = 1

// Spec is all that a canary's given columns are made of.
type Spec struct {
	Version int               `json:"version"`
	Epoch   time.Time         `json:"epoch"` // of the message IDs, as they were then
	Shift   uint              `json:"shift"`
	Zone    string            `json:"zone"`   // in which created_at is written
	Schema  *message.Schema   `json:"schema"` // of the given columns
	Set     map[string]string `json:"set,omitempty"`
	id      string
	shard   manifest.Shard
	conv    string
	ids     []uint64
	first   uint64
}

// Rows makes the given columns of a canary.
func (s *Spec) Rows() (*message.Batch, error) {
	if s.Version != specVersion {
		return nil, fmt.Errorf("canary %s was planted by a newer coldtier: use that one", s.id)
	}
	zone, err := time.LoadLocation(s.Zone)
	if err != nil {
		return nil, fmt.Errorf("canary %s: %w", s.id, err)
	}
	b := message.NewBatch(s.Schema)
	for n, id := range s.ids {
		row := make([][]byte, s.Schema.Len())
		for i, c := range s.Schema.Columns() {
			text, ok := s.Set[c.Name]
			switch {
			case ok:
				row[i] = []byte(text)
			case i == s.Schema.Role(message.MessageID):
				row[i] = []byte(message.FormatID(id))
			case i == s.Schema.Role(message.ConversationID):
				row[i] = []byte(s.conv)
			case i == s.Schema.Role(message.Sequence):
				row[i] = []byte(message.FormatID(s.first + uint64(n)))
			case i == s.Schema.Role(message.CreatedAt):
				row[i] = createdAt(c, s.layout().Time(id).In(zone))
			case i == s.Schema.Role(message.Content):
				row[i] = content(c, s.id, s.shard, n)
			default:
				row[i], _ = plain(c, s.conv)
			}
		}
		if err := b.Append(row); err != nil {
			return nil, fmt.Errorf("canary %s of %s: %w", s.id, s.shard, err)
		}
	}
	return b, nil
}

func (s *Spec) layout() snowflake.Layout { return snowflake.Layout{Epoch: s.Epoch, Shift: s.Shift} }

// plain is a value for a column of which nothing is known but its type and role.
func plain(c message.Column, conv string) ([]byte, bool) {
	for _, text := range []string{conv, "0"} {
		if c.Fits([]byte(text)) && !c.Enumerated {
			return []byte(text), true
		}
	}
	return nil, false
}

// createdAt writes an instant as a column has it. An integer's unit is told by its digits.
func createdAt(c message.Column, t time.Time) []byte {
	_, offset := t.Zone()
	switch c.Kind {
	case message.DateTime:
		return message.AppendDateTime(nil, t.UnixMicro()+int64(offset)*1_000_000, c.Scale)
	case message.Timestamp:
		return message.AppendDateTime(nil, t.UnixMicro(), c.Scale)
	case message.Int, message.Uint:
		if c.Bits < 64 {
			return strconv.AppendInt(nil, t.Unix(), 10)
		}
		return strconv.AppendInt(nil, t.UnixMilli(), 10)
	}
	return nil
}

// given chooses the columns that are given of a table's, and refuses a table in which others must be.
func given(columns []message.Column, roles func(message.Role) string, hasDefault func(string) bool, set map[string]string, conv string) (*message.Schema, error) {
	var out []message.Column
	named := map[message.Role]string{}
	var problems []error
	role := map[string]message.Role{}
	for _, r := range message.Roles() {
		if name := roles(r); name != "" {
			role[name] = r
		}
	}
	known := map[string]bool{}
	for _, c := range columns {
		known[c.Name] = true
		if c.Generated {
			if _, ok := set[c.Name]; ok {
				problems = append(problems, fmt.Errorf("column %s is generated: it cannot be set", c.Name))
			}
			continue
		}
		r, plays := role[c.Name]
		text, isSet := set[c.Name]
		ok := isSet
		switch {
		case isSet && plays && (r == message.MessageID || r == message.ConversationID || r == message.Sequence || r == message.Content):
			problems = append(problems, fmt.Errorf("column %s is the %s, which the canary makes itself", c.Name, r))
		case isSet && !c.Fits([]byte(text)):
			problems = append(problems, fmt.Errorf("column %s (%s) cannot hold the value that is set", c.Name, c.SourceType))
		case isSet:
		case plays && r == message.TenantID: // whose it is nobody but the user knows
		case plays && r == message.ConversationID && !c.Fits([]byte(conv)):
			problems = append(problems, fmt.Errorf("column %s (%s) cannot hold the conversation ID %q", c.Name, c.SourceType, conv))
		case plays && r == message.Content:
			ok = makes(c)
		case plays && r == message.CreatedAt:
			ok = createdAt(c, time.Unix(0, 0)) != nil
		case plays && (r == message.SenderID || r == message.MessageType || r == message.Status):
			if _, ok = plain(c, conv); ok && hasDefault(c.Name) && r != message.SenderID {
				ok = false // the table knows better
			}
		case plays:
			ok = true
		}
		switch {
		case ok:
			out = append(out, c)
			if plays {
				named[r] = c.Name
			}
		case !hasDefault(c.Name):
			problems = append(problems, fmt.Errorf("column %s (%s) has no default and no value is given for it: --set %s=VALUE", c.Name, c.SourceType, c.Name))
		}
	}
	for name := range set {
		if !known[name] {
			problems = append(problems, fmt.Errorf("there is no column %s to set", name))
		}
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrColumns, errors.Join(problems...))
	}
	return message.NewSchema(out, named)
}

// Expected makes the given columns of a canary's messages again, in the order of their IDs.
func Expected(c manifest.Canary) (*message.Batch, error) {
	s, err := read(c)
	if err != nil {
		return nil, err
	}
	return s.Rows()
}
