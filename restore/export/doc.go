// Package export writes selected rows of the cold tier as NDJSON, CSV or Parquet.
//
// # Rows
//
// The rows and their order are those of package selection, and so are its proofs: a
// slice that was read whole has the fingerprint of its commit, or the export fails.
// What the bucket and ClickHouse do not give is left out and named by an error that is
// selection.ErrLost. All rows have the same columns: those of all selected
// generations, the newest's first. Where a generation lacks one it is NULL.
//
// Texts are the archive's canonical ones. A column whose type changed over time is as
// wide as its widest; where its kind changed, it is text, or bytes.
//
// # Statuses
//
// The table's status column reads as it does with the status that was put last; with
// Selection.Until, with the status of then. Beside it a row tells the status itself.
// What readers may not see of a recalled or deleted message (restore.Row.Withheld) is
// NULL unless Options.Withheld asks for it. It is kept back by what is known now: an
// instant before the recall does not bring the body back.
//
// # Formats
//
//   - NDJSON: an object a line. Values are strings, numbers too, and NULL is null. A
//     value that is not UTF-8 is in base64, and its column is listed in "_base64".
//     "_status" is {"kind", "at"} where there is one, "_withheld" the columns that are
//     kept back.
//   - CSV: RFC 4180 with a header, lines end in LF. NULL is \N. A value of backslashes
//     and one N has one backslash more than it was archived with, so \\N is the text
//     \N. A column of bytes is in base64, all of it, and its header is NAME:base64.
//     Then come _status, _status_at and _withheld (true or false).
//   - Parquet: typed columns, all optional, compressed with zstd; then _status,
//     _status_at and _withheld. As in the archive's own files _exact is a JSON object
//     of the texts that their typed columns cannot hold, such as 0000-00-00.
//
// Where the table has a column of such a name, the export's own gets one more _ before
// it.
//
// # Memory
//
// It takes what selection.Config allows, a row group, and of a Parquet file what its
// footer says of the row groups before.
package export
