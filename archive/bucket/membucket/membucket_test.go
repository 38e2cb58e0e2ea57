package membucket_test

import (
	"testing"
	"time"

	"github.com/coldtier/coldtier/archive/bucket/bucktest"
	"github.com/coldtier/coldtier/archive/bucket/membucket"
)

func TestContract(t *testing.T) {
	bucktest.Run(t, func(*testing.T) bucktest.Store {
		return membucket.New(func() time.Time { return time.Unix(1_780_000_000, 0) })
	})
}
