// Package selection chooses rows of the cold tier and reads them out of the bucket:
// for restores, exports and drills, which all see the same rows.
//
// # What is read
//
// The rows of the generations that serve reads, slice by slice, oldest day first.
// Rows go by their message ID: whether one lies on a day or before an instant is what
// its ID says, never a timestamp column. Within an object rows come in the order of
// message.Compare, objects in the order of the copy. Bytes are compared with their
// checksum before they are parsed, each segment with its fingerprint when it was read
// whole, and each slice that was read whole with that of its commit.
//
// # Statuses
//
// A row whose status was put after it was archived is given with that status in its
// status column, as the next generation would have it; everything else of the row, its
// body above all, is given as it was archived. With Selection.Until a status that was
// put later counts as not put. Of several statuses of one message the manifest knows
// the last alone, so between two of them the row reads as before the first.
//
// # Memory
//
// What is read ahead is bounded by Config.Memory, whatever the sizes of slices and
// objects. A slice's list of objects and segments is held whole.
//
// # Words
//
//   - whole: said of a slice of which all rows are selected.
//   - run: row groups of one object that lie together and are read with one request.
//   - damage: rows that the bucket does not give as they were archived.
package selection
