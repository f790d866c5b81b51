package inbound

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/internal/memnet"
	"retryproxy/message"
)

// rig is a server over an in-memory network, inside a bubble.
type rig struct {
	t      *testing.T
	net    *memnet.Network
	server *Server
	served chan error
}

const rigAddr = "127.0.0.1:8080"

// inBubble runs test in a bubble, closes its server hard and fails when a
// goroutine is left.
func inBubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, net: memnet.New(), served: make(chan error, 1)}
		test(r)
		if r.server == nil {
			return
		}
		_ = r.server.Close()
		if err := <-r.served; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve = %v, want ErrClosed", err)
		}
	})
}

// start serves s on rigAddr.
func (r *rig) start(s *Server) {
	r.t.Helper()
	l, err := r.net.Listen(rigAddr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.server = s
	go func() { r.served <- s.Serve(l, &Listener{Addr: rigAddr}) }()
}

func (r *rig) dial() *client {
	r.t.Helper()
	c, err := r.net.Dial(r.t.Context(), rigAddr)
	if err != nil {
		r.t.Fatal(err)
	}
	return &client{Conn: c.(*memnet.Conn), in: bufio.NewReader(c), t: r.t}
}

// client is the raw client side of a connection.
type client struct {
	*memnet.Conn
	in *bufio.Reader
	t  *testing.T
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		c.t.Fatalf("Write = %v, want nil", err)
	}
}

// answer is one answer as read by the client.
type answer1 struct {
	status int
	head   string // with the status line, without the empty line
	body   string
}

func (a answer1) field(name string) string {
	for line := range strings.SplitSeq(a.head, "\r\n") {
		if n, v, ok := strings.Cut(line, ": "); ok && strings.EqualFold(n, name) {
			return v
		}
	}
	return ""
}

// receive reads one answer framed by Content-Length, or its head alone.
func (c *client) receive() answer1 {
	c.t.Helper()
	a, err := c.tryReceive()
	if err != nil {
		c.t.Fatalf("receive = %v, want an answer (got %q)", err, a.head)
	}
	return a
}

func (c *client) tryReceive() (a answer1, err error) {
	var head strings.Builder
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			a.head = head.String() + line
			return a, err
		}
		if line == "\r\n" {
			break
		}
		head.WriteString(line)
	}
	a.head = strings.TrimSuffix(head.String(), "\r\n")
	a.status, _ = strconv.Atoi(strings.Fields(a.head)[1])
	n, _ := strconv.Atoi(a.field("Content-Length"))
	body := make([]byte, n)
	_, err = io.ReadFull(c.in, body)
	a.body = string(body)
	return a, err
}

// rest reads to the end of the connection.
func (c *client) rest() string {
	c.t.Helper()
	b, err := io.ReadAll(c.in)
	if err != nil {
		c.t.Fatalf("ReadAll = %v, want nil (after %q)", err, b)
	}
	return string(b)
}

// text makes a response of a string.
func text(status int, body string, fields ...message.Field) *message.Response {
	return &message.Response{Status: status, Fields: fields, Length: int64(len(body)), Body: io.NopCloser(strings.NewReader(body))}
}

// echo answers what it understood.
func echo(c *Call) {
	if c.Bad != nil {
		_, _ = c.Answer(text(c.Bad.Status, c.Bad.Reason+": "+c.Bad.Detail), time.Minute)
		return
	}
	content, err := io.ReadAll(c)
	if err != nil {
		status := 400
		if errors.Is(err, ErrBodyShort) {
			return
		}
		_, _ = c.Answer(text(status, err.Error()), time.Minute)
		return
	}
	c.Watch()
	said := fmt.Sprintf("%s %s %s", c.Request.Method, c.Request.Target, content)
	for _, f := range c.Trailers() {
		said += " " + f.Name + "=" + f.Value
	}
	_, _ = c.Answer(text(200, said), time.Minute)
}

// waitContext answers 200 after d, or reports when the client left before.
func waitContext(d time.Duration, gone chan<- time.Duration) func(*Call) {
	return func(c *Call) {
		_, _ = io.Copy(io.Discard, c)
		c.Watch()
		start := time.Now()
		ctx, cancel := context.WithTimeout(c.Context(), d)
		defer cancel()
		<-ctx.Done()
		if c.Context().Err() != nil {
			gone <- time.Since(start)
			return
		}
		_, _ = c.Answer(text(200, c.Request.Target), time.Minute)
	}
}

var _ net.Conn = (*client)(nil)
