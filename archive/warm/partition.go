package warm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/message"
)

// Partition is a partition that holds the message IDs [Lo, Hi) and can be exchanged.
type Partition struct {
	Name   string
	Lo, Hi uint64
}

// Partition finds the partition that holds [lo, hi) whole. It says no where the
// rows cannot be isolated by an exchange: the table is not partitioned by RANGE on
// the plain message ID, has subpartitions or triggers, or the IDs lie in the
// partition of MAXVALUE, where new messages arrive.
func (t *Table) Partition(ctx context.Context, lo, hi uint64) (Partition, bool, error) {
	s, err := t.d.session(ctx)
	if err != nil {
		return Partition{}, false, err
	}
	defer s.close(ctx)
	p, ok, err := t.partition(ctx, s, lo, hi)
	if err != nil {
		err = fmt.Errorf("table %s: partitions: %w", t.shard, err)
	}
	return p, ok, err
}

func (t *Table) partition(ctx context.Context, s *session, lo, hi uint64) (Partition, bool, error) {
	all, err := t.partitions(ctx, s)
	if err != nil || len(all) == 0 {
		return Partition{}, false, err
	}
	triggers, err := t.triggers(ctx, s)
	if err != nil || len(triggers) > 0 { // an exchange fires none, and returning rows one by one fires the wrong ones
		return Partition{}, false, err
	}
	for _, p := range all {
		if p.Lo <= lo && hi <= p.Hi {
			return p, true, nil
		}
	}
	return Partition{}, false, nil
}

// partitions lists the partitions with bounds, or none when the table is not
// partitioned by RANGE on the plain message ID.
func (t *Table) partitions(ctx context.Context, s *session) ([]Partition, error) {
	schema := t.Schema()
	column := schema.Columns()[schema.Role(message.MessageID)]
	var out []Partition
	usable, lo := true, uint64(0)
	err := s.rows(ctx, `SELECT PARTITION_NAME AS n, PARTITION_METHOD AS m, PARTITION_EXPRESSION AS e, SUBPARTITION_METHOD AS sm, PARTITION_DESCRIPTION AS d
		FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = `+literal(t.shard.Database)+` AND TABLE_NAME = `+literal(t.shard.Table)+` ORDER BY PARTITION_ORDINAL_POSITION`,
		func(v [][]byte) error {
			name, method, expr, description := string(v[0]), string(v[1]), strings.Trim(string(v[2]), "`"), string(v[4])
			if v[0] == nil || (method != "RANGE" && method != "RANGE COLUMNS") || !strings.EqualFold(expr, column.Name) || v[3] != nil {
				usable = false
				return nil
			}
			if description == "MAXVALUE" {
				return nil
			}
			hi, err := bound(description, column.Kind == message.Uint)
			if err != nil {
				return fmt.Errorf("partition %s: bound %q is no message ID", name, description)
			}
			if hi == 0 {
				return nil // has only IDs that are no snowflakes
			}
			out = append(out, Partition{name, lo, hi})
			lo = hi
			return nil
		})
	if err != nil || !usable {
		return nil, err
	}
	return out, nil
}

// bound reads a partition's upper bound; 0 is for those of zero and below. Both
// server kinds show the bounds of an unsigned column from 2^63 on as negative numbers.
func bound(description string, unsigned bool) (uint64, error) {
	if !strings.HasPrefix(description, "-") {
		return strconv.ParseUint(description, 10, 64)
	}
	n, err := strconv.ParseInt(description, 10, 64)
	if err != nil || !unsigned {
		return 0, err
	}
	return uint64(n), nil //nolint:gosec // two's complement is meant
}

// triggers names the table's triggers, as far as the account may see them.
func (t *Table) triggers(ctx context.Context, s *session) (names []string, err error) {
	err = s.rows(ctx, `SELECT TRIGGER_NAME AS n FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = `+literal(t.shard.Database)+
		` AND EVENT_OBJECT_TABLE = `+literal(t.shard.Table)+` ORDER BY TRIGGER_NAME`, func(v [][]byte) error {
		names = append(names, string(v[0]))
		return nil
	})
	return names, err
}

// ddl is a session for definitions: it waits for metadata locks as shortly as the
// server can, and is not used again.
func (d *database) ddl(ctx context.Context) (*session, error) {
	s, err := d.session(ctx)
	if err != nil {
		return nil, err
	}
	s.once = true
	if _, err := s.exec(ctx, "SET SESSION lock_wait_timeout = 1 /*M!100100 , max_statement_time = 0 */"); err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

// swap exchanges a partition with a staging table. While it waits for readers of
// the table all new queries wait behind it, so it is killed after ExchangeWait, but
// only while it waits: ErrLocked.
func (t *Table) swap(ctx context.Context, s *session, p Partition, staging string) error {
	done := make(chan error, 1)
	go func() {
		_, err := s.exec(ctx, fmt.Sprintf("ALTER TABLE %s EXCHANGE PARTITION %s WITH TABLE %s", t.name, quote(p.Name), t.staging(staging)))
		done <- err
	}()
	tick := time.NewTicker(t.d.cfg.ExchangeWait)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return swapped(err)
		case <-tick.C:
		}
		if waiting, err := t.d.waiting(ctx, s.id); err != nil || !waiting {
			continue // lock_wait_timeout ends the wait, if it is one
		}
		if _, err := t.d.killer.ExecContext(ctx, fmt.Sprintf("KILL QUERY %d", s.id)); err != nil {
			continue
		}
	}
}

func swapped(err error) error {
	switch {
	case err == nil:
		return nil
	case number(err) == 1317: // killed while it waited
		return fmt.Errorf("exchange: %w: readers hold the table: %w", ErrLocked, err)
	case answered(err):
		return fmt.Errorf("exchange: %w", err)
	}
	return fmt.Errorf("exchange: %w: %w", ErrUnclear, err)
}

// waiting says whether a connection waits for a metadata lock. An account may see
// its own connections without a privilege.
func (d *database) waiting(ctx context.Context, id uint64) (bool, error) {
	rows, err := d.killer.QueryContext(ctx, "SHOW PROCESSLIST")
	if err != nil {
		return false, err
	}
	list, err := namedRows(rows)
	for _, r := range list {
		if string(r["id"]) == strconv.FormatUint(id, 10) {
			return strings.Contains(string(r["state"]), "metadata lock"), err
		}
	}
	return false, err
}
