// Package rebuild makes the manifest and ClickHouse again out of the bucket alone.
//
// # What is in the bucket
//
//	manifest/owner=SOURCE.json                             whose bucket it is: the manifest's identity
//	manifest/day=D/shard=S.gN.parquet                      commit records: generations, chunks, objects, segments, folded statuses
//	manifest/day=D/shard=S.gN.purging, .stopped, .purged   how far purges went
//	manifest/holds/source=SOURCE/hold=N.json               holds
//	manifest/stops/source=SOURCE/stop=NAME.json            stops
//	manifest/rules/source=SOURCE/...                       revoked plans and the policy of approvals: a purge looks for them there itself
//	manifest/statuses/source=SOURCE/TIME-ID.ndjson         statuses that were put after archiving
//
// What is not, and begins anew: when slices were verified (so the lag), runs, leases, failures, and what was
// drilled or checked when.
//
// # Order
//
// The target says from the first write to the last that it is half rebuilt, and nothing
// else works on it. Each slice is one transaction. So a rebuild may end anywhere; the same
// command goes on where it was.
package rebuild
