package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Inside is a configuration that stands inside another file, as in a scenario of
// simulate. It is a field of what Decode reads.
type Inside struct {
	node  *yaml.Node
	place string // its path in that file
}

func (i *Inside) decode(_ *decoder, n *yaml.Node, path string) { i.node, i.place = n, path }

// Given says that the file has it.
func (i *Inside) Given() bool { return i.node != nil }

// Parse lays it over the defaults and checks it, as Parse does with a file of its
// own; one that is not given is the built-in configuration. name is that of the
// file around it.
func (i *Inside) Parse(name string, opt Options) (*Config, error) {
	return parseNode(source{file: name, place: i.place}, i.node, opt)
}

// within is a path of what stands at place.
func within(place, path string) string {
	if place == "" || path == "" || path[0] == '[' {
		return place + path
	}
	return place + "." + path
}

// Reading is a file of another kind than a configuration, read as strictly: it
// collects what is wrong with it.
type Reading struct {
	name     string
	decoder  *decoder
	problems []Problem // found by Fail
}

// Decode reads YAML or JSON over what into, a pointer to a struct with key tags,
// holds. Texts of types of its own are read by their UnmarshalText. Err tells what
// is wrong.
func Decode(name string, data []byte, into any) *Reading {
	r := &Reading{name: name, decoder: newDecoder(Options{})}
	if len(data) > maxBytes {
		r.Fail("", "larger than %d bytes", maxBytes)
		return r
	}
	root, err := document(data)
	if p, ok := errors.AsType[Problem](err); ok {
		r.problems = append(r.problems, p)
	} else if root != nil {
		r.decoder.decode(root, "", reflect.ValueOf(into).Elem())
	}
	return r
}

// Given says whether the file has this path.
func (r *Reading) Given(path string) bool { return r.decoder.given(path) }

// Fail notes what is wrong with the value at path.
func (r *Reading) Fail(path, format string, args ...any) {
	line := source{lines: r.decoder.lines}.line(path)
	r.problems = append(r.problems, Problem{Line: line, Path: path, Rule: fmt.Sprintf(format, args...)})
}

// Err joins one Problem for each fault, one a line, as the error of Parse does; nil:
// there is none.
func (r *Reading) Err() error {
	own := &Config{source: source{file: r.name, lines: r.decoder.lines}}
	return own.join(append(slices.Clone(r.decoder.problems), without(r.problems, r.decoder.problems)...))
}

// ParseDuration reads a duration as a configuration has it: 500ms, 5m, 30d, or bare
// seconds.
func ParseDuration(text string) (time.Duration, error) {
	d, err := parseDuration(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("%w, not %q", err, shorten(text))
	}
	return d, nil
}
