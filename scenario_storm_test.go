package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Three identical failed calls of a shop on a host that serves others: its
// retries there stop, but for one each probe_every.
func TestShopBreaker(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", byPath(map[string]step{"/a": answer(500, "no"), "/b": answer(200, "ok"), "/fixed": answer(200, "ok")}))
		call := func(path string, attempts int, reason string) {
			t.Helper()
			before := u.count()
			got := r.get("http://u1.test"+path, "X-Shop-Id: A")
			synctest.Wait() // the end of a call is booked behind its answer
			if n := u.count() - before; n != attempts || got.Header.Get("X-Retry-Reason") != reason {
				t.Errorf("%s: %d attempts, reason %q; want %d, %q", path, n, got.Header.Get("X-Retry-Reason"), attempts, reason)
			}
		}
		for range 3 {
			call("/a", 4, "attempts_exhausted")
		}
		call("/a", 1, "shop_breaker_open")
		got := r.get("http://u1.test/a", "X-Shop-Id: A")
		r.wantHeader(got, "X-Retry-Reason", "shop_breaker_open")
		r.wantHeader(got, "Retry-After", "") // it may have been executed
		r.wantBody(got, "no")
		r.wantMetric(2, "breaker_state", "scope=shop", "host=u1.test:80")
		var seen struct {
			Shops []struct {
				Shop, Host, Reason string
				Row                int       `json:"identical_failures"`
				Until              time.Time `json:"until"`
			}
		}
		r.admin("GET", "/api/v1/breakers", "", &seen)
		if len(seen.Shops) != 1 || seen.Shops[0].Shop != "A" || seen.Shops[0].Reason != "status_500" || seen.Shops[0].Row != 3 {
			t.Errorf("breakers of shops = %+v, want that of A", seen.Shops)
		}
		before := u.count()
		if got := r.get("http://u1.test/a", "X-Shop-Id: B"); got.Header.Get("X-Retry-Reason") != "attempts_exhausted" || u.count() != before+4 {
			t.Error("the breaker of A holds B")
		}
		time.Sleep(time.Until(seen.Shops[0].Until))
		call("/a", 2, "shop_breaker_open") // the one retry of this half minute
		call("/a", 1, "shop_breaker_open")
		call("/fixed", 1, "")
		call("/a", 4, "attempts_exhausted") // a success closed it
		r.wantMetric(0, "breaker_state", "scope=shop")
	}, breakerOff...)
}

// Only failures that speak of the shop count, and only three of the same kind.
func TestWhatTripsAShopsBreaker(t *testing.T) {
	for name, tt := range map[string]struct {
		statuses []int
		trips    bool
	}{
		"server errors":     {[]int{500, 500, 500}, true},
		"different ones":    {[]int{500, 502, 500}, false},
		"forbidden":         {[]int{403, 403, 403}, true},
		"unauthorized":      {[]int{401, 401, 401}, true},
		"bad requests":      {[]int{400, 400, 400}, false},
		"not found":         {[]int{404, 404, 404}, false},
		"throttled":         {[]int{429, 429, 429}, false},
		"a success between": {[]int{500, 500, 200, 500}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				var script []step
				for _, s := range tt.statuses {
					script = append(script, answer(s, ""))
				}
				r.upstream("u1.test:80", script...)
				for range tt.statuses {
					r.get("http://u1.test/x", "X-Shop-Id: A", "X-Retry-Count: 3") // one attempt each
					synctest.Wait()
				}
				if got := len(r.app.shops.Tripped()) == 1; got != tt.trips {
					t.Errorf("tripped = %v, want %v", got, tt.trips)
				}
			}, breakerOff...)
		})
	}
	bubble(t, func(r *rig) { // calls without a shop have none; nor while the host's own is not closed
		r.upstream("u1.test:80", answer(500, ""))
		for range 5 {
			r.get("http://u1.test/x", "X-Retry-Count: 3")
		}
		time.Sleep(2 * time.Second)
		for range 3 {
			r.get("http://u1.test/x", "X-Shop-Id: A", "X-Retry-Count: 3", "X-Request-Timeout: 1.5")
		}
		synctest.Wait()
		if n := len(r.app.shops.Tripped()); n != 0 {
			t.Errorf("tripped = %d, want none", n)
		}
	})
}

// The closing of a host's breaker closes those of shops there, and an operator
// closes one by hand.
func TestShopBreakerReset(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(403, ""))
		for range 3 {
			r.get("http://u1.test/x", "X-Shop-Id: A")
			synctest.Wait()
		}
		if got := r.admin("POST", "/api/v1/breakers/A@u1.test%3A80/reset", "", nil); got.Status != 200 {
			t.Errorf("reset = %d %s", got.Status, got.Body)
		}
		if n := len(r.app.shops.Tripped()); n != 0 {
			t.Errorf("tripped = %d, want none", n)
		}
		events := r.logged("breaker")
		if len(events) != 2 || events[1]["reason"] != "operator" || events[1]["shop"] != "A" {
			t.Errorf("events = %v", events)
		}
		if got := r.admin("POST", "/api/v1/breakers/A@u1.test%3A80/reset", "", nil); got.Status != 404 {
			t.Errorf("reset of none = %d, want 404", got.Status)
		}
	})
}

// A retry whose token comes too late ends at once, with the dimension and the
// date; one that has time waits with a place and a date.
func TestRetryLimited(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"), answer(503, "busy"), answer(503, "busy"), answer(200, "ok"))
		first := r.async(func() reply { return r.get("http://u1.test/x", "X-Shop-Id: A") })
		rest(500 * time.Millisecond) // the token at once is used; the next comes 4 s after that
		got := r.get("http://u1.test/x", "X-Shop-Id: A", "X-Request-Timeout: 3")
		if got.Took > 0 || got.Status != 503 || got.Body != "busy" {
			t.Errorf("answer = %d %q after %v, want the upstream's at once", got.Status, got.Body, got.Took)
		}
		r.wantHeader(got, "X-Retry-Reason", "retry_limited")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "repeat")
		if after := got.Header.Get("Retry-After"); after != "4" && after != "8" {
			t.Errorf("Retry-After = %s, want the time of the token", after)
		}
		r.wantHeader(got, "Proxy-Status", `retryproxy; received-status=503; details="retry_limited: shop"`)
		if detail := r.last().Detail; !strings.HasPrefix(detail, "no retry token in time: shop, next at 2000-01-01T00:00:") {
			t.Errorf("logged detail = %q, want dimension and date", detail)
		}
		r.wantMetric(1, "retries_denied_total", "dimension=shop")
		var calls []struct {
			Cause, Reason, Dimension, Lane string

			Place  int
			NextAt time.Time `json:"next_at"`
		}
		r.admin("GET", "/api/v1/calls?state=waiting", "", &calls)
		r.wantMetric(1, "token_line", "dimension=shop")
		r.wantMetric(1, "line", "host=u1.test:80", "lane=backlog")
		if len(calls) != 1 || calls[0].Cause != "tokens" || calls[0].Reason != "shop" || calls[0].Dimension != "shop" || calls[0].Lane != "backlog" || calls[0].Place != 1 || calls[0].NextAt.IsZero() {
			t.Fatalf("waiting = %+v, want one in the shop's line", calls)
		}
		if got := <-first; got.Status != 200 || !time.Now().Equal(calls[0].NextAt) {
			t.Errorf("the first call got %d at %v, want 200 at %v", got.Status, time.Now(), calls[0].NextAt)
		}
		r.want(<-r.async(func() reply { return r.get("http://u1.test/x", "X-Shop-Id: B") }), 200, u, 5)
	}, "shop: off", "shop: {rate: 15/m, burst: 1, share: 0}")
}

// Each dimension has its own bucket; a retry needs a token from each, and takes
// all or none.
func TestTokensOfEveryDimension(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""))
		for _, tt := range []struct {
			labels    []string
			attempts  int
			dimension string
		}{
			{[]string{"X-Shop-Id: A", "X-Task-Type: t"}, 2, "shop"},
			{[]string{"X-Shop-Id: A"}, 1, "shop"},
			{[]string{"X-Shop-Id: B", "X-Task-Type: t"}, 2, "shop"},
			{[]string{"X-Shop-Id: C", "X-Task-Type: t"}, 1, "task_type"},
			{[]string{"X-Shop-Id: C"}, 2, "shop"}, // its token was not taken by the call before
			{nil, 2, "global"},
			{nil, 1, "global"},
		} {
			before := u.count()
			got := r.get("http://u1.test/x", tt.labels...)
			if n := u.count() - before; n != tt.attempts {
				t.Errorf("%v: %d attempts, want %d", tt.labels, n, tt.attempts)
			}
			if status := got.Header.Get("Proxy-Status"); !strings.Contains(status, tt.dimension) {
				t.Errorf("%v: Proxy-Status = %q, want %s", tt.labels, status, tt.dimension)
			}
		}
	}, patches(breakerOff, []string{
		"retry_limits: {global: off, task_type: off, shop: off}",
		"retry_limits: {global: {rate: 1/h, burst: 4, share: 0}, task_type: {rate: 1/h, burst: 2, share: 0}, shop: {rate: 1/h, burst: 1, share: 0}}",
	})...)
}

// A limit that is a share of the fresh calls grows with them.
func TestShareOfFreshCalls(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", byPath(map[string]step{"/ok": answer(200, ""), "/bad": answer(503, "")}))
		for i := range 3000 { // 100 a second for 30 s
			time.Sleep(10 * time.Millisecond)
			path := "/ok"
			if i%2 == 0 {
				path = "/bad"
			}
			go r.get("http://u1.test"+path, "X-Request-Timeout: 0.5")
		}
		rest(time.Second)
		if n := u.retriesSeen(); n < 450 || n > 610 {
			t.Errorf("retries = %d, want about 0.2 x 3000", n)
		}
	}, patches(breakerOff, []string{"global: off", "global: {rate: 1/h, burst: 5, share: 0.2}"})...)
}

// A 429 with Retry-After holds the other retries of that shop there as well;
// other shops and fresh calls go on.
func TestThrottlePausesTheShop(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", byPath(map[string]step{
			"/throttled": answer(429, "", "Retry-After: 2"), "/slow": after(50*time.Millisecond, answer(503, "")), "/ok": answer(200, "ok"),
		}))
		start := time.Now()
		slow := r.async(func() reply { return r.get("http://u1.test/slow", "X-Shop-Id: A") })
		other := r.async(func() reply { return r.get("http://u1.test/slow", "X-Shop-Id: B") })
		synctest.Wait()
		throttled := r.async(func() reply { return r.get("http://u1.test/throttled", "X-Shop-Id: A") })
		rest(100 * time.Millisecond)
		if got := r.get("http://u1.test/ok", "X-Shop-Id: A"); got.Status != 200 || got.Took > 0 {
			t.Errorf("a fresh call of A = %d after %v, want 200 at once", got.Status, got.Took)
		}
		var calls []struct{ Cause string }
		rest(time.Second)
		r.admin("GET", "/api/v1/calls?state=waiting&shop=A", "", &calls)
		if len(calls) != 2 {
			t.Errorf("waiting calls of A = %+v, want both", calls)
		}
		<-slow
		<-other
		<-throttled
		for _, q := range u.seen() {
			early := q.At.Sub(start) < 2*time.Second && q.Header.Get("X-Retry-Count") != ""
			if early && r.shopOf(q) == "A" {
				t.Errorf("a retry of A at %v, want none within its pause of 2 s", q.At.Sub(start))
			}
		}
	}, with("forward_headers: [retry_count, shop]")...)
}

func (r *rig) shopOf(q request) string { return q.Header.Get("X-Shop-Id") }

// on_open: wait keeps calls in line while they have time and patience; on_open:
// fail and those without either are told the time at once.
func TestOnOpen(t *testing.T) {
	open := func(r *rig) *scripted {
		fail := answer(503, "")
		u := r.upstream("u1.test:80", fail, fail, fail, fail, fail, answer(200, "ok"))
		for range 5 {
			r.get("http://u1.test/x", "X-Retry-Count: 3")
		}
		return u
	}
	bubble(t, func(r *rig) {
		u := open(r)
		got := r.get("http://u1.test/x")
		r.want(got, 200, u, 6)
		r.between("the wait", got.Took, 2*time.Second, 2*time.Second)
	})
	for _, patch := range [][]string{with("on_open: fail"), {"slots: {", "slots: {max_wait: 1s, "}} {
		bubble(t, func(r *rig) {
			u := open(r)
			got := r.get("http://u1.test/x")
			r.want(got, 503, u, 5)
			r.between("the answer", got.Took, 0, 0)
			r.wantHeader(got, "X-Retry-Reason", "breaker_open")
			r.wantHeader(got, "Retry-After", "2")
			r.wantHeader(got, "X-Retry-Advice", "repeat")
			r.wantHeader(got, "Content-Type", "application/problem+json")
		}, patch...)
	}
}

// Slots: no more attempts in flight than max_in_flight; max_wait and max_waiting
// bound the line.
func TestSlots(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(400*time.Millisecond, answer(200, "ok")))
		all := r.together(6, func(i int) reply {
			time.Sleep(time.Duration(i) * time.Millisecond)
			return r.get("http://u1.test/x")
		})
		if got := statuses(all); got[200] != 4 || got[503] != 2 {
			t.Errorf("answers = %v, want 4 x 200, and 2 x 503 for whom there was no room", got)
		}
		for i := range all {
			if all[i].Status == 503 {
				r.wantHeader(all[i], "X-Retry-Reason", "no_slot")
				if all[i].Header.Get("Retry-After") == "" {
					t.Error("no_slot without Retry-After")
				}
			}
		}
		if n := u.count(); n != 4 {
			t.Errorf("requests at the upstream = %d, want 4", n)
		}
	}, "max_in_flight: 100", "max_in_flight: 2, max_waiting: 2, max_wait: 500ms")
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", after(900*time.Millisecond, answer(200, "ok")))
		all := r.together(2, func(i int) reply {
			time.Sleep(time.Duration(i) * time.Millisecond)
			return r.get("http://u1.test/x")
		})
		if all[1].Status != 503 || all[1].Took != 500*time.Millisecond || all[1].Header.Get("X-Retry-Reason") != "no_slot" {
			t.Errorf("the second call = %d %v after %v, want no_slot after max_wait", all[1].Status, all[1].Header, all[1].Took)
		}
	}, "max_in_flight: 100", "max_in_flight: 1, max_wait: 500ms")
}

// The switch: off starts no retry and releases those that wait with their last
// answer; observe only says what it would have done; scopes and a timer narrow it.
func TestSwitch(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy", "Retry-After: 3"))
		put := func(path, body string) {
			t.Helper()
			if got := r.admin("PUT", path, body, nil); got.Status != 200 {
				t.Errorf("PUT %s %s = %d %s", path, body, got.Status, got.Body)
			}
		}
		waiting := r.async(func() reply { return r.post("http://u1.test/x", "{}", keyed) })
		rest(time.Second)
		put("/api/v1/retries", `{"value":"off"}`)
		got := <-waiting
		r.want(got, 503, u, 1)
		r.wantBody(got, "busy")
		r.wantHeader(got, "X-Retry-Reason", "retries_off")
		r.wantHeader(got, "Retry-After", "3")
		r.between("released after", got.Took, time.Second, time.Second)
		again := r.get("http://u1.test/x")
		r.want(again, 503, u, 2)
		r.between("answered after", again.Took, 0, 0)
		r.wantMetric(2, "stops_total", "reason=retries_off")

		put("/api/v1/retries", `{"value":"observe"}`)
		r.want(r.get("http://u1.test/x"), 503, u, 3)
		r.wantEnd("failed", "retries_off", 1)

		put("/api/v1/retries", `{"value":"on"}`)
		put("/api/v1/retries?for=10s", `{"value":"off","match":{"host":"u1.test"}}`)
		orders := r.logged("the retry switch was turned by an operator")
		if last := orders[len(orders)-1]["scopes"]; !strings.HasPrefix(fmt.Sprint(last), "off for host u1.test until ") {
			t.Errorf("the log of the order says %v, want the value, the host and the time", last)
		}
		var now struct {
			Default string
			Scopes  []struct {
				Value string
				Until time.Time
			}
		}
		r.admin("GET", "/api/v1/retries", "", &now)
		if now.Default != "on" || len(now.Scopes) != 1 || now.Scopes[0].Value != "off" || !now.Scopes[0].Until.Equal(time.Now().Add(10*time.Second)) {
			t.Errorf("the switch = %+v", now)
		}
		r.want(r.get("http://u1.test/x", "X-Retry-Count: 2"), 503, u, 4)
		u2 := r.upstream("u2.test:80", answer(503, ""), answer(200, "ok"))
		r.want(r.get("http://u2.test/x"), 200, u2, 2)
		time.Sleep(10 * time.Second)
		r.want(r.get("http://u1.test/x", "X-Retry-Count: 2"), 503, u, 6)
		if got := r.admin("PUT", "/api/v1/retries", `{"value":"maybe"}`, nil); got.Status != 400 {
			t.Errorf("PUT of nonsense = %d, want 400", got.Status)
		}
	}, breakerOff...)
}

// Observe writes into the log what it would have done.
func TestObserveIsLogged(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(503, "busy"))
		r.get("http://u1.test/x")
		found := false
		for line := range strings.Lines(r.log.String()) {
			found = found || strings.Contains(line, "would")
		}
		if !found {
			t.Errorf("the log does not say that it would have been retried: %s", r.log)
		}
	}, lays(`retries: {default: "observe"}`)...)
}

// Turns: lower priority values go first, then age.
func TestPriorities(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(100*time.Millisecond, answer(200, "")))
		r.together(7, func(i int) reply {
			time.Sleep(time.Duration(i) * time.Millisecond)
			task := "X-Task-Type: bulk"
			if i >= 4 {
				task = "X-Task-Type: vip"
			}
			return r.get(fmt.Sprintf("http://u1.test/%d", i), task)
		})
		var order []string
		for _, q := range u.seen() {
			order = append(order, strings.Fields(q.Line)[1])
		}
		if got := strings.Join(order, " "); got != "/0 /4 /5 /6 /1 /2 /3" {
			t.Errorf("order = %s, want the vip calls first, then by age", got)
		}
	}, "max_in_flight: 100", "max_in_flight: 1", "retry_policies:\n", "retry_policies:\n  - {name: vip, match: {task_type: vip}, priority: 1}\n")
}
