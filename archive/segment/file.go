package segment

import "github.com/coldtier/coldtier/archive/message"

// Extent is a run of bytes of a file with the first 16 bytes of its SHA-256.
type Extent struct {
	Offset int64    `json:"offset"`
	Length int64    `json:"length"`
	Sum    [16]byte `json:"sum"`
}

// RowGroup is one row group: what a reader gets with one ranged GET.
type RowGroup struct {
	Extent
	Rows      int64  `json:"rows"`
	MinCursor uint64 `json:"min_cursor"` // over all its rows
	MaxCursor uint64 `json:"max_cursor"`
}

// File describes a finished Parquet file well enough to read any part of it with
// one ranged GET and to know each part undamaged before it is parsed.
type File struct {
	Version   int        `json:"version"` // of the format, FormatVersion when written
	Size      int64      `json:"size"`
	SHA256    [32]byte   `json:"sha256"` // of all bytes
	Rows      int64      `json:"rows"`
	Footer    Extent     `json:"footer"` // from the end of the last row group to the end of the file: page indexes, footer, magic
	RowGroups []RowGroup `json:"row_groups"`
}

// Span is one conversation's rows in a file: a segment.
type Span struct {
	Conversation []byte              `json:"conversation"` // canonical text of the conversation ID
	FirstRow     int64               `json:"first_row"`    // in the file
	Rows         int64               `json:"rows"`
	MinCursor    uint64              `json:"min_cursor"`
	MaxCursor    uint64              `json:"max_cursor"`
	FirstGroup   int                 `json:"first_group"` // index of the first row group that has rows of it
	LastGroup    int                 `json:"last_group"`  // index of the last, inclusive
	Fingerprint  message.Fingerprint `json:"fingerprint"`
}
