package config

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Canary says where canaries are planted.
type Canary struct {
	Conversations []CanaryConversation
	Set           []string // COLUMN=VALUE, of columns that have no default
}

// CanaryConversation is a conversation that belongs to no user, and its warm table.
type CanaryConversation struct {
	Shard string // DATABASE.TABLE
	ID    string
}

func (d *decoder) canary(m *mapping, c *Canary) {
	m.list("conversations", 0, func(n ast.Node, path string) {
		one, ok := d.mapping(n, path, at(n))
		if !ok {
			return
		}
		var conv CanaryConversation
		one.require("shard", "the table it lies in, DATABASE.TABLE")
		one.text("shard", &conv.Shard, func(s string) error {
			if db, table, ok := strings.Cut(s, "."); !ok || db == "" || table == "" {
				return errors.New("want DATABASE.TABLE")
			}
			return nil
		})
		one.require("id", "the ID of a conversation that belongs to no user, in quotes")
		one.text("id", &conv.ID, func(s string) error {
			if s == "" || len(s) > 255 {
				return errors.New("want an ID of 1 to 255 bytes")
			}
			return nil
		})
		one.end()
		c.Conversations = append(c.Conversations, conv)
	})
	m.texts("set", &c.Set, 0, CheckAssignment)
}

// CheckAssignment refuses what is not COLUMN=VALUE.
func CheckAssignment(s string) error {
	if name, _, ok := strings.Cut(s, "="); !ok || checkColumn(name) != nil {
		return errors.New("want COLUMN=VALUE")
	}
	return nil
}
