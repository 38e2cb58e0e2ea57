package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore"
	v1 "github.com/coldtier/coldtier/restore/rpc/coldtier/v1"
	"github.com/coldtier/coldtier/restore/rpc/coldtier/v1/coldtierv1connect"
)

// remote is a server that is asked, and who asks.
type remote struct{ url, tokenFile, ca, cert, key string }

func (s *remote) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.url, "server", "", "ask the server at `URL` instead of the stores")
	f.StringVar(&s.tokenFile, "token-file", "", "`FILE` with the token to show to the server")
	f.StringVar(&s.ca, "ca", "", "`FILE` (PEM) with the authority of the server's certificate; the system's otherwise")
	f.StringVar(&s.cert, "cert", "", "`FILE` (PEM) with the certificate to show to the server")
	f.StringVar(&s.key, "key", "", "`FILE` (PEM) with its key")
}

func (s *remote) check(changed func(string) bool) error {
	if s.url == "" {
		for _, name := range []string{"token-file", "ca", "cert", "key"} {
			if changed(name) {
				return usage("--%s: only with --server", name)
			}
		}
		if changed("server") {
			return usage("--server: want a URL such as https://history:8080")
		}
		return nil
	}
	u, err := url.Parse(s.url)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return usage("--server: want a URL such as https://history:8080")
	case u.Scheme == "http" && (s.ca != "" || s.cert != "" || s.key != ""):
		return usage("--ca, --cert and --key: only with an https URL")
	case (s.cert == "") != (s.key == ""):
		return usage("want both --cert and --key, or neither")
	}
	return nil
}

// remoteTimeout is longer than any server's budget for a page.
const remoteTimeout = 90 * time.Second

func (a *app) fetchRemote(ctx context.Context, s remote, q restore.Query) (result, error) {
	client, err := s.client(a)
	if err != nil {
		return nil, mark(err, errSetup)
	}
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	conversation := string(q.Conversation)
	req := &v1.FetchRangeRequest{Tenant: q.Tenant, Conversation: &conversation, Limit: uint32(q.Limit)} //nolint:gosec // at most maxLimit
	switch {
	case q.Before != nil:
		req.Anchor = &v1.FetchRangeRequest_Before{Before: strconv.FormatUint(*q.Before, 10)}
	case q.After != nil:
		req.Anchor = &v1.FetchRangeRequest_After{After: strconv.FormatUint(*q.After, 10)}
	case q.Oldest:
		req.Anchor = &v1.FetchRangeRequest_After{}
	case q.Around != nil:
		req.Anchor = &v1.FetchRangeRequest_AroundMessageId{AroundMessageId: *q.Around}
	}
	resp, err := client.FetchRange(ctx, req)
	if err != nil {
		return nil, remoteError(s.url, s.hint(err))
	}
	r, err := remotePage(conversation, resp)
	if err != nil {
		return nil, fmt.Errorf("answer of %s: %w: are server and tool of the same version?", s.url, err)
	}
	return pageIs(r)
}

// hint adds the flag that was forgotten, where an error tells of one.
func (s *remote) hint(err error) error {
	var unknown x509.UnknownAuthorityError
	switch code := connect.CodeOf(err); {
	case errors.As(err, &unknown) && s.ca == "":
		return fmt.Errorf("%w: name the certificate's authority with --ca", err)
	case code == connect.CodeUnauthenticated && s.tokenFile == "" && s.cert == "":
		return fmt.Errorf("%w: show one with --token-file, or --cert and --key", err)
	case strings.HasPrefix(s.url, "http:") && code == connect.CodeInternal && strings.Contains(err.Error(), "400 Bad Request"):
		return fmt.Errorf("%w: a server with TLS answers so: try an https URL", err)
	}
	return err
}

// remoteError tells a bad command line and what is wrong with the surroundings from a
// failure of the server.
func remoteError(where string, err error) error {
	err = fmt.Errorf("%s: %w", where, err)
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument:
		return mark(err, errUsage)
	case connect.CodePermissionDenied:
		return mark(err, errUnsafe)
	case connect.CodeUnauthenticated, connect.CodeUnavailable, connect.CodeUnimplemented:
		return mark(err, errSetup)
	}
	return err
}

// client makes a client that shows what it was given.
func (s *remote) client(a *app) (coldtierv1connect.ColdHistoryClient, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if s.ca != "" {
		b, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("--ca: no certificate in %s", s.ca)
		}
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	var options []connect.ClientOption
	if s.tokenFile != "" {
		b, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		token := strings.TrimSpace(string(b))
		if token == "" || strings.ContainsAny(token, " \t\r\n") {
			return nil, fmt.Errorf("--token-file: %s does not hold one token", s.tokenFile)
		}
		if a.redactor == nil { // no configuration was read
			a.redactor = &config.Redactor{}
		}
		a.redactor.Add(token)
		if u, err := url.Parse(s.url); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
			a.log.Warn("the token crosses the network in the clear: use an https URL", "server", s.url)
		}
		options = append(options, connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
				req.Header().Set("Authorization", "Bearer "+token)
				return next(ctx, req)
			}
		})))
	}
	// A redirect would carry the token elsewhere.
	c := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return coldtierv1connect.NewColdHistoryClient(c, strings.TrimSuffix(s.url, "/"), options...), nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func remotePage(conversation string, p *v1.FetchRangeResponse) (*pageResult, error) {
	r := &pageResult{
		Conversation: conversation, State: restore.State(word(p.GetState(), "STATE_")), HasMore: p.GetHasMore(), HasOlder: p.GetHasOlder(), Limit: int(p.GetLimit()), LimitCut: p.GetLimitCut(),
		Messages: []messageResult{}, Missing: []missingResult{}, Requests: int(p.GetServed().GetBucketRequests()), Queries: int(p.GetServed().GetClickhouseQueries()),
	}
	r.RetryAfter = waitOf(r.State, p.GetRetryAfter().AsDuration())
	for _, c := range []struct {
		text string
		into **decimal
	}{{p.GetMinCursor(), &r.MinCursor}, {p.GetMaxCursor(), &r.MaxCursor}, {p.GetNext(), &r.Next}} {
		if c.text == "" {
			continue
		}
		n, err := strconv.ParseUint(c.text, 10, 64)
		if err != nil {
			return nil, errors.New("a cursor that is no number")
		}
		*c.into = decimalOf(&n)
	}
	for _, m := range p.GetMissing() {
		r.Missing = append(r.Missing, missingResult{Day: m.GetDay(), Shard: m.GetShard(), MinCursor: decimal(m.GetMinCursor()), MaxCursor: decimal(m.GetMaxCursor()),
			Cause: restore.Cause(word(m.GetCause(), "CAUSE_")), Reason: m.GetReason()})
	}
	content := p.GetRoles()["content"]
	for _, m := range p.GetMessages() {
		x, err := remoteMessage(m)
		if err != nil {
			return nil, err
		}
		r.Messages = append(r.Messages, x)
		v, ok := m.GetColumns()[content]
		switch {
		case ok:
			r.content = append(r.content, contentText(bytesOf(v)))
		case m.GetStatus() != nil && len(m.GetWithheld()) > 0:
			r.content = append(r.content, withheldText(x.Status.Kind))
		default:
			r.content = append(r.content, "")
		}
	}
	return r, nil
}

func remoteMessage(m *v1.Message) (messageResult, error) {
	x := messageResult{MessageID: decimal(m.GetMessageId()), Cursor: decimal(m.GetCursor()), Values: map[string]*string{}, Withheld: m.GetWithheld()}
	switch m.GetStore() {
	case v1.Store_STORE_BUCKET:
		x.Store = restore.FromBucket
	case v1.Store_STORE_CLICKHOUSE:
		x.Store = restore.FromClickHouse
	case v1.Store_STORE_WARM:
		x.Store = restore.FromWarm
	}
	if s := m.GetStatus(); s != nil {
		x.Status = &putStatusResult{manifest.StatusKind(strings.ToLower(word(s.GetKind(), "STATUS_KIND_"))), s.Value, s.GetAt().AsTime()}
	}
	for name, v := range m.GetColumns() {
		if v.GetKind() == nil {
			return x, fmt.Errorf("column %s of message %d has a value of an unknown kind", name, m.GetMessageId())
		}
		x.put(name, bytesOf(v))
	}
	return x.sorted(), nil
}

// bytesOf is a value's bytes; nil is NULL.
func bytesOf(v *v1.Value) []byte {
	switch k := v.GetKind().(type) {
	case *v1.Value_Text:
		return []byte(k.Text)
	case *v1.Value_Bytes:
		return append([]byte{}, k.Bytes...)
	}
	return nil
}

// word is the name of a value of an enum without what it begins with.
func word(e interface{ String() string }, prefix string) string {
	return strings.TrimPrefix(e.String(), prefix)
}
