//go:build !linux

package main

import "syscall"

// childAttr is how jobs are started: in a group of their own.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
