package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// maxText bounds a text of a template, in bytes, and what it may become.
const (
	maxText  = 64 << 10
	maxBuilt = 1 << 20
)

// text is a text with placeholders. The zero value is empty.
type text struct {
	source string
	parts  []part
}

// part is a literal or a placeholder, and how its value is escaped.
type part struct {
	literal string
	holder  *holder // nil: literal
	form    form
}

// Header is the value of a header field.
type Header struct{ text }

// Query is the value of a query parameter or form field.
type Query struct{ text }

// Body is a body. Values are escaped where a header says that it is XML; elsewhere
// they must be free of control characters.
type Body struct{ text }

// Value is a text that is looked at, and goes nowhere.
type Value struct{ text }

// JSON is a JSON text: placeholders in a string are part of it, others are numbers,
// true, false or null, and those that read JSON also objects and lists.
type JSON struct{ text }

// URL is an absolute http or https URL with placeholders in its path and query.
type URL struct {
	text
	scheme, authority string
}

// String is the text as it was written.
func (t text) String() string { return t.source }

// MarshalText is the text as it was written.
func (t text) MarshalText() ([]byte, error) { return []byte(t.source), nil }

func (t *text) empty() bool { return t.source == "" }

// UnmarshalText reads the value of a header field.
func (h *Header) UnmarshalText(b []byte) (err error) {
	h.text, err = parse(string(b), inHeader)
	for _, p := range h.parts {
		if err == nil && hasControls(p.literal) {
			err = errors.New("a header holds no line break or other control character")
		}
	}
	return err
}

// UnmarshalText reads the value of a query parameter or form field.
func (q *Query) UnmarshalText(b []byte) (err error) {
	q.text, err = parse(string(b), inQuery)
	for i := range q.parts { // what is written here is a value too
		q.parts[i].literal = url.QueryEscape(q.parts[i].literal)
	}
	return err
}

// UnmarshalText reads a body.
func (x *Body) UnmarshalText(b []byte) (err error) {
	x.text, err = parse(string(b), inText)
	return err
}

// UnmarshalText reads a text that is only looked at.
func (v *Value) UnmarshalText(b []byte) (err error) {
	v.text, err = parse(string(b), inText)
	return err
}

// UnmarshalText reads a JSON text.
func (j *JSON) UnmarshalText(b []byte) (err error) {
	if j.text, err = parse(string(b), bareJSON); err != nil {
		return err
	}
	var sample strings.Builder
	quoted, escaped := false, false
	for i := range j.parts {
		p := &j.parts[i]
		switch {
		case p.holder == nil:
			sample.WriteString(p.literal)
			quoted, escaped = afterJSON(p.literal, quoted, escaped)
		case quoted:
			p.form = inJSON
			sample.WriteString("x")
		default:
			sample.WriteString("0")
		}
	}
	if !json.Valid([]byte(sample.String())) {
		return errors.New("is not valid JSON; a placeholder stands for a text inside quotes, for a number outside")
	}
	return nil
}

// afterJSON says whether a JSON text goes on inside a string, and after a backslash.
func afterJSON(s string, quoted, escaped bool) (bool, bool) {
	for i := range len(s) {
		switch {
		case escaped:
			escaped = false
		case quoted && s[i] == '\\':
			escaped = true
		case s[i] == '"':
			quoted = !quoted
		}
	}
	return quoted, escaped
}

// Host is the host and, where it is named, the port.
func (u URL) Host() string { return u.authority }

// UnmarshalText reads a URL.
func (u *URL) UnmarshalText(b []byte) (err error) {
	source := string(b)
	scheme, rest, _ := strings.Cut(source, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, target := rest[:end], rest[end:]
	if target == "" || target[0] != '/' {
		target = "/" + target
	}
	parsed, err := url.Parse(scheme + "://" + authority)
	switch {
	case scheme != "http" && scheme != "https", err != nil, authority == "", parsed != nil && parsed.Hostname() == "":
		return errors.New("must be an absolute http or https URL without placeholders in its host")
	case strings.Contains(authority, "@"):
		return errors.New("holds no user and password; use headers")
	}
	if u.text, err = parse(target, inPath); err != nil {
		return err
	}
	u.source, u.scheme, u.authority = source, scheme, authority
	query := false
	for i := range u.parts {
		p := &u.parts[i]
		if query {
			p.form = inQuery
		}
		query = query || strings.Contains(p.literal, "?")
		if strings.ContainsFunc(p.literal, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) {
			return errors.New("a URL holds no spaces, characters beyond ASCII, or #; write them as %20")
		}
	}
	return nil
}

// parse reads a text whose placeholders stand as form says.
func parse(source string, as form) (text, error) {
	t := text{source: source}
	if len(source) > maxText {
		return t, fmt.Errorf("is longer than %d bytes", maxText)
	}
	literal := ""
	for rest := source; rest != ""; {
		i := strings.IndexByte(rest, '{')
		if i < 0 {
			literal += rest
			break
		}
		literal, rest = literal+rest[:i], rest[i:]
		if strings.HasPrefix(rest, "{{") {
			literal, rest = literal+"{", rest[2:]
			continue
		}
		if !opens(rest) {
			literal, rest = literal+"{", rest[1:]
			continue
		}
		h, n, err := parseHolder(rest)
		if err != nil {
			return t, err
		}
		if literal != "" {
			t.parts = append(t.parts, part{literal: literal})
		}
		t.parts = append(t.parts, part{holder: h, form: as})
		literal, rest = "", rest[n:]
	}
	if literal != "" {
		t.parts = append(t.parts, part{literal: literal})
	}
	return t, nil
}

// opens says whether a brace opens a placeholder: a letter follows, as it does
// nowhere in JSON.
func opens(s string) bool {
	return len(s) > 1 && (s[1] >= 'a' && s[1] <= 'z' || s[1] >= 'A' && s[1] <= 'Z')
}

// tables are the names of those that the text looks up in.
func (t *text) tables() (names []string) {
	for _, p := range t.parts {
		if p.holder == nil {
			continue
		}
		for _, s := range p.holder.steps {
			if s.table != "" {
				names = append(names, s.table)
			}
		}
	}
	return names
}

func hasControls(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
