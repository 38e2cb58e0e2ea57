package purge_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/purge"
	"github.com/coldtier/coldtier/manifest"
)

// stores stands in for the bucket and ClickHouse.
type stores struct {
	mu       sync.Mutex
	sizes    map[string]int64
	messages map[manifest.CopyID]uint64
	marks    map[string][]byte
	refuse   error // of marks
}

func newStores() *stores {
	return &stores{sizes: map[string]int64{}, messages: map[manifest.CopyID]uint64{}, marks: map[string][]byte{}}
}

func (s *stores) add(c *manifest.Copy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range c.Objects {
		s.sizes[o.Key] = o.File.Size
	}
	s.messages[c.ID()] = c.Fingerprint().Rows
}

func (s *stores) Sizes(_ context.Context, prefix string) (map[string]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := maps.Clone(s.sizes)
	for k, b := range s.marks {
		out[k] = int64(len(b))
	}
	maps.DeleteFunc(out, func(k string, _ int64) bool { return !strings.HasPrefix(k, prefix) })
	return out, nil
}

func (s *stores) Messages(_ context.Context, id manifest.CopyID, _ *message.Schema) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages[id], nil
}

// S12: nothing is deleted whose copy is no longer there as it was verified: by rows, by
// partition, and also when a run that died has isolated the rows already.
func TestMissingCopyIsNotPurged(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(s *stores){
		"no object": func(s *stores) { clear(s.sizes) },
		"short object": func(s *stores) {
			for k := range s.sizes {
				s.sizes[k]--
			}
		},
		"no ClickHouse": func(s *stores) { clear(s.messages) },
	} {
		for how, partitioned := range map[string]bool{"rows": byRows, "partition": byPartition} {
			for _, step := range []string{"", purge.StepExchanged, purge.StepCompared} {
				if step != "" && !partitioned {
					continue
				}
				t.Run(strings.Join([]string{what, how, step}, "/"), func(t *testing.T) {
					t.Parallel()
					l := newLab(t, partitioned, 2, 50)
					l.archiveAll()
					if step != "" {
						if _, err := l.purge(func(c *purge.Config) {
							c.Steps = func(s string) error {
								if s == step {
									return errors.New("crash")
								}
								return nil
							}
						}); err == nil {
							t.Fatal("it did not crash")
						}
						l.afterLease()
					}
					kept := &stores{sizes: maps.Clone(l.stores.sizes), messages: maps.Clone(l.stores.messages), marks: l.stores.marks}
					lose(l.stores)
					rep, err := l.purge(nil)
					if !errors.Is(err, purge.ErrRefused) || rep.Rows != 0 || rep.Count(purge.Refused) != 2 {
						t.Errorf("purged %d rows: %v", rep.Rows, err)
					}
					for day := range l.days {
						l.want(day, manifest.Verified, 50)
					}
					l.stores = kept
					if _, err := l.purge(nil); err != nil {
						t.Error(err)
					}
					for day := range l.days {
						l.want(day, manifest.Purged, 0)
					}
				})
			}
		}
	}
}

func (s *stores) PutMark(_ context.Context, key string, mark []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return s.refuse
	}
	s.marks[key] = mark
	return nil
}

func (s *stores) GetMark(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks[key], nil
}
