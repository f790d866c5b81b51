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
		if g.waiting > 0 || !g.closed(b.now) {
			b.touch(g)
		}
		return Answer{Grant: b.start(g, c, from, c.lane())}, nil
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
	if g.lanes[laneFresh].size > 0 && g.lanes[laneBacklog].size > 0 {
		b.charge(g, t.lane)
	}
	shop := t.group.shop
	b.unline(t)
	if !t.aged {
		g.lanes[t.lane].served(shop)
	}
	answer.Grant = b.start(g, &t.claim, t.sources, t.lane)
	b.end(t, answer)
}

// start takes what an attempt needs: slot, breaker's permission, tokens.
func (b *board) start(g *gate, c *Claim, from sources, lane int) Grant {
	p := place{lane: lane, shop: b.name(c.Shop), kind: b.name(c.TaskType), began: b.now, load: g.busy + 1}
	if b.config.Adaptive {
		p.early = g.learnt.early(p.kind)
		p.cohort = g.learnt.enrol(p.load, b.limit(g), b.now)
	}
	var event *breaker.Event
	if c.Tunnel {
		p.pass, event = g.breaker.Dial(b.now)
	} else {
		p.pass, event = g.breaker.Start(c.ProbeTimeout, b.now)
	}
	b.note(g, event)
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
	event := g.breaker.Report(p.pass, r, p.shop, b.now)
	if event != nil && event.From == breaker.HalfOpen {
		if g.failed = p.shop; event.To == breaker.Closed {
			g.failed = ""
		}
	}
	b.note(g, event)
	b.learn(g, p, r == breaker.Served)
	if !g.closed(b.now) || len(b.events) > 0 {
		b.touch(g)
	}
}

// learn takes what an attempt says of how much the host can take.
func (b *board) learn(g *gate, p *place, served bool) {
	if served {
		g.pace.add(b.now.Sub(p.began), !g.relief, b.now)
	}
	c := &b.config
	if c.Adaptive && g.learnt.ended(p, served, !g.relief, b.now, c.Breaker.Probes, c.MaxInFlight) {
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
