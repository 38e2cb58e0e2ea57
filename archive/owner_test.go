package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// fewObjects is a bucket in memory. With blind it ignores ifAbsent, as some stores do.
type fewObjects struct {
	mu    sync.Mutex
	held  map[string][]byte
	gets  int
	blind bool
}

func (f *fewObjects) Put(_ context.Context, key string, body io.ReadSeeker, _ int64, _ [32]byte, ifAbsent bool) error {
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, ok := f.held[key]; ok && ifAbsent && !f.blind && !bytes.Equal(old, b) {
		return fmt.Errorf("put: %w", ErrExists)
	}
	f.held[key] = b
	return nil
}

func (f *fewObjects) Get(_ context.Context, key string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gets++
	b, ok := f.held[key]
	if !ok {
		return nil, fmt.Errorf("get: %w", ErrNotFound)
	}
	return b, nil
}

func (f *fewObjects) ReadRange(context.Context, string, int64, int64) ([]byte, error) {
	return nil, errors.New("an owner mark is read whole")
}

// Of all that claim a bucket at once the workers of one manifest get it.
func TestClaimOwnerAtOnce(t *testing.T) {
	for range 50 {
		o := &fewObjects{held: map[string][]byte{}}
		errs := map[string][]error{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				w := Owner{Bucket: "cold", Prefix: "p", Source: "im", Identity: []string{"A", "B"}[i%2]}
				err := ClaimOwner(t.Context(), o, w, time.Unix(int64(i), 0))
				mu.Lock()
				defer mu.Unlock()
				errs[w.Identity] = append(errs[w.Identity], err)
			})
		}
		wg.Wait()
		won, lost := "A", "B"
		if errs[won][0] != nil {
			won, lost = lost, won
		}
		for i := range 4 {
			if errs[won][i] != nil || !errors.Is(errs[lost][i], ErrForeign) {
				t.Fatalf("%v", errs)
			}
		}
	}
}

func TestCheckOwner(t *testing.T) {
	key := manifest.OwnerKey("im")
	a := Owner{Bucket: "cold", Prefix: "p", Source: "im", Identity: "A"}
	o := &fewObjects{held: map[string][]byte{}}
	if err := CheckOwner(t.Context(), o, a); !errors.Is(err, ErrUnowned) || len(o.held) != 0 {
		t.Errorf("no mark: %v", err)
	}
	nobody := a
	nobody.Identity = ""
	if err := ClaimOwner(t.Context(), o, nobody, time.Now()); err == nil || len(o.held) != 0 {
		t.Errorf("a manifest without identity claims a bucket: %v", err)
	}
	if err := ClaimOwner(t.Context(), o, a, time.Now()); err != nil {
		t.Fatal(err)
	}
	mark := o.held[key]
	o.gets = 0
	if err := CheckOwner(t.Context(), o, a); err != nil || o.gets != 1 {
		t.Errorf("%d gets, %v", o.gets, err)
	}
	b := a
	b.Identity = "B"
	for _, w := range []Owner{b, nobody} {
		err := CheckOwner(t.Context(), o, w)
		if !errors.Is(err, ErrForeign) || strings.Contains(err.Error(), "\n") {
			t.Errorf("identity %q: %v", w.Identity, err)
		}
	}
	other := b
	other.Source = "other"
	if err := ClaimOwner(t.Context(), o, other, time.Now()); err != nil {
		t.Errorf("a source of another name: %v", err)
	}
	for _, bad := range []string{"", "{", "null", "{}", string(mark[:len(mark)-1]), string(mark) + "x",
		`{"source":"im","identity":""}`, `{"source":"other","identity":"A"}`, `{"source":"im","identity":7}`} {
		o.held[key] = []byte(bad)
		for _, err := range []error{CheckOwner(t.Context(), o, a), ClaimOwner(t.Context(), o, a, time.Now())} {
			if !errors.Is(err, ErrOwnerDamaged) || errors.Is(err, ErrForeign) {
				t.Errorf("mark %q: %v", bad, err)
			}
		}
		if string(o.held[key]) != bad {
			t.Errorf("the damaged mark %q was replaced", bad)
		}
	}
	// What a store lets be overwritten is noticed when it was another's in the end.
	over := &fewObjects{held: map[string][]byte{}, blind: true}
	if err := errors.Join(ClaimOwner(t.Context(), over, a, time.Now()), ClaimOwner(t.Context(), over, b, time.Now())); err != nil {
		t.Error(err)
	}
	if err := CheckOwner(t.Context(), over, a); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
}
