package limiter

import (
	"math"
	"strings"
	"time"
)

// learnt is the limit of attempts in flight that a host can take, found by additive
// increase and multiplicative decrease (Chiu and Jain, 1989) on what queueing does to
// latency, as TCP Vegas (Brakmo and Peterson, 1995) does.
//
// The duration of a success is divided by what is usual for its task type when the host
// has little to do: 1 means that it was not waited for. Judged are cohorts: the next
// attempts, as many as the limit, that begin while it is nearly used up. A cohort lowers
// the limit only if there was no room for a while, and if the one before found a queue as
// well: a burst, or a halt of our own machine, uses the limit up for a moment, makes all
// answers late, and says nothing of the host. All of a cohort are waited
// for, or the quick ones would speak for the slow ones; its mean is taken with its standard
// error, so that chance alone does not lower the limit. The mean tells how many attempts
// wait at the host, of which a few are tolerated, as in Vegas. A decrease after which the
// ratio falls by less than half of what the decrease promised is taken back, and what was
// seen is the new usual: the host became slow by itself, and fewer attempts would not help.
type learnt struct {
	now    float64 // the limit; 0: nothing is known yet
	steady bool    // it was lowered once: it rises in small steps from now on
	aim    int     // what it was before an outage: up to there it rises quickly
	proven proven
	cohort cohort
	usual  map[string]*usual // by task type
	cut    cut               // the last decrease, until it is judged; zero: none
	warned float64           // the ratio of the last cohort, if that was the first to find a queue
}

// usual is how long a success takes when the host has little to do.
type usual struct {
	seconds float64
	n       int
	at      time.Time // of the last sample
	fast    float64   // what was usual before the host became slow; 0: it is not slow
}

// proven is the most attempts in flight with which the host was well of late.
type proven struct {
	since       time.Time // when now began; before is of the time as long before that
	now, before int
}

// cut is a decrease that has still to show that it helped.
type cut struct {
	from        float64 // the limit before
	load, ratio float64 // mean, of the cohort that led to it
}

// cohort is attempts that began one after the other.
type cohort struct {
	id           uint32 // of the attempts in it
	since        time.Time
	began, ended int
	room         bool // the limit was far from used up in between
	load         int  // attempts in flight as each of them began, together
	n            int  // of those that ended, the successes
	sum, squares float64
}

const (
	startShare   = 4  // a host begins with a quarter of max_in_flight,
	startLeast   = 64 // but with so many at least
	leastCohort  = 5
	firstUsual   = 10                     // the usual duration begins as the mean of so many
	mostHalved   = 4                      // an outage leaves a quarter of the limit at least
	mostTogether = 60 * time.Second       // a cohort that began longer ago is given up
	together     = 250 * time.Millisecond // a cohort gathers for so long at least
	stragglers   = 20                     // one in so many of a cohort is not waited for
	usualTime    = 30 * time.Second       // time constant of the usual duration
	usualKinds   = 16                     // task types told apart at a host; further ones share one
	mostUnusual  = 2                      // times the usual duration: what counts of a longer one
	ratioFaster  = 0.9                    // of a cohort: below, the usual duration is too long
	shortest     = 0.01                   // seconds: below, the host's time cannot be told from ours
	atOnce       = 0.1                    // seconds: what few attempts take one after the other at most
	fewQueued    = 2                      // attempts that may wait at the host: that is no queue yet,
	shareQueued  = 0.06                   // or such a part of the limit if that is more,
	mostQueued   = 0.25                   // but no more than this part of it
	leastProven  = 8
	provenTime   = 5 * time.Minute
	quick        = 1.5 // increase until the limit was lowered once
	step         = 20  // additive increase: a twentieth
)

// limit is the limit within its bounds.
func (a *learnt) limit(least, most int) int {
	if a.now == 0 {
		return min(most, max(least, most/startShare, startLeast))
	}
	return min(most, max(least, int(a.now)))
}

// enrol takes an attempt into the cohort that is being gathered; 0: it belongs to none.
// load are the attempts in flight, this one included.
func (a *learnt) enrol(load, limit int, now time.Time) uint32 {
	c := &a.cohort
	if load*5 < limit*4 {
		c.room = c.room || load*2 < limit && !c.full(limit, now)
		return 0
	}
	if c.began == 0 || now.Sub(c.since) > mostTogether {
		*c = cohort{id: c.id + 1, since: now}
	}
	if c.full(limit, now) {
		return 0
	}
	c.began++
	c.load += load
	return c.id
}

// ended takes the end of an attempt. learn: its duration may be a usual one. It reports
// whether the limit changed.
func (a *learnt) ended(p *place, served, learn bool, now time.Time, least, most int) bool {
	limit, ratio := a.limit(least, most), 0.0
	if took := now.Sub(p.began).Seconds(); served && took > 0 {
		u := a.kind(p.kind)
		ratio = u.ratio(took)
		if u.n < firstUsual || learn && p.load*2 <= limit {
			u.add(took, now)
		}
		if learn && ratio < mostUnusual {
			a.proven.note(p.load, now)
		}
	}
	c := &a.cohort
	if p.cohort == 0 || p.cohort != c.id {
		return false
	}
	c.add(ratio)
	if !c.full(limit, now) || (c.began-c.ended)*stragglers > c.began {
		return false
	}
	if c.n*2 >= c.began {
		a.judge(limit, least, most)
	}
	a.cohort = cohort{id: c.id}
	return a.limit(least, most) != limit
}

// judge moves the limit by what the cohort says.
func (a *learnt) judge(limit, least, most int) {
	mean, deviation := a.cohort.mean()
	load := float64(a.cohort.load) / float64(a.cohort.began)
	c, warned := a.cut, a.warned
	a.cut, a.warned = cut{}, 0
	if promised := c.ratio * load / c.load; c.from > 0 && !a.cohort.room && mean > (c.ratio+promised)/2 {
		a.now = c.from
		a.slower(mean)
		return
	}
	few := min(max(fewQueued, shareQueued*float64(limit)), mostQueued*float64(limit))
	queued := func(ratio float64) float64 { return float64(limit) * (1 - 1/max(ratio, 1)) }
	switch {
	case mean+2*deviation < ratioFaster:
		a.faster(mean)
	case a.cohort.room && queued(mean-deviation) > few:
	case queued(mean-2*deviation) > 2*few && warned == 0:
		a.warned = mean - 2*deviation
	case queued(mean-2*deviation) > 2*few:
		a.cut = cut{float64(limit), load, mean}
		a.now = max(float64(least), min(a.small(), float64(limit)), float64(limit)*max(0.5, 1/min(mean-2*deviation, warned)))
		a.steady, a.aim = true, 0
	case queued(mean-deviation) > few:
	case a.steady && limit >= a.aim:
		a.now = min(float64(most), float64(limit)+max(1, float64(limit)/step))
	default:
		a.now = min(float64(most), max(quick*float64(limit), float64(limit)+1))
	}
}

// small is so many attempts that a host which takes one after the other has done them
// in a tenth of a second: no less is worth waiting for, whatever a host's answers say.
func (a *learnt) small() float64 {
	longest := shortest
	for _, u := range a.usual {
		longest = max(longest, u.seconds)
	}
	return atOnce / longest
}

// begin follows the begin of an outage: the host gets a little more than what it was
// well with, until it shows that it can take what it had.
func (a *learnt) begin(least, most int) {
	a.aim = a.limit(least, most)
	if n := max(a.proven.now, a.proven.before); n > 0 {
		a.now = min(float64(a.aim), max(float64(n)*quick, leastProven))
	}
	a.cut, a.warned, a.cohort = cut{}, 0, cohort{id: a.cohort.id}
}

func (p *proven) note(load int, now time.Time) {
	if now.Sub(p.since) > provenTime {
		p.since, p.before, p.now = now, p.now, 0
	}
	p.now = max(p.now, load)
}

// halve follows an outage that the way back from the last one brought about.
func (a *learnt) halve(least, most int) {
	a.now, a.steady, a.cut, a.warned = max(float64(least), float64(a.limit(least, most))/2), true, cut{}, 0
	a.cohort = cohort{id: a.cohort.id}
}

// slower makes so many times the usual duration the usual one.
func (a *learnt) slower(by float64) {
	for _, u := range a.usual {
		if u.fast == 0 {
			u.fast = u.seconds
		}
		u.seconds *= by
	}
}

// faster is the way back: what was usual before the host became slow is so again. If it
// is not, that will show.
func (a *learnt) faster(by float64) {
	for _, u := range a.usual {
		if u.seconds *= by; u.fast > 0 {
			u.seconds = min(u.seconds, u.fast)
		}
		u.fast = 0
	}
}

// kind is the usual duration of a task type.
func (a *learnt) kind(name string) *usual {
	if u := a.usual[name]; u != nil {
		return u
	}
	if a.usual == nil {
		a.usual = map[string]*usual{}
	}
	if len(a.usual) >= usualKinds {
		name = ""
	}
	u := a.usual[name]
	if u == nil {
		u = &usual{}
		a.usual[strings.Clone(name)] = u
	}
	return u
}

// ratio is a duration as a multiple of the usual one.
func (u *usual) ratio(seconds float64) float64 {
	if u.n == 0 {
		return 1
	}
	return max(seconds, shortest) / max(u.seconds, shortest)
}

// add moves the usual duration towards a new one: the mean of the first ten, then by
// and by.
func (u *usual) add(seconds float64, now time.Time) {
	weight := 1 / float64(min(u.n+1, firstUsual))
	if u.n >= firstUsual {
		weight = min(weight, now.Sub(u.at).Seconds()/usualTime.Seconds())
		seconds = min(seconds, mostUnusual*u.seconds)
	}
	u.seconds += (seconds - u.seconds) * weight
	u.n, u.at = min(u.n+1, firstUsual), now
}

// full says that no more attempts are needed to judge a limit.
func (c *cohort) full(limit int, now time.Time) bool {
	return c.began >= max(leastCohort, limit) && now.Sub(c.since) >= together
}

// add takes the end of one attempt; ratio 0: it was no success.
func (c *cohort) add(ratio float64) {
	c.ended++
	if ratio > 0 {
		c.n++
		c.sum += ratio
		c.squares += ratio * ratio
	}
}

// mean is the mean ratio and its standard error.
func (c *cohort) mean() (mean, deviation float64) {
	n := float64(c.n)
	mean = c.sum / n
	variance := max(0, c.squares/n-mean*mean) * n / (n - 1)
	return mean, math.Sqrt(variance / n)
}
