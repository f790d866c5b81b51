package limiter

import (
	"math"
	"time"
)

// ramp is the way back to full capacity after a breaker closed: from the places of the
// probes to max_in_flight, at an even pace. The zero ramp is over.
type ramp struct{ since time.Time }

// ends is when full capacity is reached.
func (r ramp) ends(over time.Duration) time.Time { return r.since.Add(over) }

// under says that the ramp is not over.
func (r ramp) under(over time.Duration, now time.Time) bool {
	return !r.since.IsZero() && now.Before(r.ends(over))
}

// places is how many slots there are at a time, of from at first and full in the end.
func (r ramp) places(from, full int, over time.Duration, now time.Time) int {
	if !r.under(over, now) || from >= full {
		return full
	}
	return from + int(float64(full-from)*float64(now.Sub(r.since))/float64(over))
}

// reaches is when there are so many slots; full is the most that count.
func (r ramp) reaches(places, from, full int, over time.Duration) time.Time {
	if places >= full {
		return r.ends(over)
	}
	part := float64(over) * float64(places-from) / float64(full-from)
	return r.since.Add(time.Duration(part) + 1) // rounded up
}

// capacity is how many slots a gate has at present. While the breaker is not closed it
// is the breaker that counts the probes.
func (b *board) capacity(g *gate) int {
	c := &b.config
	if !g.closed(b.now) {
		return c.MaxInFlight
	}
	return min(b.limit(g), g.ramp.places(c.Breaker.Probes, c.MaxInFlight, c.Ramp, b.now))
}

// limit is how many slots a gate has at full capacity.
func (b *board) limit(g *gate) int {
	if !b.config.Adaptive {
		return b.config.MaxInFlight
	}
	return g.learnt.limit(b.config.Breaker.Probes, b.config.MaxInFlight)
}

// low says that a gate is below its full capacity, because of an outage.
func (b *board) low(g *gate) bool {
	return !g.closed(b.now) || g.ramp.under(b.config.Ramp, b.now)
}

// grows is when a gate that is full has another slot by itself; zero: not by time.
func (b *board) grows(g *gate) time.Time {
	c := &b.config
	if g.stop != causeGate || !g.ramp.under(c.Ramp, b.now) || g.busy >= b.limit(g) {
		return time.Time{}
	}
	return g.ramp.reaches(g.busy+1, c.Breaker.Probes, c.MaxInFlight, c.Ramp)
}

// backlogPlaces is how many slots the backlog may hold while fresh calls wait, and the
// share of the starts it has then.
func (b *board) backlogPlaces(g *gate) (places int, share float64) {
	share = b.config.RetryShare
	if g.relief {
		share = b.config.BacklogShare
	}
	return max(1, int(share*float64(b.capacity(g)))), share
}

// choose picks the lane that starts next of two in which somebody could: a free slot
// goes to the backlog while it holds less than its places, and as its share of the
// starts comes round, so that neither starves however few slots there are.
func (b *board) choose(g *gate) int {
	places, share := b.backlogPlaces(g)
	if g.held[laneBacklog] < places && g.credit+share >= 1 {
		return laneBacklog
	}
	return laneFresh
}

// charge books a start that both lanes wanted. Probes go by age, so the backlog may start
// more than its share of them: it does not pay that back later.
func (b *board) charge(g *gate, lane int) {
	_, share := b.backlogPlaces(g)
	g.credit += share
	if lane == laneBacklog {
		g.credit--
	}
	g.credit = min(max(g.credit, 0), 1)
}

// pace is how long attempts that succeed hold a slot, in seconds; 0: unknown.
type pace struct {
	mean  float64 // moving average
	usual float64 // the same over five minutes, moved little by what is unusual, and not by outages
	at    time.Time
}

const (
	paceWeight = 1.0 / 16
	paceTime   = 5 * time.Minute
)

// add takes the duration of a success. calm: there is no outage.
func (p *pace) add(took time.Duration, calm bool, now time.Time) {
	x := took.Seconds()
	switch {
	case x <= 0:
		return
	case p.mean == 0:
		p.mean, p.usual, p.at = x, x, now
		return
	}
	p.mean += (x - p.mean) * paceWeight
	if calm {
		weight := min(paceWeight, now.Sub(p.at).Seconds()/paceTime.Seconds())
		p.usual += (min(x, mostUnusual*p.usual) - p.usual) * weight
		p.at = now
	}
}

// serves is how long a gate takes at best to start n calls, from the moment at which
// its capacity is from and rises to full by perSecond slots a second: starts come at
// capacity / pace. 0 while the pace is unknown.
func (p *pace) serves(n, from, full int, perSecond float64) time.Duration {
	if p.mean == 0 || n <= 0 {
		return 0
	}
	work := float64(n) * p.mean // slot seconds
	low, high := float64(from), float64(full)
	spent := 0.0
	if low < high && perSecond > 0 {
		rise := (high - low) / perSecond
		done := (low + high) / 2 * rise
		if work < done { // low·t + perSecond·t²/2 = work
			return seconds(2 * work / (low + math.Sqrt(low*low+2*perSecond*work)))
		}
		work, spent = work-done, rise
	}
	return seconds(spent + work/high)
}

// seconds is a duration, of a century at most.
func seconds(n float64) time.Duration {
	return time.Duration(min(n, never.Seconds()) * float64(time.Second))
}
