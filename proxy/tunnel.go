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
	group.Go(func() { t.sent = t.copy(t.up, t.client) })
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

const (
	fewBytes  = 4 << 10 // of a tunnel that says little: most of them, most of the time
	manyBytes = 32 << 10
	flowSlice = time.Second // longest wait of a copy in the kernel, which holds a pipe meanwhile
	flowing   = 1 << 20     // bytes in a slice that are worth that pipe
)

// move copies one way to the end. What comes in small portions goes through a
// small buffer; while more comes at once than that holds, the kernel copies.
func (t *tunnel) move(dst, src net.Conn) (total int64, err error) {
	in := idleReader{t, src}
	buf := make([]byte, fewBytes)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			n, failed := dst.Write(buf[:n])
			if total += int64(n); failed != nil {
				return total, failed
			}
		}
		switch {
		case err == io.EOF:
			return total, nil
		case err != nil:
			return total, err
		case n < len(buf):
			continue
		}
		to, from := socket(dst, false), socket(src, true)
		if to == nil || from == nil {
			if len(buf) < manyBytes {
				buf = make([]byte, manyBytes)
			}
			continue
		}
		n64, err := t.flow(to, from)
		if total += n64; err != nil {
			return total, err
		}
	}
}

// flow lets the kernel copy between two TCP connections (splice), which costs
// half of what it costs to take the bytes and give them back, until less comes
// or nothing more. An end is left to the next read.
func (t *tunnel) flow(dst, src *net.TCPConn) (total int64, err error) {
	for {
		_ = src.SetReadDeadline(time.Now().Add(min(flowSlice, t.idle))) // fails on a closed one, as reading does
		n, err := io.Copy(dst, src)
		total += n
		if n > 0 {
			t.moved.Store(time.Now().UnixNano())
		}
		switch {
		case err != nil && !isTimeout(err):
			return total, err
		case err == nil || n < flowing:
			return total, nil
		}
	}
}

// quiet is for how long nothing went either way.
func (t *tunnel) quiet() time.Duration { return time.Since(time.Unix(0, t.moved.Load())) }

// socket is the TCP connection that c comes to; nil: there is more between, or
// something to be read that is not in it.
func socket(c net.Conn, read bool) *net.TCPConn {
	for {
		if tcp, ok := c.(*net.TCPConn); ok {
			return tcp
		}
		b, ok := c.(interface {
			Buffered() bool
			NetConn() net.Conn
		})
		if !ok || read && b.Buffered() {
			return nil
		}
		c = b.NetConn()
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
