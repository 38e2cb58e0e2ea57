// Package segment is coldtier's Parquet format: its writer and its reader.
//
// A file holds messages in message.Compare order (conversation, cursor, message
// ID) and is plain Parquet: DuckDB and ClickHouse read it with the
// right types. What it has beyond Parquet is said of it elsewhere, by File and
// Span in the manifest: where each row group and the footer lie, with a checksum
// of each, so that nothing is parsed before it is known to be undamaged.
//
// # Words
//
//   - row group: a run of rows whose bytes lie together; what a reader gets with
//     one ranged read. About 256 KiB compressed (Options.RowGroupBytes).
//   - column chunk: one column of one row group.
//   - page: a piece of a column chunk. The pages of all columns of a row group end
//     at the same rows.
//   - extent: a run of a file's bytes with the first 16 bytes of its SHA-256.
//   - span: one conversation's rows in a file.
//   - bounds: the lowest and highest value of a page or column chunk.
//   - exact text: the canonical text of a value that its typed column cannot hold.
//
// # Layout, format version 1
//
//	"PAR1" | row group 0 | row group 1 | … | column indexes | offset indexes | footer | length | "PAR1"
//	        \ extent     / \ extent   /    \_________________________ extent ________________________/
//
// The extents touch: consecutive row groups are one ranged read. Within a row group
// each column chunk is a dictionary page, if it has one, and data pages of version
// 2; the chunks follow each other in the schema's order without gaps, the _exact
// column last. So a row group can be decoded by its bytes, its number of rows and
// the schema alone; Open does so, without the footer.
//
// Row groups hold at most 65,536 rows and, beyond one row, 16 MiB uncompressed.
// Their size doubles after each 4,096 of them, so that Parquet's 32,767 are far; a
// file that would have more is refused, as is a value of more than 1 GiB.
//
// # Types
//
//	message.Kind          Parquet
//	Int, Uint (≤ 32)      INT32, INT(8|16|32, signed)
//	Int, Uint (64)        INT64, INT(64, signed)
//	Bit                   INT64, INT(64, unsigned)
//	Decimal (≤ 9 digits)  INT32, DECIMAL
//	Decimal (≤ 18)        INT64, DECIMAL
//	Decimal (≤ 38)        FIXED_LEN_BYTE_ARRAY, DECIMAL
//	Decimal (more)        BYTE_ARRAY, STRING: the canonical text
//	Float, Double         FLOAT, DOUBLE
//	Date                  INT32, DATE
//	DateTime              INT64, TIMESTAMP(not adjusted to UTC), milliseconds up to scale 3, else microseconds
//	Timestamp             INT64, TIMESTAMP(adjusted to UTC), the same units
//	Time                  INT32 or INT64, TIME(not adjusted), the same units
//	Year                  INT32, INT(16, unsigned)
//	Text                  BYTE_ARRAY, STRING
//	Bytes                 BYTE_ARRAY
//
// NULL is Parquet's NULL. A value without a typed form (0000-00-00, a TIME of more
// than a day or below zero) is NULL in its column, and a value whose typed form
// would not give the same text (0042 of a ZEROFILL column, 1.50 of a DOUBLE) is the
// nearest typed value; either way its canonical text stands in the optional column
// _exact, a JSON object {"column": "text", …}, which wins on reading. Therefore
// columns of Decimal, Date, DateTime, Timestamp, Time and Year are OPTIONAL even
// where the source says NOT NULL; the schema in the metadata knows.
//
// ClickHouse's DATE ends at 2299 and it refuses files with later ones unless it is
// told SETTINGS date_time_overflow_behavior = 'saturate'.
//
// # Encodings
//
// PLAIN, DELTA_BINARY_PACKED for IDs, cursors and times, RLE_DICTIONARY for columns
// whose values repeat (at most 32 KiB of values of at most 64 bytes each; never the
// content), chosen for each column chunk at its first page. ZSTD where it saves a
// sixteenth of a column's first page, else UNCOMPRESSED, for the whole column alike: the
// format allows each chunk its own codec, but parquet-go up to 0.32 reads all of a column's
// chunks by the codec of the first one. Files of before (also version 1) may mix them.
// Pages have Parquet's CRC too.
//
// # Bounds
//
// The message ID, the conversation ID and the sequence have bounds in statistics
// and page indexes, the creation time in statistics. No other column has: a body's
// bytes are in its data pages and nowhere else. A conversation ID of more than 64
// bytes has no bounds, which means that it may be anywhere; bounds are never cut.
// Columns without bounds have an offset index where they have several pages.
//
// # Metadata
//
//   - coldtier.segment: {"version": 1, "source", "shard", "day", "generation",
//     "attempt", "lo": "…", "hi": "…"}, see Meta.
//   - coldtier.schema: the columns and roles, see message.Schema.
//
// # Damage
//
// Every error of damaged bytes is ErrCorrupt. Should damaged bytes have the right
// checksum, decoding still ends with an error or with other values: lengths are
// compared with what is there before memory is taken by them.
package segment
