package stack

import "testing"

func TestCorners(t *testing.T) {
	db := OpenMySQL(t, MySQL(t))
	if err := db.PingContext(deadline(t)); err != nil {
		t.Error(err)
	}
	Bucket(t)
	c := NewClickHouse(t)
	var v string
	if err := c.Open(t).QueryRow(deadline(t), "SELECT version()").Scan(&v); err != nil || v == "" {
		t.Errorf("ClickHouse %q: %v", v, err)
	}
	t.Log(v)
}
