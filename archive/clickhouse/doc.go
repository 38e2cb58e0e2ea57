// Package clickhouse keeps archived messages as rows in ClickHouse, beside their
// Parquet files: for pages of history, and for analysts.
//
// It works with servers from 18.16 on, over the native protocol or HTTP. What a
// server can do follows from its version, which Open asks for: compression codecs,
// LowCardinality, DateTime64, Date32 and wide decimals are used where they are known.
//
// # The table
//
// All rows of all warm tables are in one table, messages, which Migrate makes and
// widens but never narrows:
//
//	_day         Date     the slice's day
//	_shard       String   the warm table, "im_00.msg_content_00"
//	_generation  UInt32   the number of the slice's copy
//	_attempt     String   the try that made the copy; unique
//	_exact       String   '' or a JSON object, see below
//	...                   the warm tables' own columns, by name
//
//	ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(_day)
//	ORDER BY (_shard, conversation, cursor, message ID, _day, _generation, _attempt)
//
// So a copy is read from its shard's rows of the month, and a page from its conversation's.
//
// The types are those of the source where they are exact: integers by width, Decimal,
// Float32/64, Date or Date32, DateTime('UTC') or DateTime64(n, 'UTC'); BIT is UInt64, YEAR UInt16,
// TIME a number of microseconds (Int64), text and bytes String byte for byte, ENUM
// and SET LowCardinality(String). A server without DateTime64 (below 22.8) keeps DATETIME(n) and
// TIMESTAMP(n), n > 0, as String in the source's words; a decimal that is too wide is a String
// likewise. DATETIME has no zone: its clock reading is stored as if it were UTC.
//
// A column is Nullable where it is in the source, where only some of the warm tables
// have it, where it was added after the table was made (rows from before have no value
// there), and where values may have no typed form: date columns, for '0000-00-00' or a year
// outside the type's range. Such a value is NULL in its column and its exact text is in
// _exact: {"created": "0000-00-00"}. A number has its nearest value in the column instead.
// On reading, _exact wins, so that each value comes back as the very text it was.
//
// # Which rows count
//
// A row counts only if the manifest says that its copy does: a copy that was
// interrupted, one that failed its verification, or a former generation may be in the table
// until it is dropped. Nothing in the table itself says which copies are live.
// A row may also be there twice, when the answer to an insert was lost and its block
// was sent again; merges remove the repetition some time later.
//
// # For analysts
//
// Take the attempts of the live copies from the manifest's database, and say FINAL or count
// distinct message IDs. A conversation's rows are found fast when its shard is named too;
// without it, a little is read for every shard. A condition on _day spares the other months.
//
//	SELECT toDate(created), count() FROM cold.messages FINAL
//	WHERE _day >= '2026-05-01' AND _attempt IN (
//	    SELECT attempt FROM mysql('db:3306', 'coldtier', 'copies', 'reader', '...')
//	    WHERE (slice_id, generation) IN (
//	        SELECT id, live_generation FROM mysql('db:3306', 'coldtier', 'slices', 'reader', '...')))
//	GROUP BY toDate(created)
//
//	SELECT seq, content FROM cold.messages FINAL
//	WHERE _shard = 'im_00.msg_content_00' AND session_id = 7 AND _attempt IN (
//	    SELECT attempt FROM mysql('db:3306', 'coldtier', 'copies', 'reader', '...')
//	    WHERE (slice_id, generation) IN (
//	        SELECT id, live_generation FROM mysql('db:3306', 'coldtier', 'slices', 'reader', '...')))
//	ORDER BY seq
//
// The user reader needs SELECT on these two tables only. On a cluster, GLOBAL IN asks the
// manifest once instead of once per shard. Where ClickHouse cannot reach the manifest, ask it
// first, and write what it answers in the place of the SELECT after _attempt IN:
//
//	SELECT c.attempt FROM copies c JOIN slices s ON s.id = c.slice_id AND s.live_generation = c.generation
//
// A table that is filled from such a SELECT after every run serves as well, and is faster.
//
// # A cluster
//
// With Config.Cluster every statement that changes tables runs ON CLUSTER. The rows are in
// messages_local on each shard, a ReplicatedReplacingMergeTree at
// /clickhouse/tables/{shard}/DATABASE/messages_local, and messages is a Distributed table over
// them, sharded by conversation. The servers need the macros shard and replica, ZooKeeper or
// Keeper, and internal_replication set to true in the cluster's definition. Inserts return when
// the shards have the rows. Reads and inserts prefer each shard's first replica, so that
// a copy can be verified at once; servers below 20.3 need load_balancing = in_order in
// the user's profile for it.
//
// # Words
//
//   - copy: the rows of one try to archive a slice, named by a CopyID.
//   - block: the rows that one INSERT sends; taken or refused as a whole.
//   - canonical text: see package message.
//   - typed: a value as a number, a date or an instant instead of its text.
package clickhouse
