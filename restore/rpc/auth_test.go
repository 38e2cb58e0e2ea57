package rpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/coldtier/coldtier/restore"
)

const (
	issuer   = "https://id.example"
	audience = "coldtier"
)

// keys sign tokens.
type keys struct {
	rsa   *rsa.PrivateKey
	other *rsa.PrivateKey
	ec    *ecdsa.PrivateKey
	ed    ed25519.PrivateKey
}

func makeKeys(t testing.TB) *keys {
	t.Helper()
	k := &keys{}
	var err error
	if k.rsa, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	if k.other, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	if k.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	if _, k.ed, err = ed25519.GenerateKey(rand.Reader); err != nil {
		t.Fatal(err)
	}
	return k
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwks is the public half; "enc" is a key that is not for signatures.
func (k *keys) jwks(t testing.TB) string {
	t.Helper()
	point, err := k.ec.PublicKey.Bytes() // 4, x, y
	if err != nil {
		t.Fatal(err)
	}
	n, e := b64(k.rsa.N.Bytes()), b64(big.NewInt(int64(k.rsa.E)).Bytes())
	return fmt.Sprintf(`{"keys": [{"kty":"RSA","kid":"rsa","use":"sig","n":%q,"e":%q}, {"kty":"RSA","kid":"enc","use":"enc","n":%q,"e":%q},
		{"kty":"EC","kid":"ec","crv":"P-256","x":%q,"y":%q}, {"kty":"OKP","kid":"ed","crv":"Ed25519","x":%q}, {"kty":"oct","kid":"oct","k":%q}]}`,
		n, e, n, e, b64(point[1:33]), b64(point[33:]), b64(k.ed.Public().(ed25519.PublicKey)), b64([]byte("a symmetric key that is in the set")))
}

// good are claims that are let in.
func good() jwt.MapClaims {
	return jwt.MapClaims{"iss": issuer, "aud": audience, "sub": "svc", "exp": time.Now().Add(time.Hour).Unix()}
}

func with(changes jwt.MapClaims) jwt.MapClaims {
	c := good()
	maps.Copy(c, changes)
	for k, v := range c {
		if v == "-" {
			delete(c, k)
		}
	}
	return c
}

func sign(t testing.TB, m jwt.SigningMethod, kid string, key any, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(m, c)
	if kid != "" {
		token.Header["kid"] = kid
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const forC = `{"conversation": "c"}`

// Which JSON web tokens are let in.
func TestJWT(t *testing.T) {
	t.Parallel()
	k := makeKeys(t)
	file := t.TempDir() + "/jwks.json"
	write(t, file, k.jwks(t))
	r := serve(t, func(c *Config, _ *Deps) { c.Auth.JWT = JWT{Issuer: issuer, Audience: audience, JWKS: file} })
	der, err := x509.MarshalPKIXPublicKey(k.rsa.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	rs := func(c jwt.MapClaims) string { return sign(t, jwt.SigningMethodRS256, "rsa", k.rsa, c) }
	now := time.Now()
	tests := []struct {
		name, token string
		status      int
	}{
		{"RS256", rs(good()), 200},
		{"PS512", sign(t, jwt.SigningMethodPS512, "rsa", k.rsa, good()), 200},
		{"ES256", sign(t, jwt.SigningMethodES256, "ec", k.ec, good()), 200},
		{"EdDSA", sign(t, jwt.SigningMethodEdDSA, "ed", k.ed, good()), 200},
		{"no kid", sign(t, jwt.SigningMethodRS256, "", k.rsa, good()), 200},
		{"one of several audiences", rs(with(jwt.MapClaims{"aud": []string{"x", audience}})), 200},
		{"a clock that is a little ahead", rs(with(jwt.MapClaims{"nbf": now.Add(10 * time.Second).Unix(), "iat": now.Add(10 * time.Second).Unix()})), 200},
		{"expired", rs(with(jwt.MapClaims{"exp": now.Add(-time.Minute).Unix()})), 401},
		{"without end", rs(with(jwt.MapClaims{"exp": "-"})), 401},
		{"not yet", rs(with(jwt.MapClaims{"nbf": now.Add(5 * time.Minute).Unix()})), 401},
		{"issued in the future", rs(with(jwt.MapClaims{"iat": now.Add(5 * time.Minute).Unix()})), 401},
		{"another issuer", rs(with(jwt.MapClaims{"iss": "https://evil.example"})), 401},
		{"no issuer", rs(with(jwt.MapClaims{"iss": "-"})), 401},
		{"another audience", rs(with(jwt.MapClaims{"aud": "other"})), 401},
		{"no audience", rs(with(jwt.MapClaims{"aud": "-"})), 401},
		{"another key", sign(t, jwt.SigningMethodRS256, "rsa", k.other, good()), 401},
		{"unknown kid", sign(t, jwt.SigningMethodRS256, "none", k.rsa, good()), 401},
		{"key for encryption", sign(t, jwt.SigningMethodRS256, "enc", k.rsa, good()), 401},
		{"alg none", sign(t, jwt.SigningMethodNone, "rsa", jwt.UnsafeAllowNoneSignatureType, good()), 401},
		{"HS256 with the public key", sign(t, jwt.SigningMethodHS256, "rsa", public, good()), 401},
		{"HS256 with a symmetric key of the set", sign(t, jwt.SigningMethodHS256, "oct", []byte("a symmetric key that is in the set"), good()), 401},
		{"ES256 under an RSA key's ID", sign(t, jwt.SigningMethodES256, "rsa", k.ec, good()), 401},
		{"changed", rs(good())[:20] + "A" + rs(good())[21:], 401},
		{"signature cut off", rs(good())[:strings.LastIndex(rs(good()), ".")+1], 401},
		{"null as tenant", rs(with(jwt.MapClaims{"tenant": nil})), 401},
		{"empty tenant", rs(with(jwt.MapClaims{"tenant": ""})), 401},
		{"number as tenant", rs(with(jwt.MapClaims{"tenant": 5})), 401},
		{"null as conversations", rs(with(jwt.MapClaims{"conversations": nil})), 401},
		{"numbers as conversations", rs(with(jwt.MapClaims{"conversations": []int{9007199254740993}})), 401},
		{"null in conversations", rs(with(jwt.MapClaims{"conversations": []any{"c", nil}})), 401},
		{"null as scope", rs(with(jwt.MapClaims{"scope": nil})), 401},
		{"text as roles", rs(with(jwt.MapClaims{"roles": "history:read"})), 401},
		{"not a token", "a.b.c", 401},
		{"long", strings.Repeat("a", 30_000), 401},
	}
	for _, tt := range tests {
		if status, body := r.post("FetchRange", forC, "Authorization", "Bearer "+tt.token); status != tt.status {
			t.Errorf("%s: %d %s", tt.name, status, body)
		}
	}
	if _, body := r.post("FetchRange", forC, "Authorization", "Bearer "+rs(with(jwt.MapClaims{"exp": now.Add(-time.Hour).Unix()}))); !strings.Contains(body, "the token has expired") {
		t.Errorf("expired: %s", body)
	}
	for name, header := range map[string][]string{
		"none": nil, "Basic": {"Authorization", "Basic dTpw"}, "empty": {"Authorization", "Bearer "}, "bare": {"Authorization", rs(good())},
		"two": {"Authorization", "Bearer " + rs(good()), "Authorization", "Bearer " + rs(good())},
	} {
		status, body := r.post("FetchRange", forC, header...)
		if status != 401 || jsonOf(t, body)["code"] != "unauthenticated" {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	for _, l := range r.lines() {
		if l["who"] != "svc" || l["how"] != "jwt" {
			t.Errorf("audit line %v", l)
		}
	}
	if log := r.log.String() + r.audit.String(); strings.Contains(log, rs(good())[:100]) {
		t.Error("a token is in the logs")
	}
	if n := r.count("coldtier_rpc_requests_total", "method", "FetchRange", "code", "unauthenticated"); n < 30 {
		t.Errorf("%v refusals are counted", n)
	}
}

// What a token is for bounds what it gets: the tenant, the conversations, the scopes.
func TestLimits(t *testing.T) {
	t.Parallel()
	k := makeKeys(t)
	dir := t.TempDir()
	write(t, dir+"/jwks.json", k.jwks(t))
	r := serve(t, func(c *Config, _ *Deps) {
		c.Auth.JWT = JWT{Issuer: issuer, Audience: audience, JWKS: dir + "/jwks.json"}
	})
	r.engine.messages = &restore.Messages{Rows: r.engine.page.Rows, State: restore.Complete}
	const (
		fetch    = "FetchRange"
		messages = "GetMessages"
		boundary = "GetBoundary"
		put      = "PutStatus"
	)
	bodies := map[string]string{ // %s: the rest, such as a tenant
		fetch: `{"conversation": "c"%s}`, messages: `{"conversation": "c", "message_ids": ["1"]%s}`, boundary: `{"conversations": ["c"]%s}`,
		put: `{"conversation": "c", "message_id": "1", "kind": "STATUS_KIND_RECALLED"%s}`,
	}
	tests := []struct {
		name   string
		claims jwt.MapClaims
		rest   string
		may    string // initials of the methods
	}{
		{"no limits", nil, ``, "FMBP"},
		{"no limits, any tenant", nil, `, "tenant": "x"`, "FMBP"},
		{"tenant", jwt.MapClaims{"tenant": "acme"}, ``, "FM"},
		{"its tenant", jwt.MapClaims{"tenant": "acme"}, `, "tenant": "acme"`, "FM"},
		{"another tenant", jwt.MapClaims{"tenant": "acme"}, `, "tenant": "acmE"`, ""},
		{"tenant and the conversation", jwt.MapClaims{"tenant": "acme", "conversations": []string{"b", "c"}}, ``, "FMBP"},
		{"another tenant and the conversation", jwt.MapClaims{"tenant": "acme", "conversations": []string{"c"}}, `, "tenant": "x"`, ""},
		{"the conversation", jwt.MapClaims{"conversations": []string{"c"}}, ``, "FMBP"},
		{"other conversations", jwt.MapClaims{"conversations": []string{"C", "", "cc"}}, ``, ""},
		{"no conversations", jwt.MapClaims{"conversations": []string{}}, ``, ""},
		{"read", jwt.MapClaims{"scope": "openid history:read"}, ``, "FMB"},
		{"write", jwt.MapClaims{"scope": "history:write"}, ``, "P"},
		{"read and write", jwt.MapClaims{"scope": []string{"history:read", "history:write"}}, ``, "FMBP"},
		{"roles", jwt.MapClaims{"roles": []string{"history:read"}}, ``, "FMB"},
		{"roles and scope", jwt.MapClaims{"roles": []string{"history:read"}, "scope": "history:write"}, ``, "FMBP"},
		{"other scopes", jwt.MapClaims{"scope": "openid history:reader xhistory:read"}, ``, ""},
		{"empty scope", jwt.MapClaims{"scope": ""}, ``, ""},
		{"empty roles", jwt.MapClaims{"roles": []string{}}, ``, ""},
	}
	for _, tt := range tests {
		token := sign(t, jwt.SigningMethodES256, "ec", k.ec, with(tt.claims))
		for i, method := range []string{fetch, messages, boundary, put} {
			status, body := r.post(method, fmt.Sprintf(bodies[method], tt.rest), "Authorization", "bearer "+token)
			want := http.StatusForbidden
			if strings.ContainsRune(tt.may, rune("FMBP"[i])) {
				want = http.StatusOK
			}
			if status != want || (want == http.StatusForbidden && jsonOf(t, body)["code"] != "permission_denied") {
				t.Errorf("%s, %s: %d %s", tt.name, method, status, body)
			}
		}
		status, _ := r.post("StreamRange", "\x00\x00\x00\x00\x14"+forC+" ", "Authorization", "Bearer "+token, "Content-Type", "application/connect+json")
		if status == http.StatusUnauthorized {
			t.Errorf("%s: the stream knows no caller", tt.name)
		}
	}
	// The engine is told whose messages alone may be given.
	token := sign(t, jwt.SigningMethodES256, "ec", k.ec, with(jwt.MapClaims{"tenant": "acme"}))
	r.post(fetch, forC, "Authorization", "Bearer "+token)
	if q := r.engine.last(t); q.Only == nil || *q.Only != "acme" || q.Tenant != "acme" {
		t.Errorf("query %+v", q)
	}
	r.post(messages, `{"conversation": "c", "message_ids": ["1"]}`, "Authorization", "Bearer "+token)
	if q := r.engine.batches[len(r.engine.batches)-1]; q.Only == nil || *q.Only != "acme" || q.Tenant != "acme" {
		t.Errorf("query %+v", q)
	}
	r.post(fetch, `{"conversation": "c", "tenant": "x"}`, "Authorization", "Bearer "+sign(t, jwt.SigningMethodES256, "ec", k.ec, good()))
	if q := r.engine.last(t); q.Only != nil || q.Tenant != "x" {
		t.Errorf("query %+v", q)
	}
	if n := r.count("coldtier_rpc_requests_total", "method", put, "code", "permission_denied"); n != 11 {
		t.Errorf("%v denials of a put are counted", n)
	}
}

// The issuer's keys come from an https URL, also when it does not answer at first, and
// a key that is new is found; they never come from elsewhere.
func TestKeysByURL(t *testing.T) {
	t.Parallel()
	k := makeKeys(t)
	var down atomic.Bool
	down.Store(true)
	var asked atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, k.jwks(t))
	})
	plain := httptest.NewServer(mux)
	defer plain.Close()
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+"/keys", http.StatusFound)
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"keys": [], "x": "`+strings.Repeat("x", maxKeySet)+`"}`)
	})
	idp := httptest.NewTLSServer(mux)
	defer idp.Close()
	token := sign(t, jwt.SigningMethodRS256, "rsa", k.rsa, good())
	at := func(path string) *rig {
		return serve(t, func(c *Config, d *Deps) {
			c.Auth.JWT, d.HTTP = JWT{Issuer: issuer, Audience: audience, JWKS: idp.URL + path}, idp.Client()
		})
	}
	r := at("/keys")
	if !strings.Contains(r.log.String(), "the issuer's keys cannot be fetched") {
		t.Errorf("the log says nothing: %s", r.log)
	}
	down.Store(false)
	if status, body := r.post("FetchRange", forC, "Authorization", "Bearer "+token); status != 200 {
		t.Errorf("after the issuer came back: %d %s", status, body)
	}
	// Unknown keys do not make the issuer be asked each time.
	before := asked.Load()
	for range 20 {
		if status, _ := r.post("FetchRange", forC, "Authorization", "Bearer "+sign(t, jwt.SigningMethodRS256, "new", k.rsa, good())); status != 401 {
			t.Errorf("unknown key: %d", status)
		}
	}
	if n := asked.Load() - before; n > 2 {
		t.Errorf("the issuer was asked %d times for unknown keys", n)
	}
	for _, path := range []string{"/moved", "/endless", "/none"} {
		r := at(path)
		if status, _ := r.post("FetchRange", forC, "Authorization", "Bearer "+token); status != 401 || !strings.Contains(r.log.String(), "cannot be fetched") {
			t.Errorf("%s: %d", path, status)
		}
	}
	if _, err := newJWTs(context.Background(), JWT{JWKS: plain.URL + "/keys"}, nil, time.Now, nil); err == nil {
		t.Error("keys are taken from a URL without https")
	}
}

// Static tokens: plain or as a hash, with limits, and read anew when the file changes.
func TestTokenFile(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/tokens"
	hashed := "another-token-of-some-length"
	sum := sha256.Sum256([]byte(hashed))
	write(t, file, `# callers
{"token": "a-token-of-20-characters", "name": "history"}

{"sha256": "`+hex.EncodeToString(sum[:])+`", "name": "reader", "tenant": "acme", "conversations": ["c"], "scopes": ["history:read"]}
`)
	clock := &clock{now: time.Now()}
	r := serve(t, func(c *Config, d *Deps) { c.Auth.Tokens, d.Now = file, clock.get })
	try := func(token, method, body string, want int) {
		t.Helper()
		if status, answer := r.post(method, body, "Authorization", "Bearer "+token); status != want {
			t.Errorf("%s %s: %d %s, want %d", token, method, status, answer, want)
		}
	}
	const put = `{"conversation": "c", "message_id": "1", "kind": "STATUS_KIND_RECALLED"}`
	try("a-token-of-20-characters", "FetchRange", forC, 200)
	try("a-token-of-20-characters", "PutStatus", put, 200)
	if by := r.engine.put[0].By; by != "history" {
		t.Errorf("put by %q", by)
	}
	try(hashed, "FetchRange", forC, 200)
	try(hashed, "PutStatus", put, 403)
	try(hashed, "FetchRange", `{"conversation": "d"}`, 403)
	try(hashed, "FetchRange", `{"conversation": "c", "tenant": "x"}`, 403)
	try(hex.EncodeToString(sum[:]), "FetchRange", forC, 401)
	try("a-token-of-20-character", "FetchRange", forC, 401)
	try("a-token-of-20-charactersx", "FetchRange", forC, 401)

	change := func(text string) {
		write(t, file+".new", text)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		clock.add(2 * recheck)
	}
	change(`{"token": "a-new-token-of-some-length", "name": "history"}`)
	try("a-token-of-20-characters", "FetchRange", forC, 401)
	try("a-new-token-of-some-length", "FetchRange", forC, 200)
	change(`{"token": "a-third-token-of-some-length", "nam`) // half written
	try("a-new-token-of-some-length", "FetchRange", forC, 200)
	if !strings.Contains(r.log.String(), "line 1: want a JSON object") || strings.Contains(r.log.String(), "a-third-token") {
		t.Errorf("log: %s", r.log)
	}
	change("")
	try("a-new-token-of-some-length", "FetchRange", forC, 401)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	clock.add(2 * recheck)
	try("a-new-token-of-some-length", "FetchRange", forC, 401)
}

// Errors in the file name the line and quote nothing.
func TestTokenFileErrors(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`x`:                                    "want a JSON object",
		`[]`:                                   "want a JSON object",
		`{"name": "hunter2"}`:                  "want either token or sha256",
		`{"token": "hunter2-hunter2-hunter2"}`: "want a name",
		`{"token": "hunter2", "name": "x"}`:    "at least 20 characters",
		`{"sha256": "hunter2", "name": "x"}`:   "64 hexadecimal digits",
		`{"token": "hunter2-hunter2-hunter2", "sha256": "x", "name": "x"}`:                                               "either token or sha256",
		`{"token": "hunter2-hunter2-hunter2", "name": "x", "tennant": "x"}`:                                              "nothing else",
		`{"token": "hunter2-hunter2-hunter2", "name": "x", "tenant": ""}`:                                                "tenant: want",
		`{"token": "hunter2-hunter2-hunter2", "name": "x", "tenant": null}`:                                              "tenant: want",
		`{"token": "hunter2-hunter2-hunter2", "name": "x", "conversations": null}`:                                       "conversations: want",
		`{"token": "hunter2-hunter2-hunter2", "name": "x", "conversations": [1]}`:                                        "conversations: want",
		`{"token": "hunter2-hunter2-hunter2", "name": "x", "scopes": ["read"]}`:                                          "want history:read, history:write or status:read",
		`{"token": "hunter2-hunter2-hunter2", "name": "x", "scopes": null}`:                                              "scopes: want",
		`{"token": "hunter2-hunter2-hunter2", "name": "x"} {}`:                                                           "nothing else",
		`{"token": "hunter2-hunter2-hunter2", "name": "x"}` + "\n" + `{"token": "hunter2-hunter2-hunter2", "name": "y"}`: "line 2: the token is there twice",
	} {
		_, err := parseTokens([][]byte{[]byte(in)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
	for _, c := range []Config{{Auth: Auth{Tokens: "/no/such/file"}}, {Auth: Auth{JWT: JWT{Issuer: "i", Audience: "a", JWKS: "/no/such/file"}}}, {TLS: TLS{Cert: "/no/such", Key: "/no/such"}}} {
		if _, err := NewServer(context.Background(), c, Deps{Now: time.Now}); err == nil || !strings.Contains(err.Error(), "/no/such") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
