// Package rehydrate writes archived rows back into a MySQL or MariaDB database.
//
// # What it promises
//
// A row that is in the target is never changed: one that is there and equal is left,
// one that differs is a conflict, and both are kept. So a restore may be repeated: after
// a crash, a lost connection or a full disk the same command writes what is missing. It
// ends with the fingerprint of what is in the table, computed there, compared with what
// was read out of the archive; where that differs, row by row.
//
// # The flow
//
//	Plan: slices -> names of tables -> columns that fit -> (rows of columns that are missing)
//	Execute, slice by slice, oldest day first:
//	  hold (live tables) -> are all rows there? -> read -> sort by message ID -> write -> compare
//
// Rows come from the archive conversation by conversation and are gathered and sorted by
// message ID, as much as memory allows, since a table is filled fastest in the order of
// its primary key.
//
// # Words
//
//   - target: the database that is written into. sink: a table of it, for rows of one
//     archived schema.
//   - live: said of a warm table that the configuration names, in which the platform
//     works. Slices that are restored into one are held, so that the next purge leaves them.
//   - refused row: one that the table cannot hold as it was archived.
//   - extra rows: rows of the table among the restored message IDs that are not archived.
package rehydrate
