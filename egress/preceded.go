package egress

import (
	"errors"
	"net"
)

// preceded is a connection behind bytes of it that were read early.
type preceded struct {
	net.Conn
	early []byte
}

// Read gives the early bytes first.
func (c *preceded) Read(p []byte) (int, error) {
	if len(c.early) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.early)
	if c.early = c.early[n:]; len(c.early) == 0 {
		c.early = nil
	}
	return n, nil
}

// Buffered says whether there are early bytes left.
func (c *preceded) Buffered() bool { return len(c.early) > 0 }

// NetConn is the connection itself.
func (c *preceded) NetConn() net.Conn { return c.Conn }

// CloseWrite passes a half-close on.
func (c *preceded) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
