package preflight

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The table of docs/check.md and the catalogue say the same, in both directions.
func TestDocsHaveTheCatalogue(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(doc), -1) {
		if rows[m[1]] != "" {
			t.Errorf("%s is twice in docs/check.md", m[1])
		}
		rows[m[1]] = m[2]
	}
	for _, k := range Catalogue() {
		severity := string(k.Severity)
		if k.Refuses {
			severity += ", exit 4"
		}
		if want := severity + " | " + k.Meaning + " | " + k.Remedy; rows[string(k.Code)] != want {
			t.Errorf("docs/check.md says of %s\n%q, want\n%q", k.Code, rows[string(k.Code)], want)
		}
		delete(rows, string(k.Code))
	}
	for code := range rows {
		t.Errorf("docs/check.md has %s, which is no code", code)
	}
}

// Every constant of type Code is in the catalogue, and every code of the catalogue is
// reported somewhere.
func TestEveryCodeIsKnownAndUsed(t *testing.T) {
	t.Parallel()
	known := catalogue()
	if len(known) != len(Catalogue()) {
		t.Error("a code is twice in the catalogue")
	}
	used := map[string]int{} // names of constants, by how often they are met
	type constant struct{ dir, name string }
	names := map[constant]Code{}
	for _, dir := range []string{".", "..", "../../../archive/warm", "../../../archive/bucket", "../../../archive/clickhouse"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), f, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			catalogued := f == "codes.go" // being in the list is no use
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ValueSpec:
					if id, ok := n.Type.(*ast.Ident); ok && id.Name == "Code" {
						for i, name := range n.Names {
							if lit, ok := n.Values[i].(*ast.BasicLit); ok {
								text, err := strconv.Unquote(lit.Value)
								if err != nil {
									t.Fatal(err)
								}
								names[constant{dir, name.Name}] = Code(text)
							}
						}
						return false
					}
				case *ast.SelectorExpr:
					if !catalogued {
						used[n.Sel.Name]++
					}
				case *ast.Ident:
					if !catalogued {
						used[n.Name]++
					}
				}
				return true
			})
		}
	}
	if len(names) < len(known) {
		t.Errorf("%d constants for %d codes", len(names), len(known))
	}
	for c, code := range names {
		if _, ok := known[code]; !ok {
			t.Errorf("%s (%s) is not in the catalogue", code, c.name)
		}
		if used[c.name] == 0 {
			t.Errorf("%s (%s) is never reported", code, c.name)
		}
	}
	for _, k := range Catalogue() {
		if (k.Severity == OK) != (k.Remedy == "") || k.Meaning == "" {
			t.Errorf("%s: severity %s, meaning %q, remedy %q", k.Code, k.Severity, k.Meaning, k.Remedy)
		}
	}
}
