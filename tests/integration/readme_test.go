package integration

import (
	"os"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/tests/harness"
)

// blocks are the fenced blocks of a language in the README.
func blocks(t *testing.T, language string) (found []string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(readme), "\n```"+language+"\n")[1:] {
		block, _, ok := strings.Cut(part, "\n```")
		if !ok {
			t.Fatal("a block has no end")
		}
		found = append(found, block)
	}
	return found
}

// Every coldtier command in the README runs, in its order, and ends well.
func TestReadmeCommandsRun(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 40, Messages: 100})
	want := e.Truth()
	n := 0
	for _, block := range blocks(t, "sh") {
		for _, line := range strings.Split(block, "\n") {
			line, _, _ = strings.Cut(line, "#")
			if words := strings.Fields(line); len(words) > 1 && words[0] == "coldtier" {
				e.Must(words[1:]...)
				n++
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d commands were found", n)
	}
	e.Verdict(want)
}

// The README's configuration is one that is taken.
func TestReadmeConfigurationIsRead(t *testing.T) {
	t.Parallel()
	all := blocks(t, "yaml")
	if len(all) != 1 {
		t.Fatalf("%d blocks of YAML", len(all))
	}
	lookup := config.Lookup{Env: func(string) (string, bool) { return "secret", true }}
	if _, err := config.Parse("README.md", []byte(all[0]), lookup); err != nil {
		t.Error(err)
	}
}
