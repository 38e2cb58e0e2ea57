package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// TLS is the server's certificate and the authority of its callers': files in PEM,
// read again when they change.
type TLS struct{ Cert, Key, ClientCA string }

// newTLS gives nil where TLS is not configured, and the configuration as the files have it
// now. A client need not show a certificate, so that probes work; the RPCs insist on one.
func newTLS(c TLS, now func() time.Time, log *slog.Logger) (*tls.Config, *watched[*tls.Config], error) {
	if c.Cert == "" {
		return nil, nil, nil
	}
	paths := []string{c.Cert, c.Key}
	if c.ClientCA != "" {
		paths = append(paths, c.ClientCA)
	}
	w, err := watch(now, log, parseTLS, paths...)
	if err != nil {
		return nil, nil, err
	}
	outer := w.get().Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return w.get(), nil }
	return outer, w, nil
}

func parseTLS(contents [][]byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("certificate and key: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if len(contents) > 2 {
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(contents[2]) {
			return nil, errors.New("client CA: no certificate in the file")
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return c, nil
}
