package breaker

import (
	"testing"
	"time"
)

func TestExits(t *testing.T) {
	now := time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC)
	e := NewExits(Config{ConsecutiveFailures: 2, MinCalls: 20, Window: 10 * time.Second, Open: time.Second, OpenMax: 4 * time.Second, Probes: 1})
	enter := func(name string, want bool) Pass {
		t.Helper()
		p, ok, _, _ := e.Enter(name, time.Minute, now)
		if ok != want {
			t.Fatalf("Enter(%s) at %v = %v, want %v", name, now, ok, want)
		}
		return p
	}
	if ok, _ := e.Allow("a", now); !ok {
		t.Fatal("Allow of an unknown exit = false, want true")
	}
	e.Report("a", enter("a", true), Failed, now)
	event := e.Report("a", enter("a", true), Failed, now)
	if event == nil || event.Scope != "egress" || event.Host != "a" || event.To != Open {
		t.Fatalf("second failure reported %+v, want egress a to open", event)
	}
	if ok, at := e.Allow("a", now); ok || !at.Equal(now.Add(time.Second)) {
		t.Errorf("Allow while open = %v, %v, want false and a second later", ok, at)
	}
	enter("a", false)
	enter("b", true) // another one is not touched

	now = now.Add(time.Second)
	probe := enter("a", true)
	if ok, at := e.Allow("a", now); ok || !at.After(now) {
		t.Errorf("Allow beside the probe = %v, %v, want false and a later date", ok, at)
	}
	if event := e.Report("a", probe, Alive, now); event == nil || event.To != Closed {
		t.Errorf("a good probe reported %+v, want closed", event)
	}
	enter("a", true)
	if got := len(e.Used(now)); got != 2 {
		t.Errorf("Used lists %d exits, want 2", got)
	}
}

func TestExitsResetAndConfigure(t *testing.T) {
	now := time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC)
	e := NewExits(Config{ConsecutiveFailures: 1, MinCalls: 20, Window: 10 * time.Second, Open: time.Hour, OpenMax: time.Hour})
	fail := func() {
		p, _, _, _ := e.Enter("a", time.Minute, now)
		e.Report("a", p, Failed, now)
	}
	fail()
	if ok, _ := e.Allow("a", now); ok {
		t.Fatal("Allow after the failure = true, want false")
	}
	if event := e.Reset("a", now); event == nil || event.To != Closed {
		t.Errorf("Reset reported %+v, want closed", event)
	}
	if e.Reset("a", now) != nil || e.Reset("unknown", now) != nil {
		t.Error("Reset of a closed breaker reported a change, want none")
	}
	e.Configure(Config{ConsecutiveFailures: 2, MinCalls: 20, Window: 10 * time.Second, Open: time.Hour, OpenMax: time.Hour}, now)
	fail()
	if ok, _ := e.Allow("a", now); !ok {
		t.Error("Allow after one failure of two = false, want true")
	}
}

// Who waits for an exit to recover is told at once, however it came about.
func TestExitsTellOfTheEnd(t *testing.T) {
	now := time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC)
	e := NewExits(Config{ConsecutiveFailures: 1, MinCalls: 20, Window: 10 * time.Second, Open: time.Second, OpenMax: time.Second})
	told := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	if e.Closed("a") != nil {
		t.Error("Closed of an unknown exit is a channel, want nil")
	}
	p, _, _, _ := e.Enter("a", time.Minute, now)
	e.Report("a", p, Failed, now)
	one, two := e.Closed("a"), e.Closed("a")
	if told(one) {
		t.Fatal("Closed is closed while the breaker is open")
	}
	now = now.Add(time.Second)
	p, _, _, _ = e.Enter("a", time.Minute, now)
	if told(one) {
		t.Error("Closed is closed by a probe that is not over")
	}
	e.Report("a", p, Alive, now)
	if !told(one) || !told(two) || e.Closed("a") != nil {
		t.Error("not all who waited were told that the breaker closed")
	}
}
