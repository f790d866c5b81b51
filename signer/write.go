package signer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// edit puts other bytes where a value stands.
type edit struct {
	value
	bytes []byte
}

// edits are changes of one request.
type edits []edit

// set changes a value to text. One that says so already keeps its bytes, and so
// does what is no value: an object, a list, a name without =.
func (e *edits) set(r *Request, v value, text string) {
	twice := slices.ContainsFunc(*e, func(c edit) bool { return c.in == v.in && c.at == v.at })
	if v.text == text || v.nested || v.bare || twice {
		return
	}
	var b []byte
	switch v.in {
	case inQuery:
		b = encode([]byte(r.Target[v.at:v.end]), text)
	case inForm:
		b = encode(r.Body[v.at:v.end], text)
	case inJSON:
		b = encodeJSON(v, text)
	default:
		b = []byte(text)
	}
	*e = append(*e, edit{v, b})
}

// apply gives the request with its changes. What did not change is shared with r.
func (e edits) apply(r *Request) Request {
	out := *r
	slices.SortFunc(e, func(a, b edit) int { return b.at - a.at }) // from the end: positions before it hold
	for _, c := range e {
		switch c.in {
		case inQuery:
			out.Target = out.Target[:c.at] + string(c.bytes) + out.Target[c.end:]
		case inHeader:
			out.Fields = out.Fields.Clone(0)
			out.Fields[c.at].Value = string(c.bytes)
		default:
			out.Body = slices.Concat(out.Body[:c.at], c.bytes, out.Body[c.end:])
		}
	}
	return out
}

// encode writes text for a form as the old value was written: every character
// that both have looks as before, so %20 or +, %3a or %3A, : or %3A stay the client's.
func encode(old []byte, text string) []byte {
	var seen [256]string
	lower := false
	for i := 0; i < len(old); {
		c, size := decodeByte(old[i:])
		seen[c] = string(old[i : i+size])
		lower = lower || size == 3 && seen[c] != strings.ToUpper(seen[c])
		i += size
	}
	out := make([]byte, 0, len(text))
	for i := range len(text) {
		c := text[i]
		switch {
		case seen[c] != "" && seen[c] != "%": // a broken escape is no pattern
			out = append(out, seen[c]...)
		case c == ' ':
			out = append(out, '+')
		case isUnreserved(c):
			out = append(out, c)
		case lower:
			out = fmt.Appendf(out, "%%%02x", c)
		default:
			out = fmt.Appendf(out, "%%%02X", c)
		}
	}
	return out
}

func isUnreserved(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("-_.~", c) >= 0
}

// encodeJSON writes text as a string, or as a number where the old value was one.
func encodeJSON(old value, text string) []byte {
	if !old.quoted && text != "" && json.Valid([]byte(text)) && strings.Trim(text, "0123456789") == "" {
		return []byte(text)
	}
	b := []byte{'"'}
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
