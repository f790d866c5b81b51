package upstream

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"testing"
	"time"

	"retryproxy/classify"
)

// canned is a connection on which an answer was received already.
type canned struct{ in io.Reader }

func (c canned) Read(p []byte) (int, error)    { return c.in.Read(p) }
func (canned) Write(p []byte) (int, error)     { return len(p), nil }
func (canned) Close() error                    { return nil }
func (canned) LocalAddr() net.Addr             { return nil }
func (canned) RemoteAddr() net.Addr            { return nil }
func (canned) SetDeadline(time.Time) error     { return nil }
func (canned) SetReadDeadline(time.Time) error { return nil }
func (canned) SetWriteDeadline(time.Time) error {
	return nil
}

func dialCanned(in io.Reader) Config {
	return Config{HeaderBytes: 32 << 10, Dial: func(context.Context, netip.AddrPort) (net.Conn, error) { return canned{in}, nil }}
}

// Whatever an upstream sends: Send ends, and what it takes for an answer net/http
// reads alike, unless it is laxer.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		ok, ok + ok, "HTTP/1.1 200 OK\r\n\r\nbody", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
		"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + ok, "HTTP/1.1 204\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
		"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2;x\r\nok\r\n0\r\nX: 1\r\n\r\n", "HTTP/1.1 200 OK\r\nX : 1\r\n Y: 2\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n", "HTTP/1.1 101 S\r\nUpgrade: x\r\n\r\n", "SSH-2.0\r\n", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		c := New(dialCanned(strings.NewReader(answer)))
		defer c.Close()
		r, body, err := fetch(c, attempt(Target{Scheme: "http", Host: "127.0.0.1", Port: 80}, "GET", "/", nil))
		if (r.Response == nil) == (r.Outcome.Fault == classify.FaultNone) {
			t.Fatalf("Send = %+v with response %v", r.Outcome, r.Response)
		}
		if open, idle := c.Stats(); open != idle {
			t.Errorf("Stats = %d, %d after the end", open, idle)
		}
		if r.Response == nil || err != nil {
			return
		}
		for _, field := range r.Response.Fields {
			if !token(field.Name) || !oneLine(field.Value) || ownField(field.Name) {
				t.Errorf("field %q", field)
			}
		}
		theirs, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
		if err != nil || theirs.StatusCode < 200 {
			return // stricter about names and values that we pass on
		}
		want, err := io.ReadAll(theirs.Body)
		if theirs.StatusCode != r.Response.Status || err == nil && string(want) != body {
			t.Errorf("answer = %d %q, net/http reads %d %q", r.Response.Status, body, theirs.StatusCode, want)
		}
	})
}

// What we accept as chunked the standard library reads alike.
func FuzzChunks(f *testing.F) {
	for _, seed := range []string{"2\r\nok\r\n0\r\n\r\n", "0\r\n\r\n", "a;b=c\r\n0123456789\r\n0\r\nX: 1\r\n\r\n", "2\r\nok0\r\n\r\n", "-1\r\n", "2\nok\n0\n\n", "00000000000000002\r\nok\r\n0\r\n\r\n"} {
		f.Add(seed, 3)
	}
	f.Fuzz(func(t *testing.T, in string, size int) {
		c := New(dialCanned(nil))
		cn := newConn(c, &Target{}, &opened{nc: canned{strings.NewReader(in)}, raw: canned{}})
		chunks := chunks{limit: 1 << 10}
		p := make([]byte, 1+max(size, -size)&0xff)
		var got bytes.Buffer
		for {
			n, err := chunks.read(cn, p)
			got.Write(p[:n])
			if err == io.EOF {
				break
			}
			if err != nil {
				return
			}
		}
		want, err := io.ReadAll(httputil.NewChunkedReader(strings.NewReader(in)))
		if err != nil || !bytes.Equal(want, got.Bytes()) {
			t.Errorf("chunks of %q = %q, the standard library reads %q, %v", in, got.Bytes(), want, err)
		}
	})
}
