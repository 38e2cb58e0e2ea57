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
// What was deleted is what the manifest or the purge marks in the bucket know of: the
// manifest may have been set back to a backup. A purge whose mark does not say where it
// stopped may have deleted any row.
//
// Statuses that were put on messages after they were archived are folded into the next
// generation: its commit record has those of all its messages, and the status column of
// carried rows reads what they say. Rows of warm are archived as warm has them.
//
// # Sharing work
//
// Any number of runs share the slices by leases. The queue has a line for each server; a
// slot of the server is held while a slice is scanned, and taken before the slice is
// claimed, so that no slice waits for a slot. A run may have a Limit: when its time is up
// nothing is begun, and what runs ends at its next chunk, block or object.
//
// A copy that was interrupted is made again from its scan. Its scan must be repeated: rows
// may have changed. What it had stored could be taken over where the rows are the same, and
// is not:
//
//   - An attempt's name is in its objects' keys and footers, in its commit record and in
//     its ClickHouse rows, and is one lease's. Going on under the same name, the former
//     worker, which may only have been paused, could still put objects of that name, and
//     insert rows, beside its successor: "no try ever overwrites another" would depend on
//     timing.
//   - A copy of several attempts would need that verification, rebuild, patrol and readers
//     take objects of other attempts than the record's for the copy's, which today is
//     how a foreign object is found.
//   - Objects that no commit names are orphans, which the patrol may report and their owner
//     remove, while they would be waiting to be used.
//
// So that a slice too large for the time that runs have does not begin again for ever, it is
// begun first by the next run; after maxInterrupted times only by a run that has more time
// than the longest try took; and is named otherwise, with what to do.
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
