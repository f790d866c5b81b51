package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Options are what reading a configuration needs from the outside.
type Options struct {
	Getenv   func(string) string          // for ${NAME}; nil: os.Getenv
	ReadFile func(string) ([]byte, error) // for file: and ca_files; nil: os.ReadFile
	// Adjust is applied between the file and the checks: command-line flags, which
	// it names with SetByFlag. May be nil.
	Adjust func(*Config)
	// StandIn is in the place of secrets that are not known: what is wrong with a
	// value that has it in it is not told. Empty: all are known.
	StandIn string
}

// Problem is one fault of a configuration.
type Problem struct {
	File string // empty: the value came from a flag, which Path names
	Line int    // 0: unknown, the value is not in the file
	Path string // such as retry_policies[2].max_delay; empty: the file itself
	Rule string // what is wrong, in words
}

// Error is file:line: path: rule, or -flag: rule.
func (p Problem) Error() string {
	at := p.File
	if p.Line > 0 {
		at += fmt.Sprintf(":%d", p.Line)
	}
	parts := slices.DeleteFunc([]string{at, p.Path, p.Rule}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// source is what is known about the file a configuration came from.
type source struct {
	file  string
	place string // of a configuration inside another file: its path there
	lines map[string]int
	flags map[string]string // by path: the flag that set it
}

// maxBytes is far more than any configuration needs.
const maxBytes = 4 << 20

// Parse reads a file called name over the defaults and checks it. The error
// joins one Problem for each fault, one a line.
func Parse(name string, data []byte, opt Options) (*Config, error) {
	if len(data) > maxBytes {
		return nil, Problem{File: name, Rule: fmt.Sprintf("larger than %d bytes", maxBytes)}
	}
	root, err := document(data)
	if p, ok := errors.AsType[Problem](err); ok {
		p.File = name
		return nil, p
	}
	return parseNode(source{file: name}, root, opt)
}

// parseNode lays a document, nil is an empty one, over the defaults and checks it.
func parseNode(from source, root *yaml.Node, opt Options) (*Config, error) {
	c := Default()
	d := newDecoder(opt)
	if root != nil {
		d.decode(root, "", valueOf(c))
	}
	from.lines, from.flags = d.lines, map[string]string{}
	c.source = from
	if opt.Adjust != nil {
		opt.Adjust(c)
	}
	c.complete(d)
	known := slices.DeleteFunc(c.check(), func(p Problem) bool { return d.unknown[p.Path] })
	if err := c.join(append(d.problems, without(known, d.problems)...)); err != nil {
		return nil, err
	}
	return c, nil
}

// without drops the bounds of values that could not even be read.
func without(bounds, unread []Problem) []Problem {
	return slices.DeleteFunc(bounds, func(b Problem) bool {
		return slices.ContainsFunc(unread, func(u Problem) bool { return u.Path == b.Path })
	})
}

func newDecoder(opt Options) *decoder {
	d := &decoder{getenv: opt.Getenv, readFile: opt.ReadFile, standIn: opt.StandIn, lines: map[string]int{}, unknown: map[string]bool{}}
	if d.getenv == nil {
		d.getenv = os.Getenv
	}
	if d.readFile == nil {
		d.readFile = os.ReadFile
	}
	return d
}

// Validate checks a configuration that was changed since it was read. The error
// is as that of Parse.
func (c *Config) Validate() error { return c.join(c.check()) }

// join sorts problems as they stand in the file; nil when there are none.
func (c *Config) join(problems []Problem) error {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(a.Line-b.Line, strings.Compare(a.Path, b.Path))
	})
	problems = slices.Compact(problems) // the members of a pool share user and password
	errs := make([]error, len(problems))
	for i, p := range problems {
		if flag := c.source.flag(p.Path); flag != "" {
			errs[i] = Problem{Path: flag, Rule: p.Rule}
			continue
		}
		p.File, p.Path = c.source.file, within(c.source.place, c.named(p.Path))
		errs[i] = p
	}
	return errors.Join(errs...)
}

// ruleOf is the place of an egress rule.
var ruleOf = regexp.MustCompile(`^egress\[(\d+)\]`)

// named adds the name of an egress rule to a path in it: people count badly.
func (c *Config) named(path string) string {
	m := ruleOf.FindStringSubmatch(path)
	if m == nil {
		return path
	}
	i, err := strconv.Atoi(m[1])
	if err != nil || i >= len(c.Egress) || c.Egress[i].Name == "" || !isVisible(c.Egress[i].Name) {
		return path
	}
	return m[0] + " (" + shorten(c.Egress[i].Name) + ")" + path[len(m[0]):]
}

// Fault is an error about the value at path, told as those of Parse are: where
// it stands, or which flag set it; nil stays nil. It is for checks that the caller makes.
func (c *Config) Fault(path string, err error) error {
	if err == nil {
		return nil
	}
	return c.join([]Problem{{Line: c.source.line(path), Path: path, Rule: err.Error()}})
}

// SetByFlag notes that the value at path, and all below it, came from a
// command-line flag, so that its faults are told as the flag's.
func (c *Config) SetByFlag(path, flag string) { c.source.flags[path] = flag }

// KeepIn makes the store a durable one in a directory, as -data does: memory gives
// way to it, said or not, and a path of the file's own stays. Empty changes nothing.
func (c *Config) KeepIn(dir string) {
	if dir == "" || c.Store.Kind != "memory" {
		return
	}
	c.Store.Kind, c.Store.Path = "sqlite", cmp.Or(c.Store.Path, dir)
	c.SetByFlag("store.kind", "-data")
	c.SetByFlag("store.path", "-data")
}

// Overruled says whether the file itself has a value at path that gave way to a flag.
func (c *Config) Overruled(path string) bool {
	return c.source.lines[path] > 0 && c.source.flag(path) != ""
}

// flag is the flag that set path, or what it is in; empty: none.
func (s source) flag(path string) string {
	for ; path != ""; path = above(path) {
		if flag := s.flags[path]; flag != "" {
			return flag
		}
	}
	return ""
}

// line is where path stands in the file, or the nearest key above it; 0 for what
// a flag set.
func (s source) line(path string) int {
	if s.flag(path) != "" {
		return 0
	}
	for ; path != ""; path = above(path) {
		if line := s.lines[path]; line > 0 {
			return line
		}
	}
	return 0
}

// above is the path of what the value at path is in.
func above(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

// complete fills in what follows from other keys.
func (c *Config) complete(d *decoder) {
	for i := range c.Routes {
		if r := &c.Routes[i]; r.Name == "" {
			r.Name = strings.TrimPrefix(r.Prefix, "/")
			if r.Name == "" {
				r.Name = r.Host
			}
		}
	}
	for i := range c.Egress {
		c.Egress[i].complete()
	}
	c.completeAlerts(d)
	c.upperMethods()
	if open := c.Breakers.Host.Open; !d.given("breakers.host.open_max") {
		c.Breakers.Host.OpenMax = max(c.Breakers.Host.OpenMax, open)
	}
	c.TLS.pem = nil
	for i, file := range c.TLS.CAFiles {
		path := fmt.Sprintf("tls.ca_files[%d]", i)
		data, err := d.readFile(file)
		if err != nil {
			d.fail(d.lines[path], path, "%v", err)
			continue
		}
		c.TLS.pem = append(c.TLS.pem, data)
	}
}

// upperMethods writes methods as they go over the wire: get is meant as GET.
func (c *Config) upperMethods() {
	for i := range c.RetryPolicies {
		upper(c.RetryPolicies[i].SafeMethods)
		upper(c.RetryPolicies[i].Match.Method)
		for j := range c.RetryPolicies[i].Variants {
			upper(c.RetryPolicies[i].Variants[j].SafeMethods)
		}
	}
	for i := range c.Retries.Scopes {
		upper(c.Retries.Scopes[i].Match.Method)
	}
}

func upper(list []string) {
	for i, s := range list {
		list[i] = strings.ToUpper(s)
	}
}
