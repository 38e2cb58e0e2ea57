package rpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/coldtier/coldtier/restore/rpc/coldtier/v1"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// issue gives a certificate and its key in PEM.
func (a *authority) issue(t testing.TB, template x509.Certificate) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-2 * time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, k.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	kd, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kd})
}

func serverCert(t testing.TB, a *authority, dir string) TLS {
	t.Helper()
	cert, key := a.issue(t, x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	write(t, dir+"/cert.pem", string(cert))
	write(t, dir+"/key.pem", string(key))
	return TLS{Cert: dir + "/cert.pem", Key: dir + "/key.pem"}
}

// tlsClient trusts one authority and shows a certificate, if there is one.
func tlsClient(t testing.TB, trust *authority, cert, key []byte) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(trust.cert)
	c := &tls.Config{RootCAs: pool}
	if cert != nil {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		// Shown whatever authorities the server names.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	tr := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// Which client certificates are let in; probes need none.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	server, clients, strangers := newAuthority(t, "servers"), newAuthority(t, "clients"), newAuthority(t, "strangers")
	dir := t.TempDir()
	files := serverCert(t, server, dir)
	files.ClientCA = dir + "/clients.pem"
	write(t, files.ClientCA, string(clients.pem))
	clock := &clock{now: time.Now()}
	r := serve(t, func(c *Config, d *Deps) {
		c.TLS, d.Now = files, clock.get
		c.Auth.Clients = []string{"spiffe://example/history", "dns.example", "by-name"}
	})
	uri, err := url.Parse("spiffe://example/history")
	if err != nil {
		t.Fatal(err)
	}
	auth := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	issue := func(a *authority, template x509.Certificate) *http.Client {
		cert, key := a.issue(t, template)
		return tlsClient(t, server, cert, key)
	}
	for name, c := range map[string]*http.Client{
		"spiffe://example/history": issue(clients, x509.Certificate{URIs: []*url.URL{uri}, Subject: pkix.Name{CommonName: "x"}, ExtKeyUsage: auth}),
		"by-name":                  issue(clients, x509.Certificate{Subject: pkix.Name{CommonName: "by-name"}, ExtKeyUsage: auth}),
		"dns.example":              issue(clients, x509.Certificate{DNSNames: []string{"dns.example"}, ExtKeyUsage: auth}),
	} {
		if status, body := r.postWith(c, "FetchRange", forC); status != 200 {
			t.Errorf("%s: %d %s", name, status, body)
		}
		lines := r.lines()
		if l := lines[len(lines)-1]; l["who"] != name || l["how"] != "certificate" {
			t.Errorf("%s is in the audit log as %v", name, l)
		}
	}
	if status, body := r.postWith(issue(clients, x509.Certificate{Subject: pkix.Name{CommonName: "other"}, ExtKeyUsage: auth}), "FetchRange", forC); status != 401 {
		t.Errorf("a name that is not listed: %d %s", status, body)
	}
	none := tlsClient(t, server, nil, nil)
	if status, body := r.postWith(none, "FetchRange", forC); status != 401 || !strings.Contains(body, "want a bearer token or a client certificate") {
		t.Errorf("no certificate: %d %s", status, body)
	}
	for _, path := range []string{"/healthz", "/metrics"} {
		resp, err := none.Get(r.url + path)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("%s without a certificate: %v, %v", path, resp, err)
			continue
		}
		_ = resp.Body.Close()
	}
	for name, c := range map[string]*http.Client{
		"of strangers": issue(strangers, x509.Certificate{Subject: pkix.Name{CommonName: "by-name"}, ExtKeyUsage: auth}),
		"expired":      issue(clients, x509.Certificate{Subject: pkix.Name{CommonName: "by-name"}, ExtKeyUsage: auth, NotAfter: time.Now().Add(-time.Hour)}),
		"of a server":  issue(clients, x509.Certificate{Subject: pkix.Name{CommonName: "by-name"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}),
	} {
		if resp, err := c.Post(r.url+"/coldtier.v1.ColdHistory/FetchRange", "application/json", strings.NewReader(forC)); err == nil {
			t.Errorf("a certificate %s: %d", name, resp.StatusCode)
			_ = resp.Body.Close()
		}
	}
	// A connection does not outlive its certificate, and the files are read anew.
	short := issue(clients, x509.Certificate{Subject: pkix.Name{CommonName: "by-name"}, ExtKeyUsage: auth})
	if status, _ := r.postWith(short, "FetchRange", forC); status != 200 {
		t.Error("a good certificate is refused")
	}
	clock.add(2 * time.Hour)
	if status, _ := r.postWith(short, "FetchRange", forC); status != 401 {
		t.Error("a connection outlived its certificate")
	}
	write(t, files.ClientCA, string(strangers.pem)+"\n")
	clock.add(2*recheck - 2*time.Hour)
	if status, _ := r.postWith(issue(strangers, x509.Certificate{Subject: pkix.Name{CommonName: "by-name"}, ExtKeyUsage: auth}), "FetchRange", forC); status != 200 {
		t.Error("the new authority does not count")
	}
}

// By TLS with gRPC and a token: the token decides, also where there is a certificate.
func TestTokenBeforeCertificate(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, "all")
	dir := t.TempDir()
	files := serverCert(t, a, dir)
	files.ClientCA = dir + "/ca.pem"
	write(t, files.ClientCA, string(a.pem))
	write(t, dir+"/tokens", `{"token": "a-token-of-20-characters", "name": "reader", "scopes": ["history:read"]}`)
	r := serve(t, func(c *Config, _ *Deps) { c.TLS, c.Auth.Tokens = files, dir+"/tokens" })
	cert, key := a.issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "svc"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	both := tlsClient(t, a, cert, key)
	ask := func(c *http.Client, token string) error {
		interceptor := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
				if token != "" {
					req.Header().Set("Authorization", "Bearer "+token)
				}
				return next(ctx, req)
			}
		})
		_, err := r.client(c, connect.WithGRPC(), connect.WithInterceptors(interceptor)).PutStatus(context.Background(), &v1.PutStatusRequest{Conversation: str("c"), Kind: v1.StatusKind_STATUS_KIND_DELETED})
		return err
	}
	if err := ask(both, ""); err != nil {
		t.Errorf("certificate: %v", err)
	}
	codeIs(t, ask(both, "a-token-of-20-characters"), connect.CodePermissionDenied)
	codeIs(t, ask(both, "a-wrong-token-of-some-length"), connect.CodeUnauthenticated)
	codeIs(t, ask(tlsClient(t, a, nil, nil), ""), connect.CodeUnauthenticated)
}
