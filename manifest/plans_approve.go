package manifest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

const codeDuplicate = 1062

func duplicate(err error) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my) && my.Number == codeDuplicate
}

// Account is who the manifest's database takes this connection for: the one identity that
// is proven, by a password or a certificate, and not told.
func (s *Store) Account(ctx context.Context) (account string, err error) {
	if err := s.db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&account); err != nil {
		return "", fmt.Errorf("ask the manifest's database for the account: %w", err)
	}
	return account, nil
}

// Approve notes that a second person allows exactly these slices, which are the plan's as
// PlanSlices gave them. Whoever made the plan is ErrUnapproved: the same account, or the
// same name where both gave one. The slices are written again, by the approver, so that
// the grant relies on nothing that the maker's account may write.
func (s *Store) Approve(ctx context.Context, p *SavedPlan, list []PlanSlice, by Person, reason string) error {
	fail := func(err error) error { return fmt.Errorf("approve plan %s: %w", p.ID, err) }
	if len(reason) > maxError {
		return fail(fmt.Errorf("the reason has %d bytes, want at most %d", len(reason), maxError))
	}
	if err := by.check(); err != nil {
		return fail(err)
	}
	if hashPlan(s.source, p.ID, list) != p.Hash {
		return fail(fmt.Errorf("%w: these are not its slices", ErrCorrupt))
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return fail(err)
	}
	packet, err := s.maxPacket(ctx)
	if err != nil {
		return fail(err)
	}
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		now, err := scanPlan(tx.QueryRowContext(ctx, "SELECT "+planColumns+" WHERE p.source_id = ? AND p.id = ?", src, p.ID).Scan)
		if err != nil {
			return err
		}
		var account string
		if err := tx.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&account); err != nil {
			return err
		}
		name := strings.TrimSpace(by.By)
		switch {
		case now.Hash != p.Hash:
			return fmt.Errorf("%w: it is another plan than the one that was shown", ErrCorrupt)
		case now.Approved != nil:
			return fmt.Errorf("%w: %s approved it at %s already", ErrState, now.Approved.Account, now.Approved.At.Format(time.RFC3339))
		case now.Revoked != nil || now.Expired:
			return now.Refused()
		case account == now.MadeBy.Account:
			return fmt.Errorf("%w: account %s made it, and a second person must approve it, by an account of his own (deploy/sql/manifest/approve.sql)", ErrUnapproved, account)
		case name != "" && strings.EqualFold(name, strings.TrimSpace(now.MadeBy.By)):
			return fmt.Errorf("%w: %s made it, and a second person must approve it", ErrUnapproved, name)
		}
		if err := addPlanSlices(ctx, tx, "approved_slices", src, p.ID, list, min(statementBytes, packet/2)); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO approvals (source_id, plan, hash, account, os_user, given_by, reason, approved_at, expires_at) VALUES (?, ?, ?, CURRENT_USER(), ?, ?, ?, UTC_TIMESTAMP(6), ?)",
			src, p.ID, p.Hash, by.User, by.By, reason, now.Expires.UTC())
		return err
	})
	if duplicate(err) {
		err = fmt.Errorf("%w: another approved it already", ErrState)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// Revoke ends a plan, approved or not: from now on no chunk is deleted by it. Anybody who
// can make or approve plans may.
func (s *Store) Revoke(ctx context.Context, id string, by Person, reason string) error {
	fail := func(err error) error { return fmt.Errorf("revoke plan %.20q: %w", id, err) }
	if len(reason) > maxError {
		return fail(fmt.Errorf("the reason has %d bytes, want at most %d", len(reason), maxError))
	}
	if err := by.check(); err != nil {
		return fail(err)
	}
	if _, err := s.SavedPlan(ctx, id); err != nil {
		return err
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return fail(err)
	}
	_, err = s.db.ExecContext(ctx, "INSERT INTO revocations (source_id, plan, account, os_user, given_by, reason, revoked_at) VALUES (?, ?, CURRENT_USER(), ?, ?, ?, UTC_TIMESTAMP(6))", src, id, by.User, by.By, reason)
	if duplicate(err) {
		err = fmt.Errorf("%w: it was revoked already", ErrState)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// unchanged says of an approved slice x that slice s is still what was approved; planOpen of
// an approval v that it is in force.
const (
	unchanged = "x.slice_id = s.id AND x.generation = s.live_generation AND x.lo = s.lo AND x.hi = s.hi AND EXISTS (SELECT 1 FROM copies c WHERE c.slice_id = s.id " +
		"AND c.generation = x.generation AND c.record_sum = x.record_sum AND c.row_count = x.row_count)"
	planOpen = "v.expires_at > UTC_TIMESTAMP(6) AND NOT EXISTS (SELECT 1 FROM revocations r WHERE r.source_id = v.source_id AND r.plan = v.plan)"
)

// approvedSQL says of slices s that an approved plan covers them. Argument: the plan.
const approvedSQL = "EXISTS (SELECT 1 FROM approvals v JOIN approved_slices x ON x.source_id = v.source_id AND x.plan = v.plan WHERE v.source_id = s.source_id AND v.plan = ? AND " + planOpen + " AND " + unchanged + ")"

// freeSQL says of slices s that they may be purged without a plan.
const freeSQL = "NOT EXISTS (SELECT 1 FROM policies y WHERE y.source_id = s.source_id AND y.name = '" + PolicyApproval + "' AND y.value = '" + ApprovalRequired + "')"

// NextPlan is the plan that was approved first of those in force that have slices left to
// purge which no hold forbids; nil when there is none.
func (s *Store) NextPlan(ctx context.Context) (*SavedPlan, error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return nil, err
	}
	var id string
	err = s.db.QueryRowContext(ctx, "SELECT v.plan FROM approvals v WHERE v.source_id = ? AND "+planOpen+" AND EXISTS (SELECT 1 FROM approved_slices x JOIN slices s ON s.id = x.slice_id "+
		"WHERE x.source_id = v.source_id AND x.plan = v.plan AND s.state IN ('verified', 'purging') AND s.generation = s.live_generation AND "+unchanged+" AND NOT "+heldSQL+") ORDER BY v.approved_at, v.plan LIMIT 1", src).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for an approved plan: %w", err)
	}
	return s.SavedPlan(ctx, id)
}

// PlanStanding is what became of a plan's slices.
type PlanStanding struct {
	Left    int `json:"left"`    // to purge
	Held    int `json:"held"`    // of those, forbidden by a hold
	Purged  int `json:"purged"`  // as planned
	Changed int `json:"changed"` // no longer what was planned
}

// PlanStanding says what became of a plan's slices.
func (s *Store) PlanStanding(ctx context.Context, p *SavedPlan) (st PlanStanding, err error) {
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return st, err
	}
	table := "plan_slices"
	if p.Approved != nil {
		table = "approved_slices"
	}
	const same = unchanged + " AND s.generation = s.live_generation"
	var all int
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(s.state IN ('verified', 'purging') AND "+same+"), 0), COALESCE(SUM(s.state IN ('verified', 'purging') AND "+same+" AND "+heldSQL+"), 0), "+
		"COALESCE(SUM(s.state = 'purged' AND "+same+"), 0) FROM "+table+" x LEFT JOIN slices s ON s.id = x.slice_id WHERE x.source_id = ? AND x.plan = ?", src, p.ID).Scan(&all, &st.Left, &st.Held, &st.Purged); err != nil {
		return st, fmt.Errorf("look what became of plan %s: %w", p.ID, err)
	}
	st.Changed = all - st.Left - st.Purged
	return st, nil
}

// unapproved says why a slice has no leave by a plan, or without one; nil when the plan, or
// that there is none, is not what stands against it.
func (l *Lease) unapproved(ctx context.Context, q reader, plan string) error {
	var ok bool
	cond, args := freeSQL, []any{l.id}
	if plan != "" {
		cond, args = approvedSQL, []any{plan, l.id}
	}
	if err := q.QueryRowContext(ctx, "SELECT "+cond+" FROM slices s WHERE s.id = ?", args...).Scan(&ok); err != nil || ok {
		return err
	}
	if plan == "" {
		return fmt.Errorf("%w: slice %s: the manifest's policy is %s: %s", ErrUnapproved, l.key, PolicyApproval, ApprovalRequired)
	}
	p, err := l.s.SavedPlan(ctx, plan)
	switch {
	case errors.Is(err, ErrNotFound):
		return fmt.Errorf("%w: %w", ErrUnapproved, err)
	case err != nil:
		return err
	}
	if err := p.Refused(); err != nil {
		return err
	}
	return fmt.Errorf("%w: slice %s is not in plan %s, or no longer what was approved", ErrUnapproved, l.key, plan)
}

// sameSum refuses a slice whose chunks add up to other rows than were approved.
func (l *Lease) sameSum(ctx context.Context, q reader, plan string) error {
	sums, err := l.s.sums(ctx, q, []any{l.id})
	if err != nil {
		return err
	}
	var ok bool
	f := sums[l.id]
	if err := q.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM slices s JOIN approved_slices x ON x.source_id = s.source_id AND x.plan = ? AND x.slice_id = s.id WHERE s.id = ? AND x.sum_hi = ? AND x.sum_lo = ? AND x.row_count = ?",
		plan, l.id, f.Hi, f.Lo, f.Rows).Scan(&ok); err != nil || ok {
		return err
	}
	return fmt.Errorf("%w: slice %s has the fingerprint %s, not the one that was approved by plan %s", ErrUnapproved, l.key, f, plan)
}

// The policy that says whether a purge needs an approved plan, and its values.
const (
	PolicyApproval   = "purge.approval"
	ApprovalNone     = "none"
	ApprovalRequired = "required"
)

// Policy is a rule that holds for every process that works with the manifest, whatever its
// configuration says.
type Policy struct {
	Name  string     `json:"name"`
	Value string     `json:"value"`
	SetBy *Person    `json:"set_by,omitempty"` // nil: it was never set
	At    *time.Time `json:"at,omitempty"`
}

// ApprovalPolicy reads whether a purge needs an approved plan.
func (s *Store) ApprovalPolicy(ctx context.Context) (Policy, error) {
	none := Policy{Name: PolicyApproval, Value: ApprovalNone}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return none, err
	}
	p, by := none, Person{}
	err = s.db.QueryRowContext(ctx, "SELECT value, account, os_user, given_by, set_at FROM policies WHERE source_id = ? AND name = ?", src, PolicyApproval).Scan(&p.Value, &by.Account, &by.User, &by.By, &p.At)
	if errors.Is(err, sql.ErrNoRows) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read the manifest's policy %s: %w", PolicyApproval, err)
	}
	p.SetBy = &by
	return p, nil
}

// SetApprovalPolicy says for all processes whether a purge needs an approved plan. It holds
// from the next chunk on.
func (s *Store) SetApprovalPolicy(ctx context.Context, value string, by Person) error {
	if value != ApprovalNone && value != ApprovalRequired {
		return fmt.Errorf("policy %s: %q: want %s or %s", PolicyApproval, value, ApprovalNone, ApprovalRequired)
	}
	if err := by.check(); err != nil {
		return fmt.Errorf("set the policy %s: %w", PolicyApproval, err)
	}
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return err
	}
	if _, err := s.db.ExecContext(ctx, "INSERT INTO policies (source_id, name, value, account, os_user, given_by, set_at) VALUES (?, ?, ?, CURRENT_USER(), ?, ?, UTC_TIMESTAMP(6)) "+
		"ON DUPLICATE KEY UPDATE value = VALUES(value), account = VALUES(account), os_user = VALUES(os_user), given_by = VALUES(given_by), set_at = VALUES(set_at)", src, PolicyApproval, value, by.User, by.By); err != nil {
		return fmt.Errorf("set the policy %s in the manifest: %w", PolicyApproval, err)
	}
	return nil
}
