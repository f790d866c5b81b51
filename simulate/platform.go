package simulate

import (
	"math/rand/v2"
	"slices"
	"time"

	"retryproxy/classify"
)

// hangs is how long a request that hangs keeps its slot where the scenario does not say.
const hangs = time.Minute

// platform is the scripted one: slots, a queue in front of them, and failures. A
// request is worked on to its end, whether or not its caller still listens.
type platform struct {
	clock  *clock
	dice   *rand.Rand
	base   Platform
	phases []Phase
	tally  *tally

	busy  int
	queue fifo
}

// request is one that was sent to the platform.
type request struct {
	bot   *errand
	retry bool
	luck  float64 // thrown once, for all that may happen to it
	reply func(reply)
}

// reply is what comes back.
type reply struct {
	status     int
	phase      classify.Phase
	fault      classify.Fault
	retryAfter time.Duration
	spent      time.Duration // in its slot and on the way
}

// now is what the platform does at present.
func (p *platform) now() Platform {
	is := p.base
	for i := range p.phases {
		f := &p.phases[i]
		if p.clock.at < f.From || p.clock.at >= f.To {
			continue
		}
		if f.Slots > 0 {
			is.Slots = f.Slots
		}
		if f.Service.given() {
			is.Service = f.Service
		}
		if f.Latency.given() {
			is.Latency = f.Latency
		}
		is.Failure = f.Failure
	}
	return is
}

// inFlight are the requests in work and in the queue.
func (p *platform) inFlight() int { return p.busy + p.queue.len() }

// send takes a request. Its reply comes later, never from within.
func (p *platform) send(r *request) {
	p.tally.sent(p.clock.at, r)
	r.luck = p.dice.Float64()
	is := p.now()
	if f := is.failing(r); f != nil && f.Fault == faultRefused {
		p.clock.in(0, func() { r.reply(reply{phase: classify.PhaseConnect, fault: classify.FaultRefused}) })
		return
	}
	if is.Slots > 0 && p.busy >= is.Slots {
		if p.queue.len() >= is.Queue {
			p.clock.in(is.Latency.sample(p.dice), func() { r.reply(reply{status: is.Full, phase: classify.PhaseDone}) })
			return
		}
		p.queue.push(r)
		p.measure()
		return
	}
	p.work(r, &is)
}

// pump fills free slots from the queue.
func (p *platform) pump() {
	is := p.now()
	for p.queue.len() > 0 && (is.Slots == 0 || p.busy < is.Slots) {
		p.work(p.queue.pop(), &is)
	}
	p.measure()
}

// work puts a request into a slot and settles what will come of it.
func (p *platform) work(r *request, is *Platform) {
	p.busy++
	p.measure()
	spent := is.Service.sample(p.dice)
	answer := reply{status: 200, phase: classify.PhaseDone}
	if f := is.failing(r); f != nil && f.Fault != faultRefused {
		spent, answer = f.outcome(spent)
	}
	way := is.Latency.sample(p.dice)
	answer.spent = spent + way
	p.clock.in(spent, func() {
		p.busy--
		p.pump()
		p.clock.in(way, func() { r.reply(answer) })
	})
}

// failing is how a request fails; nil: it does not.
func (is *Platform) failing(r *request) *Fail {
	u := r.luck
	for i := range is.Failure {
		f := &is.Failure[i]
		if len(f.Shops) > 0 && !slices.Contains(f.Shops, r.bot.shop) {
			continue
		}
		if u < f.Share {
			return f
		}
		u -= f.Share
	}
	return nil
}

// capacity is how many requests a second it can take; 0: any number. What is wrong
// with some shops only is left out.
func (is *Platform) capacity() float64 {
	mean, rest := 0.0, 1.0
	for i := range is.Failure {
		f := &is.Failure[i]
		if len(f.Shops) > 0 {
			continue
		}
		rest -= f.Share
		if f.Fault != faultRefused {
			spent, _ := f.outcome(is.Service.mean())
			mean += f.Share * spent.Seconds()
		}
	}
	mean += max(rest, 0) * is.Service.mean().Seconds()
	if is.Slots == 0 || mean <= 0 {
		return 0
	}
	return float64(is.Slots) / mean
}

// outcome is what comes of a request that fails, and for how long it has its slot.
func (f *Fail) outcome(service time.Duration) (time.Duration, reply) {
	if f.After > 0 {
		service = f.After
	} else if f.Fault == faultHang {
		service = hangs
	}
	switch f.Fault {
	case faultReset:
		return service, reply{phase: classify.PhaseSent, fault: classify.FaultReset}
	case faultHang:
		return service, reply{phase: classify.PhaseSent, fault: classify.FaultEOF}
	}
	return service, reply{status: f.Status, phase: classify.PhaseDone, retryAfter: f.RetryAfter.Truncate(time.Second)}
}

// measure tells how much the platform has at a time.
func (p *platform) measure() { p.tally.load(p.clock.at, p.inFlight(), p.now().Slots) }

// fifo is a queue that gives its memory back.
type fifo struct {
	items []*request
	head  int
}

func (q *fifo) len() int { return len(q.items) - q.head }

func (q *fifo) push(r *request) { q.items = append(q.items, r) }

func (q *fifo) pop() *request {
	r := q.items[q.head]
	q.items[q.head] = nil
	if q.head++; q.head > len(q.items)/2 {
		q.items, q.head = append(q.items[:0], q.items[q.head:]...), 0
	}
	return r
}
