package report

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
)

func seal(t testing.TB, r *Report, s *Signer) *Files {
	t.Helper()
	f, err := Seal(r, s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// small is a short green report, for tests that go through it byte by byte.
func small() *Report {
	x := full()
	r := &Report{Drill: x.Drill, Source: x.Source, Began: x.Began, Ended: x.Ended, Seed: 7}
	for _, s := range Required() {
		r.Checks = append(r.Checks, Check{Step: s, Name: "a", Verdict: Pass})
	}
	return r
}

func TestSealedReportIsVerified(t *testing.T) {
	t.Parallel()
	signer, public := pair(t)
	_, other := pair(t)
	for _, r := range []*Report{full(), red(), small()} {
		f := seal(t, r, signer)
		c, err := Verify(f, []Public{other, public}, false)
		if err != nil || c.SignedBy != signer.ID() || c.Report.Verdict != r.Verdict || (len(c.Why) == 0) != (r.Verdict == Pass) {
			t.Errorf("%+v, %v", c, err)
		}
		if _, err := Verify(&Files{JSON: f.JSON, JSONSig: f.JSONSig}, []Public{public}, true); err != nil {
			t.Errorf("the JSON alone: %v", err)
		}
	}
}

// Whichever byte of whichever file is changed, lost or added, the report is refused.
func TestEveryByteCounts(t *testing.T) {
	t.Parallel()
	signer, public := pair(t)
	whole := seal(t, small(), signer)
	files := func(f *Files) map[string]*[]byte {
		return map[string]*[]byte{FileJSON: &f.JSON, FileHTML: &f.HTML, FileJSON + sigEnd: &f.JSONSig, FileHTML + sigEnd: &f.HTMLSig}
	}
	for name, data := range files(whole) {
		was := *data
		try := func(what string, now []byte) {
			*data = now
			if c, err := Verify(whole, []Public{public}, false); !errors.Is(err, ErrRefused) || c != nil {
				t.Errorf("%s with %s: %v", name, what, err)
			}
			*data = was
		}
		for i := range was {
			if name == FileHTML && i%7 != 0 { // it is long, and no byte is like another to a signature
				continue
			}
			b := bytes.Clone(was)
			b[i] ^= 1 << (i % 8)
			try("a bit flipped", b)
		}
		try("nothing in it", []byte{})
		try("its last byte cut off", was[:len(was)-1])
		try("a space more", append(bytes.Clone(was), ' '))
		try("itself twice", append(bytes.Clone(was), was...))
	}
	if _, err := Verify(whole, []Public{public}, false); err != nil {
		t.Fatalf("the test changed more than it should: %v", err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	signer, public := pair(t)
	stranger, _ := pair(t)
	good, other, strange, unsigned := seal(t, small(), signer), seal(t, full(), signer), seal(t, small(), stranger), seal(t, small(), nil)
	// lie is signed by a trusted key and says what does not follow from its checks.
	lie := small()
	lie.Checks[2].Verdict = Fail
	lied := seal(t, lie, signer)
	text := strings.Replace(string(lied.JSON), `"verdict": "fail",`, `"verdict": "pass",`, 1)
	resign := func(text string) *Files {
		f := &Files{JSON: []byte(text)}
		f.HTML = bytes.ReplaceAll(lied.HTML, []byte(digest(lied.JSON)), []byte(digest(f.JSON)))
		f.JSONSig, _ = signer.sign(FileJSON, f.JSON)
		f.HTMLSig, _ = signer.sign(FileHTML, f.HTML)
		return f
	}
	second, public2 := pair(t)
	crossed := seal(t, small(), signer)
	crossed.JSONSig, _ = second.sign(FileJSON, crossed.JSON)
	half := seal(t, small(), signer)
	half.HTMLSig, _ = second.sign(FileHTML, half.HTML)
	for name, c := range map[string]struct {
		f     *Files
		alone bool
		want  string
	}{
		"no signature":                   {&Files{JSON: good.JSON, HTML: good.HTML, HTMLSig: good.HTMLSig}, false, "report.json.sig is missing"},
		"no page signature":              {&Files{JSON: good.JSON, HTML: good.HTML, JSONSig: good.JSONSig}, false, "report.html.sig is missing"},
		"no page":                        {&Files{JSON: good.JSON, JSONSig: good.JSONSig, HTMLSig: good.HTMLSig}, false, "report.html is missing"},
		"no page but its sig":            {&Files{JSON: good.JSON, JSONSig: good.JSONSig, HTMLSig: good.HTMLSig}, true, "report.html is missing"},
		"untrusted key":                  {strange, false, `is not trusted: name its public key in drill.trusted_keys`},
		"page of another":                {&Files{JSON: good.JSON, JSONSig: good.JSONSig, HTML: other.HTML, HTMLSig: other.HTMLSig}, false, "report.html is not the page of this report.json"},
		"signature of another":           {&Files{JSON: good.JSON, JSONSig: other.JSONSig, HTML: good.HTML, HTMLSig: good.HTMLSig}, false, "report.json was changed after it was signed"},
		"signatures swapped":             {&Files{JSON: good.JSON, JSONSig: good.HTMLSig, HTML: good.HTML, HTMLSig: good.JSONSig}, false, `it is that of a file "report.html"`},
		"signed though it says unsigned": {&Files{JSON: unsigned.JSON, HTML: unsigned.HTML, JSONSig: good.JSONSig}, false, "says that it is unsigned"},
		"verdict":                        {resign(text), false, `the verdict is "fail", but by the checks it is`},
		"unknown field":                  {resign(strings.Replace(string(lied.JSON), `"drill":`, `"driller": "x", "drill":`, 1)), false, "unknown field"},
		"newer":                          {resign(strings.Replace(string(lied.JSON), `"format_version": 1`, `"format_version": 2`, 1)), false, "use a newer one"},
		"older":                          {resign(strings.Replace(string(lied.JSON), `"format_version": 1`, `"format_version": 0`, 1)), false, "report of format 0"},
		"another key than it says":       {crossed, false, "but says " + signer.ID()},
		"two keys":                       {half, false, "report.html with key " + second.ID()},
		"no report":                      {&Files{JSON: []byte("<html>"), HTML: good.HTML}, false, "not the JSON of a report"},
	} {
		if name == "verdict" {
			c.want = `the verdict is "pass", but by the checks it is "fail"`
		}
		got, err := Verify(c.f, []Public{public, public2}, c.alone)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) || got != nil {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if c, err := Verify(unsigned, []Public{public}, false); !errors.Is(err, ErrUnsigned) || errors.Is(err, ErrRefused) || c == nil || c.SignedBy != "" {
		t.Errorf("unsigned: %+v, %v", c, err)
	}
	if _, err := Verify(good, nil, false); !errors.Is(err, ErrRefused) {
		t.Errorf("no key at all: %v", err)
	}
}

// memory is a bucket.
type memory struct {
	objects map[string][]byte
	order   []string
	fail    string
}

func (m *memory) PutReport(_ context.Context, key, kind string, data []byte) error {
	if m.fail != "" && strings.HasSuffix(key, m.fail) {
		return errors.New("the store is away")
	}
	m.objects[key] = data
	m.order = append(m.order, key+" "+kind)
	return nil
}

// The JSON is put last, so that where it is the others are.
func TestPutAndWrite(t *testing.T) {
	t.Parallel()
	signer, _ := pair(t)
	f := seal(t, small(), signer)
	m := &memory{objects: map[string][]byte{}}
	keys, err := f.Put(t.Context(), m, "drills", "d1")
	want := []string{"drills/d1/report.html text/html; charset=utf-8", "drills/d1/report.html.sig application/json", "drills/d1/report.json.sig application/json", "drills/d1/report.json application/json"}
	if err != nil || keys != (Keys{"drills/d1/report.json", "drills/d1/report.html"}) || strings.Join(m.order, "\n") != strings.Join(want, "\n") || !bytes.Equal(m.objects[keys.JSON], f.JSON) {
		t.Errorf("%+v, %v, %v", keys, err, m.order)
	}
	m = &memory{objects: map[string][]byte{}, fail: "html.sig"}
	if _, err := f.Put(t.Context(), m, "drills", "d1"); err == nil || !strings.Contains(err.Error(), "d1") || m.objects[keys.JSON] != nil {
		t.Errorf("%v, %v", err, m.order)
	}

	dir := filepath.Join(t.TempDir(), "a", "b")
	path, err := f.Write(dir)
	if err != nil || path != filepath.Join(dir, FileJSON) {
		t.Fatalf("%s, %v", path, err)
	}
	for name, want := range map[string][]byte{FileJSON: f.JSON, FileHTML: f.HTML, FileJSON + sigEnd: f.JSONSig, FileHTML + sigEnd: f.HTMLSig} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f.Write(dir); !errors.Is(err, os.ErrExist) {
		t.Errorf("over another: %v", err)
	}
	u := seal(t, small(), nil)
	dir = t.TempDir()
	if _, err := u.Write(dir); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Errorf("unsigned: %v, %v", list, err)
	}
}

// What the page tells an auditor to do works: OpenSSL alone verifies the signature, and
// gives the key's ID.
func TestOpenSSLVerifies(t *testing.T) {
	t.Parallel()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("no openssl")
	}
	dir := t.TempDir()
	run := func(args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), openssl, args...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := run("genpkey", "-algorithm", "ed25519", "-out", "key.pem"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := run("pkey", "-in", "key.pem", "-pubout", "-out", "key.pub"); err != nil {
		t.Fatal(out, err)
	}
	private, err := os.ReadFile(filepath.Join(dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ParseSigner(string(private))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "key.pub"))
	if err != nil {
		t.Fatal(err)
	}
	public, err := ParsePublic(string(text))
	if err != nil || public.ID != signer.ID() {
		t.Fatal(public.ID, err)
	}
	b, _ := pem.Decode(text)
	if id := "ed25519:" + digest(b.Bytes)[:32]; id != public.ID {
		t.Errorf("the ID is %s, by sha256sum %s", public.ID, id)
	}
	f := seal(t, small(), signer)
	if _, err := f.Write(dir); err != nil {
		t.Fatal(err)
	}
	var sig signature
	if err := json.Unmarshal(f.JSONSig, &sig); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(sig.Signature)
	if err != nil || os.WriteFile(filepath.Join(dir, "sig.bin"), raw, 0o600) != nil {
		t.Fatal(err)
	}
	verify := []string{"pkeyutl", "-verify", "-pubin", "-inkey", "key.pub", "-rawin", "-in", FileJSON, "-sigfile", "sig.bin"}
	if out, err := run(verify...); err != nil || !strings.Contains(out, "Verified Successfully") {
		t.Errorf("%s, %v", out, err)
	}
	if err := os.WriteFile(filepath.Join(dir, FileJSON), append(f.JSON, ' '), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run(verify...); err == nil {
		t.Errorf("a changed report: %s", out)
	}
}

func TestKeysThatAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "secret-of-mine", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n", "-----BEGIN PUBLIC KEY-----\nc2VjcmV0\n-----END PUBLIC KEY-----\n"} {
		if s, err := ParseSigner(text); err == nil || s != nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := ParsePublic(text); err == nil {
			t.Errorf("%q is a public key", text)
		}
	}
	if _, err := x509.ParsePKCS8PrivateKey(nil); err == nil {
		t.Error("nothing is a key")
	}
}
