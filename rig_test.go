package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"retryproxy/attempt"
	"retryproxy/config"
	"retryproxy/internal/memnet"
	"retryproxy/telemetry"
)

// rig is the whole product over an in-memory network, for use in a synctest
// bubble: the real wiring from a real configuration, scripted upstreams that
// record every request, and raw clients.
type rig struct {
	t     *testing.T
	net   *memnet.Network
	app   *app
	over  sync.Map // ids of calls that ended
	log   *lockedBuffer
	hosts map[string]netip.Addr
	peers sync.WaitGroup // connections of upstreams
	dials atomic.Int32   // by the product, so far
	stop  func()
	end   func() // stops the app alone
	kill  func() // ends all attempts at once

	// Faults of our own side, set before the first call; nil: none.
	lookup  func() error                     // asked before each name resolution
	dialled func(net.Conn) (net.Conn, error) // gets each connection to an upstream
	spans   trace.SpanProcessor              // gets the spans of calls
	hangs   string                           // a name whose resolution ends only when nobody waits for it
}

// lockedBuffer is a log that many goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// proxyAddr is where the rig's proxy listens.
const proxyAddr = "127.0.0.1:18080"

// caseConfig is the fixture of the cases: 1 + 3 attempts, base 100 ms, factor 2,
// cap 1 s, per try 1 s, deadline 6 s, no retry buckets.
const caseConfig = `
listen: {proxy: "127.0.0.1:18080", admin: "127.0.0.1:18090"}
destinations: {connect_ports: [443, 80, 7000, 7001]}
retry_limits: {global: off, task_type: off, shop: off}
slots: {max_in_flight: 100}
breakers: {host: {consecutive_failures: 5, open: 2s, open_max: 2s}}
idempotency: {ttl: 1h}
retry_policies:
  - {name: default, max_retries: 3, base_delay: 100ms, max_delay: 1s, multiplier: 2, per_try_timeout: 1s, deadline: 6s, connect_timeout: 1s}
`

// bubble runs f with a rig in a synctest bubble; patch is laid over caseConfig
// by replacing text: pairs of old and new.
func bubble(t *testing.T, f func(*rig), patch ...string) {
	t.Helper()
	text := caseConfig
	for i := 0; i+1 < len(patch); i += 2 {
		if !strings.Contains(text, patch[i]) {
			t.Fatalf("the configuration has no %q to replace", patch[i])
		}
		text = strings.ReplaceAll(text, patch[i], patch[i+1])
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, text)
		f(r)
		r.close()
	})
}

// newRig starts a rig; prepare gets its app before it runs.
func newRig(t *testing.T, text string, prepare ...func(*app)) *rig {
	t.Helper()
	r := &rig{t: t, net: memnet.New(), log: &lockedBuffer{}, hosts: map[string]netip.Addr{}}
	cfg, err := config.Parse("test.yaml", []byte(text), config.Options{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	r.start(cfg, t.TempDir(), prepare...)
	return r
}

// start runs an app of this configuration over the rig's network.
func (r *rig) start(cfg *config.Config, data string, prepare ...func(*app)) {
	t := r.t
	t.Helper()
	r.kill = nil
	hard, kill := context.WithCancel(t.Context())
	r.kill = kill
	var err error
	r.app, err = newApp(hard, cfg, options{
		data:    data,
		log:     telemetry.NewLogger(r.log, slog.LevelDebug, "json", false),
		listen:  r.net.Listen,
		dial:    r.dialUpstream,
		resolve: r.resolve,
		spans:   r.spans,
	})
	if err != nil {
		t.Fatal(err)
	}
	ends := r.app.proxy.Hooks.Call
	r.app.proxy.Hooks.Call = func(s *attempt.Summary) {
		ends(s)
		r.over.Store(s.ID, true)
	}
	if err := r.app.open(); err != nil {
		t.Fatal(err)
	}
	for _, f := range prepare {
		f(r.app)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.app.run(ctx, kill, environment{}) }()
	if r.stop == nil {
		r.stop = func() { r.end() }
	}
	app := r.app
	r.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		app.close()
	})
}

// close drains and checks that nothing is left.
func (r *rig) close() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
	r.peers.Wait() // they may be asleep
}

func (r *rig) dialUpstream(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
	r.dials.Add(1)
	c, err := r.net.Dial(ctx, a.String())
	if err != nil || r.dialled == nil {
		return c, err
	}
	return r.dialled(c)
}

func (r *rig) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if host == r.hangs && host != "" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if r.lookup != nil {
		if err := r.lookup(); err != nil {
			return nil, err
		}
	}
	if a, ok := r.hosts[host]; ok {
		return []netip.Addr{a}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// request is one request as an upstream saw it on the wire.
type request struct {
	N      int // 1 is the first this upstream saw
	At     time.Time
	Line   string
	Header http.Header
	Host   string
	Body   []byte
	Raw    []byte    // header as received
	Rest   io.Reader // headOnly: what follows the header
	Conn   int       // number of its connection
}

// scripted is an upstream that does what its script says, request by request.
type scripted struct {
	r        *rig
	l        net.Listener
	name     string
	mu       sync.Mutex
	requests []request
	conns    int
	script   []step
	wrap     func(net.Conn) net.Conn // TLS; nil: none
	headOnly bool                    // steps read the body themselves, or do not
}

// step answers one request; false ends the connection.
type step func(s *scripted, c net.Conn, req *request) bool

// upstream listens as host (name:port) and plays the script; the last step
// repeats.
func (r *rig) upstream(host string, script ...step) *scripted {
	r.t.Helper()
	name, port, _ := net.SplitHostPort(host)
	addr := netip.AddrFrom4([4]byte{127, 0, 1, byte(len(r.hosts) + 1)})
	if old, ok := r.hosts[name]; ok {
		addr = old
	}
	r.hosts[name] = addr
	s := &scripted{r: r, name: host, script: script}
	s.listen(net.JoinHostPort(addr.String(), port))
	return s
}

func (s *scripted) listen(addr string) {
	l, err := s.r.net.Listen(addr)
	if err != nil {
		s.r.t.Fatal(err)
	}
	s.l = l
	s.r.t.Cleanup(func() { l.Close() })
	go s.accept(l)
	stop := s.r.stop
	s.r.stop = func() { stop(); l.Close() }
}

func (s *scripted) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns++
		n := s.conns
		s.mu.Unlock()
		if s.wrap != nil {
			c = s.wrap(c)
		}
		s.r.peers.Go(func() { s.serve(c, n) })
	}
}

func (s *scripted) serve(c net.Conn, conn int) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		req, err := readRequest(in, s.headOnly)
		if err != nil {
			return
		}
		req.At, req.Conn = time.Now(), conn
		s.mu.Lock()
		s.requests = append(s.requests, *req)
		req.N = len(s.requests)
		do := s.script[min(req.N, len(s.script))-1]
		s.mu.Unlock()
		if !do(s, c, req) {
			return
		}
	}
}

// readRequest reads header and body as bytes came. net/http does not get to see
// the target: it would not take all that may be passed on.
func readRequest(in *bufio.Reader, headOnly bool) (*request, error) {
	raw, err := rawHead(in)
	if err != nil {
		return nil, err
	}
	line, fields, _ := strings.Cut(string(raw), "\r\n")
	method, _, _ := strings.Cut(line, " ")
	hr, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " / HTTP/1.1\r\n" + fields)))
	if err != nil {
		return nil, err
	}
	req := &request{Line: line, Header: hr.Header, Host: hr.Host, Raw: raw}
	if headOnly {
		req.Rest = in
		return req, nil
	}
	var body io.Reader = http.NoBody
	switch {
	case len(hr.TransferEncoding) > 0:
		body, err = chunked(in, hr)
	case hr.ContentLength > 0:
		body = io.LimitReader(in, hr.ContentLength)
	}
	if err != nil {
		return nil, err
	}
	req.Body, err = io.ReadAll(body)
	if hr.ContentLength > 0 && int64(len(req.Body)) < hr.ContentLength {
		return nil, io.ErrUnexpectedEOF
	}
	for k, v := range hr.Trailer {
		req.Header["Trailer:"+k] = v
	}
	return req, err
}

// rawHead reads to the end of a header, and no byte of the body.
func rawHead(in *bufio.Reader) (raw []byte, err error) {
	for !bytes.HasSuffix(raw, []byte("\r\n\r\n")) {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		raw = append(raw, line...)
	}
	return raw, nil
}

// chunked decodes a chunked body and its trailers.
func chunked(in *bufio.Reader, hr *http.Request) (io.Reader, error) {
	var out bytes.Buffer
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		var n int64
		if _, err := fmt.Sscanf(strings.TrimSpace(line), "%x", &n); err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		if _, err := io.CopyN(&out, in, n); err != nil {
			return nil, err
		}
		in.Discard(2)
	}
	hr.Trailer = http.Header{}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if line = strings.TrimSpace(line); line == "" {
			return &out, nil
		}
		k, v, _ := strings.Cut(line, ":")
		hr.Trailer.Add(k, strings.TrimSpace(v))
	}
}

// seen are the requests so far.
func (s *scripted) seen() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.requests...)
}

// count is how many requests reached the wire.
func (s *scripted) count() int { return len(s.seen()) }

// gaps are the times between requests.
func (s *scripted) gaps() []time.Duration {
	var out []time.Duration
	all := s.seen()
	for i := 1; i < len(all); i++ {
		out = append(out, all[i].At.Sub(all[i-1].At))
	}
	return out
}

// answer writes a response with a body; extra are header lines.
func answer(status int, body string, extra ...string) step {
	return func(_ *scripted, c net.Conn, _ *request) bool {
		var b strings.Builder
		fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Length: %d\r\n", status, http.StatusText(status), len(body))
		for _, line := range extra {
			b.WriteString(line + "\r\n")
		}
		_, err := io.WriteString(c, b.String()+"\r\n"+body)
		return err == nil
	}
}

// raw writes bytes as they are, then closes.
func raw(text string) step {
	return func(_ *scripted, c net.Conn, _ *request) bool {
		io.WriteString(c, text)
		return false
	}
}

// after waits before the step.
func after(d time.Duration, next step) step {
	return func(s *scripted, c net.Conn, req *request) bool {
		time.Sleep(d)
		return next(s, c, req)
	}
}

// reset breaks the connection after the request was read.
func reset(_ *scripted, c net.Conn, _ *request) bool {
	c.(*memnet.Conn).Reset()
	return false
}

// hangUp closes the connection without an answer.
func hangUp(*scripted, net.Conn, *request) bool { return false }

// silent never answers; it ends with the peer.
func silent(_ *scripted, c net.Conn, _ *request) bool {
	io.Copy(io.Discard, c)
	return false
}

// reply is what a client got.
type reply struct {
	Status  int
	Header  http.Header
	Body    string
	Trailer http.Header
	Took    time.Duration
	Err     error // of reading the body
	Proto   string
}

// dial opens a client connection to the proxy.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := r.net.Dial(r.t.Context(), proxyAddr)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// get sends a GET in absolute form on a connection of its own.
func (r *rig) get(url string, headers ...string) reply { return r.do("GET", url, "", headers...) }

// post sends a POST in absolute form on a connection of its own.
func (r *rig) post(url, body string, headers ...string) reply {
	return r.do("POST", url, body, headers...)
}

// do sends one request in absolute form on a connection of its own.
func (r *rig) do(method, url, body string, headers ...string) reply {
	r.t.Helper()
	c := r.dial()
	defer c.Close()
	return r.exchange(c, rawRequest(method, url, body, headers...), method)
}

// rawRequest is the text of a request in absolute form.
func rawRequest(method, url, body string, headers ...string) string {
	var b strings.Builder
	host := strings.TrimPrefix(strings.TrimPrefix(url, "http://"), "https://")
	host, _, _ = strings.Cut(host, "/")
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, url, host)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	if body != "" || method == "POST" || method == "PUT" || method == "PATCH" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	return b.String() + "\r\n" + body
}

// exchange writes raw bytes on a connection and reads one answer.
func (r *rig) exchange(c net.Conn, text, method string) reply {
	r.t.Helper()
	began := time.Now()
	if _, err := io.WriteString(c, text); err != nil {
		return reply{Err: err, Took: time.Since(began)}
	}
	out := readReply(bufio.NewReader(c), method)
	out.Took = time.Since(began)
	r.letEnd(out)
	return out
}

// letEnd gives a call that was answered the time to end before the next one does:
// most tests look at the last. A call that goes on without its client does not end.
func (r *rig) letEnd(got reply) {
	id, turns := got.Header.Get("X-Call-Id"), 200_000
	if got.Status == 202 {
		turns = 1000
	}
	for range turns {
		if _, ended := r.over.Load(id); ended || id == "" {
			return
		}
		runtime.Gosched()
	}
}

// readReply reads one answer; Status 0: there was none.
func readReply(in *bufio.Reader, method string) reply {
	res, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		return reply{Err: err}
	}
	body, err := io.ReadAll(res.Body)
	return reply{Status: res.StatusCode, Header: res.Header, Body: string(body), Trailer: res.Trailer, Err: err, Proto: res.Proto}
}

// want checks status and number of requests on the wire.
func (r *rig) want(got reply, status int, s *scripted, requests int) {
	r.t.Helper()
	if got.Status != status {
		r.t.Errorf("status = %d, want %d; header %v body %q err %v", got.Status, status, got.Header, got.Body, got.Err)
	}
	if s != nil && s.count() != requests {
		r.t.Errorf("requests at the upstream = %d, want %d", s.count(), requests)
	}
}

// wantHeader checks one response header.
func (r *rig) wantHeader(got reply, name, value string) {
	r.t.Helper()
	if got.Header.Get(name) != value {
		r.t.Errorf("%s = %q, want %q", name, got.Header.Get(name), value)
	}
}

// between checks a duration; the upper bound has the cases' slack already.
func (r *rig) between(what string, got, low, high time.Duration) {
	r.t.Helper()
	if got < low || got > high {
		r.t.Errorf("%s = %v, want %v..%v", what, got, low, high)
	}
}
