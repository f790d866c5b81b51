package inbound

import (
	"crypto/tls"
	"net"
	"time"

	"retryproxy/message"
)

// Stream is a client connection that left HTTP behind: the inside of a tunnel
// or an upgrade. It begins with the bytes that came behind the request. One
// goroutine reads (or peeks) and one writes.
type Stream struct{ conn *conn }

var (
	_ message.Upgrade = (*Stream)(nil)
	_ net.Conn        = (*Stream)(nil)
)

// Read gives what was buffered, then what comes.
func (s *Stream) Read(p []byte) (int, error) {
	in := &s.conn.in
	if n := copy(p, in.bytes()); n > 0 {
		in.take(n)
		if in.r == in.w {
			in.release()
		}
		return n, nil
	}
	if in.hasLate && len(p) > 0 {
		in.hasLate = false
		p[0] = in.late[0]
		return 1, nil
	}
	return s.conn.raw.Read(p)
}

// Buffered says whether Read has something that came behind the request.
func (s *Stream) Buffered() bool { return len(s.conn.in.bytes()) > 0 || s.conn.in.hasLate }

// Peek waits for at least n bytes, at most 4096, and returns all that is there
// without taking it; with an error (also of a read deadline) what came so far.
// The bytes are valid until the next Read or Peek.
func (s *Stream) Peek(n int) ([]byte, error) {
	in := &s.conn.in
	for len(in.bytes()) < n {
		if err := in.room(readSize); err != nil {
			return in.bytes(), err
		}
		got, err := s.fill(in.buf[in.w:])
		in.w += got
		if err != nil && len(in.bytes()) < n {
			return in.bytes(), err
		}
	}
	return in.bytes(), nil
}

// fill reads past the buffer under the deadlines of the stream's owner.
func (s *Stream) fill(p []byte) (int, error) {
	if in := &s.conn.in; in.hasLate {
		in.hasLate = false
		p[0] = in.late[0]
		return 1, nil
	}
	return s.conn.raw.Read(p)
}

// Write writes to the client.
func (s *Stream) Write(p []byte) (int, error) { return s.conn.raw.Write(p) }

// Close closes the connection.
func (s *Stream) Close() error { return s.conn.raw.Close() }

// CloseWrite passes a half-close on to the client.
func (s *Stream) CloseWrite() error { return closeWrite(s.conn.raw) }

// Reset closes the connection so that the client sees a failure.
func (s *Stream) Reset() { reset(s.conn.raw) }

// NetConn is the connection underneath; reading from it misses what is buffered.
func (s *Stream) NetConn() net.Conn { return s.conn.raw }

// LocalAddr is our address.
func (s *Stream) LocalAddr() net.Addr { return s.conn.raw.LocalAddr() }

// RemoteAddr is the client's address.
func (s *Stream) RemoteAddr() net.Addr { return s.conn.raw.RemoteAddr() }

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error { return s.conn.raw.SetDeadline(t) }

// SetReadDeadline bounds Read and Peek.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.conn.raw.SetReadDeadline(t) }

// SetWriteDeadline bounds Write.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.conn.raw.SetWriteDeadline(t) }

// closeWrite half-closes c; net.ErrClosed where that is not possible.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// belowTLS is the connection to close when nothing is to be waited for: TLS
// says goodbye first, which a client that takes nothing delays.
func belowTLS(c net.Conn) net.Conn {
	if tc, ok := c.(*tls.Conn); ok {
		return tc.NetConn()
	}
	return c
}

// reset closes c so that the client sees a failure: below TLS, whose own close
// would say that all is well.
func reset(c net.Conn) {
	switch c := c.(type) {
	case interface{ Reset() }:
		c.Reset()
	case interface{ SetLinger(int) error }:
		_ = c.SetLinger(0)
	case interface{ NetConn() net.Conn }:
		reset(c.NetConn())
	}
	_ = c.Close()
}
