package manifest

import (
	"context"
	"fmt"
	"time"
)

// Stage is how far the copy of a slice is.
type Stage string

// The stages, in order.
const (
	StageScan   Stage = "scan"   // rows are read from warm
	StageStore  Stage = "store"  // objects are put and rows inserted
	StageCommit Stage = "commit" // the bucket's record, then the manifest
	StageVerify Stage = "verify" // both copies are read back
)

// Work is how much of a slice is done. Each of the pairs begins anew with each stage.
type Work struct {
	Stage    Stage  `json:"stage"`
	Rows     uint64 `json:"rows"`     // scanned; then stored; then 0
	OfRows   uint64 `json:"of_rows"`  // that there will be; estimated while it is scanned, 0: unknown
	Bytes    uint64 `json:"bytes"`    // of Rows as warm gives them; then of the objects put; then of those read back
	OfBytes  uint64 `json:"of_bytes"` // that there will be; 0: unknown
	Objects  uint64 `json:"objects"`  // put
	Inserted uint64 `json:"inserted"` // rows inserted into ClickHouse
}

// SliceProgress is a slice that is being copied or verified.
type SliceProgress struct {
	SliceKey
	Worker string `json:"worker"`
	Work
	Started time.Time `json:"started"` // of the stage, by the database's clock
	Updated time.Time `json:"updated"` // the worker tells it every few seconds
}

// Share is how much of the stage is done, 0 to 1; 0 when that is unknown.
func (p *SliceProgress) Share() float64 {
	switch {
	case p.OfRows > 0:
		return min(1, float64(p.Rows)/float64(p.OfRows))
	case p.OfBytes > 0:
		return min(1, float64(p.Bytes)/float64(p.OfBytes))
	}
	return 0
}

// Left is how long the stage will still take at the rate so far; false when that is unknown.
func (p *SliceProgress) Left() (time.Duration, bool) {
	share := p.Share()
	if share <= 0 {
		return 0, false
	}
	return time.Duration(float64(p.Updated.Sub(p.Started)) * (1 - share) / share), true
}

const (
	noteProgress = "INSERT INTO slice_progress (slice_id, source_id, token, worker, stage, row_count, of_rows, bytes, of_bytes, objects, inserted_rows, started_at, updated_at) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE " +
		"started_at = IF(token = VALUES(token) AND stage = VALUES(stage), started_at, VALUES(started_at)), " +
		"worker = IF(token <= VALUES(token), VALUES(worker), worker), stage = IF(token <= VALUES(token), VALUES(stage), stage), " +
		"row_count = IF(token <= VALUES(token), VALUES(row_count), row_count), of_rows = IF(token <= VALUES(token), VALUES(of_rows), of_rows), " +
		"bytes = IF(token <= VALUES(token), VALUES(bytes), bytes), of_bytes = IF(token <= VALUES(token), VALUES(of_bytes), of_bytes), " +
		"objects = IF(token <= VALUES(token), VALUES(objects), objects), inserted_rows = IF(token <= VALUES(token), VALUES(inserted_rows), inserted_rows), " +
		"updated_at = IF(token <= VALUES(token), VALUES(updated_at), updated_at), token = GREATEST(token, VALUES(token))"
	endProgress   = "DELETE FROM slice_progress WHERE slice_id = ? AND token = ?"
	progressQuery = "SELECT s.day, s.db_name, s.table_name, p.worker, p.stage, p.row_count, p.of_rows, p.bytes, p.of_bytes, p.objects, p.inserted_rows, p.started_at, p.updated_at " +
		"FROM slice_progress p JOIN slices s ON s.id = p.slice_id AND s.lease_token = p.token AND s.lease_until > UTC_TIMESTAMP(6) WHERE p.source_id = ? ORDER BY p.slice_id"
)

// NoteWork notes how far the work under this lease is. It is for people to look at: what
// a worker that was paused beyond its lease notes does not hide its successor's.
func (l *Lease) NoteWork(ctx context.Context, w Work) error {
	src, err := l.s.sourceOf(ctx, false)
	if err != nil {
		return err
	}
	if _, err := l.s.db.ExecContext(ctx, noteProgress, l.id, src, l.token, l.Slice().LeaseOwner, string(w.Stage), w.Rows, w.OfRows, w.Bytes, w.OfBytes, w.Objects, w.Inserted); err != nil {
		return fmt.Errorf("note the progress of slice %s: %w", l.key, err)
	}
	return nil
}

// EndWork takes back what NoteWork noted.
func (l *Lease) EndWork(ctx context.Context) error {
	if _, err := l.s.db.ExecContext(ctx, endProgress, l.id, l.token); err != nil {
		return fmt.Errorf("end the progress of slice %s: %w", l.key, err)
	}
	return nil
}

// Progress lists the slices that are in work for longer than a few seconds.
func (s *Store) Progress(ctx context.Context) (all []SliceProgress, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, progressQuery, src)
	if err != nil {
		return nil, fmt.Errorf("list the progress of slices: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		p := SliceProgress{SliceKey: SliceKey{Source: s.source}}
		if err := rows.Scan(&p.Day, &p.Shard.Database, &p.Shard.Table, &p.Worker, &p.Stage, &p.Rows, &p.OfRows, &p.Bytes, &p.OfBytes, &p.Objects, &p.Inserted, &p.Started, &p.Updated); err != nil {
			return nil, fmt.Errorf("list the progress of slices: %w", err)
		}
		all = append(all, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the progress of slices: %w", err)
	}
	return all, nil
}
