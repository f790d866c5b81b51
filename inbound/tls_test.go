package inbound

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/message"
)

func denyAll(netip.Addr) bool { return false }

// tlsTransport counts its connections.
type tlsTransport struct {
	http.Transport
	dials atomic.Int64
}

func tlsClient(r *rig, protocol string) (*tlsTransport, string) {
	tr := &tlsTransport{}
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetHTTP1(protocol == "http/1.1")
	tr.Protocols.SetHTTP2(protocol == "h2")
	tr.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	tr.ExpectContinueTimeout = time.Hour
	tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		tr.dials.Add(1)
		return r.net.Dial(ctx, rigAddr)
	}
	return tr, "https://u1.test"
}

// HTTP/1.1 over TLS: 100-continue, uploads with back-pressure, kept connections.
func TestTLSHTTP1(t *testing.T) {
	inBubble(t, func(r *rig) {
		const size = 8 << 20
		r.startInside(&Server{IdleTimeout: time.Minute, HeaderTimeout: time.Second, Handler: func(c *Call) {
			time.Sleep(10 * time.Second)
			n, err := io.Copy(io.Discard, c)
			c.Watch()
			_, _ = c.Answer(text(200, fmt.Sprint(c.Request.Version, " ", n, err)), time.Second)
		}}, &Tunnel{Scheme: "https"}, "http/1.1")
		tr, url := tlsClient(r, "http/1.1")
		defer tr.CloseIdleConnections()
		for range 2 {
			src := &blanks{left: size}
			res := make(chan got, 1)
			go func() { res <- do(tr, "POST", url+"/", src, nil) }()
			synctest.Wait()
			if n := src.given.Load(); n > 1<<20 {
				t.Errorf("the client could send %d bytes that nobody reads", n)
			}
			if got := <-res; got.body != fmt.Sprint("1.1 ", size, nil) {
				t.Errorf("answer = %q, %v, want %d bytes read", got.body, got.err, size)
			}
		}
		got := do(tr, "POST", url+"/", strings.NewReader("x"), func(q *http.Request) { q.Header.Set("Expect", "100-continue") })
		if got.body != fmt.Sprint("1.1 ", 1, nil) {
			t.Errorf("with 100-continue = %q, %v", got.body, got.err)
		}
		if n := tr.dials.Load(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// A write that comes long after the last one succeeds: a deadline of TLS that
// has gone by would be the end of the connection.
func TestTLSWritesAfterAPause(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.startInside(&Server{Handler: func(c *Call) {
					_, err := c.Answer(&message.Response{Status: 200, Length: -1, Body: &later{pieces: []string{"a", "b", "c"}, pause: time.Hour}}, time.Second)
					if err != nil {
						t.Errorf("Answer = %v, want nil", err)
					}
				}}, &Tunnel{Scheme: "https"}, protocol)
				tr, url := tlsClient(r, protocol)
				defer tr.CloseIdleConnections()
				if got := do(tr, "GET", url+"/", nil, nil); got.body != "abc" || got.err != nil {
					t.Errorf("answer = %q, %v, want abc", got.body, got.err)
				}
			})
		})
	}
}

func TestTLSClientTakesNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		done := make(chan time.Duration, 1)
		r.startInside(&Server{Handler: func(c *Call) {
			began := time.Now()
			_, err := c.Answer(&message.Response{Status: 200, Length: 64 << 20, Body: io.NopCloser(&blanks{left: 64 << 20})}, 20*time.Second)
			if !errors.Is(err, ErrClient) {
				t.Errorf("Answer = %v, want ErrClient", err)
			}
			done <- time.Since(began)
		}}, &Tunnel{Scheme: "https"}, "http/1.1")
		c := r.dial()
		tc := tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
		_, _ = io.WriteString(tc, "GET / HTTP/1.1\r\nHost: u1.test\r\n\r\n")
		if got := <-done; got < 20*time.Second || got > 25*time.Second {
			t.Errorf("cut after %v, want 20s to 25s", got)
		}
		_, _ = io.Copy(io.Discard, tc)
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("below TLS the client reads %v, want ECONNRESET", err)
		}
		_ = c.Close()
	})
}

// Close waits for nobody, not even to say goodbye in TLS.
func TestTLSCloseIsHard(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				full := make(chan struct{})
				r.startInside(&Server{Handler: func(c *Call) {
					body := &later{pieces: []string{strings.Repeat("x", 32<<10), strings.Repeat("x", 31<<10), "end"}}
					time.AfterFunc(time.Second, func() { close(full) })
					_, _ = c.Answer(&message.Response{Status: 200, Length: -1, Body: &unending{body, c.Context()}}, time.Hour)
				}}, &Tunnel{}, protocol)
				tr, url := tlsClient(r, protocol)
				defer tr.CloseIdleConnections()
				req, _ := http.NewRequest("GET", url+"/", nil)
				res, err := tr.RoundTrip(req)
				if err != nil {
					t.Errorf("RoundTrip = %v, want nil", err)
					return
				}
				<-full
				began := time.Now()
				_ = r.server.Close()
				if took := time.Since(began); took != 0 {
					t.Errorf("Close took %v, want nothing", took)
				}
				if _, err := io.Copy(io.Discard, res.Body); err == nil {
					t.Error("the answer ended well")
				}
				_ = res.Body.Close()
			})
		})
	}
}

// unending is a body that never ends but with its context.
type unending struct {
	*later
	ctx context.Context
}

func (p *unending) Read(b []byte) (int, error) {
	if len(p.pieces) > 1 {
		return p.later.Read(b)
	}
	<-p.ctx.Done()
	return 0, p.ctx.Err()
}

// A reset reaches the connection below TLS, and below the stream of a CONNECT.
func TestTLSResetInsideATunnel(t *testing.T) {
	inBubble(t, func(r *rig) {
		config := testTLS(t)
		s := &Server{}
		s.Handler = func(c *Call) {
			if c.Form != Authority {
				_, _ = c.Answer(&message.Response{Status: 200, Length: 9, Body: &later{pieces: []string{"x"}, err: io.ErrClosedPipe}}, time.Minute)
				return
			}
			tunnel, err := c.AcceptConnect(nil)
			if err != nil {
				t.Errorf("AcceptConnect = %v, want nil", err)
				return
			}
			tc := tls.Server(tunnel, config)
			if err := tc.Handshake(); err != nil {
				t.Errorf("Handshake = %v, want nil", err)
				return
			}
			s.ServeInside(tc, c.Listener, c.Client, &Tunnel{Authority: c.Request.Authority, Scheme: "https"})
		}
		r.start(s)
		c := r.dial()
		c.send("CONNECT u1.test:443 HTTP/1.1\r\nHost: u1.test:443\r\n\r\n")
		c.receive()
		tc := tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
		_, _ = io.WriteString(tc, "GET / HTTP/1.1\r\nHost: u1.test\r\n\r\n")
		if _, err := io.ReadAll(tc); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("ReadAll = %v, want ECONNRESET", err)
		}
		_ = c.Close()
	})
}

// A client that leaves is seen below TLS; one that closes its side alone counts
// as gone, too, as without TLS.
func TestTLSWatch(t *testing.T) {
	for _, how := range []string{"close", "half-close", "reset"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				gone := make(chan time.Duration, 1)
				r.startInside(&Server{Handler: waitContext(time.Hour, gone)}, &Tunnel{Scheme: "https"}, "http/1.1")
				c := r.dial()
				tc := tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
				_, _ = io.WriteString(tc, "GET / HTTP/1.1\r\nHost: u1.test\r\n\r\n")
				time.Sleep(3 * time.Second)
				switch how {
				case "close":
					_ = tc.Close()
				case "half-close":
					_ = tc.CloseWrite()
				case "reset":
					_ = c.Reset()
				}
				if got := <-gone; got != 3*time.Second {
					t.Errorf("gone after %v, want 3s", got)
				}
				_ = tc.Close()
			})
		})
	}
}

// Pipelined requests survive a watch over TLS.
func TestTLSPipeline(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.startInside(&Server{Handler: sleeper(time.Second)}, &Tunnel{Scheme: "https"}, "http/1.1")
		c := r.dial()
		tc := tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
		in := bufio.NewReader(tc)
		_, _ = io.WriteString(tc, "GET /1 HTTP/1.1\r\nHost: u1.test\r\n\r\n")
		time.Sleep(100 * time.Millisecond)
		_, _ = io.WriteString(tc, "GET /2 HTTP/1.1\r\nHost: u1.test\r\n\r\n")
		for range 2 {
			res, err := http.ReadResponse(in, nil)
			if err != nil || res.StatusCode != 200 {
				t.Fatalf("answer = %v, %v, want 200", res, err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
		}
		_ = tc.Close()
	})
}
