// Coldtier moves an instant-messaging platform's old messages out of MySQL into
// Parquet files on S3 and rows in ClickHouse, proves the copy equal, and only
// then, after a lag, deletes the warm rows.
//
// Each verb is a file of its own. wire.go is the only file that sees every
// package: it makes the parts from the configuration and fits the adapters to
// the interfaces that archive, archive/purge and restore name. exit.go is the
// only place that turns errors into exit codes.
//
// # Words
//
//   - verb: one command of the tool.
//   - result: what a verb found or did. It is printed as text, or in one JSON
//     document with the error beside it, so that a script reads the same shape
//     whatever happened:
//     {"command": "status", "exit_code": 0, "result": {...}, "error": null}
//   - set-up: everything before a verb changes anything; an error there is one of
//     the configuration or the surroundings (exit code 2), not of the work.
package main
