package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"retryproxy/message"
)

// script is an upstream that records every byte and plays one func per
// connection, the last one for all further ones.
type script struct {
	t     testing.TB
	l     net.Listener
	plays []func(*peer)

	mu    sync.Mutex
	peers []*peer
	wg    sync.WaitGroup
}

// peer is one connection as the upstream has it.
type peer struct {
	net.Conn
	t   testing.TB
	mu  sync.Mutex
	got bytes.Buffer
	in  []byte // received, not used
}

func newScript(t testing.TB, plays ...func(*peer)) *script {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newScriptOn(t, l, plays...)
}

func newScriptOn(t testing.TB, l net.Listener, plays ...func(*peer)) *script {
	s := &script{t: t, l: l, plays: plays}
	s.wg.Go(s.accept)
	t.Cleanup(s.stop)
	return s
}

func (s *script) accept() {
	for i := 0; ; i++ {
		nc, err := s.l.Accept()
		for err != nil && !errors.Is(err, net.ErrClosed) { // out of descriptors, for one test
			nc, err = s.l.Accept()
		}
		if err != nil {
			return
		}
		p := &peer{Conn: nc, t: s.t}
		s.mu.Lock()
		s.peers = append(s.peers, p)
		s.mu.Unlock()
		play := s.plays[min(i, len(s.plays)-1)]
		s.wg.Go(func() {
			defer p.Close()
			play(p)
		})
	}
}

func (s *script) stop() {
	_ = s.l.Close()
	s.mu.Lock()
	for _, p := range s.peers {
		_ = p.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *script) target() Target {
	at := netip.MustParseAddrPort(s.l.Addr().String())
	return Target{Scheme: "http", Host: at.Addr().String(), Port: at.Port()}
}

// conns is how many connections were accepted.
func (s *script) conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.peers)
}

// wire is all that came in, connection after connection.
func (s *script) wire() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out strings.Builder
	for _, p := range s.peers {
		p.mu.Lock()
		out.Write(p.got.Bytes())
		p.mu.Unlock()
	}
	return out.String()
}

// requests counts the request lines on the wire.
func (s *script) requests() int { return strings.Count(s.wire(), " HTTP/1.1\r\n") }

// more reads once.
func (p *peer) more() error {
	buf := make([]byte, 64<<10)
	n, err := p.Read(buf)
	p.mu.Lock()
	p.got.Write(buf[:n])
	p.mu.Unlock()
	p.in = append(p.in, buf[:n]...)
	if n > 0 {
		return nil
	}
	return err
}

// until reads up to and with mark and returns that.
func (p *peer) until(mark string) string {
	for {
		if i := bytes.Index(p.in, []byte(mark)); i >= 0 {
			out := string(p.in[:i+len(mark)])
			p.in = p.in[i+len(mark):]
			return out
		}
		if err := p.more(); err != nil {
			return ""
		}
	}
}

// request reads a whole request and returns its head.
func (p *peer) request() string {
	head := p.until("\r\n\r\n")
	lower := strings.ToLower(head)
	if _, after, ok := strings.Cut(lower, "content-length: "); ok {
		n := 0
		for _, c := range after[:strings.Index(after, "\r")] {
			n = n*10 + int(c-'0')
		}
		for len(p.in) < n {
			if p.more() != nil {
				return ""
			}
		}
		p.in = p.in[n:]
	}
	if strings.Contains(lower, "transfer-encoding: chunked") {
		p.until("0\r\n")
		p.until("\r\n")
	}
	return head
}

func (p *peer) say(text string) { _, _ = io.WriteString(p.Conn, text) }

// reset closes with an RST.
func (p *peer) reset() {
	if l, ok := p.Conn.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = p.Close()
}

// hold waits until the other side closes.
func (p *peer) hold() {
	for p.more() == nil {
	}
}

// always answers every request with text.
func always(text string) func(*peer) {
	return func(p *peer) {
		for p.request() != "" {
			p.say(text)
		}
	}
}

// once answers one request with text and closes.
func once(text string) func(*peer) {
	return func(p *peer) {
		p.request()
		p.say(text)
	}
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// text is a message.Body of known bytes.
type text string

func (b text) Len() int64                   { return int64(len(b)) }
func (b text) Open() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(b))), nil }
func (b text) Trailers() message.Fields     { return nil }

// flow is a message.Body of unknown length.
type flow struct {
	r        io.Reader
	trailers message.Fields
	err      error // of Open
}

func (f flow) Len() int64 { return -1 }
func (f flow) Open() (io.ReadCloser, error) {
	if f.err != nil {
		return nil, f.err
	}
	return io.NopCloser(f.r), nil
}
func (f flow) Trailers() message.Fields { return f.trailers }

func attempt(t Target, method, target string, body message.Body, fields ...string) *Attempt {
	r := &message.Request{Method: method, Scheme: t.Scheme, Authority: "u1.test", Target: target, Version: "1.1", Body: body}
	for i := 0; i < len(fields); i += 2 {
		r.Fields.Add(fields[i], fields[i+1])
	}
	return &Attempt{
		Request: r, Target: t, ConnectTimeout: 5 * time.Second, HeaderTimeout: 5 * time.Second, BodyIdle: 5 * time.Second,
	}
}

func client(t testing.TB, cfg Config) *Client {
	c := New(cfg)
	t.Cleanup(c.Close)
	return c
}

// fetch sends a and reads the body to its end.
func fetch(c *Client, a *Attempt) (Result, string, error) {
	r := c.Send(context.Background(), a)
	if r.Response == nil {
		return r, "", nil
	}
	defer r.Response.Body.Close()
	b, err := io.ReadAll(r.Response.Body)
	return r, string(b), err
}

// mustFetch is fetch that has to give a complete answer.
func mustFetch(t testing.TB, c *Client, a *Attempt) (Result, string) {
	t.Helper()
	r, body, err := fetch(c, a)
	if r.Response == nil || err != nil {
		t.Fatalf("Send(%s %s) = %+v, %v, want a complete answer", a.Request.Method, a.Request.Target, r.Outcome, err)
	}
	return r, body
}

// TestMain fails when goroutines or descriptors are left in the end.
func TestMain(m *testing.M) {
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil { // the poller's own descriptors
		_ = l.Close()
	}
	before := descriptors()
	code := m.Run()
	if code == 0 {
		if err := leaks(before); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

func leaks(before int) error {
	for range 200 {
		if runtime.NumGoroutine() <= 2 && descriptors() <= before {
			return nil
		}
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	buf := make([]byte, 64<<10)
	return errors.New("left behind:\n" + string(buf[:runtime.Stack(buf, true)]))
}

func descriptors() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}
