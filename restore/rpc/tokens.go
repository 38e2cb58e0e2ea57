package rpc

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// minToken is the least length of a token, in bytes: one that is guessed opens
// everything.
const minToken = 20

// tokenLine is one line of the file of tokens.
type tokenLine struct {
	Token         string          `json:"token"`  // itself, or
	SHA256        string          `json:"sha256"` // its SHA-256 in hexadecimal
	Name          string          `json:"name"`
	Tenant        json.RawMessage `json:"tenant"`
	Conversations json.RawMessage `json:"conversations"`
	Scopes        json.RawMessage `json:"scopes"`
}

type staticToken struct {
	sum [sha256.Size]byte
	who identity
}

// tokens are the static tokens.
type tokens []staticToken

// find compares with each of them in the same time, whichever it is.
func (t tokens) find(token string) (identity, bool) {
	sum := sha256.Sum256([]byte(token))
	var who identity
	found := false
	for i := range t {
		if subtle.ConstantTimeCompare(sum[:], t[i].sum[:]) == 1 {
			who, found = t[i].who, true
		}
	}
	return who, found
}

// parseTokens reads the file: one JSON object a line; blank lines and those that begin
// with # are nothing. Its errors quote nothing of the file.
func parseTokens(contents [][]byte) (tokens, error) {
	var all tokens
	seen := map[[sha256.Size]byte]bool{}
	for i, line := range bytes.Split(contents[0], []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		t, err := parseToken(line)
		if err == nil && seen[t.sum] {
			err = errors.New("the token is there twice")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		seen[t.sum] = true
		all = append(all, t)
	}
	return all, nil
}

func parseToken(line []byte) (t staticToken, err error) {
	var l tokenLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil || d.Decode(&struct{}{}) != io.EOF {
		return t, errors.New(`want a JSON object such as {"sha256": "...", "name": "history"}, perhaps with tenant (a text), conversations and scopes (lists of texts), and nothing else`)
	}
	switch {
	case (l.Token == "") == (l.SHA256 == ""):
		return t, errors.New("want either token or sha256")
	case l.Token != "" && len(l.Token) < minToken:
		return t, fmt.Errorf("the token is short enough to be guessed: want at least %d characters at random", minToken)
	case l.Name == "":
		return t, errors.New("want a name, for the audit log")
	}
	if l.Token != "" {
		t.sum = sha256.Sum256([]byte(l.Token))
	} else if b, err := hex.DecodeString(l.SHA256); err != nil || copy(t.sum[:], b) != sha256.Size || len(b) != sha256.Size {
		return t, errors.New("sha256: want 64 hexadecimal digits")
	}
	t.who = identity{Name: l.Name, How: "token"}
	if l.Tenant != nil {
		if t.who.tenant, err = tenantOf(l.Tenant); err != nil {
			return t, err
		}
	}
	if l.Conversations != nil {
		list, err := texts(l.Conversations)
		if err != nil {
			return t, errors.New("conversations: want a list of texts")
		}
		t.who.conversations = setOf(list)
	}
	var scopes []string
	if l.Scopes != nil {
		if scopes, err = texts(l.Scopes); err != nil {
			return t, errors.New("scopes: want a list of texts")
		}
		for _, s := range scopes {
			if s != ScopeRead && s != ScopeWrite && s != ScopeStatus {
				return t, fmt.Errorf("scopes: want %s, %s or %s", ScopeRead, ScopeWrite, ScopeStatus)
			}
		}
	}
	t.who = t.who.scoped(scopes, l.Scopes != nil)
	return t, nil
}

func setOf(all []string) map[string]bool {
	set := make(map[string]bool, len(all))
	for _, s := range all {
		set[s] = true
	}
	return set
}
