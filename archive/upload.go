package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/coldtier/coldtier/archive/message"
	"github.com/coldtier/coldtier/archive/segment"
	"github.com/coldtier/coldtier/manifest"
)

// bigConversation is the size from which a conversation's rows are encoded as
// they come, to a file, instead of being gathered first.
const bigConversation = 4 << 20

// bigFile is the encoded file of a conversation too big to be gathered.
type bigFile struct {
	f *os.File
	w *segment.Writer
}

// add takes the next block of sorted rows.
func (u *uploads) add(b *message.Batch) error {
	for i := 0; i < b.Len(); {
		conv := b.Conversation(i)
		j := i + 1
		for j < b.Len() && bytes.Equal(b.Conversation(j), conv) {
			j++
		}
		if u.conv != nil && !bytes.Equal(u.conv, conv) {
			if err := u.submit(); err != nil {
				return err
			}
		}
		u.conv = conv
		if err := u.gather(part{b, i, j}); err != nil {
			return err
		}
		i = j
	}
	return nil
}

func (u *uploads) gather(p part) error {
	if u.big != nil {
		return u.big.w.Write(p.b, p.from, p.to)
	}
	u.parts = append(u.parts, p)
	u.bytes += p.b.Bytes() * (p.to - p.from) / p.b.Len()
	if u.bytes < bigConversation {
		return nil
	}
	f, err := os.CreateTemp(u.dir, "conv-*.parquet")
	if err != nil {
		return fmt.Errorf("temporary file: %w", err)
	}
	w, err := segment.NewWriter(f, u.copy.Schema, u.meta(), segment.Options{})
	if err != nil {
		return errors.Join(err, f.Close())
	}
	u.big = &bigFile{f, w}
	for _, p := range u.parts {
		if err := w.Write(p.b, p.from, p.to); err != nil {
			return err
		}
	}
	u.parts = nil
	return nil
}

func (u *uploads) meta() segment.Meta {
	c := u.copy
	return segment.Meta{Source: c.Source, Shard: c.Shard.String(), Day: c.Day.String(), Attempt: c.Attempt, Generation: c.Generation, Lo: c.Lo, Hi: c.Hi}
}

// writer is a new file's writer, with the memory of a finished one.
func (u *uploads) writer(out io.Writer) (*segment.Writer, error) {
	if w, ok := u.writers.Get().(*segment.Writer); ok {
		return w, w.Reset(out, u.copy.Schema, u.meta())
	}
	return segment.NewWriter(out, u.copy.Schema, u.meta(), segment.Options{})
}

// submit hands the gathered conversation to the uploads; it waits while too many
// are under way.
func (u *uploads) submit() error {
	conv, parts, big, size := u.conv, u.parts, u.big, u.bytes
	u.conv, u.parts, u.bytes, u.big = nil, nil, 0, nil
	// Its rows, the row group that is being built of them and the finished file.
	weight := min(3*int64(size), u.limit)
	if err := u.memory.Acquire(u.ctx, weight); err != nil {
		return context.Cause(u.ctx)
	}
	key := manifest.ConversationKey(u.copy.SliceKey, u.copy.Generation, u.copy.Attempt, conv)
	if big == nil {
		u.g.Go(func() error {
			defer u.memory.Release(weight)
			encoded := u.a.observer().Stage(u.ctx, StageEncode)
			var buf bytes.Buffer
			w, err := u.writer(&buf)
			if err != nil {
				return fmt.Errorf("object %s: %w", key, err)
			}
			defer u.writers.Put(w)
			for _, p := range parts {
				if err := w.Write(p.b, p.from, p.to); err != nil {
					return fmt.Errorf("object %s: %w", key, err)
				}
			}
			return u.put(key, w, encoded, func() io.ReadSeeker { return bytes.NewReader(buf.Bytes()) })
		})
		return nil
	}
	u.g.Go(func() error {
		defer u.memory.Release(weight)
		err := u.put(key, big.w, u.a.observer().Stage(u.ctx, StageEncode), func() io.ReadSeeker { return big.f })
		return errors.Join(err, big.f.Close(), os.Remove(big.f.Name()))
	})
	return nil
}

// put ends a file and stores it. encoded and body are called once the file is written.
func (u *uploads) put(key string, w *segment.Writer, encoded func(rows uint64, bytes int64), body func() io.ReadSeeker) error {
	file, spans, err := w.Close()
	if err != nil {
		return fmt.Errorf("object %s: %w", key, err)
	}
	encoded(uint64(file.Rows), file.Size) //nolint:gosec // a count
	stored := u.a.observer().Stage(u.ctx, StagePut)
	if err := u.a.Objects.Put(u.ctx, key, body(), file.Size, file.SHA256, false); err != nil {
		return err
	}
	stored(uint64(file.Rows), file.Size) //nolint:gosec // a count
	u.job.put(file.Rows, file.Size)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.objects = append(u.objects, manifest.Object{Key: key, File: file, Segs: spans})
	return nil
}

// finish submits the last conversation or, after a failure, lets go of a big file.
func (u *uploads) finish(failed bool) error {
	if failed {
		if u.big != nil {
			return u.big.f.Close() // its folder is removed with it
		}
		return nil
	}
	if u.conv == nil {
		return nil
	}
	return u.submit()
}
