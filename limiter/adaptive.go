package limiter

import (
	"math"
	"time"
)

// learnt is the limit of attempts in flight that a host can take, found by additive
// increase and multiplicative decrease (Chiu and Jain, 1989) on what queueing does to
// latency, as TCP Vegas (Brakmo and Peterson, 1995) does.
//
// The duration of a success is compared with what is usual for its task type when the
// host has little to do, as the logarithm of their ratio: 0 means that it was not waited
// for. In logarithms a report of ten seconds among queries of five milliseconds weighs
// little more than a slow query. Judged are cohorts: the next attempts, as many as the
// limit, that begin while it is nearly used up. A cohort lowers the limit only if there was
// no room for a while: a burst, or a halt of our own machine, uses the limit up for a moment
// and says nothing of the host. All of a cohort are waited for, or the quick ones would
// speak for the slow ones; its mean is taken with its standard error, so that chance alone
// does not lower the limit. The mean tells how many attempts wait at the host, of which a
// few are tolerated, as in Vegas. A decrease after which the ratio falls by less than half
// of what the decrease promised is taken back, and what was seen is the new usual: the host
// became slow by itself, and fewer attempts would not help.
type learnt struct {
	now    float64 // the limit; 0: nothing is known yet
	steady int     // it was lowered: it rises in so many small steps from now on
	aim    int     // what it was before an outage: up to there it rises quickly
	proven proven
	cohort cohort
	usual  map[string]*usual // by task type
	cut    cut               // the last decrease, until it is judged; zero: none
}

// usual is how long a success takes when the host has little to do.
type usual struct {
	log   float64 // of the seconds
	begun int     // of the first ones, by which it begins: those that end first are the quick ones
	n     int
	at    time.Time // of the last sample
	slow  bool      // the host became slow by itself
	fast  float64   // slow: what was usual before
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
	mostTogether = 60 * time.Second       // and four usual durations: a cohort that began longer ago is given up
	together     = 250 * time.Millisecond // a cohort gathers for so long at least
	stragglers   = 20                     // one in so many of a cohort is not waited for
	usualTime    = 30 * time.Second       // time constant of the usual duration
	usualKinds   = 16                     // task types told apart at a host; further ones share one
	ratioFaster  = -0.105                 // of a cohort, below 0.9: the usual duration is too long
	sure         = 2.5                    // standard errors that are no chance any more
	mostWell     = 0.7                    // twice the usual duration: up to there the host was well
	shortest     = 0.01                   // seconds: below, the host's time cannot be told from ours
	atOnce       = 0.1                    // seconds: what few attempts take one after the other at most
	fewQueued    = 2                      // attempts that may wait at the host: that is no queue yet,
	shareQueued  = 0.06                   // or such a part of the limit if that is more,
	mostQueued   = 0.25                   // but no more than this part of it
	leastProven  = 8
	provenTime   = 5 * time.Minute
	quick        = 1.5 // increase until the limit was lowered once, and after so many steps without
	step         = 20  // additive increase: a twentieth
	steps        = 10
)

// limit is the limit within its bounds.
func (a *learnt) limit(least, most int) int {
	if a.now == 0 {
		return min(most, max(least, most/startShare, startLeast))
	}
	return min(most, max(least, int(a.now)))
}

// rising says that the limit has not been found yet: nothing lowered it of late.
func (a *learnt) rising() bool { return a.steady == 0 }

// early says that an attempt which begins is one of the first of its kind.
func (a *learnt) early(kind string) bool {
	u := a.kind(kind)
	if u.begun == firstUsual {
		return false
	}
	u.begun++
	return true
}

// enrol takes an attempt into the cohort that is being gathered; 0: it belongs to none.
// load are the attempts in flight, this one included.
func (a *learnt) enrol(load, limit int, now time.Time) uint32 {
	c := &a.cohort
	if load*5 < limit*4 {
		c.room = c.room || load*2 < limit && !c.full(limit, now)
		return 0
	}
	if c.began == 0 || now.Sub(c.since) > mostTogether && now.Sub(c.since) > mostTogether+seconds(4*a.longest()) {
		*c = cohort{id: c.id + 1, since: now}
	}
	if c.full(limit, now) {
		return 0
	}
	c.began++
	c.load += load
	return c.id
}

// longest is the longest usual duration in seconds.
func (a *learnt) longest() (seconds float64) {
	for _, u := range a.usual {
		if u.n > 0 {
			seconds = max(seconds, math.Exp(u.log))
		}
	}
	return seconds
}

// ended takes the end of an attempt. learn: its duration may be a usual one. It reports
// whether the limit changed.
func (a *learnt) ended(p *place, served, learn bool, now time.Time, least, most int) bool {
	limit, ratio := a.limit(least, most), 0.0
	took := now.Sub(p.began).Seconds()
	if served = served && took > 0; served {
		u := a.kind(p.kind)
		ratio = u.ratio(math.Log(took))
		if p.early || u.n >= firstUsual && learn && p.load*2 <= limit {
			u.add(math.Log(took), now)
		}
		if learn && ratio < mostWell {
			a.proven.note(p.load, now)
		}
		served = u.n >= firstUsual
	} else if p.early {
		a.kind(p.kind).begun-- // another takes its place
	}
	c := &a.cohort
	if p.cohort == 0 || p.cohort != c.id {
		return false
	}
	c.add(ratio, served)
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
	c := a.cut
	a.cut = cut{}
	if c.from > 0 && !a.cohort.room && mean > c.ratio+math.Log((1+load/c.load)/2) {
		a.now = c.from
		a.slower(max(mean, 0))
		return
	}
	few := min(max(fewQueued, shareQueued*float64(limit)), mostQueued*float64(limit))
	queued := func(ratio float64) float64 { return float64(limit) * (1 - math.Exp(-max(ratio, 0))) }
	switch surely := mean - sure*deviation; {
	case mean+sure*deviation < ratioFaster:
		a.faster(mean + sure*deviation)
	case a.cohort.room && queued(mean-deviation) > few:
	case queued(surely) > 2*few:
		a.cut = cut{float64(limit), load, mean}
		a.now = max(float64(least), min(a.small(), float64(limit)), float64(limit)*max(0.5, math.Exp(-surely)))
		a.steady, a.aim = steps, 0
	case queued(mean-deviation/2) > few:
	case a.steady > 0 && limit >= a.aim:
		a.steady--
		a.now = min(float64(most), float64(limit)+max(1, float64(limit)/step))
	default:
		a.now = min(float64(most), max(quick*float64(limit), float64(limit)+1))
	}
}

// small is so many attempts that a host which takes one after the other has done them
// in a tenth of a second: no less is worth waiting for, whatever a host's answers say.
func (a *learnt) small() float64 { return atOnce / max(shortest, a.longest()) }

// begin follows the begin of an outage: the host gets a little more than what it was
// well with, until it shows that it can take what it had.
func (a *learnt) begin(least, most int) {
	a.aim = a.limit(least, most)
	if n := max(a.proven.now, a.proven.before); n > 0 {
		a.now = min(float64(a.aim), max(float64(n)*quick, leastProven))
	}
	a.cut, a.cohort = cut{}, cohort{id: a.cohort.id}
}

func (p *proven) note(load int, now time.Time) {
	if now.Sub(p.since) > provenTime {
		p.since, p.before, p.now = now, p.now, 0
	}
	p.now = max(p.now, load)
}

// halve follows an outage that the way back from the last one brought about.
func (a *learnt) halve(least, most int) {
	a.now, a.steady, a.cut = max(float64(least), float64(a.limit(least, most))/2), steps, cut{}
	a.cohort = cohort{id: a.cohort.id}
}

// slower makes a ratio to the usual duration the usual one.
func (a *learnt) slower(by float64) {
	for _, u := range a.usual {
		if !u.slow {
			u.slow, u.fast = true, u.log
		}
		u.log += by
	}
}

// faster is the way back: what was usual before the host became slow is so again. If it
// is not, that will show.
func (a *learnt) faster(by float64) {
	for _, u := range a.usual {
		if u.log += by; u.slow {
			u.log = min(u.log, u.fast)
		}
		u.slow = false
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
		a.usual[name] = u
	}
	return u
}

// ratio is the logarithm of a duration as a multiple of the usual one.
func (u *usual) ratio(log float64) float64 {
	if u.n == 0 {
		return 0
	}
	return max(log, math.Log(shortest)) - max(u.log, math.Log(shortest))
}

// add moves the usual duration towards a new one: the mean of the first ten, then by
// and by.
func (u *usual) add(log float64, now time.Time) {
	weight := 1 / float64(min(u.n+1, firstUsual))
	if u.n >= firstUsual {
		weight = min(weight, now.Sub(u.at).Seconds()/usualTime.Seconds())
	}
	u.log += (log - u.log) * weight
	u.n, u.at = min(u.n+1, firstUsual), now
}

// full says that no more attempts are needed to judge a limit.
func (c *cohort) full(limit int, now time.Time) bool {
	return c.began >= max(leastCohort, limit) && now.Sub(c.since) >= together
}

// add takes the end of one attempt; ratio is that of a success.
func (c *cohort) add(ratio float64, served bool) {
	c.ended++
	if served {
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
