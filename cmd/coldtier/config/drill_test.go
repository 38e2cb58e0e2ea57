package config

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// keys are PEM files: a pair, and one of a kind that is not taken.
func keys(t *testing.T) (private, public, foreign string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	write := func(kind string, der []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	a, err := x509.MarshalPKCS8PrivateKey(key)
	private = write("PRIVATE KEY", a, err)
	b, err := x509.MarshalPKIXPublicKey(pub)
	public = write("PUBLIC KEY", b, err)
	c, err := x509.MarshalPKCS8PrivateKey(other)
	return private, public, write("PRIVATE KEY", c, err)
}

func TestDrill(t *testing.T) {
	private, public, _ := keys(t)
	env := lookup(map[string]string{"file:/key.pem": private, "file:/key.pub": public, "PW": "hunter2hunter2"})
	in := read(t, "small.yaml") + `drill:
  scratch_dsn: drill:${PW}@tcp(db:3306)/scratch
  sample: 1/4
  report_dir: audit/drills
  signing_key: ${file:/key.pem}
  trusted_keys: ["${file:/key.pub}", "${file:/key.pub}"]
  read_pages: 20
  max_age: 30d
  prices: {currency: EUR, get_per_1000: 0.00043, put_per_1000: "0.0054", list_per_1000: 0.0054, gb_read: 0, gb_month: 1}
`
	c, err := Parse("c.yaml", []byte(in), env)
	if err != nil {
		t.Fatal(err)
	}
	d := c.Drill
	if d.Scratch.Reveal() != "drill:hunter2hunter2@tcp(db:3306)/scratch" || d.Scratch.Database() != "scratch" || d.SigningKey.Reveal() != strings.TrimSuffix(private, "\n") {
		t.Errorf("%v %q", d.Scratch, d.SigningKey.Reveal())
	}
	want := Drill{Scratch: d.Scratch, Sample: Fraction{1, 4}, ReportDir: "audit/drills", SigningKey: d.SigningKey, TrustedKeys: []string{strings.TrimSpace(public), strings.TrimSpace(public)},
		ReadPages: 20, MaxAge: 30 * 24 * time.Hour, Prices: Prices{Currency: "EUR", GetPer1000: "0.00043", PutPer1000: "0.0054", ListPer1000: "0.0054", GBRead: "0", GBMonth: "1"}}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("%+v, want %+v", d, want)
	}
	body := strings.Split(private, "\n")[1]
	if s := fmt.Sprintf("%+v %#v", c, *c) + c.Redactor.Text("the driver said "+body+" and hunter2hunter2"); strings.Contains(s, body) || strings.Contains(s, "hunter2hunter2") {
		t.Error("a secret is printed")
	}
}

func TestDrillFaults(t *testing.T) {
	private, public, foreign := keys(t)
	env := lookup(map[string]string{"private": private, "public": public, "foreign": foreign, "both": public + public})
	small := read(t, "small.yaml")
	for in, want := range map[string]string{
		`{scratch_dsn: 'hunter2hunter2'}`: `17:22: drill.scratch_dsn: not a MySQL address`,
		`{sample: 1/0}`:                   `17:17: drill.sample: want a part such as 1/8`,
		`{sample: 2}`:                     `17:17: drill.sample: want a part such as 1/8`,
		`{sample: 9/8}`:                   `17:17: drill.sample: want a part such as 1/8`,
		`{sample: 0.125}`:                 `17:17: drill.sample: want a part such as 1/8`,
		`{sample: '-1/8'}`:                `17:17: drill.sample: want a part such as 1/8`,
		`{report_dir: ''}`:                `17:21: drill.report_dir: want a folder below bucket.prefix`,
		`{report_dir: /drills}`:           `drill.report_dir: want a folder`,
		`{report_dir: messages/drills}`:   `drill.report_dir: want a folder`,
		`{report_dir: manifest}`:          `drill.report_dir: want a folder`,
		`{report_dir: a/../manifest}`:     `drill.report_dir: want a folder`,
		`{signing_key: hunter2hunter2}`:   `17:22: drill.signing_key: want an ed25519 key as PKCS#8 in PEM`,
		`{signing_key: "${foreign}"}`:     `drill.signing_key: want an ed25519 key`,
		`{signing_key: "${public}"}`:      `drill.signing_key: want an ed25519 key`,
		`{signing_key: "${file:/none}"}`:  `drill.signing_key: file /none does not exist`,
		`{trusted_keys: ["${private}"]}`:  `17:24: drill.trusted_keys[0]: want one ed25519 public key`,
		`{trusted_keys: ["${both}"]}`:     `drill.trusted_keys[0]: want one ed25519 public key`,
		`{trusted_keys: "${public}"}`:     `drill.trusted_keys: want a list`,
		`{read_pages: 0}`:                 `17:21: drill.read_pages: want a whole number of 1..`,
		`{max_age: 1s}`:                   `17:18: drill.max_age: want 1h0m0s to`,
		`{prices: {get_per_1000: -1}}`:    `17:32: drill.prices.get_per_1000: want a price such as 0.0004`,
		`{prices: {gb_read: 4e-4}}`:       `drill.prices.gb_read: want a price`,
		`{prices: {gb_month: '.1'}}`:      `drill.prices.gb_month: want a price`,
		`{prices: {currency: ''}}`:        `drill.prices.currency: want a currency such as USD`,
		`{prices: {gb: 1}}`:               `17:18: drill.prices: unknown key gb (known: currency, get_per_1000, put_per_1000, list_per_1000, gb_read, gb_month)`,
		`{seed: 1}`:                       `17:9: drill: unknown key seed (known: scratch_dsn, sample, report_dir, signing_key, trusted_keys, read_pages, max_age, prices)`,
	} {
		_, err := Parse("c.yaml", []byte(small+"drill: "+in+"\n"), env)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", in, err, want)
			continue
		}
		checkLines(t, err)
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), strings.Split(foreign, "\n")[1]) {
			t.Errorf("%s: the error shows a secret: %v", in, err)
		}
	}
	for in, want := range map[string]Fraction{"1": {1, 1}, "1/1": {1, 1}, "1/8": {1, 8}, "3/8": {3, 8}} {
		if got, err := ParseFraction(in); err != nil || got != want {
			t.Errorf("%s is %v, %v", in, got, err)
		}
	}
}

// The example of the documentation is taken.
func TestDrillExample(t *testing.T) {
	text, err := os.ReadFile("../../../docs/drill-report.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	block, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("there is no example")
	}
	private, public, _ := keys(t)
	c, err := Parse("c.yaml", []byte(read(t, "small.yaml")+block), lookup(map[string]string{"DRILL_PASSWORD": "x", "file:/etc/coldtier/drill.pem": private, "file:/etc/coldtier/drill-2025.pub": public}))
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Drill; d.Prices.GetPer1000 != "0.00043" || len(d.TrustedKeys) != 1 || d.SigningKey.Reveal() == "" {
		t.Errorf("%+v", d)
	}
}
