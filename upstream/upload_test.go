package upstream

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"retryproxy/classify"
	"retryproxy/message"
)

func TestRequestBytes(t *testing.T) {
	trailers := message.Fields{{Name: "X-Sum", Value: "abc"}, {Name: "Content-Length", Value: "1"}}
	for _, tt := range []struct {
		name, method, target string
		body                 message.Body
		fields               []string
		want                 string
	}{
		{"GET", "GET", "/", nil, nil, "GET / HTTP/1.1\r\nHost: u1.test\r\n\r\n"},
		{"OPTIONS *", "OPTIONS", "*", nil, nil, "OPTIONS * HTTP/1.1\r\nHost: u1.test\r\n\r\n"},
		{"POST without content", "POST", "/", nil, nil, "POST / HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 0\r\n\r\n"},
		{"DELETE without content", "DELETE", "/", nil, nil, "DELETE / HTTP/1.1\r\nHost: u1.test\r\n\r\n"},
		{"empty content", "GET", "/", text(""), nil, "GET / HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 0\r\n\r\n"},
		{"content", "POST", "/", text("hello"), nil, "POST / HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 5\r\n\r\nhello"},
		{
			"framing of the caller is dropped", "POST", "/", text("hello"),
			[]string{"content-length", "9", "Transfer-encoding", "chunked", "HOST", "evil", "Expect", "100-continue"},
			"POST / HTTP/1.1\r\nHost: u1.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
		},
		{
			"chunked", "POST", "/",
			flow{r: strings.NewReader("hello")},
			nil,
			"POST / HTTP/1.1\r\nHost: u1.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		},
		{
			"RI-05 chunked with trailers", "POST", "/",
			flow{r: iotest.OneByteReader(strings.NewReader("hi")), trailers: trailers},
			[]string{"Trailer", "X-Sum"},
			"POST / HTTP/1.1\r\nHost: u1.test\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\nX-Sum: abc\r\n\r\n",
		},
		{
			"chunked and empty", "POST", "/",
			flow{r: strings.NewReader("")},
			nil,
			"POST / HTTP/1.1\r\nHost: u1.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		},
		{
			"content as large as the buffer", "PUT", "/", text(strings.Repeat("b", writeSize)), nil,
			"PUT / HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 16384\r\n\r\n" + strings.Repeat("b", writeSize),
		},
		{
			"head larger than the buffer", "PUT", "/" + strings.Repeat("p", 20000), text("hello"), nil,
			"PUT /" + strings.Repeat("p", 20000) + " HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 5\r\n\r\nhello",
		},
		{
			"head nearly as large as the buffer", "PUT", "/" + strings.Repeat("p", writeSize-100),
			flow{r: strings.NewReader("hello")},
			nil,
			"PUT /" + strings.Repeat("p", writeSize-100) + " HTTP/1.1\r\nHost: u1.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, always(ok))
			c := client(t, Config{})
			r, _ := mustFetch(t, c, attempt(s.target(), tt.method, tt.target, tt.body, tt.fields...))
			if got := s.wire(); got != tt.want {
				t.Errorf("wire = %.300q, want %.300q", got, tt.want)
			}
			if r.Sent != int64(len(tt.want)) {
				t.Errorf("Sent = %d, want %d", r.Sent, len(tt.want))
			}
			if _, idle := c.Stats(); idle != 1 {
				t.Errorf("idle = %d, want 1", idle)
			}
		})
	}
}

func TestHostOfTarget(t *testing.T) {
	for _, tt := range []struct {
		t    Target
		want string
	}{
		{Target{Scheme: "http", Host: "a.test", Port: 80}, "a.test"},
		{Target{Scheme: "https", Host: "a.test", Port: 443}, "a.test"},
		{Target{Scheme: "https", Host: "a.test", Port: 80}, "a.test:80"},
		{Target{Scheme: "http", Host: "::1", Port: 8080}, "[::1]:8080"},
	} {
		if got := tt.t.authority(); got != tt.want {
			t.Errorf("authority(%+v) = %q, want %q", tt.t, got, tt.want)
		}
	}
}

// endless is content without an end.
func endless() message.Body { return flow{r: forever{}} }

type forever struct{}

func (forever) Read(p []byte) (int, error) { return len(p), nil }

func TestEarlyAnswers(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(*peer)
		want int
	}{
		{"413, then closed", func(p *peer) {
			p.until("\r\n\r\n")
			p.say("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
		}, 413},
		{"413, connection stays", func(p *peer) {
			p.until("\r\n\r\n")
			p.say("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
			p.hold()
		}, 413},
		{"503, nothing more is read", func(p *peer) {
			p.until("\r\n\r\n")
			p.say("HTTP/1.1 503 Busy\r\nContent-Length: 3\r\n\r\nbig")
			<-p.t.Context().Done()
		}, 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, tt.play)
			c := client(t, Config{})
			a := attempt(s.target(), "POST", "/", endless())
			r, body, err := fetch(c, a)
			if r.Response == nil || r.Response.Status != tt.want || body != "big" || err != nil {
				t.Errorf("Send = %+v, %q, %v, want %d", r.Outcome, body, err, tt.want)
			}
			if open, _ := c.Stats(); open != 0 {
				t.Errorf("open = %d, want 0: the request was not finished", open)
			}
		})
	}
}

// A success before the end of the request does not end the request.
func TestEarlySuccess(t *testing.T) {
	s := newScript(t, func(p *peer) {
		p.until("\r\n\r\n")
		p.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		p.until("0\r\n\r\n")
		p.say("4\r\ndone\r\n0\r\n\r\n")
		p.hold()
	})
	c := client(t, Config{})
	pr, pw := io.Pipe()
	go func() {
		for range 4 {
			_, _ = io.WriteString(pw, big)
		}
		_ = pw.Close()
	}()
	_, body := mustFetch(t, c, attempt(s.target(), "POST", "/", flow{r: pr}))
	if body != "done" {
		t.Errorf("body = %q, want done", body)
	}
	if _, idle := c.Stats(); idle != 1 {
		t.Errorf("idle = %d, want 1", idle)
	}
}

func TestFailedUploads(t *testing.T) {
	broken := errors.New("client left")
	for _, tt := range []struct {
		name  string
		play  func(*peer)
		body  message.Body
		phase classify.Phase
		fault classify.Fault
	}{
		{"RST", func(p *peer) { p.until("\r\n\r\n"); p.reset() }, endless(), classify.PhaseSent, classify.FaultReset},
		{"junk for an answer, then RST", func(p *peer) {
			p.until("\r\n\r\n")
			p.say("junk")
			p.reset()
		}, endless(), classify.PhaseHeader, classify.FaultMalformed},
		{"stall", func(p *peer) { p.until("\r\n\r\n"); <-p.t.Context().Done() }, endless(), classify.PhaseSent, classify.FaultTimeout},
		{"content breaks", (*peer).hold, flow{r: io.MultiReader(strings.NewReader(big+big), iotest.ErrReader(broken))}, classify.PhaseSent, classify.FaultBody},
		{"content breaks at once", (*peer).hold, flow{r: iotest.ErrReader(broken)}, classify.PhaseReady, classify.FaultBody},
		{"content was used", (*peer).hold, flow{err: message.ErrBodyUsed}, classify.PhaseReady, classify.FaultBody},
		{"small content is short", (*peer).hold, short{10}, classify.PhaseReady, classify.FaultBody},
		{"large content is short", (*peer).hold, short{writeSize + 10}, classify.PhaseSent, classify.FaultBody},
		{"bad trailer", (*peer).hold, flow{r: strings.NewReader("x"), trailers: message.Fields{{Name: "X", Value: "1\r\n"}}}, classify.PhaseSent, classify.FaultBody},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, tt.play)
			c := client(t, Config{})
			a := attempt(s.target(), "POST", "/", tt.body)
			if tt.fault == classify.FaultTimeout {
				a.BodyIdle = 50 * time.Millisecond
			}
			check(t, c.Send(t.Context(), a), tt.phase, tt.fault)
			if open, _ := c.Stats(); open != 0 {
				t.Errorf("open = %d, want 0", open)
			}
		})
	}
}

// short is content that ends before its length.
type short struct{ n int64 }

func (s short) Len() int64                   { return s.n }
func (s short) Open() (io.ReadCloser, error) { return text(strings.Repeat("s", int(s.n)-5)).Open() }
func (s short) Trailers() message.Fields     { return nil }

// The header's time starts with the last byte, and the content of the client is
// not waited on for it.
func TestHeaderTimeAfterUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := memScript(t, (*peer).hold)
		a := attempt(s.target(), "POST", "/", flow{r: io.MultiReader(strings.NewReader("x"), lazy{time.Minute})})
		began := time.Now()
		check(t, c.Send(t.Context(), a), classify.PhaseSent, classify.FaultTimeout)
		if took, want := time.Since(began), time.Minute+a.HeaderTimeout; took != want {
			t.Errorf("Send took %v, want %v", took, want)
		}
	})
}

// lazy ends after a while.
type lazy struct{ d time.Duration }

func (l lazy) Read([]byte) (int, error) {
	time.Sleep(l.d)
	return 0, io.EOF
}

// Send and Close do not return while the content is being read: whoever owns it
// may use it then.
func TestContentIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := memScript(t, func(p *peer) {
			p.until("x\r\n")
			p.reset()
		}, func(p *peer) {
			p.until("x\r\n")
			p.say("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
			p.hold()
		})
		began := time.Now()
		body := func() message.Body { return flow{r: io.MultiReader(strings.NewReader("x"), lazy{time.Minute})} }
		check(t, c.Send(t.Context(), attempt(s.target(), "POST", "/", body())), classify.PhaseSent, classify.FaultReset)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("Send took %v, want %v", took, time.Minute)
		}
		began = time.Now()
		r := c.Send(t.Context(), attempt(s.target(), "POST", "/", body()))
		if b, err := io.ReadAll(r.Response.Body); string(b) != "big" || err != nil || time.Since(began) != 0 {
			t.Errorf("body = %q, %v after %v, want it at once", b, err, time.Since(began))
		}
		_ = r.Response.Body.Close()
		if took := time.Since(began); took != time.Minute {
			t.Errorf("Close came after %v, want %v", took, time.Minute)
		}
	})
}
