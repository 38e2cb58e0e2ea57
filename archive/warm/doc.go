// Package warm is the adapter to the message tables in MySQL and MariaDB: it finds
// them, reads them in chunks, computes fingerprints in the server, and takes rows
// out, chunk by chunk or by whole partitions.
//
// # Texts
//
// Each connection is pinned (Config.session): time zone +00:00, utf8mb4, a fixed
// sql_mode, autocommit. Each column type has one SQL expression that gives a value's
// canonical text (describe). A scan selects it and the fingerprint hashes it, so that
// both speak of the same bytes. A type that has no such expression is refused.
//
// # Why a delete is in REPEATABLE READ
//
// DeleteChunk reads a chunk's rows with FOR UPDATE, compares their fingerprint with
// that of the verified copy, and deletes them by the same range. Between the two
// nothing may change. In REPEATABLE READ a locking read over a range of a unique key
// locks the rows and the gaps between, before and behind them, so that an insert
// waits until the transaction ends. In READ COMMITTED it locks the rows alone: a row
// inserted after the fingerprint would be deleted without a copy. So the level is set
// for each such transaction, whatever the server's default is.
//
// A row that another transaction has inserted or changed and not committed is locked
// by that one: the locking read waits for it, for LockWait, then gives up (ErrLocked).
// If it commits in time, the read sees the row and the fingerprint differs (ErrDrift).
//
// The locking read also holds the table's definition, so that the columns, which are
// compared after it, stay what they are until the commit.
//
// # Partitions
//
// An exchange swaps a partition with an empty staging table in one step. It needs
// an exclusive metadata lock: while it waits for a reader, every new query on the
// table waits behind it. So it waits for ExchangeWait only.
//
//	CreateStaging      staging: empty            table: all rows
//	Exchange           staging: the partition's  table: the others, and late rows
//	DropStaging        -                         table: the others, and late rows
//	ReturnStaging      -                         table: all rows, and late rows
//
// DropStaging compares under the staging table's own lock. ReturnStaging can be begun
// at any point above, again and again: it moves rows in transactions, and drops
// the staging table when it is empty.
//
// # Pages
//
// Page, Messages and Holding read for somebody who waits. They have connections of their own, so many at a
// time, and return when their context ends: what still runs in the server is killed
// in the background, and ends by its own time limit soon after the context's deadline. Each is one statement (Holding: one
// for each database) and walks an index that begins with the conversation ID and the
// cursor (PageIndex), so that its cost depends on what it returns alone; in a partitioned
// table also on the number of partitions, each of which has an index of its own.
//
// A conversation ID is compared byte by byte, whatever the column's collation takes for the same. Where rows of
// several conversations are the same for the collation, a page's cost depends on all of these.
//
// A definition that is older than a minute is read anew before a page; the old one does until
// then. A statement that fails since a column or an index has gone has it read anew at once.
//
// # Outcomes
//
// A statement that the server answered with an error had no effect, except for
// COMMIT. One that was cut off (lost connection, timeout, ended context) goes on in
// the server: it is killed there by KILL QUERY, and its outcome is ErrUnclear where it
// matters. Errors of a result set come after its last row, so a chunk counts only
// when its result was read to a clean end.
//
// # Words
//
//   - chunk: the rows of a run of message IDs, read or deleted by one statement.
//   - staging table: an unpartitioned table with the warm table's columns and keys, which holds an
//     exchanged partition's rows.
//   - late rows: rows that were written to a range that was already copied or emptied.
//   - pinned: said of a session whose settings do not depend on the server's.
package warm
