package signer

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions here walk JSON that json.Valid has accepted, and look at its
// bytes only: a decoded and encoded value is another text, with other members
// first, 1.0 as 1 and < as \u003c, and another text has another signature.

// member is where a name, with its quotes, and its value stand.
type member struct{ nameAt, nameEnd, at, end int }

// members lists those of the object that begins at b[i].
func members(b []byte, i int) []member {
	var list []member
	for i = skipSpace(b, i+1); b[i] != '}'; {
		m := member{nameAt: i, nameEnd: skipString(b, i)}
		m.at = skipSpace(b, skipSpace(b, m.nameEnd)+1) // after the colon
		m.end = skipValue(b, m.at)
		list = append(list, m)
		i = skipComma(b, m.end)
	}
	return list
}

// skipComma goes from the end of a value to the next one, or to the bracket that closes.
func skipComma(b []byte, i int) int {
	if i = skipSpace(b, i); b[i] == ',' {
		return skipSpace(b, i+1)
	}
	return i
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skipValue is where the value that begins at b[i] ends.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	for i < len(b) && !strings.ContainsRune(",]} \t\r\n", rune(b[i])) {
		i++
	}
	return i
}

func skipString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func skipNested(b []byte, i int) int {
	for depth := 0; ; i++ {
		switch b[i] {
		case '"':
			i = skipString(b, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
}

// text is what a value says: the content of a string, nothing for null, else the
// bytes as they are.
func text(raw []byte) string {
	switch {
	case raw[0] == 'n':
		return ""
	case raw[0] != '"':
		return string(raw)
	case !slices.Contains(raw, '\\'):
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw[1 : len(raw)-1]) // not reached: raw is valid
	}
	return s
}

// form is a way to write a nested value into the text that is signed. Which one
// a client used shows only in its signature.
type form struct {
	asSent bool // byte for byte, white space included
	sorted bool // members by name, at every depth
	plain  bool // characters instead of the escapes that JSON does not need
}

// sortedDepth is how deep members are sorted: each level reads the ones below it again.
const sortedDepth = 64

// in writes a value in this form.
func (f form) in(raw []byte) string {
	switch {
	case f.asSent:
		return string(raw)
	case f.sorted:
		return string(f.appendSorted(make([]byte, 0, len(raw)), raw, sortedDepth))
	}
	return string(f.appendCompact(make([]byte, 0, len(raw)), raw))
}

// appendCompact leaves out the white space between values.
func (f form) appendCompact(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		switch c := raw[i]; c {
		case ' ', '\t', '\r', '\n':
			i++
		case '"':
			end := skipString(raw, i)
			dst = f.appendString(dst, raw[i:end])
			i = end
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

func (f form) appendString(dst, raw []byte) []byte {
	if f.plain {
		return appendPlain(dst, raw)
	}
	return append(dst, raw...)
}

// appendSorted sorts the members as well, depth levels deep.
func (f form) appendSorted(dst, raw []byte, depth int) []byte {
	switch {
	case depth > 0 && raw[0] == '{':
		return f.appendObject(dst, raw, depth-1)
	case depth > 0 && raw[0] == '[':
		return f.appendList(dst, raw, depth-1)
	}
	return f.appendCompact(dst, raw)
}

func (f form) appendObject(dst, raw []byte, depth int) []byte {
	list := members(raw, 0)
	slices.SortStableFunc(list, func(a, b member) int {
		return strings.Compare(text(raw[a.nameAt:a.nameEnd]), text(raw[b.nameAt:b.nameEnd]))
	})
	dst = append(dst, '{')
	for i, m := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(f.appendString(dst, raw[m.nameAt:m.nameEnd]), ':')
		dst = f.appendSorted(dst, raw[m.at:m.end], depth)
	}
	return append(dst, '}')
}

func (f form) appendList(dst, raw []byte, depth int) []byte {
	dst = append(dst, '[')
	for i := skipSpace(raw, 1); raw[i] != ']'; {
		end := skipValue(raw, i)
		dst = f.appendSorted(dst, raw[i:end], depth)
		if i = skipComma(raw, end); raw[i] != ']' {
			dst = append(dst, ',')
		}
	}
	return append(dst, ']')
}

// appendPlain writes a JSON string with no escape but those that it needs.
func appendPlain(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			i++
			continue
		}
		r, size := unescape(raw[i:])
		if r < 0 {
			dst = append(dst, raw[i:i+size]...)
		} else {
			dst = utf8.AppendRune(dst, r)
		}
		i += size
	}
	return dst
}

// unescape reads one escape: its character, or -1 where it has to stay one.
func unescape(b []byte) (r rune, size int) {
	switch b[1] {
	case '/':
		return '/', 2
	case 'u':
		r, size = hex4(b), 6
		if utf16.IsSurrogate(r) && len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
			if pair := utf16.DecodeRune(r, hex4(b[6:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		if r < ' ' || r == '"' || r == '\\' || utf16.IsSurrogate(r) {
			return -1, size
		}
		return r, size
	}
	return -1, 2
}

// hex4 reads the digits of \uXXXX.
func hex4(b []byte) (r rune) {
	for _, c := range b[2:6] {
		r <<= 4
		switch {
		case c <= '9':
			r |= rune(c - '0')
		default:
			r |= rune(c|0x20-'a') + 10
		}
	}
	return r
}

// inText writes a text that may be JSON in this form; another one stays.
func (f form) inText(s string) string {
	if b := bytes.TrimSpace([]byte(s)); !f.asSent && json.Valid(b) {
		return f.in(b)
	}
	return s
}
