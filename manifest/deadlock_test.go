package manifest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coldtier/coldtier/tests/stack"
)

// A statement of its own that a deadlock ends is run again.
func TestStatementsOutliveDeadlocks(t *testing.T) {
	t.Parallel()
	s := open(t, time.Minute)
	ctx := t.Context()
	for _, q := range []string{"CREATE TABLE pair (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB", "INSERT INTO pair VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)"} {
		if _, err := s.db.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "UPDATE pair SET n = 100 WHERE id >= 2"); err != nil { // more than the other, which is thus the victim
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.db.ExecContext(ctx, "UPDATE pair SET n = n + 1 WHERE id <= 2 ORDER BY id")
		done <- err
	}()
	waits := func(x stack.Transaction) bool {
		return x.Waiting && strings.Contains(x.Query, "UPDATE pair SET n = n + 1")
	}
	for end := time.Now().Add(30 * time.Second); !slices.ContainsFunc(stack.Transactions(t, s.db.DB), waits); { // it has 1 and waits for 2
		if time.Now().After(end) {
			t.Fatal("it does not wait")
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE pair SET n = 100 WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var sum int
	if err := s.db.QueryRowContext(ctx, "SELECT SUM(n) FROM pair").Scan(&sum); err != nil || sum != 602 || s.Deadlocks() == 0 {
		t.Errorf("sum %d after %d deadlocks, %v", sum, s.Deadlocks(), err)
	}
}
