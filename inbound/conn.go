package inbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	drainBytes = 64 << 10    // of an unread content, to keep a connection
	drainTime  = time.Second // for them

	idleHold = time.Second // an idle connection keeps its read buffer for so long

	lingerBytes = 16 << 20 // taken from a client that still sends, so that it can read its answer
	lingerTime  = 2 * time.Second
)

// closing in conn.idle: the server took the idle connection away.
const closing = -1

// conn is one client connection. On HTTP/1.1 its goroutine serves one call at a
// time.
type conn struct {
	server *Server
	raw    net.Conn
	on     *Listener
	client netip.AddrPort
	tunnel *Tunnel
	ctx    context.Context
	cancel context.CancelFunc
	// idle is since when (Unix nanoseconds) the connection waits for a request;
	// 0: it does not; closing.
	idle atomic.Int64

	call  Call
	in    input
	out   output
	body  content
	watch watch

	h2 atomic.Pointer[h2conn] // set when the connection turned out to be HTTP/2

	expecting atomic.Bool  // the client waits for 100 Continue
	watched   atomic.Bool  // Watch was called
	leftAt    atomic.Int64 // when the watched client was found gone, Unix nanoseconds; 0: it was not
	sending   sync.Mutex   // orders interim answers before the answer
	answered  bool         // under sending
	broken    bool         // aborted
	handed    bool         // the connection left HTTP behind; under server.mu
	outer     bool         // it takes a place of a listener; under server.mu once it serves
}

func newConn(s *Server, raw net.Conn, on *Listener, client netip.AddrPort, t *Tunnel) *conn {
	k := &conn{server: s, raw: raw, on: on, client: client, tunnel: t}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.in.raw, k.body.in, k.watch.conn = raw, &k.in, k
	k.out = newOutput(raw)
	k.body.ended = k.watchNow
	return k
}

// serve runs the connection to its end.
func (k *conn) serve() {
	defer k.end()
	h2 := k.choseH2()
	more := h2 || k.await()
	if h2 || more && k.beginsH2() {
		k.serveH2()
		return
	}
	for more && k.serveCall() {
		more = k.await()
	}
}

// end lets everything go that belongs to the connection.
func (k *conn) end() {
	k.body.end()
	k.watch.end()
	k.cancel()
	_ = k.raw.Close()
	k.in.release()
	k.server.remove(k)
}

// await waits for the first byte of a request; false: there will be none.
func (k *conn) await() bool {
	if k.in.w > k.in.r {
		return true
	}
	if len(k.in.buf) > readSize {
		k.in.release()
	}
	now := time.Now()
	k.idle.Store(now.UnixNano())
	if k.server.stopping.Load() {
		return false
	}
	k.server.wentIdle()
	err := k.awaitByte(now)
	mine := k.idle.Swap(0) != closing
	return mine && err == nil
}

// awaitByte gives the buffer back when the next request does not come soon.
func (k *conn) awaitByte(now time.Time) error {
	var until time.Time
	if idle := k.server.limits.Load().IdleTimeout; idle > 0 {
		until = now.Add(idle)
	}
	soon := now.Add(idleHold)
	if !until.IsZero() && until.Before(soon) {
		return k.in.more(readSize, until)
	}
	if err := k.in.more(readSize, soon); !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	k.in.release()
	n, err := k.in.read(k.in.late[:], until)
	k.in.hasLate = n > 0
	return err
}

// serveCall serves the request whose first byte is there; true: one more may come.
func (k *conn) serveCall() (again bool) { return k.readCall() && k.handle() && k.settle() }

// readCall makes the next Call; false: the client is gone. It is a function of
// its own so that its frame is not on the stack of a call that waits.
func (k *conn) readCall() bool {
	now := time.Now()
	text, lines, fault := k.readHead(now)
	if text == "" && fault == nil {
		return false
	}
	c := &k.call
	*c = Call{Client: k.client, Listener: k.on, Tunnel: k.tunnel, Received: now, via: k}
	c.Request.Version = "1.1"
	if fault == nil {
		fault = parseHead(c, text, lines)
	}
	if refusal := k.refusal(); refusal != nil {
		fault = refusal
	}
	if fault != nil {
		c.Bad, c.KeepAlive, c.Length, c.expect = fault, false, 0, false
	}
	k.body.begin(c.Length, k.server.headerBytes())
	k.expecting.Store(c.expect)
	k.answered, k.broken = false, false
	k.watched.Store(false)
	return true
}

// refusal says why nothing that comes over the connection is served.
func (k *conn) refusal() *Bad {
	if k.tunnel != nil && k.tunnel.Flaw != nil {
		return k.tunnel.Flaw
	}
	if allow := k.server.Allow; allow != nil && !allow(k.client.Addr()) {
		return &Bad{403, "client_denied", fmt.Sprintf("the address %v is not in clients.allow", k.client.Addr())}
	}
	return nil
}

// readHead reads a whole head; an empty text without fault: the client is gone.
func (k *conn) readHead(first time.Time) (text string, lines int, fault *Bad) {
	var s scan
	limit := k.server.headerBytes()
	for {
		complete, fault := s.look(k.in.bytes())
		switch {
		case fault != nil:
			return "", 0, fault
		case s.line-s.start > limit || s.seen-s.start > limit:
			return "", 0, tooLarge(&s, limit)
		case complete:
			text = string(k.in.bytes()[s.start:s.end])
			k.in.take(s.end)
			return text, s.lines, nil
		}
		if fault, gone := k.readOn(first, limit, &s); fault != nil || gone {
			return "", 0, fault
		}
	}
}

// readOn reads more of a head.
func (k *conn) readOn(first time.Time, limit int, s *scan) (fault *Bad, gone bool) {
	var until time.Time
	patience := k.server.limits.Load().HeaderTimeout
	if patience > 0 {
		until = first.Add(patience)
	}
	err := k.in.more(max(limit+s.start+1, readSize), until)
	switch {
	case err == nil:
		return nil, false
	case errors.Is(err, errFull):
		return tooLarge(s, limit), false
	case errors.Is(err, os.ErrDeadlineExceeded) && s.start < s.seen: // else only empty lines came
		return bad(400, fmt.Sprintf("the header was not complete after %v", patience)), false
	}
	return nil, true
}

func tooLarge(s *scan, limit int) *Bad {
	if s.lines == 0 {
		return bad(414, fmt.Sprintf("the request line is longer than %d bytes", limit))
	}
	return &Bad{431, "header_too_large", fmt.Sprintf("the header is larger than %d bytes", limit)}
}

// handle runs the handler; a panic ends the connection, not the process.
func (k *conn) handle() (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			k.server.log("handler panicked", "error", p, "stack", string(debug.Stack()))
			k.abort()
		}
	}()
	k.server.Handler(&k.call)
	return true
}

// settle leaves the connection as the next request must find it.
func (k *conn) settle() (again bool) {
	k.body.end() // before the watch: the end of the content may start it
	k.watch.stop()
	switch {
	case k.broken || k.handed || !k.answered:
		return false
	case k.call.KeepAlive:
		return k.drain()
	}
	k.linger()
	return false
}

// mayKeep says whether the connection can go on after the answer.
func (k *conn) mayKeep() bool {
	rest := k.body.rest()
	waits := k.expecting.Swap(false) // it may or may not send its content now
	return k.call.Bad == nil && !waits && rest >= 0 && rest <= drainBytes && !k.server.stopping.Load()
}

// drain takes the unread rest of a sized content.
func (k *conn) drain() bool {
	if k.body.done.Load() {
		return true
	}
	until := time.Now().Add(drainTime)
	for left := k.body.left; ; {
		n := min(left, int64(len(k.in.bytes())))
		k.in.take(int(n))
		if left -= n; left == 0 {
			return true
		}
		if k.in.more(readSize, until) != nil {
			return false
		}
	}
}

// linger closes in stages (RFC 9112 section 9.6): bytes that nobody read would
// turn the close into a reset, which can cost the client its answer.
func (k *conn) linger() {
	if k.body.done.Load() && k.call.Bad == nil && !k.in.pending() || closeWrite(k.raw) != nil {
		return
	}
	until := time.Now().Add(lingerTime)
	for taken := 0; taken < lingerBytes; {
		taken += len(k.in.bytes())
		k.in.take(len(k.in.bytes()))
		if k.in.more(readSize, until) != nil {
			return
		}
	}
}

// claim makes the caller the one who answers.
func (k *conn) claim() bool {
	k.sending.Lock()
	defer k.sending.Unlock()
	was := k.answered
	k.answered = true
	return !was
}

// watchNow starts the watch that the handler asked for, unless the answer is
// on its way.
func (k *conn) watchNow() {
	k.sending.Lock()
	wanted := k.watched.Load() && !k.answered
	k.sending.Unlock()
	if wanted {
		k.watch.start(k.call.Received)
	}
}

// abort resets the connection: what the client has is not the whole answer.
func (k *conn) abort() {
	k.broken = true
	k.cancel()
	reset(k.raw)
}
