package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Auth says who may call. With nothing of it set, and no TLS.ClientCA, anybody may.
type Auth struct {
	Clients           []string // names of certificates; empty: any that TLS.ClientCA signed
	Tokens            string   // file of tokens
	JWT               JWT
	InsecureTransport bool // tokens are taken without TLS: a proxy before the server ends it
}

func (a Auth) tokens() bool { return a.Tokens != "" || a.JWT != JWT{} }

// callers knows who calls.
type callers struct {
	open         bool                  // anybody may
	certificates *watched[*tls.Config] // nil: of none
	clients      []string
	tokens       *watched[tokens]
	jwts         *jwts
	now          func() time.Time
}

func newCallers(ctx context.Context, c Config, files *watched[*tls.Config], client *http.Client, now func() time.Time, log *slog.Logger) (*callers, error) {
	k := &callers{open: !c.Auth.tokens() && c.TLS.ClientCA == "", clients: c.Auth.Clients, now: now}
	if c.TLS.ClientCA != "" {
		k.certificates = files
	}
	var err error
	if c.Auth.Tokens != "" {
		if k.tokens, err = watch(now, log, parseTokens, c.Auth.Tokens); err != nil {
			return nil, err
		}
	}
	if c.Auth.JWT != (JWT{}) {
		if k.jwts, err = newJWTs(ctx, c.Auth.JWT, client, now, log); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// refused is a caller that is not let in: what it is told, and what the log has.
type refused struct{ told, why error }

func (r refused) Error() string { return r.told.Error() }
func (r refused) Unwrap() error { return r.why }

var (
	errNoCaller     = errors.New("want a bearer token or a client certificate")
	errInvalidToken = errors.New("the token is not valid here")
	errTwoTokens    = errors.New("want one Authorization header")
	errNotBearer    = errors.New("want Authorization: Bearer TOKEN")
	errCertificate  = errors.New("the client certificate is not of one that may call")
)

// identify gives the caller of a request. A token counts before a certificate, also
// one that is wrong: what limits a token must not be lost by what carries it.
func (k *callers) identify(r *http.Request) (identity, error) {
	if k.open {
		return anyone(), nil
	}
	headers := r.Header.Values("Authorization")
	switch len(headers) {
	case 0:
		return k.certificate(r)
	case 1:
	default:
		return identity{}, errTwoTokens
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	token = strings.TrimSpace(token)
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return identity{}, errNotBearer
	}
	return k.token(r.Context(), token)
}

// token gives the caller of a token.
func (k *callers) token(ctx context.Context, token string) (identity, error) {
	if k.tokens != nil {
		if who, ok := k.tokens.get().find(token); ok {
			return who, nil
		}
	}
	if k.jwts != nil && strings.Count(token, ".") == 2 {
		return k.jwts.check(ctx, token)
	}
	return identity{}, errInvalidToken
}

// certificate gives the caller of a connection with a client certificate, which the
// handshake has verified. A connection may outlive it, and the authority that signed it:
// so it is verified again when the authorities are others than when it was begun.
func (k *callers) certificate(r *http.Request) (identity, error) {
	if k.certificates == nil || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return identity{}, errNoCaller
	}
	leaf := r.TLS.PeerCertificates[0]
	names := namesOf(leaf)
	if k.now().After(leaf.NotAfter) || len(names) == 0 {
		return identity{}, errCertificate
	}
	if files := k.certificates.get(); r.Context().Value(begunWith{}) != files {
		o := x509.VerifyOptions{Roots: files.ClientCAs, Intermediates: x509.NewCertPool(), CurrentTime: k.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		for _, c := range r.TLS.PeerCertificates[1:] {
			o.Intermediates.AddCert(c)
		}
		if _, err := leaf.Verify(o); err != nil {
			return identity{}, refused{errCertificate, err}
		}
	}
	name := names[0]
	if len(k.clients) > 0 {
		i := slices.IndexFunc(names, func(n string) bool { return slices.Contains(k.clients, n) })
		if i < 0 {
			return identity{}, errCertificate
		}
		name = names[i]
	}
	return identity{Name: name, How: "certificate", read: true, write: true, see: true}, nil
}

// begunWith is the key of the configuration that was there when a connection was begun.
type begunWith struct{}

// begin notes it.
func (k *callers) begin(ctx context.Context, _ net.Conn) context.Context {
	if k.certificates == nil {
		return ctx
	}
	return context.WithValue(ctx, begunWith{}, k.certificates.get())
}

// namesOf are a certificate's names, those of workloads first.
func namesOf(c *x509.Certificate) []string {
	var names []string
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	if c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	return append(names, c.DNSNames...)
}
