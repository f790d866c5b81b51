package inbound

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is what Serve returns after Shutdown or Close.
var ErrClosed = errors.New("inbound: server closed")

const (
	defaultHeaderBytes = 64 << 10
	acceptPauseMax     = time.Second // between tries to accept when that fails
)

// Server takes client connections and makes Calls of what comes in. The fields
// are set before Serve and not changed afterwards; Configure changes limits.
type Server struct {
	// Handler answers a call. It is required and runs in the goroutine of the
	// connection, one call at a time; on HTTP/2 each call has its own.
	Handler func(*Call)
	// Allow says whether a client may use the proxy; nil: all may. A refused
	// one's calls have Bad set.
	Allow func(netip.Addr) bool
	// HeaderTimeout runs from the first byte of a request to the end of its
	// header; 0: none. A client that takes longer is answered 400. On HTTP/2 it
	// bounds the preface.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection may wait for a request; 0: for ever.
	IdleTimeout time.Duration
	// HeaderBytes bounds a header and a trailer section; 0: 64 KiB.
	HeaderBytes int
	// Connections bounds those open at a time, 0: no bound. Over it the longest
	// idle one is closed, and without one a new connection waits.
	Connections int
	// H2C serves HTTP/2 without TLS to clients that begin with its preface.
	H2C bool
	// ErrorLog gets what no call can tell, with slog's arguments; nil: nobody.
	ErrorLog func(msg string, args ...any)

	limits   atomic.Pointer[Limits] // in force
	stopping atomic.Bool
	waiting  atomic.Int32 // connections that wait for a place
	once     sync.Once
	quit     chan struct{} // closed when stopping

	mu        sync.Mutex
	changed   sync.Cond // conns shrank, one was handed over, or stopping
	conns     map[*conn]struct{}
	outer     int // of conns: those that came from a listener
	handed    int // of conns: those that left HTTP behind
	listeners map[net.Listener]struct{}
}

// Limits are the fields of the same names.
type Limits struct {
	HeaderTimeout, IdleTimeout time.Duration
	HeaderBytes, Connections   int
	H2C                        bool
}

// Configure changes the limits for what comes from now on.
func (s *Server) Configure(l Limits) {
	s.init()
	s.limits.Store(&l)
	s.wake()
}

// init makes the zero Server usable.
func (s *Server) init() {
	s.once.Do(func() {
		s.quit = make(chan struct{})
		s.limits.CompareAndSwap(nil, &Limits{s.HeaderTimeout, s.IdleTimeout, s.HeaderBytes, s.Connections, s.H2C})
		s.changed.L = &s.mu
		s.conns = map[*conn]struct{}{}
		s.listeners = map[net.Listener]struct{}{}
	})
}

// Serve takes connections from l until the server stops, then returns
// ErrClosed. Failures to accept (out of descriptors) are waited out.
func (s *Server) Serve(l net.Listener, on *Listener) error {
	s.init()
	if !s.adopt(l) {
		return ErrClosed
	}
	defer s.disown(l)
	for pause := time.Duration(0); ; {
		raw, err := l.Accept()
		switch {
		case s.stopping.Load():
			if err == nil {
				_ = raw.Close()
			}
			return ErrClosed
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			pause = min(max(2*pause, 5*time.Millisecond), acceptPauseMax)
			s.log("accepting a connection failed", "error", err, "pause", pause)
			s.wait(pause)
			continue
		}
		pause = 0
		if k := newConn(s, raw, on, clientAddr(raw), nil); s.admit(k) {
			go k.serve()
		} else {
			_ = raw.Close()
		}
	}
}

// ServeInside serves HTTP inside a CONNECT tunnel, or inside TLS: calls have
// Tunnel set. A *tls.Conn whose handshake chose h2 gets HTTP/2. It returns when
// the connection and its handlers have ended.
func (s *Server) ServeInside(c net.Conn, on *Listener, client netip.AddrPort, t *Tunnel) {
	s.init()
	k := newConn(s, c, on, client, t)
	if !s.enter(k) {
		_ = c.Close()
		return
	}
	k.serve()
}

// Shutdown stops accepting, closes idle connections and lets calls in flight
// end, with "Connection: close" or GOAWAY. It does not wait for connections that left
// HTTP behind. When ctx ends first it closes hard and returns its error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	defer context.AfterFunc(ctx, s.wake)()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		s.retireLocked(s.takeIdleLocked(len(s.conns)))
		switch {
		case len(s.conns) == s.handed:
			return nil
		case ctx.Err() != nil:
			s.closeLocked(slices.Collect(maps.Keys(s.conns)))
			return ctx.Err()
		}
		s.changed.Wait()
	}
}

// Close ends everything at once, also what left HTTP behind, and does not wait
// for handlers: their contexts end.
func (s *Server) Close() error {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked(slices.Collect(maps.Keys(s.conns)))
	return nil
}

// stop refuses what is new.
func (s *Server) stop() {
	s.init()
	if s.stopping.Swap(true) {
		return
	}
	close(s.quit)
	s.mu.Lock()
	listeners := slices.Collect(maps.Keys(s.listeners))
	conns := slices.Collect(maps.Keys(s.conns))
	s.changed.Broadcast()
	s.mu.Unlock()
	for _, k := range conns {
		if h := k.h2.Load(); h != nil {
			h.leave()
		}
	}
	for _, l := range listeners {
		_ = l.Close()
	}
}

// closeLocked closes connections hard; the lock is given up meanwhile.
func (s *Server) closeLocked(conns []*conn) {
	s.mu.Unlock()
	for _, k := range conns {
		k.cancel()
		_ = belowTLS(k.raw).Close()
	}
	s.mu.Lock()
}

// retireLocked ends connections that were idle: HTTP/2 says so to the client.
// The lock is given up meanwhile.
func (s *Server) retireLocked(conns []*conn) {
	s.mu.Unlock()
	for _, k := range conns {
		if h := k.h2.Load(); h != nil {
			h.leave()
			continue
		}
		k.cancel()
		_ = k.raw.Close()
	}
	s.mu.Lock()
}

// takeIdleLocked takes up to n connections away that wait for a request, those
// that wait longest first.
func (s *Server) takeIdleLocked(n int) (taken []*conn) {
	type candidate struct {
		conn  *conn
		since int64
	}
	var idle []candidate
	for k := range s.conns {
		if since := k.idle.Load(); since > 0 {
			idle = append(idle, candidate{k, since})
		}
	}
	slices.SortFunc(idle, func(a, b candidate) int { return cmp.Compare(a.since, b.since) })
	for _, c := range idle {
		if len(taken) < n && c.conn.idle.CompareAndSwap(c.since, closing) { // else a request came just now
			s.dropLocked(c.conn)
			taken = append(taken, c.conn)
		}
	}
	return taken
}

// dropLocked frees the place of a connection that was taken away. One of HTTP/2
// stays known: calls may have come in that nobody refused yet.
func (s *Server) dropLocked(k *conn) {
	switch {
	case k.h2.Load() == nil:
		s.forgetLocked(k)
	case k.outer:
		k.outer = false
		s.outer--
	}
}

func (s *Server) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

// adopt notes a listener so that stopping closes it.
func (s *Server) adopt(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) disown(l net.Listener) {
	s.mu.Lock()
	delete(s.listeners, l)
	s.mu.Unlock()
	_ = l.Close()
}

// admit lets a connection in once there is a place for it; false: the server stops.
func (s *Server) admit(k *conn) bool {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	s.mu.Lock()
	for s.crowded() && !s.stopping.Load() {
		if old := s.takeIdleLocked(1); len(old) > 0 {
			s.retireLocked(old)
		} else {
			s.changed.Wait()
		}
	}
	k.outer = true
	s.mu.Unlock()
	return s.enter(k)
}

// crowded says that there is no place for one more connection.
func (s *Server) crowded() bool {
	n := s.limits.Load().Connections
	return n > 0 && s.outer >= n
}

// enter notes a connection; false: the server stops.
func (s *Server) enter(k *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		return false
	}
	s.conns[k] = struct{}{}
	if k.outer {
		s.outer++
	}
	return true
}

// remove is called by a connection that has ended.
func (s *Server) remove(k *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(k)
}

func (s *Server) forgetLocked(k *conn) {
	if _, known := s.conns[k]; !known {
		return
	}
	delete(s.conns, k)
	if k.outer {
		s.outer--
	}
	if k.handed {
		s.handed--
	}
	s.changed.Broadcast()
}

// handedOver notes that k left HTTP behind.
func (s *Server) handedOver(k *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.handed = true
	s.handed++
	s.changed.Broadcast()
}

// wentIdle tells a connection that waits for a place.
func (s *Server) wentIdle() {
	if s.waiting.Load() > 0 {
		s.wake()
	}
}

// wait sleeps unless the server stops.
func (s *Server) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.quit:
	}
}

func (s *Server) headerBytes() int {
	if n := s.limits.Load().HeaderBytes; n > 0 {
		return n
	}
	return defaultHeaderBytes
}

func (s *Server) log(msg string, args ...any) {
	if s.ErrorLog != nil {
		s.ErrorLog(msg, args...)
	}
}

// clientAddr is the address a connection came from; zero when it is no IP address.
func clientAddr(c net.Conn) netip.AddrPort {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		at := a.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return netip.AddrPort{}
}
