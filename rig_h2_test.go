package main

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2upstream is an upstream that speaks HTTP/2 over TLS and does what a test says
// with each stream.
type h2upstream struct {
	*scripted
	mu      sync.Mutex
	streams []h2stream
}

// h2stream is one request as it came, complete.
type h2stream struct {
	At   time.Time
	Conn int // 1 is the first connection
	ID   uint32
	Path string
	Key  string
	TE   string
	Body []byte
}

// h2conn is the upstream's end of a connection.
type h2conn struct {
	*http2.Framer
	net.Conn
	enc *hpack.Encoder
	buf bytes.Buffer
}

// upstreamH2 listens as host; open is called for each connection (nil: nothing
// to do), each for each request on it, n counting all requests from 1.
func (r *rig) upstreamH2(host string, cert tls.Certificate, open func(*h2conn), each func(c *h2conn, n int, s h2stream)) *h2upstream {
	u := &h2upstream{}
	conns := 0
	u.scripted = r.tunnelEnd(host, func(raw net.Conn) {
		u.mu.Lock()
		conns++
		conn := conns
		u.mu.Unlock()
		tc := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
		defer tc.Close()
		u.serve(tc, conn, open, each)
	})
	return u
}

func (u *h2upstream) serve(c net.Conn, conn int, open func(*h2conn), each func(*h2conn, int, h2stream)) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	h := &h2conn{Framer: http2.NewFramer(c, c), Conn: c}
	h.enc = hpack.NewEncoder(&h.buf)
	h.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = h.WriteSettings()
	if open != nil {
		open(h)
	}
	live := map[uint32]*h2stream{}
	for {
		f, err := h.ReadFrame()
		if err != nil {
			return
		}
		if s := h.take(live, f); s != nil {
			s.At, s.Conn = time.Now(), conn
			u.mu.Lock()
			u.streams = append(u.streams, *s)
			n := len(u.streams)
			u.mu.Unlock()
			each(h, n, *s)
		}
	}
}

// take handles a frame; it returns the stream that it completes.
func (h *h2conn) take(live map[uint32]*h2stream, f http2.Frame) *h2stream {
	id := f.Header().StreamID
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_ = h.WriteSettingsAck()
		}
	case *http2.MetaHeadersFrame:
		s := &h2stream{ID: id, Path: f.PseudoValue("path")}
		for _, field := range f.RegularFields() {
			switch field.Name {
			case "x-idempotency-key":
				s.Key = field.Value
			case "te":
				s.TE = field.Value
			}
		}
		live[id] = s
		if f.StreamEnded() {
			return s
		}
	case *http2.DataFrame:
		live[id].Body = append(live[id].Body, f.Data()...)
		if n := uint32(len(f.Data())); n > 0 {
			_, _ = h.WriteWindowUpdate(0, n), h.WriteWindowUpdate(id, n)
		}
		if f.StreamEnded() {
			return live[id]
		}
	}
	return nil
}

// answer sends a whole answer.
func (h *h2conn) answer(id uint32, status int, body string) {
	h.buf.Reset()
	_ = h.enc.WriteField(hpack.HeaderField{Name: ":status", Value: strconv.Itoa(status)})
	_ = h.enc.WriteField(hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(len(body))})
	_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.buf.Bytes(), EndHeaders: true})
	_ = h.WriteData(id, true, []byte(body))
}

// goaway ends the connection for streams above last; what still comes is read,
// for a close with unread bytes would be a reset.
func (h *h2conn) goaway(last uint32, code http2.ErrCode) { _ = h.WriteGoAway(last, code, nil) }

// seen are the requests so far.
func (u *h2upstream) seen() []h2stream {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]h2stream(nil), u.streams...)
}

// want checks how many requests came.
func (u *h2upstream) want(n int) {
	u.r.t.Helper()
	if got := u.seen(); len(got) != n {
		u.r.t.Errorf("requests at the upstream = %d, want %d", len(got), n)
	}
}
