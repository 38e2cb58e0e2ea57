package rpc

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"connectrpc.com/grpchealth"

	v1 "github.com/coldtier/coldtier/restore/rpc/coldtier/v1"
	"github.com/coldtier/coldtier/restore/rpc/coldtier/v1/coldtierv1connect"
)

// pagePath is where Deps.Page is served, and what lies below it.
const pagePath = "/ui"

var (
	errNoViewer = errors.New("log in with a token as the password, or show a client certificate")
	errNotLocal = errors.New("without callers that are known the page is shown under localhost and addresses of this machine alone")
	errNotShown = errors.New("this caller may not see the state of the whole: its token needs the scope " + ScopeStatus)
)

// everybody who is let in at all may see what shows nothing of the state.
func everybody(identity) bool { return true }

// index says what is served where.
func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	var b strings.Builder
	line := func(path, what string) { fmt.Fprintf(&b, "%-34s %s\n", path, what) }
	b.WriteString("coldtier serve: the cold history\n\n")
	line("/"+coldtierv1connect.ColdHistoryName+"/METHOD", "POST by gRPC, gRPC-Web or JSON: "+methodNames())
	line("/"+grpchealth.HealthV1ServiceName+"/Check", "health by gRPC or JSON; reflection is there, too")
	line("/healthz, /readyz", "the process lives; it can answer")
	line("/metrics", "for Prometheus")
	if s.page {
		line(pagePath, "what is where, for a browser")
	}
	b.WriteString("\ncurl -H 'Content-Type: application/json' -d '{\"conversation\": \"ID\", \"limit\": 20}' THIS-SERVER/" + coldtierv1connect.ColdHistoryName + "/FetchRange\n")
	_, _ = io.WriteString(w, b.String()) // a client that is gone needs none
}

// methodNames are those of the ColdHistory.
func methodNames() string {
	var names []string
	methods := v1.File_coldtier_v1_history_proto.Services().ByName("ColdHistory").Methods()
	for i := range methods.Len() {
		names = append(names, string(methods.Get(i).Name()))
	}
	return strings.Join(names, ", ")
}

// spoken says whether a body's type may be one that the handlers of methods read. Of
// others they say no word.
func spoken(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && strings.HasPrefix(kind, "application/") && kind != "application/x-www-form-urlencoded"
}

// shown lets those in who may see a page for people. A browser cannot send a bearer
// token of its own accord, but asks for a name and a password: the password is then the
// token, and the name is not looked at. RPCs do not take that: a browser sends it along
// wherever it is led to.
func (s *Server) shown(next http.Handler, may func(identity) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := s.callers.viewer(r)
		code := http.StatusUnauthorized
		switch {
		case err != nil:
		case s.callers.open && !local(r.Host):
			// A name of somebody's that was made to lead here would let his page read ours.
			code, err = http.StatusForbidden, errNotLocal
		case !may(who):
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
