package limiter

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/breaker"
)

// states lists the changes of a host's breaker.
func (d *desk) states() (list []string) {
	for _, e := range d.events {
		list = append(list, fmt.Sprintf("%v %v %v", e.At.Sub(t0), e.To, e.Reason))
	}
	return list
}

func TestCase_CB_01_HalfOpenLetsExactlyTheProbesThrough(t *testing.T) {
	d := newDesk(t, config)
	d.fail(host)
	d.refused(Claim{FailOpen: true}, RefusedBreaker, at(2*time.Second))
	d.until(at(2 * time.Second))
	probe := d.start(Claim{FailOpen: true})
	for range 99 { // the hint while a probe is out: one opening's time
		d.refused(Claim{FailOpen: true}, RefusedBreaker, at(4*time.Second))
	}
	d.until(at(2500 * time.Millisecond))
	d.end(probe, breaker.Alive)
	d.start(Claim{FailOpen: true})
	want := []string{"0s open consecutive_failures", "2s half_open probe", "2.5s closed probe_alive"}
	if diff := cmp.Diff(want, d.states()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestProbesOneAfterTheOther(t *testing.T) {
	for _, probes := range []int{1, 3} {
		c := config
		c.Breaker.Probes = probes
		d := newDesk(t, c)
		d.fail(host)
		var line []*Ticket
		for range 10 {
			line = append(line, d.wait(Claim{}, causeBreaker, at(2*time.Second)))
		}
		d.until(at(2 * time.Second))
		out := 0
		for _, ticket := range line {
			if !d.waits(ticket) {
				out++
			}
		}
		if out != probes {
			t.Errorf("%d probes out, want %d", out, probes)
		}
		if v := d.l.View(line[9], d.now); v.Cause != causeBreaker || v.Place != 10-probes || !v.At.IsZero() {
			t.Errorf("View while a probe is out = %+v, want the breaker, no date", v)
		}
		first := d.granted("first", line[0])
		if first.Cause != causeBreaker || first.AtGate != 2*time.Second {
			t.Errorf("Answer = %+v, want 2s at the breaker", first)
		}
		d.l.Release(first.Grant, d.now) // without a report it says nothing
		d.granted("next", line[probes])
		if probes < 9 && !d.waits(line[probes+1]) {
			t.Error("one place given back let two through")
		}
	}
}

func TestCase_CB_08_LateResultsChangeNothing(t *testing.T) {
	d := newDesk(t, config)
	var slow []Grant
	for range 20 {
		slow = append(slow, d.start(Claim{}))
	}
	d.fail(host)
	d.until(at(2100 * time.Millisecond))
	probe := d.start(Claim{FailOpen: true})
	d.until(at(2500 * time.Millisecond))
	for i, g := range slow {
		d.end(g, breaker.Result(1+i%2))
	}
	d.until(at(3100 * time.Millisecond))
	d.end(probe, breaker.Alive)
	want := []string{"0s open consecutive_failures", "2.1s half_open probe", "3.1s closed probe_alive"}
	if diff := cmp.Diff(want, d.states()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestCase_CB_09_WaitingForTheBreakerIsNoAttempt(t *testing.T) {
	d := newDesk(t, config)
	d.fail(host)
	fits := d.wait(Claim{Deadline: at(2 * time.Second)}, causeBreaker, at(2*time.Second))
	d.refused(Claim{Deadline: at(2*time.Second - 1)}, RefusedBreaker, at(2*time.Second))
	d.refused(Claim{MaxWait: 2*time.Second - 1}, RefusedBreaker, at(2*time.Second))
	d.until(at(2 * time.Second))
	d.end(d.granted("fits", fits).Grant, breaker.Alive)
	if !d.l.Closed(host, d.now) {
		t.Error("the call that waited did not close the breaker")
	}
}

// A shop that is dead by itself, with many that have waited for longest, does not keep
// the others cut off: after its failure another shop probes.
func TestAnotherShopProbesAfterAFailure(t *testing.T) {
	d := newDesk(t, slots(10))
	d.fail(host)
	dead := d.line(20, Claim{Shop: "dead", MaxWait: 10 * time.Second}) // aged
	well := d.line(1, Claim{Shop: "well"})
	d.until(at(2 * time.Second))
	d.end(d.granted("dead", dead[0]).Grant, breaker.Failed)
	d.until(at(6 * time.Second))
	if !d.waits(dead[1]) || d.waits(well[0]) {
		t.Fatal("the shop that failed probes again before another")
	}
	d.l.Cancel(well[0].Answer().Grant, d.now)
	d.granted("alone", dead[1]) // rather than nobody
}

// Whoever has waited longest is about to run out of time: a probe that ends with
// its call would say that the host is still down.
func TestProbesHaveTime(t *testing.T) {
	d := newDesk(t, config)
	d.fail(host)
	old := d.wait(Claim{Deadline: at(2500 * time.Millisecond), ProbeTimeout: time.Second}, causeBreaker, at(2*time.Second))
	young := d.wait(Claim{Deadline: at(5 * time.Second), ProbeTimeout: time.Second}, causeBreaker, at(2*time.Second))
	youngest := d.wait(Claim{Deadline: at(6 * time.Second), ProbeTimeout: time.Second}, causeBreaker, at(2*time.Second))
	d.until(at(2 * time.Second))
	if probe := d.granted("young", young); !d.waits(old) || !d.waits(youngest) {
		t.Error("more than the probe went")
	} else {
		d.end(probe.Grant, breaker.Alive)
	}
	d.granted("old", old)
	d.granted("youngest", youngest)

	d.fail(host)
	first := d.wait(Claim{Deadline: at(6 * time.Second), ProbeTimeout: time.Second}, causeBreaker, at(4*time.Second))
	d.wait(Claim{Deadline: at(7 * time.Second), ProbeTimeout: time.Second}, causeBreaker, at(4*time.Second))
	d.until(at(4 * time.Second))
	d.granted("first", first) // with time enough the turn decides
}

// Where the first in turn is short of time, or has tried more often, the probe is still
// chosen by turn from the others; who has no deadline has the most time.
func TestProbesKeepTheirTurn(t *testing.T) {
	const hasty, later = 2500 * time.Millisecond, 9 * time.Second // half a second to probe, and time enough
	tests := map[string]struct {
		line []Claim // the first one's turn comes first
		want int     // who probes
	}{
		"no deadline":          {[]Claim{{Priority: -2, Deadline: at(hasty)}, {Priority: -1}, {Deadline: at(later)}}, 1},
		"retry, no deadline":   {[]Claim{{Priority: -2, Deadline: at(hasty)}, {Retry: true, Retries: 1}, {Retry: true, Retries: 1, Deadline: at(later)}}, 1},
		"tried more often":     {[]Claim{{Priority: -2, Retry: true, Retries: 2}, {Retry: true, Retries: 1, Deadline: at(later)}, {Priority: 9, Retry: true, Retries: 1}}, 1},
		"of equal turn":        {[]Claim{{Priority: 2, Retry: true, Retries: 3}, {Priority: 1, Retry: true, Retries: 2}, {Retry: true, Retries: 1}}, 2},
		"never tried":          {[]Claim{{Priority: -2, Retry: true, Retries: 1}, {Retry: true, Retries: 1}, {Priority: 9, Deadline: at(later)}}, 2},
		"earlier deadline":     {[]Claim{{Priority: -2, Deadline: at(hasty)}, {Priority: -1, Deadline: at(later - 1)}, {Deadline: at(later)}}, 1},
		"behind others":        {[]Claim{{Priority: -2, Deadline: at(hasty)}, {Priority: -1, Deadline: at(hasty)}, {Deadline: at(later)}}, 2},
		"all short":            {[]Claim{{Priority: -2, Deadline: at(hasty)}, {Priority: -1, Deadline: at(hasty + 2)}, {Deadline: at(hasty + 1)}}, 1},
		"fresh before retry":   {[]Claim{{Priority: -2, Retry: true, Deadline: at(hasty)}, {Priority: -1}, {Retry: true}}, 1},
		"another has no token": {[]Claim{{Priority: -2, Deadline: at(hasty)}, {Priority: -1, Retry: true, Shop: "spent", Deadline: at(later + 1)}, {Deadline: at(later)}}, 2},
	}
	for name, tt := range tests {
		d := newDesk(t, tokens(off, off, Limit{Rate: 0.01, Burst: 1}))
		d.end(d.start(Claim{Retry: true, Shop: "spent", Host: "other.test:80"}), breaker.Alive)
		d.fail(host)
		var line []*Ticket
		for _, c := range tt.line {
			c.ProbeTimeout = time.Second
			_, ticket := d.l.Ask(d.claim(c), d.now)
			line = append(line, ticket)
		}
		d.until(at(2 * time.Second))
		for i, ticket := range line {
			if got, want := ticket == nil || !d.waits(ticket), i == tt.want; got != want {
				t.Errorf("%s: call %d probes = %v, want %v", name, i, got, want)
			}
		}
	}
}

// A failed probe pushes the date back; who cannot wait that long ends at once.
func TestReopening(t *testing.T) {
	d := newDesk(t, config)
	d.fail(host)
	probe := d.wait(Claim{Arrived: at(-time.Minute), MaxWait: 7 * time.Second}, causeBreaker, at(2*time.Second)) // they all are beyond half of max_wait
	deadline := d.wait(Claim{Deadline: at(6*time.Second - 1)}, causeBreaker, at(2*time.Second))
	patience := d.wait(Claim{MaxWait: 6*time.Second - 1}, causeBreaker, at(2*time.Second))
	fits := d.wait(Claim{Deadline: at(6 * time.Second), MaxWait: 6 * time.Second}, causeBreaker, at(2*time.Second))
	d.until(at(2 * time.Second))
	d.end(d.granted("probe", probe).Grant, breaker.Failed)
	for name, ticket := range map[string]*Ticket{"deadline": deadline, "patience": patience} {
		if a := d.turnedAway(name, ticket, RefusedBreaker); !a.At.Equal(at(6 * time.Second)) {
			t.Errorf("%s: At = %v, want the next probe at 6s", name, a.At.Sub(t0))
		}
	}
	d.until(at(6 * time.Second))
	d.granted("fits", fits)
}

// Opening turns away those in line who do not wait for breakers.
func TestFailOpenInLine(t *testing.T) {
	c := slots(6)
	d := newDesk(t, c)
	var held []Grant
	for range 6 {
		held = append(held, d.start(Claim{}))
	}
	open := d.wait(Claim{FailOpen: true}, causeGate, time.Time{})
	waits := d.wait(Claim{}, causeGate, time.Time{})
	later := d.wait(Claim{FailOpen: true, Retry: true, NotBefore: at(time.Second), Cause: "backoff"}, "backoff", at(time.Second))
	for _, g := range held[:5] { // the slots are still held
		d.l.Report(g, breaker.Failed, d.now)
	}
	if a := d.turnedAway("open", open, RefusedBreaker); !a.At.Equal(at(2*time.Second)) || a.Cause != causeBreaker {
		t.Errorf("Answer = %+v, want the breaker until 2s", a)
	}
	d.until(at(time.Second))
	d.turnedAway("later", later, RefusedBreaker)
	d.refused(Claim{FailOpen: true, Retry: true, NotBefore: at(2*time.Second - 1), Cause: "backoff"}, RefusedBreaker, at(2*time.Second))
	d.wait(Claim{FailOpen: true, Retry: true, NotBefore: at(2 * time.Second), Cause: "backoff"}, "backoff", at(2*time.Second))
	for _, g := range held {
		d.l.Release(g, d.now)
	}
	d.until(at(2 * time.Second))
	d.granted("waits", waits)
}

func TestSilentProbeReopens(t *testing.T) {
	d := newDesk(t, config)
	d.fail(host)
	d.until(at(2 * time.Second))
	probe := d.start(Claim{ProbeTimeout: 15 * time.Second})
	waits := d.wait(Claim{}, causeBreaker, time.Time{})
	d.until(at(17 * time.Second))
	if v := d.l.View(waits, d.now); !v.At.Equal(at(21 * time.Second)) {
		t.Errorf("View = %+v, want the next probe at 21s", v)
	}
	d.end(probe, breaker.Alive) // too late
	d.until(at(21 * time.Second))
	d.granted("waits", waits)
	want := []string{"0s open consecutive_failures", "2s half_open probe", "17s open probe_silent", "21s half_open probe"}
	if diff := cmp.Diff(want, d.states()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestTunnelsAreNoProbes(t *testing.T) {
	d := newDesk(t, config)
	for range 4 {
		d.end(d.start(Claim{}), breaker.Failed)
	}
	d.end(d.start(Claim{Tunnel: true}), breaker.Alive) // does not heal
	d.end(d.start(Claim{Tunnel: true}), breaker.Failed)
	ticket := d.wait(Claim{Tunnel: true}, causeBreaker, at(2*time.Second))
	d.until(at(2 * time.Second))
	d.end(d.granted("tunnel", ticket).Grant, breaker.Alive)
	if d.l.Closed(host, d.now) {
		t.Error("a tunnel closed the breaker")
	}
	tunnel := d.start(Claim{Tunnel: true})
	probe := d.start(Claim{}) // its place is free
	d.wait(Claim{}, causeBreaker, time.Time{})
	d.end(tunnel, breaker.Failed) // fails the host
	if v := d.l.Hosts(d.now)[0]; v.Breaker.State != breaker.Open {
		t.Errorf("State = %v, want open", v.Breaker.State)
	}
	d.end(probe, breaker.Alive) // of an earlier state
	if d.l.Closed(host, d.now) {
		t.Error("a late result closed the breaker")
	}
}

func TestClosingReleasesWhoWaits(t *testing.T) {
	c := slots(3)
	d := newDesk(t, c)
	d.fail(host)
	var line []*Ticket
	for i := range 6 {
		line = append(line, d.wait(Claim{Retry: i%2 == 0}, causeBreaker, at(2*time.Second)))
	}
	d.until(at(2 * time.Second))
	d.end(d.granted("probe", line[0]).Grant, breaker.Alive)
	for i, ticket := range line[1:] {
		if got, want := d.waits(ticket), i >= 3; got != want {
			t.Errorf("call %d waits: %v, want %v", i+1, got, want)
		}
	}
	if v := d.l.View(line[4], d.now); v.Cause != causeGate {
		t.Errorf("View = %+v, want a slot missing", v)
	}
}

func TestCase_RA_11_PauseHoldsOneShopOnly(t *testing.T) {
	d := newDesk(t, slots(1))
	retry := Claim{Shop: "A", Retry: true}
	held := d.start(Claim{Host: "u2.test:80"})
	full := d.start(Claim{})
	inLine := d.wait(retry, causeGate, time.Time{})
	planned := retry
	planned.NotBefore, planned.Cause = at(time.Second), "backoff"
	backoff := d.wait(planned, "backoff", at(time.Second))
	planned.NotBefore = at(5 * time.Second)
	longer := d.wait(planned, "backoff", at(5*time.Second))
	planned.NotBefore, planned.Deadline = at(time.Second), at(2*time.Second)
	hasty := d.wait(planned, "backoff", at(time.Second))

	d.l.Pause(host, "A", at(3*time.Second), d.now)
	d.l.Pause(host, "A", at(2*time.Second), d.now) // shorter: does not count
	d.l.Pause(host, "", at(9*time.Second), d.now)  // no shop, no pause
	d.l.Pause(host, "B", d.now, d.now)             // over already
	for name, ticket := range map[string]*Ticket{"in line": inLine, "backoff": backoff} {
		if v := d.l.View(ticket, d.now); v.Cause != "pause" || !v.At.Equal(at(3*time.Second)) {
			t.Errorf("%s: View = %+v, want a pause until 3s", name, v)
		}
	}
	if v := d.l.View(longer, d.now); v.Cause != "backoff" || !v.At.Equal(at(5*time.Second)) {
		t.Errorf("longer: View = %+v, want its own backoff", v)
	}
	if a := d.turnedAway("hasty", hasty, RefusedPause); !a.At.Equal(at(3 * time.Second)) {
		t.Errorf("At = %v, want 3s", a.At.Sub(t0))
	}
	d.refused(planned, RefusedPause, at(3*time.Second))
	d.wait(retry, "pause", at(3*time.Second))
	d.end(held, breaker.Alive)
	d.end(d.start(Claim{Host: "u2.test:80", Shop: "A", Retry: true}), breaker.Alive) // another host
	d.end(full, breaker.Alive)
	for _, c := range []Claim{{Shop: "B", Retry: true}, {Shop: "A"}, {Retry: true}} {
		d.end(d.start(c), breaker.Alive)
	}
	d.until(at(3 * time.Second))
	if a := d.granted("in line", inLine); a.Cause != "pause" {
		t.Errorf("Cause = %q, want pause", a.Cause)
	}
	if next := d.l.Tick(d.now); !next.Equal(at(5 * time.Second)) {
		t.Errorf("Tick = %v, want 5s", next.Sub(t0))
	}
}

func TestResetBreaker(t *testing.T) {
	d := newDesk(t, config)
	d.fail(host)
	ticket := d.wait(Claim{}, causeBreaker, at(2*time.Second))
	if d.l.ResetBreaker("nobody:80", d.now) {
		t.Error("ResetBreaker of an unknown host = true")
	}
	if !d.l.ResetBreaker(host, d.now) {
		t.Error("ResetBreaker = false, want true")
	}
	d.granted("ticket", ticket)
	if e := d.events[len(d.events)-2]; e.To != breaker.Closed || e.Reason != breaker.ReasonOperator || e.Host != host {
		t.Errorf("event = %+v, want closed by the operator", e)
	}
	if e := d.events[len(d.events)-1]; e.Reason != breaker.ReasonWorkedOff || e.From != e.To || e.Host != host {
		t.Errorf("event = %+v, want the outage worked off", e)
	}
}

func TestConfigureGates(t *testing.T) {
	c := slots(1)
	d := newDesk(t, c)
	held := d.start(Claim{})
	first, second := d.wait(Claim{}, causeGate, time.Time{}), d.wait(Claim{}, causeGate, time.Time{})
	c.MaxInFlight = 2
	d.l.Configure(c, d.now)
	d.granted("first", first)
	if !d.waits(second) {
		t.Error("one more slot started two")
	}
	c.MaxInFlight = 1
	d.l.Configure(c, d.now)
	d.end(held, breaker.Alive)
	if !d.waits(second) {
		t.Error("started over the new limit")
	}
	d.end(first.Answer().Grant, breaker.Alive)
	d.end(d.granted("second", second).Grant, breaker.Alive)
	d.fail(host)
	c.Breaker.OpenMax, c.Breaker.Open = time.Second, time.Second
	d.l.Configure(c, d.now)
	ticket := d.wait(Claim{}, causeBreaker, at(time.Second))
	d.until(at(time.Second))
	d.granted("ticket", ticket)
}

func TestHostsAndHealth(t *testing.T) {
	d := newDesk(t, config)
	if d.l.Healthy(host, d.now) || !d.l.Closed(host, d.now) {
		t.Error("an unknown host is closed and not known to be healthy")
	}
	for range 10 {
		d.end(d.start(Claim{}), breaker.Alive)
	}
	if !d.l.Healthy(host, d.now) {
		t.Error("Healthy after 10 good answers = false, want true")
	}
	d.fail("b.test:80")
	d.wait(Claim{Host: "b.test:80"}, causeBreaker, at(2*time.Second))
	d.wait(Claim{Host: "b.test:80", Retry: true, NotBefore: at(time.Second), Cause: "backoff"}, "backoff", at(time.Second))
	d.start(Claim{Host: "a.test:80"})
	want := []HostView{
		{Host: "a.test:80", InFlight: 1, Limit: 100, Capacity: 100},
		{Host: "b.test:80", Waiting: 1, Planned: 1, Limit: 100, Breaker: breaker.Status{
			State: breaker.Open, Reason: breaker.ReasonRow, Since: t0, Outage: t0, Reach: breaker.ReachAnybody, Until: at(2 * time.Second), Row: 5, Calls: 5, Failures: 5,
		}, Outage: &Outage{Since: t0, Reach: "unlabelled", Waiting: 1, Most: 1}},
		{Host: host, Limit: 100, Capacity: 100, Breaker: breaker.Status{Calls: 10}},
	}
	if diff := cmp.Diff(want, d.l.Hosts(d.now)); diff != "" {
		t.Errorf("Hosts (-want +got):\n%s", diff)
	}
}

func TestLimitsView(t *testing.T) {
	d := newDesk(t, tokens(Limit{Rate: 1, Burst: 2}, off, Limit{Rate: 0.5, Burst: 1}))
	d.start(Claim{Shop: "s", TaskType: "x", Retry: true})
	d.wait(Claim{Shop: "s", TaskType: "x", Retry: true}, causeTokens, at(2*time.Second))
	d.wait(Claim{Shop: "s", Retry: true, NotBefore: at(time.Second), Cause: "backoff"}, "backoff", at(time.Second))
	want := []BucketView{
		{Dimension: "global", Rate: 1, Burst: 2, Tokens: 1, Waiting: 1, Planned: 1},
		{Dimension: "task_type", Name: "x", Off: true, Waiting: 1},
		{Dimension: "shop", Name: "s", Rate: 0.5, Burst: 1, Waiting: 1, Planned: 1, NextAt: at(2 * time.Second), ClearsAt: at(2 * time.Second)},
	}
	if diff := cmp.Diff(want, d.l.Limits(d.now)); diff != "" {
		t.Errorf("Limits (-want +got):\n%s", diff)
	}
}

// A client that names ever new hosts gets gates, but they are forgotten.
func TestHostsAreBounded(t *testing.T) {
	d := newDesk(t, config)
	kept := d.start(Claim{Host: "busy:80"})
	d.fail("open:80")
	for i := range maxHosts + 100 {
		d.end(d.start(Claim{Host: fmt.Sprint(i)}), breaker.Alive)
	}
	if got := d.l.board.gates.entries.Len(); got > maxHosts {
		t.Errorf("%d gates, want at most %d", got, maxHosts)
	}
	if d.l.Closed("open:80", d.now) {
		t.Error("a gate was forgotten though its breaker is open")
	}
	d.end(kept, breaker.Failed)
	d.until(at(time.Minute)) // long past its probe: now it may go
	for i := range maxHosts + 100 {
		d.end(d.start(Claim{Host: fmt.Sprint("again", i)}), breaker.Alive)
	}
	if got := d.l.board.gates.entries.Len(); got > maxHosts {
		t.Errorf("%d gates, want at most %d", got, maxHosts)
	}
	if !d.l.Closed("open:80", d.now) {
		t.Error("a gate nobody wants to probe is never forgotten")
	}
}

func TestNothingIsAllocatedWhenNothingWaits(t *testing.T) {
	plenty := Limit{Rate: 1e6, Burst: 1e6}
	for _, tt := range []struct {
		name  string
		claim Claim
	}{
		{"fresh call", Claim{Shop: "s17", TaskType: "order_ship", Deadline: at(time.Hour)}},
		{"retry with tokens", Claim{Shop: "s17", TaskType: "order_ship", Deadline: at(time.Hour), Retry: true, Retries: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			settings := config
			settings.Adaptive, settings.Buckets = true, Buckets{plenty, plenty, plenty}
			d := newDesk(t, settings)
			c := d.claim(tt.claim)
			allocs := testing.AllocsPerRun(1000, func() {
				d.now = d.now.Add(time.Millisecond)
				a, _ := d.l.Ask(c, d.now)
				d.l.Report(a.Grant, breaker.Served, d.now)
				d.l.Release(a.Grant, d.now)
			})
			if allocs != 0 {
				t.Errorf("%v allocations, want 0", allocs)
			}
		})
	}
}

// Admits asks whether a call may choose this host: a due probe is for one call,
// the others are told to look elsewhere meanwhile.
func TestAdmits(t *testing.T) {
	d := newDesk(t, config)
	admits := func(want bool) {
		t.Helper()
		if got := d.l.Admits(host, d.now); got != want {
			t.Errorf("Admits after %v = %v, want %v", d.now.Sub(t0), got, want)
		}
	}
	admits(true)
	d.fail(host)
	admits(false)
	d.until(at(2*time.Second - 1))
	admits(false)
	d.until(at(2 * time.Second))
	admits(true)
	probe := d.start(Claim{FailOpen: true})
	admits(false)
	d.end(probe, breaker.Alive)
	admits(true)
}
