package upstream

import (
	"strconv"
	"strings"

	"retryproxy/message"
)

// framing is how the content of a request is delimited.
type framing uint8

const (
	noContent framing = iota
	byLength
	chunkwise
)

func framingOf(r *message.Request) (framing, int64) {
	if r.Body == nil {
		switch r.Method {
		case "POST", "PUT", "PATCH": // RFC 9110 section 8.6: say that there is none
			return byLength, 0
		}
		return noContent, 0
	}
	if n := r.Body.Len(); n >= 0 {
		return byLength, n
	}
	return chunkwise, -1
}

// appendHead appends the head of r. The target goes out byte for byte, the
// fields in their order, and nothing is added but Host and the framing.
func appendHead(b []byte, a *Attempt, f framing, length int64) []byte {
	r := a.Request
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = append(b, r.Target...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = appendAuthority(b, a)
	b = append(b, "\r\n"...)
	for i := range r.Fields {
		if !ownField(r.Fields[i].Name) {
			b = appendField(b, &r.Fields[i])
		}
	}
	switch f {
	case byLength:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, length, 10)
		b = append(b, "\r\n"...)
	case chunkwise:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	return append(b, "\r\n"...)
}

func appendAuthority(b []byte, a *Attempt) []byte {
	if a.Request.Authority != "" {
		return append(b, a.Request.Authority...)
	}
	return append(b, a.Target.authority()...)
}

func appendField(b []byte, f *message.Field) []byte {
	b = append(b, f.Name...)
	b = append(b, ": "...)
	b = append(b, f.Value...)
	return append(b, "\r\n"...)
}

// ownField says whether the field is written by us: a second Host or a second
// framing would let the upstream choose. TE is for HTTP/2, where it needs no
// Connection to name it.
func ownField(name string) bool {
	switch len(name) {
	case len("TE"):
		return strings.EqualFold(name, "TE")
	case len("Host"):
		return strings.EqualFold(name, "Host")
	case len("Content-Length"):
		return strings.EqualFold(name, "Content-Length")
	case len("Transfer-Encoding"):
		return strings.EqualFold(name, "Transfer-Encoding")
	}
	return false
}

// flaw says why r cannot be written without breaking the framing of the
// message; empty: it can.
func flaw(r *message.Request) string {
	switch {
	case !token(r.Method):
		return "the method is not a token"
	case r.Target == "" || !graphic(r.Target):
		return "the target is empty or has a space or control character"
	case !graphic(r.Authority):
		return "the authority has a space or control character"
	}
	if !writable(r.Fields) {
		return "a header field is not valid"
	}
	return ""
}

func writable(fields message.Fields) bool {
	for i := range fields {
		if !token(fields[i].Name) || !oneLine(fields[i].Value) {
			return false
		}
	}
	return true
}

// token is RFC 9110 section 5.6.2.
func token(s string) bool {
	for i := range len(s) {
		if !tokenByte[s[i]] {
			return false
		}
	}
	return s != ""
}

var tokenByte = func() (t [256]bool) {
	for c := range t {
		t[c] = c > ' ' && c < 0x7f && !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, rune(c))
	}
	return t
}()

func graphic(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// oneLine says whether s can be a field value (RFC 9110 section 5.5).
func oneLine(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && (c == '\r' || c == '\n' || c == 0) {
			return false
		}
	}
	return true
}
