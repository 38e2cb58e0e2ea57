package config

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"
)

const hidden = "***"

// Secret is a text that is never printed. It holds a pointer, so that even a
// formatter that goes past its methods by reflection prints an address.
type Secret struct{ s *string }

// NewSecret hides a text.
func NewSecret(s string) Secret { return Secret{&s} }

// Reveal is the text itself, for the driver that needs it.
func (s Secret) Reveal() string {
	if s.s == nil {
		return ""
	}
	return *s.s
}

// String is "***", or empty for the empty secret.
func (s Secret) String() string {
	if s.Reveal() == "" {
		return ""
	}
	return hidden
}

// Format writes String whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText writes String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// DSN is the address of a MySQL database with its password:
// "user:password@tcp(host:port)/database?parameters". It is printed as
// "user:***@tcp(host:port)/database".
type DSN struct {
	all, password        Secret
	user, net, addr, dbn string
}

// ParseDSN reads a DSN. Its error says nothing of the text, of which any part may
// be a misplaced password.
func ParseDSN(s string) (DSN, error) {
	cfg, err := mysql.ParseDSN(s)
	if err != nil || !strings.Contains(s, "@") {
		// The driver's error may quote the password of a DSN without "@".
		return DSN{}, fmt.Errorf("not a MySQL address: want USER:PASSWORD@tcp(HOST:PORT)/DATABASE")
	}
	if cfg.User == "" {
		return DSN{}, fmt.Errorf("MySQL address without a user: want USER:PASSWORD@tcp(HOST:PORT)/DATABASE")
	}
	if cfg.DBName == "" {
		return DSN{}, fmt.Errorf("MySQL address without a database: want USER:PASSWORD@tcp(HOST:PORT)/DATABASE")
	}
	return DSN{NewSecret(s), NewSecret(cfg.Passwd), cfg.User, cfg.Net, cfg.Addr, cfg.DBName}, nil
}

// Reveal is the DSN itself, for the driver.
func (d DSN) Reveal() string { return d.all.Reveal() }

// Database is the database's name.
func (d DSN) Database() string { return d.dbn }

// String is the DSN without its password and parameters.
func (d DSN) String() string {
	if d.dbn == "" {
		return ""
	}
	user := d.user
	if d.password.Reveal() != "" {
		user += ":" + hidden
	}
	return fmt.Sprintf("%s@%s(%s)/%s", user, d.net, d.addr, d.dbn)
}

// Format writes String whatever the verb.
func (d DSN) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, d.String()) }

// MarshalText writes String.
func (d DSN) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// LogValue is String.
func (d DSN) LogValue() slog.Value { return slog.StringValue(d.String()) }

// minPlain is the length from which a secret is removed wherever it occurs. A
// shorter one ("test") may be part of ordinary words and is removed only where it
// stands as a password does in an address.
const minPlain = 8

// Redactor removes secrets from text written by others: errors of drivers, which
// may quote an address. It is the last guard behind Secret and DSN. The zero
// value removes nothing. It is safe for concurrent use.
type Redactor struct {
	mu   sync.RWMutex
	olds []Secret // longest first, so that a secret within another leaves no rest
}

// Add makes s, and its forms in URLs, unprintable.
func (r *Redactor) Add(s string) {
	if s == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	quoted := strconv.Quote(s)
	userinfo := url.UserPassword("", s).String() // ":..."
	for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s), userinfo[1:], quoted[1 : len(quoted)-1]} {
		if len(form) < minPlain {
			form = ":" + form + "@"
		}
		if !slices.ContainsFunc(r.olds, func(o Secret) bool { return o.Reveal() == form }) {
			r.olds = append(r.olds, NewSecret(form))
		}
	}
	slices.SortFunc(r.olds, func(a, b Secret) int { return len(b.Reveal()) - len(a.Reveal()) })
}

// AddDSN makes a DSN's password unprintable.
func (r *Redactor) AddDSN(d DSN) {
	r.Add(d.password.Reveal())
}

// Text is s without secrets.
func (r *Redactor) Text(s string) string {
	if r == nil {
		return s
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, o := range r.olds {
		old := o.Reveal()
		with := hidden
		if old[0] == ':' && old[len(old)-1] == '@' {
			with = ":" + hidden + "@"
		}
		s = strings.ReplaceAll(s, old, with)
	}
	return s
}

// Writer removes secrets from what is written to w. A secret split over two
// writes is not seen: give it whole lines, as slog handlers do.
func (r *Redactor) Writer(w io.Writer) io.Writer { return redacting{r, w} }

type redacting struct {
	r *Redactor
	w io.Writer
}

func (w redacting) Write(p []byte) (int, error) {
	clean := w.r.Text(string(p))
	if _, err := io.Copy(w.w, bytes.NewReader([]byte(clean))); err != nil {
		return 0, err
	}
	return len(p), nil
}
