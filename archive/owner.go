package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coldtier/coldtier/manifest"
)

// Errors about whose copies a bucket holds.
var (
	// ErrForeign says that the copies of the source under the prefix belong to another manifest.
	ErrForeign = errors.New("the bucket belongs to another manifest")
	// ErrUnowned says that there is no owner mark.
	ErrUnowned = errors.New("the bucket has no owner mark")
	// ErrOwnerDamaged says that the owner mark cannot be read.
	ErrOwnerDamaged = errors.New("the bucket's owner mark is damaged")
)

// Owner is the manifest that a bucket's copies of a source belong to.
type Owner struct {
	Bucket, Prefix string // where, for errors
	Source         string
	Identity       string // the manifest's; "" when it has none yet, which owns nothing
}

// ownerMark is the object at manifest.OwnerKey.
type ownerMark struct {
	Source   string    `json:"source"`
	Identity string    `json:"identity"`
	MadeAt   time.Time `json:"made_at"`
}

func (w Owner) where() string {
	return fmt.Sprintf("bucket %s, prefix %q, source %s", w.Bucket, w.Prefix, w.Source)
}

// Getter reads whole objects; ErrNotFound when one is missing.
type Getter interface {
	Get(ctx context.Context, key string) ([]byte, error)
}

// ReadOwner gives the identity of the manifest that a bucket's copies of a source belong
// to: ErrUnowned, ErrOwnerDamaged, or an error that says nothing about it.
func ReadOwner(ctx context.Context, o Getter, w Owner) (identity string, err error) {
	key := manifest.OwnerKey(w.Source)
	raw, err := o.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return "", fmt.Errorf("%w: %s: %s is not in the bucket, so this may not be the one that was archived to: correct bucket.name, prefix or endpoint; if they are right, coldtier verify says what was lost, and the next coldtier archive makes the mark",
			ErrUnowned, w.where(), key)
	}
	if err != nil {
		return "", fmt.Errorf("owner mark: %w", err)
	}
	var m ownerMark
	if err = json.Unmarshal(raw, &m); err == nil && (m.Source != w.Source || m.Identity == "") {
		err = fmt.Errorf("it is of source %q, identity %q", m.Source, m.Identity)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s: %s: %w: restore it, or find out who changed it", ErrOwnerDamaged, w.where(), key, err)
	}
	return m.Identity, nil
}

// CheckOwner reads the owner mark: nil when it is w's, else ErrForeign, ErrUnowned,
// ErrOwnerDamaged, or an error that says nothing about it. Two manifests that share
// bucket, prefix and source name would adopt each other's commit records, and rows of
// one would replace a live generation of the other.
func CheckOwner(ctx context.Context, o Objects, w Owner) error {
	identity, err := ReadOwner(ctx, o, w)
	if err != nil {
		return err
	}
	if identity == w.Identity {
		return nil
	}
	mine := w.Identity
	if mine == "" {
		mine = "none yet"
	}
	return fmt.Errorf("%w: %s: its owner has identity %s, this manifest %s: give each installation its own bucket.prefix; if this manifest was made anew for a bucket in use, restore a backup of it, or build it again from the bucket into an empty database: coldtier rebuild manifest",
		ErrForeign, w.where(), identity, mine)
}

// ClaimOwner puts the owner mark where there is none. Of several manifests that do it
// at once one owns the bucket; for the others it is ErrForeign.
func ClaimOwner(ctx context.Context, o Objects, w Owner, now time.Time) error {
	if w.Identity == "" {
		return fmt.Errorf("owner mark: source %s has no identity in the manifest: run coldtier migrate", w.Source)
	}
	raw, err := json.Marshal(ownerMark{Source: w.Source, Identity: w.Identity, MadeAt: now.UTC()})
	if err != nil {
		return fmt.Errorf("owner mark: %w", err)
	}
	err = o.Put(ctx, manifest.OwnerKey(w.Source), bytes.NewReader(raw), int64(len(raw)), sha256.Sum256(raw), true)
	if err != nil && !errors.Is(err, ErrExists) {
		return fmt.Errorf("owner mark: %w", err)
	}
	return CheckOwner(ctx, o, w) // another's, or one that another worker of this manifest put
}
