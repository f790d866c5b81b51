package alert

import (
	"slices"
	"time"
)

// State is what a message says.
type State string

// States of messages.
const (
	Firing    State = "firing"    // it began
	Still     State = "still"     // it goes on
	Recovered State = "recovered" // it is over
	Alive     State = "alive"     // a heartbeat
	Test      State = "test"
)

const (
	mostShops   = 3    // named in a message
	mostMembers = 1000 // breakers of one group
	leastHold   = time.Minute
)

// group is what a rule knows of one group.
type group struct {
	labels Labels
	window window
	usual  usual
	open   map[Labels]Standing // breakers that are cut off
	bad    bool                // the store fails, or what is measured is over its bound

	first  time.Time // the first event since the window was empty
	began  time.Time // of what goes on; zero: nothing does
	ended  time.Time // firing: since when it does not go on any more
	last   time.Time // the newest event
	total  int       // events since began
	fresh  int       // events since the newest message
	shops  []string  // of them, at most mostShops
	more   bool      // there were others
	callID string    // of the newest event
	detail string
	where  Labels // of the newest event

	firing    bool
	sent      time.Time     // the newest message about what goes on
	recovered time.Time     // the newest recovery
	hold      time.Duration // how long it must be over: longer for what keeps coming back
}

// note takes in one event.
func (g *group) note(e *event, now time.Time) {
	g.last, g.callID, g.detail, g.where = now, e.callID, e.detail, e.labels
	g.fresh++
	g.total++
	shop := e.labels.Shop
	switch {
	case shop == "" || slices.Contains(g.shops, shop):
	case len(g.shops) < mostShops:
		g.shops = append(g.shops, shop)
	default:
		g.more = true
	}
}

// step moves the group on: active says whether what the rule is about goes on
// now. It returns the message that is due; empty: none.
func (g *group) step(r *Rule, active bool, now time.Time) State {
	if !active {
		return g.over(r, now)
	}
	g.ended = time.Time{}
	if g.began.IsZero() {
		g.began = now
	}
	switch {
	case !g.firing && now.Sub(g.began) >= r.For:
		g.firing, g.sent, g.hold = true, now, g.holdFor(r, now)
		return Firing
	case g.firing && g.fresh > 0 && now.Sub(g.sent) >= r.Quiet:
		g.sent = now
		return Still
	}
	return ""
}

// holdFor doubles for what comes back within its quiet time: something that
// flaps is told less and less often, and the last word is always true.
func (g *group) holdFor(r *Rule, now time.Time) time.Duration {
	if g.recovered.IsZero() || now.Sub(g.recovered) >= r.Quiet {
		return r.KeepFiringFor
	}
	return max(r.KeepFiringFor, min(2*max(g.hold, leastHold), r.Quiet))
}

// over is a step while nothing goes on.
func (g *group) over(r *Rule, now time.Time) State {
	if !g.firing {
		g.reset()
		if !r.counts() { // there the window says what is past
			g.forget()
		}
		return ""
	}
	if g.ended.IsZero() {
		g.ended = now
	}
	if now.Sub(g.ended) < g.hold {
		return ""
	}
	g.firing, g.recovered = false, now
	return Recovered
}

// told forgets what a message has said.
func (g *group) told(s State) {
	g.forget()
	if s == Recovered {
		g.reset()
	}
}

// forget forgets the events since the newest message.
func (g *group) forget() { g.fresh, g.shops, g.more = 0, nil, false }

// reset forgets what was going on.
func (g *group) reset() { g.began, g.ended, g.total = time.Time{}, time.Time{}, 0 }

// idle says that nothing is lost when the group is forgotten.
func (g *group) idle(r *Rule, now time.Time) bool {
	return !g.firing && !g.bad && len(g.open) == 0 && now.Sub(g.last) >= max(r.Within, r.Quiet) && g.usual.count == 0 && g.usual.mean < 0.01
}
