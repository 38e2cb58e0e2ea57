package stack

import (
	"database/sql"
	"math/rand/v2"
	"testing"
	"time"
)

// Transaction is one that InnoDB has open.
type Transaction struct {
	Thread  string // the connection's ID
	Waiting bool   // for a lock
	Query   string // the statement that it is at
}

// Transactions are those that a server has open. The server makes their list anew only when
// nobody has read it for 100 ms: tests that read it again and again would all see an old
// one. So a read comes after a pause, of another length each time.
func Transactions(t testing.TB, db *sql.DB) (all []Transaction) {
	t.Helper()
	time.Sleep(150*time.Millisecond + rand.N(250*time.Millisecond))
	rows, err := db.QueryContext(t.Context(), "SELECT trx_mysql_thread_id, trx_state = 'LOCK WAIT', COALESCE(trx_query, '') FROM information_schema.INNODB_TRX")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var x Transaction
		if err := rows.Scan(&x.Thread, &x.Waiting, &x.Query); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
