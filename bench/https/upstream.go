package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
)

// chunk is what tunnels are filled with at a time.
const chunk = 256 << 10

// A tunnel begins with a byte as of TLS, so that nobody takes it for HTTP, and
// then what the upstream is to do.
const (
	askDownload = "\x16d"
	askUpload   = "\x16u"
	askEcho     = "\x16e"
)

// upstream is the far side: one address that speaks HTTPS and one that speaks
// bytes.
type upstream struct {
	https, bytes net.Listener
	received     *atomic.Int64 // bytes of uploads
}

func startUpstream(show *tls.Config, received *atomic.Int64) (*upstream, error) {
	https, err := tls.Listen("tcp", "127.0.0.1:0", show)
	if err != nil {
		return nil, err
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		https.Close()
		return nil, err
	}
	u := &upstream{https: https, bytes: plain, received: received}
	go accept(https, answerAll)
	go accept(plain, u.fill)
	return u, nil
}

func (u *upstream) close() {
	u.https.Close()
	u.bytes.Close()
}

// target is the HTTPS side by name.
func (u *upstream) target() string { return net.JoinHostPort(hostName, port(u.https)) }

func port(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }

// accept ends with its listener.
func accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

// answer has 100 B of content.
var answer = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n%-100s", `{"success": true}`)

func answerAll(c net.Conn) {
	in := wire{conn: c}
	for {
		if _, err := in.next(); err != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// fill does what the client of a tunnel asks for.
func (u *upstream) fill(c net.Conn) {
	buf := make([]byte, chunk)
	if _, err := io.ReadFull(c, buf[:len(askEcho)]); err != nil {
		return
	}
	switch string(buf[:len(askEcho)]) {
	case askDownload:
		pour(c)
	case askUpload:
		drain(c, u.received)
	case askEcho:
		_, _ = c.Write(buf[:1])
	}
}

// pour writes until the other side leaves.
func pour(c net.Conn) {
	buf := make([]byte, chunk)
	for {
		if _, err := c.Write(buf); err != nil {
			return
		}
	}
}

// drain counts bytes until the other side leaves.
func drain(c net.Conn, count *atomic.Int64) {
	buf := make([]byte, chunk)
	for {
		n, err := c.Read(buf)
		count.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// wire reads messages that state their length.
type wire struct {
	conn net.Conn
	buf  [8 << 10]byte
	n    int
}

var errTooLong = errors.New("a message longer than the buffer")

// next reads one message and gives its head.
func (w *wire) next() (head string, err error) {
	for {
		if end := bytes.Index(w.buf[:w.n], []byte("\r\n\r\n")); end >= 0 {
			head = string(w.buf[:end+2])
			if whole := end + 4 + contentLength(head); w.n >= whole {
				w.n = copy(w.buf[:], w.buf[whole:w.n])
				return head, nil
			}
		}
		if w.n == len(w.buf) {
			return "", errTooLong
		}
		n, err := w.conn.Read(w.buf[w.n:])
		if w.n += n; err != nil {
			return "", err
		}
	}
}

func contentLength(head string) int {
	const name = "\r\ncontent-length: "
	_, value, _ := strings.Cut(strings.ToLower(head), name)
	value, _, _ = strings.Cut(value, "\r\n")
	n, _ := strconv.Atoi(value)
	return n
}
