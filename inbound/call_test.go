package inbound

import (
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/message"
)

func TestKeepAliveAndPipelining(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: echo})
		c := r.dial()
		c.send("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\r\n" +
			"POST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n0\r\nX-T: 1\r\n\r\n" +
			"GET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /4 HTTP/1.1\r\nHost: a\r\n\r\n")
		for _, want := range []string{"POST /1 abc", "POST /2 xyz X-T=1", "GET /3 "} {
			if got := c.receive(); got.body != want || got.status != 200 {
				t.Errorf("answer = %d %q, want 200 %q", got.status, got.body, want)
			}
		}
		if rest := c.rest(); rest != "" {
			t.Errorf("after Connection: close came %q, want nothing", rest)
		}
	})
}

func TestBadIsAnsweredAndClosed(t *testing.T) {
	for _, tt := range []struct{ name, raw, want string }{
		{"syntax", "GET / HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n", "bad_request: no Host"},
		{"TLS", "\x16\x03\x01\x02\x00", "bad_request: the client speaks TLS, this port speaks plain HTTP"},
		{
			"SM-01", "POST /x HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: u1.test\r\n\r\n",
			"bad_request: Content-Length together with Transfer-Encoding",
		},
		{"SM-05", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n", "header_too_large: the header is larger than 65536 bytes"},
		{"target too long", "GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\n", "bad_request: the request line is longer than 65536 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.start(&Server{Handler: echo})
				c := r.dial()
				c.send(tt.raw)
				got := c.receive()
				if got.body != tt.want || got.field("Connection") != "close" {
					t.Errorf("answer = %q, Connection %q, want %q, close", got.body, got.field("Connection"), tt.want)
				}
				if rest := c.rest(); rest != "" {
					t.Errorf("after the answer came %q, want the end", rest)
				}
			})
		})
	}
}

func TestTargetsUpTo8000BytesAreTaken(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: echo})
		c := r.dial()
		target := "/" + strings.Repeat("x", 9000)
		c.send("GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n")
		if got := c.receive(); got.status != 200 || len(got.body) != len(target)+5 {
			t.Errorf("answer = %d with %d bytes, want 200 with %d", got.status, len(got.body), len(target)+5)
		}
	})
}

func TestDeniedClient(t *testing.T) {
	s := &Server{Handler: echo, Allow: func(a netip.Addr) bool { return a.IsLoopback() }}
	inBubble(t, func(r *rig) {
		r.start(s)
		raw, err := r.net.DialFrom(t.Context(), netip.MustParseAddr("10.0.0.7"), rigAddr)
		if err != nil {
			t.Fatal(err)
		}
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if got := c.receive(); got.status != 200 {
			t.Errorf("loopback = %d, want 200", got.status)
		}
		_, _ = raw.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
		b, _ := io.ReadAll(raw)
		if got := string(b); !strings.HasPrefix(got, "HTTP/1.1 403 Forbidden\r\n") || !strings.Contains(got, "client_denied: the address 10.0.0.7 is not in clients.allow") {
			t.Errorf("10.0.0.7 got %q, want 403 with address and setting", got)
		}
	})
}

func TestHeaderTimeout(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: echo, HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute})
		c := r.dial()
		time.Sleep(30 * time.Second) // idle: the header's time has not begun
		start := time.Now()
		for _, piece := range []string{"GET / HT", "TP/1.1\r\nHo", "st: a\r\n"} {
			c.send(piece)
			time.Sleep(3 * time.Second)
		}
		got := c.receive()
		if took := time.Since(start); got.status != 400 || took != 10*time.Second {
			t.Errorf("slow header = %d after %v, want 400 after 10s", got.status, took)
		}
	})
}

func TestIdleTimeout(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: echo, HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute})
		c := r.dial()
		for range 3 {
			c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			c.receive()
			time.Sleep(59 * time.Second)
		}
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.receive()
		start := time.Now()
		if rest := c.rest(); rest != "" || time.Since(start) != time.Minute {
			t.Errorf("idle connection ended with %q after %v, want nothing after 1m", rest, time.Since(start))
		}
	})
}

func TestClientLeavesMidHeader(t *testing.T) {
	called := false
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: func(*Call) { called = true }})
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n")
		_ = c.CloseWrite()
		if rest := c.rest(); rest != "" || called {
			t.Errorf("half a header = %q, handler called %v, want nothing", rest, called)
		}
	})
}

func TestClientGoneWhileWaiting(t *testing.T) {
	for name, leave := range map[string]func(c *client){
		"close":      func(c *client) { _ = c.Close() },
		"reset":      func(c *client) { _ = c.Reset() },
		"half-close": func(c *client) { _ = c.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				gone := make(chan time.Duration, 1)
				left := make(chan time.Time, 1)
				r.start(&Server{Handler: func(c *Call) {
					waitContext(time.Hour, gone)(c)
					left <- c.Left()
				}})
				began := time.Now()
				c := r.dial()
				c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
				time.Sleep(300 * time.Millisecond)
				leave(c)
				if got := <-gone; got != 300*time.Millisecond {
					t.Errorf("noticed after %v, want 300ms", got)
				}
				if got := (<-left).Sub(began); got != 300*time.Millisecond {
					t.Errorf("left after %v, want 300ms", got)
				}
			})
		})
	}
}

// A call may be watched because the timer of an earlier one goes off.
func TestClientGoneOnALaterCall(t *testing.T) {
	inBubble(t, func(r *rig) {
		gone := make(chan time.Duration, 1)
		handler := waitContext(time.Hour, gone)
		s := &Server{Handler: func(c *Call) {
			if c.Request.Target == "/fast" {
				echo(c)
				return
			}
			handler(c)
		}}
		r.start(s)
		c := r.dial()
		c.send("GET /fast HTTP/1.1\r\nHost: a\r\n\r\n")
		c.receive()
		time.Sleep(20 * time.Millisecond)
		c.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
		synctest.Wait()
		_ = c.Close()
		if got := <-gone; got != watchAfter {
			t.Errorf("noticed after %v, want %v", got, watchAfter)
		}
	})
}

func TestWatcherPutsBytesBack(t *testing.T) {
	for _, tt := range []struct {
		name          string
		second, third time.Duration // when they are sent, from the first on
	}{
		{"before the watcher looks", 10 * time.Millisecond, 20 * time.Millisecond},
		{"while it looks", 100 * time.Millisecond, 200 * time.Millisecond},
		{"with the request", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				gone := make(chan time.Duration, 9)
				r.start(&Server{Handler: waitContext(time.Second, gone)})
				c := r.dial()
				c.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n")
				time.Sleep(tt.second)
				c.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
				time.Sleep(tt.third - tt.second)
				c.send("GET /3 HTTP/1.1\r\nHost: a\r\n\r\n")
				for i, want := range []string{"/1", "/2", "/3"} {
					if got := c.receive(); got.status != 200 || got.body != want {
						t.Errorf("answer %d = %d %q, want 200 %q", i+1, got.status, got.body, want)
					}
				}
				time.Sleep(time.Second) // a read deadline of the watcher must not end the idle connection
				c.send("GET /4 HTTP/1.1\r\nHost: a\r\n\r\n")
				if got := c.receive(); got.body != "/4" {
					t.Errorf("answer 4 = %q, want /4", got.body)
				}
			})
		})
	}
}

// A call that streams its content asks to be watched before it has read it.
func TestClientGoneAfterAStreamedContent(t *testing.T) {
	inBubble(t, func(r *rig) {
		gone := make(chan time.Duration, 1)
		r.start(&Server{Handler: func(c *Call) {
			c.Watch()
			go func() { _, _ = io.Copy(io.Discard, c) }()
			start := time.Now()
			<-c.Context().Done()
			gone <- time.Since(start)
		}})
		c := r.dial()
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab")
		time.Sleep(time.Second)
		c.send("cd")
		time.Sleep(time.Second)
		_ = c.Close()
		if got := <-gone; got != 2*time.Second {
			t.Errorf("noticed after %v, want 2s", got)
		}
	})
}

// An idle connection without a buffer serves on.
func TestIdleForLong(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: echo})
		c := r.dial()
		for range 3 {
			time.Sleep(time.Hour)
			synctest.Wait()
			for k := range r.server.conns {
				if k.in.buf != nil {
					t.Error("an idle connection holds a read buffer")
				}
			}
			c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
			if got := c.receive(); got.body != "POST / hi" {
				t.Errorf("answer = %q, want POST / hi", got.body)
			}
		}
		c.send("\r\n") // left over from an old client's POST: no request begins
		time.Sleep(time.Hour)
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if got := c.receive(); got.status != 200 {
			t.Errorf("answer = %d, want 200", got.status)
		}
	})
}

func TestStrayEmptyLineIsNoSlowHeader(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: echo, HeaderTimeout: time.Second})
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n")
		c.receive()
		if rest := c.rest(); rest != "" {
			t.Errorf("an empty line was answered with %q, want the end", rest)
		}
	})
}

func TestWaitingCallHoldsNoBuffer(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: waitContext(time.Second, make(chan time.Duration, 1))})
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		for k := range r.server.conns {
			if k.in.buf != nil {
				t.Error("a waiting call holds a read buffer")
			}
		}
		c.receive()
	})
}

func TestLeavingRightAfterTheAnswerIsNoNews(t *testing.T) {
	inBubble(t, func(r *rig) {
		err := make(chan error, 1)
		s := &Server{Handler: func(c *Call) {
			c.Watch()
			time.Sleep(time.Second)
			_, _ = c.Answer(text(200, "x"), time.Minute)
			time.Sleep(time.Second)
			if at := c.Left(); !at.IsZero() {
				t.Errorf("Left after the answer = %v, want never", at)
			}
			err <- c.Context().Err()
		}}
		r.start(s)
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.receive()
		_ = c.Close()
		if got := <-err; got != nil {
			t.Errorf("Context after the answer = %v, want nil", got)
		}
	})
}

func TestExpectContinue(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: echo})
		c := r.dial()
		c.send("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
		if got := c.receive(); got.status != 100 || got.head != "HTTP/1.1 100 Continue" {
			t.Errorf("interim = %q, want HTTP/1.1 100 Continue", got.head)
		}
		c.send("abc")
		if got := c.receive(); got.status != 200 || got.body != "POST /1 abc" {
			t.Errorf("answer = %d %q, want 200 POST /1 abc", got.status, got.body)
		}
		c.send("POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc")
		if got := c.receive(); got.status != 200 {
			t.Errorf("content sent unasked: %d, want 200 without a 100", got.status)
		}
		c.send("POST /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n")
		if got := c.receive(); got.status != 200 {
			t.Errorf("no content: %d, want 200 without a 100", got.status)
		}
		old := r.dial()
		old.send("POST /4 HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc")
		if got := old.receive(); got.status != 200 {
			t.Errorf("HTTP/1.0: %d, want 200 without a 100", got.status)
		}
	})
}

func TestExpectAnsweredFinallyCloses(t *testing.T) {
	refuse := func(c *Call) { _, _ = c.Answer(text(413, "no"), time.Minute) }
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: refuse})
		c := r.dial()
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
		got := c.receive()
		if got.status != 413 || got.field("Connection") != "close" {
			t.Errorf("answer = %d, Connection %q, want 413, close", got.status, got.field("Connection"))
		}
		c.rest()
	})
}

func TestUnreadContent(t *testing.T) {
	ignore := func(c *Call) { _, _ = c.Answer(text(200, c.Request.Target), time.Minute) }
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: ignore})
		c := r.dial()
		c.send("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n" + strings.Repeat("x", 20000) + "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
		for _, want := range []string{"/1", "/2"} {
			if got := c.receive(); got.body != want || got.field("Connection") != "" {
				t.Errorf("answer = %q, Connection %q, want %q, none", got.body, got.field("Connection"), want)
			}
		}
		c.send("POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		if got := c.receive(); got.body != "/3" || got.field("Connection") != "close" {
			t.Errorf("answer = %q, Connection %q, want /3, close", got.body, got.field("Connection"))
		}
		c.rest()
	})
}

// The client sends 8 MiB, which nobody reads, before it reads its answer.
func TestCase_BR_10_early_answer_reaches_a_client_that_still_sends(t *testing.T) {
	refuse := func(c *Call) { _, _ = c.Answer(text(413, `{"max":1}`), time.Minute) }
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: refuse})
		c := r.dial()
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n")
		c.send(strings.Repeat("x", 8<<20))
		if got := c.receive(); got.status != 413 || got.body != `{"max":1}` {
			t.Errorf("answer = %d %q, want 413 whole", got.status, got.body)
		}
	})
}

func TestLingerIsBounded(t *testing.T) {
	refuse := func(c *Call) { _, _ = c.Answer(text(413, ""), time.Minute) }
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: refuse})
		c := r.dial()
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n")
		c.receive()
		start := time.Now()
		for {
			if _, err := c.Write([]byte("x")); err != nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(start); took > lingerTime+200*time.Millisecond {
			t.Errorf("the connection was kept for %v, want about %v", took, lingerTime)
		}
	})
}

func TestHandlerThatDoesNotAnswer(t *testing.T) {
	for name, handler := range map[string]func(*Call){
		"returns": func(*Call) {},
		"panics":  func(*Call) { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.start(&Server{Handler: handler})
				c := r.dial()
				c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				if b, _ := io.ReadAll(c.in); len(b) > 0 {
					t.Errorf("read %q, want the end of the connection", b)
				}
			})
		})
	}
}

func TestPanicIsLogged(t *testing.T) {
	var logged []any
	s := &Server{Handler: func(*Call) { panic("boom") }, ErrorLog: func(msg string, args ...any) { logged = append([]any{msg}, args...) }}
	inBubble(t, func(r *rig) {
		r.start(s)
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		_, _ = io.ReadAll(c.in)
		synctest.Wait()
		if len(logged) < 3 || logged[2] != "boom" {
			t.Errorf("logged %v, want the panic", logged)
		}
	})
}

func TestCloseReadFromAnotherGoroutine(t *testing.T) {
	inBubble(t, func(r *rig) {
		read := make(chan error, 1)
		s := &Server{Handler: func(c *Call) {
			go func() { _, err := io.Copy(io.Discard, c); read <- err }()
			time.Sleep(time.Second)
			c.CloseRead()
			_, _ = c.Answer(text(502, ""), time.Minute)
		}}
		r.start(s)
		c := r.dial()
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
		if got := c.receive(); got.status != 502 || got.field("Connection") != "close" {
			t.Errorf("answer = %d, Connection %q, want 502, close", got.status, got.field("Connection"))
		}
		if err := <-read; !errors.Is(err, ErrBodyStopped) {
			t.Errorf("Read = %v, want ErrBodyStopped", err)
		}
	})
}

// A reader that the handler left behind ends with the call.
func TestReadIsOverWithTheCall(t *testing.T) {
	inBubble(t, func(r *rig) {
		read := make(chan error, 1)
		s := &Server{Handler: func(c *Call) {
			c.BodyIdle = time.Hour
			go func() { _, err := io.Copy(io.Discard, c); read <- err }()
			time.Sleep(time.Second)
			_, _ = c.Answer(text(502, ""), time.Minute)
		}}
		r.start(s)
		c := r.dial()
		c.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
		c.receive()
		if err := <-read; !errors.Is(err, ErrBodyStopped) {
			t.Errorf("Read = %v, want ErrBodyStopped", err)
		}
	})
}

func TestInterim(t *testing.T) {
	s := &Server{Handler: func(c *Call) {
		if err := c.Interim(101, nil); err == nil {
			t.Errorf("Interim(101) = nil, want an error")
		}
		if err := c.Interim(103, message.Fields{{Name: "Link", Value: "</a>; rel=preload"}}); err != nil {
			t.Errorf("Interim = %v, want nil", err)
		}
		_, _ = c.Answer(text(200, "x"), time.Minute)
		if err := c.Interim(103, nil); c.Request.Version == "1.1" && !errors.Is(err, ErrAnswered) {
			t.Errorf("Interim after the answer = %v, want ErrAnswered", err)
		}
		if _, err := c.Answer(text(200, "y"), time.Minute); !errors.Is(err, ErrAnswered) {
			t.Errorf("second Answer = %v, want ErrAnswered", err)
		}
	}}
	inBubble(t, func(r *rig) {
		r.start(s)
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if got := c.receive(); got.head != "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload" {
			t.Errorf("interim = %q", got.head)
		}
		if got := c.receive(); got.body != "x" {
			t.Errorf("answer = %q, want x", got.body)
		}
		old := r.dial()
		old.send("GET / HTTP/1.0\r\n\r\n")
		if got := old.receive(); got.status != 200 {
			t.Errorf("HTTP/1.0 got %d first, want 200", got.status)
		}
	})
}
