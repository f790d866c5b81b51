package config

import (
	"encoding"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"retryproxy/policy"
)

// decoder lays a document over a value that holds the defaults. It goes on after
// a fault, so that all are reported at once.
type decoder struct {
	getenv   func(string) string
	readFile func(string) ([]byte, error)
	standIn  string          // see Options
	lines    map[string]int  // of every path in the document
	unknown  map[string]bool // paths of values with standIn in them
	problems []Problem
}

// A decodable type has a form of its own in the file.
type decodable interface {
	decode(d *decoder, n *yaml.Node, path string)
}

// fail notes a fault.
func (d *decoder) fail(line int, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{Line: line, Path: path, Rule: fmt.Sprintf(format, args...)})
}

// given says whether the document has this path.
func (d *decoder) given(path string) bool { return d.lines[path] > 0 }

// valueOf is the settable value behind p.
func valueOf(p any) reflect.Value { return reflect.ValueOf(p).Elem() }

// resolve follows an alias; an alias never leads to another one.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// decode lays node n over v.
func (d *decoder) decode(n *yaml.Node, path string, v reflect.Value) {
	n = resolve(n)
	if !d.given(path) {
		d.lines[path] = n.Line
	}
	if own, ok := v.Addr().Interface().(decodable); ok {
		own.decode(d, n, path)
		return
	}
	switch {
	case isScalar(v):
		d.scalar(n, path, v)
	case v.Kind() == reflect.Struct:
		d.object(n, path, v)
	case v.Kind() == reflect.Map:
		d.table(n, path, v)
	default:
		d.list(n, path, v)
	}
}

// isScalar says whether v is written as one scalar.
func isScalar(v reflect.Value) bool {
	switch v.Addr().Interface().(type) {
	case *time.Time, *netip.Prefix, *policy.HourRange, encoding.TextUnmarshaler:
		return true
	}
	return v.Kind() != reflect.Struct && v.Kind() != reflect.Map && v.Kind() != reflect.Slice
}

// object reads a mapping with fixed keys over a struct.
func (d *decoder) object(n *yaml.Node, path string, v reflect.Value) {
	d.pairs(n, path, func(key *yaml.Node, value *yaml.Node, at string) { d.member(key, value, at, v) })
}

// member reads one key of a mapping into its field of struct v. further are keys
// that are known as well, for the hint where this one is not.
func (d *decoder) member(key, value *yaml.Node, at string, v reflect.Value, further ...string) {
	i := field(v.Type(), key.Value)
	if i < 0 {
		d.fail(key.Line, at, "unknown key%s", suggestion(v.Type(), key.Value, further...))
		return
	}
	d.decode(value, at, v.Field(i))
}

// table reads a mapping with free keys over a map; entries merge.
func (d *decoder) table(n *yaml.Node, path string, v reflect.Value) {
	merged := reflect.MakeMap(v.Type())
	for _, k := range v.MapKeys() {
		merged.SetMapIndex(k, v.MapIndex(k))
	}
	d.pairs(n, path, func(key *yaml.Node, value *yaml.Node, at string) {
		k, item := reflect.ValueOf(key.Value), reflect.New(v.Type().Elem()).Elem()
		if old := merged.MapIndex(k); old.IsValid() {
			item.Set(old)
		}
		d.decode(value, at, item)
		merged.SetMapIndex(k, item)
	})
	v.Set(merged)
}

// pairs calls visit for each key of a mapping. A key twice is a fault.
func (d *decoder) pairs(n *yaml.Node, path string, visit func(key, value *yaml.Node, at string)) {
	if !d.isKind(n, yaml.MappingNode, path) {
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := resolve(n.Content[i])
		at := join(path, key.Value)
		switch {
		case key.Kind != yaml.ScalarNode:
			d.fail(key.Line, path, "a key must be a plain word")
		case first[key.Value] > 0:
			d.fail(key.Line, at, "key is already in line %d", first[key.Value])
		default:
			first[key.Value] = key.Line
			d.lines[at] = key.Line
			visit(key, n.Content[i+1], at)
		}
	}
}

// list reads a sequence, which replaces what v held. Patterns, names, hours and
// proxies may also be a single value.
func (d *decoder) list(n *yaml.Node, path string, v reflect.Value) {
	switch v.Interface().(type) {
	case Patterns, Hours, Names, ProxyURLs:
		if n.Kind != yaml.SequenceNode {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			d.item(n, path, v.Index(0))
			return
		}
	}
	if !d.isKind(n, yaml.SequenceNode, path) {
		return
	}
	v.SetZero()
	for i, item := range n.Content {
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		d.item(item, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
	}
}

// item reads one entry of a list over its type's defaults.
func (d *decoder) item(n *yaml.Node, path string, v reflect.Value) {
	if own, ok := v.Addr().Interface().(interface{ Defaults() }); ok {
		own.Defaults()
	}
	d.decode(n, path, v)
}

// isKind checks what a node is; a key without a value counts as a wrong type.
func (d *decoder) isKind(n *yaml.Node, want yaml.Kind, path string) bool {
	if n.Kind != want {
		d.fail(d.line(n, path), path, "want %s, not %s", kindName(want), describe(n))
	}
	return n.Kind == want
}

// line is where path is named, which for a block is the line above its value.
func (d *decoder) line(n *yaml.Node, path string) int {
	if d.given(path) {
		return d.lines[path]
	}
	return n.Line
}

// scalar reads one value into v.
func (d *decoder) scalar(n *yaml.Node, path string, v reflect.Value) bool {
	faults := len(d.problems)
	if !d.isKind(n, yaml.ScalarNode, path) {
		return false
	}
	text, tag, err := d.expand(n)
	if err == nil {
		err = d.set(text, tag, v)
		d.unknown[path] = d.standIn != "" && strings.Contains(text, d.standIn)
	}
	if want, ok := errors.AsType[wantError](err); ok {
		err = fmt.Errorf("%w, not %q", want, shorten(text))
	}
	if err != nil {
		d.fail(d.line(n, path), path, "%v", err)
	}
	return len(d.problems) == faults
}

// set parses text for the type of v.
func (d *decoder) set(text, tag string, v reflect.Value) (err error) {
	if tag == "!!null" {
		return errors.New("has no value")
	}
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		*p, err = parseDuration(text)
	case *time.Time:
		*p, err = parseTime(text)
	case *netip.Prefix:
		*p, err = parsePrefix(text)
	case *policy.HourRange:
		*p, err = parseHours(text)
	case *Size:
		*p, err = parseSize(text)
	case *rateText:
		*p = rateText(text)
		_, err = parseRate(text)
	case *Secret:
		*p, err = d.secret(text)
	case *Login:
		var s Secret
		s, err = d.secret(text)
		*p = Login(s)
	case encoding.TextUnmarshaler: // of a package that reads its own files with Decode
		err = p.UnmarshalText([]byte(text))
	default:
		err = setBasic(text, tag, v)
	}
	return err
}

// setBasic parses text for a bool, a number or a string. Numbers and dates are
// fine as strings (shop: 17), true and false are not.
func setBasic(text, tag string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Bool:
		if tag != "!!bool" {
			return wantError("want true or false")
		}
		v.SetBool(strings.EqualFold(text, "true"))
	case reflect.Int:
		i, err := strconv.Atoi(text)
		if err != nil || tag != "!!int" {
			return wantError("want a whole number")
		}
		v.SetInt(int64(i))
	case reflect.Float64:
		f, err := parseNumber(text)
		if err != nil || (tag != "!!int" && tag != "!!float") {
			return wantError("want a number of 0 or more")
		}
		v.SetFloat(f)
	default:
		if tag == "!!bool" {
			return fmt.Errorf("want text, not %s; put it in quotes", text)
		}
		v.SetString(text)
	}
	return nil
}

// parseTime reads a date with its zone.
func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, wantError("want a time such as 2026-12-01T02:00:00+08:00")
	}
	return t, nil
}

// join adds a key to a path; one that is no plain word is quoted.
func join(path, key string) string {
	if strings.ContainsAny(key, ".[]\" \n") || key == "" {
		return fmt.Sprintf("%s[%q]", path, withoutLogin(key))
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// kindName is what a node of this kind is called.
func kindName(k yaml.Kind) string {
	switch k {
	case yaml.MappingNode:
		return "keys with values"
	case yaml.SequenceNode:
		return "a list"
	}
	return "a single value"
}

// describe says what a node holds instead of what was wanted.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		return kindName(n.Kind)
	case n.ShortTag() == "!!null":
		return "nothing"
	}
	return strconv.Quote(shorten(n.Value))
}

// shorten keeps a message readable, and a password that stands where it should
// not out of it.
func shorten(text string) string {
	text = withoutLogin(text)
	if len(text) > 60 {
		return text[:60] + "…"
	}
	return text
}

// withoutLogin hides user:password@, with what is before it.
func withoutLogin(text string) string {
	if at := strings.LastIndexByte(text, '@'); at >= 0 && strings.Contains(text[:at], ":") {
		return hiddenSecret + text[at:]
	}
	return text
}
