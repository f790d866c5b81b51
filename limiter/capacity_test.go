package limiter

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"retryproxy/breaker"
)

func ramped() Config {
	c := slots(101)
	c.Ramp = 5 * time.Second
	return c
}

// After an outage the slots come back at an even pace.
func TestRamp(t *testing.T) {
	d := newDesk(t, ramped())
	d.fail(host)
	d.until(at(2 * time.Second))
	d.end(d.start(Claim{}), breaker.Alive) // closes it
	var line []*Ticket
	for range 200 {
		if _, ticket := d.l.Ask(d.claim(Claim{}), d.now); ticket != nil {
			line = append(line, ticket)
		}
	}
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {49 * time.Millisecond, 1}, {50*time.Millisecond + 1, 2}, {time.Second + 1, 21}, {2500*time.Millisecond + 1, 51}, {5 * time.Second, 101}, {10 * time.Second, 101}} {
		d.until(at(2*time.Second + step.after))
		if v := d.l.Hosts(d.now)[0]; v.InFlight != step.want || v.Capacity != step.want || v.Limit != 101 {
			t.Errorf("after %v: %d in flight, capacity %d, limit %d, want %d of 101", step.after, v.InFlight, v.Capacity, v.Limit, step.want)
		}
	}
	if next := d.l.Tick(d.now); next.Before(at(17 * time.Second)) {
		t.Errorf("Tick = %v though the ramp is over", next.Sub(t0))
	}
}

// An outage that kept somebody waiting is over once nobody of them waits and the ramp has
// ended, and that is told then.
func TestTheEndOfAnOutageIsTold(t *testing.T) {
	d := newDesk(t, ramped())
	d.fail(host)
	waits := d.line(2, Claim{})
	d.until(at(2 * time.Second))
	d.end(d.granted("probe", waits[0]).Grant, breaker.Alive)
	d.end(d.granted("next", waits[1]).Grant, breaker.Alive)
	d.until(at(7*time.Second - 1))
	if e := d.events[len(d.events)-1]; e.Reason == breaker.ReasonWorkedOff {
		t.Error("told before the ramp was over")
	}
	d.until(at(7 * time.Second))
	if e := d.events[len(d.events)-1]; e.Reason != breaker.ReasonWorkedOff || !e.At.Equal(at(7*time.Second)) {
		t.Errorf("event = %+v, want the outage worked off at 7s", e)
	}
}

// While the ramp lasts a call that waits for a second is backlog; those that come then
// go before it.
func TestFreshCallsFirstDuringTheRamp(t *testing.T) {
	d := newDesk(t, ramped())
	d.fail(host)
	d.until(at(2 * time.Second))
	d.end(d.start(Claim{}), breaker.Alive)
	d.start(Claim{})
	waits := d.line(100, Claim{})
	d.until(at(3 * time.Second))
	if v := d.l.Hosts(d.now)[0]; v.Late != v.Waiting || v.Waiting != 80 {
		t.Errorf("%+v, want 80 in the backlog", v)
	}
	fresh := d.line(5, Claim{})
	for range 5 { // a slot each 50 ms
		d.until(d.now.Add(50*time.Millisecond + 1))
	}
	for i, x := range fresh {
		if d.waits(x) {
			t.Errorf("fresh call %d still waits", i)
		}
	}
	if d.waits(waits[20]) != true {
		t.Error("the backlog was served before fresh calls")
	}
}

// platform is a host with so many servers and a queue, for one limiter.
type platform struct {
	*desk
	servers int
	service time.Duration
	jitter  float64 // of the service time, standard deviation
	dice    *rand.Rand
	slow    time.Duration // instead of service, without being busy
	kind    string

	busy  []time.Time // when each server is free
	ends  []ending
	line  []*Ticket
	most  int
	count int
}

type ending struct {
	at    time.Time
	grant Grant
}

// run has clients keep so many calls open at a time, for a while.
func (p *platform) run(clients int, span time.Duration) {
	open := len(p.ends) + len(p.line)
	for until := p.now.Add(span); p.now.Before(until); p.now = p.now.Add(10 * time.Millisecond) {
		p.l.Tick(p.now)
		kept := p.ends[:0]
		for _, e := range p.ends {
			if e.at.After(p.now) {
				kept = append(kept, e)
				continue
			}
			p.l.Report(e.grant, breaker.Served, p.now)
			p.l.Release(e.grant, p.now)
			p.count++
			open--
		}
		p.ends = kept
		line := p.line[:0]
		for _, x := range p.line {
			switch a := x.Answer(); {
			case p.waits(x):
				line = append(line, x)
			case a.Refused != "":
				p.Fatalf("%+v", a)
			default:
				p.send(a.Grant)
			}
		}
		for p.line = line; open < clients; open++ {
			if a, ticket := p.l.Ask(p.claim(Claim{TaskType: p.kind, MaxWait: time.Hour}), p.now); ticket != nil {
				p.line = append(p.line, ticket)
			} else {
				p.send(a.Grant)
			}
		}
	}
}

func (p *platform) send(g Grant) {
	if len(p.busy) < p.servers {
		p.busy = append(p.busy, time.Time{})
	}
	first := 0
	for i := range p.busy {
		if p.busy[i].Before(p.busy[first]) {
			first = i
		}
	}
	took := p.service
	if p.jitter > 0 {
		took = time.Duration(float64(took) * max(0.1, 1+p.jitter*p.dice.NormFloat64()))
	}
	if p.slow > 0 {
		p.ends = append(p.ends, ending{p.now.Add(p.slow), g})
		return
	}
	done := later(p.now, p.busy[first]).Add(took)
	p.busy[first] = done
	p.ends = append(p.ends, ending{done, g})
}

func (p *platform) limit() int { return p.l.Hosts(p.now)[0].Limit }

func newPlatform(t *testing.T, servers int, jitter float64) *platform {
	c := slots(256)
	c.Adaptive = true
	c.MaxWait = time.Hour
	return &platform{desk: newDesk(t, c), servers: servers, service: 200 * time.Millisecond, jitter: jitter, dice: rand.New(rand.NewPCG(1, 2))}
}

// The limit finds what a host can take, from above and from below, with and without
// chance in the durations, and costs no throughput.
func TestLimitFollowsTheHost(t *testing.T) {
	for _, tt := range []struct {
		name         string
		servers      int
		jitter       float64
		least, most  int
		calls, spans int
	}{
		{"smaller than the start", 20, 0, 18, 26, 95, 15},
		{"about the start", 60, 0, 57, 72, 285, 15},
		{"larger than the start", 200, 0, 180, 240, 900, 15},
		{"tiny", 2, 0, 1, 4, 8, 60},
		{"smaller, with chance", 20, 0.4, 16, 60, 90, 15},
		{"larger, with chance", 200, 0.4, 150, 256, 850, 15},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlatform(t, tt.servers, tt.jitter)
			p.run(min(tt.servers/2+1, 30), 5*time.Second) // what is usual, without a queue
			clients := max(70, tt.servers*5/4)
			p.run(clients, time.Duration(tt.spans)*time.Second)
			p.count = 0
			p.run(clients, 10*time.Second)
			if got := p.limit(); got < tt.least || got > tt.most {
				t.Errorf("limit %d, want %d to %d", got, tt.least, tt.most)
			}
			if rate := p.count / 10; rate < tt.calls {
				t.Errorf("%d calls a second, want at least %d", rate, tt.calls)
			}
		})
	}
}

// A host that becomes slow by itself is not strangled: fewer attempts would not help.
func TestLimitOfAHostThatIsSlowByItself(t *testing.T) {
	p := newPlatform(t, 1000, 0)
	p.run(60, 10*time.Second)
	p.slow = 2 * time.Second
	p.run(60, 30*time.Second)
	if got := p.limit(); got < 60 {
		t.Errorf("limit %d, want room for the 60 calls that are open", got)
	}
	p.slow = 0
	p.run(60, 10*time.Second)
	if got := p.limit(); got < 60 {
		t.Errorf("limit %d once it is fast again, want 60 at least", got)
	}
}

// A halt of our own machine makes answers late and sends what came meanwhile all at once,
// more than can be taken up at once when it is answered: that says nothing of the host,
// however often it happens.
func TestLimitIsNotLoweredByOurOwnHalts(t *testing.T) {
	const every, halt = 300 * time.Millisecond, 130 * time.Millisecond
	for _, limit := range []int{256, 40} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			c := slots(limit)
			c.Adaptive = true
			d := newDesk(t, c)
			dice := rand.New(rand.NewPCG(3, 4))
			first := 0
			var open []ending
			var line []*Ticket
			send := func(g Grant) {
				took := 5*time.Millisecond + time.Duration(dice.ExpFloat64()*float64(2*time.Millisecond))
				open = append(open, ending{d.now.Add(took), g})
			}
			for span := time.Duration(0); span < 30*time.Second; span += time.Millisecond {
				if span%every < halt && span > time.Second {
					continue // the calls of this time are taken up after it
				}
				calls := int(span/time.Millisecond) - first
				first += calls
				d.now = at(span)
				d.l.Tick(d.now)
				kept, taken := open[:0], 0
				for _, e := range open {
					if e.at.After(d.now) || taken == 4 {
						kept = append(kept, e)
						continue
					}
					taken++
					d.l.Report(e.grant, breaker.Served, d.now)
					d.l.Release(e.grant, d.now)
				}
				open = kept
				for len(line) > 0 && !d.waits(line[0]) {
					send(line[0].Answer().Grant)
					line = line[1:]
				}
				for range calls {
					if a, ticket := d.l.Ask(d.claim(Claim{}), d.now); ticket != nil {
						line = append(line, ticket)
					} else {
						send(a.Grant)
					}
				}
			}
			if got := d.l.Hosts(d.now)[0].Limit; got < min(limit, 64) {
				t.Errorf("limit %d, want no less than it began with", got)
			}
		})
	}
}

// A limit whose last attempt waits for a tenth of a second is low enough: a quick host
// that cannot keep up is not throttled to a few at a time.
func TestLimitOfAQuickHost(t *testing.T) {
	p := newPlatform(t, 1, 0)
	p.service = 10 * time.Millisecond
	p.run(1, 5*time.Second)
	p.run(300, 30*time.Second)
	if got := p.limit(); got < 9 || got > 20 {
		t.Errorf("limit %d, want about ten", got)
	}
}

// Calls of another kind take as long as they take: that is no queue.
func TestLimitTellsKindsApart(t *testing.T) {
	p := newPlatform(t, 1000, 0)
	p.kind = "query"
	p.run(50, 5*time.Second)
	p.kind, p.service = "report", 5*time.Second
	p.run(64, 60*time.Second)
	if got := p.limit(); got < 64 {
		t.Errorf("limit %d, want 64 at least", got)
	}
}

func TestLimitIsOff(t *testing.T) {
	p := newPlatform(t, 5, 0)
	c := slots(256)
	c.MaxWait = time.Hour
	p.l.Configure(c, p.now)
	p.run(500, 10*time.Second)
	if got := p.limit(); got != 256 {
		t.Errorf("limit %d, want max_in_flight", got)
	}
}

// Never below the probes, whatever happens.
func TestLimitHasAFloor(t *testing.T) {
	c := slots(256)
	c.Adaptive, c.Breaker.Probes, c.Ramp = true, 3, 5*time.Second
	c.Breaker.OpenMax = c.Breaker.Open
	d := newDesk(t, c)
	for range 12 { // each way back ends in the next outage
		d.fail(host)
		d.until(d.now.Add(2 * time.Second))
		d.end(d.start(Claim{}), breaker.Alive)
		d.until(d.now.Add(5 * time.Second)) // the ramp is over, and with it the outage
		d.end(d.start(Claim{}), breaker.Alive)
	}
	if v := d.l.Hosts(d.now)[0]; v.Limit != 3 {
		t.Errorf("limit %d, want that of the probes", v.Limit)
	}
}

// After an outage a host gets a little more than it was well with, and soon what it had.
func TestLimitBeginsWithWhatWasProven(t *testing.T) {
	for proven, want := range map[int]int{0: 64, 2: 8, 20: 30, 60: 90} {
		p := newPlatform(t, 1000, 0)
		p.run(proven, 4*time.Second)
		p.run(0, time.Second)
		for p.l.Closed(host, p.now) {
			p.end(p.start(Claim{}), breaker.Failed)
		}
		if got := p.limit(); got != want {
			t.Errorf("limit %d after an outage of a host that was well with %d, want %d", got, proven, want)
		}
		p.until(p.now.Add(2 * time.Second))
		p.run(100, 8*time.Second)
		if got := p.limit(); got < 64 {
			t.Errorf("limit %d, want what it was before", got)
		}
	}
}

// A host that falls over while it comes back gets half as much the next time.
func TestLimitIsHalvedWhenTheWayBackFails(t *testing.T) {
	c := slots(256)
	c.Adaptive, c.Ramp = true, 5*time.Second
	d := newDesk(t, c)
	d.fail(host)
	if v := d.l.Hosts(d.now)[0]; v.Limit != 64 {
		t.Fatalf("limit %d after the first outage, want the 64 it began with", v.Limit)
	}
	d.until(at(2 * time.Second))
	d.end(d.start(Claim{}), breaker.Alive)
	d.until(at(4 * time.Second))
	d.fail(host)
	if v := d.l.Hosts(d.now)[0]; v.Limit != 32 {
		t.Errorf("limit %d, want half", v.Limit)
	}
}
