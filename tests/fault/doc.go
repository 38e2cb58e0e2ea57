// Package fault runs the built program while the way to one of its servers breaks,
// stalls or is slow, and while a store loses what it has taken. After every fault
// no message may be lost or doubled, the command must have ended (or end when the
// fault does) with a documented exit code, and the next run finishes the work.
//
// COLDTIER_TEST_HEAVY=1 adds rounds that take minutes.
package fault
