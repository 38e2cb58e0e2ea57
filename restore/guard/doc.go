// Package guard keeps a reader of slow or dead stores quick, and keeps it from
// making their trouble worse. It knows nothing of messages or stores.
//
// A call passes the parts in this order:
//
//	Limits -> Turn (is the cache still true?) -> Flights (is it being read?) -> Breaker -> store
//	                                               after HedgeDelay, with a token of HedgeBudget -> other store
//
// # Words
//
//   - breaker: keeps calls from a store that does not answer. Closed lets all
//     through, Open none, HalfOpen one at a time.
//   - probe: the one call that HalfOpen lets through.
//   - hedge: a second call to another store, begun because the first one is slow.
//   - flight: work that goes on when its callers have left.
//   - turn: a read that everybody who asked before it began shares.
//   - age: of a Sketch, the additions between two halvings.
//
// # States of a breaker
//
//	        failures in a row, or too large a part of them
//	Closed ------------------------------------------------> Open <-+
//	  ^                                                        |     | the probe fails:
//	  | a probe succeeds                            time is up |     | open for twice as long
//	  |                                                        v     |
//	  +---------------------------------------------------- HalfOpen-+
//	                                     another probe when one is overdue
//
// Everything is safe for concurrent use. Nothing is started by a constructor, so
// nothing has to be stopped; the goroutines of Flights and Turn live as long as
// the functions they run, and Wait waits for them.
package guard
