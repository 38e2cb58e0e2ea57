package manifest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/archive/snowflake"
)

// DrillVerdict says how a restore drill ended.
type DrillVerdict string

// The verdicts.
const (
	DrillGood DrillVerdict = "pass"
	DrillBad  DrillVerdict = "fail"
)

// Drill is a restore drill that has ended.
type Drill struct {
	ID         string          `json:"id"` // at most 64 bytes
	Began      time.Time       `json:"began"`
	Ended      time.Time       `json:"ended"`
	Verdict    DrillVerdict    `json:"verdict"`
	Sample     string          `json:"sample"` // the fraction, as "1/8"
	Seed       uint64          `json:"seed,string"`
	Measures   json.RawMessage `json:"measures"`              // the few that are followed from drill to drill
	ReportJSON string          `json:"report_json,omitempty"` // key in the bucket
	ReportHTML string          `json:"report_html,omitempty"`
	SignedBy   string          `json:"signed_by,omitempty"` // ID of the key; "": unsigned
	Slices     []DrillSlice    `json:"slices,omitempty"`    // that were restored; Drills does not read them
}

// DrillSlice is a slice that a drill restored.
type DrillSlice struct {
	Day        snowflake.Day `json:"day"`
	Shard      Shard         `json:"shard"`
	Generation uint32        `json:"generation"`
	Rows       uint64        `json:"rows"`
	Equal      bool          `json:"equal"` // it was found equal
}

// PutDrill enters a drill into the history. It may be repeated: a drill of that ID that is
// there stays as it is.
func (s *Store) PutDrill(ctx context.Context, d *Drill) error {
	fail := func(err error) error { return fmt.Errorf("enter drill %s: %w", d.ID, err) }
	switch {
	case d.ID == "" || len(d.ID) > 64:
		return fail(errors.New("want an ID of 1 to 64 bytes"))
	case d.Verdict != DrillGood && d.Verdict != DrillBad:
		return fail(fmt.Errorf("verdict %q: want %s or %s", d.Verdict, DrillGood, DrillBad))
	case d.Ended.Before(d.Began):
		return fail(errors.New("it ended before it began"))
	case len(d.Measures) > 0 && !json.Valid(d.Measures):
		return fail(errors.New("its measures are not JSON"))
	}
	measures := string(d.Measures)
	if measures == "" {
		measures = "{}"
	}
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return err
	}
	packet, err := s.maxPacket(ctx)
	if err != nil {
		return err
	}
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, "INSERT INTO drills (source_id, id, began, ended, verdict, sample, seed, measures, report_json, report_html, signed_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "+
			"ON DUPLICATE KEY UPDATE number = LAST_INSERT_ID(number)",
			src, d.ID, d.Began.UTC(), d.Ended.UTC(), string(d.Verdict), d.Sample, d.Seed, measures, d.ReportJSON, d.ReportHTML, d.SignedBy)
		if err != nil {
			return err
		}
		number, err := r.LastInsertId()
		if err != nil {
			return err
		}
		// Of a drill that is there already, the slices are there too.
		in := &inserter{ctx: ctx, q: tx, head: "INSERT INTO drill_slices (drill, day, db_name, table_name, generation, row_count, is_equal) VALUES ",
			tail: " ON DUPLICATE KEY UPDATE drill = drill_slices.drill", limit: min(statementBytes, packet/2)}
		for _, x := range d.Slices {
			in.num(uint64(number)) //nolint:gosec // counts from 1
			for _, text := range []string{x.Day.String(), x.Shard.Database, x.Shard.Table} {
				in.bytes([]byte(text))
			}
			in.num(uint64(x.Generation))
			in.num(x.Rows)
			equal := uint64(0)
			if x.Equal {
				equal = 1
			}
			in.num(equal)
			if err := in.end(); err != nil {
				return err
			}
		}
		return in.flush()
	})
	if err != nil {
		return fail(err)
	}
	return nil
}

const drillColumns = "id, began, ended, verdict, sample, seed, measures, report_json, report_html, signed_by"

// Drills lists the last n drills, newest first, without their slices.
func (s *Store) Drills(ctx context.Context, n int) ([]Drill, error) {
	return s.drills(ctx, "TRUE", n)
}

// LastGoodDrill is the newest drill that found everything right; nil: there was none.
func (s *Store) LastGoodDrill(ctx context.Context) (*Drill, error) {
	all, err := s.drills(ctx, "verdict = '"+string(DrillGood)+"'", 1)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

func (s *Store) drills(ctx context.Context, where string, n int) (all []Drill, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+drillColumns+" FROM drills WHERE source_id = ? AND "+where+" ORDER BY began DESC, number DESC LIMIT ?", src, n)
	if err != nil {
		return nil, fmt.Errorf("list the manifest's drills: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var d Drill
		var measures []byte
		if err := rows.Scan(&d.ID, &d.Began, &d.Ended, &d.Verdict, &d.Sample, &d.Seed, &measures, &d.ReportJSON, &d.ReportHTML, &d.SignedBy); err != nil {
			return nil, fmt.Errorf("list the manifest's drills: %w", err)
		}
		d.Measures = measures
		all = append(all, d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the manifest's drills: %w", err)
	}
	return all, nil
}

// Drilled is a generation of a slice that a drill restored and found equal.
type Drilled struct {
	Day        snowflake.Day
	Shard      Shard
	Generation uint32
	Last       time.Time // when the newest of those drills began
}

// Drilled lists what was restored and found equal in drills that began since an instant,
// oldest day first, whatever else those drills found. A slice is there once for each
// generation: whether one that was restored counts for a later one, the caller decides.
func (s *Store) Drilled(ctx context.Context, since time.Time) (all []Drilled, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT x.day, x.db_name, x.table_name, x.generation, MAX(d.began) FROM drills d JOIN drill_slices x ON x.drill = d.number "+
		"WHERE d.source_id = ? AND d.began >= ? AND x.is_equal = 1 GROUP BY x.day, x.db_name, x.table_name, x.generation ORDER BY x.day, x.db_name, x.table_name, x.generation", src, since.UTC())
	if err != nil {
		return nil, fmt.Errorf("list what drills restored: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var d Drilled
		if err := rows.Scan(&d.Day, &d.Shard.Database, &d.Shard.Table, &d.Generation, &d.Last); err != nil {
			return nil, fmt.Errorf("list what drills restored: %w", err)
		}
		all = append(all, d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list what drills restored: %w", err)
	}
	return all, nil
}
