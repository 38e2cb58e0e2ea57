package guard

import (
	"context"
	"testing"
	"time"
)

// Work that was begun for a request has its values and does not end with it.
func TestValuedEndsWithItsBaseAlone(t *testing.T) {
	t.Parallel()
	type key struct{}
	base, end := context.WithCancel(context.WithValue(context.Background(), key{}, "base"))
	request, leave := context.WithCancel(context.WithValue(context.Background(), "who", "caller")) //nolint:staticcheck // the key is the test's alone
	ctx, cancel := context.WithTimeout(Valued(base, request), time.Minute)
	defer cancel()
	leave()
	if ctx.Err() != nil || ctx.Value("who") != "caller" || ctx.Value(key{}) != "base" {
		t.Errorf("%v, %v, %v", ctx.Err(), ctx.Value("who"), ctx.Value(key{}))
	}
	end()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Error("it does not end with its base")
	}
}
