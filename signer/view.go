package signer

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// value is one named value of a request, and where its bytes stand.
type value struct {
	name    string
	text    string // decoded; of an object or a list its bytes
	in      source
	at, end int  // in the target or the body; of a header line its index
	quoted  bool // a JSON string
	nested  bool // a JSON object or list
	bare    bool // in a form a name without =
}

// source is the part of a request that a value stands in.
type source int

const (
	inQuery source = iota
	inForm
	inJSON
	inHeader
)

// view is a request, read once.
type view struct {
	r         *Request
	path      string
	query     []value
	body      []value // pairs of a form, or members of a JSON object
	multipart bool
	object    int // where the JSON object begins in the body; -1: the body is none
}

func newView(r *Request) *view {
	v := &view{r: r, object: -1}
	question := strings.IndexByte(r.Target, '?')
	if question < 0 {
		v.path = r.Target
	} else {
		v.path = r.Target[:question]
		v.query = pairs([]byte(r.Target), question+1, inQuery)
	}
	media := strings.ToLower(r.Fields.Get("Content-Type"))
	start := skipSpace(r.Body, 0)
	switch {
	case strings.HasPrefix(media, "multipart/"):
		v.multipart = true
	case start < len(r.Body) && r.Body[start] == '{' && json.Valid(r.Body): // whatever it is called
		v.object = start
		v.body = v.members(start)
	case media == "" || strings.HasPrefix(media, "application/x-www-form-urlencoded"):
		v.body = pairs(r.Body, 0, inForm)
	}
	return v
}

// members are the values of the JSON object that begins at i in the body.
func (v *view) members(i int) []value {
	b := v.r.Body
	var list []value
	for _, m := range members(b, i) {
		list = append(list, value{
			name: text(b[m.nameAt:m.nameEnd]), text: text(b[m.at:m.end]), in: inJSON, at: m.at, end: m.end,
			quoted: b[m.at] == '"', nested: b[m.at] == '{' || b[m.at] == '[',
		})
	}
	return list
}

// pairs reads name=value&name=value from b[i:].
func pairs(b []byte, i int, in source) []value {
	var list []value
	for i < len(b) {
		end := len(b)
		if n := bytes.IndexByte(b[i:], '&'); n >= 0 {
			end = i + n
		}
		name, _, found := bytes.Cut(b[i:end], []byte{'='})
		at := min(i+len(name)+1, end)
		if end > i {
			list = append(list, value{name: decode(name), text: decode(b[at:end]), in: in, at: at, end: end, bare: !found})
		}
		i = end + 1
	}
	return list
}

// decode undoes the escapes of a form. One that is broken stays as it is.
func decode(raw []byte) string {
	if !bytes.ContainsAny(raw, "%+") {
		return string(raw)
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		c, size := decodeByte(raw[i:])
		out = append(out, c)
		i += size
	}
	return string(out)
}

// decodeByte reads one byte, which may be written as three.
func decodeByte(raw []byte) (c byte, size int) {
	switch {
	case raw[0] == '+':
		return ' ', 1
	case raw[0] == '%' && len(raw) > 2 && isHex(raw[1]) && isHex(raw[2]):
		return nibble(raw[1])<<4 | nibble(raw[2]), 3
	}
	return raw[0], 1
}

func isHex(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }

func nibble(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// find gives the value at the first of the places that the request has.
func (v *view) find(places []string) (value, bool) {
	for _, p := range places {
		if found, ok := v.at(p); ok {
			return found, true
		}
	}
	return value{}, false
}

// at gives the value at a place.
func (v *view) at(place string) (value, bool) {
	kind, name, err := parsePlace(place)
	if err != nil {
		return value{}, false
	}
	switch {
	case kind == "query":
		return named(v.query, name)
	case kind == "form" && v.object < 0:
		return named(v.body, name)
	case kind == "json" && v.object >= 0:
		return v.member(name)
	case kind == "header":
		return v.header(name)
	}
	return value{}, false
}

// member follows a path of members.
func (v *view) member(path string) (found value, ok bool) {
	list := v.body
	for {
		name, rest, deeper := strings.Cut(path, ".")
		found, ok = named(list, name)
		if !ok || !deeper {
			return found, ok
		}
		if v.r.Body[found.at] != '{' {
			return value{}, false
		}
		list, path = v.members(found.at), rest
	}
}

func (v *view) header(name string) (value, bool) {
	for i, f := range v.r.Fields {
		if strings.EqualFold(f.Name, name) {
			return value{name: f.Name, text: f.Value, in: inHeader, at: i}, true
		}
	}
	return value{}, false
}

func named(list []value, name string) (value, bool) {
	i := slices.IndexFunc(list, func(v value) bool { return v.name == name })
	if i < 0 {
		return value{}, false
	}
	return list[i], true
}
