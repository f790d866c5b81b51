package sandbox

import (
	"errors"
	"net"
	"sync"
	"time"
)

// door is a listener that can be shut for a while. While it is, connections are
// refused, as when a process is started again.
type door struct {
	listen func(addr string) (net.Listener, error)
	admit  func(number int) bool // false: reset before anything is read
	addr   net.Addr
	closed chan struct{}

	mu     sync.Mutex
	open   net.Listener // nil while shut
	until  time.Time
	number int
}

func openDoor(addr string, listen func(string) (net.Listener, error)) (*door, error) {
	l, err := listen(addr)
	if err != nil {
		return nil, err
	}
	return &door{listen: listen, addr: l.Addr(), closed: make(chan struct{}), open: l}, nil
}

// shut refuses connections from now on, for so long.
func (d *door) shut(for_ time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = time.Now().Add(for_)
	if d.open != nil {
		_ = d.open.Close()
		d.open = nil
	}
}

// isShut says that connections are refused; those that are open already ought to
// be reset.
func (d *door) isShut() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Before(d.until)
}

// Accept waits for a connection that is let in, and while the door is shut.
func (d *door) Accept() (net.Conn, error) {
	for {
		l, err := d.listener()
		if err != nil {
			return nil, err
		}
		c, err := l.Accept()
		switch {
		case err == nil && d.admit(d.next()):
			return c, nil
		case err == nil:
			reset(c)
		case !errors.Is(err, net.ErrClosed):
			return nil, err
		}
	}
}

// listener is the open one; it is made anew when the door is to be opened again.
func (d *door) listener() (net.Listener, error) {
	for {
		d.mu.Lock()
		l, wait := d.open, time.Until(d.until)
		if l == nil && wait <= 0 {
			if l, _ = d.listen(d.addr.String()); l == nil {
				wait = 10 * time.Millisecond // somebody else has the port just now
			}
			d.open = l
		}
		d.mu.Unlock()
		if !d.pause(l == nil, wait) {
			return nil, net.ErrClosed
		}
		if l != nil {
			return l, nil
		}
	}
}

// pause waits if there is need to; false: the door is closed for good.
func (d *door) pause(need bool, wait time.Duration) bool {
	if !need {
		wait = 0
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-d.closed:
		return false
	case <-timer.C:
		return true
	}
}

// next is the number of a connection, from 1.
func (d *door) next() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.number++
	return d.number
}

// Close is for good.
func (d *door) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.closed:
		return nil
	default:
	}
	close(d.closed)
	if d.open == nil {
		return nil
	}
	return d.open.Close()
}

// Addr stays the same while the door is shut.
func (d *door) Addr() net.Addr { return d.addr }

// reset ends a connection by RST.
func reset(c net.Conn) {
	if c, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = c.SetLinger(0)
	}
	_ = c.Close()
}
