// Package rpc serves restore's pages by Connect: gRPC, gRPC-Web and HTTP/JSON on one
// port, with reflection, health and metrics. The methods and their fields are
// documented in coldtier/v1/history.proto; `make generate` makes the code of it.
//
// # By curl
//
//	at=http://127.0.0.1:8080/coldtier.v1.ColdHistory
//	json='Content-Type: application/json'
//	curl $at/FetchRange  -H "$json" -d '{"conversation": "9007199254740993", "limit": 20}'                   the newest page
//	curl $at/FetchRange  -H "$json" -d '{"conversation": "9007199254740993", "before": "4711"}'              the one before a cursor
//	curl $at/FetchRange  -H "$json" -d '{"conversation": "9007199254740993", "after": ""}'                   the oldest
//	curl $at/FetchRange  -H "$json" -d '{"conversation": "9007199254740993", "around_message_id": "837851385029464064", "budget": "0.3s"}'
//	curl $at/GetMessages -H "$json" -d '{"conversation": "9007199254740993", "message_ids": ["837851385029464064"]}'
//	curl $at/GetBoundary -H "$json" -d '{"conversations": ["9007199254740993", "9007199254740994"]}'
//	curl $at/PutStatus   -H "$json" -d '{"conversation": "9007199254740993", "message_id": "837851385029464064", "kind": "STATUS_KIND_RECALLED"}'
//
// With a token: -H "Authorization: Bearer $(cat token)". With a certificate: --cert
// client.pem --key client.key --cacert server-ca.pem. With a time limit of the call
// beside the page's budget: -H 'Connect-Timeout-Ms: 500'. The answer comes before it.
//
// # Who may call
//
// Without fetch.auth and fetch.tls.client_ca anybody may, and the server listens on the
// loopback interface alone. Otherwise a caller shows one of:
//
//   - a certificate that fetch.tls.client_ca signed, for client authentication; where
//     fetch.auth.clients lists names, one of its URI names, its common name or one of its
//     DNS names is among them. It may do everything.
//   - a static token of fetch.auth.tokens: a file with a JSON object on each line, such as
//     {"sha256": "9f86...", "name": "history", "tenant": "acme", "conversations": ["17"], "scopes": ["history:read"]}.
//     "token" has the token itself instead of its SHA-256; tenant, conversations and scopes
//     may be left out. Lines that begin with # are nothing.
//   - a JSON web token that fetch.auth.jwt.issuer signed with an asymmetric key of
//     fetch.auth.jwt.jwks (a file or an https URL), for fetch.auth.jwt.audience, with exp.
//     Claims that limit it: tenant (a text), conversations (a list of texts), scope (a text
//     with blanks between, or a list) and roles (a list).
//
// Where there are both, the token counts. Its limits:
//
//   - tenant: only messages of this tenant, by the column with the role tenant_id, are
//     given. GetBoundary and PutStatus look at no message, so they also need the
//     conversation in the token's list.
//   - conversations: only these. IDs that are not UTF-8 text cannot be listed.
//   - scopes (scope and roles together): history:read is for all methods but PutStatus,
//     history:write for PutStatus, status:read for the page below /ui. A token that carries
//     any scope, or an empty list of them, may do only what they name; one that carries none
//     may do all, but does not see the page if it is limited to a tenant or conversations.
//
// A browser that asks for the page is asked for a name and a password: the password is the
// token, the name is not looked at. RPCs do not take tokens in that form.
//
// What should be a limit and cannot be read (a null, a number) refuses the token. Files
// are read again within a second when they change; when they then cannot be read, what
// they said before goes on to count. An issuer's keys are fetched every 15 minutes, and
// for an unknown key at most every 30 seconds.
//
// /healthz, /readyz, /metrics and grpc.health.v1 ask for nothing, so that probes work;
// they say nothing of messages, conversations and tenants. Reflection wants any caller.
//
// # The audit log
//
// Each line is a JSON object for one read or put: time, who, method, tenant,
// conversations, direction, anchor, message IDs, how many rows were given and which
// cursors they span, state, code. A read's line is written before its rows are given out,
// of a stream one for each part; a put has one before it is done (code "begun") and one
// after. When a line cannot be written the answer is unavailable and nothing is given: a log
// that may miss reads is none. A put that was done and whose second line failed is unavailable
// too; putting it again changes nothing. Callers that are not let in are not in it, but in
// the metrics.
//
// # Words
//
//   - call: one request on its way through the server.
//   - identity: a caller and what its token is for.
//   - incident: a number that the caller is given instead of an internal error's text, and
//     under which the server's log has it.
//   - reserve: what the caller's deadline is brought forward by.
package rpc
