package inbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/internal/memnet"
	"retryproxy/message"
)

// sleeper answers after d, whatever its client does.
func sleeper(d time.Duration) func(*Call) {
	return func(c *Call) {
		c.Watch()
		time.Sleep(d)
		_, _ = c.Answer(text(200, "late"), time.Minute)
	}
}

func TestShutdownLetsCallsEnd(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: sleeper(10 * time.Second), IdleTimeout: time.Hour})
		fresh, kept, busy, slow := r.dial(), r.dial(), r.dial(), r.dial()
		kept.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		kept.receive()
		start := time.Now()
		busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
		slow.send("GET / HT")
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- r.server.Shutdown(context.Background()) }()
		synctest.Wait()
		if _, err := r.net.Dial(t.Context(), rigAddr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial while shutting down = %v, want ECONNREFUSED", err)
		}
		if fresh.rest()+kept.rest() != "" || time.Since(start) != 0 {
			t.Errorf("idle connections ended after %v, want at once", time.Since(start))
		}
		if got := busy.receive(); got.status != 200 || got.field("Connection") != "close" {
			t.Errorf("call in flight = %d, Connection %q, want 200, close", got.status, got.field("Connection"))
		}
		if rest := busy.rest(); rest != "" {
			t.Errorf("after Connection: close came %q", rest)
		}
		time.Sleep(5 * time.Second)
		slow.send("TP/1.1\r\nHost: a\r\n\r\n") // its request had begun
		if got := slow.receive(); got.status != 200 || got.field("Connection") != "close" {
			t.Errorf("request that had begun = %d, Connection %q, want 200, close", got.status, got.field("Connection"))
		}
		if err := <-done; err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
	})
}

func TestShutdownEndsHardWithItsContext(t *testing.T) {
	inBubble(t, func(r *rig) {
		gone := make(chan time.Duration, 1)
		r.start(&Server{Handler: waitContext(time.Hour, gone)})
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
		defer cancel()
		if err := r.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown = %v, want deadline exceeded", err)
		}
		if got := <-gone; got != 25*time.Second {
			t.Errorf("the handler's context ended after %v, want 25s", got)
		}
	})
}

func TestServeAfterShutdown(t *testing.T) {
	s := &Server{Handler: echo}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatalf("Shutdown = %v, want nil", err)
	}
	l, _ := memnet.New().Listen(rigAddr)
	if err := s.Serve(l, &Listener{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Serve = %v, want ErrClosed", err)
	}
}

func TestConnectionsOverTheBound(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: func(c *Call) {
			if c.Request.Target == "/slow" {
				sleeper(10 * time.Second)(c)
				return
			}
			echo(c)
		}, Connections: 2})
		first, second := r.dial(), r.dial()
		first.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n")
		first.receive()
		time.Sleep(time.Second)
		second.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
		second.receive()

		third := r.dial() // takes the place of the one that is idle longest
		third.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
		if rest := first.rest(); rest != "" {
			t.Errorf("the oldest idle connection got %q, want its end", rest)
		}
		second.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
		synctest.Wait()

		start := time.Now()
		fourth := r.dial() // all are busy: it waits
		fourth.send("GET /4 HTTP/1.1\r\nHost: a\r\n\r\n")
		if got := fourth.receive(); got.body != "GET /4 " || time.Since(start) != 10*time.Second {
			t.Errorf("answer = %q after %v, want GET /4 after 10s", got.body, time.Since(start))
		}
	})
}

func TestShutdownWhileAConnectionWaitsForAPlace(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: sleeper(10 * time.Second), Connections: 1})
		busy := r.dial()
		busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		synctest.Wait() // else it is idle, and gives its place up
		waiting := r.dial()
		synctest.Wait()
		if err := r.server.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		if rest := waiting.rest(); rest != "" {
			t.Errorf("the waiting connection got %q, want its end", rest)
		}
		busy.receive()
	})
}

// failing is a listener that is out of descriptors a few times.
type failing struct {
	net.Listener
	left int
}

func (f *failing) Accept() (net.Conn, error) {
	if f.left > 0 {
		f.left--
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept", syscall.EMFILE)}
	}
	return f.Listener.Accept()
}

func TestAcceptFailuresAreWaitedOut(t *testing.T) {
	inBubble(t, func(r *rig) {
		logged := 0
		s := &Server{Handler: echo, ErrorLog: func(string, ...any) { logged++ }}
		l, _ := r.net.Listen(rigAddr)
		done := make(chan error, 1)
		start := time.Now()
		go func() { done <- s.Serve(&failing{l, 10}, &Listener{}) }()
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.receive()
		// 5, 10, 20 … 640 ms, then 1 s each
		if want := 1275*time.Millisecond + 2*time.Second; logged != 10 || time.Since(start) != want {
			t.Errorf("accepted after %v and %d log lines, want %v and 10", time.Since(start), logged, want)
		}
		_ = s.Close()
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve = %v, want ErrClosed", err)
		}
	})
}

func TestConnectTunnel(t *testing.T) {
	for _, version := range []string{"1.1", "1.0"} {
		t.Run(version, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.start(&Server{Handler: func(c *Call) {
					tunnel, err := c.AcceptConnect(message.Fields{{Name: "X-Call-Id", Value: "7"}, {Name: "Content-Length", Value: "0"}})
					if err != nil {
						t.Errorf("AcceptConnect = %v, want nil", err)
						return
					}
					b, err := io.ReadAll(tunnel)
					if err != nil {
						t.Errorf("ReadAll = %v, want nil", err)
					}
					_, _ = fmt.Fprintf(tunnel, "got %d", len(b))
				}, IdleTimeout: time.Second, HeaderTimeout: time.Second})
				c := r.dial()
				c.send("CONNECT u1.test:443 HTTP/" + version + "\r\nHost: u1.test:443\r\n\r\nearly")
				want := "HTTP/1.1 200 Connection established\r\nX-Call-Id: 7"
				if got := c.receive(); got.head != want {
					t.Errorf("head = %q, want %q", got.head, want)
				}
				time.Sleep(time.Minute) // no deadline of ours is left
				c.send(strings.Repeat("x", 1<<20))
				_ = c.CloseWrite()
				if got := c.rest(); got != "got 1048581" {
					t.Errorf("inside the tunnel came %q, want got 1048581", got)
				}
			})
		})
	}
}

func TestPeekInATunnel(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: func(c *Call) {
			c.Watch()
			time.Sleep(time.Second) // the watcher reads the first byte
			tunnel, err := c.AcceptConnect(nil)
			if err != nil {
				t.Errorf("AcceptConnect = %v, want nil", err)
				return
			}
			_ = tunnel.SetReadDeadline(time.Now().Add(time.Second))
			if b, err := tunnel.Peek(3); string(b) != "GE" || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Peek(3) = %q, %v, want GE, deadline exceeded", b, err)
			}
			_ = tunnel.SetReadDeadline(time.Time{})
			_, _ = tunnel.Write([]byte("server speaks"))
			if b, err := tunnel.Peek(3); string(b) != "GET / " || err != nil {
				t.Errorf("Peek(3) = %q, %v, want all that came, nil", b, err)
			}
			if b, err := tunnel.Peek(5000); string(b) != "GET / " || err == nil {
				t.Errorf("Peek(5000) = %q, %v, want all there was and an error", b, err)
			}
			b, err := io.ReadAll(tunnel)
			if string(b) != "GET / " || err != nil {
				t.Errorf("ReadAll = %q, %v, want GET /, nil", b, err)
			}
		}})
		c := r.dial()
		c.send("CONNECT u1.test:80 HTTP/1.1\r\nHost: u1.test:80\r\n\r\n")
		time.Sleep(100 * time.Millisecond)
		c.send("GE")
		c.receive()
		time.Sleep(2 * time.Second)
		c.send("T / ")
		_ = c.CloseWrite()
		if got := c.rest(); got != "server speaks" {
			t.Errorf("the client got %q, want server speaks", got)
		}
	})
}

func TestServeInside(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := &Server{IdleTimeout: time.Second}
		s.Handler = func(c *Call) {
			if c.Form != Authority {
				_, _ = c.Answer(text(200, fmt.Sprint(c.Tunnel.Authority, " ", c.Request.Target, " ", c.Client.Addr())), time.Minute)
				return
			}
			tunnel, err := c.AcceptConnect(nil)
			if err != nil {
				t.Errorf("AcceptConnect = %v, want nil", err)
				return
			}
			if b, err := tunnel.Peek(1); err != nil || b[0] != 'G' {
				t.Errorf("Peek = %q, %v, want G", b, err)
			}
			s.ServeInside(tunnel, c.Listener, c.Client, &Tunnel{Authority: c.Request.Authority})
		}
		r.start(s)
		c := r.dial()
		c.send("CONNECT u1.test:80 HTTP/1.1\r\nHost: u1.test:80\r\n\r\nGET /1 HTTP/1.1\r\nHost: u1.test\r\n\r\n")
		c.receive()
		if got := c.receive(); got.body != "u1.test:80 /1 127.0.0.1" {
			t.Errorf("answer = %q, want u1.test:80 /1 127.0.0.1", got.body)
		}
		c.send("GET /2 HTTP/1.1\r\nHost: u1.test\r\n\r\n")
		if got := c.receive(); got.body != "u1.test:80 /2 127.0.0.1" {
			t.Errorf("answer = %q, want u1.test:80 /2 127.0.0.1", got.body)
		}
		if rest := c.rest(); rest != "" { // the idle time-out ends the inside and the tunnel
			t.Errorf("then came %q, want the end", rest)
		}
	})
}

func TestUpgrade(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: func(c *Call) {
			ws, err := c.Upgrade(&message.Response{Status: 101, Fields: message.Fields{{Name: "Sec-WebSocket-Accept", Value: "x"}}})
			if err != nil {
				t.Errorf("Upgrade = %v, want nil", err)
				return
			}
			_, _ = io.Copy(ws, ws)
			_ = ws.CloseWrite()
		}})
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nframe1")
		want := "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\nUpgrade: websocket\r\nConnection: Upgrade"
		if got := c.receive(); got.head != want {
			t.Errorf("head = %q, want %q", got.head, want)
		}
		c.send("frame2")
		_ = c.CloseWrite()
		if got := c.rest(); got != "frame1frame2" {
			t.Errorf("echo = %q, want frame1frame2", got)
		}
	})
}

func TestHandOverNeedsTheContentRead(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: func(c *Call) {
			if _, err := c.Upgrade(&message.Response{Status: 101}); err == nil {
				t.Error("Upgrade with unread content = nil, want an error")
			}
			echo(c)
			if _, err := c.AcceptConnect(nil); !errors.Is(err, ErrAnswered) {
				t.Errorf("AcceptConnect after the answer = %v, want ErrAnswered", err)
			}
		}})
		c := r.dial()
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
		if got := c.receive(); got.body != "POST / hi" {
			t.Errorf("answer = %q, want POST / hi", got.body)
		}
	})
}

func TestShutdownLeavesTunnelsToClose(t *testing.T) {
	inBubble(t, func(r *rig) {
		ended := make(chan error, 1)
		r.start(&Server{Handler: func(c *Call) {
			tunnel, _ := c.AcceptConnect(nil)
			_, err := tunnel.Read(make([]byte, 1))
			ended <- err
		}})
		c := r.dial()
		c.send("CONNECT u1.test:443 HTTP/1.1\r\nHost: a\r\n\r\n")
		c.receive()
		start := time.Now()
		if err := r.server.Shutdown(context.Background()); err != nil || time.Since(start) != 0 {
			t.Errorf("Shutdown = %v after %v, want nil at once", err, time.Since(start))
		}
		select {
		case err := <-ended:
			t.Errorf("Shutdown ended the tunnel: %v", err)
		default:
		}
		_ = r.server.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the tunnel's Read = %v, want net.ErrClosed", err)
		}
	})
}

func TestCallKnowsWhereItCameFrom(t *testing.T) {
	inBubble(t, func(r *rig) {
		calls := make(chan Call, 1)
		r.start(&Server{Handler: func(c *Call) { calls <- *c }})
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		got := <-calls
		if got.Listener.Addr != rigAddr || got.Client.Addr() != netip.MustParseAddr("127.0.0.1") || got.Tunnel != nil || !got.Received.Equal(time.Now()) {
			t.Errorf("call = %+v", got)
		}
	})
}
