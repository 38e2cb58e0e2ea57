// Package drill is the restore drill: it brings a part of the archive back, beside
// production, and proves that what came back is what was archived.
//
// # The steps
//
//	Plan   which slices, by the fraction, the seed, and what was not restored for a year
//	Run    manifest       everything the manifest names is in the bucket; the manifest, rebuilt of the bucket alone, equals it
//	       restore        the sample, by the code of coldtier restore, into scratch databases
//	       compare        scratch tables <-> commits <-> objects read whole <-> ClickHouse
//	       point in time  --until random minutes: exactly the rows up to them
//	       read           random pages by the code of coldtier serve, healthy and with faults, against restored rows
//	       measure        recovery, traffic, the recovery point, what it means for a shard and for all
//	       canary         planted messages
//
// Each step makes checks (package report). What is wrong with the archive fails a check,
// which names it, and the drill goes on; an error of Run says that the drill itself could
// not go on.
//
// # What it may touch
//
// It reads the manifest, the bucket and ClickHouse, and writes nothing but databases that
// package scratch made, which are dropped at the end, whatever the end was.
//
// # Words
//
//   - sample: the slices that are restored.
//   - truth: the restored rows, once they were found equal to the commit.
//   - independent: said of the read of the objects that shares neither plan nor reader
//     with the restore: whole objects, by segment.ReadAll, each with its SHA-256.
//   - covered: said of a slice that a drill restored and found equal in the last year.
package drill
