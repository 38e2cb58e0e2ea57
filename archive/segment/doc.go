// Package segment is coldtier's Parquet format: its writer and reader.
package segment
