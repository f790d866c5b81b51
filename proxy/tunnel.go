package proxy

import (
	"io"
	"net"
	"sync"
	"time"
)

// join copies both ways until both sides ended or nothing moved for idle. A
// half-close is passed on (RFC 9110 section 9.3.6). It returns the bytes that
// went to the client.
func (t *tunnel) join() int64 {
	defer t.client.Close()
	defer t.up.Close()
	t.moved.Store(time.Now().UnixNano())
	var group sync.WaitGroup
	group.Go(func() { t.copy(t.up, t.client) })
	n := t.copy(t.client, t.up)
	group.Wait()
	return n
}

// copy moves bytes one way; what flows the other way counts as life as well.
func (t *tunnel) copy(dst, src net.Conn) int64 {
	n, err := t.move(dst, src)
	if err != nil {
		t.client.Close()
		t.up.Close()
		return n
	}
	_ = closeWrite(dst)
	return n
}

// move lets the kernel copy between two TCP connections (splice), which costs
// half of what it costs to take the bytes and give them back.
func (t *tunnel) move(dst, src net.Conn) (int64, error) {
	to, ok := bottom(dst).(*net.TCPConn)
	if !ok || !isTCP(src) {
		return io.Copy(dst, &idleReader{t, src})
	}
	head, from := detach(src)
	n, err := dst.Write(head)
	if err != nil {
		return int64(n), err
	}
	moved, err := t.splice(to, from)
	return int64(n) + moved, err
}

// turns is how often within its idle time a tunnel is looked at: a copy in the
// kernel does not say when it last moved something.
const turns = 4

// splice copies until the end. A tunnel that moves nothing ends between one
// idle time and half of one later.
func (t *tunnel) splice(dst, src *net.TCPConn) (n int64, err error) {
	for {
		_ = src.SetReadDeadline(time.Now().Add(t.idle / turns)) // fails on a closed one, as reading does
		m, err := io.Copy(dst, src)
		n += m
		if m > 0 {
			t.moved.Store(time.Now().UnixNano())
		}
		if !isTimeout(err) || t.quiet() >= t.idle {
			return n, err
		}
	}
}

// quiet is for how long nothing went either way.
func (t *tunnel) quiet() time.Duration { return time.Since(time.Unix(0, t.moved.Load())) }

// detachable is a connection that holds bytes back, and can give them up.
type detachable interface{ Detach() ([]byte, net.Conn) }

// isTCP says whether there is nothing but TCP, and bytes held back, below c.
func isTCP(c net.Conn) bool {
	if p, ok := c.(*prefixed); ok && p.err != nil {
		return false
	}
	_, ok := bottom(c).(*net.TCPConn)
	return ok
}

// bottom is the connection below those that only hold bytes back.
func bottom(c net.Conn) net.Conn {
	for {
		_, holds := c.(detachable)
		below, ok := c.(interface{ NetConn() net.Conn })
		if !holds || !ok {
			return c
		}
		c = below.NetConn()
	}
}

// detach takes what is held back, all the way down.
func detach(c net.Conn) (head []byte, bare *net.TCPConn) {
	for {
		d, ok := c.(detachable)
		if !ok {
			return head, c.(*net.TCPConn)
		}
		held, below := d.Detach()
		head, c = append(head, held...), below
	}
}

// idleReader moves the deadline of its connection with each read.
type idleReader struct {
	t   *tunnel
	src net.Conn
}

// Read gives up when nothing went either way for too long.
func (r *idleReader) Read(p []byte) (int, error) {
	for {
		_ = r.src.SetReadDeadline(time.Unix(0, r.t.moved.Load()).Add(r.t.idle))
		n, err := r.src.Read(p)
		if n > 0 {
			r.t.moved.Store(time.Now().UnixNano())
		}
		if n > 0 || !isTimeout(err) || r.t.quiet() >= r.t.idle {
			return n, err
		}
	}
}
