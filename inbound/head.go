package inbound

import (
	"bytes"
	"strconv"
	"strings"

	"retryproxy/message"
)

const (
	maxBlankLines = 2   // before the request line, left over by sloppy clients
	maxFields     = 256 // field lines of a head: work per field must stay bounded
)

// scan finds the end of a head in bytes that come in piece by piece, looking
// at each byte once.
type scan struct {
	start int // of the request line, behind empty lines
	line  int // where the line begins whose end is looked for
	seen  int // no line end between line and here
	blank int // empty lines skipped
	lines int // complete lines, the request line included
	end   int // behind the empty line that ends the head
}

// look goes on over b, which begins where it began before and may have grown.
func (s *scan) look(b []byte) (complete bool, fault *Bad) {
	for {
		if s.lines == 0 && s.line < len(b) && b[s.line] != '\r' && classes[b[s.line]]&inToken == 0 {
			return false, notHTTP(b[s.line])
		}
		i := bytes.IndexByte(b[s.seen:], '\n')
		if i < 0 {
			s.seen = len(b)
			return false, nil
		}
		end := s.seen + i
		if end == s.line || b[end-1] != '\r' {
			return false, bad(400, "a line of the header ends without CR")
		}
		empty := end-1 == s.line
		s.line, s.seen = end+1, end+1
		switch {
		case !empty:
			s.lines++
		case s.lines > 0:
			s.end = s.line
			return true, nil
		case s.blank == maxBlankLines:
			return false, bad(400, "empty lines before the request line")
		default:
			s.blank++
			s.start = s.line
		}
	}
}

func notHTTP(first byte) *Bad {
	if first == 0x16 {
		return bad(400, "the client speaks TLS, this port speaks plain HTTP")
	}
	return bad(400, "the request line does not begin with a method")
}

// parseHead fills the call from a head that scan found complete. On a fault
// the call holds what was understood so far.
func parseHead(c *Call, text string, lines int) *Bad {
	line, rest := nextLine(text)
	raw, fault := parseLine(c, line)
	if fault != nil {
		return fault
	}
	if lines-1 > maxFields {
		return &Bad{431, "header_too_large", "more than " + strconv.Itoa(maxFields) + " header fields"}
	}
	t, fault := parseTarget(c.Request.Method, raw)
	if fault != nil {
		return fault
	}
	c.Form, c.Request.Scheme, c.Request.Target, c.Request.Authority = t.form, t.scheme, t.path, t.authority
	f := framing{length: -1}
	if fault := f.parseFields(c, rest, lines-1); fault != nil {
		return fault
	}
	return f.settle(c)
}

// nextLine cuts one line off a head whose lines all end in CRLF.
func nextLine(text string) (line, rest string) {
	i := strings.IndexByte(text, '\n')
	if i <= 0 {
		return text, ""
	}
	return text[:i-1], text[i+1:]
}

// parseLine reads "method target version" and returns the raw target.
func parseLine(c *Call, line string) (string, *Bad) {
	method, rest, ok := strings.Cut(line, " ")
	raw, version, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || !all(method, inToken) {
		return "", bad(400, "the request line is not method, target and version")
	}
	c.Request.Method = intern(method)
	switch {
	case version == "HTTP/1.1":
	case version == "HTTP/1.0":
		c.Request.Version = "1.0"
	case len(version) != 8 || version[:5] != "HTTP/" || version[6] != '.' || !digit(version[5]) || !digit(version[7]):
		return "", bad(400, "the HTTP version is malformed")
	case version[5] != '1':
		return "", bad(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
	}
	return raw, nil
}

// intern keeps the usual methods from holding the whole head in memory.
func intern(method string) string {
	for _, known := range [...]string{"GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"} {
		if method == known {
			return known
		}
	}
	return method
}

func digit(b byte) bool { return '0' <= b && b <= '9' }

// framing collects what the fields say about the message and its connection.
type framing struct {
	host    string
	hosts   int
	length  int64 // -1: no Content-Length
	digits  string
	codings int
	coding  string // the value of Transfer-Encoding
	close   bool
	keep    bool
	expect  bool
}

// parseFields reads the field lines into the call; those that frame the
// message go into f instead.
func (f *framing) parseFields(c *Call, text string, lines int) *Bad {
	fields := make(message.Fields, 0, max(lines, 0))
	for range lines {
		var line string
		line, text = nextLine(text)
		field, fault := parseField(line)
		if fault != nil {
			return fault
		}
		own, fault := f.take(field)
		if fault != nil {
			return fault
		}
		if !own {
			fields = append(fields, field)
		}
	}
	c.Request.Fields = fields
	return nil
}

// parseField reads "name: value"; folded lines and space before the colon are
// refused (RFC 9112 sections 5.1 and 5.2).
func parseField(line string) (message.Field, *Bad) {
	i := strings.IndexByte(line, ':')
	switch {
	case line[0] == ' ' || line[0] == '\t':
		return message.Field{}, bad(400, "a header line begins with space")
	case i <= 0 || !all(line[:i], inToken):
		return message.Field{}, bad(400, "a header field has no valid name")
	}
	value := trim(line[i+1:])
	if !all(value, inValue) {
		return message.Field{}, bad(400, "the value of a header field holds a control character")
	}
	return message.Field{Name: line[:i], Value: value}, nil
}

// trim cuts optional whitespace off, which is one space in front nearly always.
func trim(s string) string {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// take reads a field that concerns the framing; true: it does not belong into
// the fields of the message.
func (f *framing) take(x message.Field) (own bool, fault *Bad) {
	switch len(x.Name) {
	case len("Host"):
		if strings.EqualFold(x.Name, "Host") {
			f.hosts++
			f.host = x.Value
			return true, nil
		}
	case len("Expect"):
		if strings.EqualFold(x.Name, "Expect") {
			return false, f.takeExpect(x.Value)
		}
	case len("Connection"):
		if strings.EqualFold(x.Name, "Connection") {
			f.takeConnection(x.Value)
		}
	case len("Content-Length"):
		if foldUnderscore(x.Name, "Content-Length") {
			return true, f.takeLength(x)
		}
	case len("Transfer-Encoding"):
		if foldUnderscore(x.Name, "Transfer-Encoding") {
			return true, f.takeCoding(x)
		}
	}
	return false, nil
}

// foldUnderscore compares as servers do that turn fields into environment
// variables: there Content_Length is Content-Length.
func foldUnderscore(name, known string) bool {
	if strings.IndexByte(name, '_') >= 0 {
		name = strings.ReplaceAll(name, "_", "-")
	}
	return strings.EqualFold(name, known)
}

func (f *framing) takeExpect(value string) *Bad {
	if !strings.EqualFold(value, "100-continue") {
		return bad(417, "an expectation other than 100-continue")
	}
	f.expect = true
	return nil
}

func (f *framing) takeConnection(value string) {
	for option := range strings.SplitSeq(value, ",") {
		option = trim(option)
		f.close = f.close || strings.EqualFold(option, "close")
		f.keep = f.keep || strings.EqualFold(option, "keep-alive")
	}
}

// takeLength accepts repeated lines only when they are equal (RFC 9110 section 8.6).
func (f *framing) takeLength(x message.Field) *Bad {
	if strings.IndexByte(x.Name, '_') >= 0 {
		return bad(400, "a field name with _ that passes for Content-Length")
	}
	n, ok := parseLength(x.Value)
	if !ok || f.length >= 0 && f.digits != x.Value {
		return bad(400, "Content-Length is not one decimal number")
	}
	f.length, f.digits = n, x.Value
	return nil
}

// parseLength reads 1*DIGIT up to the largest int64; no sign, no list.
func parseLength(s string) (int64, bool) {
	if s == "" || !digit(s[0]) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

func (f *framing) takeCoding(x message.Field) *Bad {
	if strings.IndexByte(x.Name, '_') >= 0 {
		return bad(400, "a field name with _ that passes for Transfer-Encoding")
	}
	f.codings++
	f.coding = x.Value
	return nil
}

// settle decides length, persistence and host once all fields are known.
func (f *framing) settle(c *Call) *Bad {
	if fault := f.settleHost(c); fault != nil {
		return fault
	}
	if fault := f.settleLength(c); fault != nil {
		return fault
	}
	old := c.Request.Version == "1.0"
	c.KeepAlive = !f.close && (!old || f.keep)
	c.expect = f.expect && !old && c.Length != 0
	return nil
}

// settleHost applies RFC 9112 section 3.2: exactly one valid Host in HTTP/1.1;
// an authority in the target wins over it.
func (f *framing) settleHost(c *Call) *Bad {
	named := c.Request.Authority != ""
	switch {
	case f.hosts > 1:
		return bad(400, "more than one Host")
	case f.hosts == 0 && c.Request.Version != "1.0":
		return bad(400, "no Host")
	case f.hosts == 1 && !validAuthority(f.host, false) && (f.host != "" || !named):
		return bad(400, "Host is malformed")
	case !named:
		c.Request.Authority = f.host
	}
	return nil
}

func (f *framing) settleLength(c *Call) *Bad {
	switch {
	case f.codings > 0 && f.length >= 0:
		return bad(400, "Content-Length together with Transfer-Encoding")
	case f.codings > 0 && c.Request.Version == "1.0":
		return bad(400, "Transfer-Encoding in HTTP/1.0")
	case f.codings > 0 && (f.codings > 1 || !strings.EqualFold(f.coding, "chunked")):
		return f.refuseCoding()
	case c.Request.Method == "CONNECT" && (f.codings > 0 || f.length > 0):
		return bad(400, "CONNECT with content")
	case f.codings > 0:
		c.Length = -1
	default:
		c.Length = max(f.length, 0)
	}
	return nil
}

// refuseCoding tells an unknown coding (501) from a list whose framing is
// broken because chunked is not last or stands twice (400).
func (f *framing) refuseCoding() *Bad {
	list := strings.ToLower(f.coding)
	before, isChunked := strings.CutSuffix(list, "chunked")
	if f.codings == 1 && list != "" && all(strings.NewReplacer(",", "", " ", "", "\t", "").Replace(list), inToken) &&
		!strings.Contains(before, "chunked") && (isChunked || !strings.Contains(list, "chunked")) {
		return bad(501, "a transfer coding other than chunked")
	}
	return bad(400, "Transfer-Encoding is not exactly chunked")
}
