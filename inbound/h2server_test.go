package inbound

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

var (
	settingNoWindow  = http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}
	settingBigWindow = http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}
)

// blanks are a content that counts what was taken.
type blanks struct {
	left  int64
	given atomic.Int64
}

func (c *blanks) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), c.left)
	c.left -= n
	c.given.Add(n)
	return int(n), nil
}

// What is malformed is refused, and the connection goes on.
func TestH2Refuses(t *testing.T) {
	tests := []struct {
		name    string
		lines   []string // behind :method GET, :scheme, :path /, :authority u1.test
		data    string   // not "": a content of that
		want    string
		reaches string // how the Handler sees it; empty: not at all
	}{
		{"a good one", nil, "", "200 GET /", "good"},
		{"connection", []string{"connection: close"}, "", "400", ""},
		{"transfer-encoding", []string{"transfer-encoding: chunked"}, "", "400", ""},
		{"te", []string{"te: gzip"}, "", "400", ""},
		{"upper case", []string{"X-Upper: 1"}, "", "RST PROTOCOL_ERROR", ""},
		{"pseudo field last", []string{"a: 1", ":path: /2"}, "", "RST PROTOCOL_ERROR", ""},
		{"control character", []string{"a: 1\x01"}, "", "RST PROTOCOL_ERROR", ""},
		{"extended connect", []string{":protocol: websocket"}, "", "RST PROTOCOL_ERROR", ""},
		{"same host", []string{"host: U1.test"}, "", "200 GET /", "good"},
		{"another host", []string{"host: u2.test"}, "", "400", "bad"},
		{"two hosts", []string{"host: u1.test", "host: u1.test"}, "", "400", "bad"},
		{"length without content", []string{"content-length: 5"}, "", "400", "bad"},
		{"length is no number", []string{"content-length: x"}, "", "400", "bad"},
		{"two lengths", []string{"content-length: 5", "content-length: 6"}, "hello", "400", "bad"},
		{"length with underscore", []string{"content_length: 5"}, "hello", "400", "bad"},
		{"too short", []string{"content-length: 9"}, "hello", "400", "good"},
		{"too long", []string{"content-length: 2"}, "hello", "RST PROTOCOL_ERROR", "good"},
		{"expectation", []string{"expect: tea"}, "", "417", "bad"},
		{"too many fields", strings.Split(strings.Repeat("a: 1|", maxFields)+"a: 1", "|"), "", "431", "bad"},
		{"too large", strings.Split(strings.Repeat("a: "+strings.Repeat("x", 2500)+"|", 4)+"a: 1", "|"), "", "431", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				reached := ""
				r.start(&Server{H2C: true, HeaderBytes: 9000, Handler: func(c *Call) {
					reached = "good"
					if c.Bad != nil {
						reached = "bad"
					}
					if c.Request.Target == "/after" {
						reached = ""
					}
					echo(c)
				}})
				f := r.frames()
				f.request(1, tt.data == "", "GET", "/", tt.lines...)
				if tt.data != "" {
					_ = f.WriteData(1, true, []byte(tt.data))
				}
				if got := f.outcome(1); !strings.HasPrefix(got, tt.want) {
					t.Errorf("outcome = %s, want %s", got, tt.want)
				}
				synctest.Wait()
				if reached != tt.reaches {
					t.Errorf("the Handler saw %q, want %q", reached, tt.reaches)
				}
				f.request(3, true, "GET", "/after")
				if got := f.outcome(3); got != "200 GET /after" {
					t.Errorf("the next request = %s, want 200", got)
				}
				_ = f.conn.Close()
			})
		})
	}
}

func TestH2RequestTargets(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		want  string
	}{
		{"CONNECT", []string{":method: CONNECT", ":authority: u1.test:443"}, "400 bad_request: CONNECT over HTTP/2 is not served"},
		{"asterisk", []string{":method: OPTIONS", ":scheme: http", ":path: *", ":authority: u1.test"}, "200 OPTIONS *"},
		{"asterisk for GET", []string{":method: GET", ":scheme: http", ":path: *", ":authority: u1.test"}, "400"},
		{"absolute", []string{":method: GET", ":scheme: http", ":path: http://u2.test/", ":authority: u1.test"}, "400"},
		{"fragment", []string{":method: GET", ":scheme: http", ":path: /#a", ":authority: u1.test"}, "400"},
		{"bad method", []string{":method: G T", ":scheme: http", ":path: /", ":authority: u1.test"}, "400"},
		{"no authority", []string{":method: GET", ":scheme: http", ":path: /"}, "400"},
		{"host alone", []string{":method: GET", ":scheme: http", ":path: /", "host: u1.test"}, "200 GET /"},
		{"bad authority", []string{":method: GET", ":scheme: http", ":path: /", ":authority: u1.test:0"}, "400"},
		{"userinfo", []string{":method: GET", ":scheme: http", ":path: /", ":authority: a@u1.test"}, "RST PROTOCOL_ERROR"},
		{"no path", []string{":method: GET", ":scheme: http", ":authority: u1.test"}, "RST PROTOCOL_ERROR"},
		{"escape that net/http refuses", []string{":method: GET", ":scheme: http", ":path: /%zz", ":authority: u1.test"}, "RST PROTOCOL_ERROR"},
		{"bytes as they came", []string{":method: GET", ":scheme: http", ":path: //a/../%7e?%zz=\xff", ":authority: u1.test"}, "200 GET //a/../%7e?%zz=\xff"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.start(&Server{H2C: true, Handler: echo})
				f := r.frames()
				f.raw(1, true, tt.lines...)
				if got := f.outcome(1); !strings.HasPrefix(got, tt.want) {
					t.Errorf("outcome = %q, want %q", got, tt.want)
				}
				_ = f.conn.Close()
			})
		})
	}
}

func TestH2COff(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: echo})
		c := r.dial()
		c.send(http2.ClientPreface)
		if got := c.receive(); got.status != 505 && got.status != 400 {
			t.Errorf("status = %d, want a bad request", got.status)
		}
		c.rest()
	})
}

// HTTP/1.1 is served where h2c is welcome, however its bytes come.
func TestH2CAndHTTP1(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{H2C: true, Handler: echo, IdleTimeout: time.Minute, HeaderTimeout: 10 * time.Second})
		c := r.dial()
		time.Sleep(30 * time.Second) // the buffer was given back meanwhile
		for _, b := range "PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n" {
			c.send(string(b))
			synctest.Wait()
		}
		if got := c.receive(); got.body != "PROPFIND / " {
			t.Errorf("answer = %q, want PROPFIND /", got.body)
		}
		began := time.Now()
		half := r.dial()
		half.send("PRI * HT")
		if got := half.receive(); got.status != 400 || time.Since(began) > 20*time.Second {
			t.Errorf("half a preface = %d after %v, want 400", got.status, time.Since(began))
		}
		half.rest()
		began = time.Now()
		idle := r.dial()
		if rest := idle.rest(); rest != "" || time.Since(began) != time.Minute {
			t.Errorf("idle connection got %q after %v, want its end after 1m", rest, time.Since(began))
		}
	})
}

func TestH2CIsSwitchedByConfigure(t *testing.T) {
	inBubble(t, func(r *rig) {
		tr, url := r.startH2("h2c", &Server{Handler: echo})
		defer tr.CloseIdleConnections()
		r.server.Configure(Limits{})
		if res := do(tr, "GET", url+"/", nil, nil); res.err == nil {
			t.Errorf("answer = %d, want none", res.StatusCode)
		}
		r.server.Configure(Limits{H2C: true})
		if res := do(tr, "GET", url+"/", nil, nil); res.err != nil {
			t.Errorf("answer = %v, want one", res.err)
		}
	})
}

func TestH2Shutdown(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		tr, url := start(&Server{Handler: sleeper(10 * time.Second), IdleTimeout: time.Hour})
		busy := make(chan got, 1)
		go func() { busy <- do(tr, "GET", url+"/", nil, nil) }()
		synctest.Wait()
		began := time.Now()
		if err := r.server.Shutdown(context.Background()); err != nil {
			r.t.Errorf("Shutdown = %v, want nil", err)
		}
		if took := time.Since(began); took < 10*time.Second || took > 12*time.Second {
			r.t.Errorf("Shutdown took %v, want the call in flight and a moment", took)
		}
		if res := <-busy; res.err != nil || res.body != "late" {
			r.t.Errorf("call in flight = %q, %v, want late", res.body, res.err)
		}
	})
}

func TestH2ShutdownWhileIdle(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		tr, url := start(&Server{Handler: echo, IdleTimeout: time.Hour})
		if res := do(tr, "GET", url+"/", nil, nil); res.err != nil {
			r.t.Fatal(res.err)
		}
		silent := r.dial() // says nothing
		synctest.Wait()
		began := time.Now()
		if err := r.server.Shutdown(context.Background()); err != nil || time.Since(began) > 2*time.Second {
			r.t.Errorf("Shutdown = %v after %v, want nil in a moment", err, time.Since(began))
		}
		_ = silent.Close()
	})
}

func TestH2ShutdownEndsHardWithItsContext(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		gone := make(chan time.Duration, 1)
		tr, url := start(&Server{Handler: waitContext(time.Hour, gone)})
		res := make(chan got, 1)
		go func() { res <- do(tr, "GET", url+"/", nil, nil) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
		defer cancel()
		if err := r.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			r.t.Errorf("Shutdown = %v, want deadline exceeded", err)
		}
		if got := <-gone; got != 25*time.Second {
			r.t.Errorf("the handler's context ended after %v, want 25s", got)
		}
		if got := <-res; got.err == nil {
			r.t.Error("the client got an answer, want an error")
		}
	})
}

func TestH2IdleTimeout(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{H2C: true, Handler: echo, IdleTimeout: time.Minute})
		f := r.frames()
		f.request(1, true, "GET", "/")
		f.outcome(1)
		began := time.Now()
		if got := f.outcome(0); !strings.Contains(got, "EOF") || time.Since(began) > time.Minute+2*time.Second {
			t.Errorf("idle connection: %s after %v, want its end after a minute", got, time.Since(began))
		}
		_ = f.conn.Close()
	})
}

// An idle connection of HTTP/2 gives its place up.
func TestH2ConnectionsOverTheBound(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{H2C: true, Handler: echo, Connections: 1})
		f := r.frames()
		f.request(1, true, "GET", "/1")
		if got := f.outcome(1); got != "200 GET /1" {
			t.Errorf("outcome = %s, want 200 GET /1", got)
		}
		synctest.Wait()
		c := r.dial()
		began := time.Now()
		c.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
		if got := c.receive(); got.body != "GET /2 " || time.Since(began) != 0 {
			t.Errorf("answer = %q after %v, want GET /2 at once", got.body, time.Since(began))
		}
		if got := f.outcome(0); !strings.Contains(got, "EOF") {
			t.Errorf("the idle connection: %s, want its end", got)
		}
		_ = f.conn.Close()
	})
}

// What the tunnel's flaw is, every call inside is refused for; then the
// connection ends.
func TestTunnelFlaw(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				flaw := &Bad{Status: 400, Reason: "bad_request", Detail: "the server name differs"}
				r.startInside(&Server{Handler: echo}, &Tunnel{Scheme: "https", Flaw: flaw}, protocol)
				tr, _ := tlsClient(r, protocol)
				for range 2 {
					res := do(tr, "POST", "https://u1.test/", strings.NewReader("x"), nil)
					if res.err != nil || res.StatusCode != 400 || !strings.Contains(res.body, flaw.Detail) {
						t.Errorf("answer = %q, %v, want 400 with the flaw", res.body, res.err)
					}
				}
				if n := tr.dials.Load(); n < 2 { // more, when a call and GOAWAY cross
					t.Errorf("%d connections, want one for each call", n)
				}
				tr.CloseIdleConnections()
			})
		})
	}
}

func TestH2ClientDenied(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		tr, url := start(&Server{Handler: echo, Allow: denyAll})
		res := do(tr, "GET", url+"/", nil, nil)
		if res.err != nil || res.StatusCode != 403 || !strings.Contains(res.body, "client_denied") {
			r.t.Errorf("answer = %q, %v, want 403 client_denied", res.body, res.err)
		}
	})
}
