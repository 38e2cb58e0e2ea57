package manifest

import (
	"context"
	"encoding/json"
	"fmt"
)

// Revocation is that a plan allows nothing any more.
type Revocation struct {
	Plan string `json:"plan"`
	Approval
}

// Rules are what forbids purges and must outlive the manifest: in the bucket each is an
// object of its own.
type Rules struct {
	Policy      *Policy // nil: it was never set
	Revocations []Revocation
}

// Rules gives the manifest's rules.
func (s *Store) Rules(ctx context.Context) (r Rules, err error) {
	p, err := s.ApprovalPolicy(ctx)
	if err != nil {
		return r, err
	}
	if p.SetBy != nil {
		r.Policy = &p
	}
	src, err := s.sourceOf(ctx, false)
	if err != nil {
		return r, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT plan, account, os_user, given_by, reason, revoked_at FROM revocations WHERE source_id = ? ORDER BY revoked_at, plan", src)
	if err != nil {
		return r, fmt.Errorf("list the plans that the manifest has as revoked: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var v Revocation
		if err := rows.Scan(&v.Plan, &v.Account, &v.User, &v.By, &v.Reason, &v.At); err != nil {
			return r, fmt.Errorf("list the plans that the manifest has as revoked: %w", err)
		}
		r.Revocations = append(r.Revocations, v)
	}
	if err := rows.Err(); err != nil {
		return r, fmt.Errorf("list the plans that the manifest has as revoked: %w", err)
	}
	return r, nil
}

// AdoptRevocation enters a revocation that lies in the bucket.
func (s *Store) AdoptRevocation(ctx context.Context, r Revocation) error {
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return err
	}
	_, err = s.db.ExecContext(ctx, "INSERT INTO revocations (source_id, plan, account, os_user, given_by, reason, revoked_at) VALUES (?, ?, ?, ?, ?, ?, ?)", src, r.Plan, r.Account, r.User, r.By, r.Reason, r.At.UTC())
	if err != nil && !duplicate(err) {
		return fmt.Errorf("adopt the revocation of plan %s: %w", r.Plan, err)
	}
	return nil
}

// AdoptPolicy enters a policy that lies in the bucket, unless the manifest's is as new.
func (s *Store) AdoptPolicy(ctx context.Context, p Policy) error {
	src, err := s.sourceOf(ctx, true)
	if err != nil {
		return err
	}
	const newer = "IF(set_at < VALUES(set_at), VALUES(%[1]s), %[1]s)"
	set := ""
	for _, c := range []string{"value", "account", "os_user", "given_by", "set_at"} { // the last by which it is judged
		set += ", " + c + " = " + fmt.Sprintf(newer, c)
	}
	if _, err := s.db.ExecContext(ctx, "INSERT INTO policies (source_id, name, value, account, os_user, given_by, set_at) VALUES (?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE "+set[2:],
		src, p.Name, p.Value, p.SetBy.Account, p.SetBy.User, p.SetBy.By, p.At.UTC()); err != nil {
		return fmt.Errorf("adopt the policy %s: %w", p.Name, err)
	}
	return nil
}

// RulesPrefix is what the keys of a source's rules begin with.
func RulesPrefix(source string) string {
	return "manifest/rules/source=" + escape([]byte(source)) + "/"
}

// PolicyKey is the key of the object that is a policy.
func PolicyKey(source, name string) string {
	return RulesPrefix(source) + "policy=" + escape([]byte(name)) + ".json"
}

// RevocationKey is the key of the object that is a plan's revocation.
func RevocationKey(source, plan string) string {
	return RulesPrefix(source) + "revoked=" + escape([]byte(plan)) + ".json"
}

// rulesVersion is the version of the form of rules in the bucket.
const rulesVersion = 1

type ruleObject struct {
	FormatVersion int         `json:"format_version"`
	Policy        *Policy     `json:"policy,omitempty"`
	Revocation    *Revocation `json:"revocation,omitempty"`
}

// EncodePolicy writes a policy for the bucket.
func EncodePolicy(p Policy) ([]byte, error) {
	return encodeRule(ruleObject{rulesVersion, &p, nil})
}

// EncodeRevocation writes a revocation for the bucket.
func EncodeRevocation(r Revocation) ([]byte, error) {
	return encodeRule(ruleObject{rulesVersion, nil, &r})
}

func encodeRule(o ruleObject) ([]byte, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode a rule: %w", err)
	}
	return b, nil
}

// DecodeRule reads the rule of the bucket that has a key: a policy or a revocation.
func DecodeRule(source, key string, b []byte) (*Policy, *Revocation, error) {
	var o ruleObject
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, nil, fmt.Errorf("rule %s: %w: %w", key, ErrCorrupt, err)
	}
	p, r := o.Policy, o.Revocation
	switch {
	case o.FormatVersion != rulesVersion:
		return nil, nil, fmt.Errorf("rule %s of format version %d: this coldtier knows version %d: use a newer coldtier", key, o.FormatVersion, rulesVersion)
	case p != nil && r == nil && p.SetBy != nil && p.At != nil && (p.Value == ApprovalNone || p.Value == ApprovalRequired) && PolicyKey(source, p.Name) == key && p.Name == PolicyApproval:
		return p, nil, nil
	case r != nil && p == nil && !r.At.IsZero() && RevocationKey(source, r.Plan) == key && len(r.Plan) <= 16:
		return nil, r, nil
	}
	return nil, nil, fmt.Errorf("rule %s: %w: it is no rule of this name", key, ErrCorrupt)
}
