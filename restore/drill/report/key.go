package report

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

const algorithm = "ed25519"

// Signer signs reports.
type Signer struct {
	private ed25519.PrivateKey
	id      string
}

// Public is a key whose signatures count.
type Public struct {
	ID  string
	key ed25519.PublicKey
}

// KeyID names a public key: "ed25519:" and the first 32 hexadecimal digits of the SHA-256
// of its DER (SubjectPublicKeyInfo).
func KeyID(key ed25519.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("name a public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return algorithm + ":" + hex.EncodeToString(sum[:16]), nil
}

// ParseSigner reads an ed25519 key from PKCS#8 in PEM. Its errors say nothing of the text.
func ParseSigner(text string) (*Signer, error) {
	b, _ := pem.Decode([]byte(text))
	if b == nil || b.Type != "PRIVATE KEY" {
		return nil, errors.New("the signing key is no PKCS#8 in PEM: openssl genpkey -algorithm ed25519 makes one")
	}
	k, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	private, ok := k.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("the signing key is no ed25519 key: openssl genpkey -algorithm ed25519 makes one")
	}
	p, err := newPublic(private.Public())
	if err != nil {
		return nil, err
	}
	return &Signer{private, p.ID}, nil
}

// ID names the key as KeyID does.
func (k *Signer) ID() string { return k.id }

// Public is the key that its signatures are verified with.
func (k *Signer) Public() (Public, error) { return newPublic(k.private.Public()) }

// ParsePublic reads a public key from PEM.
func ParsePublic(text string) (Public, error) {
	b, _ := pem.Decode([]byte(text))
	if b == nil || b.Type != "PUBLIC KEY" {
		return Public{}, errors.New("a trusted key is no public key in PEM: openssl pkey -in key.pem -pubout makes one")
	}
	k, err := x509.ParsePKIXPublicKey(b.Bytes)
	if err != nil {
		return Public{}, errors.New("a trusted key cannot be read: openssl pkey -in key.pem -pubout makes one")
	}
	return newPublic(k)
}

func newPublic(k any) (Public, error) {
	key, ok := k.(ed25519.PublicKey)
	if !ok {
		return Public{}, fmt.Errorf("a key is a %T: want ed25519", k)
	}
	id, err := KeyID(key)
	return Public{id, key}, err
}
