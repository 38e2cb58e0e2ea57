package rpc

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// onPage stands for the page.
func onPage(d *Deps) {
	d.Page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the page") })
}

// seen is the answer that a browser got.
type seen struct {
	StatusCode int
	Header     http.Header
}

// view asks for a path as a browser does; header has names and values.
func (r *rig) view(c *http.Client, path string, header ...string) (seen, string) {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodGet, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return seen{resp.StatusCode, resp.Header}, string(b)
}

func basic(name, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

// Who sees the page by a token, as a browser's password or as a bearer's.
func TestPageByToken(t *testing.T) {
	t.Parallel()
	k := makeKeys(t)
	dir := t.TempDir()
	write(t, dir+"/jwks.json", k.jwks(t))
	token := func(n int) string { return fmt.Sprintf("token-%02d-of-twenty-bytes", n) }
	write(t, dir+"/tokens", strings.Join([]string{
		`{"token": "` + token(1) + `", "name": "all"}`,
		`{"token": "` + token(2) + `", "name": "viewer", "scopes": ["status:read"]}`,
		`{"token": "` + token(3) + `", "name": "reader", "scopes": ["history:read"]}`,
		`{"token": "` + token(4) + `", "name": "nothing", "scopes": []}`,
		`{"token": "` + token(5) + `", "name": "tenant", "tenant": "acme"}`,
		`{"token": "` + token(6) + `", "name": "conversations", "conversations": ["c"]}`,
		`{"token": "` + token(7) + `", "name": "tenant's viewer", "tenant": "acme", "scopes": ["status:read", "history:read"]}`,
	}, "\n"))
	r := serve(t, func(c *Config, d *Deps) {
		c.Auth.Tokens, c.Auth.JWT = dir+"/tokens", JWT{Issuer: issuer, Audience: audience, JWKS: dir + "/jwks.json"}
		onPage(d)
	})
	signed := func(c jwt.MapClaims) string { return sign(t, jwt.SigningMethodRS256, "rsa", k.rsa, c) }
	for name, c := range map[string]struct {
		token  string
		sees   bool
		listed bool // among those that are let in at all
	}{
		"without limits": {token(1), true, true}, "viewer": {token(2), true, true}, "reader": {token(3), false, true}, "no scopes": {token(4), false, true},
		"of a tenant": {token(5), false, true}, "of conversations": {token(6), false, true}, "viewer of a tenant": {token(7), true, true},
		"unknown": {token(8), false, false}, "short": {"x", false, false}, "JWT": {signed(good()), true, true}, "viewer's JWT": {signed(with(jwt.MapClaims{"scope": "status:read"})), true, true},
		"reader's JWT": {signed(with(jwt.MapClaims{"scope": "history:read"})), false, true}, "expired JWT": {signed(with(jwt.MapClaims{"exp": 1})), false, false},
	} {
		for _, path := range []string{"/ui", "/ui/style.css"} {
			resp, body := r.view(http.DefaultClient, path, "Authorization", basic("somebody", c.token))
			if want := map[bool]int{true: 200, false: 401}[c.sees]; resp.StatusCode != want || strings.Contains(body, "the page") != c.sees {
				t.Errorf("%s as a password: %d %s", name, resp.StatusCode, body)
			}
			if asked := strings.Contains(strings.Join(resp.Header.Values("WWW-Authenticate"), ", "), `Basic realm="coldtier"`); asked == c.sees {
				t.Errorf("%s: a browser is asked for a password: %t", name, asked)
			}
			resp, body = r.view(http.DefaultClient, path, "Authorization", "Bearer "+c.token)
			want := 401
			switch {
			case c.sees:
				want = 200
			case c.listed:
				want = 403
			}
			if resp.StatusCode != want {
				t.Errorf("%s as a bearer's: %d %s", name, resp.StatusCode, body)
			}
		}
		for _, header := range []string{basic("somebody", c.token), "Bearer " + c.token} {
			resp, body := r.view(http.DefaultClient, "/", "Authorization", header)
			if want := map[bool]int{true: 200, false: 401}[c.listed]; resp.StatusCode != want || strings.Contains(body, "/metrics") != c.listed {
				t.Errorf("%s at the index: %d %s", name, resp.StatusCode, body)
			}
		}
		// No RPC takes what browsers send along by themselves.
		if status, _ := r.post("FetchRange", forC, "Authorization", basic("somebody", c.token)); status != http.StatusUnauthorized {
			t.Errorf("%s: an RPC takes a password: %d", name, status)
		}
	}
	// A viewer's token opens no history.
	if status, body := r.post("FetchRange", forC, "Authorization", "Bearer "+token(2)); status != http.StatusForbidden {
		t.Errorf("a viewer's token: %d %s", status, body)
	}
	for name, header := range map[string][]string{"nothing": nil, "empty password": {"Authorization", basic("x", "")}, "not base64": {"Authorization", "Basic %%%"}, "a scheme alone": {"Authorization", "Basic"},
		"two": {"Authorization", basic("x", token(1)), "Authorization", basic("x", token(1))}, "name alone": {"Authorization", basic(token(1), "")}} {
		if resp, body := r.view(http.DefaultClient, "/ui", header...); resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	if s := r.log.String(); strings.Contains(s, token(1)) || strings.Contains(s, token(8)) {
		t.Error("a token is in the log")
	}
}

// A client certificate opens the page by itself, and without one nobody is asked for a
// password that there is none for.
func TestPageByCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	servers, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
	r := serve(t, func(c *Config, d *Deps) {
		c.TLS = serverCert(t, servers, dir)
		write(t, dir+"/ca.pem", string(clients.pem))
		c.TLS.ClientCA, c.Auth.Clients = dir+"/ca.pem", []string{"viewer"}
		onPage(d)
	})
	for name, want := range map[string]int{"viewer": 200, "stranger": 401} {
		cert, key := clients.issue(t, x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if resp, body := r.view(tlsClient(t, servers, cert, key), "/ui"); resp.StatusCode != want {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	resp, _ := r.view(tlsClient(t, servers, nil, nil), "/ui", "Authorization", basic("x", "a-password-of-20-characters"))
	if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("WWW-Authenticate") != "" {
		t.Errorf("without a certificate: %d %v", resp.StatusCode, resp.Header)
	}
}

// Where anybody may call, the page is shown under this machine's own names alone: a page of
// somebody's whose name was made to lead here does not get to read it.
func TestPageOfAnOpenServer(t *testing.T) {
	t.Parallel()
	r := serve(t, func(_ *Config, d *Deps) { onPage(d) })
	for host, want := range map[string]int{"": 200, "localhost:8080": 200, "LOCALHOST": 200, "[::1]:8080": 200, "127.0.0.9": 200, "evil.example": 403, "evil.example:8080": 403, "10.0.0.1": 403, "localhost.evil.example": 403} {
		header := []string{"Host", host}
		if host == "" {
			header = nil
		}
		if resp, body := r.view(http.DefaultClient, "/ui", header...); resp.StatusCode != want {
			t.Errorf("host %q: %d %s", host, resp.StatusCode, body)
		}
	}
	// What browsers send elsewhere is no reason to refuse them.
	if resp, _ := r.view(http.DefaultClient, "/ui", "Authorization", basic("x", "y")); resp.StatusCode != http.StatusOK {
		t.Errorf("with a password: %d", resp.StatusCode)
	}
	none := serve(t, nil)
	if resp, _ := none.view(http.DefaultClient, "/ui"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("without a page: %d", resp.StatusCode)
	}
}

// GET / says what is served, and a request that is no request says what would be one.
func TestWhatIsWhere(t *testing.T) {
	t.Parallel()
	with, without := serve(t, func(_ *Config, d *Deps) { onPage(d) }), serve(t, nil)
	for name, r := range map[string]*rig{"with a page": with, "without": without} {
		resp, body := r.view(http.DefaultClient, "/")
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %d %v", name, resp.StatusCode, resp.Header)
		}
		for _, want := range []string{"/coldtier.v1.ColdHistory/METHOD", "FetchRange, StreamRange, GetMessages, GetBoundary, PutStatus", "/grpc.health.v1.Health/Check", "/healthz, /readyz", "/metrics"} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, body)
			}
		}
		if strings.Contains(body, "/ui") != (r == with) {
			t.Errorf("%s:\n%s", name, body)
		}
		if resp, body := r.view(http.DefaultClient, "/", "Host", "evil.example"); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s, under another name: %d %s", name, resp.StatusCode, body)
		}
		if resp, _ := r.view(http.DefaultClient, "/elsewhere"); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: elsewhere is %d", name, resp.StatusCode)
		}
	}
	for _, kind := range []string{"", "application/x-www-form-urlencoded", "text/plain"} { // curl's own is the second
		resp, err := http.Post(with.url+"/coldtier.v1.ColdHistory/FetchRange", kind, strings.NewReader(forC))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnsupportedMediaType || !strings.Contains(string(b), "-H 'Content-Type: application/json'") {
			t.Errorf("type %q: %d %s", kind, resp.StatusCode, b)
		}
	}
	if status, body := with.post("FetchPage", forC); status != http.StatusNotFound || !strings.Contains(body, "no such method: FetchRange, ") {
		t.Errorf("another method: %d %s", status, body)
	}
}
