// Package report is the report of a restore drill: its model, the two files it becomes
// (JSON, and a page that one shows to an auditor), their signatures, and their check.
//
//	report   what a drill did and found, as JSON of a version; docs/drill-report.md and its schema
//	check    one thing that a drill looked at: passed, failed or skipped, with what was expected and found
//	step     what a drill does one after the other; each that is Required has at least one check that passed, or the drill is red
//	verdict  pass or fail; it follows from the checks (Judge), and a reader works it out anew
//	page     the same as self-contained HTML, without scripts; it names the JSON by its SHA-256
//	seal     the JSON, the page and, with a key, a detached ed25519 signature of each
//
// A drill fills a Report, calls Judge, then Seal, and puts or writes the Files. The package asks no clock and
// no server.
package report
