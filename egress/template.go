package egress

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// Placeholders of a template.
const (
	placeShop     = "{shop}"
	placeTaskType = "{task_type}"
)

// placeholder is what looks like one; other braces are text.
var placeholder = regexp.MustCompile(`\{[A-Za-z_]+\}`)

// longestText bounds a user name or password with placeholders to what SOCKS5
// can say (RFC 1929).
const longestText = 255

// template is a text cut at its placeholders: text and placeholder in turn,
// beginning and ending with text.
type template struct {
	parts []string
	room  int // for each value
}

// newTemplate cuts text; ok is false when it holds an unknown placeholder.
func newTemplate(text string) (t template, ok bool) {
	rest, literal := text, len(text)
	for _, at := range placeholder.FindAllStringIndex(text, -1) {
		name := text[at[0]:at[1]]
		if name != placeShop && name != placeTaskType {
			return template{}, false
		}
		start := at[0] - (len(text) - len(rest))
		t.parts = append(t.parts, rest[:start], name)
		rest, literal = text[at[1]:], literal-len(name)
	}
	if n := len(t.parts) / 2; n > 0 {
		t.room = (longestText - literal) / n
	}
	t.parts = append(t.parts, rest)
	return t, true
}

// fixed: there are no placeholders.
func (t template) fixed() bool { return len(t.parts) == 1 }

// fits says whether there is room enough for values of any length.
func (t template) fits() bool { return t.fixed() || t.room >= len(hashed("")) }

func (t template) needs(place string) bool {
	for i := 1; i < len(t.parts); i += 2 {
		if t.parts[i] == place {
			return true
		}
	}
	return false
}

// render puts the values in, made safe.
func (t template) render(shop, taskType string) string {
	if t.fixed() {
		return t.parts[0]
	}
	var b strings.Builder
	for i, part := range t.parts {
		switch {
		case i%2 == 0:
			b.WriteString(part)
		case part == placeShop:
			b.WriteString(bounded(shop, t.room))
		default:
			b.WriteString(bounded(taskType, t.room))
		}
	}
	return b.String()
}

// bounded is value made safe in at most room bytes. What is cut off is stood in
// for by a hash, so that two values never share a session.
func bounded(value string, room int) string {
	text := escape(value)
	if len(text) <= room {
		return text
	}
	tail := hashed(value)
	return text[:room-len(tail)] + tail
}

// hashed stands for value; no escaped value holds "~h".
func hashed(value string) string {
	sum := sha256.Sum256([]byte(value))
	return "~h" + hex.EncodeToString(sum[:16])
}

// escape writes every byte that a proxy could take for a separator as ~ and two
// hex digits, ~ itself among them, so that no two values become one.
func escape(value string) string {
	const digits = "0123456789abcdef"
	clean := 0
	for clean < len(value) && plain(value[clean]) {
		clean++
	}
	if clean == len(value) {
		return value
	}
	b := make([]byte, clean, len(value)+8)
	copy(b, value)
	for i := clean; i < len(value); i++ {
		if c := value[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '~', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}
