package inbound

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"retryproxy/internal/memnet"
	"retryproxy/message"
)

// script is a body that gives its pieces at times, then err.
type script struct {
	pieces []string
	every  time.Duration
	err    error
	early  bool // io.EOF comes with the last piece
	closed atomic.Bool
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 {
		if s.err == nil {
			return 0, io.EOF
		}
		return 0, s.err
	}
	time.Sleep(s.every)
	n := copy(p, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; s.pieces[0] == "" {
		s.pieces = s.pieces[1:]
	}
	if s.early && len(s.pieces) == 0 {
		return n, io.EOF
	}
	return n, nil
}

func (s *script) Close() error { s.closed.Store(true); return nil }

// ready is a script that tells what it has at hand.
type ready struct{ script }

func (r *ready) Buffered() int {
	if len(r.pieces) == 0 {
		return 0
	}
	return len(r.pieces[0])
}

// answerer is a handler that gives the same answer to every call.
func answerer(res func() *message.Response, done func(n int64, err error)) func(*Call) {
	return func(c *Call) {
		n, err := c.Answer(res(), 10*time.Second)
		if done != nil {
			done(n, err)
		}
	}
}

func TestAnswerBytes(t *testing.T) {
	date := message.Field{Name: "Date", Value: "D"}
	trailers := func() message.Fields {
		return message.Fields{{Name: "X-Sum", Value: "7"}, {Name: "Content-Length", Value: "9"}}
	}
	for _, tt := range []struct {
		name    string
		request string
		res     message.Response
		body    string
		want    string
	}{
		{
			"sized", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date, {Name: "b", Value: "2"}, {Name: "A", Value: "1"}, {Name: "b", Value: "3"}}, Length: 2},
			"hi",
			"HTTP/1.1 200 OK\r\nDate: D\r\nb: 2\r\nA: 1\r\nb: 3\r\nContent-Length: 2\r\n\r\nhi",
		},
		{
			"empty", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date}, Length: 0},
			"",
			"HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 0\r\n\r\n",
		},
		{
			"reason as received", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 299, Reason: "Fine, really", Fields: message.Fields{date}, Length: 0},
			"",
			"HTTP/1.1 299 Fine, really\r\nDate: D\r\nContent-Length: 0\r\n\r\n",
		},
		{
			"unknown status", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 599, Fields: message.Fields{date}, Length: 0},
			"",
			"HTTP/1.1 599 \r\nDate: D\r\nContent-Length: 0\r\n\r\n",
		},
		{
			"chunked", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date}, Length: -1},
			"hello, world",
			"HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\nc\r\nhello, world\r\n0\r\n\r\n",
		},
		{
			"chunked with trailers", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date, {Name: "Trailer", Value: "X-Sum"}}, Length: -1, Trailers: trailers},
			"hi",
			"HTTP/1.1 200 OK\r\nDate: D\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n",
		},
		{
			"chunked and empty", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date}, Length: -1},
			"",
			"HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		},
		{
			"asked to close", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date}, Length: 2},
			"hi",
			"HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
		},
		{
			"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date}, Length: 2},
			"hi",
			"HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
		},
		{
			"HTTP/1.0 keep-alive", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date}, Length: 2},
			"hi",
			"HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi",
		},
		{
			"HTTP/1.0 without length", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date}, Length: -1, Trailers: trailers},
			"hi",
			"HTTP/1.1 200 OK\r\nDate: D\r\nConnection: close\r\n\r\nhi",
		},
		{
			"HEAD with length", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date}, Length: 42},
			"",
			"HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 42\r\n\r\n",
		},
		{
			"HEAD without length", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date}, Length: -1},
			"",
			"HTTP/1.1 200 OK\r\nDate: D\r\n\r\n",
		},
		{
			"HEAD with a body all the same", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date}, Length: 2},
			"hi",
			"HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n\r\n",
		},
		{
			"204", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 204, Fields: message.Fields{date}, Length: 0},
			"",
			"HTTP/1.1 204 No Content\r\nDate: D\r\n\r\n",
		},
		{
			"304 with length", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 304, Fields: message.Fields{date}, Length: 42},
			"",
			"HTTP/1.1 304 Not Modified\r\nDate: D\r\nContent-Length: 42\r\n\r\n",
		},
		{
			"fields of the connection are ours", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date, {Name: "connection", Value: "close"}, {Name: "content-length", Value: "9"}, {Name: "Transfer-Encoding", Value: "chunked"}}, Length: 2},
			"hi",
			"HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n\r\nhi",
		},
		{
			"no field ends its line", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 200, Reason: "a\r\nX: 1", Fields: message.Fields{date, {Name: "A", Value: "1\r\nB: 2\x003"}}, Length: 0},
			"",
			"HTTP/1.1 200 a  X: 1\r\nDate: D\r\nA: 1  B: 2 3\r\nContent-Length: 0\r\n\r\n",
		},
		{
			"body longer than declared", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			message.Response{Status: 200, Fields: message.Fields{date}, Length: 2},
			"hi there",
			"HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n\r\nhi",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				body := &script{}
				if tt.body != "" {
					body.pieces = []string{tt.body}
				}
				res := tt.res
				res.Body = body
				r.start(&Server{Handler: answerer(func() *message.Response { return &res }, nil), IdleTimeout: time.Second})
				c := r.dial()
				c.send(tt.request)
				if got := c.rest(); got != tt.want {
					t.Errorf("answer =\n%q, want\n%q", got, tt.want)
				}
				if !body.closed.Load() {
					t.Error("the body was not closed")
				}
			})
		})
	}
}

func TestDateIsAdded(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: echo})
		c := r.dial()
		for range 2 {
			c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			want := time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")
			if got := c.receive().field("Date"); got != want {
				t.Errorf("Date = %q, want %q", got, want)
			}
			time.Sleep(90 * time.Second)
		}
	})
}

// counter counts the writes of a connection.
type counter struct {
	*memnet.Conn
	writes atomic.Int32
	sizes  []int
}

func (c *counter) Write(p []byte) (int, error) {
	c.writes.Add(1)
	c.sizes = append(c.sizes, len(p))
	return c.Conn.Write(p)
}

// countWrites serves one connection through a counter and says what the client got.
func countWrites(t *testing.T, res *message.Response) (writes int, got string) {
	t.Helper()
	inBubble(t, func(r *rig) {
		s := &Server{Handler: answerer(func() *message.Response { return res }, nil)}
		l, _ := r.net.Listen(rigAddr)
		c := r.dial()
		raw, _ := l.Accept()
		count := &counter{Conn: raw.(*memnet.Conn)}
		go s.ServeInside(count, &Listener{}, clientAddr(raw), nil)
		c.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		got = c.rest()
		writes = int(count.writes.Load())
		_ = l.Close()
	})
	return writes, got
}

func TestWritesPerAnswer(t *testing.T) {
	small, large := strings.Repeat("x", 1000), strings.Repeat("y", 100<<10)
	sized := func(b io.ReadCloser, n int) *message.Response {
		return &message.Response{Status: 200, Length: int64(n), Body: b}
	}
	for _, tt := range []struct {
		name   string
		res    *message.Response
		writes int
		ends   string
	}{
		{"head and small content", sized(&script{pieces: []string{small}}, len(small)), 1, small},
		{"small content at hand in pieces", sized(&ready{script{pieces: []string{small, small}}}, 2*len(small)), 1, small},
		{"chunked content at hand, its end unknown", sized(&ready{script{pieces: []string{"a", "b"}}}, -1), 2, "1\r\na\r\n1\r\nb\r\n0\r\n\r\n"},
		{"chunked content at hand", sized(&ready{script{pieces: []string{"a", "b"}, early: true}}, -1), 1, "1\r\na\r\n1\r\nb\r\n0\r\n\r\n"},
		{"no content", sized(&script{}, 0), 1, "\r\n\r\n"},
		{"large content", sized(&ready{script{pieces: []string{large}}}, len(large)), 4, large},
		{"head over the buffer", &message.Response{Status: 200, Length: 1, Body: &script{pieces: []string{"z"}}, Fields: message.Fields{{Name: "A", Value: strings.Repeat("h", 20<<10)}}}, 1, "\r\n\r\nz"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			writes, got := countWrites(t, tt.res)
			if writes != tt.writes || !strings.HasSuffix(got, tt.ends) {
				t.Errorf("%d writes, %d bytes, want %d writes", writes, len(got), tt.writes)
			}
		})
	}
}

func TestLargeContentsArriveWhole(t *testing.T) {
	var data strings.Builder
	for i := range 50000 {
		data.WriteString(strings.Repeat(string(rune('a'+i%26)), i%13))
	}
	for _, length := range []int64{-1, int64(data.Len())} {
		for _, size := range []int{1000, 8192, 40000} {
			var pieces []string
			for c := range slices.Chunk([]byte(data.String()), size) {
				pieces = append(pieces, string(c))
			}
			_, raw := countWrites(t, &message.Response{Status: 200, Length: length, Body: &ready{script{pieces: pieces}}})
			_, got, _ := strings.Cut(raw, "\r\n\r\n")
			if length < 0 {
				var err error
				if got, _, err = decode(got, -1, 1<<20, 4096); err != nil {
					t.Fatalf("pieces of %d: %v", size, err)
				}
			}
			if got != data.String() {
				t.Errorf("length %d, pieces of %d: got %d bytes, want %d, or not the same", length, size, len(got), data.Len())
			}
		}
	}
}

// The head goes out before the first event, each event when it comes.
func TestEventStreamFlushTimes(t *testing.T) {
	for name, body := range map[string]io.ReadCloser{
		"plain body":       &script{pieces: []string{"data: 1\n\n", "data: 2\n\n"}, every: 10 * time.Second},
		"body that tells ": &pausing{script{pieces: []string{"data: 1\n\n", "data: 2\n\n"}, every: 10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.start(&Server{Handler: answerer(func() *message.Response {
					return &message.Response{Status: 200, Length: -1, Body: body}
				}, nil)})
				c := r.dial()
				start := time.Now()
				c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				if a := c.receive(); a.status != 200 || time.Since(start) != 0 {
					t.Errorf("head = %d after %v, want 200 at once", a.status, time.Since(start))
				}
				for i, want := range []string{"9\r\ndata: 1\n\n\r\n", "9\r\ndata: 2\n\n\r\n", "0\r\n\r\n"} {
					got := make([]byte, len(want))
					_, _ = io.ReadFull(c.in, got)
					at := min(time.Duration(i+1)*10*time.Second, 20*time.Second)
					if string(got) != want || time.Since(start) != at {
						t.Errorf("got %q after %v, want %q after %v", got, time.Since(start), want, at)
					}
				}
			})
		})
	}
}

// pausing is a body that has nothing at hand, and says so.
type pausing struct{ script }

func (*pausing) Buffered() int { return 0 }

func TestBodyErrorResetsTheConnection(t *testing.T) {
	broken := errors.New("upstream broke")
	for _, tt := range []struct {
		name    string
		request string
		length  int64
		err     error
		want    error
	}{
		{"sized", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 100, broken, broken},
		{"sized, ends early", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 100, nil, io.ErrUnexpectedEOF},
		{"chunked", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", -1, broken, broken},
		{"until close", "GET / HTTP/1.0\r\n\r\n", -1, broken, broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				errs := make(chan error, 1)
				body := &script{pieces: []string{"part"}, err: tt.err}
				r.start(&Server{Handler: answerer(func() *message.Response {
					return &message.Response{Status: 200, Length: tt.length, Body: body}
				}, func(n int64, err error) {
					if n != 4 {
						t.Errorf("n = %d, want 4", n)
					}
					errs <- err
				})})
				c := r.dial()
				c.send(tt.request)
				if err := <-errs; err != tt.want {
					t.Errorf("Answer = %v, want %v as it is", err, tt.want)
				}
				if _, err := io.ReadAll(c.in); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the client read to %v, want ECONNRESET", err)
				}
				if !body.closed.Load() {
					t.Error("the body was not closed")
				}
			})
		})
	}
}

func TestClientThatTakesNothing(t *testing.T) {
	type result struct {
		n    int64
		took time.Duration
		err  error
	}
	inBubble(t, func(r *rig) {
		results := make(chan result, 1)
		start := time.Now()
		r.start(&Server{Handler: func(c *Call) {
			c.Watch()
			n, err := c.Answer(&message.Response{Status: 200, Length: 1 << 30, Body: io.NopCloser(zeros{})}, 12*time.Second)
			results <- result{n, time.Since(start), err}
			if c.Context().Err() == nil {
				t.Error("Context goes on after the client was cut")
			}
		}})
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		time.Sleep(30 * time.Second) // it stalls, then takes something in the last moment of patience
		got := <-results
		if !errors.Is(got.err, ErrClient) || got.took < 12*time.Second || got.took > 15*time.Second {
			t.Errorf("Answer = %v after %v, want ErrClient after 12s to 15s", got.err, got.took)
		}
		if got.n < memnet.BufferSize/2 || got.n > memnet.BufferSize {
			t.Errorf("n = %d, want what the network holds", got.n)
		}
		if _, err := io.ReadAll(c.in); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client read to %v, want ECONNRESET", err)
		}
	})
}

// A client that takes a little now and then is not cut.
func TestSlowClientIsServed(t *testing.T) {
	inBubble(t, func(r *rig) {
		errs := make(chan error, 1)
		r.start(&Server{Handler: func(c *Call) {
			_, err := c.Answer(&message.Response{Status: 200, Length: 200 << 10, Body: io.NopCloser(zeros{})}, 12*time.Second)
			errs <- err
		}})
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		total := 0
		for p := make([]byte, 10<<10); ; time.Sleep(11 * time.Second) {
			n, err := c.Read(p)
			total += n
			if err != nil {
				break
			}
		}
		if err := <-errs; err != nil || total < 200<<10 {
			t.Errorf("Answer = %v, client got %d bytes, want nil and all", err, total)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestClientGoneDuringTheAnswer(t *testing.T) {
	inBubble(t, func(r *rig) {
		errs := make(chan error, 1)
		r.start(&Server{Handler: answerer(func() *message.Response {
			return &message.Response{Status: 200, Length: -1, Body: &script{pieces: []string{"1", "2", "3", "4"}, every: time.Second}}
		}, func(_ int64, err error) { errs <- err })})
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.receive()
		_ = c.Close()
		if err := <-errs; !errors.Is(err, ErrClient) {
			t.Errorf("Answer = %v, want ErrClient", err)
		}
	})
}

// A client that leaves while an event stream is silent ends its context.
func TestClientGoneWhileAStreamIsSilent(t *testing.T) {
	inBubble(t, func(r *rig) {
		gone := make(chan time.Duration, 1)
		r.start(&Server{Handler: func(c *Call) {
			c.Watch()
			start := time.Now()
			pr, pw := io.Pipe()
			go func() {
				_, _ = pw.Write([]byte("data: 1\n\n"))
				<-c.Context().Done()
				gone <- time.Since(start)
				_ = pw.CloseWithError(c.Context().Err())
			}()
			_, _ = c.Answer(&message.Response{Status: 200, Length: -1, Body: pr}, time.Minute)
		}})
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.receive()
		time.Sleep(time.Hour)
		_ = c.Close()
		if got := <-gone; got != time.Hour {
			t.Errorf("noticed after %v, want 1h", got)
		}
	})
}

func TestAnswerOfAWrongStatusIsRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		errs := make(chan error, 1)
		r.start(&Server{Handler: answerer(func() *message.Response { return text(103, "") }, func(_ int64, err error) { errs <- err })})
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if err := <-errs; err == nil {
			t.Error("Answer(103) = nil, want an error")
		}
		if b, _ := io.ReadAll(c.in); len(b) > 0 {
			t.Errorf("the client got %q, want nothing", b)
		}
	})
}

var _ net.Conn = (*counter)(nil)
