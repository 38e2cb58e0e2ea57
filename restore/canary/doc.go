// Package canary plants known messages into warm tables and looks for them later, wherever
// they should be by then: in warm, in the bucket and in ClickHouse. So it is seen that what
// users write travels the whole way and stays what it was, and no store is trusted to say so.
//
// # Contents
//
// A canary's contents are made of its ID alone (Spec.Rows), again and again the same: they
// are compared byte for byte with no archive's word for it. They are what stores tend to
// spoil: four-byte characters, NUL, quotes, invalid UTF-8, very long, empty, NULL. What the
// server put into the columns that were not given is noted in the manifest when the
// canary is planted.
//
//	note (manifest) -> write (warm) -> read back -> planted (manifest)
//
// A planting that died is finished by the same command; its rows are in warm in part or whole.
//
// # Where it should be
//
//	                                                     warm      bucket, ClickHouse
//	no live generation, or planted after it was copied   must      may
//	planted before the live generation was copied        must      must
//	... and its purge has begun                          may       must
//
// What is found must be as it was planted, also where it only may be.
package canary
