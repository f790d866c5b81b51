package limiter

import (
	"strings"
	"time"

	"retryproxy/breaker"
)

// gate decides when an attempt at one host may start: its breaker lets it
// through and a slot is free. What it does by itself with time is told by next.
type gate struct {
	host    string
	breaker breaker.Host
	places  []place // slots ever used at once; a free one has seq 0
	free    []int   // of places
	busy    int     // slots in use

	fresh     line[*Ticket]    // calls in line that need no token, by turn
	cells     map[string]*cell // retries in line, by task type
	waiting   int              // calls in line
	planned   int              // calls that wait for their start
	deadlines line[*Ticket]    // calls in line that have a deadline, by it
	patience  line[*Ticket]    // calls in line, by when max_wait is used up
	failOpen  map[*Ticket]bool // calls in line that do not wait for the breaker

	stop    string        // what keeps everybody from starting: causeBreaker, causeGate or nothing
	since   time.Time     // of stop
	stopped time.Duration // earlier stops together: the time that uses up max_wait
	alarm   alarm         // next
	touched bool          // to be served before the lock is given up
}

// place is one slot in use.
type place struct {
	seq      uint64
	pass     breaker.Pass
	sources  sources // that gave a token
	reported bool
}

// Causes of waits at a gate.
const (
	causeGate    = "gate"
	causeBreaker = "breaker"
	causeTokens  = "tokens"
)

func newGate(host string, config breaker.Config, seq uint64) *gate {
	host = strings.Clone(host)
	g := &gate{
		host: host, breaker: breaker.NewHost(host, config),
		fresh: newLine(earlier), cells: map[string]*cell{},
		deadlines: newLine(byDeadline), patience: newLine(byPatience), failOpen: map[*Ticket]bool{},
	}
	g.alarm = alarm{seq: seq, owner: g}
	return g
}

// wake runs at next: a silent probe is given up, and whoever waits is looked at.
func (g *gate) wake(b *board) {
	b.note(g.breaker.Expire(b.now))
	b.touch(g)
}

// open says that the breaker lets somebody through.
func (g *gate) open(now time.Time) bool {
	ok, _ := g.breaker.Allow(now)
	return ok
}

// blocker is what keeps everybody from starting; empty: nothing does.
func (g *gate) blocker(capacity int, now time.Time) string {
	switch {
	case !g.open(now):
		return causeBreaker
	case g.busy >= capacity:
		return causeGate
	}
	return ""
}

// clock is how long the gate has been stopped in all.
func (g *gate) clock(now time.Time) time.Duration {
	if g.stop == "" {
		return g.stopped
	}
	return g.stopped + now.Sub(g.since)
}

// measure books the time since the last look and what stops the gate from now on.
func (g *gate) measure(stop string, now time.Time) {
	g.stopped = g.clock(now)
	g.stop, g.since = stop, now
}

// next is when time alone changes something here: a deadline or a patience
// ends, a probe is due or silent for too long. Zero: never.
func (g *gate) next(now time.Time) (at time.Time) {
	add := func(x time.Time) {
		if !x.IsZero() && (at.IsZero() || x.Before(at)) {
			at = x
		}
	}
	if g.waiting > 0 || g.breaker.State(now) == breaker.HalfOpen {
		add(g.breaker.Next(now))
	}
	if t, ok := g.deadlines.first(); ok {
		add(t.claim.Deadline)
	}
	if t, ok := g.patience.first(); ok && g.stop != "" {
		add(now.Add(t.limit - g.clock(now)))
	}
	return at
}

// enter books a slot and returns it as a grant.
func (g *gate) enter(p place) Grant {
	i := len(g.places)
	if n := len(g.free); n > 0 {
		i, g.free = g.free[n-1], g.free[:n-1]
		g.places[i] = p
	} else {
		g.places = append(g.places, p)
	}
	g.busy++
	return Grant{gate: g, place: i, seq: p.seq}
}

// find returns the slot of a grant, nil once it was given back.
func (g *gate) find(of Grant) *place {
	if p := &g.places[of.place]; p.seq == of.seq {
		return p
	}
	return nil
}

// exit frees the slot of a grant.
func (g *gate) exit(of Grant) {
	g.places[of.place] = place{}
	g.free = append(g.free, of.place)
	g.busy--
}

// reopens is when a call turned away by the breaker may try again: the next
// probe, or while one is in flight an opening's time from now.
func (g *gate) reopens(least time.Duration, now time.Time) time.Time {
	if _, at := g.breaker.Allow(now); !at.IsZero() {
		return at
	}
	return now.Add(least)
}

// gate returns the gate of a host.
func (b *board) gate(host string) *gate {
	if g, ok := b.gates.get(host); ok {
		return g
	}
	b.seq++
	g := newGate(host, b.config.Breaker, b.seq)
	b.gates.add(g.host, g)
	return g
}

// gateWorth says what forgetting a gate would lose.
func (b *board) gateWorth(g *gate) worth {
	if g.busy+g.waiting+g.planned > 0 || !g.breaker.Forgettable(b.now) {
		return inUse
	}
	return worthless
}
