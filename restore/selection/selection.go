package selection

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/snowflake"
	"github.com/coldtier/coldtier/manifest"
)

// Selection chooses rows; the zero Selection chooses all. What is set narrows it.
type Selection struct {
	Conversations [][]byte       // canonical texts of their IDs; nil: all
	From, To      *snowflake.Day // inclusive
	Shard         string         // glob over "database.table"
	IDs           *IDs
	Until         *time.Time // rows whose IDs were made up to this instant, with the statuses of then
}

// IDs is a range of message IDs.
type IDs struct {
	First uint64 `json:"first,string"`
	Last  uint64 `json:"last,string"` // inclusive
}

// Whole says whether all rows of the chosen days and shards are selected.
func (s Selection) Whole() bool { return s.Conversations == nil && s.IDs == nil && s.Until == nil }

// ErrSelection says that a selection is none that can be made.
var ErrSelection = errors.New("selection refused")

func (s Selection) validate() error {
	if _, err := path.Match(s.Shard, ""); err != nil {
		return fmt.Errorf("%w: shard pattern %q: want DATABASE.TABLE with *, ? or [a-z] in it", ErrSelection, s.Shard)
	}
	if s.From != nil && s.To != nil && s.To.Before(*s.From) {
		return fmt.Errorf("%w: no day lies from %s to %s", ErrSelection, s.From, s.To)
	}
	if s.IDs != nil && s.IDs.First > s.IDs.Last {
		return fmt.Errorf("%w: no message ID lies from %d to %d", ErrSelection, s.IDs.First, s.IDs.Last)
	}
	for _, c := range s.Conversations {
		if len(c) > manifest.MaxConversation {
			return fmt.Errorf("%w: a conversation ID has %d bytes, at most %d can be archived", ErrSelection, len(c), manifest.MaxConversation)
		}
	}
	return nil
}

// window is the part of the message IDs [lo, hi) that is selected.
func (s Selection) window(layout snowflake.Layout, lo, hi uint64) (from, to uint64, err error) {
	if s.IDs != nil {
		lo = max(lo, s.IDs.First)
		if s.IDs.Last < hi {
			hi = s.IDs.Last + 1 // at most hi, so it does not wrap
		}
	}
	if s.Until != nil {
		after := s.Until.Truncate(time.Millisecond).Add(time.Millisecond)
		if after.Before(layout.Epoch) {
			return lo, lo, nil
		}
		end, err := layout.Lowest(after)
		switch {
		case errors.Is(err, snowflake.ErrOutOfRange): // later than all IDs
		case err != nil:
			return 0, 0, err
		default:
			hi = min(hi, end)
		}
	}
	return lo, max(lo, hi), nil
}

// Slice is a slice that has selected rows, or may have: whether one of a conversation
// lies in a range of IDs is seen when it is read.
type Slice struct {
	manifest.Live
	From          uint64   `json:"from,string"` // message IDs [From, To) are selected
	To            uint64   `json:"to,string"`
	Conversations [][]byte `json:"-"` // those of the selection that it has; nil: all
}

// Whole says whether all its rows are selected.
func (s *Slice) Whole() bool { return s.Conversations == nil && s.From <= s.Lo && s.To >= s.Hi }

// Reader reads selected rows. It is safe for concurrent use.
type Reader struct {
	Deps
	cfg Config
}

// Deps are the parts a Reader works with.
type Deps struct {
	Manifest *manifest.Store
	Objects  Objects
	Rows     Rows // nil: what the bucket does not give is an error
	Layout   snowflake.Layout
}

// Objects reads the bucket. The errors of what is wrong with an object are ErrNotFound,
// ErrDamaged and ErrArchived; any other says nothing about the object.
type Objects interface {
	// ReadRange reads exactly n bytes at off.
	ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error)
}

// Rows reads ClickHouse.
type Rows interface {
	// ReadCopy gives every row of a copy once, in message.Compare order. A batch is valid
	// until fn returns.
	ReadCopy(ctx context.Context, id manifest.CopyID, s *message.Schema, fn func(*message.Batch) error) error
}

// Config bounds what a Reader takes. Zero values are the defaults.
type Config struct {
	Requests int   // requests of the bucket at once
	Memory   int64 // bytes of rows that are read ahead
}

// Defaults of Config.
const (
	DefaultRequests = 32
	DefaultMemory   = 64 << 20
)

// New makes a reader.
func New(d Deps, c Config) *Reader {
	if c.Requests < 1 {
		c.Requests = DefaultRequests
	}
	if c.Memory < 1 {
		c.Memory = DefaultMemory
	}
	return &Reader{Deps: d, cfg: c}
}

// mostSegments is more than a conversation has: one a day and shard.
const mostSegments = 1 << 20

// Slices lists the slices of a selection that have rows, oldest day first, then by
// shard.
func (r *Reader) Slices(ctx context.Context, sel Selection) ([]Slice, error) {
	if err := sel.validate(); err != nil {
		return nil, err
	}
	live, err := r.Manifest.LiveCopies(ctx, manifest.Filter{From: sel.From, To: sel.To, Shard: sel.Shard})
	if err != nil {
		return nil, err
	}
	var in map[uint64][][]byte
	if sel.Conversations != nil {
		if in, err = r.conversations(ctx, sel); err != nil {
			return nil, err
		}
	}
	var out []Slice
	for _, l := range live {
		s := Slice{Live: l, Conversations: in[l.ID]}
		if s.From, s.To, err = sel.window(r.Layout, l.Lo, l.Hi); err != nil {
			return nil, fmt.Errorf("slice %s: %w", l.SliceKey, err)
		}
		if s.From < s.To && s.Rows > 0 && (sel.Conversations == nil || s.Conversations != nil) {
			out = append(out, s)
		}
	}
	return out, nil
}

// conversations finds by slice which of the selection's conversations it has.
func (r *Reader) conversations(ctx context.Context, sel Selection) (map[uint64][][]byte, error) {
	in := map[uint64][][]byte{}
	seen := map[string]bool{}
	for _, c := range sel.Conversations {
		if seen[string(c)] {
			continue
		}
		seen[string(c)] = true
		refs, err := r.Manifest.Segments(ctx, manifest.SegmentQuery{Conversation: c, Oldest: true, Until: sel.To, Limit: mostSegments})
		if err != nil {
			return nil, err
		}
		last := map[uint64]bool{}
		for _, ref := range refs {
			if !last[ref.SliceID] {
				last[ref.SliceID] = true
				in[ref.SliceID] = append(in[ref.SliceID], c)
			}
		}
	}
	return in, nil
}
