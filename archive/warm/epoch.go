package warm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/message"
)

const (
	epochSample    = 25               // rows from each end of a table
	epochTolerance = 15 * time.Minute // between an ID's time and its row's own
	futureLimit    = 24 * time.Hour   // of the newest IDs
)

// EpochFits is ErrEpoch when the table's message IDs cannot be trusted to tell the
// day: when some are zero or below, when the oldest or the newest rows' IDs and
// created_at disagree, or when the newest IDs lie in the future. What is meant by
// "disagree" is the median of a sample, since single rows may be imported or have
// clocks of their own. An empty table fits.
//
// A created_at without a zone may be written in UTC or in the source's zone; an
// integer one in seconds, milliseconds, microseconds or nanoseconds.
func (t *Table) EpochFits(ctx context.Context) error {
	s, err := t.d.session(ctx)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	if err := t.epochFits(ctx, s); err != nil {
		return fmt.Errorf("table %s: %w", t.shard, err)
	}
	return nil
}

func (t *Table) epochFits(ctx context.Context, s *session) error {
	def := t.def.Load()
	column := def.schema.Columns()[def.schema.Role(message.MessageID)].Name
	low, err := t.lowest(ctx, s, def)
	if err != nil || low == "" {
		return err
	}
	if low == "0" || strings.HasPrefix(low, "-") {
		return fmt.Errorf("%w: column %s has ID %s, and no ID may be zero or below: move or delete such rows, or correct source.columns.message_id", ErrEpoch, column, low)
	}
	now, err := t.d.now(ctx)
	if err != nil {
		return err
	}
	for _, end := range []string{"oldest", "newest"} {
		rows, err := t.sample(ctx, s, def, end == "newest")
		if err != nil {
			return err
		}
		if err := t.fits(rows, end); err != nil {
			return err
		}
		if mid := rows[len(rows)/2]; end == "newest" && mid.byID.Sub(now) > futureLimit {
			return fmt.Errorf("%w: the newest IDs, such as %d, would be of %s, in the future: correct source.snowflake.epoch or time_shift",
				ErrEpoch, mid.id, mid.byID.Format(time.RFC3339))
		}
	}
	return nil
}

// lowest is the text of the lowest message ID, "" in an empty table.
func (t *Table) lowest(ctx context.Context, s *session, def *definition) (string, error) {
	var low *string
	err := s.row(ctx, fmt.Sprintf("SELECT CAST(MIN(%s) AS CHAR) FROM %s FORCE INDEX (%s)", def.id, t.name, def.key), &low)
	if err != nil || low == nil {
		return "", err
	}
	return *low, nil
}

// sampled is a row's two opinions of its time.
type sampled struct {
	id   uint64
	byID time.Time
	own  []time.Time // possible readings of created_at; none without one
}

func (t *Table) sample(ctx context.Context, s *session, def *definition, newest bool) (out []sampled, err error) {
	created, order := def.schema.Role(message.CreatedAt), "ASC"
	if newest {
		order = "DESC"
	}
	own := "NULL"
	if created >= 0 {
		own = "CAST(" + quote(def.schema.Columns()[created].Name) + " AS CHAR)"
	}
	err = s.rows(ctx, fmt.Sprintf("SELECT CAST(%s AS CHAR), %s FROM %s FORCE INDEX (%s) ORDER BY %s %s LIMIT %d",
		def.id, own, t.name, def.key, def.id, order, epochSample), func(v [][]byte) error {
		id, err := strconv.ParseUint(string(v[0]), 10, 64)
		if err != nil {
			return fmt.Errorf("%w: message ID %s", ErrEpoch, v[0])
		}
		row := sampled{id: id, byID: t.d.cfg.Layout.Time(id)}
		if v[1] != nil {
			if row.own, err = t.readings(def.schema.Columns()[created], v[1]); err != nil {
				return err
			}
		}
		out = append(out, row)
		return nil
	})
	if err == nil && len(out) == 0 {
		err = errors.New("lost all its rows while it was looked at")
	}
	return out, err
}

// readings are the instants that a created_at may mean; none for a zero date.
func (t *Table) readings(c message.Column, text []byte) ([]time.Time, error) {
	switch c.Kind {
	case message.DateTime, message.Timestamp:
		micros, ok := message.ParseDateTime(text, c.Scale)
		if !ok {
			return nil, nil
		}
		utc := time.UnixMicro(micros).UTC()
		if c.Kind == message.Timestamp {
			return []time.Time{utc}, nil
		}
		local := time.Date(utc.Year(), utc.Month(), utc.Day(), utc.Hour(), utc.Minute(), utc.Second(), utc.Nanosecond(), t.d.cfg.Zone)
		return []time.Time{utc, local}, nil
	case message.Int, message.Uint:
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || n <= 0 {
			return nil, nil //nolint:nilerr // 0 and absurd numbers say nothing
		}
		switch digits := len(text); {
		case digits <= 11:
			return []time.Time{time.Unix(n, 0)}, nil
		case digits <= 14:
			return []time.Time{time.UnixMilli(n)}, nil
		case digits <= 17:
			return []time.Time{time.UnixMicro(n)}, nil
		}
		return []time.Time{time.Unix(0, n)}, nil
	}
	return nil, fmt.Errorf("column %s (%s) cannot be the created_at: want a DATETIME, a TIMESTAMP or an integer", c.Name, c.SourceType)
}

// fits compares the median of each reading's deviation with the tolerance.
func (t *Table) fits(rows []sampled, end string) error {
	best, at, readings := time.Duration(math.MaxInt64), sampled{}, 0
	for _, r := range rows {
		readings = max(readings, len(r.own))
	}
	if readings == 0 {
		return nil // nothing to compare with
	}
	for reading := range readings {
		var with []sampled
		for _, r := range rows {
			if reading < len(r.own) {
				with = append(with, sampled{r.id, r.byID, r.own[reading : reading+1]})
			}
		}
		off := func(r sampled) time.Duration { return r.byID.Sub(r.own[0]).Abs() }
		slices.SortFunc(with, func(a, b sampled) int { return int(off(a)/time.Second - off(b)/time.Second) })
		if mid := with[len(with)/2]; off(mid) < best {
			best, at = off(mid), mid
		}
	}
	if best <= epochTolerance {
		return nil
	}
	created := t.Schema().Columns()[t.Schema().Role(message.CreatedAt)].Name
	return fmt.Errorf("%w: by source.snowflake the %s rows' IDs, such as %d, are of %s, but column %s says %s: correct epoch, time_shift or timezone",
		ErrEpoch, end, at.id, at.byID.Format(time.RFC3339), created, at.own[0].UTC().Format(time.RFC3339))
}
