package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// build puts the program, with the points at which crash tests kill it, at a path. The
// packages of one stack link it once: go build leaves a file alone that is as it would make it.
func build(path string) error {
	made := path
	if stack := os.Getenv("COLDTIER_TEST_STACK"); stack != "" {
		made = filepath.Join(stack, "coldtier-crashtest")
		lock, err := os.OpenFile(made+".lock", os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return fmt.Errorf("build the program: %w", err)
		}
		defer func() { _ = lock.Close() }() // which unlocks it
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			return fmt.Errorf("build the program: lock %s: %w", lock.Name(), err)
		}
	}
	if out, err := exec.Command("go", "build", "-tags", "crashtest", "-o", made, "github.com/coldtier/coldtier/cmd/coldtier").CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w\n%s", err, out)
	}
	if made == path {
		return nil
	}
	// A copy: another package may build it anew from code that was changed since.
	b, err := os.ReadFile(made)
	if err == nil {
		err = os.WriteFile(path, b, 0o700)
	}
	if err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	return nil
}
