package warm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-sql-driver/mysql"
)

// What a caller may have to tell apart. Each comes wrapped, with the table's name.
var (
	// ErrDrift says that warm rows are not what was archived: nothing was deleted.
	ErrDrift = errors.New("warm rows differ from the archived ones")
	// ErrUnclear says that a statement was sent whose outcome is not known: it may
	// have had its effect or may yet have it. Read before the next step; clean nothing up.
	ErrUnclear = errors.New("outcome unknown")
	// ErrLocked says that others held a lock for longer than coldtier waits: nothing
	// was changed; try later.
	ErrLocked = errors.New("locked by others")
	// ErrIncompatible says that the server refuses to exchange the partition with a
	// staging table: nothing was changed; purge by rows instead.
	ErrIncompatible = errors.New("partition cannot be exchanged")
	// ErrConflict says that a message is in the staging table and, with other values,
	// in the warm table. Both are kept.
	ErrConflict = errors.New("message has other values in the warm table")
	// ErrEpoch says that message IDs and the rows' own timestamps disagree, or that
	// IDs cannot carry a time.
	ErrEpoch = errors.New("message IDs do not fit the snowflake layout")
	// ErrGone says that a staging table is not there: its rows were dropped, or are back
	// in the table.
	ErrGone = errors.New("staging table is gone")
	// ErrNoPageIndex says that no index begins with the conversation ID and the cursor.
	ErrNoPageIndex = errors.New("no index to read a conversation's pages by")
)

// errSlow says that the server ended a statement at the statement time limit.
var errSlow = errors.New("statement ran into its time limit")

// Numbers of server errors.
const (
	erAccessDenied       = 1044 // to the database
	erLoginDenied        = 1045
	erTableAccessDenied  = 1142
	erColumnAccessDenied = 1143
	erSpecificDenied     = 1227
	erSyntax             = 1064
	erNoColumn           = 1054
	erNoThread           = 1094 // to kill
	erNoTable            = 1146
	erNoKey              = 1176
	erTableChanged       = 1412 // since the statement or its snapshot began
)

func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// told puts the sentinel for a server's error number in front of an error.
func told(err error) error {
	switch number(err) {
	case 1205, // lock wait timeout, both for rows and for metadata
		1213, // deadlock
		3572, // NOWAIT on MySQL
		1020: // innodb_snapshot_isolation on MariaDB: the row has changed since the snapshot
		return fmt.Errorf("%w: %w", ErrLocked, err)
	case 1969, // max_statement_time on MariaDB
		3024: // max_execution_time on MySQL
		return fmt.Errorf("%w: %w", errSlow, err)
	case 1497, // engines differ
		1505, // not partitioned
		1731, // options differ
		1732, // the staging table is partitioned
		1733, // temporary
		1734, // subpartitioned
		1736, // definitions differ
		1737, // a row of the staging table does not belong in the partition
		1740: // foreign keys
		return fmt.Errorf("%w: %w", ErrIncompatible, err)
	}
	return err
}

// denied says whether an error is a missing privilege.
func denied(err error) bool {
	return slices.Contains([]uint16{erAccessDenied, erTableAccessDenied, erColumnAccessDenied, erSpecificDenied}, number(err))
}

// answered says whether the server itself answered with the error, so that it is
// known what became of the statement. A lost connection, a timeout and an ended
// context are not answers.
func answered(err error) bool { return number(err) != 0 }

// cause replaces a bare "context canceled" by what ended the context.
func cause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if c := context.Cause(ctx); !errors.Is(err, c) {
		return fmt.Errorf("%w (%w)", err, c)
	}
	return err
}
