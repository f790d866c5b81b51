package limiter

import (
	"strings"
	"time"

	"retryproxy/breaker"
)

// Bounds of what is remembered. Entries in use stay beyond them.
const (
	maxHosts  = 10_000
	maxLabels = 10_000 // of each dimension, and of pauses
)

// board is everything the limiter knows, without the lock. Each public call
// moves its clock with begin, changes something, and ends with settle, after
// which nobody waits who could start.
type board struct {
	config Config
	now    time.Time // never falls
	seq    uint64    // the last number given to a ticket, slot or alarm

	gates    book[*gate]
	global   *bucket
	labelled [dimensions]book[*bucket] // none for dimGlobal
	pauses   pauses
	agenda   agenda
	planned  map[string]int // calls that wait for their start, by cause
	names    map[string]string

	touched  []*gate         // where somebody may have become able to start
	unjudged []*Ticket       // that got in line since the last settle, or come before the tokens again
	events   []breaker.Event // not yet reported
}

func newBoard(config Config) *board {
	b := &board{config: config, agenda: newAgenda(), pauses: newPauses(), planned: map[string]int{}, names: map[string]string{}}
	b.global = newBucket(dimGlobal, "", config.Buckets.Global, 0)
	b.gates = newBook(maxHosts, b.gateWorth)
	for d := dimTaskType; d < dimensions; d++ {
		b.labelled[d] = newBook(maxLabels, b.bucketWorth)
	}
	return b
}

// name is our own copy of a label: whoever remembers the client's would keep the whole
// head of its request.
func (b *board) name(label string) string {
	if label == "" {
		return ""
	}
	if own, ok := b.names[label]; ok {
		return own
	}
	if len(b.names) >= 2*maxLabels {
		clear(b.names)
	}
	own := strings.Clone(label)
	b.names[own] = own
	return own
}

// begin sets the clock and does what is due.
func (b *board) begin(now time.Time) {
	if now.After(b.now) {
		b.now = now
	}
	if b.ring() {
		b.settle()
	}
}

// settle starts everybody who can and turns away everybody who must not wait,
// until nothing is due.
func (b *board) settle() {
	for b.serve(); b.ring(); b.serve() {
	}
}

// ring wakes the owners of all alarms that are due.
func (b *board) ring() (rang bool) {
	for a := b.agenda.due(b.now); a != nil; a = b.agenda.due(b.now) {
		a.owner.wake(b)
		rang = true
	}
	return rang
}

// touch has a gate served before the lock is given up.
func (b *board) touch(g *gate) {
	if !g.touched {
		g.touched = true
		b.touched = append(b.touched, g)
	}
}

// serve starts calls in order of their turn at all touched gates.
func (b *board) serve() {
	for _, g := range b.touched {
		b.promote(g)
	}
	for t := b.next(); t != nil; t = b.next() {
		if t.late(b.now) {
			b.refuse(t, RefusedDeadline)
		} else {
			b.grant(t)
		}
	}
	for _, g := range b.touched {
		if g.stop == causeBreaker && g.open(b.now) {
			b.rejudge(g)
		}
	}
	for _, t := range b.unjudged {
		b.judge(t)
	}
	for _, g := range b.touched {
		b.tidy(g)
		g.touched = false
	}
	clear(b.unjudged)
	clear(b.touched)
	b.unjudged, b.touched = b.unjudged[:0], b.touched[:0]
}

// next is the call with the earliest turn that can start at a touched gate.
func (b *board) next() (best *Ticket) {
	for _, g := range b.touched {
		if b.blocker(g) != "" {
			continue
		}
		if t := b.nextAt(g); t != nil && (best == nil || earlier(t, best)) {
			best = t
		}
	}
	return best
}

// nextAt is the call that starts next at a gate: whose turn it is.
func (b *board) nextAt(g *gate) *Ticket {
	if !g.closed(b.now) {
		return b.prober(g)
	}
	fresh, late := g.lanes[laneFresh].first(b), g.lanes[laneBacklog].first(b)
	if fresh == nil || late != nil && b.choose(g) == laneBacklog {
		return late
	}
	return fresh
}

// suspects says that it was the shop's probe that failed last.
func (g *gate) suspects(t *Ticket) bool { return g.failed != "" && t.claim.Shop == g.failed }

// prober is the fittest probe of all that could start at a gate. Nobody probes who is
// short of time while another has more: those who wait longest are about to run out of it,
// and probes that end with their calls would keep a host cut off that has long recovered.
// Nor does the shop whose probe failed last, since its failures may be its own, nor a call
// that has tried more often than another: an outage must not use up one call's attempts.
// Among the others the turn decides.
func (b *board) prober(g *gate) (best *Ticket) {
	for i := range g.lanes {
		g.lanes[i].startable(b, func(p *group) { best = b.fittest(best, &p.line) })
	}
	return best
}

// fittest is best, or whoever in a line is a fitter probe.
func (b *board) fittest(best *Ticket, l *line[*Ticket]) *Ticket {
	for t := range l.all() {
		if best == nil || fitter(t, best, b.now) {
			best = t
		}
		if !t.short(b.now) && t.claim.Retries == 0 {
			break // the others have later turns, and none has tried less
		}
	}
	return best
}

// tidy books what stops a gate, turns away who must not wait for that, and sets
// the gate's alarm.
func (b *board) tidy(g *gate) {
	g.measure(b.blocker(g), b.now)
	if g.stop == causeBreaker {
		for t := range g.failOpen {
			b.refuse(t, RefusedBreaker)
		}
	}
	b.dismiss(g)
	g.outage.Most = max(g.outage.Most, g.waiting)
	if g.closed(b.now) {
		b.relieve(g)
	}
	b.agenda.set(&g.alarm, b.wakes(g))
}

// dismiss turns away whose deadline or patience ends before they can start.
func (b *board) dismiss(g *gate) {
	until := b.now
	if ok, at := g.breaker.Allow(b.now); !ok && !at.IsZero() {
		until = at.Add(-1) // who can just wait for the probe may
	}
	for t, ok := g.deadlines.first(); ok && !t.claim.Deadline.After(until); t, ok = g.deadlines.first() {
		b.refuse(t, b.lack(t))
	}
	limit := g.clock(b.now) + until.Sub(b.now)
	for t, ok := g.patience.first(); ok && g.stop != "" && t.limit <= limit; t, ok = g.patience.first() {
		b.refuse(t, b.lack(t))
	}
}

// lack names what a call in line is short of.
func (b *board) lack(t *Ticket) string {
	switch b.blocker(t.gate) {
	case causeBreaker:
		return RefusedBreaker
	case causeGate:
		return RefusedSlot
	}
	return RefusedTokens
}

// judge looks at a call that has just got in line or come before the tokens,
// and could not start: is there room, and will its turn and its tokens come in time?
func (b *board) judge(t *Ticket) {
	switch g := t.gate; {
	case t.stage != inLine:
	case g.waiting > b.config.MaxWaiting && t.joined.Equal(b.now):
		b.refuse(t, RefusedSlot)
	case g.stop != "" && b.hopeless(t):
		b.refuse(t, b.lack(t))
	case t.claim.Retry && g.open(b.now):
		b.judgeTokens(t)
		for _, k := range t.sources {
			b.judgeLast(k)
		}
	}
}

// judgeTokens turns a retry in line away whose tokens come too late.
func (b *board) judgeTokens(t *Ticket) (away bool) {
	late := func(inTurn bool) bool {
		at, _ := b.tokensAt(t, b.now, reckoning{planned: (*bucket).plannedBefore, inTurn: inTurn})
		return at.IsZero() || t.late(at)
	}
	if away = late(false) && (len(t.gate.lanes[t.lane].shops) == 1 || late(true)); away {
		b.refuse(t, RefusedTokens)
	}
	return away
}

// judgeLast looks at those whom somebody with an earlier turn has pushed back:
// the last of each line first, so that one is enough when all have time.
func (b *board) judgeLast(k *bucket) {
	if k == nil || k.limit.Off {
		return
	}
	for g, q := range k.lines {
		for t, ok := q.last(); ok && g.open(b.now) && b.judgeTokens(t); t, ok = q.last() {
		}
	}
}

// reckoning says whom a forecast of tokens counts as served before.
type reckoning struct {
	planned func(*bucket, *Ticket) int // of those that are not in line yet
	inTurn  bool                       // looks at whose turn it is, which takes longer; t must be in line
}

// tokensAt is when a retry that may start at start has a token from every
// bucket, and the bucket that is last; zero: one never has.
func (b *board) tokensAt(t *Ticket, start time.Time, by reckoning) (at time.Time, last *bucket) {
	at = start
	for _, k := range t.sources {
		if k == nil || k.limit.Off {
			continue
		}
		b.refill(k)
		there := b.date(k, b.ahead(k, t, by.inTurn)+by.planned(k, t)+1, b.quietUntil(k, start))
		if there.IsZero() {
			return there, k
		}
		if k.alarm.at.After(there) {
			there = k.alarm.at // dates are rounded up
		}
		if there.After(at) {
			at, last = there, k
		}
	}
	return at, last
}

// refuse ends a call with a reason and the best date known.
func (b *board) refuse(t *Ticket, reason string) {
	answer := Answer{Refused: reason, Cause: t.cause, AtGate: t.atGate}
	switch reason {
	case RefusedBreaker:
		answer.At = t.gate.reopens(b.config.Breaker.Open, b.now)
	case RefusedTokens:
		at, k := b.tokensAt(t, b.later(t.start), reckoning{planned: (*bucket).plannedAhead, inTurn: t.stage == inLine})
		if answer.At = at; k != nil {
			answer.Dimension = k.dimension.String()
		}
	case RefusedPause, RefusedDeadline:
		answer.At = t.start
	}
	if t.stage == inLine {
		if at := b.expects(t); at.After(answer.At) && reason != RefusedTokens {
			answer.At = at
		}
		answer.AtGate += t.gate.clock(b.now) - t.mark
		answer.Cause = b.waitsAt(t.gate)
	}
	b.withdraw(t)
	b.end(t, answer)
}

// waitsAt is what those in line at a gate wait for at the moment.
func (b *board) waitsAt(g *gate) string {
	if stop := b.blocker(g); stop != "" {
		return stop
	}
	return causeTokens
}

// end closes a ticket that stands nowhere any more.
func (b *board) end(t *Ticket, answer Answer) {
	t.stage, t.answer = ended, answer
	close(t.ready)
}

// withdraw takes a ticket from where it stands. Those behind it move up.
func (b *board) withdraw(t *Ticket) {
	switch t.stage {
	case planned:
		b.unplan(t)
	case inLine:
		b.unline(t)
	}
}

func (b *board) blocker(g *gate) string { return g.blocker(b.capacity(g), b.now) }

func (b *board) later(at time.Time) time.Time {
	if at.After(b.now) {
		return at
	}
	return b.now
}

// relieve ends an outage at a gate whose breaker was closed until now: the ramp is over,
// and nobody waits any more of those whom it kept waiting. Retries for which there is a
// slot but no token are not the outage's, and nobody waits for longer than max_wait: at
// a host that is always busy, calls that failed since would make it last for ever.
func (b *board) relieve(g *gate) {
	full := g.ramp.ends(b.config.Ramp)
	if !g.relief || b.now.Before(full) {
		return
	}
	if g.lanes[laneBacklog].size > 0 && g.stop != "" && b.now.Before(full.Add(b.config.MaxWait)) {
		return
	}
	if g.relief = false; g.outage.Most > 0 {
		b.events = append(b.events, breaker.Event{
			Scope: "host", Host: g.host, Reason: breaker.ReasonWorkedOff, At: b.now,
			Outage: g.outage.Since, Waited: g.outage.Most, GaveUp: g.outage.GaveUp,
		})
	}
}

// note keeps a change of state until it can be reported.
func (b *board) note(g *gate, e *breaker.Event) {
	if e == nil {
		return
	}
	switch {
	case e.Scope != "host":
	case e.To == breaker.Closed:
		g.ramp = ramp{b.now}
		e.Waited, e.GaveUp = max(g.outage.Most, g.waiting), g.outage.GaveUp
	case e.From == breaker.Closed:
		if b.relieve(g); !g.relief {
			g.outage, g.limitBefore = Outage{Since: b.now}, b.limit(g)
			g.learnt.begin(b.config.Breaker.Probes, b.config.MaxInFlight)
		}
		if !g.ramp.since.IsZero() && b.now.Before(g.ramp.ends(2*b.config.Ramp)) {
			g.learnt.halve(max(b.config.Breaker.Probes, g.limitBefore/mostHalved), b.config.MaxInFlight)
		}
		g.relief, g.outage.Reach = true, e.Reach.String()
	}
	if e.Scope == "host" && g.relief {
		e.Outage = g.outage.Since // before the last closing, where that did not last
	}
	b.events = append(b.events, *e)
}

// rejudge has every retry in line at a gate looked at for its tokens' date: the
// gate's breaker no longer stands before it.
func (b *board) rejudge(g *gate) {
	if q := b.global.lines[g]; q != nil {
		b.unjudged = append(b.unjudged, q.members()...)
	}
}
