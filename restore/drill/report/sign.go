package report

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Unsigned is what Report.Signing says where there is no key.
const Unsigned = "unsigned"

// What a check of a report ends with.
var (
	// ErrUnsigned says that a report has no signature, and never had one.
	ErrUnsigned = errors.New("the report is unsigned")
	// ErrRefused says that a report, its page or a signature is not what it must be.
	ErrRefused = errors.New("report refused")
)

const signatureVersion = 1

// signature is a .sig file: detached, over the exact bytes of the file that it lies beside.
type signature struct {
	FormatVersion int    `json:"format_version"`
	Algorithm     string `json:"algorithm"`
	KeyID         string `json:"key_id"`
	File          string `json:"file"`
	SHA256        string `json:"sha256"`    // of the file
	Signature     string `json:"signature"` // base64 of 64 bytes
}

func (s *signature) encode() ([]byte, error) {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write a signature: %w", err)
	}
	return append(b, '\n'), nil
}

// sign makes the .sig file of a file.
func (k *Signer) sign(file string, data []byte) ([]byte, error) {
	s := signature{signatureVersion, algorithm, k.id, file, digest(data), base64.StdEncoding.EncodeToString(ed25519.Sign(k.private, data))}
	return s.encode()
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// verifyFile checks the .sig file of a file against the trusted keys and gives the key's ID.
func verifyFile(file string, data, sig []byte, trusted []Public) (string, error) {
	refuse := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("%w: %s.sig: %s", ErrRefused, file, fmt.Sprintf(format, args...))
	}
	var s signature
	d := json.NewDecoder(bytes.NewReader(sig))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return refuse("it is no signature file")
	}
	if s.FormatVersion > signatureVersion {
		return refuse("format %d: use a newer coldtier", s.FormatVersion)
	}
	// Only the very bytes that sign writes are taken, so that there is one form alone.
	if whole, err := s.encode(); err != nil || !bytes.Equal(whole, sig) || s.FormatVersion != signatureVersion || s.Algorithm != algorithm {
		return refuse("it was changed after it was written")
	}
	if s.File != file {
		return refuse("it is that of a file %q", s.File)
	}
	if s.SHA256 != digest(data) {
		return refuse("%s was changed after it was signed: its SHA-256 is %s, not %s", file, digest(data), s.SHA256)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(s.Signature)
	if err != nil || len(raw) != ed25519.SignatureSize {
		return refuse("the signature is damaged")
	}
	for _, k := range trusted {
		if k.ID != s.KeyID {
			continue
		}
		if !ed25519.Verify(k.key, data, raw) {
			return refuse("the signature is not that of key %s over %s", s.KeyID, file)
		}
		return s.KeyID, nil
	}
	return refuse("key %q is not trusted: name its public key in drill.trusted_keys if it is to be", s.KeyID)
}
