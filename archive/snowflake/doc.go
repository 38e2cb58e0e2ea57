// Package snowflake maps message IDs to time and days to ranges of IDs.
//
// A snowflake ID is, from the highest bit down: a sign bit, milliseconds since
// an epoch, and Layout.Shift low bits (machine and sequence; 22 on most
// platforms: 10 bits of machine, 12 of sequence). Because time is in the high
// bits, a day is a range [lo, hi) of IDs and so a range of the primary key.
//
//	63   62                      22            12           0
//	 +---+------------------------+-------------+------------+
//	 | 0 | ms since Layout.Epoch  | machine     | sequence   |
//	 +---+------------------------+-------------+------------+
//
// IDs are uint64 throughout: tables with unsigned columns may use all 64 bits.
// A day is [00:00, 24:00) in a time zone, so it has 23 or 25 hours when
// daylight saving time begins or ends there.
package snowflake
