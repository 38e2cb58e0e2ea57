package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"testing"
	"time"
)

// An authority that is no longer trusted lets nobody in: not by a session that was begun
// before, and not by a connection that is kept.
func TestAuthorityTakenAway(t *testing.T) {
	t.Parallel()
	server, clients, next := newAuthority(t, "servers"), newAuthority(t, "clients"), newAuthority(t, "next")
	dir := t.TempDir()
	files := serverCert(t, server, dir)
	files.ClientCA = dir + "/clients.pem"
	write(t, files.ClientCA, string(clients.pem))
	clock := &clock{now: time.Now()}
	r := serve(t, func(c *Config, d *Deps) { c.TLS, d.Now = files, clock.get })
	cert, key := clients.issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "svc"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(server.cert)
	cfg := &tls.Config{RootCAs: pool, ClientSessionCache: tls.NewLRUClientSessionCache(4), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	kept := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}}
	if status, body := r.postWith(kept, "FetchRange", forC); status != 200 {
		t.Fatal(status, body)
	}
	resume := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
	if status, body := r.postWith(resume, "FetchRange", forC); status != 200 {
		t.Fatal(status, body)
	}
	write(t, files.ClientCA, string(next.pem)+"\n")
	clock.add(2 * recheck)
	resp, err := resume.Post(r.url+"/coldtier.v1.ColdHistory/FetchRange", "application/json", nil)
	if err == nil {
		if resp.StatusCode != 401 {
			t.Errorf("a session outlives its authority: %d", resp.StatusCode)
		}
		_ = resp.Body.Close()
	}
	if status, _ := r.postWith(kept, "FetchRange", forC); status == 200 {
		t.Errorf("a connection outlives its authority: %d", status)
	}
}
