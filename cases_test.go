package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tests found into docs/cases.md")

const (
	casesFile = "docs/cases.md"
	caseCount = 107
)

// caseRow is a table line: | case | what must hold | test | note |.
var caseRow = regexp.MustCompile(`(?m)^\| ([A-Z][A-Z0-9]-\d\d) \| (.*) \| (.*) \| (.*)\|$`)

// caseID finds a case in the name of a test (TestCase_RA_01_…) or at the start
// of the name of a subtest ("RA-01 …").
var caseID = regexp.MustCompile(`^(?:TestCase_|")([A-Z][A-Z0-9])[-_](\d\d)(?:[^0-9]|$)`)

// TestCases holds docs/cases.md to what the tests really cover.
func TestCases(t *testing.T) {
	text, err := os.ReadFile(casesFile)
	if err != nil {
		t.Fatal(err)
	}
	found := caseTests(t)
	rows := 0
	want := caseRow.ReplaceAllStringFunc(string(text), func(line string) string {
		rows++
		m := caseRow.FindStringSubmatch(line)
		id, note := m[1], m[4]
		tests := strings.Join(found[id], ", ")
		delete(found, id)
		switch {
		case tests == "" && strings.HasPrefix(note, "issue"):
			tests = "–"
		case tests == "":
			tests = "not yet"
		}
		return fmt.Sprintf("| %s | %s | %s | %s|", id, m[2], tests, note)
	})
	if rows != caseCount {
		t.Errorf("%s lists %d cases, want %d", casesFile, rows, caseCount)
	}
	for id := range found {
		t.Errorf("case %s of a test is not in %s", id, casesFile)
	}
	switch {
	case want == string(text):
	case *update:
		if err := os.WriteFile(casesFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not name the tests there are; run: go test -run TestCases . -update", casesFile)
	}
}

// caseTests finds the tests of each case, as `package.Test`, in the root as `Test`.
func caseTests(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for id, tests := range casesOf(path.Dir(p), file) {
			found[id] = append(found[id], tests...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range found {
		slices.Sort(found[id])
	}
	return found
}

// casesOf finds the cases that the tests of one file name.
func casesOf(pkg string, file *ast.File) map[string][]string {
	found := map[string][]string{}
	note := func(test, name string) {
		m := caseID.FindStringSubmatch(name)
		if m == nil {
			return
		}
		id, where := m[1]+"-"+m[2], "`"+strings.TrimPrefix(pkg+".", "..")+test+"`"
		if !slices.Contains(found[id], where) {
			found[id] = append(found[id], where)
		}
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(f.Name.Name, "Test") {
			continue
		}
		note(f.Name.Name, f.Name.Name)
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				note(f.Name.Name, lit.Value)
			}
			return true
		})
	}
	return found
}

func TestCaseNamesAreFound(t *testing.T) {
	const text = `package x
func TestCase_RA_01_seconds() {}
func TestCase_H2_03() {}
func TestTable() { _ = []string{"BO-04 zero base", "BO-044", "see RA-03", "SHA-256"} }
func helper() { _ = "ID-01" }`
	file, err := parser.ParseFile(token.NewFileSet(), "x_test.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(casesOf("x", file))
	const want = "map[BO-04:[`x.TestTable`] H2-03:[`x.TestCase_H2_03`] RA-01:[`x.TestCase_RA_01_seconds`]]"
	if got != want {
		t.Errorf("casesOf() = %s, want %s", got, want)
	}
}
