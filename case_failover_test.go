package main

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The key is honoured by the first supplier, so a doubt is repeated there, and nowhere else.
func TestCase_FO_01_NoSecondSupplierAfterAnUnknownOutcome(t *testing.T) {
	const honours = firstSupplier + "forward_headers: [idempotency_key]\n"
	created := answer(201, `{"status":"ok"}`, js)
	for name, tt := range map[string]struct {
		first        step // nil: nobody listens
		status       int
		sent, backup int
		executed     string
	}{
		"a: connect refused":             {nil, 201, 0, 1, ""},
		"b: acted and did not answer":    {silent, 504, 4, 0, "maybe"},
		"c: acted and answered with 502": {answer(502, ""), 502, 4, 0, "maybe"},
		"d: a definite rejection":        {broke, 201, 1, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.closed("u1.test:80")
				if tt.first != nil {
					u = r.upstream("u1.test:80", tt.first)
				}
				b := r.upstream("b.test:80", created)
				got := r.places(orderA1, keyed)
				r.want(got, tt.status, b, tt.backup)
				r.want(got, tt.status, u, tt.sent)
				r.wantHeader(got, "X-Retry-Executed", tt.executed)
			}, suppliersAfter(t, honours)...)
		})
	}
}

func TestCase_CB_11_AttemptsAreBookedToTheirHost(t *testing.T) {
	bubble(t, func(r *rig) {
		u, b := r.upstream("u1.test:80", answer(503, "")), r.upstream("c.test:80", inJSON(`{"c":0}`))
		call := func() reply { return r.do("GET", "http://u1.test/?op=order&order="+strconv.Itoa(b.count()), "") }
		for n := 1; n <= 5; n++ {
			got := call()
			r.want(got, 200, u, n)
			r.want(got, 200, b, n)
		}
		got := call()
		r.want(got, 200, u, 5)
		r.want(got, 200, b, 6)
	}, patches(suppliersAfter(t, strings.Replace(firstSupplier, "[json:$.order]", "[query:order]", 1), "on_open: fail"),
		[]string{"max_retries: 3", "max_retries: 0", "failover: [supplier-b]", "failover: [supplier-c]"})...)
}

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
