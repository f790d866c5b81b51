package breaker

import (
	"testing"
	"time"
)

// exitsBench drives the breakers of exits at a time of its own.
type exitsBench struct {
	*Exits
	t   *testing.T
	now time.Time
}

func newExitsBench(t *testing.T, failures int, open time.Duration) *exitsBench {
	return &exitsBench{
		t: t, now: time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC),
		Exits: NewExits(Config{ConsecutiveFailures: failures, MinCalls: 20, Window: 10 * time.Second, Open: open, OpenMax: 4 * open, Probes: 1}),
	}
}

// enter books an attempt and checks whether it may go.
func (b *exitsBench) enter(exit, host string, want bool) ExitPass {
	b.t.Helper()
	p, ok, _, _ := b.Enter(exit, host, time.Minute, b.now)
	if ok != want {
		b.t.Fatalf("Enter(%s, %s) = %v, want %v", exit, host, ok, want)
	}
	return p
}

// try makes an attempt that may go, and returns the names and states of what changed.
func (b *exitsBench) try(exit, host string, r ExitResult) (changes []string) {
	b.t.Helper()
	for _, e := range b.Report(exit, host, b.enter(exit, host, true), r, b.now) {
		if e.Scope != "egress" {
			b.t.Errorf("scope = %s, want egress", e.Scope)
		}
		changes = append(changes, e.Host+" "+e.To.String())
	}
	return changes
}

func (b *exitsBench) want(got []string, want ...string) {
	b.t.Helper()
	if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
		b.t.Errorf("changes = %v, want %v", got, want)
	}
}

func TestExits(t *testing.T) {
	b := newExitsBench(t, 2, time.Second)
	if ok, _ := b.Allow("a", "h", b.now); !ok {
		t.Fatal("Allow of an unknown exit = false, want true")
	}
	b.want(b.try("a", "h", ExitIll))
	b.want(b.try("a", "h", ExitIll), "a open")
	if ok, at := b.Allow("a", "h", b.now); ok || !at.Equal(b.now.Add(time.Second)) {
		t.Errorf("Allow while open = %v, %v, want false and a second later", ok, at)
	}
	b.enter("a", "other", false) // whatever the host
	b.enter("b", "h", true)      // another one is not touched

	b.now = b.now.Add(time.Second)
	probe := b.enter("a", "h", true)
	if ok, at := b.Allow("a", "h", b.now); ok || !at.After(b.now) {
		t.Errorf("Allow beside the probe = %v, %v, want false and a later date", ok, at)
	}
	if events := b.Report("a", "h", probe, ExitAlive, b.now); len(events) != 1 || events[0].To != Closed {
		t.Errorf("a good probe reported %v, want closed", events)
	}
	b.enter("a", "h", true)
	if got := len(b.Used(b.now)); got != 1 {
		t.Errorf("Used lists %d breakers, want that of the exit that was reported on", got)
	}
}

// A host that the exit cannot reach is cut off alone, and only there.
func TestExitsCutOffOneHost(t *testing.T) {
	b := newExitsBench(t, 2, time.Second)
	b.want(b.try("a", "dead", ExitNoWay))
	b.want(b.try("a", "dead", ExitNoWay), "a to dead open")
	b.enter("a", "dead", false)
	b.enter("b", "dead", true)
	for range 5 {
		b.want(b.try("a", "live", ExitAlive))
	}
	b.want(b.try("a", "live", ExitIll)) // the row of the exit begins anew after what it did well
	b.want(b.try("a", "live", ExitNoWay))
	b.want(b.try("a", "live", ExitIll))
	b.now = b.now.Add(time.Second)
	b.want(b.try("a", "dead", ExitAlive), "a to dead closed")
}

func TestExitsNothingLearnt(t *testing.T) {
	b := newExitsBench(t, 1, time.Second)
	b.want(b.try("a", "h", ExitNothing))
	b.want(b.try("a", "h", ExitIll), "a open")
	b.now = b.now.Add(time.Second)
	b.want(b.try("a", "h", ExitNothing)) // a probe that was given up
	b.enter("a", "h", true)              // leaves its place to another
}

func TestExitsResetAndConfigure(t *testing.T) {
	b := newExitsBench(t, 1, time.Hour)
	b.try("a", "h", ExitIll)
	b.enter("a", "h", false)
	if event := b.Reset("a", b.now); event == nil || event.To != Closed {
		t.Errorf("Reset reported %+v, want closed", event)
	}
	if b.Reset("a", b.now) != nil || b.Reset("unknown", b.now) != nil {
		t.Error("Reset of a closed breaker reported a change, want none")
	}
	b.Configure(Config{ConsecutiveFailures: 2, MinCalls: 20, Window: 10 * time.Second, Open: time.Hour, OpenMax: time.Hour}, b.now)
	b.try("a", "h", ExitIll)
	b.enter("a", "h", true) // one failure of two
}

// Who waits for an exit to recover is told at once, however it came about.
func TestExitsTellOfTheEnd(t *testing.T) {
	told := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for _, r := range []ExitResult{ExitIll, ExitNoWay} {
		b := newExitsBench(t, 1, time.Second)
		if b.Closed("a", "h") != nil {
			t.Error("Closed of an unknown exit is a channel, want nil")
		}
		b.try("a", "h", r)
		one, two := b.Closed("a", "h"), b.Closed("a", "h")
		if told(one) {
			t.Fatal("Closed is closed while the breaker is open")
		}
		b.now = b.now.Add(time.Second)
		probe := b.enter("a", "h", true)
		if told(one) {
			t.Error("Closed is closed by a probe that is not over")
		}
		b.Report("a", "h", probe, ExitAlive, b.now)
		if !told(one) || !told(two) || b.Closed("a", "h") != nil {
			t.Error("not all who waited were told that the breaker closed")
		}
	}
}
