package warm

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// erUnknownVariable is the answer to a variable that the server does not have.
const erUnknownVariable = 1193

// Server names the server that a table's database is on, by what the server says of
// itself: several databases of one server have the same. MySQL has a UUID; of MariaDB it
// is host name, port and server ID. Where neither is told, it is the address of the DSN.
//
// Behind a proxy it is the server that answers: after a failover another. Where a proxy
// spreads one address over several servers, each worker takes the one it was led to.
func (t *Table) Server(ctx context.Context) (string, error) {
	d := t.d
	for _, q := range []struct{ kind, query string }{
		{"uuid", "SELECT @@server_uuid"},
		{"host", "SELECT CONCAT(@@hostname, ':', @@port, '/', @@server_id)"},
	} {
		var name *string
		err := d.db.QueryRowContext(ctx, q.query).Scan(&name)
		switch {
		case err == nil && name != nil && *name != "" && !strings.HasPrefix(*name, ":"):
			return cutName(q.kind + " " + *name), nil
		case err == nil, number(err) == erUnknownVariable, number(err) == erSyntax, denied(err):
		default:
			return "", fmt.Errorf("database %s: which server it is on: %w", d.where, cause(ctx, err))
		}
	}
	return cutName("address " + d.address), nil
}

// cutName is a name of at most 255 bytes.
func cutName(name string) string { return name[:min(len(name), 255)] }

// address is where a DSN leads.
func address(m *mysql.Config) string { return m.Net + "(" + m.Addr + ")" }
