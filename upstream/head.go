package upstream

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"retryproxy/message"
)

// head is the parsed header of an answer. Its strings share one allocation.
type head struct {
	version string // 1.0 or 1.1
	status  int
	reason  string
	fields  message.Fields // without those of the framing
	length  int64          // declared; -1: none
	chunked bool
	persist bool // the upstream keeps the connection
	options struct{ close, keepAlive bool }
}

// headEnd finds the end of the header at the start of b: the index behind its
// empty line and the number of lines before that. Without one, end is 0 and from
// is where to look next. Lines may end in a bare LF (RFC 9112 section 2.2).
func headEnd(b []byte, from, lines int) (end, next, n int) {
	for {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return 0, from, lines
		}
		line := b[from : from+i]
		from += i + 1
		if len(line) == 0 || len(line) == 1 && line[0] == '\r' {
			return from, from, lines
		}
		lines++
	}
}

// plausible says whether b can be the start of an answer, so that junk is not
// waited on.
func plausible(b []byte) bool {
	const start = "HTTP/1."
	n := min(len(b), len(start))
	return string(b[:n]) == start[:n]
}

// parseHead parses a header with its empty line, of that many lines.
func parseHead(s string, lines int) (head, error) {
	h := head{length: -1}
	line, rest := cutLine(s)
	if !h.statusLine(line) {
		return h, malformed("status line")
	}
	if lines > 1 {
		h.fields = make(message.Fields, 0, lines-1)
	}
	for {
		line, rest = cutLine(rest)
		if line == "" {
			break
		}
		f, ok := parseField(line)
		if !ok {
			return h, malformed("header line")
		}
		if err := h.add(f); err != nil {
			return h, err
		}
	}
	return h, h.settle()
}

func malformed(what string) error { return fmt.Errorf("%w: %s", ErrMalformed, what) }

// cutLine cuts at the first line end, which may lack its CR.
func cutLine(s string) (line, rest string) {
	i := strings.IndexByte(s, '\n')
	if i < 0 {
		return s, ""
	}
	line, rest = s[:i], s[i+1:]
	return strings.TrimSuffix(line, "\r"), rest
}

// statusLine is RFC 9112 section 4; the space before an empty reason is often
// missing.
func (h *head) statusLine(s string) bool {
	const version, code = len("HTTP/1.1"), len("HTTP/1.1 200")
	if len(s) < code || s[:7] != "HTTP/1." || s[version] != ' ' || !oneLine(s) {
		return false
	}
	h.version = s[5:version]
	if h.version != "1.1" && h.version != "1.0" {
		return false
	}
	for _, c := range []byte(s[version+1 : code]) {
		if c < '0' || c > '9' {
			return false
		}
		h.status = h.status*10 + int(c-'0')
	}
	if len(s) > code {
		if s[code] != ' ' {
			return false
		}
		h.reason = s[code+1:]
	}
	return h.status >= 100
}

// parseField splits a line. Space before the colon is removed, as RFC 9112
// section 5.1 asks of a proxy; a folded line (section 5.2) is refused.
func parseField(line string) (f message.Field, ok bool) {
	name, value, found := strings.Cut(line, ":")
	if !found {
		return f, false
	}
	name = strings.TrimRight(name, " \t")
	value = strings.Trim(value, " \t")
	return message.Field{Name: name, Value: value}, token(name) && oneLine(value)
}

// add takes a field and looks at those of the connection.
func (h *head) add(f message.Field) error {
	switch len(f.Name) {
	case len("Connection"):
		if strings.EqualFold(f.Name, "Connection") {
			h.connection(f.Value)
		}
	case len("Content-Length"):
		if strings.EqualFold(f.Name, "Content-Length") {
			return h.contentLength(f.Value)
		}
	case len("Transfer-Encoding"):
		if strings.EqualFold(f.Name, "Transfer-Encoding") {
			return h.transferEncoding(f.Value)
		}
	}
	h.fields = append(h.fields, f)
	return nil
}

func (h *head) connection(list string) {
	for option := range strings.SplitSeq(list, ",") {
		option = strings.Trim(option, " \t")
		h.options.close = h.options.close || strings.EqualFold(option, "close")
		h.options.keepAlive = h.options.keepAlive || strings.EqualFold(option, "keep-alive")
	}
}

// contentLength takes equal values as one (RFC 9110 section 8.6).
func (h *head) contentLength(list string) error {
	for v := range strings.SplitSeq(list, ",") {
		n, ok := decimal(strings.Trim(v, " \t"))
		if !ok || h.length >= 0 && h.length != n {
			return malformed("Content-Length")
		}
		h.length = n
	}
	return nil
}

// decimal reads digits only; no sign, no overflow.
func decimal(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// transferEncoding knows chunked, once; another coding would be lost when the
// message is framed anew.
func (h *head) transferEncoding(v string) error {
	if h.chunked || !strings.EqualFold(v, "chunked") {
		return malformed("Transfer-Encoding")
	}
	h.chunked = true
	return nil
}

// settle resolves what the fields say together (RFC 9112 sections 6.3 and 9.3).
func (h *head) settle() error {
	h.persist = !h.options.close && (h.version == "1.1" || h.options.keepAlive)
	if h.chunked && h.version == "1.0" {
		return malformed("Transfer-Encoding in HTTP/1.0")
	}
	if h.chunked && h.length >= 0 {
		return malformed("Content-Length beside Transfer-Encoding") // may be smuggling
	}
	return nil
}

// contentless says whether an answer has no content whatever its fields say.
func contentless(method string, status int) bool {
	return status < 200 || status == 204 || status == 304 || method == "HEAD"
}
