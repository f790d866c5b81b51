package main

import (
	"testing"
	"time"

	"retryproxy/attempt"
)

// A client that leaves is counted with the time that it was patient for, whatever its
// call was doing and whether that goes on; what it got no answer of counts, all else not.
func TestHowLongClientsArePatient(t *testing.T) {
	slow := after(800*time.Millisecond, answer(200, "ok"))
	for name, tt := range map[string]struct {
		does   step
		header []string
		leaves time.Duration
		result string
	}{
		"in flight":        {slow, nil, 300 * time.Millisecond, "cancelled"},
		"in flight, keyed": {slow, []string{keyed}, 300 * time.Millisecond, "success"}, // the attempt runs on for half a second, for the record
		"waiting":          {answer(503, "", "Retry-After: 2"), nil, 700 * time.Millisecond, "cancelled"},
		"answered":         {slow, nil, time.Second, "success"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.upstream("u1.test:80", tt.does)
				r.leaves("http://u1.test/x", tt.leaves, append(tt.header, "X-Task-Type: ship")...)
				rest(time.Second)
				want := tt.leaves
				if name == "answered" {
					want = 0
				}
				if s := r.last(); s.Result != tt.result || s.Left != want || s.Deadline != 6*time.Second {
					t.Errorf("the call ended as %s, its client left after %v of %v, want %s, %v of 6s", s.Result, s.Left, s.Deadline, tt.result, want)
				}
				r.wantMetric(min(1, float64(want)), "client_gone_seconds", "task_type=ship")
			})
		})
	}
}

// The client of a durable call leaves, and the call goes on: its patience counts all
// the same, but not that of one that was let go.
func TestPatienceOfClientsOfCallsThatGoOn(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", after(800*time.Millisecond, answer(200, "ok")))
		left := func(key string, header ...string) *attempt.Summary {
			r.leaves("http://u1.test/x", 300*time.Millisecond, append(header, "X-Idempotency-Key: "+key)...)
			rest(time.Second)
			return r.last()
		}
		if s := left("a"); s.Result != "success" || s.Left != 300*time.Millisecond {
			t.Errorf("held to the end: %s, left after %v", s.Result, s.Left)
		}
		if s := left("b", "Prefer: wait=10"); s.Left != 300*time.Millisecond {
			t.Errorf("held for longer: left after %v", s.Left)
		}
		if s := left("c", "Prefer: respond-async"); s.Left != 0 {
			t.Errorf("let go at once: left after %v", s.Left)
		}
	})
}

// Operators see where a deadline is longer than the bots are patient, once in the log.
func TestPatienceIsShown(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(503, "", "Retry-After: 3"))
		r.get("http://u1.test/x", "X-Task-Type: ship", "X-Retry-Count: 3")
		for range 25 {
			r.leaves("http://u1.test/x", 2*time.Second, "X-Task-Type: ship")
		}
		var kinds []struct {
			Kind     string `json:"task_type"`
			Calls    int
			Left     int
			Waited   int `json:"waited_left"`
			P50      int `json:"p50_ms"`
			Deadline int `json:"deadline_ms"`
		}
		r.admin("GET", "/api/v1/patience", "", &kinds)
		if len(kinds) != 1 || kinds[0].Kind != "ship" || kinds[0].Calls != 26 || kinds[0].Left != 25 || kinds[0].Waited != 25 || kinds[0].P50 != 2000 || kinds[0].Deadline != 6000 {
			t.Errorf("patience = %+v, want 25 of 26 calls of ship whose clients left after 2 s of 6", kinds)
		}
		var e struct {
			Patience *struct {
				Left int
				P90  int `json:"p90_ms"`
			}
		}
		r.admin("POST", "/api/v1/explain", `{"url":"http://u1.test/x","headers":["X-Task-Type: ship"]}`, &e)
		if e.Patience == nil || e.Patience.Left != 25 || e.Patience.P90 != 2000 {
			t.Errorf("explain = %+v, want that 25 left", e.Patience)
		}
		e.Patience = nil
		if r.admin("POST", "/api/v1/explain", `{"url":"http://u1.test/x"}`, &e); e.Patience != nil {
			t.Errorf("explain of another kind = %+v, want nothing", e.Patience)
		}
		if hints := r.logged("most clients of a kind hang up while their calls wait: a shorter deadline, or X-Request-Timeout, tells them in time"); len(hints) != 1 || hints[0]["task_type"] != "ship" || hints[0]["p50"] != "2s" || hints[0]["deadline"] != "6s" {
			t.Errorf("hints = %v, want one", hints)
		}
	}, breakerOff...)
}
