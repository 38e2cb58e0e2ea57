package warm

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/coldtier/coldtier/tests/stack"
)

// Databases of one server have one name for it, whatever way leads there; it says of
// itself which it is.
func TestDatabasesOfOneServer(t *testing.T) {
	t.Parallel()
	b, other := newBench(t), newBench(t)
	b.simple("", 1)
	other.simple("", 1)
	cfg, err := mysql.ParseDSN(other.dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Addr = stack.NewProxy(t, cfg.Addr).Addr
	b.cfg.Databases = append(b.cfg.Databases, Database{DSN: cfg.FormatDSN()})
	tables, err := b.open().Discover(t.Context())
	if err != nil || len(tables) != 2 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	want := "uuid "
	if b.mariadb() {
		want = "host "
	}
	first, err := tables[0].Server(t.Context())
	if err != nil || !strings.HasPrefix(first, want) || len(first) < len(want)+8 {
		t.Errorf("server %q, %v; want %s", first, err, want)
	}
	if second, err := tables[1].Server(t.Context()); err != nil || second != first {
		t.Errorf("server %q through a proxy, %q without; %v", second, first, err)
	}
}
