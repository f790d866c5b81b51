package egress_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"retryproxy/classify"
	"retryproxy/egress"
	"retryproxy/internal/egresstest"
	"retryproxy/upstream"
)

var _ upstream.Exit = (*egress.Exit)(nil)

const target = "a.test"

// exit is that of a rule "r" with one proxy, for shop "s1".
func exit(t testing.TB, address string) *egress.Exit {
	t.Helper()
	p := proxyOf(t, address)
	table, err := egress.NewTable(egress.Config{
		Rules: []egress.Rule{{Name: "r", Proxies: []egress.Proxy{p}}},
		Shops: map[string]string{"s1": "r"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := table.Way("s1", "", "")
	if err != nil {
		t.Fatal(err)
	}
	return w.Exits[0]
}

// serverTLS is a throw-away identity for 127.0.0.1.
var serverTLS = sync.OnceValue(func() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
})

// banner greets first, then repeats what it hears up to the half-close.
func banner(_ context.Context, _ string) (net.Conn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	far, err := l.Accept()
	if err != nil {
		return nil, err
	}
	go func() {
		defer far.Close()
		_, _ = io.WriteString(far, "hello ")
		_, _ = io.Copy(far, far)
	}()
	return near, nil
}

// TestOpen goes through real proxies of each kind, to a host that speaks first.
func TestOpen(t *testing.T) {
	tests := []struct {
		name, url, kind, user string
		tls                   bool
	}{
		{"http", "http://127.0.0.1", egresstest.HTTP, "", false},
		{"http with user", "http://acct:s3cret@127.0.0.1", egresstest.HTTP, "acct", false},
		{"http session", "http://u-{shop}:s3cret@127.0.0.1", egresstest.HTTP, "u-s1", false},
		{"https with user", "https://acct:s3cret@127.0.0.1", egresstest.HTTP, "acct", true},
		{"socks5", "socks5://127.0.0.1", egresstest.SOCKS5, "", false},
		{"socks5h with user", "socks5h://acct:s3cret@127.0.0.1", egresstest.SOCKS5, "acct", false},
		{"socks5 session", "socks5://u-{shop}:s3cret@127.0.0.1", egresstest.SOCKS5, "u-s1", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			addr := l.Addr().String()
			if test.tls {
				l = tls.NewListener(l, serverTLS())
			}
			c := egresstest.Config{User: test.user, Dial: banner, Record: &egresstest.Record{}}
			if test.user != "" {
				c.Password = "s3cret"
			}
			defer egresstest.Serve(l, c)()
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if test.tls {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			way, fault, err := exit(t, test.url).Open(ctx, conn, target, 443)
			cancel()
			if err != nil || fault != classify.FaultNone {
				t.Fatalf("Open = %v, %v", fault, err)
			}
			_, _ = io.WriteString(way, "world")
			if err := way.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Error(err)
			}
			if got, err := io.ReadAll(way); string(got) != "hello world" {
				t.Errorf("read %q, %v", got, err)
			}
			want := []egresstest.Call{{Kind: test.kind, Target: target + ":443", User: test.user}}
			if diff := cmp.Diff(want, c.Record.Calls(), cmpopts.IgnoreFields(egresstest.Call{}, "Head")); diff != "" {
				t.Errorf("the proxy heard (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOpenRefused: scripted failures of real proxies.
func TestOpenRefused(t *testing.T) {
	tests := []struct {
		name, url string
		config    egresstest.Config
		status    int
		want      classify.Fault
	}{
		{"http wrong password", "http://acct:s3cret@127.0.0.1", egresstest.Config{User: "acct", Password: "x"}, 0, classify.FaultEgressAuth},
		{"socks5 wrong password", "socks5h://acct:s3cret@127.0.0.1", egresstest.Config{User: "acct", Password: "x"}, 0, classify.FaultEgressAuth},
		{"socks5 no user", "socks5h://127.0.0.1", egresstest.Config{User: "acct", Password: "x"}, 0, classify.FaultEgressAuth},
		{"http 403", "http://127.0.0.1", egresstest.Config{}, 403, classify.FaultEgressDenied},
		{"http 502", "http://127.0.0.1", egresstest.Config{}, 502, classify.FaultEgressFailed},
		{"http hangs up", "http://127.0.0.1", egresstest.Config{}, egresstest.HangUp, classify.FaultEgressFailed},
		{"socks5 hangs up", "socks5://127.0.0.1", egresstest.Config{}, egresstest.HangUp, classify.FaultEgressFailed},
		{"socks5 2", "socks5://127.0.0.1", egresstest.Config{}, 2, classify.FaultEgressDenied},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			test.config.Answer = func(string, string) (int, bool) { return test.status, test.status != 0 }
			defer egresstest.Serve(l, test.config)()
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			way, fault, err := exit(t, test.url).Open(t.Context(), conn, target, 443)
			if way != nil || fault != test.want || err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("Open = %v, %v, %v, want %v", way, fault, err, test.want)
			}
		})
	}
}

// hearing is a proxy that reads what it is sent, says a text after each delay
// and then nothing more. stop closes its connection and waits for its end.
func hearing(conn net.Conn, each time.Duration, says ...string) (stop func()) {
	var group sync.WaitGroup
	group.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	group.Go(func() {
		for _, text := range says {
			time.Sleep(each)
			if _, err := io.WriteString(conn, text); err != nil {
				return
			}
		}
	})
	return func() {
		conn.Close()
		group.Wait()
	}
}

// letters cuts text into its bytes.
func letters(text string) []string { return strings.Split(text, "") }

func TestOpenTimes(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\n\r\n"
	const reply = "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
	tests := []struct {
		name, url string
		each      time.Duration
		says      []string
		limit     time.Duration // of the context; 0: none
		cancel    time.Duration // when it is cancelled; 0: never
		fault     classify.Fault
		took      time.Duration
	}{
		{"http says nothing", "http://p.test", 0, nil, 5 * time.Second, 0, classify.FaultEgressTimeout, 5 * time.Second},
		{"socks says nothing", "socks5h://p.test", 0, nil, 5 * time.Second, 0, classify.FaultEgressTimeout, 5 * time.Second},
		{"http stops in its header", "http://p.test", time.Second, []string{"HTTP/1.1 200 OK\r\n"}, 5 * time.Second, 0, classify.FaultEgressTimeout, 5 * time.Second},
		{"socks stops in its reply", "socks5h://p.test", time.Second, []string{"\x05\x00", "\x05\x00\x00"}, 5 * time.Second, 0, classify.FaultEgressTimeout, 5 * time.Second},
		{"http by bytes in time", "http://p.test", time.Second, letters(answer), 20 * time.Second, 0, classify.FaultNone, 19 * time.Second},
		{"http by bytes too late", "http://p.test", time.Second, letters(answer), 18 * time.Second, 0, classify.FaultEgressTimeout, 18 * time.Second},
		{"socks by bytes in time", "socks5h://p.test", time.Second, letters(reply), 13 * time.Second, 0, classify.FaultNone, 12 * time.Second},
		{"http cancelled", "http://p.test", 0, nil, time.Minute, 3 * time.Second, classify.FaultCancelled, 3 * time.Second},
		{"socks cancelled", "socks5://p.test", 0, nil, 0, 3 * time.Second, classify.FaultCancelled, 3 * time.Second},
		{"no limit", "http://p.test", time.Hour, []string{answer}, 0, 0, classify.FaultNone, time.Hour},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.limit > 0 {
					ctx, cancel = context.WithTimeout(ctx, test.limit)
					defer cancel()
				}
				if test.cancel > 0 {
					defer time.AfterFunc(test.cancel, cancel).Stop()
				}
				near, far := net.Pipe()
				defer near.Close()
				defer hearing(far, test.each, test.says...)()
				start := time.Now()
				_, fault, err := exit(t, test.url).Open(ctx, near, target, 443)
				if took := time.Since(start); fault != test.fault || took != test.took {
					t.Errorf("Open = %v, %v after %v, want %v after %v", fault, err, took, test.fault, test.took)
				}
			})
		})
	}
}

// TestOpenLeavesNoDeadline: what bounded the opening does not bound what
// follows, whether it ran out, was cancelled, or never mattered.
func TestOpenLeavesNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer hearing(far, time.Second, "HTTP/1.1 200 OK\r\n\r\n", "after")()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		way, _, err := exit(t, "http://p.test").Open(ctx, near, target, 443)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		got := make([]byte, 5)
		if _, err := io.ReadFull(way, got); err != nil || string(got) != "after" {
			t.Errorf("read %q, %v", got, err)
		}
		if way != near {
			t.Errorf("the way is %T, want the connection itself", way)
		}
	})
}

// TestFailedOpenLeavesTheConnection: it is not closed, and has no deadline.
func TestFailedOpenLeavesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer hearing(far, 2*time.Second, "late")()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, fault, _ := exit(t, "http://p.test").Open(ctx, near, target, 443); fault != classify.FaultEgressTimeout {
			t.Errorf("Open = %v", fault)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(near, got); err != nil || string(got) != "late" {
			t.Errorf("read %q, %v", got, err)
		}
	})
}

// slowConn takes its time to set a deadline.
type slowConn struct{ net.Conn }

func (s slowConn) SetDeadline(t time.Time) error {
	if !t.IsZero() {
		time.Sleep(time.Second)
	}
	return s.Conn.SetDeadline(t)
}

// TestInterruptionIsOverWhenOpenReturns: one that comes too late to matter does
// not strike what follows.
func TestInterruptionIsOverWhenOpenReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer hearing(far, 1500*time.Millisecond, "HTTP/1.1 200 OK\r\n\r\n", "after")()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		way, _, err := exit(t, "http://p.test").Open(ctx, slowConn{near}, target, 443)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(way, got); err != nil || string(got) != "after" {
			t.Errorf("read %q, %v", got, err)
		}
	})
}

// countingConn counts the bytes that are written to it.
type countingConn struct {
	net.Conn
	wrote int
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.wrote += len(p)
	return len(p), nil
}

// TestOpenAfterTheEnd: a context that is done lets nothing be written.
func TestOpenAfterTheEnd(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for _, test := range []struct {
		ctx  context.Context
		want classify.Fault
	}{{ended, classify.FaultCancelled}, {late, classify.FaultEgressTimeout}} {
		near, _ := net.Pipe()
		conn := &countingConn{Conn: near}
		_, fault, err := exit(t, "http://p.test").Open(test.ctx, conn, target, 443)
		if fault != test.want || err == nil || conn.wrote > 0 {
			t.Errorf("Open = %v, %v with %d bytes written, want %v and none", fault, err, conn.wrote, test.want)
		}
	}
}

// TestBrokenConnection: what the network says is passed on; a deadline that was
// there before is a time-out, too.
func TestBrokenConnection(t *testing.T) {
	tests := []struct {
		name   string
		breaks func(near, far net.Conn)
		want   classify.Fault
		detail string
	}{
		{"nobody reads", func(_, far net.Conn) { far.Close() }, classify.FaultEgressFailed, "closed pipe"},
		{"own deadline", func(near, _ net.Conn) { _ = near.SetDeadline(time.Unix(1, 0)) }, classify.FaultEgressTimeout, "in time"},
	}
	for _, test := range tests {
		for _, url := range []string{"http://p.test", "socks5://p.test", "socks5://u:p@p.test"} {
			near, far := net.Pipe()
			test.breaks(near, far)
			_, fault, err := exit(t, url).Open(t.Context(), near, target, 443)
			if fault != test.want || err == nil || !strings.Contains(err.Error(), test.detail) {
				t.Errorf("%s, %s: Open = %v, %v, want %v, %q", test.name, url, fault, err, test.want, test.detail)
			}
		}
	}
}

// TestTimeoutInTLS: interruption reaches through the TLS towards the proxy.
func TestTimeoutInTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	hang := func(string, string) (int, bool) {
		close(asked)
		return egresstest.Hang, true
	}
	defer egresstest.Serve(tls.NewListener(l, serverTLS()), egresstest.Config{Answer: hang})()
	conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, fault, err := exit(t, "https://p.test").Open(ctx, conn, target, 443); fault != classify.FaultCancelled {
		t.Errorf("Open = %v, %v", fault, err)
	}
}

// halfConn remembers a half-close.
type halfConn struct {
	net.Conn
	shut bool
}

func (h *halfConn) CloseWrite() error {
	h.shut = true
	return nil
}

// TestEarlyBytes: what came behind the answer is read first, and the connection
// below stays within reach.
func TestEarlyBytes(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		_, _ = far.Read(make([]byte, 1024))
		_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\n\r\n\x16\x03early")
		_, _ = io.WriteString(far, " late")
		far.Close()
	}()
	below := &halfConn{Conn: near}
	way, _, err := exit(t, "http://p.test").Open(t.Context(), below, target, 443)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 3)
	if n, err := way.Read(first); n != 3 || err != nil || string(first) != "\x16\x03e" {
		t.Errorf("Read = %q, %v", first[:n], err)
	}
	if rest, err := io.ReadAll(way); string(rest) != "arly late" {
		t.Errorf("then %q, %v", rest, err)
	}
	if got := way.(interface{ NetConn() net.Conn }).NetConn(); got != below {
		t.Errorf("NetConn() = %v", got)
	}
	if err := way.(interface{ CloseWrite() error }).CloseWrite(); err != nil || !below.shut {
		t.Errorf("CloseWrite() = %v, shut: %v", err, below.shut)
	}
}

// TestEarlyBytesOverAPipe: where there is no half-close, CloseWrite says so.
func TestEarlyBytesOverAPipe(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		_, _ = far.Read(make([]byte, 1024))
		_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\n\r\nx")
	}()
	way, _, err := exit(t, "http://p.test").Open(t.Context(), near, target, 443)
	if err != nil {
		t.Fatal(err)
	}
	if err := way.(interface{ CloseWrite() error }).CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("CloseWrite() = %v, want ErrUnsupported", err)
	}
}

// proxyOf parses a URL; the port may be left out.
func proxyOf(t testing.TB, text string) egress.Proxy {
	t.Helper()
	u, err := url.Parse(strings.NewReplacer("{", "%7B", "}", "%7D").Replace(text))
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.ParseUint(u.Port(), 10, 16)
	if port == 0 {
		port = map[string]uint64{"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}[u.Scheme]
	}
	password, _ := u.User.Password()
	return egress.Proxy{Scheme: u.Scheme, Host: u.Hostname(), Port: uint16(port), User: u.User.Username(), Password: password}
}
