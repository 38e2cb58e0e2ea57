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
//     serves reads: the newest that was verified, or by the marks of its purge was in a
//     former life of the manifest.
//   - attempt: a try to make a copy, unique for ever; only committed attempts count.
//   - chunk: a run of message IDs of a generation; the unit of a guarded delete.
//   - object: a Parquet file of a generation. segment: one conversation's rows in it.
//   - lease: the right to work on a slice, until a time on the database's clock.
//     Its token grows with every claim and fences all writes.
//   - grant: the right to delete a slice's rows from warm (PurgeGrant).
//   - hold: a mark that forbids deleting until it is released.
//   - plan: a list of copies that a purge would go by, kept for somebody to look at
//     (SavedPlan). approval: that a second person allows it, by a database account other
//     than the maker's. Its slices are written again with it, so that what may be purged
//     is what the approver was shown.
//   - policy: a rule that holds for every process, whatever its configuration says.
//   - identity: what tells a manifest of a source from all others (Store.Identity).
//     owner mark: the object that holds it in the bucket (OwnerKey), so that two
//     manifests never take each other's commit records for their own.
//   - lag: how long verified rows stay in warm.
//   - purge begun: warm may no longer hold all rows of the slice's live generation. Set
//     with the first grant, or by a commit that carries rows, and never unset.
//   - mark: where a slice stands, for a reader of warm (Store.Marks). boundary: from
//     where on warm is complete, and what cold holds (Store.Boundaries).
//   - purge mark: an object beside a commit record that says that a purge of the
//     generation was begun, where it stopped, or that it ended (PurgeMark).
//   - mirrored: in the bucket as well, as it is now.
//   - status: what was put on a message after it was archived (Store.PutStatus), given
//     to readers beside the row. folded: in a generation's commit record.
//   - versions: numbers that change with what readers are given (Store.Versions).
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
