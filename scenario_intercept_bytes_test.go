package main

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// What is smuggled behind a request with two lengths never reaches the upstream,
// and the connection ends.
func TestSmugglingInsideAnOpenedTunnel(t *testing.T) {
	ca := newCA(t)
	for name, text := range map[string]string{
		"Content-Length and Transfer-Encoding": "POST /x HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":                          "POST /x HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"a length with a sign":                 "POST /x HTTP/1.1\r\nHost: u1.test\r\nContent-Length: +5\r\n\r\nhello",
		"chunked twice":                        "POST /x HTTP/1.1\r\nHost: u1.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a space before the colon":             "POST /x HTTP/1.1\r\nHost: u1.test\r\nContent-Length : 5\r\n\r\nhello",
		"two hosts":                            "POST /x HTTP/1.1\r\nHost: u1.test\r\nHost: u1.test\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
				o := r.open("u1.test:443", visitor{})
				defer o.Close()
				got := o.ask(r, text+"GET /smuggled HTTP/1.1\r\nHost: u1.test\r\n\r\n")
				r.want(got, 400, u, 0)
				rest(5 * time.Second)
				if more, err := io.ReadAll(o.in); len(more) > 0 || err != nil {
					t.Errorf("after the answer: %q, %v; want the end", more, err)
				}
				r.want(got, 400, u, 0)
				r.wantDials(0)
			}, opening(ca, "[u1.test]")...)
		})
	}
}

// Requests that are sent without waiting are answered in order.
func TestPipelinedInsideAnOpenedTunnel(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(503, ""), answer(200, "one"), answer(200, "two"))
		o := r.open("u1.test:443", visitor{})
		defer o.Close()
		got := o.ask(r, "GET /1 HTTP/1.1\r\nHost: u1.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: u1.test\r\n\r\n")
		r.wantBody(got, "one")
		r.wantBody(readReply(o.in, "GET"), "two")
		r.want(got, 200, u, 3)
	}, opening(ca, "[u1.test]")...)
}

// hasty is a client that does not wait for the answer to its CONNECT.
type hasty struct {
	net.Conn
	connect string // goes with the first bytes
	in      *bufio.Reader
	status  int // of the answer
}

func (e *hasty) Write(p []byte) (int, error) {
	head := e.connect
	e.connect = ""
	if _, err := e.Conn.Write(append([]byte(head), p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (e *hasty) Read(p []byte) (int, error) {
	if e.in == nil {
		e.in = bufio.NewReader(e.Conn)
		res, err := http.ReadResponse(e.in, &http.Request{Method: "CONNECT"})
		if err != nil {
			return 0, err
		}
		e.status = res.StatusCode
	}
	return e.in.Read(p)
}

// Bytes that come right behind the CONNECT belong to the tunnel.
func TestClientsThatDoNotWait(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		e := &hasty{Conn: r.dial(), connect: "CONNECT u1.test:443 HTTP/1.1\r\nHost: u1.test:443\r\n\r\n"}
		tc := tls.Client(e, (&visitor{}).config(r, "u1.test"))
		defer tc.Close()
		r.want(r.inside(tc, bufio.NewReader(tc), "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n"), 200, u, 1)
		if e.status != 200 {
			t.Errorf("CONNECT = %d, want 200", e.status)
		}
	}, opening(ca, "[u1.test]")...)
	bubble(t, func(r *rig) { // plain HTTP
		u := r.upstream("u1.test:80", answer(503, ""), answer(200, "ok"))
		e := &hasty{Conn: r.dial(), connect: "CONNECT u1.test:80 HTTP/1.1\r\nHost: u1.test:80\r\n\r\n"}
		defer e.Close()
		r.want(r.inside(e, bufio.NewReader(e), "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n"), 200, u, 2)
	}, opening(ca, "[u1.test]")...)
}

// Port 443 never turns into plain HTTP, and what is neither TLS nor HTTP goes
// through untouched, whatever the port.
func TestOtherBytesInTunnelsToInterceptedHosts(t *testing.T) {
	ca := newCA(t)
	for name, tt := range map[string]struct{ target, says string }{
		"HTTP at 443":           {"u1.test:443", "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n"},
		"HTTP that lies at 443": {"u1.test:443", "GET /x HTTP/1.1\r\nHost: u2.test\r\n\r\n"},
		"other bytes at 443":    {"u1.test:443", "\x00\x01 hello"},
		"other bytes at 80":     {"u1.test:80", "\x00\x01 hello"},
		"other bytes elsewhere": {"u1.test:7000", "SSH-2.0-x\r\n"},
		"an unfinished line":    {"u1.test:7000", "GET /x HTT"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.tunnelEnd(tt.target, func(c net.Conn) {
					all, _ := io.ReadAll(c)
					io.WriteString(c, "bye "+string(all))
				})
				c, in, _ := r.connect(tt.target)
				defer c.Close()
				r.wantDials(0)
				io.WriteString(c, tt.says)
				rest(time.Second)
				c.(interface{ CloseWrite() error }).CloseWrite()
				if back, err := io.ReadAll(in); string(back) != "bye "+tt.says || err != nil {
					t.Errorf("read %q, %v, want %q", back, err, "bye "+tt.says)
				}
				r.wantDials(1)
				r.wantMetric(1, "tunnels_total")
				r.wantMetric(0, "calls_total", "mode=intercept")
				r.wantMetric(0, "calls_total", "mode=forward")
				r.wantEnd("success", "ok", 1) // the dial is an attempt as in any other tunnel
			}, opening(ca, "[u1.test]")...)
		})
	}
}

// Plain HTTP in a tunnel to another port is served, intercepted or not.
func TestPlainHTTPInATunnelToAnInterceptedHost(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(200, "ok"))
		c, in, _ := r.connect("u1.test:80")
		defer c.Close()
		r.want(r.inside(c, in, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n"), 200, u, 2)
		r.wantMode("forward")
		r.want(r.inside(c, in, "GET /x HTTP/1.1\r\nHost: u2.test\r\n\r\n"), 400, u, 2)
		r.wantMetric(0, "tunnels_total")
	}, opening(ca, "[u1.test]")...)
}

// A host that cannot be reached ends the tunnel of a client that speaks neither.
func TestOtherBytesForAHostThatIsGone(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		r.closed("u1.test:7000", answer(200, ""))
		c, in, _ := r.connect("u1.test:7000")
		defer c.Close()
		io.WriteString(c, "\x00\x01 hello")
		if back, err := io.ReadAll(in); len(back) > 0 || err != nil {
			t.Errorf("read %q, %v, want the end", back, err)
		}
		if c := r.last(); c.Result != "failed" || c.Mode != "connect" {
			t.Errorf("the call ended as %s %s, want a failed connect", c.Mode, c.Result)
		}
	}, opening(ca, "[u1.test]")...)
}

// Nothing is held for ever: clients that ask for a tunnel and say nothing, or
// not all of it, are let go.
func TestSilentClientsOfOpenedTunnels(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		began := time.Now()
		var group sync.WaitGroup
		for range 200 {
			c, in, got := r.connect("u1.test:443")
			r.want(got, 200, nil, 0)
			group.Go(func() {
				defer c.Close()
				if _, err := in.ReadByte(); err != io.EOF {
					t.Errorf("the end of a silent tunnel: %v, want io.EOF", err)
				}
			})
		}
		group.Wait()
		r.between("silent tunnels", time.Since(began), 10*time.Second, 10*time.Second)
		r.wantDials(0)
		r.wantLeaves(0)
	}, patches(opening(ca, "[u1.test]"), lays("limits: {tunnel_idle: 2m}"))...)
	bubble(t, func(r *rig) {
		for _, part := range []string{"\x16", "\x16\x03\x01\x02\x00", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"} {
			c, in, _ := r.connect("u1.test:443")
			began := time.Now()
			io.WriteString(c, part)
			if _, err := in.ReadByte(); err == nil {
				t.Errorf("the end of half a handshake: %v", err)
			}
			r.between("half a handshake", time.Since(began), 10*time.Second, 10*time.Second)
			c.Close()
		}
		c, in, _ := r.connect("u1.test:443") // a trickle is no better
		began := time.Now()
		go func() {
			for {
				if _, err := io.WriteString(c, "\x16"); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		_, _ = io.Copy(io.Discard, in)
		r.between("a trickle", time.Since(began), 0, 10*time.Second)
		c.Close()
		rest(2 * time.Second)
		r.wantMetric(0, "intercept_refused_total")
	}, opening(ca, "[u1.test]")...)
	bubble(t, func(r *rig) { // after the handshake
		o := r.open("u1.test:443", visitor{})
		defer o.Close()
		began := time.Now()
		if _, err := o.in.ReadByte(); err == nil {
			t.Error("a byte came, want the end")
		}
		r.between("a client without a request", time.Since(began), time.Second, clientIdle)
	}, opening(ca, "[u1.test]")...)
}

// A request header inside that does not end is cut as outside.
func TestUnfinishedHeaderInside(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		o := r.open("u1.test:443", visitor{})
		defer o.Close()
		began := time.Now()
		got := o.ask(r, "GET /x HTTP/1.1\r\nHost: u1.test\r\nA: ")
		r.want(got, 400, nil, 0)
		r.between("the answer", time.Since(began), 10*time.Second, 10*time.Second)
		r.wantDials(0)
	}, opening(ca, "[u1.test]")...)
}

// Requests inside are bounded as outside.
func TestLargeHeadersInside(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		o := r.open("u1.test:443", visitor{})
		defer o.Close()
		r.want(o.ask(r, "GET /x HTTP/1.1\r\nHost: u1.test\r\nA: "+strings.Repeat("x", 70<<10)+"\r\n\r\n"), 431, nil, 0)
		r.wantDials(0)
	}, opening(ca, "[u1.test]")...)
}

// An upstream that takes nothing does not hold the end of a call up by not taking
// our goodbye either: TLS would wait five seconds for that.
func TestStalledUploadOverTLSEndsInTime(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		cert := ca.certificate("u1.test")
		r.tunnelEnd("u1.test:443", func(raw net.Conn) {
			c := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{cert}})
			_ = c.Handshake()
			rest(100 * time.Second)
		})
		got := r.post("https://u1.test/", strings.Repeat("x", 30<<20))
		r.want(got, 504, nil, 0)
		r.between("time of the call", got.Took, 6*time.Second, 6*time.Second) // the deadline
	}, patches(plain, trusting(ca))...)
}
