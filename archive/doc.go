// Package archive copies slices of warm tables into the cold tier and verifies
// the copies.
//
// Archiver.Plan lists what is to be done and changes nothing; Archiver.Run does
// it. A copy is made in this order:
//
//	scan      rows of the slice, in chunks, by several connections; each chunk's fingerprint
//	sort      by conversation, cursor and message ID, in bounded memory (runs spilled to disk, merged)
//	store     one Parquet object for each conversation; the same rows into ClickHouse
//	record    the bucket's commit record, put only if absent
//	commit    one transaction in the manifest
//	verify    every object and every ClickHouse row read back and compared with the scan's fingerprints
//
// Only the last makes the generation the one that serves reads, and starts the lag
// after which package purge may delete the warm rows. What a crash leaves at each
// boundary stands at copyAndCommit.
//
// # What the next generation holds
//
// A slice whose warm rows changed after the copy is copied again as its next
// generation. Where the purge had begun, warm no longer has all rows, so the next
// generation takes rows of the former one too:
//
//	chunk of the former generation       rows of the next generation in its range
//	untouched                            what warm has
//	deleted, or with an unknown outcome  the former rows and what warm has; warm wins where both have an ID
//	holds rows carried before            the same
//	untouched, but warm is empty there   the former rows: a whole chunk does not vanish by its users' doing
//
// # Words
//
//   - attempt: one try to make a copy. Its name is in its objects' keys and its
//     ClickHouse rows, so that no try ever overwrites another.
//   - adopt: to commit the attempt of a worker that died between its commit record
//     and the manifest's transaction.
//   - owner mark: the object that says which manifest the copies of a source under the
//     bucket's prefix belong to. It is made once and never replaced; a copy of the
//     manifest has the same identity, so of a manifest and its copy only one may run.
//   - carried: rows of a generation that were taken from the former one.
package archive
