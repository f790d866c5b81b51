package breaker

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// exitEntries bounds the table: one entry per egress identity in use.
const exitEntries = 4096

// Exits are the breakers of the egress proxies, by identity: a proxy that fails
// says nothing about the hosts behind it, nor about the other proxies. The rules
// are those of a host. Safe for concurrent use.
type Exits struct {
	mu      sync.Mutex
	config  Config
	entries *simplelru.LRU[string, *exit]
}

// exit is the breaker of one identity.
type exit struct {
	Host
	closed chan struct{} // closed when the breaker does; nil: nobody waits for that
}

// wake lets go who waits for the breaker to close.
func (x *exit) wake() {
	if x.closed != nil {
		close(x.closed)
		x.closed = nil
	}
}

// NewExits returns the table with every breaker closed.
func NewExits(config Config) *Exits {
	entries, err := simplelru.NewLRU[string, *exit](exitEntries, func(_ string, x *exit) { x.wake() })
	if err != nil {
		panic("bug: " + err.Error()) // only a size below 1 fails
	}
	return &Exits{config: config, entries: entries}
}

// Allow says whether an attempt may go through the exit now; if not, at is when
// to ask again.
func (e *Exits) Allow(name string, now time.Time) (ok bool, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h, found := e.entries.Get(name)
	if !found {
		return true, time.Time{}
	}
	h.Expire(now)
	return e.askLocked(h, now)
}

// askLocked gives a date even while a probe is in flight, whose end nobody knows.
func (e *Exits) askLocked(h *exit, now time.Time) (ok bool, at time.Time) {
	ok, at = h.Allow(now)
	if !ok && at.IsZero() {
		at = now.Add(max(e.config.Open, time.Millisecond))
	}
	return ok, at
}

// Closed is closed when the breaker of an exit that does not let attempts go
// does: whoever waits for its date can ask at once. nil: there is nothing to wait for.
func (e *Exits) Closed(name string) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, found := e.entries.Get(name)
	if !found || x.state == Closed {
		return nil
	}
	if x.closed == nil {
		x.closed = make(chan struct{})
	}
	return x.closed
}

// Enter books an attempt, to be reported with its pass, if it may go now. While
// half-open it is the probe, which counts as failed after timeout.
func (e *Exits) Enter(name string, timeout time.Duration, now time.Time) (p Pass, ok bool, at time.Time, event *Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h, found := e.entries.Get(name)
	if !found {
		h = &exit{Host: NewHost(name, e.config)}
		e.entries.Add(name, h)
	}
	h.Expire(now)
	if ok, at = e.askLocked(h, now); !ok {
		return p, false, at, nil
	}
	p, event = h.Start(timeout, now)
	return p, true, time.Time{}, h.told(event)
}

// Report takes the result of an attempt that entered.
func (e *Exits) Report(name string, p Pass, r Result, now time.Time) *Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h, found := e.entries.Get(name); found {
		return h.told(h.Report(p, r, now))
	}
	return nil
}

// Reset closes a breaker by an operator's word; nil: it was closed.
func (e *Exits) Reset(name string, now time.Time) *Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h, found := e.entries.Get(name); found {
		return h.told(h.Reset(now))
	}
	return nil
}

// Configure changes the rules of all breakers; their state stays.
func (e *Exits) Configure(config Config, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.config = config
	for _, h := range e.entries.Values() {
		h.Configure(config, now)
	}
}

// ExitStatus is the breaker of one exit.
type ExitStatus struct {
	Name string
	Status
}

// Used lists the breakers of all exits in use, the least recently used first.
func (e *Exits) Used(now time.Time) []ExitStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []ExitStatus
	for _, name := range e.entries.Keys() {
		if h, found := e.entries.Peek(name); found {
			all = append(all, ExitStatus{name, h.Status(now)})
		}
	}
	return all
}

// told names the change of an exit, and wakes who waits for it.
func (x *exit) told(e *Event) *Event {
	if e == nil {
		return nil
	}
	e.Scope = "egress"
	if e.To == Closed {
		x.wake()
	}
	return e
}
