// Package drill tests the restore drill on real servers: that it is green where all is
// well, red for every fault, naming it, and that it harms nothing.
package drill
