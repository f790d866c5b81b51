package inbound

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// pieces is a connection that gives a text in pieces of a size.
type pieces struct {
	net.Conn // nil: only what is below is used
	text     string
	size     int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b, p.text[:min(p.size, len(p.text))])
	p.text = p.text[n:]
	return n, nil
}

func (*pieces) SetReadDeadline(time.Time) error { return nil }

// decode reads a content of that length that comes in pieces of a size.
func decode(raw string, length int64, size, readSize int) (got string, b *content, err error) {
	in := &input{raw: &pieces{text: raw, size: size}}
	b = &content{in: in, ended: func() {}}
	b.begin(length, 4096)
	var all strings.Builder
	_, err = io.CopyBuffer(&all, struct{ io.Reader }{readerFunc(func(p []byte) (int, error) { return b.read(p, 0) })}, make([]byte, readSize))
	return all.String(), b, err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestChunked(t *testing.T) {
	for _, tt := range []struct {
		name, raw string
		want      string
		err       error
	}{
		{"empty", "0\r\n\r\n", "", nil},
		{"two chunks", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "abcde", nil},
		{"capitals and zeros", "00A\r\n0123456789\r\n000\r\n\r\n", "0123456789", nil},
		{"extensions", "3;a=b;c=\"d\"\r\nabc\r\n0 ; x\r\n\r\n", "abc", nil},
		{"bare LF behind the size", "3\nabc\r\n0\r\n\r\n", "", ErrBodyMalformed},
		{"bare LF behind the data", "3\r\nabc\n0\r\n\r\n", "abc", ErrBodyMalformed},
		{"bare LF at the end", "3\r\nabc\r\n0\r\n\n", "abc", ErrBodyMalformed},
		{"CR in an extension", "3;\ra\r\nabc\r\n0\r\n\r\n", "", ErrBodyMalformed},
		{"data longer than the size", "3\r\nabcd\r\n0\r\n\r\n", "abc", ErrBodyMalformed},
		{"no size", "\r\nabc\r\n", "", ErrBodyMalformed},
		{"size with sign", "+3\r\nabc\r\n0\r\n\r\n", "", ErrBodyMalformed},
		{"size with 0x", "0x3\r\nabc\r\n0\r\n\r\n", "", ErrBodyMalformed},
		{"space before the size", " 3\r\nabc\r\n0\r\n\r\n", "", ErrBodyMalformed},
		{"space behind the size", "3 \r\nabc\r\n0\r\n\r\n", "", ErrBodyMalformed},
		{"size overflows", "10000000000000003\r\nabc\r\n0\r\n\r\n", "", ErrBodyMalformed},
		{"size of 64 bits", "ffffffffffffffff\r\nabc\r\n", "", ErrBodyMalformed},
		{"long extension", "3;" + strings.Repeat("x", maxChunkLine) + "\r\nabc\r\n0\r\n\r\n", "", ErrBodyMalformed},
		{"endless extension", "3;" + strings.Repeat("x", 1<<20), "", ErrBodyMalformed},
		{"many extensions", strings.Repeat("1;"+strings.Repeat("x", 200)+"\r\na\r\n", 100), strings.Repeat("a", 81), ErrBodyMalformed},
		{"cut in the size", "3", "", ErrBodyShort},
		{"cut in the data", "3\r\nab", "ab", ErrBodyShort},
		{"cut before the last chunk", "3\r\nabc\r\n", "abc", ErrBodyShort},
		{"cut in the trailers", "3\r\nabc\r\n0\r\nA: b\r\n", "abc", ErrBodyShort},
		{"trailers too large", "0\r\nA: " + strings.Repeat("x", 5000) + "\r\n\r\n", "", ErrBodyMalformed},
		{"trailers too large together", "0\r\n" + strings.Repeat("A: "+strings.Repeat("x", 500)+"\r\n", 9) + "\r\n", "", ErrBodyMalformed},
		{"trailer malformed", "0\r\nA : b\r\n\r\n", "", ErrBodyMalformed},
		{"trailer Content-Length", "0\r\nContent-Length: 3\r\n\r\n", "", ErrBodyMalformed},
		{"trailer transfer_encoding", "0\r\ntransfer_encoding: chunked\r\n\r\n", "", ErrBodyMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, size := range []int{1, 3, 1 << 20} {
				got, b, err := decode(tt.raw, -1, size, 10)
				if got != tt.want || !errors.Is(err, tt.err) {
					t.Errorf("pieces of %d: content = %q, %v, want %q, %v", size, got, err, tt.want, tt.err)
				}
				if b.done.Load() != (tt.err == nil) {
					t.Errorf("pieces of %d: done = %v, want %v", size, b.done.Load(), tt.err == nil)
				}
				if _, again := b.read(make([]byte, 1), 0); tt.err != nil && !errors.Is(again, tt.err) || tt.err == nil && again != io.EOF {
					t.Errorf("Read after the end = %v", again)
				}
			}
		})
	}
}

func TestChunkedTrailers(t *testing.T) {
	_, b, err := decode("1\r\na\r\n0\r\nX-One: 1\r\nx-two:\t2 \r\n\r\n", -1, 2, 10)
	if err != nil || len(b.trailers) != 2 || b.trailers[0].Value != "1" || b.trailers[1].Name != "x-two" || b.trailers[1].Value != "2" {
		t.Errorf("trailers = %q, %v, want X-One: 1, x-two: 2", b.trailers, err)
	}
}

func TestSized(t *testing.T) {
	for _, read := range []int{1, 7, 100, 10000} {
		got, b, err := decode("hello worldSURPLUS", 11, 5, read)
		if got != "hello world" || err != nil {
			t.Errorf("reads of %d: content = %q, %v, want hello world", read, got, err)
		}
		if surplus := string(b.in.bytes()); !strings.HasPrefix("SURPLUS", surplus) {
			t.Errorf("reads of %d: left %q, want the surplus", read, surplus)
		}
		if got, _, err := decode("hello", 11, 5, read); got != "hello" || !errors.Is(err, ErrBodyShort) {
			t.Errorf("reads of %d: short content = %q, %v, want hello, ErrBodyShort", read, got, err)
		}
	}
	large := strings.Repeat("0123456789", 10000)
	if got, _, err := decode(large, int64(len(large)), 1<<20, 32<<10); got != large || err != nil {
		t.Errorf("large content = %d bytes, %v, want %d", len(got), err, len(large))
	}
}

// A client that sends nothing for BodyIdle fails the content, one that is slow does not.
func TestBodyIdle(t *testing.T) {
	type result struct {
		took time.Duration
		err  error
	}
	inBubble(t, func(r *rig) {
		results := make(chan result, 1)
		r.start(&Server{Handler: func(c *Call) {
			c.BodyIdle = 10 * time.Second
			start := time.Now()
			_, err := io.Copy(io.Discard, c)
			results <- result{time.Since(start), err}
			_, _ = c.Answer(text(400, ""), time.Minute)
		}, HeaderTimeout: time.Second, IdleTimeout: time.Second})
		c := r.dial()
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
		for range 3 {
			time.Sleep(9 * time.Second)
			c.send("x")
		}
		if got := <-results; !errors.Is(got.err, ErrBodyStalled) || got.took != 37*time.Second {
			t.Errorf("Read = %v after %v, want ErrBodyStalled after 37s", got.err, got.took)
		}
		if got := c.receive(); got.status != 400 || got.field("Connection") != "close" {
			t.Errorf("answer = %d, Connection %q, want 400, close", got.status, got.field("Connection"))
		}
	})
}

func TestBrokenContentClosesAfterTheAnswer(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start(&Server{Handler: echo})
		c := r.dial()
		c.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
		if got := c.receive(); got.status != 400 || got.field("Connection") != "close" {
			t.Errorf("answer = %d, Connection %q, want 400, close", got.status, got.field("Connection"))
		}
		if rest := c.rest(); rest != "" {
			t.Errorf("after the answer came %q, want the end", rest)
		}
	})
}

func FuzzChunked(f *testing.F) {
	f.Add("3\r\nabc\r\n0\r\n\r\n", 1)
	f.Add("A;x=y\r\n0123456789\r\n0\r\nA: b\r\n\r\n", 3)
	f.Fuzz(func(t *testing.T, raw string, size int) {
		size = max(1, size%100)
		whole, w, werr := decode(raw, -1, 1<<20, 64)
		got, b, err := decode(raw, -1, size, 7)
		if got != whole || (err == nil) != (werr == nil) || errors.Is(err, ErrBodyMalformed) != errors.Is(werr, ErrBodyMalformed) {
			t.Errorf("in pieces of %d: %q, %v; whole: %q, %v", size, got, err, whole, werr)
		}
		if len(whole) > len(raw) || len(b.trailers) != len(w.trailers) {
			t.Errorf("content %q of %q, trailers %q and %q", whole, raw, b.trailers, w.trailers)
		}
	})
}
