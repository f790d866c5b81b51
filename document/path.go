// Package document answers one question: what stands at a place of a message?
//
// A document is JSON text (RFC 8259). It is read where it lies: numbers keep their
// digits. A named step takes the first of members with the same name.
package document

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// ErrPath is wrapped by what ParsePath refuses.
var ErrPath = errors.New(`want a path such as $.a.b, $.list[0].x, $.list[*].x, $.*.x, $["odd key"] or one $..x`)

// Path says where in a document something stands. The zero Path stands nowhere.
type Path struct {
	text  string
	steps []step
	names []string // their ends and quotes, as they stand in a document without escapes; the last first
}

// step goes from a value to values in it.
type step struct {
	kind  stepKind
	name  string
	index int
}

type stepKind uint8

const (
	toMember    stepKind = iota // name
	toAny                       // * and [*]
	toItem                      // index
	toDepth                     // ..name: at any depth
	mostSteps   = 32
	deepest     = 200 // nesting that is gone down to
	longestPath = 1 << 10
)

// ParsePath reads a path. The error wraps ErrPath and says where it stops to make sense.
func ParsePath(text string) (Path, error) {
	p := Path{text: text}
	rest, ok := strings.CutPrefix(text, "$")
	if !ok || len(text) > longestPath {
		return Path{}, fmt.Errorf("%w, not %q", ErrPath, text)
	}
	deep := false
	for rest != "" {
		s, after, ok := takeStep(rest)
		// A second .. would find the same values again, and take the depth squared.
		if !ok || len(p.steps) == mostSteps || deep && s.kind == toDepth {
			return Path{}, fmt.Errorf("%w; %q makes no sense from %q on", ErrPath, text, rest)
		}
		p.steps, rest, deep = append(p.steps, s), after, deep || s.kind == toDepth
		if s.name != "" && plain(s.name) {
			p.names = append(p.names, rareEnd(s.name)+`"`)
		}
	}
	slices.Reverse(p.names) // the last ones are the rarest
	return p, nil
}

// plain says whether a name is written either as it is or with a \u00 escape.
func plain(name string) bool {
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '/' {
			return false
		}
	}
	return true
}

// takeStep takes the first step off.
func takeStep(text string) (s step, rest string, ok bool) {
	switch {
	case strings.HasPrefix(text, ".."):
		s.kind, s.name, rest = toDepth, "", text[2:]
		s.name, rest = takeName(rest)
		return s, rest, s.name != "" && s.name != "*"
	case text[0] == '.':
		s.name, rest = takeName(text[1:])
		if s.name == "*" {
			return step{kind: toAny}, rest, true
		}
		return s, rest, s.name != ""
	case strings.HasPrefix(text, `["`):
		quoted, err := strconv.QuotedPrefix(text[1:])
		if err != nil {
			return s, "", false
		}
		s.name, err = strconv.Unquote(quoted)
		rest, ok = strings.CutPrefix(text[1+len(quoted):], "]")
		return s, rest, ok && err == nil
	case text[0] == '[':
		inside, after, closed := strings.Cut(text[1:], "]")
		if inside == "*" {
			return step{kind: toAny}, after, closed
		}
		n, err := strconv.ParseUint(inside, 10, 31)
		return step{kind: toItem, index: int(n)}, after, closed && err == nil
	}
	return s, "", false
}

// takeName takes a plain name, up to the next step.
func takeName(text string) (name, rest string) {
	if i := strings.IndexAny(text, ".["); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

// commonLetters of names, the most common first.
const commonLetters = "eaorisntdcu_lpmg"

// rareEnd is a name from its rarest letter on, of three letters at least: strings.Index
// stops wherever the first one stands.
func rareEnd(name string) string {
	best, rarest := 0, -1
	for i := 0; i == 0 || i <= len(name)-3; i++ {
		at := strings.IndexByte(commonLetters, name[i])
		if at < 0 {
			at = len(commonLetters)
		}
		if at > rarest {
			best, rarest = i, at
		}
	}
	return name[best:]
}

// String is the path as it was written.
func (p Path) String() string { return p.text }

// IsZero says that the path was not set.
func (p Path) IsZero() bool { return p.text == "" }

// UnmarshalText reads a path.
func (p *Path) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePath(string(text))
	return err
}

// MarshalText writes the path.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// Kind is what a Value is.
type Kind uint8

// Kinds of values.
const (
	Null Kind = iota
	Bool
	Number
	String
	Object
	Array
)

// Value is one that stands in a document.
type Value struct {
	Kind Kind
	// Text is the value for comparing: a number as it is written, a string without its
	// escapes and the white space around it, true or false; empty for null. Of objects
	// and arrays it is their JSON.
	Text string
	Raw  string // as it stands there
}

func valueOf(r *gjson.Result) Value {
	v := Value{Raw: strings.TrimRight(r.Raw, " \t\r\n")} // that of a whole document has what stands after it
	switch r.Type {
	case gjson.True, gjson.False:
		v.Kind, v.Text = Bool, v.Raw
	case gjson.Number:
		v.Kind, v.Text = Number, v.Raw
	case gjson.String:
		v.Kind, v.Text = String, strings.TrimSpace(r.Str)
	case gjson.JSON:
		v.Kind, v.Text = Object, v.Raw
		if r.IsArray() {
			v.Kind = Array
		}
	}
	return v
}

const byteOrderMark = "\ufeff"

// Valid says whether doc is one JSON value, a byte order mark before it allowed, and not
// nested too deep.
func Valid(doc string) bool {
	doc = strings.TrimPrefix(doc, byteOrderMark)
	return !tooDeep(doc) && gjson.Valid(doc)
}

// tooDeep counts brackets outside of strings.
func tooDeep(doc string) bool {
	if strings.Count(doc, "{")+strings.Count(doc, "[") <= deepest { // as nearly always, and quick
		return false
	}
	depth := 0
	for i := 0; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			for i++; i < len(doc) && doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > deepest {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// First is the first value that stands at the path in a valid document.
func (p Path) First(doc string) (v Value, ok bool) {
	p.Each(doc, func(found Value) bool {
		v, ok = found, true
		return false
	})
	return v, ok
}

// Each gives the values that stand at the path in a valid document, as long as do
// returns true.
func (p Path) Each(doc string, do func(Value) (more bool)) {
	if p.text == "" || !p.mayBeIn(doc) {
		return
	}
	root := gjson.Parse(strings.TrimPrefix(doc, byteOrderMark))
	walk(&root, p.steps, do)
}

// mayBeIn says whether the document has the names of the path anywhere: as a rule that
// is much sooner known than that nothing stands at the path.
func (p Path) mayBeIn(doc string) bool {
	for _, name := range p.names {
		if !strings.Contains(doc, name) {
			return strings.Contains(doc, escapedName)
		}
	}
	return true
}

// escapedName begins what may be a character of a name.
const escapedName = `\u00`

// walk goes the steps from r; false: enough.
func walk(r *gjson.Result, steps []step, do func(Value) bool) (more bool) {
	if len(steps) == 0 {
		return do(valueOf(r))
	}
	s := &steps[0]
	switch {
	case s.kind == toDepth:
		return dive(r, steps, do)
	case s.kind == toMember && !r.IsObject(), s.kind == toItem && !r.IsArray(), r.Type != gjson.JSON:
		return true
	}
	more, at := true, 0
	r.ForEach(func(key, value gjson.Result) bool {
		here := s.kind == toAny || s.kind == toMember && key.Str == s.name || s.kind == toItem && at == s.index
		at++
		if here {
			more = walk(&value, steps[1:], do)
		}
		return more && (!here || s.kind == toAny)
	})
	return more
}

// dive looks for the member at any depth.
func dive(r *gjson.Result, steps []step, do func(Value) bool) (more bool) {
	if r.Type != gjson.JSON {
		return true
	}
	more = true
	object := r.IsObject()
	r.ForEach(func(key, value gjson.Result) bool {
		if object && key.Str == steps[0].name {
			more = walk(&value, steps[1:], do)
		}
		if more {
			more = dive(&value, steps, do)
		}
		return more
	})
	return more
}

// Unpack gives a valid document with the strings at these paths that hold JSON replaced
// by that JSON. Others stay as they are, and so does all where it would nest too deep.
func Unpack(doc string, paths []Path) string {
	for i := range paths {
		doc = paths[i].unpack(doc)
	}
	return doc
}

func (p Path) unpack(doc string) string {
	if !p.mayBeIn(doc) {
		return doc
	}
	root := gjson.Parse(strings.TrimPrefix(doc, byteOrderMark))
	out, changed := opened(&root, p.steps)
	if !changed || tooDeep(out) {
		return doc
	}
	return out
}

// opened is the text of r with the JSON in strings at steps opened.
func opened(r *gjson.Result, steps []step) (text string, changed bool) {
	if len(steps) == 0 {
		inner := strings.TrimSpace(r.Str)
		if r.Type == gjson.String && inner != "" && (inner[0] == '{' || inner[0] == '[') && Valid(inner) {
			return inner, true
		}
		return r.Raw, false
	}
	var out strings.Builder
	done := 0 // of r.Raw
	eachChild(r, func(key, value *gjson.Result, at int) {
		s, here := &steps[0], false
		switch s.kind {
		case toMember:
			here = key.Exists() && key.Str == s.name
		case toItem:
			here = !key.Exists() && at == s.index
		case toAny:
			here = true
		}
		next := steps[1:]
		if s.kind == toDepth {
			if here = true; !key.Exists() || key.Str != s.name {
				next = steps
			}
		}
		end := done
		if key.Exists() {
			end += strings.Index(r.Raw[end:], key.Raw) + len(key.Raw)
		}
		end += strings.Index(r.Raw[end:], value.Raw) // only punctuation stands between
		if here {
			if inner, opens := opened(value, next); opens {
				out.WriteString(r.Raw[done:end])
				out.WriteString(inner)
				done, changed = end+len(value.Raw), true
				return
			}
		}
		out.WriteString(r.Raw[done : end+len(value.Raw)])
		done = end + len(value.Raw)
	})
	out.WriteString(r.Raw[done:])
	return out.String(), changed
}

// eachChild visits the members or items of r; a key that does not exist is that of an item.
func eachChild(r *gjson.Result, do func(key, value *gjson.Result, at int)) {
	if r.Type != gjson.JSON {
		return
	}
	object, at := r.IsObject(), 0
	r.ForEach(func(key, value gjson.Result) bool {
		if !object {
			key = gjson.Result{}
		}
		do(&key, &value, at)
		at++
		return true
	})
}
