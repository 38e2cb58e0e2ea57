// Package restore reads the cold tier: pages of a conversation's history.
//
// # Contiguity
//
// A page is contiguous from its anchor: it may be short, it never has a gap. The
// segments of neighbouring days may overlap in their cursors, so a row is given
// out only when no part that is not loaded could hold a row before it in page
// order. A part that cannot be read ends the page before it; the page then says
// PARTIAL and names what is missing.
//
// # Words
//
//   - part: the smallest thing that is read: one row group of a segment in the
//     bucket, or the rows of some segments in ClickHouse.
//   - anchor: where a page begins: before or after a cursor, or around a message
//     ID. Anchors are comparisons; the anchor itself need not exist.
package restore
