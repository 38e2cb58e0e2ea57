package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

func fetch(m *mapping, f *Fetch) {
	faults := len(m.d.errs)
	m.text("listen", &f.Listen, checkListen)
	m.within("budget", &f.Budget, 10*time.Millisecond, time.Minute)
	m.within("hedge_after", &f.HedgeAfter, 0, time.Minute)
	m.within("fill_timeout", &f.FillTimeout, 100*time.Millisecond, 10*time.Minute)
	m.size("cache", &f.Cache, 16<<20, math.MaxInt64)
	m.number("max_limit", &f.MaxLimit, 1, 100_000)
	m.flag("warm", &f.Warm)
	m.section("limits", false, func(m *mapping) {
		m.number("process", &f.Limits.Process, 1, 1_000_000)
		m.number("tenant", &f.Limits.Tenant, 1, 1_000_000)
		m.number("conversation", &f.Limits.Conversation, 1, 1_000_000)
	})
	m.section("tls", false, func(m *mapping) {
		m.text("cert", &f.TLS.Cert, nil)
		m.text("key", &f.TLS.Key, nil)
		m.text("client_ca", &f.TLS.ClientCA, nil)
		switch t := f.TLS; {
		case (t.Cert == "") != (t.Key == ""):
			m.wrong("want both cert and key, or neither", "cert", "key")
		case t.ClientCA != "" && t.Cert == "":
			m.wrong("has no effect without cert and key", "client_ca")
		}
	})
	m.section("auth", false, func(m *mapping) { auth(m, &f.Auth, f.TLS) })
	m.text("audit", &f.Audit, nil)
	m.within("drain", &f.Drain, 0, 10*time.Minute)

	if len(m.d.errs) > faults {
		return // what follows looks at several keys together
	}
	if f.HedgeAfter >= f.Budget {
		m.wrong(fmt.Sprintf("want hedge_after (%s) below budget (%s)", f.HedgeAfter, f.Budget), "hedge_after", "budget")
	}
	if Loopback(f.Listen) {
		return
	}
	tokens := f.Auth.Tokens != "" || f.Auth.JWT != JWT{}
	switch {
	case !tokens && f.TLS.ClientCA == "":
		m.wrong("anybody who reaches this address could read all messages: set auth.tokens, auth.jwt or tls.client_ca, or listen on 127.0.0.1", "listen")
	case tokens && f.TLS.Cert == "" && !f.Auth.InsecureTransport:
		m.wrong("tokens would cross the network in the clear: set tls.cert and tls.key, or, when a proxy before the server ends TLS, auth.insecure_transport: true", "listen")
	}
}

func auth(m *mapping, a *Auth, t TLS) {
	m.texts("clients", &a.Clients, 0, func(s string) error {
		if s == "" {
			return errors.New("want the name of a certificate: its subject's common name, or a URI or DNS name of it")
		}
		if t.ClientCA == "" {
			return errors.New("has no effect without fetch.tls.client_ca")
		}
		return nil
	})
	m.text("tokens", &a.Tokens, nil)
	m.section("jwt", false, func(m *mapping) {
		m.text("issuer", &a.JWT.Issuer, nil)
		m.text("audience", &a.JWT.Audience, nil)
		m.text("jwks", &a.JWT.JWKS, checkJWKS)
		if j := a.JWT; (j != JWT{}) && (j.Issuer == "" || j.Audience == "" || j.JWKS == "") {
			m.wrong("want all of issuer, audience and jwks", "issuer", "audience", "jwks")
		}
	})
	m.flag("insecure_transport", &a.InsecureTransport)
}

// Loopback says whether an address is reached from this machine alone.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func checkListen(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.ContainsAny(host, " /") {
		return errors.New("want HOST:PORT such as 127.0.0.1:8080, or :8080 for all addresses")
	}
	return nil
}

// CheckListen checks an address that is listened on.
func CheckListen(s string) error { return checkListen(s) }

func checkJWKS(s string) error {
	if !strings.Contains(s, "://") { // a file
		return nil
	}
	if u, err := url.Parse(s); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		// Whoever can change the keys on their way can make tokens.
		return errors.New("want a file or an https URL (without credentials)")
	}
	return nil
}

// within reads a duration of least to most.
func (m *mapping) within(key string, dst *time.Duration, least, most time.Duration) {
	m.formatted(key, func(s string) (err error) {
		if *dst, err = ParseDuration(s); err == nil && (*dst < least || *dst > most) {
			return fmt.Errorf("want %s to %s", least, most)
		}
		return err
	})
}

// wrong reports what is wrong with several keys together, at the first of them that is set.
func (m *mapping) wrong(message string, keys ...string) {
	for _, k := range keys {
		if n, ok := m.values[k]; ok {
			m.d.fail(at(n), join(m.path, k), "%s", message)
			return
		}
	}
	m.d.fail(m.pos, m.path, "%s", message)
}
