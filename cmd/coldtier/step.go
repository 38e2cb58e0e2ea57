//go:build !crashtest

package main

// stepHook is what is called at each named step between two effects: nothing.
func stepHook() func(string) error { return nil }
