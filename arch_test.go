package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layer is what a package may do. Imports point to lower levels; inside a
// level only to the packages named in beside.
type layer struct {
	level  int
	beside []string
	http   bool // may import net/http
}

// layers is the map of the module: a folder that is not here is a fault.
var layers = map[string]layer{
	"message":     {level: 0},
	"backoff":     {level: 0},
	"redact":      {level: 0},
	"document":    {level: 0, beside: []string{"message"}},
	"classify":    {level: 0, beside: []string{"message", "document", "backoff", "internal/glob"}},
	"signer":      {level: 0, beside: []string{"message", "document"}},
	"template":    {level: 0, beside: []string{"message", "document"}},
	"attempt":     {level: 0, beside: []string{"classify"}},
	"policy":      {level: 1},
	"breaker":     {level: 1},
	"idempotency": {level: 1},
	"limiter":     {level: 1, beside: []string{"breaker"}},
	"journal":     {level: 1},
	"report":      {level: 1},
	"trend":       {level: 1},
	"newcode":     {level: 1},
	"patience":    {level: 1},
	"pause":       {level: 1},
	"query":       {level: 1},
	"deadletter":  {level: 1, beside: []string{"idempotency", "journal"}},

	"inbound":         {level: 3, http: true}, // HTTP/2 only: its frames are the business of net/http
	"upstream":        {level: 3, http: true},
	"access":          {level: 3},
	"inspect":         {level: 3},
	"config":          {level: 3},
	"store/memory":    {level: 3},
	"store/sqlite":    {level: 3},
	"store/redis":     {level: 3},
	"store/storetest": {level: 3},
	"intercept":       {level: 3, http: true},
	"egress":          {level: 3},
	"alert":           {level: 3, http: true},
	"presets":         {level: 3, beside: []string{"config", "inspect"}}, // they are files as strict as the configuration
	"telemetry":       {level: 3, http: true},
	"tracing":         {level: 3, http: true},
	"audit":           {level: 3},
	"service":         {level: 3},

	"proxy":     {level: 4},
	"admin":     {level: 4, http: true},
	"dashboard": {level: 4, http: true},
	"simulate":  {level: 4, beside: []string{"proxy"}},
	"demo":      {level: 4, http: true},
	"cli":       {level: 4, beside: []string{"doctor", "simulate"}, http: true},
	"doctor":    {level: 4, http: true},
	"clients":   {level: 4, http: true},
	".":         {level: 5, http: true},

	"bench/process": {level: 2},             // of the programs below
	"bench/https":   {level: 5, http: true}, // a program of its own
	"bench/durable": {level: 5},             // likewise
	"bench/idle":    {level: 5, http: true}, // likewise

	"example/platforms":         {level: 5, http: true}, // likewise
	"example/platforms/sandbox": {level: 2, http: true}, // the other side of its and of our tests

	"internal/glob":       {level: 0},
	"internal/race":       {level: 0}, // for tests
	"internal/seal":       {level: 2}, // chance, below the edges
	"store/codec":         {level: 2, beside: []string{"internal/seal"}},
	"internal/spool":      {level: 2}, // temporary files: I/O below the edges
	"internal/logfile":    {level: 2}, // likewise, the log
	"internal/memnet":     {level: 2}, // the network of the tests
	"internal/egresstest": {level: 2}, // an egress proxy of the tests
	"internal/redistest":  {level: 2}, // a Redis of the tests
}

const lastPureLevel = 1

// Bans of the pure levels: packages, and functions of packages that are
// otherwise welcome.
var (
	impureImports = []string{"math/rand", "math/rand/v2", "crypto/rand", "os", "os/exec", "os/signal", "syscall", "log", "log/slog"}
	impureCalls   = map[string][]string{
		"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
		"net": {
			"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialIP", "DialUnix", "Dialer", "Resolver", "ListenConfig",
			"Listen", "ListenTCP", "ListenUDP", "ListenPacket", "LookupHost", "LookupIP", "LookupAddr", "LookupCNAME",
		},
	}
)

const (
	longestFunction = 60
	medianFunction  = 10
)

// source is one parsed file that is not a test.
type source struct {
	pkg  string // folder, "." for the root
	fset *token.FileSet
	file *ast.File
}

func TestArchitecture(t *testing.T) {
	files := moduleSources(t)
	report := func(faults []string) {
		for _, f := range faults {
			t.Error(f)
		}
	}
	for _, s := range files {
		report(importFaults(s))
		report(purityFaults(s))
		report(docFaults(s))
	}
	report(packageDocFaults(files))
	report(lengthFaults(files))
}

// moduleSources parses every Go file of the module but the tests.
func moduleSources(t *testing.T) []source {
	t.Helper()
	var files []source
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		s, err := parse(p, string(text))
		files = append(files, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// parse reads one file; its folder is its package.
func parse(name, text string) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return source{path.Dir(name), fset, file}, err
}

// at formats a fault with its place.
func (s source) at(n ast.Node, format string, args ...any) string {
	return s.fset.Position(n.Pos()).String() + ": " + fmt.Sprintf(format, args...)
}

// imports gives the path of each import by the name it has in the file.
func (s source) imports() map[string]string {
	out := map[string]string{}
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		out[name] = p
	}
	return out
}

// importFaults holds the graph: levels, arrows beside, net/http, known folders.
func importFaults(s source) []string {
	from, known := layers[s.pkg]
	if !known {
		return []string{s.at(s.file.Name, "folder %s is not in the map of the module", s.pkg)}
	}
	var faults []string
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		if (p == "net/http" || strings.HasPrefix(p, "net/http/")) && !from.http {
			faults = append(faults, s.at(spec, "%s must not import %s", s.pkg, p))
		}
		name, ours := strings.CutPrefix(p, "retryproxy/")
		if !ours {
			continue
		}
		to, known := layers[name]
		if !known || to.level > from.level || to.level == from.level && !slices.Contains(from.beside, name) {
			faults = append(faults, s.at(spec, "%s must not import %s: arrows point to lower levels", s.pkg, name))
		}
	}
	return faults
}

// purityFaults finds clocks, chance, I/O and goroutines in the pure levels.
func purityFaults(s source) []string {
	if layers[s.pkg].level > lastPureLevel {
		return nil
	}
	var faults []string
	imports := s.imports()
	for _, spec := range s.file.Imports {
		if p, _ := strconv.Unquote(spec.Path.Value); slices.Contains(impureImports, p) {
			faults = append(faults, s.at(spec, "%s is pure and must not import %s", s.pkg, p))
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			faults = append(faults, s.at(n, "%s is pure and must not start a goroutine", s.pkg))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(impureCalls[imports[x.Name]], n.Sel.Name) {
				faults = append(faults, s.at(n, "%s is pure and must not use %s.%s", s.pkg, x.Name, n.Sel.Name))
			}
		}
		return true
	})
	return faults
}

// docFaults finds exported identifiers without a doc comment.
func docFaults(s source) []string {
	var faults []string
	missing := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if name.IsExported() && !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d.Text() != "" }) {
			faults = append(faults, s.at(name, "%s needs a doc comment", name.Name))
		}
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if receiverExported(d) {
				missing(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					missing(spec.Name, spec.Doc, spec.Comment, d.Doc)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						missing(name, spec.Doc, spec.Comment, d.Doc)
					}
				}
			}
		}
	}
	return faults
}

// receiverExported is true for functions and for methods that can be seen.
func receiverExported(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	expr := f.Recv.List[0].Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	if index, ok := expr.(*ast.IndexExpr); ok {
		expr = index.X
	}
	name, ok := expr.(*ast.Ident)
	return ok && name.IsExported()
}

// packageDocFaults wants exactly one package comment, a question, per package.
func packageDocFaults(files []source) []string {
	docs := map[string][]string{}
	for _, s := range files {
		docs[s.pkg] = append(docs[s.pkg], s.file.Doc.Text())
	}
	var faults []string
	for _, pkg := range slices.Sorted(maps.Keys(docs)) {
		given := slices.DeleteFunc(docs[pkg], func(text string) bool { return text == "" })
		if len(given) != 1 {
			faults = append(faults, fmt.Sprintf("%s: %d package comments, want 1", pkg, len(given)))
			continue
		}
		want := "Package " + path.Base(pkg) + " answers one question: "
		first, _, _ := strings.Cut(given[0], "\n\n")
		if pkg != "." && !(strings.HasPrefix(first, want) && strings.Contains(first, "?")) {
			faults = append(faults, fmt.Sprintf("%s: the package comment must start %q and hold the question", pkg, want))
		}
	}
	return faults
}

// lengthFaults finds long functions and a median that says they got long.
func lengthFaults(files []source) []string {
	var faults []string
	var lengths []int
	for _, s := range files {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			lengths = append(lengths, n)
			if n > longestFunction {
				faults = append(faults, s.at(f, "%s has %d lines, at most %d", f.Name.Name, n, longestFunction))
			}
		}
	}
	slices.SortFunc(lengths, cmp.Compare[int])
	if len(lengths) > 0 && lengths[len(lengths)/2] > medianFunction {
		faults = append(faults, fmt.Sprintf("the median function has %d lines, at most %d", lengths[len(lengths)/2], medianFunction))
	}
	return faults
}

// TestArchitectureFaultsAreFound plants each fault and wants it named.
func TestArchitectureFaultsAreFound(t *testing.T) {
	long := "func long() {" + strings.Repeat("\n", longestFunction) + "}\n"
	middling := "func f() {" + strings.Repeat("\n", medianFunction) + "}\n"
	const doc = "// Package x answers one question: what?\n"
	tests := []struct {
		name, file, text string
		want             string // part of the only fault; empty: none
	}{
		{"clean", "classify/x.go", "package classify\nimport \"retryproxy/message\"\nvar _ message.Field", ""},
		{"upward", "policy/x.go", "package policy\nimport _ \"retryproxy/proxy\"", "policy must not import proxy"},
		{"beside not named", "policy/x.go", "package policy\nimport _ \"retryproxy/limiter\"", "policy must not import limiter"},
		{"beside named", "limiter/x.go", "package limiter\nimport _ \"retryproxy/breaker\"", ""},
		{"named, but the other way", "breaker/x.go", "package breaker\nimport _ \"retryproxy/limiter\"", "breaker must not import limiter"},
		{"edge to edge", "config/x.go", "package config\nimport _ \"retryproxy/store/memory\"", "config must not import store/memory"},
		{"main imported", "cli/x.go", "package cli\nimport _ \"retryproxy/nowhere\"", "cli must not import nowhere"},
		{"unknown folder", "util/x.go", "package util", "util is not in the map"},
		{"net/http in proxy", "proxy/x.go", "package proxy\nimport _ \"net/http\"", "proxy must not import net/http"},
		{"httptrace in access", "access/x.go", "package access\nimport _ \"net/http/httptrace\"", "must not import net/http/httptrace"},
		{"net/http in upstream", "upstream/x.go", "package upstream\nimport _ \"net/http\"", ""},
		{"clock", "limiter/x.go", "package limiter\nimport \"time\"\nvar t = time.Now()", "must not use time.Now"},
		{"clock renamed", "limiter/x.go", "package limiter\nimport tm \"time\"\nfunc f() { tm.Sleep(1) }", "must not use tm.Sleep"},
		{"timer passed as a value", "backoff/x.go", "package backoff\nimport \"time\"\nvar f = time.AfterFunc", "must not use time.AfterFunc"},
		{"duration", "backoff/x.go", "package backoff\nimport \"time\"\nvar d time.Duration = time.Second", ""},
		{"clock at the edge", "inbound/x.go", "package inbound\nimport \"time\"\nvar t = time.Now()", ""},
		{"chance", "backoff/x.go", "package backoff\nimport _ \"math/rand/v2\"", "must not import math/rand/v2"},
		{"files", "idempotency/x.go", "package idempotency\nimport _ \"os\"", "must not import os"},
		{"dial", "breaker/x.go", "package breaker\nimport \"net\"\nvar d net.Dialer", "must not use net.Dialer"},
		{"goroutine", "policy/x.go", "package policy\nfunc f() { go f() }", "must not start a goroutine"},
		{"exported function", "proxy/x.go", "package proxy\nfunc F() {}", "F needs a doc comment"},
		{"exported method", "proxy/x.go", "package proxy\n// T is.\ntype T[K any] int\nfunc (t *T[K]) M() {}", "M needs a doc comment"},
		{"method of a hidden type", "proxy/x.go", "package proxy\ntype t int\nfunc (t t) String() string { return \"\" }", ""},
		{"exported constant", "proxy/x.go", "package proxy\nconst (\n\tA = 1 // is one\n\tB = 2\n)", "B needs a doc comment"},
		{"group comment", "proxy/x.go", "package proxy\n// Numbers.\nconst (\n\tA = 1\n\tB = 2\n)", ""},
		{"exported type", "proxy/x.go", "package proxy\ntype T int", "T needs a doc comment"},
		{"no package comment", "x/x.go", "package x", "0 package comments"},
		{"another package comment", "x/x.go", "// Package x does things.\npackage x", "answers one question"},
		{"package comment", "x/x.go", doc + "package x", ""},
		{"long function", "proxy/x.go", "package proxy\n" + long + strings.Repeat("func f() {}\n", 3), "long has 61 lines"},
		{"long median", "proxy/x.go", "package proxy\n" + middling, "the median function has 11 lines"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := parse(test.file, test.text)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(plantedFaults(s), "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("faults = %q, want %q", got, test.want)
			}
		})
	}
}

func TestTwoPackageCommentsAreAFault(t *testing.T) {
	const text = "// Package x answers one question: what?\npackage x"
	a, _ := parse("x/a.go", text)
	b, _ := parse("x/b.go", text)
	got := packageDocFaults([]source{a, b})
	if want := []string{"x: 2 package comments, want 1"}; !slices.Equal(got, want) {
		t.Errorf("packageDocFaults(two comments) = %q, want %q", got, want)
	}
}

// plantedFaults runs the checks that the planted file is for: files of folder
// x are about package comments, all others have none.
func plantedFaults(s source) []string {
	if s.pkg == "x" {
		return packageDocFaults([]source{s})
	}
	return slices.Concat(importFaults(s), purityFaults(s), docFaults(s), lengthFaults([]source{s}))
}
