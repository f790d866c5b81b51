//go:build unix

package clients

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay stands between a client and the proxy: the network that fails them.
type relay struct {
	addr string // where the client finds the proxy
	to   string

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	group sync.WaitGroup
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: l.Addr().String(), to: to, conns: map[net.Conn]struct{}{}}
	r.group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.group.Go(func() { r.carry(c) })
		}
	})
	t.Cleanup(func() { l.Close(); r.cut(); r.group.Wait() })
	return r
}

// carry joins a client's connection with one to the proxy until either ends.
func (r *relay) carry(client net.Conn) {
	proxy, err := net.Dial("tcp", r.to)
	if err != nil {
		client.Close()
		return
	}
	r.track(client, proxy)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, proxy}, {proxy, client}} {
		both.Go(func() {
			io.Copy(way[0], way[1])
			client.Close()
			proxy.Close()
		})
	}
	both.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, client)
	delete(r.conns, proxy)
}

func (r *relay) track(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = struct{}{}
	}
}

// cut closes every connection that there is.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.Close()
	}
}
