// Package message holds what coldtier knows of a message: the columns of a
// message table and their roles (Schema), rows in columns (Batch), and the
// fingerprint that proves two sets of rows equal.
//
// # Canonical text
//
// A value is carried as its canonical text: the bytes that the warm server gives
// for it in a pinned session. Numbers and times are their decimal text; text is
// UTF-8; binary columns are their raw bytes; BIT is its unsigned decimal. NULL is
// a nil slice, the empty value is an empty one; they are never confused.
//
// Cold stores keep most columns as typed values (a number, a timestamp). Each
// typed form in this package (ParseDateTime, ParseDecimal, ...) says ok only when
// formatting the parsed value gives the very text again, so that what cannot be
// carried as a typed value exactly (zero dates, times of more than a day) is seen
// at encoding and carried as text beside it.
//
// # Words
//
//   - role: what a column means to coldtier (message ID, conversation ID, ...).
//   - cursor: what a reader pages by inside a conversation: the sequence where
//     the table has one, else the message ID.
//   - fingerprint: an order-independent 128-bit checksum of a set of rows and its
//     row count.
package message
