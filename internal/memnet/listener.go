package memnet

import (
	"net"
	"net/netip"
	"sync"
)

// listener queues connections until they are accepted.
type listener struct {
	net *Network
	at  netip.AddrPort

	mu     sync.Mutex
	cond   sync.Cond
	queue  []*Conn
	closed bool
}

// offer queues c; false: the listener has closed.
func (l *listener) offer(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.queue = append(l.queue, c)
	l.cond.Signal()
	return true
}

// Accept waits for a connection; net.ErrClosed after Close.
func (l *listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.closed {
		l.cond.Wait()
	}
	if l.closed {
		return nil, opError("accept", netip.AddrPort{}, l.at, net.ErrClosed)
	}
	c := l.queue[0]
	l.queue = l.queue[1:]
	return c, nil
}

// Close resets what was not accepted.
func (l *listener) Close() error {
	l.net.forget(l)
	l.mu.Lock()
	waiting, was := l.queue, l.closed
	l.queue, l.closed = nil, true
	l.cond.Broadcast()
	l.mu.Unlock()
	if was {
		return opError("close", netip.AddrPort{}, l.at, net.ErrClosed)
	}
	for _, c := range waiting {
		_ = c.Reset()
	}
	return nil
}

// Addr is the address listened on, a *net.TCPAddr.
func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }
