package demo

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	maxHeader = 64 << 10
	maxBody   = 64 << 20
	maxEcho   = 64 << 10
)

var errMalformed = errors.New("demo: that was no HTTP/1.1 request")

// exchange is one request and the way to misbehave in answering it.
type exchange struct {
	up     *Upstream
	conn   net.Conn
	in     *bufio.Reader
	line   string   // the request line as it came
	fields []string // header lines as they came
	method string
	path   string
	query  url.Values
	body   []byte // its first maxEcho bytes, after readBody
	size   int64
	over   bool // nothing more is said on this connection
}

// converse answers requests on one connection until either side ends it.
func (u *Upstream) converse(c net.Conn) {
	in := bufio.NewReaderSize(c, 4096)
	for {
		x, err := u.readHead(c, in)
		if errors.Is(err, errMalformed) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}
		if err != nil {
			return
		}
		x.serve()
		if x.over || x.lists("Connection", "close") {
			return
		}
	}
}

// readHead reads a request up to its body and books it as arrived.
func (u *Upstream) readHead(c net.Conn, in *bufio.Reader) (*exchange, error) {
	left := maxHeader
	line, err := readLine(in, &left)
	for err == nil && line == "" { // RFC 9112 section 2.2: empty lines before a request are ignored
		line, err = readLine(in, &left)
	}
	if err != nil {
		return nil, err
	}
	x := &exchange{up: u, conn: c, in: in, line: line}
	if err := x.parseLine(); err != nil {
		return nil, err
	}
	for {
		line, err := readLine(in, &left)
		if err != nil {
			return nil, err
		}
		if line == "" {
			x.arrive()
			return x, nil
		}
		x.fields = append(x.fields, line)
	}
}

func (x *exchange) parseLine() error {
	method, rest, _ := strings.Cut(x.line, " ")
	target, version, _ := strings.Cut(rest, " ")
	where, err := url.Parse(target)
	if err != nil || !strings.HasPrefix(version, "HTTP/1.") {
		return errMalformed
	}
	x.method, x.path, x.query = method, where.Path, where.Query()
	return nil
}

// readLine reads a line without its end; what it read is taken off left.
func readLine(in *bufio.Reader, left *int) (string, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if *left -= len(part); *left < 0 {
			return "", errMalformed
		}
		if err == nil {
			return strings.TrimRight(string(line), "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
	}
}

func (x *exchange) arrive() {
	x.up.mu.Lock()
	defer x.up.mu.Unlock()
	x.up.ledger.arrive(seen{
		At:    time.Now().Format("15:04:05.000"),
		Line:  x.line,
		Key:   x.key(),
		Retry: x.field("X-Retry-Count"),
	})
}

// field gives the value of the first header line of that name.
func (x *exchange) field(name string) string {
	for _, line := range x.fields {
		n, v, _ := strings.Cut(line, ":")
		if strings.EqualFold(n, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func (x *exchange) lists(name, token string) bool {
	for part := range strings.SplitSeq(x.field(name), ",") {
		if strings.EqualFold(strings.TrimSpace(part), token) {
			return true
		}
	}
	return false
}

// key is the idempotency key the request carries, if any.
func (x *exchange) key() string {
	if k := x.field("X-Idempotency-Key"); k != "" {
		return k
	}
	return strings.Trim(x.field("Idempotency-Key"), `"`)
}

// readBody takes in the whole content, so that it can be said to have been received.
func (x *exchange) readBody() error {
	if strings.EqualFold(x.field("Expect"), "100-continue") {
		if _, err := io.WriteString(x.conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return err
		}
	}
	from, finish := x.bodyReader()
	head, err := io.ReadAll(io.LimitReader(from, maxEcho))
	if err != nil {
		return err
	}
	rest, err := io.Copy(io.Discard, io.LimitReader(from, maxBody))
	if err != nil {
		return err
	}
	x.body, x.size = head, int64(len(head))+rest
	return finish()
}

// bodyReader gives the content, and what is to be read after it.
func (x *exchange) bodyReader() (from io.Reader, finish func() error) {
	if x.lists("Transfer-Encoding", "chunked") {
		return httputil.NewChunkedReader(x.in), x.skipTrailers
	}
	n, _ := strconv.ParseInt(x.field("Content-Length"), 10, 64)
	short := func() error {
		if x.size < n {
			return io.ErrUnexpectedEOF
		}
		return nil
	}
	return io.LimitReader(x.in, max(n, 0)), short
}

func (x *exchange) skipTrailers() error {
	left := maxHeader
	for {
		line, err := readLine(x.in, &left)
		if err != nil || line == "" {
			return err
		}
	}
}

// answer sends a complete answer. The extra fields come as whole lines.
func (x *exchange) answer(status int, content string, extra ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	fmt.Fprintf(&b, "Date: %s\r\n", time.Now().UTC().Format(http.TimeFormat))
	for _, line := range extra {
		b.WriteString(line + "\r\n")
	}
	if !strings.HasPrefix(content, "{") {
		b.WriteString("Content-Type: text/plain; charset=utf-8\r\n")
	} else {
		b.WriteString("Content-Type: application/json\r\n")
	}
	bodyless := status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
	if !bodyless {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(content))
	}
	b.WriteString("\r\n")
	if !bodyless && x.method != http.MethodHead {
		b.WriteString(content)
	}
	x.raw(b.String())
}

// raw sends bytes as they are.
func (x *exchange) raw(s string) {
	if _, err := io.WriteString(x.conn, s); err != nil {
		x.over = true
	}
}

// close ends the connection in order: FIN.
func (x *exchange) close() {
	x.over = true
}

// reset ends the connection by RST.
func (x *exchange) reset() {
	if tcp, ok := x.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = x.conn.Close()
	x.over = true
}
