// Package purge is phase two of the main job: it deletes from MySQL what is
// committed, verified, past its lag and not held, and nothing else.
//
// Plan reads and decides, without a side effect; Execute does what a plan lists,
// once. Nothing is deleted without a [manifest.PurgeGrant], which only the manifest
// can make, nor without the rows having, under a lock, the fingerprint that was
// archived and verified, nor while an object of the copy or a message of it in
// ClickHouse is missing.
//
//	verified --claim, grant--> purging --every row proven equal, deleted--> purged
//	                              |
//	                              |-- a difference (drift) --> pending, to be copied again
//	                              '-- stopped, locked, throttled, held --> verified; what was deleted is remembered
//
// # Strategies
//
// By rows: chunk by chunk, each in one transaction that locks the rows, compares
// them and deletes them. The manifest hears of each delete before and after it.
//
// By partition: the partition is exchanged with an empty staging table, whose name
// the manifest knows before the exchange; the now isolated rows are compared; equal,
// the staging table is dropped; else its rows are put back. Rows that arrive in the
// emptied partition meanwhile are late rows: the next archive run finds them.
//
// # What a crash leaves
//
// The next run takes up a slice in state purging when its lease has run out.
//
//	by rows       chunk "deleting", its range empty           the delete was committed
//	              chunk "deleting", its range equals the copy the delete was not committed: again
//	              chunk "deleting", anything else             drift; the next generation keeps both
//	by partition  staging table missing, chunks "present"     never made, or put back: start anew
//	              staging table there, chunks "present"       equal and the partition empty: go on; else put back, start anew
//	              staging table there, chunks "deleting"      compared, not dropped: compare again
//	              staging table missing, chunks "deleting"    dropped: record it
//
// # Words
//
//   - job: what is done as one: a slice by rows, or a partition with its slices.
//   - grant: the manifest's leave to delete a slice's rows.
//   - drift: any difference between the warm rows or columns and the copy.
//   - isolated: exchanged out of the table into the staging table.
package purge
