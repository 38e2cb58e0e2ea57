package preflight

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/dustin/go-humanize"

	"github.com/coldtier/coldtier/archive/warm"
)

const (
	leastFiles  = 1024
	memorySlack = 64 << 20   // beyond archive.memory, for the program itself
	tmpfs       = 0x01021994 // statfs's number for it on Linux
	// peak is how much bigger than the average the biggest day of a table is taken to be.
	peak = 3
	// leastSpill is what a run needs even where all slices fit into memory: objects that
	// are being uploaded.
	leastSpill = 256 << 20
)

// Machine looks at this machine: what does not depend on the tables.
func (p *Preflight) Machine() {
	if !p.does(Archive) {
		return
	}
	dir := os.TempDir()
	if f, err := os.CreateTemp(dir, "coldtier-check-*"); err != nil {
		p.Addf("machine", SpillUnusable, dir, "the folder for temporary files: %s", oneLine(err))
	} else if err := remove(f); err != nil {
		p.Addf("machine", SpillUnusable, dir, "the folder for temporary files: %s", oneLine(err))
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err == nil && int64(st.Type) == tmpfs { //nolint:unconvert // its type differs between systems
		p.Addf("machine", SpillMemory, dir, "the folder %s lies in memory (tmpfs)", dir)
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil && files.Cur < leastFiles {
		p.Addf("machine", OpenFiles, "open files", "this process may open %d files", files.Cur)
	}
	if limit, ok := containerMemory(); ok {
		p.judgeMemory(limit)
	}
}

func (p *Preflight) judgeMemory(limit int64) {
	if limit < p.cfg.Archive.Memory+memorySlack {
		p.Addf("machine", MemoryLimit, "memory", "the container may use %s, and archive.memory is %s beside what the program itself takes", size(limit), size(p.cfg.Archive.Memory))
	}
}

func remove(f *os.File) error {
	err := f.Close()
	if e := os.Remove(f.Name()); err == nil {
		err = e
	}
	return err
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// containerMemory is the limit of the control group; false where there is none.
func containerMemory() (int64, bool) {
	for _, name := range []string{"memory.max", filepath.Join("memory", "memory.limit_in_bytes")} {
		text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", name))
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return n, err == nil // "max": none
	}
	return 0, false
}

// Spills compares the room for temporary files with what the biggest slices may need. A
// slice spills what does not fit into its share of archive.memory; how big a slice is,
// is guessed from the servers' own estimates of its table.
func (p *Preflight) Spills(ctx context.Context, tables []*warm.Table) {
	if !p.does(Archive) || len(tables) == 0 {
		return
	}
	var mu sync.Mutex
	biggest, whose := int64(0), ""
	each(len(tables), func(i int) {
		shard := tables[i].Shard().String()
		p.probe(ctx, "warm", shard, "its size", func(ctx context.Context) error {
			z, err := tables[i].Size(ctx)
			if err != nil {
				return err
			}
			day := peak * int64(z.Bytes) / int64(max(z.Days, peak)) //nolint:gosec // sizes of tables
			mu.Lock()
			defer mu.Unlock()
			if day > biggest {
				biggest, whose = day, shard
			}
			return nil
		})
	})
	if ctx.Err() != nil {
		return
	}
	workers := int64(p.cfg.Archive.Workers)
	if workers == 0 {
		workers = int64(max(2, runtime.GOMAXPROCS(0)))
	}
	dir := os.TempDir()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		p.Addf("machine", ProbeFailed, dir, "its free room: %s", oneLine(err))
		return
	}
	free := int64(st.Bavail) * int64(st.Bsize) //nolint:gosec,unconvert // its types differ between systems
	p.judgeSpills(dir, free, spillNeed(biggest, p.cfg.Archive.Memory, workers), biggest, whose)
}

// spillNeed is how much room so many workers may need at once.
func spillNeed(biggest, memory, workers int64) int64 {
	need := int64(leastSpill)
	if share := memory / workers / 8; biggest > share { // see archive's sorter
		need += biggest * workers
	}
	return need
}

func (p *Preflight) judgeSpills(dir string, free, need, biggest int64, whose string) {
	text := fmt.Sprintf("%s has %s of room", dir, size(free))
	if whose != "" {
		text += fmt.Sprintf("; the biggest slice is guessed at %s (%s)", size(biggest), whose)
	}
	if need == leastSpill {
		text += fmt.Sprintf("; wanted are at least %s", size(need))
	} else {
		text += fmt.Sprintf(", so that up to %s are needed", size(need))
	}
	if free < need {
		p.Add("machine", SpillLow, dir, text, "")
		return
	}
	p.Add("machine", SpillRoom, dir, text, "")
}
