// Package patrol compares the manifest, the bucket and ClickHouse with each other, and
// mends what can be mended without risk.
//
// It reads no messages but canaries: objects are compared by the bucket's listing,
// commit records and purge marks by their bytes, ClickHouse by counts. What is inside
// the objects archive's Verifier reads.
//
// # Order
//
// A day is one listing of its commit records and one of its objects, each merged with the
// manifest in the order of keys, so memory does not grow with the number of objects.
// The manifest is read before the bucket: whatever it names was in the bucket by then,
// and nothing that a generation names is ever deleted. ClickHouse is counted before the
// manifest is read, so that rows that seem nobody's are not those of a commit since.
// What seems wrong is looked at again, and is in flight if a worker has the slice.
//
// # Mending
//
// Each effect is under the slice's lease and may be repeated. It never overwrites or
// deletes an object. Rows in ClickHouse go only if no generation in the manifest and no
// commit record in the bucket names their attempt, while the lease keeps any worker from
// committing one, and only if the bucket has objects of the attempt: those prove that it
// was made by this installation, and when.
//
// # Words
//
//   - orphan: an object, or a copy in ClickHouse, that no committed generation names.
//   - relied on: the live generation of a slice, and its newest.
//   - in flight: what differs because a worker is at it now.
package patrol
