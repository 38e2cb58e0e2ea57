// Package manifest knows what is where: every slice, its state, its copies, and
// who may do what to it. It is a store on MySQL or MariaDB (Store) and the commit
// record of a copy in the bucket (EncodeRecord), from which the store can be built
// again. It speaks plain SQL: no foreign keys, triggers or server locks, so that it
// can move to Vitess, TiDB or a cluster.
//
// # Words
//
//   - slice: one warm table on one day, the message IDs [Lo, Hi). The unit of work
//     and of state.
//   - generation: the number of a slice's committed copy. Of several the live one
//     serves reads: the newest that was verified.
//   - attempt: a try to make a copy, unique for ever; only committed attempts count.
//   - chunk: a run of message IDs of a generation; the unit of a guarded delete.
//   - object: a Parquet file of a generation. segment: one conversation's rows in it.
//   - lease: the right to work on a slice, until a time on the database's clock.
//     Its token grows with every claim and fences all writes.
//   - grant: the right to delete a slice's rows from warm (PurgeGrant).
//   - hold: a mark that forbids deleting until it is released.
//   - identity: what tells a manifest of a source from all others (Store.Identity).
//     owner mark: the object that holds it in the bucket (OwnerKey), so that two
//     manifests never take each other's commit records for their own.
//   - lag: how long verified rows stay in warm.
//
// # States
//
//	           Claim           Commit              Verified             GrantPurge          Purged
//	pending ----------> copying -------> committed ---------> verified ----------> purging --------> purged
//	 ^ ^ ^    Fail,       |                  |                   | ^  GiveBack       |                 |
//	 | | +--- Release ----+      mismatch    |      drifted      | +-----------------+                 |
//	 | +--------------- Reopen --------------+-------------------+                   |                 |
//	 +------------------------------------- Drifted ---------------------------------+                 |
//	 +------------------------------------- ReopenLate ------------------------------------------------+
//
// While a slice is pending, copying or committed again, its live generation serves
// on. A change of state is one compare-and-set on state, lease token, lease time
// and generation. failed (with error and tries) and held are no states.
//
// # Chunks
//
//	present --> deleting --> deleted
//	   ^            |
//	   +------------+  only by the grant that began it, when it deleted nothing for certain
//
// deleting is stored before a delete begins and deleted after it was committed, so
// a chunk that is present was never touched. When a slice goes back to pending,
// its live generation keeps these states: the next one must hold the rows of every
// chunk that is deleting or deleted, and all carried rows.
package manifest
