package fetch

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
)

// label marks a goroutine's descendants, so that a test sees its own while others run.
const label = "fetch-test"

// labelled runs f under a name of its own and says what counts the goroutines that came of
// it, but for this one and the proxies'.
func labelled(t testing.TB, f func(count func() int)) {
	name := strings.ReplaceAll(t.Name(), `"`, "")
	pprof.Do(context.Background(), pprof.Labels(label, name), func(context.Context) {
		f(func() int { return len(goroutines(t, name)) - 1 })
	})
}

// goroutines are the stacks of all that a name marks.
func goroutines(t testing.TB, name string) (stacks []string) {
	t.Helper()
	var b strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Fatal(err)
	}
	_, entries, _ := strings.Cut(b.String(), "\n") // behind the total
	for entry := range strings.SplitSeq(entries, "\n\n") {
		if !strings.Contains(entry, fmt.Sprintf("%q:%q", label, name)) || strings.Contains(entry, "stack.(*Proxy)") {
			continue
		}
		var n int
		if _, err := fmt.Sscanf(entry, "%d @", &n); err != nil {
			t.Fatalf("goroutine profile: %v in %q", err, entry)
		}
		for range n {
			stacks = append(stacks, entry)
		}
	}
	return stacks
}

// sockets is the number of this machine's connections to an address, but those that have
// been closed on this side. The kernel tells: neither the drivers nor the proxies do.
func sockets(t testing.TB, addr string) (n int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("connections are counted by Linux's /proc/net/tcp")
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	want, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasSuffix(f[2], fmt.Sprintf(":%04X", want)) {
			continue
		}
		switch f[3] {
		case "01", "02", "08": // established, being made, closed by the other side alone
			n++
		}
	}
	return n
}
