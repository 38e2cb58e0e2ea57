package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
	"github.com/coldtier/coldtier/tests/harness"
	"github.com/coldtier/coldtier/tests/stack"
)

// blocks are the fenced blocks of a language in the README, or another page.
func blocks(t *testing.T, page, language string) (found []string) {
	t.Helper()
	readme, err := os.ReadFile("../../" + page)
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

// listens is where the README's server is asked.
const listens = "http://127.0.0.1:8080"

// word is a word of a command: quotes are around whole ones.
var word = regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)

// Every command in the README runs, in its order, and ends well; but make's are CI's.
func TestReadmeCommandsRun(t *testing.T) {
	t.Parallel()
	e := harness.New(t, harness.Options{Seed: 40, Messages: 100, Config: map[string]string{"fetch": "listen: 127.0.0.1:0\ndrain: 0s\nbudget: 20s"}})
	want := e.Truth()
	e.Environ = append(e.Environ, "RESTORE_DSN="+stack.MySQL(t))
	dir := t.TempDir()
	commands, curls, shell, url := 0, 0, "", ""
	for _, block := range blocks(t, "README.md", "sh") {
		for _, line := range strings.Split(block, "\n") {
			line, _, _ = strings.Cut(line, " #")
			line = strings.ReplaceAll(line, listens, url)
			words := word.FindAllString(line, -1)
			switch {
			case strings.HasPrefix(line, "coldtier serve &"):
				url = e.Serve().URL
			case len(words) > 1 && words[0] == "coldtier":
				for i, w := range words {
					words[i] = strings.Trim(w, `'"`)
					if w == "messages.ndjson" {
						words[i] = filepath.Join(dir, w)
					}
				}
				e.Must(words[1:]...)
				commands++
			case strings.HasPrefix(line, "at="):
				shell = line + "\n"
			case len(words) > 1 && words[0] == "curl":
				out, err := exec.CommandContext(t.Context(), "bash", "-ec", shell+strings.Replace(line, "curl", "curl --fail-with-body --silent --show-error", 1)).CombinedOutput()
				if err != nil || !strings.HasPrefix(string(out), "{") || strings.Contains(string(out), "STATE_P") {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
				curls++
			}
		}
	}
	if commands < 15 || curls < 7 || url == "" {
		t.Errorf("only %d commands and %d requests were found, and the server is at %q", commands, curls, url)
	}
	e.Verdict(want)
}

// The configuration of the README is taken, and that of a server together with it.
func TestReadmeConfigurationIsRead(t *testing.T) {
	t.Parallel()
	all := append(blocks(t, "README.md", "yaml"), blocks(t, "docs/serve.md", "yaml")...)
	if len(all) != 2 {
		t.Fatalf("%d blocks of YAML", len(all))
	}
	lookup := config.Lookup{Env: func(string) (string, bool) { return "secret", true }}
	for _, text := range []string{all[0], all[0] + "\n" + all[1]} {
		if _, err := config.Parse("README.md", []byte(text), lookup); err != nil {
			t.Error(err)
		}
	}
}

// Links between the pages lead to files, and to headings of them.
func TestLinksLead(t *testing.T) {
	t.Parallel()
	heading := regexp.MustCompile("(?m)^#+ (.*)$")
	punctuation := regexp.MustCompile("[^a-z0-9_-]")
	n := 0
	pages := []string{"../../README.md", "../../CONTRIBUTING.md", "../../CHANGELOG.md", "../../deploy/README.md"}
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) < 8 {
		t.Fatal(docs, err)
	}
	for _, page := range append(pages, docs...) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
			to, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			n++
			path := filepath.Join(filepath.Dir(page), to)
			if to == "" { // the page itself
				path = page
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: link to %s: %v", page, link[1], err)
				continue
			}
			if anchor == "" {
				continue
			}
			other, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, h := range heading.FindAllStringSubmatch(string(other), -1) {
				found = found || punctuation.ReplaceAllString(strings.ReplaceAll(strings.ToLower(h[1]), " ", "-"), "") == anchor
			}
			if !found {
				t.Errorf("%s: %s has no heading %s", page, to, anchor)
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d links were found", n)
	}
}
