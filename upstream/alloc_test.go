//go:build !race

package upstream

import (
	"context"
	"net"
	"net/netip"
	"testing"
)

// A GET on a kept connection: the header, its fields, the Response. Through an exit
// it costs no more.
func TestAllocations(t *testing.T) {
	target := benchServer(t)
	t.Run("direct", func(t *testing.T) { allocations(t, target) })
	at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(target.authority()))
	target.Exit = newExit(t, "shop-1", "http", at, nil)
	t.Run("exit", func(t *testing.T) { allocations(t, target) })
}

func allocations(t *testing.T, target Target) {
	c := client(t, Config{})
	defer c.Close()
	a := attempt(target, "GET", "/", nil, "Accept", "*/*")
	buf := make([]byte, 1024)
	got := testing.AllocsPerRun(500, func() {
		r := c.Send(context.Background(), a)
		for {
			if _, err := r.Response.Body.Read(buf); err != nil {
				break
			}
		}
		_ = r.Response.Body.Close()
	})
	if got > 3 {
		t.Errorf("allocations of a GET = %v, want at most 3", got)
	}
}
