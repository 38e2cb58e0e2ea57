package chat

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// Message is one row of a message table.
type Message struct {
	ID           uint64
	Conversation int64
	Sender       int64
	ReceiverType int8 // 0 a person, 1 a group
	Receiver     int64
	Type         int8
	Content      []byte
	ClientID     string
	Status       int8
	Created      time.Time // UTC, milliseconds
	Seq          uint64
}

// Source gives messages in the order of their time.
type Source interface {
	// Days are the days (UTC) that may have messages, in order.
	Days() []snowflake.Day
	// Each calls fn with every message; it is valid until fn returns. An error of fn ends it.
	Each(fn func(*Message) error) error
}

// Layout is how all messages of this package encode their time.
func Layout() snowflake.Layout {
	return snowflake.Layout{Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22}
}

const columns = "msg_id, session_id, sender_id, receiver_type, receiver_id, msg_type, content, client_msg_id, status, create_time, seq"

// Create makes the message table "database.table" or "table". With days it is partitioned: a
// partition for all that is older, one for each day, and one for all that is newer.
func Create(ctx context.Context, db *sql.DB, table string, days []snowflake.Day) error {
	ddl := "CREATE TABLE " + quote(table) + ` (
  msg_id BIGINT NOT NULL, session_id BIGINT NOT NULL, sender_id BIGINT NOT NULL,
  receiver_type TINYINT NOT NULL DEFAULT 0, receiver_id BIGINT NOT NULL, msg_type TINYINT NOT NULL DEFAULT 0,
  content MEDIUMBLOB NOT NULL, client_msg_id VARCHAR(64) NOT NULL, status TINYINT NOT NULL DEFAULT 0,
  create_time DATETIME(3) NOT NULL, seq BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (msg_id), KEY idx_session_time (session_id, msg_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`
	for i, d := range days {
		lo, hi, err := Layout().Window(d, time.UTC)
		if err != nil {
			return fmt.Errorf("create %s: %w", table, err)
		}
		if i == 0 {
			ddl += fmt.Sprintf("\nPARTITION BY RANGE (msg_id) (\n  PARTITION older VALUES LESS THAN (%d)", lo)
		}
		ddl += fmt.Sprintf(",\n  PARTITION p%s VALUES LESS THAN (%d)", strings.ReplaceAll(d.String(), "-", ""), hi)
	}
	if len(days) > 0 {
		ddl += ",\n  PARTITION newer VALUES LESS THAN MAXVALUE)"
	}
	if _, err := db.ExecContext(ctx, ddl); err != nil {
		return fmt.Errorf("create %s: %w", table, err)
	}
	return nil
}

func quote(table string) string {
	return "`" + strings.ReplaceAll(strings.ReplaceAll(table, "`", "``"), ".", "`.`") + "`"
}
