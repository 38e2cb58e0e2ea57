package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	driver "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/coldtier/coldtier/archive/message"
)

// ErrInserter says that an Inserter failed before or was closed: its copy does not count.
var ErrInserter = errors.New("inserter is closed or failed before")

// Inserter sends the rows of one copy in big blocks. It keeps the rows that were not
// sent yet, so that a block whose sending failed is built anew and sent again. After any
// error the copy is incomplete and must be dropped. It is not safe for concurrent use.
type Inserter struct {
	d       *DB
	id      CopyID
	schema  *message.Schema
	names   []string
	types   []string
	codecs  []codec
	pending *message.Batch
	dead    bool

	days, shards, attempts, exacts typedConst
	generations                    []uint32
}

// typedConst is a column whose rows are mostly alike.
type typedConst struct{ texts []string }

// Insert begins to send a copy's rows. Nothing is sent before a block is full.
func (d *DB) Insert(ctx context.Context, id CopyID, s *message.Schema) (*Inserter, error) {
	types, err := d.columnTypes(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("insert of %s: %w", id, err)
	}
	i := &Inserter{d: d, id: id, schema: s, pending: message.NewBatch(s), names: []string{colDay, colShard, colGeneration, colAttempt, colExact}}
	i.codecs, err = codecsFor(s, types)
	if err != nil {
		return nil, fmt.Errorf("insert of %s: %w", id, err)
	}
	for _, c := range s.Columns() {
		i.names = append(i.names, c.Name)
	}
	for _, n := range i.names {
		i.types = append(i.types, types[n])
	}
	return i, nil
}

// codecsFor makes the codecs of a schema's columns in a table of the given columns.
func codecsFor(s *message.Schema, types map[string]string) (codecs []codec, err error) {
	for _, c := range s.Columns() {
		t, ok := types[c.Name]
		if !ok {
			return nil, fmt.Errorf("column %s is not in the ClickHouse table: %w: run coldtier migrate", c.Name, ErrNoTable)
		}
		k, err := newCodec(c, t)
		if err != nil {
			return nil, err
		}
		codecs = append(codecs, k)
	}
	return codecs, nil
}

// Write adds rows [from, to) of a batch. It keeps no reference to the batch.
func (i *Inserter) Write(ctx context.Context, b *message.Batch, from, to int) error {
	if i.dead {
		return fmt.Errorf("insert of %s: %w", i.id, ErrInserter)
	}
	if b.Schema() != i.schema && !b.Schema().Equal(i.schema) {
		return i.fail(fmt.Errorf("insert of %s: the rows have schema %s, the copy %s", i.id, b.Schema().Hash(), i.schema.Hash()))
	}
	for row := from; row < to; row++ {
		if err := i.pending.AppendFrom(b, row); err != nil {
			return i.fail(fmt.Errorf("insert of %s: %w", i.id, err))
		}
		if i.pending.Len() >= i.d.cfg.BlockRows || i.pending.Bytes() >= i.d.cfg.BlockBytes {
			if err := i.flush(ctx); err != nil {
				return i.fail(err)
			}
		}
	}
	return nil
}

// Close sends what is left. Only when it returns nil has the server taken every row;
// whether they are the right ones is for the caller to compare.
func (i *Inserter) Close(ctx context.Context) error {
	if i.dead {
		return fmt.Errorf("insert of %s: %w", i.id, ErrInserter)
	}
	if err := i.flush(ctx); err != nil {
		return i.fail(err)
	}
	i.Abort()
	return nil
}

// Abort gives up. Blocks that were sent before stay in the table, and count for nothing;
// Drop removes them. After Close it does nothing.
func (i *Inserter) Abort() {
	i.dead = true
	i.pending, i.codecs = nil, nil
}

func (i *Inserter) fail(err error) error {
	i.Abort()
	return err
}

// flush sends the pending rows as one block, again and again within the caller's
// deadline, a bounded number of times. A block whose fate is unknown is sent again: it
// may then be twice in the table, which reads see through.
func (i *Inserter) flush(ctx context.Context) error {
	n := i.pending.Len()
	if n == 0 {
		return nil
	}
	columns, err := i.columns()
	if err != nil {
		return fmt.Errorf("insert of %s: %w", i.id, err)
	}
	const (
		tries   = 6
		stalled = 2 // tries that took all of the time limit: a server that hangs must not hang its caller for tries times that
	)
	timeouts := 0
	for try := 1; ; try++ {
		if err = i.send(ctx, columns); err == nil {
			break
		}
		f := classify(ctx, err)
		if errors.Is(f.sentinel, ErrTimeout) {
			timeouts++
		}
		if errors.Is(err, ErrBadValue) || ctx.Err() != nil || !f.retry || try == tries || timeouts == stalled {
			return fmt.Errorf("insert of %d rows of %s, try %d: %w", n, i.id, try, tell(ctx, err))
		}
		wait := i.d.retryWait << (try - 1)
		if errors.Is(f.sentinel, ErrBusy) {
			wait *= 10 // merges take seconds
		}
		wait = wait/2 + rand.N(wait) //nolint:gosec // jitter
		i.d.log.WarnContext(ctx, "ClickHouse insert is tried again", "copy", i.id.String(), "rows", n, "try", try, "wait", wait, "error", err)
		if i.d.cfg.OnRetry != nil {
			i.d.cfg.OnRetry()
		}
		if err := sleep(ctx, wait); err != nil {
			return fmt.Errorf("insert of %d rows of %s: %w (the last try: %w)", n, i.id, err, f.sentinel)
		}
	}
	i.pending.Reset()
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// columns makes the typed slices of the pending rows, in the order of i.names. They
// refer to the pending rows.
func (i *Inserter) columns() ([]any, error) {
	n := i.pending.Len()
	var ex exact
	columns := make([]any, serviceColumns, len(i.names))
	for c, k := range i.codecs {
		slice, err := k.column(i.pending, c, &ex)
		if err != nil {
			return nil, err
		}
		columns = append(columns, slice)
	}
	var err error
	if i.exacts.texts, err = ex.column(i.exacts.texts, n); err != nil {
		return nil, err
	}
	for len(i.generations) < n {
		i.generations = append(i.generations, i.id.Generation)
	}
	columns[0] = i.days.fill(n, i.id.Day.String())
	columns[1] = i.shards.fill(n, i.id.Shard.String())
	columns[2] = i.generations[:n]
	columns[3] = i.attempts.fill(n, i.id.Attempt)
	columns[4] = i.exacts.texts
	return columns, nil
}

func (c *typedConst) fill(n int, text string) []string {
	for len(c.texts) < n {
		c.texts = append(c.texts, text)
	}
	return c.texts[:n]
}

// send makes one try.
func (i *Inserter) send(ctx context.Context, columns []any) error {
	ctx, cancel := i.d.withTimeout(ctx)
	defer cancel()
	known := make([]driver.ColumnNameAndType, len(i.names))
	for c := range i.names {
		known[c] = driver.ColumnNameAndType{Name: i.names[c], Type: i.types[c]}
	}
	ctx = driver.Context(ctx, driver.WithColumnNamesAndTypes(known)) // spares HTTP a DESCRIBE TABLE
	batch, err := i.d.conn.PrepareBatch(ctx, fmt.Sprintf("INSERT INTO %s (%s)", i.d.qualified(tableName), idents(i.names)))
	if err != nil {
		return err
	}
	for c := range columns {
		if err := batch.Column(c).Append(columns[c]); err != nil {
			_ = batch.Abort()
			return fmt.Errorf("column %s of type %s: %w: %w", i.names[c], i.types[c], ErrBadValue, err)
		}
	}
	return batch.Send()
}
