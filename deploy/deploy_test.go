package deploy

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// resources are the documents of all files of kubernetes, as they are before Kustomize puts them together.
func resources(t *testing.T) (all []map[string]any) {
	t.Helper()
	err := filepath.WalkDir("kubernetes", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" || d.Name() == "coldtier.yaml" {
			return err
		}
		decoder := yaml.NewDecoder(strings.NewReader(read(t, path)))
		for {
			var doc map[string]any
			switch err := decoder.Decode(&doc); {
			case err != nil && doc == nil && strings.Contains(err.Error(), "EOF"):
				return nil
			case err != nil:
				t.Fatalf("%s: %v", path, err)
			}
			all = append(all, doc)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// at follows keys into nested mappings.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

// program is the path of the program, which is built once, and plainly: of what other tests have compiled.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "coldtier-deploy-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "coldtier")
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/coldtier").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

var buildLine = regexp.MustCompile(`go build (.*) -o /coldtier \./cmd/coldtier`)

// build runs the Dockerfile's command in a tree of the sources.
func build(root, path string) error {
	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		return err
	}
	line := buildLine.FindSubmatch(dockerfile)
	if line == nil {
		return errors.New("the Dockerfile builds nothing")
	}
	c := exec.Command("bash", "-c", "go build "+string(line[1])+` -o "$0" ./cmd/coldtier`, path)
	c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Pinned, without a shell, as a user that is not root; and the same wherever it is built.
func TestImage(t *testing.T) {
	t.Parallel()
	dockerfile := read(t, "Dockerfile")
	for _, want := range []string{
		`(?m)^ARG GO_IMAGE=golang:\d+\.\d+\.\d+-[a-z]+$`, `(?m)^ARG BASE_IMAGE=gcr\.io/distroless/static-debian12:nonroot@sha256:[0-9a-f]{64}$`,
		`(?m)^FROM --platform=\$BUILDPLATFORM \$\{GO_IMAGE\} AS build$`, `(?m)^FROM \$\{BASE_IMAGE\}$`, `(?m)^USER 65532:65532$`, `(?m)^ENTRYPOINT \["/coldtier"\]$`,
		`(?m)^ENV CGO_ENABLED=0 GOTOOLCHAIN=local`, ` -trimpath `, ` -buildvcs=false `,
	} {
		if !regexp.MustCompile(want).MatchString(dockerfile) {
			t.Errorf("no %s", want)
		}
	}
	if n := len(regexp.MustCompile(`(?m)^FROM `).FindAllString(dockerfile, -1)); n != 2 {
		t.Errorf("%d stages", n)
	}
	module := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))
	if !strings.Contains(dockerfile, "golang:"+module[1]+".") {
		t.Errorf("go.mod wants Go %s, and the image has another", module[1])
	}
}

// The same program comes out wherever it is built. With a name in COLDTIER_TEST_IMAGE alone, since everything is compiled
// anew for it.
func TestBuildIsReproducible(t *testing.T) {
	t.Parallel()
	if os.Getenv("COLDTIER_TEST_IMAGE") == "" {
		t.Skip("COLDTIER_TEST_IMAGE is not set")
	}
	dir := t.TempDir()
	src := func(name string) string { return filepath.Join(dir, name, "src") }
	copyTree(t, src("here"))
	if err := os.CopyFS(src("elsewhere"), os.DirFS(src("here"))); err != nil { // the same, whoever edits meanwhile
		t.Fatal(err)
	}
	var sums [2][sha256.Size]byte
	for i, name := range []string{"here", "elsewhere"} {
		out := filepath.Join(dir, name, "coldtier")
		if err := build(src(name), out); err != nil {
			t.Fatal(err)
		}
		text := read(t, out)
		if strings.Contains(text, dir) {
			t.Errorf("the program knows where it was built")
		}
		sums[i] = sha256.Sum256([]byte(text))
	}
	if sums[0] != sums[1] {
		t.Error("built in another folder it is another program")
	}
}

// copyTree copies what a build needs, and not what .dockerignore leaves out.
func copyTree(t *testing.T, to string) {
	t.Helper()
	leave := strings.Fields(read(t, "../.dockerignore"))
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel("..", path)
		switch {
		case err != nil:
			return err
		case slices.Contains(leave, rel):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		return os.WriteFile(filepath.Join(to, rel), []byte(read(t, path)), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// help runs a command line's parser and nothing else: an unknown flag comes before --help.
func help(t *testing.T, args []string) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, append(slices.Clone(args), "--help")...).CombinedOutput()
	verb := slices.DeleteFunc(slices.Clone(args), func(s string) bool { return strings.HasPrefix(s, "-") })
	if err != nil || len(verb) == 0 || !strings.Contains(string(out), "\n  coldtier "+verb[0]) {
		t.Errorf("coldtier %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Every verb and flag that the Kubernetes files and the runbook name exists.
func TestCommandsExist(t *testing.T) {
	t.Parallel()
	verbs := map[string]bool{}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if args, ok := v["args"].([]any); ok {
				var words []string
				for _, a := range args {
					words = append(words, a.(string))
				}
				help(t, words)
				if len(words) < 3 {
					t.Fatalf("%v: no verb", words)
				}
				verbs[words[2]] = true
				if words[0] != "--config=/etc/coldtier/coldtier.yaml" || words[1] != "--log-format=json" {
					t.Errorf("%v: another configuration or log", words)
				}
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	for _, doc := range resources(t) {
		walk(doc)
	}
	for _, v := range []string{"archive", "purge", "patrol", "drill", "serve", "migrate", "check"} {
		if !verbs[v] {
			t.Errorf("nothing runs %s: %v", v, slices.Sorted(maps.Keys(verbs)))
		}
	}
	n := 0
	for _, m := range regexp.MustCompile("(?m)(?:`|^)coldtier ([a-z][^`\n#]*)").FindAllStringSubmatch(read(t, "README.md"), -1) {
		help(t, strings.Fields(strings.ReplaceAll(m[1], "'", "")))
		n++
	}
	if n < 10 {
		t.Errorf("the runbook has %d commands", n)
	}
}

// variables are what the pods are given: any file of a Secret, and the environment's one.
func variables() config.Lookup {
	return config.Lookup{
		Env: func(n string) (string, bool) { return "", n == "DRILL_SIGNING_KEY" },
		File: func(path string) ([]byte, error) {
			if name, ok := strings.CutPrefix(path, "/run/secrets/coldtier/"); ok {
				return []byte(name + "\n"), nil
			}
			return nil, fs.ErrNotExist
		},
	}
}

// The program takes the configurations, and gives each role its own account.
func TestConfigurationsAreTaken(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("kubernetes/*/coldtier.yaml")
	more, err2 := filepath.Glob("kubernetes/*/*/coldtier.yaml")
	if files = append(files, more...); err != nil || err2 != nil || len(files) != 2 {
		t.Fatalf("%v, %v, %v", files, err, err2)
	}
	for _, path := range files {
		c, err := config.Parse(path, []byte(read(t, path)), variables())
		if err != nil {
			t.Error(err)
			continue
		}
		for _, dsn := range []string{c.Source.Databases[0].DSN.Reveal(), c.Manifest.DSN.Reveal(), c.Drill.Scratch.Reveal()} {
			if !strings.HasPrefix(dsn, "mysql-user:mysql-password@") {
				t.Errorf("%s: a DSN is of another account", path)
			}
		}
		if c.ClickHouse.Username != "clickhouse-user" || c.ClickHouse.Password.Reveal() != "clickhouse-password" {
			t.Errorf("%s: ClickHouse's account is another", path)
		}
		if config.Loopback(c.Fetch.Listen) || !strings.HasSuffix(c.Fetch.Listen, ":8080") {
			t.Errorf("%s: the server listens on %s", path, c.Fetch.Listen)
		}
	}
}

// The account of sql/target/drill.sql may make the scratch databases that the configurations name.
func TestScratchDatabasesAreGranted(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile("GRANT ALL ON `(.*)%`").FindStringSubmatch(read(t, "sql/target/drill.sql"))
	if m == nil {
		t.Fatal("sql/target/drill.sql grants nothing on a pattern")
	}
	may := strings.ReplaceAll(m[1], `\_`, "_")
	for _, path := range []string{"kubernetes/base/coldtier.yaml", "kubernetes/overlays/fleet/coldtier.yaml"} {
		c, err := config.Parse(path, []byte(read(t, path)), variables())
		if err != nil {
			t.Fatal(err)
		}
		if makes := c.Drill.Scratch.Database() + "_drill_"; makes != may {
			t.Errorf("%s: a drill makes %s..., and its account may make %s...", path, makes, may)
		}
	}
}

// Neither a lock file nor anything else here names where modules are fetched from.
func TestModuleIsPlain(t *testing.T) {
	t.Parallel()
	for _, f := range []string{"test/go.mod", "test/go.sum"} {
		if text := read(t, f); bytes.Contains([]byte(text), []byte("://")) || strings.Contains(text, "replace ") {
			t.Errorf("%s names a place", f)
		}
	}
}
