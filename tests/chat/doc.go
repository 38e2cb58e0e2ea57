// Package chat makes lifelike chat for tests, the demo and benchmarks, and loads it
// into message tables.
//
// A Source gives messages one after the other in the order of their time, so that any
// number of rows needs little memory. Generator invents them, the same ones for the
// same seed; TSV reads a dump of real ones, copied on to as many rows as wanted.
//
// # Shape
//
// Generator follows what was measured on 960,000 messages of a public community:
// messages per conversation and day p50 4, p90 18, p99 62, at most about 830, a
// quarter of them single; body bytes p50 160, p90 1,300, p99 10,000, at most 205,000.
// Bodies are plain text, HTML, CJK, emoji, JSON cards and raw bytes; some are empty,
// some hold NUL and control bytes. IDs come from several machines, some in the same
// millisecond; the first message of a day is in its first millisecond and the last in
// its last; a sequence number now and then runs against the order of the IDs.
package chat
