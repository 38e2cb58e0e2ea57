// Package fetch reads pages of a real cold tier through broken lines, from damaged
// objects and with callers who leave, and holds every page against what the warm tables
// held before it was archived.
package fetch
