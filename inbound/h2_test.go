package inbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/message"
)

func TestH2Request(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		var seen Call
		tr, url := start(&Server{Handler: func(c *Call) {
			seen = *c
			echo(c)
		}})
		res := do(tr, "PUT", url+"/a%2fb//c?x=%41&&y", strings.NewReader("content"), func(q *http.Request) {
			q.Header = http.Header{"X-B": {"2", "1"}, "X-A": {"0"}, "User-Agent": {"bot"}, "Cookie": {"a=1", "b=2"}}
		})
		if want := "PUT /a%2fb//c?x=%41&&y content"; res.err != nil || res.body != want {
			r.t.Fatalf("answer = %q, %v, want %q", res.body, res.err, want)
		}
		want := message.Fields{
			{Name: "Cookie", Value: "a=1; b=2"},
			{Name: "User-Agent", Value: "bot"},
			{Name: "X-A", Value: "0"},
			{Name: "X-B", Value: "2"},
			{Name: "X-B", Value: "1"},
		}
		if diff := cmp.Diff(want, seen.Request.Fields); diff != "" {
			r.t.Errorf("fields (-want +got):\n%s", diff)
		}
		scheme := ""
		if seen.Tunnel != nil {
			scheme = "https"
		}
		q := seen.Request
		got := fmt.Sprintln(q.Version, q.Authority, q.Scheme, seen.Form, seen.Length, seen.KeepAlive, seen.Client.Addr(), seen.Bad)
		if want := fmt.Sprintln("2.0", "u1.test", scheme, Origin, 7, true, "127.0.0.1", (*Bad)(nil)); got != want {
			r.t.Errorf("call = %s, want %s", got, want)
		}
		if strings.HasPrefix(url, "https") != (seen.Tunnel != nil) {
			r.t.Errorf("Tunnel = %v over %s", seen.Tunnel, url)
		}
	})
}

func TestH2Answers(t *testing.T) {
	tests := []struct {
		name   string
		method string
		answer *message.Response
		length int64 // as net/http sees it
		body   string
		fields string // all but Date, in order
	}{
		{"sized", "GET", text(200, "hello"), 5, "hello", "Content-Length: 5"},
		{"empty", "GET", text(200, ""), 0, "", "Content-Length: 0"},
		{"unknown", "GET", &message.Response{Status: 200, Length: -1, Body: io.NopCloser(strings.NewReader("<html>"))}, -1, "<html>", ""},
		{"unknown and empty", "GET", &message.Response{Status: 200, Length: -1, Body: http.NoBody}, -1, "", ""},
		{"large", "GET", text(200, strings.Repeat("x", 300_000)), 300_000, strings.Repeat("x", 300_000), "Content-Length: 300000"},
		{"head", "HEAD", &message.Response{Status: 200, Length: 12, Body: http.NoBody}, 12, "", "Content-Length: 12"},
		{"no content", "GET", &message.Response{Status: 204, Length: -1, Body: http.NoBody}, 0, "", ""},
		{"not modified", "GET", &message.Response{Status: 304, Length: 7, Body: http.NoBody}, 0, "", ""},
		{
			"hop by hop", "GET", text(200, "x",
				message.Field{Name: "connection", Value: "x"}, message.Field{Name: "Keep-Alive", Value: "1"}, message.Field{Name: "upgrade", Value: "h3"},
				message.Field{Name: "Transfer-Encoding", Value: "chunked"}, message.Field{Name: "Proxy-Connection", Value: "x"},
				message.Field{Name: "content-length", Value: "9"}, message.Field{Name: "x-a", Value: "1\r\n2"}, message.Field{Name: "X-A", Value: "3"}),
			1, "x", "Content-Length: 1|X-A: 1  2|X-A: 3",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				sent := int64(-1)
				tr, url := r.startH2("tls", &Server{Handler: func(c *Call) {
					n, err := c.Answer(tt.answer, time.Minute)
					if err != nil {
						t.Errorf("Answer = %v, want nil", err)
					}
					sent = n
				}})
				defer tr.CloseIdleConnections()
				res := do(tr, tt.method, url+"/", nil, nil)
				if res.err != nil {
					t.Errorf("the answer broke: %v", res.err)
					return
				}
				synctest.Wait()
				if res.ContentLength != tt.length || res.body != tt.body || sent != int64(len(tt.body)) {
					t.Errorf("length %d, %d bytes, sent %d, want %d, %d", res.ContentLength, len(res.body), sent, tt.length, len(tt.body))
				}
				if want := time.Now().UTC().Format(http.TimeFormat); res.Header.Get("Date") != want {
					t.Errorf("Date = %q, want %q", res.Header.Get("Date"), want)
				}
				res.Header.Del("Date")
				var fields []string
				for _, f := range fieldsOf(res.Header) {
					fields = append(fields, f.Name+": "+f.Value)
				}
				if got := strings.Join(fields, "|"); got != tt.fields {
					t.Errorf("fields = %q, want %q", got, tt.fields)
				}
			})
		})
	}
}

func TestH2TrailersBothWays(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		var length int64
		tr, url := start(&Server{Handler: func(c *Call) {
			length = c.Length
			if _, err := io.Copy(io.Discard, c); err != nil {
				r.t.Errorf("content: %v", err)
			}
			sum := c.Trailers().Get("X-Sum")
			_, _ = c.Answer(&message.Response{
				Status: 200, Length: -1, Body: io.NopCloser(strings.NewReader("body")),
				Trailers: func() message.Fields {
					return message.Fields{{Name: "grpc-status", Value: "0"}, {Name: "X-Sum", Value: sum + " " + c.Request.Fields.Get("Trailer")}}
				},
			}, time.Minute)
		}})
		res := do(tr, "POST", url+"/", struct{ io.Reader }{strings.NewReader("x")}, func(q *http.Request) {
			q.Trailer = http.Header{"X-Sum": {"17"}}
		})
		got := fmt.Sprint(length, res.body, res.Trailer.Get("Grpc-Status"), res.Trailer.Get("X-Sum"), res.err)
		if want := fmt.Sprint(-1, "body", "0", "17 X-Sum", nil); got != want {
			r.t.Errorf("length, body and trailers = %s, want %s", got, want)
		}
	})
}

func TestH2InterimAndContinue(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		tr, url := start(&Server{Handler: func(c *Call) {
			if err := c.Interim(103, message.Fields{{Name: "Link", Value: "</a>"}}); err != nil {
				r.t.Errorf("Interim = %v, want nil", err)
			}
			time.Sleep(time.Second)
			echo(c)
			if err := c.Interim(103, nil); !errors.Is(err, ErrAnswered) {
				r.t.Errorf("Interim after the answer = %v, want ErrAnswered", err)
			}
		}})
		tr.ExpectContinueTimeout = time.Hour
		var said []string
		began := time.Now()
		res := do(tr, "POST", url+"/", strings.NewReader("content"), func(q *http.Request) {
			q.Header.Set("Expect", "100-continue")
			*q = *q.WithContext(httptrace.WithClientTrace(q.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					said = append(said, fmt.Sprint(code, h.Get("Link")))
					return nil
				},
			}))
		})
		if res.err != nil || res.body != "POST / content" || res.Header.Get("Link") != "" {
			r.t.Errorf("answer = %q, %v, Link %q, want POST / content", res.body, res.err, res.Header.Get("Link"))
		}
		if got := strings.Join(said, ","); got != "100,103</a>" || time.Since(began) != time.Second {
			r.t.Errorf("interim answers = %s, all after %v, want 100,103</a> and 1s", got, time.Since(began))
		}
	})
}

// The content waits for the first Read, and only for that.
func TestH2Continue(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		tr, url := start(&Server{Handler: func(c *Call) {
			time.Sleep(time.Second)
			echo(c)
		}})
		tr.ExpectContinueTimeout = time.Hour
		began := time.Now()
		content := &blanks{left: 5}
		synctest.Wait()
		time.AfterFunc(time.Second/2, func() {
			if n := content.given.Load(); n != 0 {
				r.t.Errorf("the client sent %d bytes before the first Read", n)
			}
		})
		res := do(tr, "POST", url+"/", content, func(q *http.Request) { q.Header.Set("Expect", "100-continue") })
		if res.err != nil || len(res.body) != len("POST / ")+5 || time.Since(began) != time.Second {
			r.t.Errorf("answer = %q, %v after %v, want one after 1s", res.body, res.err, time.Since(began))
		}
	})
}

// What the body gives comes at once, and a pause of it is not the client's fault.
func TestH2EventStream(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		tr, url := start(&Server{Handler: func(c *Call) {
			_, err := c.Answer(&message.Response{Status: 200, Length: -1, Body: &later{pieces: []string{"a", "b", "c"}, pause: time.Hour}}, time.Second)
			if err != nil {
				r.t.Errorf("Answer = %v, want nil", err)
			}
		}})
		began := time.Now()
		req, _ := http.NewRequest("GET", url+"/", nil)
		res, err := tr.RoundTrip(req)
		if err != nil || time.Since(began) != 0 {
			r.t.Fatalf("the head came after %v, %v, want at once", time.Since(began), err)
		}
		for i, want := range []string{"a", "b", "c"} {
			p := make([]byte, 8)
			n, err := res.Body.Read(p)
			if string(p[:n]) != want || time.Since(began) != time.Duration(i+1)*time.Hour {
				r.t.Errorf("piece %d = %q after %v, %v", i, p[:n], time.Since(began), err)
			}
		}
		if n, err := res.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			r.t.Errorf("the end = %d, %v, want EOF", n, err)
		}
	})
}

// A body that breaks resets its stream and leaves the neighbour alone.
func TestH2BodyBreaks(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		broken := errors.New("broken")
		tr, url := start(&Server{Handler: func(c *Call) {
			if c.Request.Target == "/slow" {
				sleeper(10 * time.Second)(c)
				return
			}
			length := int64(-1)
			if c.Request.Target == "/sized" {
				length = 100
			}
			_, err := c.Answer(&message.Response{Status: 200, Length: length, Body: &later{pieces: []string{"x"}, pause: time.Second, err: broken}}, time.Minute)
			if !errors.Is(err, broken) {
				r.t.Errorf("Answer = %v, want the error of the body", err)
			}
		}})
		neighbour := make(chan got, 1)
		go func() { neighbour <- do(tr, "GET", url+"/slow", nil, nil) }()
		for _, path := range []string{"/sized", "/unsized"} {
			if res := do(tr, "GET", url+path, nil, nil); res.err == nil || res.body != "x" {
				r.t.Errorf("%s = %q, %v, want x and a reset", path, res.body, res.err)
			}
		}
		if res := <-neighbour; res.err != nil || res.body != "late" {
			r.t.Errorf("the neighbour got %q, %v, want late", res.body, res.err)
		}
	})
}

func TestH2HandlerWithoutAnswer(t *testing.T) {
	for _, name := range []string{"returns", "panics"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				logged := ""
				tr, url := r.startH2("tls", &Server{
					Handler: func(c *Call) {
						if name == "panics" {
							panic("bug")
						}
					},
					ErrorLog: func(msg string, args ...any) { logged += msg + fmt.Sprint(args[1]) },
				})
				defer tr.CloseIdleConnections()
				if res := do(tr, "GET", url+"/", nil, nil); res.err == nil {
					t.Errorf("answer = %d, want a reset", res.StatusCode)
				}
				want := ""
				if name == "panics" {
					want = "handler panickedbug"
				}
				if logged != want {
					t.Errorf("log = %q, want %q", logged, want)
				}
			})
		})
	}
}

// A client that resets its stream, or whose connection is lost, ends the call.
func TestH2ClientGone(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		gone := make(chan time.Duration, 1)
		neighbour := make(chan error, 1)
		tr, url := start(&Server{Handler: func(c *Call) {
			if c.Request.Target == "/neighbour" {
				<-c.Context().Done()
				neighbour <- c.Context().Err()
				return
			}
			waitContext(time.Hour, gone)(c)
			if since := time.Since(c.Left()); since != 0 {
				r.t.Errorf("the client left %v ago, want now", since)
			}
		}})
		ended := make(chan struct{})
		go func() {
			do(tr, "GET", url+"/neighbour", nil, nil)
			close(ended)
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		do(tr, "GET", url+"/", nil, func(q *http.Request) { *q = *q.WithContext(ctx) })
		if got := <-gone; got != 5*time.Second {
			r.t.Errorf("the context ended after %v, want 5s", got)
		}
		select {
		case <-neighbour:
			r.t.Error("the neighbour's context ended too")
		default:
		}
		_ = r.server.Close()
		if err := <-neighbour; !errors.Is(err, context.Canceled) {
			r.t.Errorf("after Close the context says %v", err)
		}
		<-ended
	})
}

// The context of an answered call does not say that the client left.
func TestH2ContextAfterTheAnswer(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		after := make(chan error, 1)
		tr, url := start(&Server{Handler: func(c *Call) {
			_, _ = c.Answer(text(200, "x"), time.Minute)
			time.Sleep(time.Second)
			after <- c.Context().Err()
		}})
		began := time.Now()
		if res := do(tr, "GET", url+"/", nil, nil); res.err != nil || time.Since(began) != 0 {
			r.t.Errorf("the answer came after %v, %v, want at once", time.Since(began), res.err)
		}
		if err := <-after; err != nil {
			r.t.Errorf("Context().Err() = %v, want nil", err)
		}
	})
}

func TestH2NoHandOver(t *testing.T) {
	inBubble(t, func(r *rig) {
		tr, url := r.startH2("h2c", &Server{Handler: func(c *Call) {
			if _, err := c.AcceptConnect(nil); !errors.Is(err, ErrShared) {
				t.Errorf("AcceptConnect = %v, want ErrShared", err)
			}
			if _, err := c.Upgrade(&message.Response{Status: 101}); !errors.Is(err, ErrShared) {
				t.Errorf("Upgrade = %v, want ErrShared", err)
			}
			if _, err := c.Answer(&message.Response{Status: 101, Body: http.NoBody}, time.Minute); err == nil {
				t.Error("Answer with 101 = nil, want an error")
			}
			if _, err := c.Answer(text(200, ""), time.Minute); !errors.Is(err, ErrAnswered) {
				t.Errorf("second Answer = %v, want ErrAnswered", err)
			}
		}})
		defer tr.CloseIdleConnections()
		if res := do(tr, "GET", url+"/", nil, nil); res.err == nil {
			t.Errorf("answer = %d, want a reset", res.StatusCode)
		}
	})
}

func TestH2ReadContent(t *testing.T) {
	tests := []struct {
		name  string
		idle  time.Duration
		close time.Duration
		want  error
		after time.Duration
	}{
		{"stalled", 10 * time.Second, 0, ErrBodyStalled, 10 * time.Second},
		{"given up", 0, 3 * time.Second, ErrBodyStopped, 3 * time.Second},
		{"the client leaves", 0, 0, ErrBodyShort, time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
				done := make(chan error, 1)
				tr, url := start(&Server{Handler: func(c *Call) {
					c.BodyIdle = tt.idle
					if tt.close > 0 {
						time.AfterFunc(tt.close, c.CloseRead)
					}
					began := time.Now()
					b, err := io.ReadAll(c)
					if string(b) != "first" || time.Since(began) != tt.after {
						r.t.Errorf("read %q until %v, want first until %v", b, time.Since(began), tt.after)
					}
					_, again := c.Read(make([]byte, 1))
					done <- errors.Join(err, again)
				}})
				content, feed := io.Pipe()
				fed, ended := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(fed)
					_, _ = io.WriteString(feed, "first")
					time.Sleep(time.Minute)
					_ = feed.CloseWithError(errors.New("no more"))
				}()
				go func() {
					do(tr, "POST", url+"/", content, nil)
					close(ended)
				}()
				if err := <-done; !errors.Is(err, tt.want) {
					r.t.Errorf("Read = %v, want %v", err, tt.want)
				}
				<-ended
				<-fed
			})
		})
	}
}

// Back-pressure: what the handler does not read stays with the client.
func TestH2UploadBackPressure(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		const size = 8 << 20
		tr, url := start(&Server{Handler: func(c *Call) {
			if c.Request.Target == "/neighbour" {
				echo(c)
				return
			}
			time.Sleep(time.Minute)
			n, err := io.Copy(io.Discard, c)
			_, _ = c.Answer(text(200, fmt.Sprint(n, err)), time.Minute)
		}})
		src := &blanks{left: size}
		res := make(chan got, 1)
		go func() { res <- do(tr, "POST", url+"/", src, nil) }()
		synctest.Wait()
		if n := src.given.Load(); n > h2StreamWindow+256<<10 {
			r.t.Errorf("the client could send %d bytes that nobody reads, want about %d", n, h2StreamWindow)
		}
		content := strings.Repeat("x", 100_000)
		if got := do(tr, "POST", url+"/neighbour", strings.NewReader(content), nil); got.err != nil || len(got.body) != len("POST /neighbour ")+len(content) {
			r.t.Errorf("the neighbour's answer = %d bytes, %v", len(got.body), got.err)
		}
		if got := <-res; got.body != fmt.Sprint(size, nil) {
			r.t.Errorf("answer = %q, %v, want %d bytes read", got.body, got.err, size)
		}
	})
}

// A client that takes nothing is cut after idle: only its stream when the
// others flow, and the neighbour is left alone.
func TestH2ClientTakesNothing(t *testing.T) {
	inBothWays(t, func(r *rig, start func(*Server) (*http.Transport, string)) {
		type result struct {
			err   error
			after time.Duration
		}
		done := make(chan result, 1)
		tr, url := start(&Server{Handler: func(c *Call) {
			if c.Request.Target == "/neighbour" {
				echo(c)
				return
			}
			began := time.Now()
			_, err := c.Answer(&message.Response{Status: 200, Length: 64 << 20, Body: io.NopCloser(&blanks{left: 64 << 20})}, 20*time.Second)
			done <- result{err, time.Since(began)}
		}})
		req, _ := http.NewRequest("GET", url+"/", nil)
		res, err := tr.RoundTrip(req)
		if err != nil {
			r.t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if got := do(tr, "GET", url+"/neighbour", nil, nil); got.err != nil {
			r.t.Errorf("the neighbour: %v", got.err)
		}
		if got := <-done; !errors.Is(got.err, ErrClient) || got.after != 20*time.Second {
			r.t.Errorf("Answer = %v after %v, want ErrClient after 20s", got.err, got.after)
		}
		if _, err := io.Copy(io.Discard, res.Body); err == nil {
			r.t.Error("the answer ended well, want a reset")
		}
		_ = res.Body.Close()
		if got := do(tr, "GET", url+"/neighbour", nil, nil); got.err != nil {
			r.t.Errorf("the neighbour afterwards: %v", got.err)
		}
	})
}

// A small rest that waits for the window is cut as well.
func TestH2ClientTakesNotTheRest(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{H2C: true, Handler: func(c *Call) {
			_, _ = c.Answer(text(200, "hello"), 20*time.Second)
		}})
		f := r.frames()
		if err := f.WriteSettings(settingNoWindow); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		f.request(1, true, "GET", "/")
		if got := f.outcome(1); got != "200 RST INTERNAL_ERROR" || time.Since(began) != 20*time.Second {
			t.Errorf("outcome = %s after %v, want 200 and a reset after 20s", got, time.Since(began))
		}
		_ = f.conn.Close()
	})
}

// A connection that takes nothing at all ends with all its streams.
func TestH2ConnectionTakesNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		done := make(chan time.Duration, 2)
		r.start(&Server{H2C: true, Handler: func(c *Call) {
			began := time.Now()
			_, err := c.Answer(&message.Response{Status: 200, Length: 64 << 20, Body: io.NopCloser(&blanks{left: 64 << 20})}, 20*time.Second)
			if !errors.Is(err, ErrClient) {
				t.Errorf("Answer = %v, want ErrClient", err)
			}
			done <- time.Since(began)
		}})
		f := r.frames()
		_ = f.WriteSettings(settingBigWindow)
		_ = f.WriteWindowUpdate(0, 1<<30)
		f.request(1, true, "GET", "/")
		f.request(3, true, "GET", "/")
		for range 2 {
			if got := <-done; got < 20*time.Second || got > 25*time.Second {
				t.Errorf("cut after %v, want 20s to 25s", got)
			}
		}
		_ = f.conn.Close()
	})
}
