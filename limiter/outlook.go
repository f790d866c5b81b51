package limiter

import "time"

// hopeless says that the turn of a call in line cannot come before its deadline or
// within its max_wait, even if all goes well from now on: better it hears so at once
// than after it has waited in vain.
func (b *board) hopeless(t *Ticket) bool {
	g := t.gate
	if g.pace.mean == 0 || t.claim.Deadline.IsZero() && t.patience() >= never {
		return false
	}
	hoped := b.hopedLimit(g)
	tooLong := func(ahead int) bool {
		at := b.turnAfter(g, ahead, hoped)
		return t.late(at) || at.Sub(b.now) > t.patience()
	}
	l := &g.lanes[t.lane]
	return tooLong(l.size-1) && tooLong(l.ahead(t)) // the first is quickly known, and mostly enough
}

// expects is when a call in line has its turn if all goes well from now on; zero:
// unknown.
func (b *board) expects(t *Ticket) time.Time {
	if t.gate.pace.mean == 0 {
		return time.Time{}
	}
	return b.turnAfter(t.gate, t.gate.lanes[t.lane].ahead(t), b.expectedLimit(t.gate))
}

// expectedLimit is how many slots a gate will have: after an outage what it had before.
func (b *board) expectedLimit(g *gate) int {
	if g.relief {
		return max(b.limit(g), min(g.limitBefore, b.config.MaxInFlight))
	}
	return b.limit(g)
}

// hopedLimit is how many slots a gate has at best: nobody is turned away by a limit that
// has not been found yet.
func (b *board) hopedLimit(g *gate) int {
	if b.config.Adaptive && g.learnt.rising() {
		return b.config.MaxInFlight
	}
	return b.expectedLimit(g)
}

// turnAfter is when a gate has started n calls if all goes well from now on: the next
// probe succeeds, the ramp follows, and no other lane wants a slot. full is how many slots
// there are in the end.
func (b *board) turnAfter(g *gate, n, full int) time.Time {
	c, from, start := &b.config, 0, b.now
	pace, perSecond := g.pace, 0.0
	pace.mean = min(pace.mean, pace.usual) // what is unusual is not what to hope for
	if c.Ramp > 0 {
		perSecond = float64(c.MaxInFlight-c.Breaker.Probes) / c.Ramp.Seconds()
	}
	switch ok, probe := g.breaker.Allow(b.now); {
	case g.closed(b.now):
		from = b.capacity(g)
	case n < c.Breaker.Probes && ok:
		return start
	default: // the probes go first, and one of them has to come back
		if n -= c.Breaker.Probes; n < 0 {
			return b.later(probe)
		}
		start, from = b.later(probe).Add(seconds(pace.mean)), c.Breaker.Probes
	}
	if perSecond == 0 {
		from = full
	}
	return start.Add(pace.serves(n, min(from, full), full, perSecond))
}

// Outage is a host that is cut off, or on its way back.
type Outage struct {
	Since   time.Time // when it was cut off first
	Reach   string    // whose calls failed: several_shops, one_shop, unlabelled
	Waiting int       // calls in line
	Most    int       // of them at a time, so far
	GaveUp  int       // calls that ended without a success meanwhile
	Release time.Time // when all of them have started, if the next probe succeeds; zero: unknown
}

// outage describes the outage of a gate; nil: there is none.
func (b *board) outage(g *gate) *Outage {
	if !g.relief {
		return nil
	}
	o := &Outage{Since: g.outage.Since, Reach: g.outage.Reach, Waiting: g.waiting, Most: max(g.outage.Most, g.waiting), GaveUp: g.outage.GaveUp}
	if g.pace.mean > 0 && g.waiting > 0 {
		o.Release = b.turnAfter(g, g.waiting-1, b.expectedLimit(g))
	}
	return o
}
