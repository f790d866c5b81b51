package limiter

import (
	"testing"
	"time"

	"retryproxy/breaker"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

const host = "u1.test:80"

var config = Config{
	MaxInFlight: 100, RetryShare: 0.3, BacklogShare: 0.1, MaxWait: 30 * time.Second, MaxWaiting: 10_000,
	Breaker: breaker.Config{
		ConsecutiveFailures: 5, FailureRatio: 0.5, MinCalls: 20, Window: 10 * time.Second,
		Open: 2 * time.Second, OpenMax: 8 * time.Second, Probes: 1,
	},
	Buckets: Buckets{
		Global:   Limit{Rate: 5, Burst: 300, Share: 0.2},
		TaskType: Limit{Rate: 50. / 60, Burst: 50, Share: 0.2},
		Shop:     Limit{Rate: 5. / 60, Burst: 5, Share: 0.2},
	},
}

// slots is a config with so many slots and no retry limits.
func slots(n int) Config {
	c := config
	c.MaxInFlight = n
	c.Buckets = Buckets{Limit{Off: true}, Limit{Off: true}, Limit{Off: true}}
	return c
}

// tokens is a config with these limits and plenty of slots.
func tokens(global, taskType, shop Limit) Config {
	c := config
	c.Buckets = Buckets{global, taskType, shop}
	return c
}

// perMinute is the limit "n/m".
func perMinute(n int) Limit { return Limit{Rate: float64(n) / 60, Burst: n} }

var off = Limit{Off: true}

// desk is a limiter with its clock under the test's control.
type desk struct {
	*testing.T
	l      *Limiter
	now    time.Time
	events []breaker.Event
}

func newDesk(t *testing.T, c Config) *desk {
	d := &desk{T: t, now: t0}
	d.l = New(c, func(e breaker.Event) { d.events = append(d.events, e) })
	return d
}

// until lets time pass, with a Tick at each date that falls due.
func (d *desk) until(now time.Time) {
	d.Helper()
	for next := d.l.Tick(d.now); !next.IsZero() && !next.After(now); next = d.l.Tick(d.now) {
		if !next.After(d.now) {
			d.Fatalf("Tick(%v) = %v, want a later date", d.now.Sub(t0), next.Sub(t0))
		}
		d.now = next
	}
	d.now = now
	d.l.Tick(now)
}

// claim fills what most tests do not care about.
func (d *desk) claim(c Claim) *Claim {
	if c.Host == "" {
		c.Host = host
	}
	if c.MaxWait == 0 {
		c.MaxWait = 30 * time.Second
	}
	if c.MaxWait < 0 {
		c.MaxWait = 0
	}
	if c.Arrived.IsZero() {
		c.Arrived = t0
	}
	return &c
}

// start asks and must be granted at once.
func (d *desk) start(c Claim) Grant {
	d.Helper()
	a, ticket := d.l.Ask(d.claim(c), d.now)
	if ticket != nil || a.Refused != "" {
		d.Fatalf("Ask(%+v) = %+v, waits %v, want granted at once", c, a, ticket != nil)
	}
	return a.Grant
}

// wait asks and must get a ticket for this cause and date.
func (d *desk) wait(c Claim, cause string, until time.Time) *Ticket {
	d.Helper()
	a, ticket := d.l.Ask(d.claim(c), d.now)
	if ticket == nil {
		d.Fatalf("Ask(%+v) = %+v, want it to wait", c, a)
	}
	if v := d.l.View(ticket, d.now); v.Cause != cause || !v.At.Equal(until) {
		d.Fatalf("View = %s until %v, want %s until %v", v.Cause, v.At.Sub(t0), cause, until.Sub(t0))
	}
	return ticket
}

// refused asks and must be turned away at once.
func (d *desk) refused(c Claim, reason string, until time.Time) Answer {
	d.Helper()
	a, ticket := d.l.Ask(d.claim(c), d.now)
	if ticket != nil || a.Refused != reason || !a.At.Equal(until) {
		d.Fatalf("Ask(%+v) = %q at %v, waits %v, want %q at %v", c, a.Refused, a.At.Sub(t0), ticket != nil, reason, until.Sub(t0))
	}
	return a
}

// granted wants a ticket to have its grant, and returns it.
func (d *desk) granted(name string, t *Ticket) Answer {
	d.Helper()
	select {
	case <-t.Ready():
	default:
		d.Fatalf("%s: still waits at %v: %+v", name, d.now.Sub(t0), d.l.View(t, d.now))
	}
	if a := t.Answer(); a.Refused != "" {
		d.Fatalf("%s: refused %+v, want granted", name, a)
	}
	return t.Answer()
}

// turnedAway wants a ticket to have been refused.
func (d *desk) turnedAway(name string, t *Ticket, reason string) Answer {
	d.Helper()
	if d.waits(t) || t.Answer().Refused != reason {
		d.Fatalf("%s: waits %v, answer %+v, want refused: %s", name, d.waits(t), t.Answer(), reason)
	}
	return t.Answer()
}

func (d *desk) waits(t *Ticket) bool {
	select {
	case <-t.Ready():
		return false
	default:
		return true
	}
}

// end reports and releases a grant.
func (d *desk) end(g Grant, r breaker.Result) {
	d.l.Report(g, r, d.now)
	d.l.Release(g, d.now)
}

// fail opens a host's breaker.
func (d *desk) fail(host string) {
	d.Helper()
	for range config.Breaker.ConsecutiveFailures {
		d.end(d.start(Claim{Host: host}), breaker.Failed)
	}
	if d.l.Closed(host, d.now) {
		d.Fatalf("%s: breaker still closed", host)
	}
}

func TestSlots(t *testing.T) {
	d := newDesk(t, slots(1))
	first := d.start(Claim{})
	second := d.wait(Claim{}, causeGate, time.Time{})
	third := d.wait(Claim{}, causeGate, time.Time{})
	d.start(Claim{Host: "u2.test:80"}) // another host has its own
	for i, ticket := range []*Ticket{second, third} {
		if v := d.l.View(ticket, d.now); v.Place != i+1 {
			t.Errorf("Place = %d, want %d", v.Place, i+1)
		}
	}
	d.until(at(3 * time.Second))
	d.end(first, breaker.Alive)
	a := d.granted("second", second)
	if a.Cause != causeGate || a.AtGate != 3*time.Second {
		t.Errorf("Answer = %+v, want 3s at the gate", a)
	}
	if v := d.l.View(second, d.now); v != (View{}) {
		t.Errorf("View of an answered ticket = %+v, want nothing", v)
	}
	d.l.Release(first, d.now) // again: must not free the second's slot
	d.l.Report(first, breaker.Failed, d.now)
	if !d.waits(third) {
		t.Error("a second Release gave a slot away")
	}
	d.l.Release(Grant{}, d.now)
	d.l.Report(Grant{}, breaker.Failed, d.now)
	d.l.Cancel(Grant{}, d.now)
	d.end(a.Grant, breaker.Alive)
	d.granted("third", third)
}

func TestOrderOfTurns(t *testing.T) {
	old := at(-time.Minute)
	for name, claims := range map[string][]Claim{ // in the order in which they must go
		"backlog": {
			{Priority: 1, Retries: 2, Retry: true},            // -1
			{Priority: 2, Retries: 9, Retry: true},            // -1: at most three count; later seq
			{Priority: 1, Retry: true, Retries: 1, Shop: "a"}, // 0
			{Priority: 5, Arrived: old.Add(time.Second), Late: true},
			{Priority: 5, Shop: "b", TaskType: "t", Retry: true},
			{Priority: 5, Retry: true}, // the shop of the one before had no turn yet
			{Priority: 5, Late: true},
		},
		"fresh": {
			{Priority: 0},
			{Priority: 5, Arrived: old},
			{Priority: 5, Arrived: old.Add(time.Second)},
			{Priority: 5},
			{Priority: 5},
		},
	} {
		t.Run(name, func(t *testing.T) { inOrder(t, claims) })
	}
}

// inOrder has claims served by one slot, in the order in which they are given.
func inOrder(t *testing.T, claims []Claim) {
	for _, reversed := range []bool{false, true} {
		d := newDesk(t, slots(1))
		held := d.start(Claim{})
		tickets := make([]*Ticket, len(claims))
		for i := range claims {
			k := i
			if reversed && claims[i].Arrived.IsZero() == false {
				continue
			}
			tickets[k] = d.wait(claims[k], causeGate, time.Time{})
		}
		for i := range claims {
			if tickets[i] == nil { // the old ones come last and still overtake
				tickets[i] = d.wait(claims[i], causeGate, time.Time{})
			}
		}
		for i, ticket := range tickets {
			for j, behind := range tickets[i:] {
				if v := d.l.View(behind, d.now); v.Place != j+1 {
					t.Errorf("claim %d: place %d, want %d", i+j, v.Place, j+1)
				}
			}
			d.end(held, breaker.Alive)
			held = d.granted(string(rune('0'+i)), ticket).Grant
		}
	}
}

func TestLeaveClosesTheGap(t *testing.T) {
	d := newDesk(t, slots(1))
	held := d.start(Claim{})
	a, b, c := d.wait(Claim{}, causeGate, time.Time{}), d.wait(Claim{}, causeGate, time.Time{}), d.wait(Claim{}, causeGate, time.Time{})
	d.until(at(time.Second))
	if got := d.l.Leave(b, d.now); got.Refused != RefusedLeft || got.AtGate != time.Second || got.Cause != causeGate {
		t.Errorf("Leave = %+v, want left after 1s at the gate", got)
	}
	if v := d.l.View(c, d.now); v.Place != 2 {
		t.Errorf("Place after the one before left = %d, want 2", v.Place)
	}
	d.end(held, breaker.Alive)
	got := d.l.Leave(a, d.now)
	if got.Refused != "" {
		t.Fatalf("Leave of a granted ticket = %+v, want the grant", got)
	}
	d.l.Refuse(a, "retries_off", d.now)
	if a.Answer().Refused != "" {
		t.Error("Refuse took a grant back")
	}
	d.l.Release(got.Grant, d.now)
	d.granted("c", c)
	later := d.wait(Claim{Retry: true, NotBefore: at(time.Minute), Cause: "backoff"}, "backoff", at(time.Minute))
	d.l.Refuse(later, "retries_off", d.now)
	d.turnedAway("later", later, "retries_off")
	if next := d.l.Tick(d.now); !next.IsZero() {
		t.Errorf("Tick with nobody waiting = %v, want nothing planned", next.Sub(t0))
	}
}

func TestMaxWait(t *testing.T) {
	d := newDesk(t, slots(1))
	held := d.start(Claim{})
	d.refused(Claim{MaxWait: -1}, RefusedSlot, time.Time{})
	short := d.wait(Claim{MaxWait: 2 * time.Second}, causeGate, time.Time{})
	capped := d.wait(Claim{MaxWait: time.Hour}, causeGate, time.Time{}) // 30 s by config
	deadline := d.wait(Claim{Deadline: at(5 * time.Second)}, causeGate, time.Time{})
	d.until(at(2*time.Second - 1))
	if !d.waits(short) {
		t.Error("turned away before max_wait was over")
	}
	d.until(at(2 * time.Second))
	if a := d.turnedAway("short", short, RefusedSlot); a.AtGate != 2*time.Second || a.Cause != causeGate {
		t.Errorf("Answer = %+v, want 2s at the gate", a)
	}
	d.until(at(5 * time.Second))
	d.turnedAway("deadline", deadline, RefusedSlot)
	d.until(at(30 * time.Second))
	d.turnedAway("capped", capped, RefusedSlot)
	d.end(held, breaker.Alive)
}

// Waiting for NotBefore and for tokens does not use max_wait up.
func TestMaxWaitCountsTheGateOnly(t *testing.T) {
	c := slots(1)
	c.Buckets.Shop = perMinute(5)
	d := newDesk(t, c)
	for range 5 {
		d.end(d.start(Claim{Shop: "s", Retry: true}), breaker.Alive)
	}
	ticket := d.wait(Claim{Shop: "s", Retry: true, NotBefore: at(4 * time.Second), Cause: "backoff", MaxWait: 3 * time.Second}, "backoff", at(4*time.Second))
	d.until(at(10 * time.Second)) // 6 s of it for tokens
	held := d.start(Claim{})
	d.until(at(12 * time.Second)) // 2 s at the gate; the token is there
	if v := d.l.View(ticket, d.now); v.Cause != causeGate {
		t.Errorf("View = %+v, want it at the gate", v)
	}
	d.end(held, breaker.Alive)
	if a := d.granted("ticket", ticket); a.AtGate != 2*time.Second || a.Cause != causeGate {
		t.Errorf("Answer = %+v, want 2s at the gate", a)
	}
	d.end(ticket.Answer().Grant, breaker.Alive)
	ticket = d.wait(Claim{Shop: "s", Retry: true, MaxWait: 3 * time.Second}, causeTokens, at(24*time.Second))
	d.start(Claim{})
	d.until(at(15*time.Second - 1))
	if !d.waits(ticket) {
		t.Error("turned away early")
	}
	d.until(at(15 * time.Second))
	d.turnedAway("ticket", ticket, RefusedSlot)
}

func TestMaxWaiting(t *testing.T) {
	c := slots(1)
	c.MaxWaiting = 2
	d := newDesk(t, c)
	d.start(Claim{})
	planned := d.wait(Claim{Retry: true, NotBefore: at(time.Second), Cause: "backoff"}, "backoff", at(time.Second))
	d.wait(Claim{}, causeGate, time.Time{})
	d.wait(Claim{}, causeGate, time.Time{})
	d.refused(Claim{Priority: -5}, RefusedSlot, time.Time{})
	d.start(Claim{Host: "u2.test:80"})
	d.until(at(time.Second))
	d.turnedAway("planned", planned, RefusedSlot)
}

func TestNotBefore(t *testing.T) {
	d := newDesk(t, slots(1))
	ticket := d.wait(Claim{Retry: true, NotBefore: at(1500 * time.Millisecond), Cause: "retry_after", Deadline: at(1500 * time.Millisecond)}, "retry_after", at(1500*time.Millisecond))
	if next := d.l.Tick(d.now); !next.Equal(at(1500 * time.Millisecond)) {
		t.Errorf("Tick = %v, want 1.5s", next.Sub(t0))
	}
	d.until(at(1500*time.Millisecond - 1))
	if !d.waits(ticket) {
		t.Fatal("started before its date")
	}
	d.until(at(1500 * time.Millisecond))
	if a := d.granted("ticket", ticket); a.Cause != "retry_after" || a.AtGate != 0 {
		t.Errorf("Answer = %+v, want retry_after and no time at the gate", a)
	}
	d.refused(Claim{Retry: true, NotBefore: at(3 * time.Second), Cause: "backoff", Deadline: at(2 * time.Second)}, RefusedDeadline, at(3*time.Second))
	d.refused(Claim{Retry: true, NotBefore: at(3 * time.Second), Cause: "retry_after", Deadline: at(2 * time.Second)}, RefusedPause, at(3*time.Second))
}

// A late Tick starts nobody past the deadline, and those due together by turn.
func TestLateTick(t *testing.T) {
	d := newDesk(t, slots(1))
	second := d.wait(Claim{Retry: true, Priority: 5, NotBefore: at(1 * time.Second), Cause: "backoff"}, "backoff", at(time.Second))
	first := d.wait(Claim{Retry: true, Priority: 1, NotBefore: at(2 * time.Second), Cause: "backoff"}, "backoff", at(2*time.Second))
	missed := d.wait(Claim{Retry: true, Priority: 0, NotBefore: at(2 * time.Second), Cause: "backoff", Deadline: at(2 * time.Second)}, "backoff", at(2*time.Second))
	d.now = at(3 * time.Second)
	d.l.Tick(d.now)
	d.granted("first", first)
	d.turnedAway("missed", missed, RefusedDeadline)
	if !d.waits(second) {
		t.Error("both have the one slot")
	}
	line := d.wait(Claim{Priority: 0, Deadline: at(4 * time.Second)}, causeGate, time.Time{})
	d.now = at(5 * time.Second)
	d.end(first.Answer().Grant, breaker.Alive)
	d.turnedAway("line", line, RefusedSlot)
	d.granted("second", second)
}

func TestTheClockNeverFalls(t *testing.T) {
	d := newDesk(t, tokens(Limit{Rate: 1, Burst: 1}, off, off))
	d.now = at(time.Minute)
	d.start(Claim{Retry: true})
	d.now = t0 // a goroutine that read the clock before the lock
	d.wait(Claim{Retry: true}, causeTokens, at(time.Minute+time.Second))
	if next := d.l.Tick(t0); !next.Equal(at(time.Minute + time.Second)) {
		t.Errorf("Tick = %v, want 1m1s", next.Sub(t0))
	}
}

func TestChanged(t *testing.T) {
	d := newDesk(t, slots(1))
	changed := func() bool {
		select {
		case <-d.l.Changed():
			return true
		default:
			return false
		}
	}
	plan := func(after time.Duration) {
		d.wait(Claim{Retry: true, NotBefore: at(after), Cause: "backoff"}, "backoff", at(after))
	}
	d.end(d.start(Claim{}), breaker.Alive)
	if d.l.Tick(t0); changed() {
		t.Error("Changed with nothing planned")
	}
	plan(5 * time.Second)
	if !changed() {
		t.Error("no Changed for the first date")
	}
	d.l.Tick(t0)
	if plan(6 * time.Second); changed() {
		t.Error("Changed for a later date")
	}
	plan(4 * time.Second)
	plan(3 * time.Second)
	if !changed() || changed() {
		t.Error("want one Changed for two earlier dates")
	}
}
