package template

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"net/url"
	"strings"
	"unicode/utf8"
)

// form is how a value is escaped where it stands.
type form uint8

const (
	inText form = iota
	inHeader
	inPath
	inQuery
	inJSON   // within a string
	bareJSON // a value by itself
	inXML
)

// escape writes a value so that it stays one; rule says why it cannot.
func (f form) escape(v string, h *holder) (escaped, rule string) {
	if !utf8.ValidString(v) {
		return "", "is not valid UTF-8"
	}
	if f != bareJSON && h.json && isContainer(v) && len(h.steps) == 0 {
		return "", "is an object or list, which has a place in json outside of quotes only"
	}
	switch f {
	case inPath:
		return url.PathEscape(v), ""
	case inQuery:
		return url.QueryEscape(v), ""
	case inJSON:
		return quoted(v), ""
	case bareJSON:
		return v, bareRule(v, h)
	case inXML:
		var out bytes.Buffer
		if hasControls(strings.Map(withoutBreaks, v)) {
			return "", "holds a control character"
		}
		_ = xml.EscapeText(&out, []byte(v)) // a buffer never fails
		return out.String(), ""
	}
	if hasControls(v) {
		return "", "holds a line break or another control character"
	}
	return v, ""
}

// withoutBreaks drops line breaks, which a text of XML may hold.
func withoutBreaks(r rune) rune {
	if r == '\n' || r == '\r' {
		return -1
	}
	return r
}

// isContainer says whether a value is a JSON object or list, as its text is.
func isContainer(v string) bool {
	return v != "" && (v[0] == '{' || v[0] == '[') && json.Valid([]byte(v))
}

// bareRule says why a value cannot stand in JSON without quotes.
func bareRule(v string, h *holder) string {
	if !json.Valid([]byte(v)) || v[0] == '"' {
		return "is not a number, true, false or null; put it in quotes"
	}
	if !h.json && (v[0] == '{' || v[0] == '[') {
		return "is an object or list, and was no JSON"
	}
	return ""
}

// quoted is the inside of a JSON string.
func quoted(v string) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // a text is always encoded
	return strings.TrimSuffix(strings.TrimPrefix(out.String(), `"`), "\"\n")
}
