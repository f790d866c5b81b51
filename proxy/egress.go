package proxy

import (
	"time"

	"retryproxy/attempt"
	"retryproxy/breaker"
	"retryproxy/classify"
	"retryproxy/egress"
	"retryproxy/limiter"
)

// chooseExits settles by which address the call leaves, for every place that it
// may go to.
func (x *exchange) chooseExits() *refusal {
	if x.set.Egress == nil {
		return nil
	}
	for i := range x.hops {
		err := x.chooseExit(&x.hops[i])
		if err != nil && x.opens {
			x.noWay = x.deniedBy(err) // of the tunnel itself, which goes nowhere
			return nil
		}
		if err != nil {
			return x.deniedBy(err)
		}
	}
	return nil
}

// chooseExit does so for one place.
func (x *exchange) chooseExit(h *hop) error {
	if x.set.Egress == nil {
		return nil
	}
	way, err := x.set.Egress.Way(x.labels.Shop, x.labels.TaskType, h.host)
	if err != nil {
		return err
	}
	h.exits = way.Exits
	h.takeExit(0)
	return nil
}

// keepExit takes the exit by which a host saw this key before: it must not see
// it come from another address.
func (x *exchange) keepExit() {
	for i := len(x.rec.History) - 1; i >= 0; i-- {
		a := &x.rec.History[i]
		if a.Verdict.Basis == classify.BasisNotSent {
			continue
		}
		for j := range x.hops {
			x.hops[j].takeNamed(a.Egress)
		}
		return
	}
}

// takeNamed makes the exit of that name the one in use, where there is one.
func (h *hop) takeNamed(name string) {
	for i, e := range h.exits {
		if e.Name() == name {
			h.takeExit(i)
		}
	}
}

// takeExit makes the exit at index i the one in use.
func (h *hop) takeExit(i int) {
	if len(h.exits) > 0 {
		h.exit = i
		h.target.Exit = h.exits[i]
	}
}

// out is the exit in use; nil: none.
func (h *hop) out() *egress.Exit {
	if len(h.exits) == 0 {
		return nil
	}
	return h.exits[h.exit]
}

// exitName names the exit in use; it holds no password.
func (h *hop) exitName() string {
	if out := h.out(); out != nil {
		return out.Name()
	}
	return ""
}

// planExit holds a claim back until its exit is no longer cut off; false: that
// does not fit, and the turn says so.
func (x *exchange) planExit(c *limiter.Claim, now time.Time) bool {
	h := &x.hops[x.hop]
	x.exitClosed = nil
	if h.out() == nil {
		return true
	}
	ok, at := x.p.Exits.Allow(h.exitName(), h.host, now)
	for i := 1; !ok && i < len(h.exits); i++ {
		open, _ := x.p.Exits.Allow(h.exits[(h.exit+i)%len(h.exits)].Name(), h.host, now)
		if open && x.turnExit(i, "breaker_open") {
			return true
		}
	}
	if ok || !at.After(c.NotBefore) {
		return true
	}
	from := now
	if c.NotBefore.After(now) {
		from = c.NotBefore
	}
	if c.FailOpen || !at.Before(c.Deadline) || at.Sub(from) > c.MaxWait {
		x.turn = limiter.Answer{Refused: limiter.RefusedBreaker, At: at, Cause: causeEgress}
		return false
	}
	x.atGate += at.Sub(from) // a gate of its own kind: slots.max_wait bounds both
	c.MaxWait -= at.Sub(from)
	c.NotBefore, c.Cause = at, causeEgress
	x.exitAt, x.exitClosed = at, x.p.Exits.Closed(h.exitName(), h.host)
	return true
}

// leaveForExit gives a place up that was taken for the date of an exit which has
// recovered; true: the answer came first.
func (x *exchange) leaveForExit(ticket *limiter.Ticket) (answered bool) {
	now := time.Now()
	x.exitClosed = nil
	x.atGate -= max(x.exitAt.Sub(now), 0)
	answer := x.p.Limiter.Leave(ticket, now)
	if answer.Refused == limiter.RefusedLeft {
		return false
	}
	x.turn = answer
	return true
}

// enterExit takes the permission of the exit for the attempt that has its turn;
// false: the turn is given back, and the call has to wait on.
func (x *exchange) enterExit(now time.Time) bool {
	h := &x.hops[x.hop]
	if h.out() == nil {
		return true
	}
	pass, ok, _, events := x.p.Exits.Enter(h.exitName(), h.host, x.policy.ConnectTimeout+x.policy.PerTryTimeout, now)
	x.exitEvents(events)
	if !ok {
		x.p.Limiter.Cancel(x.turn.Grant, now)
		return false
	}
	x.permit = pass
	return true
}

// giveBack returns the permissions of an attempt that is not made.
func (x *exchange) giveBack(now time.Time) {
	x.p.Limiter.Cancel(x.turn.Grant, now)
	x.tellExit(breaker.ExitNothing, now)
}

// reportExit tells the exit's breakers what the attempt says about it.
func (x *exchange) reportExit(t *tried, now time.Time) { x.tellExit(exitResult(t), now) }

func (x *exchange) tellExit(r breaker.ExitResult, now time.Time) {
	h := &x.hops[x.hop]
	if h.out() != nil {
		x.exitEvents(x.p.Exits.Report(h.exitName(), h.host, x.permit, r, now))
	}
}

func (x *exchange) exitEvents(events []*breaker.Event) {
	for _, e := range events {
		x.breakerEvent(e)
	}
}

// exitResult says whose doing it was: whatever happened behind a way that stood,
// the exit is alive; one that answers but cannot reach the host may be right.
func exitResult(t *tried) breaker.ExitResult {
	o := &t.Outcome
	switch {
	case !o.Fault.Egress() && o.Phase >= classify.PhaseTLS, o.Fault == classify.FaultEgressDenied:
		return breaker.ExitAlive
	case !o.Fault.Egress(), o.Phase == classify.PhaseNone:
		return breaker.ExitNothing
	case o.Fault == classify.FaultEgressAuth, o.Fault == classify.FaultEgressUnreachable:
		return breaker.ExitIll
	case t.Asked, o.Phase >= classify.PhaseTLS:
		return breaker.ExitNoWay
	}
	return breaker.ExitIll
}

// turnExit moves on by so many exits of a pool that allows it (on_failure: next), as
// long as no upstream can have seen the call; false: it stays.
func (x *exchange) turnExit(by int, reason string) bool {
	h := &x.hops[x.hop]
	if len(h.exits) < 2 || !unsent(x.past) || !unsent(x.rec.History) {
		return false
	}
	from := h.exitName()
	h.takeExit((h.exit + by) % len(h.exits))
	x.p.Log.Warn("egress moved", "call_id", x.id, "shop", x.labels.Shop, "from", from, "to", h.exitName(), "reason", reason)
	if hook := x.p.Hooks.Moved; hook != nil {
		hook(h.exits[0].ID())
	}
	return true
}

// unsent says that no byte of a call has left us: a refusal is an upstream's, too,
// and it knows by which address it was asked.
func unsent(h attempt.History) bool {
	for i := range h {
		if h[i].Verdict.Basis != classify.BasisNotSent {
			return false
		}
	}
	return true
}
