package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Options are what reading a configuration needs from the outside.
type Options struct {
	Getenv   func(string) string          // for ${NAME}; nil: os.Getenv
	ReadFile func(string) ([]byte, error) // for file: and ca_files; nil: os.ReadFile
	// Adjust is applied between the file and the checks: command-line flags. May be nil.
	Adjust func(*Config)
}

// Problem is one fault of a configuration.
type Problem struct {
	File string
	Line int    // 0: unknown, the value is not in the file
	Path string // such as retry_policies[2].max_delay; empty: the file itself
	Rule string // what is wrong, in words
}

// Error is file:line: path: rule.
func (p Problem) Error() string {
	var out strings.Builder
	out.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&out, ":%d", p.Line)
	}
	if p.Path != "" {
		out.WriteString(": " + p.Path)
	}
	out.WriteString(": " + p.Rule)
	return out.String()
}

// source is what is known about the file a configuration came from.
type source struct {
	file  string
	lines map[string]int
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
	c := Default()
	d := newDecoder(opt)
	if root != nil {
		d.decode(root, "", valueOf(c))
	}
	c.source = source{name, d.lines}
	if opt.Adjust != nil {
		opt.Adjust(c)
	}
	c.complete(d)
	if err := c.join(append(d.problems, without(c.check(), d.problems)...)); err != nil {
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
	d := &decoder{getenv: opt.Getenv, readFile: opt.ReadFile, lines: map[string]int{}}
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
	errs := make([]error, len(problems))
	for i, p := range problems {
		p.File = c.source.file
		errs[i] = p
	}
	return errors.Join(errs...)
}

// line is where path stands in the file, or the nearest key above it.
func (s source) line(path string) int {
	for path != "" {
		if line := s.lines[path]; line > 0 {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 0
}

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
