// Package memnet answers one question: what would the kernel's TCP do here, on fake time?
//
// It is an in-memory network for testing/synctest bubbles: all blocking is
// durable, no goroutine belongs to a connection, and buffers, half-closes,
// resets and deadlines behave as far as the proxy relies on them.
package memnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
)

// Network is a set of listeners that can be dialled. Separate networks do not
// see each other.
type Network struct {
	mu        sync.Mutex
	listeners map[netip.AddrPort]*listener
	silent    map[netip.AddrPort]bool
	port      uint16 // last ephemeral port given out
}

// New returns an empty network.
func New() *Network {
	return &Network{
		listeners: map[netip.AddrPort]*listener{},
		silent:    map[netip.AddrPort]bool{},
		port:      49151,
	}
}

// Listen listens on addr, an IP address or "localhost" with a port. Port 0
// takes a free one; an empty or unspecified host takes connections to any
// address. It fails with syscall.EADDRINUSE when the address is taken.
func (n *Network) Listen(addr string) (net.Listener, error) {
	at, err := resolve(addr)
	if err != nil {
		return nil, opError("listen", netip.AddrPort{}, at, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Port() == 0 {
		at = netip.AddrPortFrom(at.Addr(), n.portLocked())
	}
	if n.listeners[at] != nil {
		return nil, opError("listen", netip.AddrPort{}, at, os.NewSyscallError("bind", syscall.EADDRINUSE))
	}
	l := &listener{net: n, at: at}
	l.cond.L = &l.mu
	n.listeners[at] = l
	return l, nil
}

// Dial connects to addr from a loopback address. Without a listener it fails
// with syscall.ECONNREFUSED. As with TCP it does not wait for Accept.
func (n *Network) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return n.DialFrom(ctx, netip.AddrFrom4([4]byte{127, 0, 0, 1}), addr)
}

// DialFrom is Dial with the address that the listener sees as the client's.
func (n *Network) DialFrom(ctx context.Context, from netip.Addr, addr string) (net.Conn, error) {
	to, err := resolve(addr)
	if err != nil {
		return nil, opError("dial", netip.AddrPort{}, to, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, opError("dial", netip.AddrPort{}, to, err)
	}
	l, local, silent := n.route(from, to)
	if silent {
		<-ctx.Done()
		return nil, opError("dial", netip.AddrPort{}, to, ctx.Err())
	}
	near, far := pair(local, to)
	if l == nil || !l.offer(far) {
		return nil, opError("dial", netip.AddrPort{}, to, os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	return near, nil
}

// Silence makes dials to addr hang until their context ends, as if packets
// were dropped. It does not touch connections that exist.
func (n *Network) Silence(addr string, on bool) error {
	at, err := resolve(addr)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent[at] = on
	return nil
}

// route finds the listener for to and a local address to come from.
func (n *Network) route(from netip.Addr, to netip.AddrPort) (l *listener, local netip.AddrPort, silent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l = n.listeners[to]
	for _, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if l == nil {
			l = n.listeners[netip.AddrPortFrom(any, to.Port())]
		}
	}
	return l, netip.AddrPortFrom(from, n.portLocked()), n.silent[to]
}

// portLocked gives out the ephemeral ports in turn.
func (n *Network) portLocked() uint16 {
	n.port++
	if n.port < 49152 {
		n.port = 49152
	}
	return n.port
}

// forget is called by a listener that closes.
func (n *Network) forget(l *listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[l.at] == l {
		delete(n.listeners, l.at)
	}
}

// resolve reads host:port; there are no names here but localhost.
func resolve(addr string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	switch host {
	case "localhost":
		host = "127.0.0.1"
	case "":
		host = "0.0.0.0"
	}
	at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("memnet: %q is no IP address and port: %w", addr, err)
	}
	return at, nil
}

func opError(op string, from, to netip.AddrPort, err error) error {
	e := &net.OpError{Op: op, Net: "tcp", Err: err}
	if from.IsValid() {
		e.Source = net.TCPAddrFromAddrPort(from)
	}
	if to.IsValid() {
		e.Addr = net.TCPAddrFromAddrPort(to)
	}
	return e
}
