package idempotency

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var flightID = ID{"s17", "k"}

func TestWaitersGetTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flights := NewFlights(10)
		leader := flights.Start(flightID, "call-1")
		want := &FlightResult{Status: 503, Stop: "attempts_exhausted", Advice: "repeat"}
		var group sync.WaitGroup
		var got atomic.Int32
		for range 49 {
			group.Go(func() {
				f, ok := flights.Join(flightID, "call-1")
				if !ok {
					t.Error("Join failed while the leader flies")
					return
				}
				defer f.Leave()
				if <-f.Done(); f.Result() == want {
					got.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := leader.Waiters(); n != 49 {
			t.Errorf("Waiters() = %d, want 49", n)
		}
		if leader.Result() != nil || got.Load() != 0 {
			t.Errorf("a result before the end")
		}
		time.Sleep(time.Second)
		leader.End(want)
		group.Wait()
		if got.Load() != 49 || leader.Waiters() != 0 || flights.Len() != 0 {
			t.Errorf("%d got the result, %d wait, %d fly, want 49, 0, 0", got.Load(), leader.Waiters(), flights.Len())
		}
	})
}

func TestJoinNeedsTheVeryRun(t *testing.T) {
	flights := NewFlights(10)
	if _, ok := flights.Join(flightID, "call-1"); ok {
		t.Error("Join of what was never started works")
	}
	f := flights.Start(flightID, "call-1")
	if _, ok := flights.Join(flightID, "call-0"); ok {
		t.Error("Join of an earlier run works")
	}
	if _, ok := flights.Join(ID{"s18", "k"}, "call-1"); ok {
		t.Error("Join in another tenant works")
	}
	if f.Waiters() != 0 {
		t.Errorf("Waiters() = %d after failed joins", f.Waiters())
	}
	f.End(&FlightResult{})
	if _, ok := flights.Join(flightID, "call-1"); ok {
		t.Error("Join after the end works")
	}
}

// The store lets the next run begin before the leader of the last one says End.
func TestEndOfAnOldFlightLeavesTheNewOne(t *testing.T) {
	flights := NewFlights(1)
	old := flights.Start(flightID, "call-1")
	waiter, _ := flights.Join(flightID, "call-1")
	next := flights.Start(flightID, "call-2")
	result := &FlightResult{Status: 201}
	old.End(result)
	if <-waiter.Done(); waiter.Result() != result {
		t.Error("the waiter of the old flight lost its result")
	}
	if f, ok := flights.Join(flightID, "call-2"); !ok || f != next {
		t.Error("the end of the old flight took the new one away")
	}
}

func TestOnlyTheFirstEndCounts(t *testing.T) {
	for _, first := range []*FlightResult{nil, {Status: 201}} {
		f := NewFlights(1).Start(flightID, "call-1")
		f.End(first)
		f.End(&FlightResult{Status: 500})
		if <-f.Done(); f.Result() != first {
			t.Errorf("Result() = %v, want %v", f.Result(), first)
		}
	}
}

func TestFlightsAreBounded(t *testing.T) {
	flights := NewFlights(2)
	a := flights.Start(ID{"t", "a"}, "1")
	flights.Start(ID{"t", "b"}, "2")
	unseen := flights.Start(ID{"t", "c"}, "3")
	if _, ok := flights.Join(ID{"t", "c"}, "3"); ok || flights.Len() != 2 {
		t.Errorf("%d flights can be joined, want 2", flights.Len())
	}
	unseen.End(&FlightResult{})
	a.End(&FlightResult{})
	flights.Start(ID{"t", "d"}, "4")
	if _, ok := flights.Join(ID{"t", "d"}, "4"); !ok {
		t.Error("an end makes no room")
	}
}

func BenchmarkFlight(b *testing.B) {
	flights := NewFlights(1000)
	result := &FlightResult{}
	b.ReportAllocs()
	for b.Loop() {
		flights.Start(flightID, "call-1").End(result)
	}
}
