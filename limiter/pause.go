package limiter

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Causes of the wait until a call's start.
const (
	causeRetryAfter = "retry_after"
	causePause      = "pause"
)

// pauses are the hosts that told a shop when to come back.
type pauses struct {
	entries *simplelru.LRU[pauseKey, time.Time]
}

type pauseKey struct{ host, shop string }

func newPauses() pauses {
	entries, err := simplelru.NewLRU[pauseKey, time.Time](maxLabels, nil)
	if err != nil {
		panic("bug: " + err.Error()) // only a size below 1 fails
	}
	return pauses{entries}
}

// until is the end of a shop's pause at a host; the past or zero: none.
func (p *pauses) until(host, shop string) time.Time {
	if shop == "" || p.entries.Len() == 0 {
		return time.Time{}
	}
	at, _ := p.entries.Get(pauseKey{host, shop})
	return at
}

// pause holds the retries of a shop at a host back, those that already wait as well.
func (b *board) pause(host, shop string, until time.Time) {
	key := pauseKey{host, shop}
	if shop == "" || !until.After(b.now) || !until.After(b.pauses.until(host, shop)) {
		return
	}
	b.pauses.entries.Add(key, until)
	g, ok := b.gates.look(host)
	if !ok {
		return
	}
	for _, t := range b.retriesOf(g, shop) {
		b.postpone(t, until)
	}
}

// retriesOf are the retries of a shop that wait at a gate or for their start.
func (b *board) retriesOf(g *gate, shop string) (all []*Ticket) {
	for p := range g.lanes[laneBacklog].groups() {
		if p.shop.shop == shop && p.cell != g.lanes[laneBacklog].plain {
			all = append(all, p.line.members()...)
		}
	}
	if k, ok := b.labelled[dimShop].look(shop); ok {
		for _, t := range k.planned.members() {
			if t.gate == g {
				all = append(all, t)
			}
		}
	}
	return all
}

// postpone moves a ticket's start back.
func (b *board) postpone(t *Ticket, until time.Time) {
	if !until.After(t.start) {
		return
	}
	b.withdraw(t)
	t.start, t.cause = until, causePause
	if t.late(until) {
		b.refuse(t, RefusedPause)
		return
	}
	b.plan(t)
}
