package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
)

// JWT says whose tokens are taken.
type JWT struct {
	Issuer, Audience string
	JWKS             string // the issuer's keys: a file, which is read again when it changes, or an https URL
}

const (
	jwtLeeway   = 30 * time.Second // between the clocks of the issuer and of this machine
	keysRefresh = 15 * time.Minute
	keysUnknown = 30 * time.Second // at most this often an unknown key makes the set be fetched
	keysTimeout = 2 * time.Second
	maxKeySet   = 1 << 20
)

// jwtMethods are the signatures that are taken: asymmetric ones alone. With a
// symmetric one among them, whoever knows the public key could sign.
func jwtMethods() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

// jwts checks JSON web tokens.
type jwts struct {
	parser *jwt.Parser
	keys   func(context.Context) jwt.Keyfunc
}

// newJWTs begins to read the keys; from a URL until ctx ends. That the URL does not
// answer is no error: it is asked again.
func newJWTs(ctx context.Context, c JWT, client *http.Client, now func() time.Time, log *slog.Logger) (*jwts, error) {
	j := &jwts{parser: jwt.NewParser(jwt.WithValidMethods(jwtMethods()), jwt.WithIssuer(c.Issuer), jwt.WithAudience(c.Audience),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(jwtLeeway), jwt.WithTimeFunc(now), jwt.WithStrictDecoding())}
	if !strings.Contains(c.JWKS, "://") {
		w, err := watch(now, log, func(contents [][]byte) (keyfunc.Keyfunc, error) { return parseKeys(contents[0]) }, c.JWKS)
		if err != nil {
			return nil, err
		}
		j.keys = func(ctx context.Context) jwt.Keyfunc { return w.get().KeyfuncCtx(ctx) }
		return j, nil
	}
	if !strings.HasPrefix(c.JWKS, "https://") {
		return nil, errors.New("the URL of the issuer's keys: want https, since whoever can change them on their way can make tokens")
	}
	fetched, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{c.JWKS}, keyfunc.Override{
		Client: keysClient(client), HTTPTimeout: keysTimeout, RefreshInterval: keysRefresh,
		RefreshUnknownKID: rate.NewLimiter(rate.Every(keysUnknown), 1), RateLimitWaitMax: keysTimeout, // it bounds the fetch too
		RefreshErrorHandlerFunc: func(string) func(context.Context, error) {
			return func(_ context.Context, err error) {
				log.Error("the issuer's keys cannot be fetched; those that are known go on to count", "error", err)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("issuer's keys: %w", err)
	}
	set, err := signatures(fetched)
	if err != nil {
		return nil, err
	}
	j.keys = set.KeyfuncCtx
	return j, nil
}

func parseKeys(b []byte) (keyfunc.Keyfunc, error) {
	k, err := keyfunc.NewJWKSetJSON(b)
	if err != nil {
		return nil, errors.New(`not a set of JSON web keys: want {"keys": [...]}`) // the error may quote a key
	}
	return signatures(k)
}

// signatures leaves out keys that are for encryption.
func signatures(k keyfunc.Keyfunc) (keyfunc.Keyfunc, error) {
	o := keyfunc.Options{Storage: k.Storage()}
	o.UseWhitelist = append(o.UseWhitelist, "sig", "")
	return keyfunc.New(o)
}

// keysClient neither leaves https nor reads without end.
func keysClient(c *http.Client) *http.Client {
	if c == nil {
		c = &http.Client{}
	}
	bounded := *c
	next := c.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	bounded.Transport = boundedTransport{next}
	bounded.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != "https" || len(via) > 3 {
			return errors.New("the issuer's keys are moved to an address without https, or too often")
		}
		return nil
	}
	return &bounded
}

type boundedTransport struct{ next http.RoundTripper }

// RoundTrip ends a body at maxKeySet.
func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxKeySet)
	}
	return resp, err
}

// claims are those of a token. What limits it is read as it stands: a null or a value
// of another type must not be taken for no limit.
type claims struct {
	jwt.RegisteredClaims
	ClientID      string          `json:"client_id"`
	Tenant        json.RawMessage `json:"tenant"`
	Conversations json.RawMessage `json:"conversations"`
	Scope         json.RawMessage `json:"scope"`
	Roles         json.RawMessage `json:"roles"`
}

// check gives the caller of a token. Its errors may be told to the caller.
func (j *jwts) check(ctx context.Context, token string) (identity, error) {
	// A caller that gives up must not take away the one fetch of the keys there is for a while.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
	defer cancel()
	var c claims
	if _, err := j.parser.ParseWithClaims(token, &c, j.keys(ctx)); err != nil {
		if errors.Is(err, jwt.ErrTokenExpired) {
			return identity{}, refused{errors.New("the token has expired"), err}
		}
		return identity{}, refused{errInvalidToken, err}
	}
	who, err := c.identity()
	if err != nil {
		return identity{}, refused{err, err}
	}
	return who, nil
}

func (c *claims) identity() (identity, error) {
	who := identity{Name: c.Subject, How: "jwt"}
	if who.Name == "" {
		who.Name = c.ClientID
	}
	if who.Name == "" {
		return identity{}, errors.New("the token names nobody: want the claim sub or client_id")
	}
	if c.Tenant != nil {
		var err error
		if who.tenant, err = tenantOf(c.Tenant); err != nil {
			return identity{}, fmt.Errorf("the token's claim %w", err)
		}
	}
	if c.Conversations != nil {
		list, err := texts(c.Conversations)
		if err != nil {
			return identity{}, errors.New("the token's claim conversations: want a list of texts")
		}
		who.conversations = setOf(list)
	}
	var scopes []string
	for name, raw := range map[string]json.RawMessage{"scope": c.Scope, "roles": c.Roles} {
		if raw == nil {
			continue
		}
		var spaced string
		list, err := texts(raw)
		if err != nil && name == "scope" && string(raw) != "null" && json.Unmarshal(raw, &spaced) == nil {
			list, err = strings.Fields(spaced), nil
		}
		if err != nil {
			return identity{}, fmt.Errorf("the token's claim %s: want a list of texts, or for scope a text", name)
		}
		scopes = append(scopes, list...)
	}
	return who.scoped(scopes, c.Scope != nil || c.Roles != nil), nil
}

func tenantOf(raw json.RawMessage) (*string, error) {
	var t *string
	if json.Unmarshal(raw, &t) != nil || t == nil || *t == "" {
		return nil, errors.New("tenant: want a text that is not empty")
	}
	return t, nil
}

// texts reads a list of texts, none of them null.
func texts(raw json.RawMessage) ([]string, error) {
	var list []*string
	if err := json.Unmarshal(raw, &list); err != nil || list == nil {
		return nil, errors.New("not a list")
	}
	out := make([]string, len(list))
	for i, s := range list {
		if s == nil {
			return nil, errors.New("a null in the list")
		}
		out[i] = *s
	}
	return out, nil
}
