// Package scratch makes the databases that a restore drill works in, and drops them.
//
// # What it may touch
//
// A drill's DSN names a database, BASE, which is never written: it must not be there, or
// be empty, and be neither a warm database nor the manifest. Beside it, on the same
// server, databases are made that are named
//
//	BASE_drill_ID_PLACE
//
// where ID is the drill's, and which begin with a table, MarkerTable, that says which
// manifest's drill made them and when. CREATE DATABASE fails where one of the name is, so
// that nothing that was there before is ever written.
//
// Only such a database is dropped: one that this drill made, or one whose name and whose
// marker say that a drill of this very manifest made it. While one drill holds the lock
// (Lock) no other of the manifest runs, so what is marked is a dead one's.
package scratch
