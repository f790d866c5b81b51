package idempotency

import (
	"bytes"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
)

// maxName is the longest name that is compared with the ignored ones, in bytes
// as sent. A longer form field or query parameter is kept, a longer JSON name
// makes the body count whole.
const maxName = 1024

// pairs passes on a form or a query less its ignored pairs; each pair that
// stays ends in &.
type pairs struct {
	out     io.Writer
	ignore  []string
	name    []byte // of the current pair as far as it came; while inValue empty
	inValue bool
	keep    bool // the current value
	any     bool
}

// lessPairs is a query less its ignored parameters; empty when nothing is left.
func lessPairs(query string, ignore []string) string {
	var out strings.Builder
	p := pairs{out: &out, ignore: ignore}
	p.write([]byte(query))
	p.any = true // "?" alone is a query
	p.end()
	return out.String()
}

func (p *pairs) write(b []byte) {
	p.any = p.any || len(b) > 0
	for len(b) > 0 {
		if p.inValue {
			b = p.value(b)
		} else {
			b = p.nameOf(b)
		}
	}
}

// nameOf takes bytes of a name and returns what follows them.
func (p *pairs) nameOf(b []byte) []byte {
	n := bytes.IndexAny(b, "=&")
	whole := n >= 0
	if !whole {
		n = len(b)
	}
	n = min(n, maxName+1-len(p.name))
	p.name = append(p.name, b[:n]...)
	if whole || len(p.name) > maxName {
		p.decide()
	}
	return b[n:]
}

// decide ends the name: the pair is passed on or dropped.
func (p *pairs) decide() {
	p.keep = len(p.name) > maxName || !p.ignored()
	if p.keep {
		_, _ = p.out.Write(p.name) // a hash never fails
	}
	p.name, p.inValue = p.name[:0], true
}

func (p *pairs) ignored() bool {
	if bytes.IndexByte(p.name, '%') < 0 && bytes.IndexByte(p.name, '+') < 0 {
		return contains(p.ignore, p.name)
	}
	name, err := url.QueryUnescape(string(p.name))
	return err == nil && slices.Contains(p.ignore, name)
}

func contains(names []string, name []byte) bool {
	for _, n := range names {
		if n == string(name) {
			return true
		}
	}
	return false
}

// value takes bytes from = (or more of a long name) to & and returns what
// follows them.
func (p *pairs) value(b []byte) []byte {
	n := bytes.IndexByte(b, '&') + 1
	p.inValue = n == 0
	if n == 0 {
		n = len(b)
	}
	if p.keep {
		_, _ = p.out.Write(b[:n])
	}
	return b[n:]
}

func (p *pairs) end() bool {
	if !p.inValue && p.any {
		p.decide()
	}
	if p.inValue && p.keep {
		_, _ = io.WriteString(p.out, "&")
	}
	return true
}

// members passes on a JSON object less its ignored top-level members; each
// member that stays ends in a comma. It looks at brackets and strings only:
// that is enough to find where members end.
type members struct {
	out    io.Writer
	ignore []string
	at     place
	name   []byte // of the current member, with its quotes
	escape bool   // the byte before was a backslash
	quoted bool   // inside a string of a value
	depth  int    // open brackets inside a value
	keep   bool   // the current member
}

// place is where in the object the next byte stands.
type place uint8

const (
	beforeObject place = iota
	beforeFirst        // a name or the end of an empty object
	beforeName
	inName
	inMember // from the byte after the name to the comma or brace that ends it
	afterObject
	noObject
)

func (m *members) write(b []byte) {
	from := 0 // first byte of the current member that was not passed on
	for i := 0; i < len(b); i++ {
		if i += m.plain(b[i:]); i == len(b) {
			break
		}
		was := m.at
		m.step(b[i])
		switch {
		case was == inName && m.at == inMember:
			from = i + 1
		case was == inMember && m.at != inMember:
			m.pass(b[from:i])
			m.pass(comma)
		}
	}
	if m.at == inMember {
		m.pass(b[from:])
	}
}

var comma = []byte{','}

// plain is how many bytes at the front of b are text in a string of a value:
// no step is needed for them.
func (m *members) plain(b []byte) int {
	if !m.quoted || m.escape {
		return 0
	}
	for i, c := range b {
		if c == '"' || c == '\\' {
			return i
		}
	}
	return len(b)
}

func (m *members) pass(b []byte) {
	if m.keep {
		_, _ = m.out.Write(b)
	}
}

// step takes one byte.
func (m *members) step(c byte) {
	switch m.at {
	case inName:
		m.inName(c)
	case inMember:
		m.inMember(c)
	case noObject:
	default:
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			m.between(c)
		}
	}
}

// between takes a byte outside of members that is no white space.
func (m *members) between(c byte) {
	switch {
	case m.at == beforeObject && c == '{':
		m.at = beforeFirst
	case m.at == beforeFirst && c == '}':
		m.at = afterObject
	case c == '"' && (m.at == beforeFirst || m.at == beforeName):
		m.at, m.name = inName, append(m.name[:0], c)
	default:
		m.at = noObject
	}
}

func (m *members) inName(c byte) {
	if m.name = append(m.name, c); len(m.name) > maxName {
		m.at = noObject
		return
	}
	switch {
	case m.escape:
		m.escape = false
	case c == '\\':
		m.escape = true
	case c == '"':
		m.at, m.keep = inMember, !m.ignored()
		m.pass(m.name)
	}
}

func (m *members) ignored() bool {
	bare := m.name[1 : len(m.name)-1]
	if bytes.IndexByte(bare, '\\') < 0 {
		return contains(m.ignore, bare)
	}
	var name string
	return json.Unmarshal(m.name, &name) == nil && slices.Contains(m.ignore, name)
}

func (m *members) inMember(c byte) {
	if m.quoted {
		m.quoted = m.escape || c != '"'
		m.escape = !m.escape && c == '\\'
		return
	}
	switch {
	case c == '"':
		m.quoted = true
	case c == '{', c == '[':
		m.depth++
	case m.depth > 0 && (c == '}' || c == ']'):
		m.depth--
	case c == ']':
		m.at = noObject
	case m.depth == 0 && c == ',':
		m.at = beforeName
	case m.depth == 0 && c == '}':
		m.at = afterObject
	}
}

func (m *members) end() bool { return m.at == afterObject }
