package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	driver "github.com/ClickHouse/clickhouse-go/v2"
)

// What went wrong, for errors.Is. Each error's text says what to do.
var (
	ErrUnreachable = errors.New("ClickHouse is unreachable")
	ErrDenied      = errors.New("ClickHouse denies access")
	ErrNoTable     = errors.New("ClickHouse table does not fit")
	ErrBadValue    = errors.New("value does not fit into ClickHouse")
	ErrBusy        = errors.New("ClickHouse is too busy")
	ErrTimeout     = errors.New("ClickHouse took too long")
	ErrPartial     = errors.New("ClickHouse would answer in part")
	ErrServer      = errors.New("ClickHouse refuses the statement")
)

type fault struct {
	sentinel error
	remedy   string
	retry    bool // the same statement may succeed later
}

// classify tells errors apart, of the server by its code, else of the connection. It
// looks at ctx first, because a passed deadline also comes as an i/o timeout.
func classify(ctx context.Context, err error) fault {
	if ctx.Err() != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fault{ErrTimeout, "", false}
		}
		return fault{ctx.Err(), "", false}
	}
	var ex *driver.Exception
	if errors.As(err, &ex) {
		return ofCode(ex.Code)
	}
	var http *driver.HTTPError
	if errors.As(err, &http) {
		switch http.StatusCode {
		case 401, 403:
			return fault{ErrDenied, "check clickhouse.username, password and the user's grants", false}
		case 400, 404, 405:
			return fault{ErrUnreachable, "is this ClickHouse's HTTP port? see clickhouse.addrs and clickhouse.protocol", false}
		case 408, 429, 502, 503, 504:
			return fault{ErrUnreachable, "the way to the server or the server is overloaded", true}
		}
		return fault{ErrServer, "", false}
	}
	var netErr net.Error
	switch {
	case strings.Contains(err.Error(), "missing columns"), strings.Contains(err.Error(), "incorrect length to sort block"): // the driver's, of a table that changed
		return fault{ErrNoTable, "run coldtier migrate", false}
	case errors.Is(err, driver.ErrAcquireConnTimeout):
		return fault{ErrBusy, "all connections are in use", true}
	case errors.As(err, &netErr) && netErr.Timeout():
		return fault{ErrTimeout, "", true}
	case errors.As(err, &netErr), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, driver.ErrConnectionClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), strings.Contains(err.Error(), "closed"):
		return fault{ErrUnreachable, "check clickhouse.addrs and that the server runs", true}
	}
	// Anything else is a stream that broke in a way the driver has no name for.
	return fault{ErrUnreachable, "check clickhouse.addrs, clickhouse.protocol and clickhouse.tls", true}
}

// ofCode knows the server's error codes, which are the same in all versions.
func ofCode(code int32) fault {
	switch code {
	case 192, 193, 194, 195, 516: // unknown user, wrong password, required password, IP not allowed, authentication failed
		return fault{ErrDenied, "check clickhouse.username and clickhouse.password", false}
	case 164, 291, 497, 452: // readonly, database access denied, not enough privileges, setting constraint
		return fault{ErrDenied, "grant SELECT, INSERT, ALTER DELETE on the database, and the right to change settings", false}
	case 115: // unknown setting
		return fault{ErrServer, "the server knows fewer settings than its version says; is there a proxy?", false}
	case 60, 81: // no such table, database
		return fault{ErrNoTable, "run coldtier migrate", false}
	case 8, 10, 16, 36, 47: // no such column, wrong columns
		return fault{ErrNoTable, "run coldtier migrate", false}
	case 252: // too many parts
		return fault{ErrBusy, "merges do not keep up; fewer, larger inserts, or wait", true}
	case 201, 202, 241, 243, 473, 745: // quota, too many queries, memory, disk space, lock time-out, overload
		return fault{ErrBusy, "too many queries, or no memory or disk left on the server", true}
	case 159, 160, 209: // time-outs
		return fault{ErrTimeout, "", true}
	case 279, 210, 225, 242, 319, 285, 286, 999, 394: // shards, network, Keeper, read-only replica, unknown insert, quorum, query killed
		return fault{ErrUnreachable, "a shard, a replica or Keeper is not there", true}
	case 6, 26, 27, 38, 41, 53, 69, 70, 72, 131, 321, 349, 407: // values
		return fault{ErrBadValue, "", false}
	}
	return fault{ErrServer, "", false}
}

// tell gives an error its sentinel and remedy.
func tell(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{ErrUnreachable, ErrDenied, ErrNoTable, ErrBadValue, ErrBusy, ErrTimeout, ErrPartial, ErrServer} {
		if errors.Is(err, known) { // already told apart
			return err
		}
	}
	f := classify(ctx, err)
	switch {
	case errors.Is(err, f.sentinel):
		return err
	case f.remedy != "":
		return fmt.Errorf("%w (%s): %w", f.sentinel, f.remedy, err)
	}
	return fmt.Errorf("%w: %w", f.sentinel, err)
}
