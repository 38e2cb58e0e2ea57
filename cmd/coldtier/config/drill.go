package config

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Drill is how the restore drill goes, and who may sign its reports.
type Drill struct {
	Scratch     DSN      // the server and name of the scratch databases; Database() is "" where it is not set
	Sample      Fraction // of the slices that one drill restores
	ReportDir   string   // below the bucket's prefix
	SigningKey  Secret   // PKCS#8 in PEM; empty: reports are unsigned
	TrustedKeys []string // public keys in PEM whose signatures count, beside the signing key's own
	ReadPages   int      // of the read drill
	MaxAge      time.Duration
	Prices      Prices
}

// Fraction is a part of something: N of Of.
type Fraction struct{ N, Of int }

// String is "1/8".
func (f Fraction) String() string { return fmt.Sprintf("%d/%d", f.N, f.Of) }

// ParseFraction reads "1/8", or "1", which is all.
func ParseFraction(s string) (Fraction, error) {
	n, of, ok := strings.Cut(s, "/")
	if !ok {
		of = n
	}
	f := Fraction{}
	var err1, err2 error
	f.N, err1 = strconv.Atoi(n)
	f.Of, err2 = strconv.Atoi(of)
	if err1 != nil || err2 != nil || f.N < 1 || f.Of < f.N || f.Of > 1_000_000 || !ok && f.N != 1 {
		return Fraction{}, errors.New("want a part such as 1/8, or 1 for all")
	}
	return f, nil
}

// Prices are what the bucket's provider takes, as decimal numbers; "": nothing is
// counted. A GB has 2^30 bytes, as providers bill it.
type Prices struct {
	Currency                            string
	GetPer1000, PutPer1000, ListPer1000 string
	GBRead                              string // leaving the store
	GBMonth                             string // kept for a month
}

func drill(m *mapping, d *Drill) {
	m.value("scratch_dsn", func(s string) (err error) {
		if s == "" {
			return nil
		}
		d.Scratch, err = ParseDSN(s)
		m.d.redactor.AddDSN(d.Scratch)
		return err
	})
	m.formatted("sample", func(s string) (err error) {
		d.Sample, err = ParseFraction(s)
		return err
	})
	m.text("report_dir", &d.ReportDir, checkReportDir)
	m.value("signing_key", func(s string) error {
		if s == "" {
			return nil
		}
		for line := range strings.Lines(s) { // the key itself, wherever it is quoted
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") {
				m.d.redactor.Add(line)
			}
		}
		d.SigningKey = NewSecret(s)
		return checkPrivateKey(s)
	})
	m.list("trusted_keys", 0, func(n ast.Node, path string) {
		m.d.value(n, path, func(s string) error {
			d.TrustedKeys = append(d.TrustedKeys, s)
			return checkPublicKey(s)
		})
	})
	m.number("read_pages", &d.ReadPages, 1, 1_000_000)
	m.within("max_age", &d.MaxAge, time.Hour, 3650*day)
	m.section("prices", false, func(m *mapping) {
		m.text("currency", &d.Prices.Currency, func(s string) error {
			if !made(s, 1, 8, "") {
				return errors.New("want a currency such as USD")
			}
			return nil
		})
		p := &d.Prices
		m.price("get_per_1000", &p.GetPer1000)
		m.price("put_per_1000", &p.PutPer1000)
		m.price("list_per_1000", &p.ListPer1000)
		m.price("gb_read", &p.GBRead)
		m.price("gb_month", &p.GBMonth)
	})
}

// checkReportDir keeps reports apart from what rebuild and patrol read.
func checkReportDir(s string) error {
	first, _, _ := strings.Cut(s, "/")
	if s == "" || checkPrefix(s) != nil || !made(s, 1, 200, "_.-/") || first == "messages" || first == "manifest" || strings.Contains("/"+s+"/", "/../") || strings.Contains("/"+s+"/", "/./") {
		return errors.New("want a folder below bucket.prefix, such as drills, other than messages and manifest")
	}
	return nil
}

func (m *mapping) price(key string, dst *string) {
	m.formatted(key, func(s string) error {
		*dst = s
		return checkPrice(s)
	})
}

// checkPrice takes what a decimal number holds exactly.
func checkPrice(s string) error {
	whole, part, dot := strings.Cut(s, ".")
	if !digits(whole, 1, 9) || dot && !digits(part, 1, 12) {
		return errors.New("want a price such as 0.0004")
	}
	return nil
}

func digits(s string, least, most int) bool {
	return len(s) >= least && len(s) <= most && strings.Trim(s, "0123456789") == ""
}

var errSigningKey = errors.New("want an ed25519 key as PKCS#8 in PEM, in a file: ${file:/path/to/key.pem}; openssl genpkey -algorithm ed25519 makes one")

// checkPrivateKey never quotes the text, nor what the parser says of it.
func checkPrivateKey(s string) error {
	b, rest := pem.Decode([]byte(s))
	if b == nil || b.Type != "PRIVATE KEY" || strings.TrimSpace(string(rest)) != "" {
		return errSigningKey
	}
	k, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if _, ok := k.(ed25519.PrivateKey); err != nil || !ok {
		return errSigningKey
	}
	return nil
}

func checkPublicKey(s string) error {
	b, rest := pem.Decode([]byte(s))
	if b == nil || b.Type != "PUBLIC KEY" || strings.TrimSpace(string(rest)) != "" {
		return errPublicKey
	}
	k, err := x509.ParsePKIXPublicKey(b.Bytes)
	if _, ok := k.(ed25519.PublicKey); err != nil || !ok {
		return errPublicKey
	}
	return nil
}

var errPublicKey = errors.New("want one ed25519 public key in PEM: ${file:/path/to/key.pub}; openssl pkey -in key.pem -pubout makes it")
