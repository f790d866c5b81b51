package limiter

import (
	"testing"
	"time"

	"retryproxy/breaker"
)

// knows is a desk that knows how long an attempt takes.
func knows(t *testing.T, c Config, pace time.Duration) *desk {
	d := newDesk(t, c)
	for range 100 {
		g := d.start(Claim{})
		d.now = d.now.Add(pace)
		d.end(g, breaker.Served)
	}
	return d
}

// full takes every slot.
func (d *desk) full(n int) (all []Grant) {
	for range n {
		all = append(all, d.start(Claim{}))
	}
	return all
}

// A call whose turn cannot come in time is told so at once, with the time at which it
// could have come; one that has just time enough waits.
func TestHopelessCallsAreShedAtOnce(t *testing.T) {
	const pace = 100 * time.Millisecond
	for name, tt := range map[string]struct {
		ahead  int
		claim  func(now time.Time) Claim
		refuse bool
	}{
		"deadline fits":             {20, func(now time.Time) Claim { return Claim{Deadline: now.Add(201 * time.Millisecond)} }, false},
		"deadline does not fit":     {20, func(now time.Time) Claim { return Claim{Deadline: now.Add(199 * time.Millisecond)} }, true},
		"max_wait fits":             {200, func(time.Time) Claim { return Claim{MaxWait: 2001 * time.Millisecond} }, false},
		"max_wait does not fit":     {200, func(time.Time) Claim { return Claim{MaxWait: 1999 * time.Millisecond} }, true},
		"its priority helps":        {200, func(time.Time) Claim { return Claim{MaxWait: 1999 * time.Millisecond, Priority: -9} }, false},
		"so does the turn of shops": {200, func(time.Time) Claim { return Claim{MaxWait: 1999 * time.Millisecond, Shop: "small"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := slots(10)
			if tt.ahead > 20 {
				c.MaxWait = 3 * time.Second // who has less than half of it left goes by age
			}
			d := knows(t, c, pace)
			d.full(10)
			for range tt.ahead {
				d.l.Ask(d.claim(Claim{Shop: "large", MaxWait: time.Minute, Arrived: d.now.Add(-time.Hour)}), d.now)
			}
			claim := tt.claim(d.now)
			claim.Arrived = d.now
			if claim.Shop == "" {
				claim.Shop = "large"
			}
			a, ticket := d.l.Ask(d.claim(claim), d.now)
			if got := ticket == nil; got != tt.refuse {
				t.Fatalf("Ask = %+v, refused %v, want %v", a, got, tt.refuse)
			}
			if want := d.now.Add(time.Duration(tt.ahead) * pace / 10); tt.refuse && (a.Refused != RefusedSlot || a.At.Sub(want).Abs() > time.Millisecond) {
				t.Errorf("Answer = %+v, want no_slot until %v", a, want)
			}
		})
	}
}

// A limit that has not been found yet is no reason to turn anybody away: it rises while
// it is used up. Where it was found, it is.
func TestARisingLimitTurnsNobodyAway(t *testing.T) {
	for name, tt := range map[string]struct {
		steady int
		waits  bool
	}{"rising": {0, true}, "found": {1, false}} {
		t.Run(name, func(t *testing.T) {
			c := slots(256)
			c.Adaptive, c.Ramp = true, 5*time.Second
			d := knows(t, c, time.Second)
			d.l.board.gate(host).learnt.steady = tt.steady
			d.full(64)
			for range 200 {
				d.l.Ask(d.claim(Claim{}), d.now)
			}
			_, ticket := d.l.Ask(d.claim(Claim{Deadline: d.now.Add(3 * time.Second)}), d.now) // 200 at 64 a second
			if got := ticket != nil; got != tt.waits {
				t.Errorf("waits %v, want %v", got, tt.waits)
			}
		})
	}
}

// Nothing is shed by what is not known.
func TestNobodyIsShedWithoutKnowledge(t *testing.T) {
	d := newDesk(t, slots(1))
	d.start(Claim{})
	d.line(1000, Claim{MaxWait: time.Second})
}

// While a host is down the outlook counts the next probe, the attempt it takes, and the ramp.
func TestOutlookOfAnOutage(t *testing.T) {
	c := slots(101)
	c.Ramp = 5 * time.Second
	d := knows(t, c, 100*time.Millisecond)
	down := d.now
	for range 20 {
		d.end(d.start(Claim{}), breaker.Failed)
	}
	probe := down.Add(2 * time.Second)
	line := d.line(1000, Claim{})
	for _, tt := range []struct {
		place int
		want  time.Duration // after the probe
	}{
		{1, 0},
		{2, 100 * time.Millisecond},     // the probe is back
		{12, 370 * time.Millisecond},    // then t + 20·t²/2 = 10·0.1 s of work
		{1000, 3211 * time.Millisecond}, // … = 998·0.1 s
	} {
		v := d.l.View(line[tt.place-1], d.now)
		if got := v.At.Sub(probe); v.Place != tt.place || (got-tt.want).Abs() > 5*time.Millisecond {
			t.Errorf("place %d: View = %+v, %v after the probe, want %v", tt.place, v, got, tt.want)
		}
	}
	h, ok := d.l.Host(host, d.now)
	if !ok || h.Outage == nil || !h.Outage.Since.Equal(down) || h.Outage.Waiting != 1000 || !h.Outage.Release.Equal(d.l.View(line[999], d.now).At) {
		t.Errorf("Host = %+v, %+v, want an outage and when the last goes", h, h.Outage)
	}
	if a, ticket := d.l.Ask(d.claim(Claim{Deadline: probe.Add(3 * time.Second)}), d.now); ticket != nil || a.Refused != RefusedBreaker || a.At.Sub(h.Outage.Release).Abs() > 10*time.Millisecond {
		t.Errorf("Ask = %+v, waits %v, want it told when its turn would come, after %v", a, ticket != nil, h.Outage.Release)
	}
	if _, ok := d.l.Host("nobody:80", d.now); ok {
		t.Error("an unknown host is known")
	}
}

// What was foretold comes true when all goes well.
func TestOutlookComesTrue(t *testing.T) {
	c := slots(101)
	c.Ramp = 5 * time.Second
	const pace = 100 * time.Millisecond
	d := knows(t, c, pace)
	for range 20 {
		d.end(d.start(Claim{}), breaker.Failed)
	}
	line := d.line(800, Claim{})
	want := make([]time.Time, len(line))
	for i, x := range line {
		want[i] = d.l.View(x, d.now).At
	}
	type running struct {
		grant Grant
		ends  time.Time
	}
	var open []running
	worst := time.Duration(0)
	for started := 0; started < len(line); {
		next := d.l.Tick(d.now)
		for _, r := range open {
			if next.IsZero() || r.ends.Before(next) {
				next = r.ends
			}
		}
		d.until(next)
		kept := open[:0]
		for _, r := range open {
			if r.ends.After(d.now) {
				kept = append(kept, r)
			} else {
				d.end(r.grant, breaker.Served)
			}
		}
		open = kept
		for started < len(line) && !d.waits(line[started]) {
			a := d.granted("waiting", line[started])
			open = append(open, running{a.Grant, d.now.Add(pace)})
			worst = max(worst, d.now.Sub(want[started]).Abs())
			started++
		}
	}
	if worst > 300*time.Millisecond {
		t.Errorf("the outlook was wrong by up to %v", worst)
	}
}

// An outage is over once the ramp is, whether or not anybody waits or looks.
func TestOutageEndsByItself(t *testing.T) {
	c := slots(10)
	c.Ramp = 5 * time.Second
	c.Buckets.Shop = Limit{Burst: 1} // one retry, ever
	d := newDesk(t, c)
	d.fail(host)
	poor := Claim{Retry: true, Shop: "poor", MaxWait: time.Hour}
	line := d.line(2, poor) // the second has a slot, and never a token
	d.until(at(2 * time.Second))
	d.end(d.granted("probe", line[0]).Grant, breaker.Alive)
	if next := d.l.Tick(at(6 * time.Second)); next.After(at(7 * time.Second)) {
		t.Errorf("Tick = %v, want the end of the ramp", next.Sub(t0))
	}
	d.until(at(7 * time.Second))
	if v := d.l.Hosts(d.now)[0]; v.Outage != nil {
		t.Errorf("Outage = %+v with nobody in line but who lacks a token", v.Outage)
	}
	if last := d.events[len(d.events)-1]; last.Reason != breaker.ReasonWorkedOff || !last.At.Equal(at(7*time.Second)) {
		t.Errorf("last event %+v, want worked off at the end of the ramp", last)
	}
}

// At a host that is always busy somebody who failed is always in line. What the outage
// kept waiting has still had its turn some day.
func TestOutageOfABusyHostEnds(t *testing.T) {
	d := newDesk(t, slots(2))
	d.fail(host)
	late := d.line(5, Claim{MaxWait: time.Hour})
	d.until(at(2 * time.Second))
	d.end(d.granted("probe", late[0]).Grant, breaker.Alive)
	for ; d.now.Before(at(40 * time.Second)); d.until(d.now.Add(time.Second)) {
		d.line(1, Claim{Retry: true, MaxWait: time.Hour})
		if v := d.l.Hosts(d.now)[0]; (v.Outage == nil) != d.now.After(at(31*time.Second)) {
			t.Fatalf("%v: Outage = %+v, want it over max_wait after the breaker closed", d.now.Sub(t0), v.Outage)
		}
	}
}
