// Package load measures what the fetch costs, beside what the stores cost by
// themselves: each benchmark does the same bytes or the same SQL with the bare client
// and with the product, in turns, in one run, and prints the ratio of the medians.
//
//	tests/stack/stack run --set 1 go test ./tests/load -run xxx -bench . -benchtime 2s
package load
