package simulate

import (
	"time"

	"retryproxy/breaker"
)

// fast is how soon an answer comes that counts as a quick one.
const fast = time.Second

// bin is how finely starts of retries are counted.
const bin = 100 * time.Millisecond

// tally counts what happens in a run.
type tally struct {
	outage  *Phase // the last one; nil: there is none
	length  time.Duration
	groups  []counts
	arms    map[string]*counts // by policy or variant
	names   []string
	seconds []Second
	gauges  int // seconds that are over: their gauges are known
	open    int // calls without an answer
	stops   map[string]int
	events  []BreakerEvent

	during   counts        // of the calls that began in the outage
	backlog  time.Duration // when the last call from before the outage's end was settled
	over     time.Duration // since when the platform has more than it can take; -1: it has not
	longest  time.Duration // such stretch after the outage
	retries  map[int]int   // starts by bin
	expected map[int]float64
}

// counts are those of one group.
type counts struct {
	calls, good, sent int
	added             []time.Duration // of calls that succeeded
}

// BreakerEvent is a change of a breaker.
type BreakerEvent struct {
	AtMS   int64  `json:"at_ms"`
	Scope  string `json:"scope"`
	Shop   string `json:"shop,omitempty"`
	To     string `json:"to"`
	Reason string `json:"reason"`
}

// mostEvents bounds what is kept of the breakers: an outage of hours has thousands
// of probes.
const mostEvents = 10_000

func newTally(s *Scenario) *tally {
	t := &tally{
		length: s.Duration, groups: make([]counts, len(s.Bots)), arms: map[string]*counts{}, stops: map[string]int{}, over: -1,
		retries: map[int]int{}, expected: map[int]float64{},
	}
	for i := range s.Bots {
		t.names = append(t.names, s.Bots[i].Name)
	}
	for i := range s.Phases {
		if s.Phases[i].Outage {
			t.outage = &s.Phases[i]
		}
	}
	return t
}

// second is the one that at lies in.
func (t *tally) second(at time.Duration) *Second {
	n := int(at / time.Second)
	for len(t.seconds) <= n {
		t.seconds = append(t.seconds, Second{})
	}
	return &t.seconds[n]
}

// ends is when the second ends whose gauges are read next.
func (t *tally) ends() time.Duration { return time.Duration(t.gauges+1) * time.Second }

// endSecond reads the gauges at the end of a second.
func (t *tally) endSecond(now Second) {
	s := t.second(t.ends() - 1)
	s.Waiting, s.InFlight, s.Slots, s.Capacity = now.Waiting, now.InFlight, now.Slots, now.Capacity
	t.gauges++
}

func (t *tally) began(e *errand) {
	t.open++
	t.groups[e.group.index].calls++
	t.second(e.began).Offered++
	if t.inOutage(e.began) {
		t.during.calls++
	}
}

// arm are the counts of the policy or variant by which a call lives.
func (t *tally) arm(e *errand) *counts {
	c := t.arms[e.policy]
	if c == nil {
		c = &counts{}
		t.arms[e.policy] = c
	}
	return c
}

// sent counts a request that goes to the platform.
func (t *tally) sent(at time.Duration, r *request) {
	t.groups[r.bot.group.index].sent++
	t.arm(r.bot).sent++
	s := t.second(at)
	s.Upstream++
	if r.retry {
		s.Retries++
		t.retries[int(at/bin)]++
	}
}

// settled counts the end of a call as its bot sees it. spent is the platform's time
// for the answer.
func (t *tally) settled(e *errand, at time.Duration, ok bool, spent time.Duration) {
	t.open--
	t.arm(e).calls++
	if t.outage != nil && e.began < t.outage.To {
		t.backlog = max(t.backlog, at-t.outage.To)
	}
	if !ok {
		return
	}
	if t.inOutage(e.began) {
		t.during.good++
	}
	for _, c := range []*counts{&t.groups[e.group.index], t.arm(e)} {
		c.good++
		c.added = append(c.added, at-e.began-spent)
	}
	t.second(at).Answered++
	s := t.second(e.began)
	s.Good++
	if at-e.began < fast {
		s.Fast++
	}
}

// inOutage says whether a time lies in the last outage.
func (t *tally) inOutage(at time.Duration) bool {
	return t.outage != nil && at >= t.outage.From && at < t.outage.To
}

// stop counts why a call of the proxy ended.
func (t *tally) stop(reason string) { t.stops[reason]++ }

func (t *tally) breaker(e *breaker.Event, at time.Duration) {
	if len(t.events) < mostEvents {
		t.events = append(t.events, BreakerEvent{at.Milliseconds(), e.Scope, e.Shop, e.To.String(), e.Reason})
	}
}

// load follows for how long the platform has over a tenth more than its slots.
func (t *tally) load(at time.Duration, inFlight, slots int) {
	switch over := slots > 0 && float64(inFlight) > 1.1*float64(slots); {
	case over && t.over < 0:
		t.over = at
	case !over && t.over >= 0:
		t.stretch(at)
		t.over = -1
	}
}

// stretch measures an overload that ends at a time; what is before the end of the
// outage does not count.
func (t *tally) stretch(end time.Duration) {
	from := t.over
	if t.outage != nil {
		from = max(from, t.outage.To)
	}
	t.longest = max(t.longest, end-from)
}

// planned spreads a retry over the bins that its jitter could have put it in: what
// chance alone would make of all of them.
func (t *tally) planned(from, to time.Duration) {
	first, last := int(from/bin), int(max(to, from)/bin)
	share := 1 / float64(last-first+1)
	for b := first; b <= last; b++ {
		t.expected[b] += share
	}
}
