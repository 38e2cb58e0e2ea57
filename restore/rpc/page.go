package rpc

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// pagePath is where Deps.Page is served, and what lies below it.
const pagePath = "/ui"

var (
	errNoViewer = errors.New("log in with a token as the password, or show a client certificate")
	errNotLocal = errors.New("without callers that are known the page is shown under localhost and addresses of this machine alone")
	errNotShown = errors.New("this caller may not see the state of the whole: its token needs the scope " + ScopeStatus)
)

// paged lets those in who may see the state of the whole. A browser cannot send a bearer
// token of its own accord, but asks for a name and a password: the password is then the
// token, and the name is not looked at. RPCs do not take that: a browser sends it along
// wherever it is led to.
func (s *Server) paged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := s.callers.viewer(r)
		code := http.StatusUnauthorized
		switch {
		case err != nil:
		case s.callers.open && !local(r.Host):
			// A name of somebody's that was made to lead here would let his page read ours.
			code, err = http.StatusForbidden, errNotLocal
		case !who.maySee():
			err = errNotShown
			if _, _, asked := r.BasicAuth(); !asked { // else it may be asked for another token
				code = http.StatusForbidden
			}
		}
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		var why refused
		detail := err
		if errors.As(err, &why) {
			detail = why.why
		}
		s.log.Debug("a viewer is not let in", "path", r.URL.Path, "peer", r.RemoteAddr, "error", detail)
		h := w.Header()
		if code == http.StatusUnauthorized && s.cfg.Auth.tokens() {
			h.Set("WWW-Authenticate", `Basic realm="coldtier", charset="UTF-8"`)
			h.Add("WWW-Authenticate", "Bearer")
		}
		h.Set("Cache-Control", "no-store")
		http.Error(w, err.Error(), code)
	})
}

// viewer is identify for a browser.
func (k *callers) viewer(r *http.Request) (identity, error) {
	if _, token, ok := r.BasicAuth(); ok && !k.open && len(r.Header.Values("Authorization")) == 1 {
		if strings.TrimSpace(token) == "" {
			return identity{}, errNoViewer
		}
		return k.token(r.Context(), token)
	}
	who, err := k.identify(r)
	if errors.Is(err, errNoCaller) {
		err = errNoViewer
	}
	return who, err
}

// local says whether a request's host is this machine by name or address.
func local(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && a.IsLoopback()
}
