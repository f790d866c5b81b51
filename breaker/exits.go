package breaker

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// exitEntries bounds the table: one entry per egress identity in use.
const exitEntries = 4096

// Exits are the breakers of the egress proxies, by identity, and of each towards
// the hosts that it says it cannot reach: a proxy that fails says nothing about
// the hosts behind it nor about the other proxies, and a host that is dead nothing
// about the proxy. The rules are those of a host. Safe for concurrent use.
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

// ExitResult is what an attempt says about the exit that it went through.
type ExitResult uint8

// Results of an attempt through an exit.
const (
	ExitNothing ExitResult = iota // cancelled, local, never got there
	ExitAlive                     // the way stood, or was refused by a rule
	ExitIll                       // the proxy cannot be reached, or takes nobody
	ExitNoWay                     // it answers, and says that it cannot reach this host
)

// ExitPass is the permission of one attempt, given back with Report.
type ExitPass struct{ exit, way Pass }

// way names the breaker of an exit towards one host: a proxy that cannot reach
// one host, or a host that is dead, must not cut the others off.
func way(exit, host string) string { return exit + " to " + host }

// Allow says whether an attempt may go through the exit to the host now; if not,
// at is when to ask again.
func (e *Exits) Allow(exit, host string, now time.Time) (ok bool, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.allowLocked(exit, host, now)
}

func (e *Exits) allowLocked(exit, host string, now time.Time) (ok bool, at time.Time) {
	ok = true
	for _, name := range [...]string{exit, way(exit, host)} {
		x, found := e.entries.Get(name)
		if !found {
			continue
		}
		x.Expire(now)
		if free, when := e.askLocked(x, now); !free {
			ok, at = false, laterOf(at, when)
		}
	}
	return ok, at
}

// askLocked gives a date even while a probe is in flight, whose end nobody knows.
func (e *Exits) askLocked(x *exit, now time.Time) (ok bool, at time.Time) {
	ok, at = x.Allow(now)
	if !ok && at.IsZero() {
		at = now.Add(max(e.config.Open, time.Millisecond))
	}
	return ok, at
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Closed is closed when a breaker that does not let attempts go closes: whoever
// waits for its date can ask at once. nil: there is nothing to wait for.
func (e *Exits) Closed(exit, host string) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range [...]string{exit, way(exit, host)} {
		x, found := e.entries.Get(name)
		if !found || x.state == Closed {
			continue
		}
		if x.closed == nil {
			x.closed = make(chan struct{})
		}
		return x.closed
	}
	return nil
}

// Enter books an attempt, to be reported with its pass, if it may go now. While
// half-open it is the probe, which counts as failed after timeout.
func (e *Exits) Enter(exit, host string, timeout time.Duration, now time.Time) (p ExitPass, ok bool, at time.Time, events []*Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ok, at = e.allowLocked(exit, host, now); !ok {
		return p, false, at, nil
	}
	start := func(name string) (p Pass) {
		x, found := e.entries.Get(name)
		if !found {
			return p
		}
		p, event := x.Start(timeout, now)
		events = told(events, x, event)
		return p
	}
	p.exit, p.way = start(exit), start(way(exit, host))
	return p, true, time.Time{}, events
}

// Report takes the result of an attempt that entered.
func (e *Exits) Report(exit, host string, p ExitPass, r ExitResult, now time.Time) (events []*Event) {
	results := [...][2]Result{
		ExitNothing: {Excluded, Excluded}, ExitAlive: {Alive, Alive}, ExitIll: {Failed, Excluded}, ExitNoWay: {Alive, Failed},
	}[r]
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, name := range [...]string{exit, way(exit, host)} {
		pass := [...]Pass{p.exit, p.way}[i]
		if x := e.entryLocked(name, i == 0 || results[i] == Failed); x != nil {
			events = told(events, x, x.Report(pass, results[i], "", now))
		}
	}
	return events
}

// entryLocked is the breaker of that name, made if it is worth one.
func (e *Exits) entryLocked(name string, worth bool) *exit {
	x, found := e.entries.Get(name)
	if !found && worth {
		x = &exit{Host: NewHost(name, e.config)}
		e.entries.Add(name, x)
	}
	return x
}

// told names the change of an exit, and wakes who waits for it.
func told(events []*Event, x *exit, e *Event) []*Event {
	if e == nil {
		return events
	}
	e.Scope = "egress"
	if e.To == Closed {
		x.wake()
	}
	return append(events, e)
}

// Reset closes a breaker by an operator's word; nil: it was closed.
func (e *Exits) Reset(name string, now time.Time) *Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, found := e.entries.Get(name)
	if !found {
		return nil
	}
	if all := told(nil, x, x.Host.Reset(now)); len(all) > 0 {
		return all[0]
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
