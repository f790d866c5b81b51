package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// group is the bots of one entry at work.
type group struct {
	*Bots
	index int
	run   *run
	dice  *rand.Rand // of arrivals: the same calls in every run of a scenario
	made  int        // calls
}

// errand is one call as its bot sees it.
type errand struct {
	group    *group
	number   int // of the group's calls
	shop     string
	policy   string // by which the call lives; empty: a peer has none
	began    time.Duration
	patience *event
	settled  bool
	hungUp   func() // the bot has left; set by whoever works on the call
	next     func() // closed loop: what the bot does then
}

// begin plans the calls of a group.
func (g *group) begin() {
	if g.Arrivals == arriveRandom {
		g.atRandom(g.From)
		return
	}
	for i := range g.Bots.Bots {
		at := g.From
		if g.Arrivals == arriveEven {
			at += g.step(i)
		}
		g.bot(i, at)
	}
}

// step is how long after the first one bot i begins.
func (g *group) step(i int) time.Duration {
	all := g.Every
	if all == 0 {
		all = g.To - g.From
	}
	return time.Duration(float64(all) * float64(i) / float64(g.Bots.Bots))
}

// bot plans the next call of one bot, and with it all that follow.
func (g *group) bot(i int, at time.Duration) {
	if at >= g.To {
		return
	}
	g.run.clock.when(at, func() {
		var next func()
		if g.Every > 0 && g.Loop == loopClosed {
			next = func() { g.bot(i, g.run.clock.at+g.Every) }
		} else if g.Every > 0 {
			g.bot(i, at+g.Every)
		}
		g.call(i, next)
	})
}

// atRandom plans calls at random distances, each of any bot.
func (g *group) atRandom(at time.Duration) {
	at += time.Duration(g.dice.ExpFloat64() * float64(g.Every) / float64(g.Bots.Bots))
	if at >= g.To {
		return
	}
	g.run.clock.when(at, func() {
		g.atRandom(at)
		g.call(g.dice.IntN(g.Bots.Bots), nil)
	})
}

// call begins one call.
func (g *group) call(bot int, next func()) {
	g.made++
	e := &errand{group: g, number: g.made, shop: g.Shop, began: g.run.clock.at, next: next}
	if g.Shops > 0 {
		e.shop = fmt.Sprintf("s%d", bot%g.Shops+1)
	}
	g.run.tally.began(e)
	e.patience = g.run.clock.in(g.Patience, e.hangUp)
	g.run.caller.begin(e)
}

// answer gives the bot its answer, unless it has hung up. spent is the time that
// the platform took for it.
func (e *errand) answer(ok bool, spent time.Duration) {
	if e.settled {
		return
	}
	e.patience.off()
	e.settle(ok, spent)
}

// hangUp ends the patience of the bot.
func (e *errand) hangUp() {
	e.settle(false, 0)
	if e.hungUp != nil {
		e.hungUp()
	}
}

func (e *errand) settle(ok bool, spent time.Duration) {
	e.settled = true
	e.group.run.tally.settled(e, e.group.run.clock.at, ok, spent)
	if e.next != nil {
		e.next()
	}
}
