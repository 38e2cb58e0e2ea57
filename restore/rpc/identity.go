package rpc

import (
	"context"
	"fmt"
)

// Scopes name what a caller may do.
const (
	ScopeRead   = "history:read"  // all methods but PutStatus
	ScopeWrite  = "history:write" // PutStatus
	ScopeStatus = "status:read"   // the page of what is where
)

// identity is a caller and what it is for. Its zero value may do nothing.
type identity struct {
	Name string // who, for the audit log
	How  string // token, jwt, certificate or none
	limits
	read, write, see bool
	scopes           bool // what it may do was named
}

// limits are what a token is for.
type limits struct {
	tenant        *string         // nil: every tenant's
	conversations map[string]bool // nil: every conversation
}

// anyone is the caller of a server without authentication.
func anyone() identity { return identity{Name: "", How: "none", read: true, write: true, see: true} }

// scoped gives the rights that the scopes name; a caller that carries none may do
// everything, which not to be given is what scopes are for.
func (i identity) scoped(scopes []string, carries bool) identity {
	i.read, i.write, i.see, i.scopes = !carries, !carries, !carries, carries
	for _, s := range scopes {
		switch s {
		case ScopeRead:
			i.read = true
		case ScopeWrite:
			i.write = true
		case ScopeStatus:
			i.see = true
		}
	}
	return i
}

// maySee says whether the caller may see the state of the whole. One that is limited to a
// tenant or to conversations may only if it is named.
func (i identity) maySee() bool {
	return i.see && (i.scopes || i.tenant == nil && i.conversations == nil)
}

// mayRead says whether the caller may read a conversation for a tenant. The tenant is
// the one to count for.
func (i identity) mayRead(tenant string, conversation []byte) (string, error) {
	if !i.read {
		return "", fmt.Errorf("%w: its token has scopes, and %s is not among them", errDenied, ScopeRead)
	}
	return i.within(tenant, conversation)
}

// mayLocate is mayRead for what is answered without looking at a message, whose
// tenant is therefore not known: a caller that is limited to a tenant needs to have
// the conversation in its token.
func (i identity) mayLocate(tenant string, conversation []byte) (string, error) {
	t, err := i.mayRead(tenant, conversation)
	return t, i.listed(conversation, err)
}

// mayWrite is mayLocate for a put.
func (i identity) mayWrite(tenant string, conversation []byte) (string, error) {
	if !i.write {
		return "", fmt.Errorf("%w: its token has scopes, and %s is not among them", errDenied, ScopeWrite)
	}
	t, err := i.within(tenant, conversation)
	return t, i.listed(conversation, err)
}

func (i identity) listed(conversation []byte, err error) error {
	if err != nil || i.tenant == nil || i.conversations[string(conversation)] {
		return err
	}
	return fmt.Errorf("%w: its token is for one tenant, and which tenant's this conversation is cannot be seen here: the token has to list the conversation", errDenied)
}

func (i identity) within(tenant string, conversation []byte) (string, error) {
	if i.tenant != nil {
		if tenant != "" && tenant != *i.tenant {
			return "", fmt.Errorf("%w: its token is for another tenant", errDenied)
		}
		tenant = *i.tenant
	}
	if i.conversations != nil && !i.conversations[string(conversation)] {
		return "", fmt.Errorf("%w: its token is for other conversations", errDenied)
	}
	return tenant, nil
}

// callKey is where a request's context has its call.
type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callOf is the request's call; of one that came past the middleware, a caller that may
// do nothing.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}
