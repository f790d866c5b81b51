package main

import (
	"sync"
	"testing"
	"time"
)

// The contract: over a busy window the ratio alone decides when a breaker opens;
// the five failures in a row of this case take a min_calls that is not reached.
func TestCase_FO_03_ServiceReturnsWhileRequestsWait(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok", "Connection: close"))
		start := time.Now()
		var mu sync.Mutex
		recovered := time.Hour
		var group sync.WaitGroup
		for i := range 200 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				got := r.get("http://u1.test/x")
				if got.Status != 200 {
					t.Errorf("call %d = %d %v, want 200", i, got.Status, got.Header)
				}
				mu.Lock()
				defer mu.Unlock()
				if at := time.Since(start) - 5*time.Second; at >= 0 {
					recovered = min(recovered, at)
				}
			})
		}
		time.Sleep(3*time.Second - time.Millisecond)
		r.app.up.CloseIdle() // connections that exist would go on
		u.l.Close()
		u.openAfter(2*time.Second + time.Millisecond)
		group.Wait()
		if u.count() != 200 {
			t.Errorf("requests at the upstream = %d, want 200", u.count())
		}
		if recovered > 2500*time.Millisecond {
			t.Errorf("first answer %v after the port opened, want 2.5 s at most", recovered)
		}
	}, "consecutive_failures: 5,", "consecutive_failures: 5, min_calls: 1000,")
}
