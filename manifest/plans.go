package manifest

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coldtier/coldtier/archive/message"
)

// ErrUnapproved says that no plan that a second person approved allows a purge.
var ErrUnapproved = errors.New("no approved plan allows it")

// Person is who made, approved or revoked a plan.
type Person struct {
	Account string `json:"account"`      // of the manifest's database, as the server names it; what the caller gives is not looked at
	User    string `json:"os_user"`      // of the machine, as the caller says
	By      string `json:"by,omitempty"` // as the caller says
}

func (p Person) check() error {
	if len(p.User) > 255 || len(p.By) > 255 {
		return errors.New("names of persons have at most 255 bytes")
	}
	return nil
}

// PlanSlice is a slice of a saved plan: exactly the copy that may be purged by.
type PlanSlice struct {
	ID uint64 `json:"id"`
	SliceKey
	Lo          uint64              `json:"lo,string"`
	Hi          uint64              `json:"hi,string"`
	Generation  uint32              `json:"generation"`
	Rows        uint64              `json:"rows"`        // of the copy
	Bytes       int64               `json:"bytes"`       // of the copy's objects
	Fingerprint message.Fingerprint `json:"fingerprint"` // of the copy's rows
	RecordSum   [32]byte            `json:"-"`           // of its commit record
}

// Approval is that a second person allows a plan.
type Approval struct {
	Person
	At     time.Time `json:"at"` // by the database's clock
	Reason string    `json:"reason,omitempty"`
}

// SavedPlan is a plan of a purge as the manifest has it, without its slices.
type SavedPlan struct {
	ID       string    `json:"id"`
	Hash     string    `json:"hash"` // of what it lists
	MadeBy   Person    `json:"made_by"`
	Made     time.Time `json:"made"`    // by the database's clock, as are the others
	Expires  time.Time `json:"expires"` // nothing is deleted by it from then on
	Slices   int       `json:"slices"`
	Rows     uint64    `json:"rows"`
	Expired  bool      `json:"expired"` // by the database's clock
	Approved *Approval `json:"approved,omitempty"`
	Revoked  *Approval `json:"revoked,omitempty"`
}

// Refused says why a purge may not go by the plan, whatever it lists: ErrUnapproved.
func (p *SavedPlan) Refused() error {
	switch {
	case p.Revoked != nil:
		return fmt.Errorf("plan %s: %w: %s revoked it at %s", p.ID, ErrUnapproved, p.Revoked.Account, p.Revoked.At.UTC().Format(time.RFC3339))
	case p.Expired:
		return fmt.Errorf("plan %s: %w: it expired at %s: make a new one with coldtier plan purge --save", p.ID, ErrUnapproved, p.Expires.UTC().Format(time.RFC3339))
	case p.Approved == nil:
		return fmt.Errorf("plan %s: %w: it waits for a second person's coldtier approve %s", p.ID, ErrUnapproved, p.ID)
	}
	return nil
}

// hashPlan is the hash of what a plan lists.
func hashPlan(source, id string, list []PlanSlice) string {
	h := sha256.New()
	fmt.Fprintf(h, "coldtier purge plan 1\n%q\n%s\n", source, id)
	for _, s := range list {
		fmt.Fprintf(h, "%d %s %q %q %d %d %d %d %d %s %x\n", s.ID, s.Day, s.Shard.Database, s.Shard.Table, s.Lo, s.Hi, s.Generation, s.Rows, s.Bytes, s.Fingerprint, s.RecordSum)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func sortPlan(list []PlanSlice) {
	slices.SortFunc(list, func(a, b PlanSlice) int {
		return cmp.Or(a.Day.Compare(b.Day), cmp.Compare(a.Shard.Database, b.Shard.Database), cmp.Compare(a.Shard.Table, b.Shard.Table))
	})
}

// planBatch is how many slices a statement about a plan names.
const planBatch = 500

// MaxPlanSlices is how many slices a saved plan has at most: what somebody can be asked to approve.
const MaxPlanSlices = 1_000_000

// SavePlan keeps a plan of a purge: the slices with these numbers, in these generations, as
// the manifest knows them now. It is valid so long, by the database's clock. A slice that is
// not verified or in purging, or of another generation, is ErrState.
func (s *Store) SavePlan(ctx context.Context, by Person, valid time.Duration, generations map[uint64]uint32) (*SavedPlan, error) {
	fail := func(err error) (*SavedPlan, error) { return nil, fmt.Errorf("save a plan: %w", err) }
	switch {
	case valid <= 0:
		return fail(fmt.Errorf("it would be valid for %s: want a time to come", valid))
	case len(generations) == 0:
		return fail(errors.New("it lists no slice"))
	case len(generations) > MaxPlanSlices:
		return fail(fmt.Errorf("it lists %d slices, want at most %d: narrow it with --to or --shard", len(generations), MaxPlanSlices))
	}
	if err := by.check(); err != nil {
		return fail(err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return fail(err)
	}
	packet, err := s.maxPacket(ctx)
	if err != nil {
		return fail(err)
	}
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	id := hex.EncodeToString(b[:])
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		list, err := s.planned(ctx, tx, src, generations)
		if err != nil {
			return err
		}
		sortPlan(list)
		var rows uint64
		for _, sl := range list {
			rows += sl.Rows
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO plans (source_id, id, hash, account, os_user, given_by, made_at, expires_at, slices, row_count) VALUES (?, ?, ?, CURRENT_USER(), ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?, ?)",
			src, id, hashPlan(s.source, id, list), by.User, by.By, micros(valid), len(list), rows); err != nil {
			return err
		}
		return addPlanSlices(ctx, tx, "plan_slices", src, id, list, min(statementBytes, packet/2))
	})
	if err != nil {
		return fail(err)
	}
	return s.SavedPlan(ctx, id)
}

// placeholders is n of them.
func placeholders(n int) string { return "?" + strings.Repeat(", ?", n-1) }

// planned reads what the manifest knows of slices that a plan lists.
func (s *Store) planned(ctx context.Context, q reader, src uint32, generations map[uint64]uint32) (list []PlanSlice, err error) {
	ids := make([]any, 0, len(generations))
	for id := range generations {
		ids = append(ids, id)
	}
	for batch := range slices.Chunk(ids, planBatch) {
		sums, err := s.sums(ctx, q, batch)
		if err != nil {
			return nil, err
		}
		rows, err := q.QueryContext(ctx, "SELECT s.id, s.day, s.db_name, s.table_name, s.lo, s.hi, s.state, s.live_generation, s.generation, c.row_count, c.bytes, c.record_sum FROM slices s JOIN copies c ON c.slice_id = s.id AND c.generation = s.live_generation "+
			"WHERE s.source_id = ? AND s.id IN ("+placeholders(len(batch))+")", append([]any{src}, batch...)...)
		if err != nil {
			return nil, err
		}
		n, err := s.scanPlanned(rows, generations, sums, &list)
		if err != nil {
			return nil, err
		}
		if n != len(batch) {
			return nil, fmt.Errorf("%w: of %d slices the manifest has copies of %d", ErrState, len(batch), n)
		}
	}
	return list, nil
}

func (s *Store) scanPlanned(rows *sql.Rows, generations map[uint64]uint32, sums map[uint64]message.Fingerprint, list *[]PlanSlice) (n int, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		p := PlanSlice{SliceKey: SliceKey{Source: s.source}}
		var state State
		var newest uint32
		var sum []byte
		if err := rows.Scan(&p.ID, &p.Day, &p.Shard.Database, &p.Shard.Table, &p.Lo, &p.Hi, &state, &p.Generation, &newest, &p.Rows, &p.Bytes, &sum); err != nil {
			return 0, err
		}
		p.Fingerprint = sums[p.ID]
		switch {
		case state != Verified && state != Purging || p.Generation != newest || p.Generation != generations[p.ID]:
			return 0, fmt.Errorf("slice %s: %w: it is %s, generation %d, live generation %d; planned was generation %d", p.SliceKey, ErrState, state, newest, p.Generation, generations[p.ID])
		case len(sum) != 32 || p.Fingerprint.Rows != p.Rows:
			return 0, fmt.Errorf("slice %s: %w: its chunks have %d rows, its copy %d", p.SliceKey, ErrCorrupt, p.Fingerprint.Rows, p.Rows)
		}
		p.RecordSum = [32]byte(sum)
		*list = append(*list, p)
		n++
	}
	return n, rows.Err()
}

// sums are the fingerprints of the live copies of slices.
func (s *Store) sums(ctx context.Context, q reader, ids []any) (map[uint64]message.Fingerprint, error) {
	const half = "CAST(MOD(SUM(k.warm_%[1]s) + SUM(k.carried_%[1]s), 18446744073709551616) AS UNSIGNED)"
	rows, err := q.QueryContext(ctx, "SELECT k.slice_id, "+fmt.Sprintf(half, "hi")+", "+fmt.Sprintf(half, "lo")+", CAST(SUM(k.warm_rows) + SUM(k.carried_rows) AS UNSIGNED) "+
		"FROM slices s JOIN chunks k ON k.slice_id = s.id AND k.token = s.live_token WHERE s.id IN ("+placeholders(len(ids))+") GROUP BY k.slice_id", ids...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	sums := map[uint64]message.Fingerprint{}
	for rows.Next() {
		var id uint64
		var f message.Fingerprint
		if err := rows.Scan(&id, &f.Hi, &f.Lo, &f.Rows); err != nil {
			return nil, err
		}
		sums[id] = f
	}
	return sums, rows.Err()
}

func addPlanSlices(ctx context.Context, q reader, table string, src uint32, plan string, list []PlanSlice, limit int) error {
	in := &inserter{ctx: ctx, q: q, limit: limit, head: "INSERT INTO " + table + " (source_id, plan, slice_id, day, db_name, table_name, lo, hi, generation, row_count, bytes, sum_hi, sum_lo, record_sum) VALUES "}
	for i := range list {
		s := &list[i]
		in.num(uint64(src))
		in.bytes([]byte(plan))
		in.num(s.ID)
		for _, text := range []string{s.Day.String(), s.Shard.Database, s.Shard.Table} {
			in.bytes([]byte(text))
		}
		for _, n := range []uint64{s.Lo, s.Hi, uint64(s.Generation), s.Rows, uint64(s.Bytes), s.Fingerprint.Hi, s.Fingerprint.Lo} { //nolint:gosec // a size is not negative
			in.num(n)
		}
		in.bytes(s.RecordSum[:])
		if err := in.end(); err != nil {
			return err
		}
	}
	return in.flush()
}

const planColumns = "p.id, p.hash, p.account, p.os_user, p.given_by, p.made_at, p.expires_at, p.slices, p.row_count, p.expires_at <= UTC_TIMESTAMP(6) OR COALESCE(v.expires_at <= UTC_TIMESTAMP(6), 0), " +
	"v.account, v.os_user, v.given_by, v.approved_at, v.reason, v.hash, r.account, r.os_user, r.given_by, r.revoked_at, r.reason " +
	"FROM plans p LEFT JOIN approvals v ON v.source_id = p.source_id AND v.plan = p.id LEFT JOIN revocations r ON r.source_id = p.source_id AND r.plan = p.id"

func scanPlan(scan func(...any) error) (*SavedPlan, error) {
	var p SavedPlan
	var v, r struct {
		account, user, by, reason, hash sql.NullString
		at                              *time.Time
	}
	if err := scan(&p.ID, &p.Hash, &p.MadeBy.Account, &p.MadeBy.User, &p.MadeBy.By, &p.Made, &p.Expires, &p.Slices, &p.Rows, &p.Expired,
		&v.account, &v.user, &v.by, &v.at, &v.reason, &v.hash, &r.account, &r.user, &r.by, &r.at, &r.reason); err != nil {
		return nil, err
	}
	if v.at != nil {
		if v.hash.String != p.Hash {
			return nil, fmt.Errorf("plan %s: %w: what was approved has another hash", p.ID, ErrCorrupt)
		}
		p.Approved = &Approval{Person: Person{v.account.String, v.user.String, v.by.String}, At: *v.at, Reason: v.reason.String}
	}
	if r.at != nil {
		p.Revoked = &Approval{Person: Person{r.account.String, r.user.String, r.by.String}, At: *r.at, Reason: r.reason.String}
	}
	return &p, nil
}

// SavedPlan reads a plan; ErrNotFound.
func (s *Store) SavedPlan(ctx context.Context, id string) (*SavedPlan, error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	p, err := scanPlan(s.db.QueryRowContext(ctx, "SELECT "+planColumns+" WHERE p.source_id = ? AND p.id = ?", src, id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read plan %.20q: %w", id, err)
	}
	return p, nil
}

// SavedPlans lists the newest plans, newest first; with by those alone that somebody made:
// an account with or without its host, a user of an operating system, or who he said he is.
func (s *Store) SavedPlans(ctx context.Context, by string, limit int) (all []*SavedPlan, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	where, args := "p.source_id = ?", []any{src}
	if by != "" {
		// A user's name may have an @ in it; a host's has none.
		where += " AND ? IN (p.account, LEFT(p.account, CHAR_LENGTH(p.account) - LOCATE('@', REVERSE(p.account))), p.os_user, p.given_by)"
		args = append(args, by)
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+planColumns+" WHERE "+where+" ORDER BY p.made_at DESC, p.id LIMIT ?", append(args, limit)...)
	if err != nil {
		return nil, fmt.Errorf("list the manifest's plans: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		p, err := scanPlan(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("list the manifest's plans: %w", err)
		}
		all = append(all, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the manifest's plans: %w", err)
	}
	return all, nil
}

// PlanSlices lists a plan's slices, oldest day first: what was approved, else what was
// saved. They must have the plan's hash.
func (s *Store) PlanSlices(ctx context.Context, p *SavedPlan) (list []PlanSlice, err error) {
	fail := func(err error) ([]PlanSlice, error) {
		return nil, fmt.Errorf("list the slices of plan %s: %w", p.ID, err)
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return fail(err)
	}
	table := "plan_slices"
	if p.Approved != nil {
		table = "approved_slices"
	}
	rows, err := s.db.QueryContext(ctx, "SELECT slice_id, day, db_name, table_name, lo, hi, generation, row_count, bytes, sum_hi, sum_lo, record_sum FROM "+table+" WHERE source_id = ? AND plan = ?", src, p.ID)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		x := PlanSlice{SliceKey: SliceKey{Source: s.source}}
		var sum []byte
		if err := rows.Scan(&x.ID, &x.Day, &x.Shard.Database, &x.Shard.Table, &x.Lo, &x.Hi, &x.Generation, &x.Rows, &x.Bytes, &x.Fingerprint.Hi, &x.Fingerprint.Lo, &sum); err != nil {
			return fail(err)
		}
		if len(sum) != 32 {
			return fail(fmt.Errorf("slice %s: %w: a checksum of %d bytes", x.SliceKey, ErrCorrupt, len(sum)))
		}
		x.Fingerprint.Rows, x.RecordSum = x.Rows, [32]byte(sum)
		list = append(list, x)
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	sortPlan(list)
	if hashPlan(s.source, p.ID, list) != p.Hash {
		return fail(fmt.Errorf("%w: it was changed since it was saved: make a new one", ErrCorrupt))
	}
	return list, nil
}
