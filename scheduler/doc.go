// Package scheduler runs jobs: one of them once (RunOnce), or several by the clock (Cron).
// What a job does, where leases are kept and where runs are recorded it is told; it knows
// nothing of archiving.
//
// # Words
//
//   - job: something that is done again and again under a name.
//   - lease: the right to do a job, of which one process at a time has the one of a name,
//     judged by the clock of a database that all share. Its fence, a number, grows with each
//     claim.
//   - run: a job done once. Its record says who, when, what, how it ended and why it stopped.
//   - spec: when a job is due, by five fields of cron in a time zone (Spec).
//   - occurrence: an instant at which a spec is due.
//   - mark: the occurrence up to which a job is done. It is kept beside the lease, moves with
//     the lease's release, and only forwards; so an occurrence is done once, however many
//     schedulers there are, and one that was cut off is done again.
//   - catching up: one run for all occurrences that were missed.
//
// # A run
//
//	claim the lease -> note the begin -> work -> note the end -> release the lease and move the mark
//	                                      ^
//	   ended early by: a deadline, a lost lease, a signal; each with its name as the context's cause
//
// A process that dies between any two of these leaves a lease that runs out, a record without
// an end, and a mark that has not moved: the next scheduler to look does the occurrence again.
package scheduler
