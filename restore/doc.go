// Package restore reads the cold tier: pages of a conversation's history, messages by
// their IDs, and where the boundary to the warm tables lies.
//
// # Contiguity
//
// A page is contiguous from its anchor: it may be short, it never has a gap. The
// segments of neighbouring days may overlap in their cursors, so a row is given
// out only when no part that is not loaded could hold a row before it in page
// order. A part that cannot be read ends the page before it; the page then says
// PARTIAL or PENDING and names what is missing.
//
// # The budget
//
//	request -> look-up in the manifest -> parts -> flights ─> ClickHouse ─┐
//	   │                                                └──> the bucket ──┴> cache
//	   └─ waits no longer than its budget; flights go on up to Config.FillAfter
//
// A request waits, and never works: all reads are flights that go on without it, are
// shared by all who need the same part, and leave what they read in a cache. So what
// comes too late for one page is there for the next. A job reads the parts that one
// request was the first to need: from ClickHouse with one statement, from the bucket
// beside it when that is slow, instead of it when that fails.
//
// # What is kept
//
// Objects and generations never change, so a part that was read stays true. Which
// generation is live, where the boundary is and which message was recalled do change:
// what is kept of those counts only if the manifest's counters (manifest.Versions), read
// after the request began, are those that were known before it was read.
//
// # The seam
//
// With Deps.Warm a page goes on into the warm tables; see seam for why that has
// neither a gap nor a double while rows move.
//
// # Words
//
//   - part: the smallest thing that is read: one row group of a segment, from the
//     bucket or from ClickHouse.
//   - flight: a part that is being read, for whoever waits for it.
//   - anchor: where a page begins: before or after a cursor, or around a message
//     ID. Anchors are comparisons; the anchor itself need not exist.
//   - edge: the nearest cursor that something not loaded may have. Rows nearer than
//     it are safe to give.
package restore
