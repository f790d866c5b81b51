package demo

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Upstream is a server that misbehaves on demand, by path; its index page says
// how. It speaks HTTP/1.1 on raw connections, because most of what it does no
// well-behaved server can do.
type Upstream struct {
	listener net.Listener
	closed   chan struct{}
	running  sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	ledger ledger
}

// Listen starts an upstream on addr, such as "127.0.0.1:0". It runs until Close.
func Listen(addr string) (*Upstream, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("demo: start the upstream: %w", err)
	}
	u := &Upstream{
		listener: l,
		closed:   make(chan struct{}),
		open:     map[net.Conn]struct{}{},
		ledger:   newLedger(),
	}
	u.running.Go(u.accept)
	return u, nil
}

// Addr is the address it listens on, as host:port.
func (u *Upstream) Addr() string { return u.listener.Addr().String() }

// Close ends the upstream with all its connections and waits until they are gone.
func (u *Upstream) Close() error {
	u.mu.Lock()
	select {
	case <-u.closed:
	default:
		close(u.closed)
	}
	for c := range u.open {
		_ = c.Close()
	}
	u.mu.Unlock()
	err := u.listener.Close()
	u.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Counts gives the requests whose request line reached the upstream, and the
// effects it had: what really happened, whatever a client was told.
func (u *Upstream) Counts() (requests, effects int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ledger.requests, u.ledger.effects
}

// Outage takes the upstream down from now on: for so long it answers 503.
func (u *Upstream) Outage(d time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ledger.downUntil = time.Now().Add(d)
}

func (u *Upstream) accept() {
	for {
		c, err := u.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !u.pause(10 * time.Millisecond) { // out of descriptors: do not spin
				return
			}
			continue
		}
		if !u.adopt(c) {
			return
		}
		u.running.Go(func() {
			defer u.forget(c)
			u.converse(c)
		})
	}
}

// adopt takes a connection into the set that Close closes.
func (u *Upstream) adopt(c net.Conn) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-u.closed:
		_ = c.Close()
		return false
	default:
	}
	u.open[c] = struct{}{}
	return true
}

func (u *Upstream) forget(c net.Conn) {
	_ = c.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.open, c)
}

// pause waits for d; it is false when the upstream closed meanwhile.
func (u *Upstream) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-u.closed:
		return false
	}
}
