//go:build unix

package upstream

import (
	"testing"
	"time"
)

// settle waits until the peer's last bytes are on this side of the socket, if they
// are not in a layer above it already.
func settle(t *testing.T, c *Client) {
	t.Helper()
	c.pool.mu.Lock()
	p := c.pool.list.next
	c.pool.mu.Unlock()
	if p.conn == nil || p.conn.sock == nil {
		return
	}
	_ = p.conn.nc.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	_ = p.conn.sock.raw.Read(func(uintptr) bool { return !p.conn.sock.silent() })
}
