package limiter

import (
	"strings"
	"time"

	"retryproxy/breaker"
)

// gate decides when an attempt at one host may start: its breaker lets it
// through and a slot is free. What it does by itself with time is told by wakes.
type gate struct {
	host    string
	breaker breaker.Host
	places  []place    // slots ever used at once; a free one has seq 0
	free    []int      // of places
	busy    int        // slots in use
	held    [lanes]int // of them, by lane

	lanes       [lanes]lane
	credit      float64          // of the backlog: its share of the starts that both lanes wanted
	relief      bool             // an outage, or what it left is being worked off
	failed      string           // shop of the last probe that failed: others probe before it
	outage      Outage           // of relief: Waiting and Release are not kept
	limitBefore int              // of relief
	waiting     int              // calls in line
	planned     int              // calls that wait for their start
	deadlines   line[*Ticket]    // calls in line that have a deadline, by it
	patience    line[*Ticket]    // calls in line, by when max_wait is used up
	youth       line[*Ticket]    // of them, those that are not aged
	newcomers   line[*Ticket]    // calls in the fresh lane, by when they came
	failOpen    map[*Ticket]bool // calls in line that do not wait for the breaker

	ramp   ramp
	learnt learnt
	pace   pace

	stop    string        // what keeps everybody from starting: causeBreaker, causeGate or nothing
	since   time.Time     // of stop
	stopped time.Duration // earlier stops together: the time that uses up max_wait
	alarm   alarm         // at wakes
	touched bool          // to be served before the lock is given up
}

// place is one slot in use.
type place struct {
	seq      uint64
	lane     int
	shop     string
	kind     string // task type
	began    time.Time
	load     int    // attempts in flight then, it included
	early    bool   // of the first of its kind
	cohort   uint32 // by which the limit is judged; 0: none
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
		lanes:     [lanes]lane{newLane(), newLane()},
		deadlines: newLine(byDeadline), patience: newLine(byPatience), failOpen: map[*Ticket]bool{},
		youth: newLine(byPatience), newcomers: newLine(byMark),
	}
	g.alarm = alarm{seq: seq, owner: g}
	return g
}

// wake runs at the alarm: a silent probe is given up, and whoever waits is looked at.
func (g *gate) wake(b *board) {
	b.note(g, g.breaker.Expire(b.now))
	b.touch(g)
}

func (g *gate) closed(now time.Time) bool { return g.breaker.State(now) == breaker.Closed }

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

// wakes is when time alone changes something at a gate: a deadline or a patience ends, a
// probe is due or silent for too long, the ramp gives another slot or is over, a call is
// late or aged. Zero: never.
func (b *board) wakes(g *gate) (at time.Time) {
	add := func(x time.Time) {
		if !x.IsZero() && (at.IsZero() || x.Before(at)) {
			at = x
		}
	}
	if g.waiting > 0 || g.breaker.State(b.now) == breaker.HalfOpen {
		add(g.breaker.Next(b.now))
	}
	if t, ok := g.deadlines.first(); ok {
		add(t.claim.Deadline)
	}
	if full := g.ramp.ends(b.config.Ramp); g.relief && g.closed(b.now) {
		if full.After(b.now) {
			add(full)
		} else {
			add(full.Add(b.config.MaxWait))
		}
	}
	if g.waiting == 0 || g.stop == "" {
		return at
	}
	clock := g.clock(b.now)
	if t, ok := g.patience.first(); ok {
		add(b.now.Add(t.limit - clock))
	}
	if t, ok := g.youth.first(); ok {
		add(b.now.Add(b.ages(t) - clock))
	}
	if t, ok := g.newcomers.first(); ok && b.low(g) {
		add(b.now.Add(max(t.mark+LateAfter-clock, 1)))
	}
	add(b.grows(g))
	return at
}

// ages is the gate's stopped time from which on a call's age beats priority: when half
// of max_wait is used up.
func (b *board) ages(t *Ticket) time.Duration { return t.limit - b.config.MaxWait/2 }

// promote moves those in line whom time has put elsewhere: into the backlog, or before
// the others because of their age.
func (b *board) promote(g *gate) {
	if g.waiting == 0 {
		return
	}
	clock := g.clock(b.now)
	for t, ok := g.youth.first(); ok && b.ages(t) <= clock; t, ok = g.youth.first() {
		b.unlane(t)
		t.aged = true
		b.inlane(t)
	}
	if !b.low(g) {
		return
	}
	for t, ok := g.newcomers.first(); ok && t.mark+LateAfter <= clock; t, ok = g.newcomers.first() {
		b.unlane(t)
		t.lane = laneBacklog
		b.inlane(t)
	}
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
	g.held[p.lane]++
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
	g.held[g.places[of.place].lane]--
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
