package main

import "syscall"

// childAttr is how jobs are started: in a group of their own; when the scheduler is killed
// they are told to end.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
