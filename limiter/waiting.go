package limiter

import (
	"math"
	"time"
)

// ticket makes a claim's ticket; it stands nowhere yet.
func (b *board) ticket(c *Claim, g *gate) *Ticket {
	b.seq++
	t := &Ticket{claim: *c, gate: g, seq: b.seq, ready: make(chan struct{})}
	t.claim.Shop, t.claim.TaskType = b.name(c.Shop), b.name(c.TaskType)
	b.prepare(t)
	t.alarm = alarm{seq: t.seq, owner: t}
	return t
}

// prepare fills what follows from the claim.
func (b *board) prepare(t *Ticket) {
	c := &t.claim
	t.start = b.now
	t.turn = c.Priority - min(max(c.Retries, 0), maxPromotion)
	if c.Arrived.IsZero() {
		c.Arrived = b.now
	}
	c.MaxWait = min(c.MaxWait, b.config.MaxWait)
	if c.NotBefore.After(b.now) {
		t.start, t.cause = c.NotBefore, c.Cause
	}
	if c.Retry {
		t.sources = b.sources(c)
		if until := b.pauses.until(c.Host, c.Shop); until.After(t.start) {
			t.start, t.cause = until, causePause
		}
	}
}

// admit gives a new ticket its stand: planned, in line, or refused at once.
func (b *board) admit(t *Ticket) {
	if f := b.foresee(t); f.refused != "" {
		b.refuse(t, f.refused)
	} else if t.start.After(b.now) {
		b.plan(t)
	} else {
		b.join(t)
	}
}

// forecast is what will become of a claim as things stand.
type forecast struct {
	at        time.Time // when it could start; zero: never or unknown
	refused   string
	dimension string
}

// foresee looks ahead for a ticket that stands nowhere yet.
func (b *board) foresee(t *Ticket) forecast {
	start := t.start
	if t.late(start) {
		return forecast{start, t.tooLate(), ""}
	}
	at, k := start, (*bucket)(nil)
	if t.claim.Retry {
		at, k = b.tokensAt(t, start, reckoning{planned: (*bucket).plannedBefore})
		if at.IsZero() || t.late(at) {
			at, k = b.tokensAt(t, start, reckoning{planned: (*bucket).plannedAhead})
		}
	}
	ok, probe := t.gate.breaker.Allow(start)
	switch {
	case at.IsZero(), ok && t.late(at):
		return forecast{at, RefusedTokens, k.dimension.String()}
	case ok:
		return forecast{at: at}
	case probe.IsZero(): // a probe is out
		return forecast{at: start}
	case t.claim.FailOpen || t.late(probe) || probe.Sub(start) > t.patience():
		return forecast{probe, RefusedBreaker, ""}
	}
	return forecast{at: probe}
}

// tooLate names the wait that does not fit.
func (t *Ticket) tooLate() string {
	if t.cause == causePause || t.cause == causeRetryAfter {
		return RefusedPause
	}
	return RefusedDeadline
}

// plan has a ticket wait for its start.
func (b *board) plan(t *Ticket) {
	t.stage = planned
	t.gate.planned++
	b.planned[t.cause]++
	for _, k := range t.sources {
		if k != nil {
			k.planned.insert(t)
		}
	}
	b.agenda.set(&t.alarm, t.start)
}

func (b *board) unplan(t *Ticket) {
	t.stage = outside
	t.gate.planned--
	if b.planned[t.cause]--; b.planned[t.cause] == 0 {
		delete(b.planned, t.cause)
	}
	for _, k := range t.sources {
		if k != nil {
			k.planned.remove(t)
		}
	}
	b.agenda.set(&t.alarm, time.Time{})
}

// join puts a ticket in line at its gate; it is served before the lock is given up.
func (b *board) join(t *Ticket) {
	g := t.gate
	g.measure(b.blocker(g), b.now)
	t.stage, t.joined, t.mark = inLine, b.now, g.clock(b.now)
	t.limit = t.mark + t.patience()
	t.lane, t.aged = t.claim.lane(), b.ages(t) <= t.mark
	g.waiting++
	b.inlane(t)
	if !t.claim.Deadline.IsZero() {
		g.deadlines.insert(t)
	}
	g.patience.insert(t)
	if t.claim.FailOpen {
		g.failOpen[t] = true
	}
	b.unjudged = append(b.unjudged, t)
	b.touch(g)
}

// lane is where a claim stands as it comes.
func (c *Claim) lane() int {
	if c.Retry || c.Late {
		return laneBacklog
	}
	return laneFresh
}

// inlane gives a ticket its place in its lane, and before the tokens it needs.
func (b *board) inlane(t *Ticket) {
	g := t.gate
	g.lanes[t.lane].insert(t)
	if t.lane == laneFresh {
		g.newcomers.insert(t)
	}
	if !t.aged {
		g.youth.insert(t)
	}
	for _, k := range t.sources {
		if k == nil {
			continue
		}
		q := k.lines[g]
		if q == nil {
			q = &queue{newLine(earlier)}
			k.lines[g] = q
		}
		q.insert(t)
	}
}

// unlane takes a ticket from where inlane put it.
func (b *board) unlane(t *Ticket) {
	g := t.gate
	g.lanes[t.lane].remove(t)
	if t.lane == laneFresh {
		g.newcomers.remove(t)
	}
	if !t.aged {
		g.youth.remove(t)
	}
	for _, k := range t.sources {
		if k != nil {
			b.unqueue(k, g, t)
		}
	}
}

func (b *board) unline(t *Ticket) {
	g := t.gate
	t.stage = outside
	g.waiting--
	b.unlane(t)
	if !t.claim.Deadline.IsZero() {
		g.deadlines.remove(t)
	}
	g.patience.remove(t)
	delete(g.failOpen, t)
	t.atGate += g.clock(b.now) - t.mark
	b.touch(g)
}

// unqueue takes a ticket out of a bucket's line. A bucket for which nobody
// waits has nothing to wake up for.
func (b *board) unqueue(k *bucket, g *gate, t *Ticket) {
	q := k.lines[g]
	q.remove(t)
	if q.size == 0 {
		delete(k.lines, g)
	}
	if len(k.lines) == 0 {
		k.wanted = false
		b.agenda.set(&k.alarm, time.Time{})
	}
}

// expel ends a ticket for a reason of the caller's; false: it was over.
func (b *board) expel(t *Ticket, reason string) bool {
	if !t.waits() {
		return false
	}
	b.refuse(t, reason)
	return true
}

// imagine is a ticket that stands behind everybody of its turn and age.
func (b *board) imagine(c *Claim) *Ticket {
	t := &Ticket{claim: *c, gate: b.gate(c.Host), seq: math.MaxUint64}
	b.prepare(t)
	return t
}
