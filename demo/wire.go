package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// bot is a client that hides nothing: it writes requests itself, so that what
// is shown is what was sent, and nothing is sent again behind its back.
type bot struct{ proxy string }

// call is one request of a bot.
type call struct {
	method, target string
	lines          []string // header lines beyond Host and Content-Length
	body           string
}

// reply is what came back for a call.
type reply struct {
	status int
	head   string // as received
	header http.Header
	body   string
	took   time.Duration
}

// do sends a call through the proxy on a connection of its own.
func (b bot) do(ctx context.Context, c call) (reply, error) {
	start := time.Now()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.proxy)
	if err != nil {
		return reply{}, fmt.Errorf("demo: reach the proxy: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, c.text()); err != nil {
		return reply{}, fmt.Errorf("demo: send %s %s: %w", c.method, c.target, err)
	}
	r, err := readReply(conn, c.method)
	if err != nil {
		return reply{}, fmt.Errorf("demo: read the answer to %s %s: %w", c.method, c.target, err)
	}
	r.took = time.Since(start)
	return r, nil
}

// text is the call as it goes over the wire, in absolute form.
func (c call) text() string {
	_, rest, _ := strings.Cut(c.target, "://")
	host, _, _ := strings.Cut(rest, "/")
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", c.method, c.target, host)
	for _, line := range c.lines {
		head += line + "\r\n"
	}
	if c.body != "" {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(c.body))
	}
	return head + "\r\n" + c.body
}

func readReply(conn io.Reader, method string) (reply, error) {
	var raw bytes.Buffer
	res, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &raw)), &http.Request{Method: method})
	if err != nil {
		return reply{}, err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return reply{}, err
	}
	head, _, _ := strings.Cut(raw.String(), "\r\n\r\n")
	return reply{status: res.StatusCode, head: head, header: res.Header, body: string(body)}, res.Body.Close()
}

// telling are the header fields of an answer that a reader is to see.
var telling = map[string]bool{
	"x-call-id": true, "x-retry-count": true, "x-retry-reason": true, "x-retry-executed": true, "x-retry-advice": true,
	"idempotency-replayed": true, "cache-status": true, "proxy-status": true, "retry-after": true,
}

// show prints the call and its answer as they went over the wire, less the
// fields that do not matter here.
func show(out io.Writer, c call, r reply) {
	line, _, _ := strings.Cut(c.text(), "\r\n")
	fmt.Fprintf(out, "   > %s\n", line)
	for _, line := range c.lines {
		fmt.Fprintf(out, "   > %s\n", line)
	}
	lines := strings.Split(r.head, "\r\n")
	fmt.Fprintf(out, "   < %s\n", lines[0])
	for _, line := range lines[1:] {
		name, _, _ := strings.Cut(line, ":")
		if telling[strings.ToLower(name)] {
			fmt.Fprintf(out, "   < %s\n", line)
		}
	}
	if r.body != "" {
		fmt.Fprintf(out, "   < %s\n", excerpt(r))
	}
}

// excerpt is the body in one line; of a problem document only what it says to people.
func excerpt(r reply) string {
	var problem struct{ Title, Detail string }
	if strings.HasPrefix(r.header.Get("Content-Type"), "application/problem+json") && json.Unmarshal([]byte(r.body), &problem) == nil {
		return fmt.Sprintf("{… \"title\": %q, \"detail\": %q …}", problem.Title, problem.Detail)
	}
	return shorten(strings.TrimSpace(r.body), 300)
}

func shorten(s string, most int) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}
