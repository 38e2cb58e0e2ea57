// Package mirror puts into the bucket what otherwise the manifest alone would know, so
// that the bucket is enough to rebuild it: holds, stops, revoked plans and the policy of
// approvals, statuses of archived messages, and purges from before there were purge
// marks. The manifest is written first, and knows what is not mirrored yet; so whatever is
// cut off or refused is done by the next run.
//
// Statuses are put as objects of some at once, in lines of JSON; of each message the one
// that was put last counts, so that objects may be read in any order and twice. When there
// are many, the small ones are put together: first the new object, then the old ones go.
package mirror
