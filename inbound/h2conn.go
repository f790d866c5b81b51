package inbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// What a client of HTTP/2 may have under way. A stream that nobody reads must
// not take the window of the others, so the connection's holds many of them.
const (
	h2Streams      = 250
	h2StreamWindow = 256 << 10
	h2ConnWindow   = 16 << 20
	h2FrameSize    = 64 << 10
)

// preface is what a client of HTTP/2 sends first (RFC 9113 section 3.4).
var preface = []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

// h2conn serves a connection as HTTP/2. The frames are the business of a server
// of net/http that has this one connection; TLS, where there is any, is below.
type h2conn struct {
	conn *conn
	http http.Server
	// patience is how long a write may make no progress: that of the newest answer.
	patience atomic.Int64
	begun    atomic.Bool   // the preface came
	leaving  atomic.Bool   // GOAWAY is to be sent
	lost     atomic.Bool   // nothing can be read or written any more
	ended    chan struct{} // closed when net/http is done with the connection

	mu       sync.Mutex
	calls    int
	over     bool // no handler starts any more
	handlers sync.WaitGroup
}

// choseH2 says whether the TLS handshake chose HTTP/2. Its frame is large and would
// be on the stack of every call that waits.
//
//go:noinline
func (k *conn) choseH2() bool {
	tc, ok := k.raw.(*tls.Conn)
	return ok && tc.ConnectionState().NegotiatedProtocol == "h2"
}

// beginsH2 looks, where HTTP/2 without TLS is welcome, whether the first bytes
// are its preface. It takes nothing.
func (k *conn) beginsH2() bool {
	l := k.server.limits.Load()
	if !l.H2C || !k.outer {
		return false
	}
	var until time.Time
	if l.HeaderTimeout > 0 {
		until = time.Now().Add(l.HeaderTimeout)
	}
	for {
		got := k.in.bytes()
		n := min(len(got), len(preface))
		switch {
		case !bytes.Equal(got[:n], preface[:n]):
			return false
		case n == len(preface):
			return true
		}
		if k.in.more(readSize, until) != nil {
			return false
		}
	}
}

// serveH2 serves the connection until it and all its handlers have ended.
func (k *conn) serveH2() {
	h := &h2conn{conn: k, ended: make(chan struct{})}
	h.configure(k.server)
	h.patience.Store(int64(controlIdle))
	k.idle.Store(time.Now().UnixNano())
	k.h2.Store(h)
	if k.server.stopping.Load() {
		h.leave()
	}
	l := &single{conn: &wire{Conn: k.raw, h2: h, head: bytes.Clone(k.in.bytes())}}
	k.in.take(len(k.in.bytes()))
	_ = h.http.Serve(l) // ends at once: there is no second connection
	if l.taken {
		<-h.ended
	}
	h.close()
	h.handlers.Wait()
}

func (h *h2conn) configure(s *Server) {
	l := s.limits.Load()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	h.http.Protocols = &protocols
	h.http.Handler = h
	h.http.DisableGeneralOptionsHandler = true
	h.http.BaseContext = func(net.Listener) context.Context { return h.conn.ctx }
	h.http.ConnState = h.state
	h.http.ErrorLog = log.New(logWriter{s}, "", 0)
	h.http.ReadHeaderTimeout, h.http.IdleTimeout = l.HeaderTimeout, l.IdleTimeout
	h.http.MaxHeaderBytes = s.headerBytes()
	h.http.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: h2Streams, MaxReceiveBufferPerStream: h2StreamWindow,
		MaxReceiveBufferPerConnection: h2ConnWindow, MaxReadFrameSize: h2FrameSize,
	}
}

// state follows the life of the connection.
func (h *h2conn) state(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateActive:
		h.begun.Store(true)
		if h.leaving.Load() {
			h.goAway() // the first one came too early
		}
	case http.StateClosed:
		close(h.ended)
	}
}

// leave ends the connection once its calls have ended.
func (h *h2conn) leave() {
	h.leaving.Store(true)
	if h.begun.Load() {
		h.goAway()
		return
	}
	h.conn.cancel()
	_ = h.conn.raw.Close()
}

// goAway has GOAWAY sent; it does not wait for anything.
func (h *h2conn) goAway() {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.http.Shutdown(done)
}

// ServeHTTP makes a stream a call. The handler runs on after the answer; the
// stream ends with the answer, or is reset.
func (h *h2conn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.begin() {
		panic(http.ErrAbortHandler)
	}
	t := newH2Stream(h, w, r)
	go t.run()
	<-t.over
	if t.broken {
		panic(http.ErrAbortHandler) // net/http resets the stream
	}
}

// begin counts a handler in; false: too late.
func (h *h2conn) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return false
	}
	h.handlers.Add(1)
	h.calls++
	h.becomeLocked(0)
	return true
}

// done counts a handler out.
func (h *h2conn) done() {
	h.mu.Lock()
	h.calls--
	idle := h.calls == 0
	if idle {
		h.becomeLocked(time.Now().UnixNano())
	}
	h.mu.Unlock()
	if idle {
		h.conn.server.wentIdle()
	}
	h.handlers.Done()
}

// becomeLocked notes since when the connection is idle, unless it was taken away.
func (h *h2conn) becomeLocked(since int64) {
	if was := h.conn.idle.Load(); was != closing {
		h.conn.idle.CompareAndSwap(was, since)
	}
}

// close lets no handler start any more.
func (h *h2conn) close() {
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
}

// wire is the connection as net/http sees it: without TLS.
type wire struct {
	net.Conn
	h2   *h2conn
	head []byte // was read already
}

// Read notes when the client is gone.
func (w *wire) Read(p []byte) (int, error) {
	if len(w.head) > 0 {
		n := copy(p, w.head)
		w.head = w.head[n:]
		return n, nil
	}
	n, err := w.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		w.h2.lost.Store(true)
	}
	return n, err
}

// Write gives a client up that takes nothing.
func (w *wire) Write(p []byte) (int, error) {
	k := w.h2.conn
	n, err := k.out.write(p, time.Duration(w.h2.patience.Load()))
	if err != nil {
		w.h2.lost.Store(true)
		k.cancel()
		reset(k.raw)
	}
	return n, err
}

// SetDeadline is about reading alone.
func (w *wire) SetDeadline(t time.Time) error { return w.SetReadDeadline(t) }

// SetWriteDeadline does nothing: Write has its own.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// single is a listener with one connection to give.
type single struct {
	conn  net.Conn
	taken bool
}

func (l *single) Accept() (net.Conn, error) {
	if l.taken {
		return nil, io.EOF
	}
	l.taken = true
	return l.conn, nil
}

func (l *single) Close() error { return nil }

func (l *single) Addr() net.Addr { return l.conn.LocalAddr() }

// logWriter passes on what net/http says about a connection.
type logWriter struct{ server *Server }

func (l logWriter) Write(p []byte) (int, error) {
	l.server.log("HTTP/2", "error", string(bytes.TrimSpace(p)))
	return len(p), nil
}
