package classify

import (
	"bytes"
	"strings"

	"retryproxy/message"
)

// forwardedMost bounds how much of a body Forwarded looks at: what proxies
// write themselves is short.
const forwardedMost = 1 << 10

// Forwarded says whether a 503 or 408 itself tells that a proxy on the way had
// already sent the request on, so that it may have been acted on: by a
// Proxy-Status error after sending (RFC 9209), or by Envoy's words at the
// beginning of the body.
func Forwarded(fields message.Fields, head []byte) bool {
	for i := range fields {
		if strings.EqualFold(fields[i].Name, "Proxy-Status") && proxyStatusSent(fields[i].Value) {
			return true
		}
	}
	return envoySent(head[:min(len(head), forwardedMost)])
}

// proxyStatusSent looks for an error after sending in any member of the list.
func proxyStatusSent(value string) bool {
	for value != "" {
		var part string
		part, value = cutUnquoted(value)
		name, token, ok := strings.Cut(strings.Trim(part, " \t"), "=")
		if ok && name == "error" && sentError(token) {
			return true
		}
	}
	return false
}

// cutUnquoted splits at the first semicolon or comma outside a quoted string.
// Which of the two it was does not matter: we only look for error parameters.
func cutUnquoted(value string) (before, after string) {
	quoted := false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case (c == ';' || c == ',') && !quoted:
			return value[:i], value[i+1:]
		}
	}
	return value, ""
}

// sentError lists the error types of RFC 9209 section 2.3 that can only come up
// once (part of) the request was sent.
func sentError(token string) bool {
	switch token {
	case "connection_terminated", "connection_read_timeout", "connection_write_timeout",
		"http_protocol_error", "http_upgrade_failed":
		return true
	}
	return strings.HasPrefix(token, "http_response_")
}

var (
	envoyReset  = []byte("upstream connect error or disconnect/reset before headers. reset reason: ")
	envoyAgain  = []byte("upstream connect error or disconnect/reset before headers. retried and the latest reset reason: ")
	envoyPassed = [][]byte{[]byte("stream timeout"), []byte("downstream duration timeout")}
	// envoyUnsent are the reset reasons before sending; any other may be after.
	envoyUnsent = [][]byte{
		[]byte("connection failure"), []byte("local connection failure"), []byte("remote connection failure"),
		[]byte("connection timeout"), []byte("overflow"), []byte("overload manager reset"),
		[]byte("local refused stream reset"), []byte("remote refused stream reset"),
	}
)

// envoySent reads the local replies of Envoy's router and connection manager,
// bare or inside somebody's JSON.
func envoySent(head []byte) bool {
	// After a retry of its own the last reason says nothing about the first try.
	if bytes.Contains(head, envoyAgain) {
		return true
	}
	if _, reason, ok := bytes.Cut(head, envoyReset); ok {
		return !hasAnyPrefix(reason, envoyUnsent)
	}
	for _, words := range envoyPassed {
		if bytes.Equal(bytes.TrimSpace(head), words) {
			return true
		}
	}
	return false
}

func hasAnyPrefix(text []byte, prefixes [][]byte) bool {
	for _, p := range prefixes {
		if bytes.HasPrefix(text, p) {
			return true
		}
	}
	return false
}
