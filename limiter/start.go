package limiter

import "retryproxy/breaker"

// ask starts a claim at once, or makes its ticket.
func (b *board) ask(c *Claim) (Answer, *Ticket) {
	g := b.gate(c.Host)
	var from sources
	if c.Retry {
		from = b.sources(c)
	} else {
		b.count(c)
	}
	if !c.NotBefore.After(b.now) && !b.paused(c) && b.startable(g, c, from) {
		if g.waiting > 0 || g.breaker.State(b.now) != breaker.Closed {
			b.touch(g)
		}
		return Answer{Grant: b.start(g, c, from)}, nil
	}
	t := b.ticket(c, g)
	b.admit(t)
	b.settle()
	if t.waits() {
		return Answer{}, t
	}
	return t.answer, nil
}

// startable says whether a claim that has just come could start. Nobody waits
// who could, so it takes nobody's turn.
func (b *board) startable(g *gate, c *Claim, from sources) bool {
	if b.blocker(g) != "" || (!c.Deadline.IsZero() && b.now.After(c.Deadline)) {
		return false
	}
	return !c.Retry || b.hasAll(&from)
}

// hasAll says whether there is a token in every bucket that applies.
func (b *board) hasAll(from *sources) bool {
	for _, k := range from {
		if !b.has(k) {
			return false
		}
	}
	return true
}

// paused says that the host told the shop to come back later.
func (b *board) paused(c *Claim) bool {
	return c.Retry && b.pauses.until(c.Host, c.Shop).After(b.now)
}

// grant starts a call that is in line.
func (b *board) grant(t *Ticket) {
	g, cause := t.gate, t.gate.stop
	switch {
	case t.joined.Equal(b.now):
		cause = t.cause
	case cause == "":
		cause = causeTokens
	}
	answer := Answer{Cause: cause, AtGate: t.atGate + g.clock(b.now) - t.mark}
	b.unline(t)
	answer.Grant = b.start(g, &t.claim, t.sources)
	b.end(t, answer)
}

// start takes what an attempt needs: slot, breaker's permission, tokens.
func (b *board) start(g *gate, c *Claim, from sources) Grant {
	p := place{}
	var event *breaker.Event
	if c.Tunnel {
		p.pass, event = g.breaker.Dial(b.now)
	} else {
		p.pass, event = g.breaker.Start(c.ProbeTimeout, b.now)
	}
	b.note(event)
	if c.Retry {
		p.sources = from
		for _, k := range from {
			b.take(k)
		}
	}
	b.seq++
	p.seq = b.seq
	return g.enter(p)
}

// report takes the first result of an attempt.
func (b *board) report(g *gate, p *place, r breaker.Result) {
	if p.reported {
		return
	}
	p.reported = true
	b.note(g.breaker.Report(p.pass, r, b.now))
	if g.breaker.State(b.now) != breaker.Closed || len(b.events) > 0 {
		b.touch(g)
	}
}

// release frees a slot.
func (b *board) release(g Grant, p *place) {
	b.report(g.gate, p, breaker.Excluded)
	g.gate.exit(g)
	if g.gate.waiting > 0 {
		b.touch(g.gate)
	}
}
