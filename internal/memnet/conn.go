package memnet

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// BufferSize is how many bytes each direction of a connection holds before a
// writer waits for its reader.
const BufferSize = 64 << 10

// Conn is one end of a connection. Its methods are those of a *net.TCPConn as
// far as the proxy uses them, and Reset.
type Conn struct {
	wire       *wire
	peer       *Conn
	near, far  netip.AddrPort
	in         []byte // received, not yet read
	finished   bool   // the peer sends nothing more
	reset      bool   // an RST came in
	closed     bool   // by us
	shut       bool   // CloseWrite was called
	noLinger   bool   // Close resets
	readLimit  limit
	writeLimit limit
}

// wire is what both ends share.
type wire struct {
	mu   sync.Mutex
	cond sync.Cond // anything changed
}

// limit is a deadline and the timer that wakes whoever waits for it.
type limit struct {
	at    time.Time
	timer *time.Timer
}

func pair(near, far netip.AddrPort) (*Conn, *Conn) {
	w := &wire{}
	w.cond.L = &w.mu
	a := &Conn{wire: w, near: near, far: far}
	b := &Conn{wire: w, near: far, far: near, peer: a}
	a.peer = b
	return a, b
}

// Read returns buffered bytes, then io.EOF after the peer's half-close,
// ECONNRESET after a reset.
func (c *Conn) Read(p []byte) (int, error) {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.fail("read", net.ErrClosed)
		case c.readLimit.over():
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		case c.reset:
			return 0, c.fail("read", os.NewSyscallError("read", syscall.ECONNRESET))
		case len(c.in) > 0:
			return c.takeLocked(p), nil
		case c.finished:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		c.wire.cond.Wait()
	}
}

func (c *Conn) takeLocked(p []byte) int {
	n := copy(p, c.in)
	c.in = c.in[n:]
	if len(c.in) == 0 {
		c.in = nil
	}
	c.wire.cond.Broadcast()
	return n
}

// Write waits only while the peer's buffer is full. To a peer that has closed
// the first write succeeds and brings back the reset, as with TCP.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	for {
		switch {
		case c.closed:
			return n, c.fail("write", net.ErrClosed)
		case c.writeLimit.over():
			return n, c.fail("write", os.ErrDeadlineExceeded)
		case c.shut:
			return n, c.fail("write", os.NewSyscallError("write", syscall.EPIPE))
		case c.reset:
			return n, c.fail("write", os.NewSyscallError("write", syscall.ECONNRESET))
		case n == len(p):
			return n, nil
		}
		if room := BufferSize - len(c.peer.in); c.peer.closed {
			c.resetLocked()
			return len(p), nil
		} else if room > 0 {
			n += c.giveLocked(p[n:min(len(p), n+room)])
			continue
		}
		c.wire.cond.Wait()
	}
}

func (c *Conn) giveLocked(p []byte) int {
	c.peer.in = append(c.peer.in, p...)
	c.wire.cond.Broadcast()
	return len(p)
}

// resetLocked is an RST arriving here: what was received is lost.
func (c *Conn) resetLocked() {
	c.reset, c.in = true, nil
	c.wire.cond.Broadcast()
}

// Close sends the peer EOF, or a reset when there are unread bytes.
func (c *Conn) Close() error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	if c.closed {
		return c.fail("close", net.ErrClosed)
	}
	if len(c.in) > 0 || c.noLinger {
		c.peer.resetLocked()
	}
	c.closed, c.in, c.peer.finished = true, nil, true
	c.readLimit.stop()
	c.writeLimit.stop()
	c.wire.cond.Broadcast()
	return nil
}

// CloseWrite lets the peer read EOF after the bytes already sent.
func (c *Conn) CloseWrite() error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	if c.closed || c.reset {
		return c.fail("close", net.ErrClosed)
	}
	c.shut, c.peer.finished = true, true
	c.wire.cond.Broadcast()
	return nil
}

// Reset closes the connection so that the peer gets ECONNRESET.
func (c *Conn) Reset() error {
	_ = c.SetLinger(0)
	return c.Close()
}

// SetLinger with 0 makes Close reset the connection; other values do nothing.
func (c *Conn) SetLinger(sec int) error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.noLinger = sec == 0
	return nil
}

// LocalAddr is a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.near) }

// RemoteAddr is a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.far) }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.setLimits(t, &c.readLimit, &c.writeLimit)
}

// SetReadDeadline wakes a waiting Read when t is in the past.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setLimits(t, &c.readLimit) }

// SetWriteDeadline wakes a waiting Write when t is in the past.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setLimits(t, &c.writeLimit) }

func (c *Conn) setLimits(t time.Time, limits ...*limit) error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	if c.closed {
		return c.fail("set", net.ErrClosed)
	}
	for _, l := range limits {
		l.set(t, c.wake)
	}
	c.wire.cond.Broadcast()
	return nil
}

func (c *Conn) wake() {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.cond.Broadcast()
}

func (l *limit) set(t time.Time, wake func()) {
	l.stop()
	l.at = t
	if wait := time.Until(t); !t.IsZero() && wait > 0 {
		l.timer = time.AfterFunc(wait, wake)
	}
}

func (l *limit) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

func (l *limit) over() bool { return !l.at.IsZero() && !time.Now().Before(l.at) }

func (c *Conn) fail(op string, err error) error { return opError(op, c.near, c.far, err) }
