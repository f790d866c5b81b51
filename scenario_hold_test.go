package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"retryproxy/idempotency"
)

// slowly is an upstream that needs a while for an order.
var slowly = after(700*time.Millisecond, answer(201, "order 1", "X-Order: 1"))

// A client that is not held to the end gets a receipt, and its call goes on.
func TestHold(t *testing.T) {
	for _, tt := range []struct {
		name, policy, prefer string
		after                time.Duration
		applied              string
	}{
		{"client_hold", ", client_hold: 400ms", "", 400 * time.Millisecond, ""},
		{"respond-async", "", "Prefer: respond-async", 0, "respond-async"},
		{"wait", "", "Prefer: wait=0", 0, "wait=0"},
		{"both", "", `Prefer: foo; bar="a, b", Respond-Async, wait="0"`, 0, "respond-async, wait=0"},
		{"the shorter of the two", ", client_hold: 400ms", "Prefer: wait=30", 400 * time.Millisecond, ""},
		{"two lines", ", client_hold: 3s", "Prefer: wait=0\r\nPrefer: wait=5", 0, "wait=0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lasting(t, func(r *rig, _ func()) {
				u := r.upstream("u1.test:80", slowly)
				headers := []string{keyed}
				if tt.prefer != "" {
					headers = append(headers, tt.prefer)
				}
				began := time.Now()
				got := r.post("http://u1.test/orders", "two books", headers...)
				r.between("the time to the answer", time.Since(began), tt.after, tt.after)
				r.wantGoesOn(got, 1, 1)
				r.wantHeader(got, "Preference-Applied", tt.applied)
				if rec, _ := r.follow(got); rec.State != "running" || rec.Executed != "maybe" {
					t.Errorf("the receipt is %+v, want running", rec)
				}
				rest(2 * time.Second)
				rec, _ := r.follow(got)
				if rec.State != "done" || rec.Answer == nil || rec.Answer.Body != "order 1" {
					t.Errorf("the receipt is %+v, want it done", rec)
				}
				done := r.post("http://u1.test/orders", "two books", keyed)
				r.want(done, 201, u, 1)
				r.wantHeader(done, "Idempotency-Replayed", "true")
			}, with("jitter: none, jitter_ratio: 0"+tt.policy)...)
		})
	}
}

// An answer that comes while the client is still held is its answer, as it came.
func TestHoldNotNeeded(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", slowly)
		got := r.post("http://u1.test/", "b", keyed, "Prefer: wait=5")
		r.want(got, 201, u, 1)
		r.wantBody(got, "order 1")
		r.wantHeader(got, "X-Order", "1")
		r.wantHeader(got, "Preference-Applied", "")
		r.wantHeader(got, "Cache-Status", "")
		r.wantHeader(got, "Idempotency-Replayed", "")
		r.wantSent(u, 1, "Prefer", "wait=5")
		r.wantEnd("success", "ok", 1)
	})
}

// The connection of a client that was let go serves its next request.
func TestHoldKeepsTheConnection(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", byPath(map[string]step{"/a": slowly, "/b": answer(200, "second")}))
		c := r.dial()
		defer c.Close()
		got := r.exchange(c, rawRequest("POST", "http://u1.test/a", "b", keyed, "Prefer: respond-async"), "POST")
		r.want(got, 202, nil, 0)
		got = r.exchange(c, rawRequest("GET", "http://u1.test/b", ""), "GET")
		r.want(got, 200, nil, 0)
		r.wantBody(got, "second")
		rest(2 * time.Second)
		r.want(reply{}, 0, u, 2)
		if rec := r.record("k"); rec.State != idempotency.StateDone {
			t.Errorf("the record is %s", rec.State)
		}
	})
}

// Without a key, or without a durable store, nobody is let go: nothing could be told
// later.
func TestHoldNeedsKeyAndStore(t *testing.T) {
	f := func(headers ...string) func(r *rig) {
		return func(r *rig) {
			u := r.upstream("u1.test:80", slowly)
			got := r.post("http://u1.test/", "b", append(headers, "Prefer: respond-async")...)
			r.want(got, 201, u, 1)
			r.wantHeader(got, "Preference-Applied", "")
		}
	}
	t.Run("keyless", func(t *testing.T) { lasting(t, func(r *rig, _ func()) { f()(r) }) })
	t.Run("memory", func(t *testing.T) { bubble(t, f(keyed)) })
}

// A bad wait is ignored and counted.
func TestHoldBadWait(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", slowly)
		r.want(r.post("http://u1.test/", "b", keyed, "Prefer: wait=soon"), 201, u, 1)
		r.wantMetric(1, "ignored_values_total", "field=prefer_wait")
	})
}

// A repeat is let go as well, when it asks for it; others wait for the answer.
func TestHoldOfJoiners(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", slowly)
		first := r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
		rest(100 * time.Millisecond)
		second := r.post("http://u1.test/", "b", keyed, "Prefer: respond-async")
		r.wantGoesOn(second, 1, 1)
		if rec, _ := r.follow(second); rec.State != "running" {
			t.Errorf("the receipt of a repeat is %+v", rec)
		}
		third := r.post("http://u1.test/", "b", keyed)
		r.want(third, 201, u, 1)
		r.want(<-first, 201, u, 1)
		if rec, _ := r.follow(second); rec.State != "done" {
			t.Errorf("in the end the receipt of a repeat is %+v", rec)
		}
	})
}

// Who was let go hears of a failure from the receipt alone, so somebody has to look at
// it, though another request of the same key got the answer.
func TestHoldOfAJoinerWhoseCallFails(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", after(500*time.Millisecond, answer(422, "no such order")))
		first := r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
		rest(100 * time.Millisecond)
		second := r.post("http://u1.test/", "b", keyed, "Prefer: respond-async")
		r.wantGoesOn(second, 1, 1)
		r.want(<-first, 422, u, 1)
		if rec, _ := r.follow(second); rec.State != "dead" || rec.Reason != "fail_permanent" {
			t.Errorf("the receipt is %+v, want a letter", rec)
		}
		r.want(r.post("http://u1.test/", "b", "X-Idempotency-Key: heard"), 422, u, 2)
	})
}

// Failures of a call whose client was let go: the receipt tells, and nobody repeats
// what may have been executed.
func TestHoldOfACallThatFails(t *testing.T) {
	for host, want := range map[string]struct{ state, executed, advice string }{
		"u1.test":              {"dead", "maybe", "check"},
		"gw-api.pinduoduo.com": {"in_doubt", "maybe", "check"},
	} {
		t.Run(host, func(t *testing.T) {
			lasting(t, func(r *rig, _ func()) {
				r.upstream(host+":80", after(100*time.Millisecond, answer(502, "broken")))
				got := r.post("http://"+host+"/", "b", keyed, "Prefer: respond-async")
				r.wantGoesOn(got, 1, 1)
				rest(10 * time.Second)
				rec, _ := r.follow(got)
				if rec.State != want.state || rec.Executed != want.executed || rec.Advice != want.advice {
					t.Errorf("the receipt is %+v, want %+v", rec, want)
				}
			}, patches(plain, lays("upgrade_to_https: []"))...)
		})
	}
}

// A receipt is found in every mode, by its own tenant alone.
func TestReceipts(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", slowly)
		got := r.post("http://u1.test/", "b", keyed, "X-Shop-Id: s1", "Prefer: respond-async")
		at := got.Header.Get("Location")
		id := at[len("/.well-known/retryproxy/calls/"):]
		if len(id) != 32 {
			t.Errorf("the id %q of a receipt has no 128 bits", id)
		}
		shop := "X-Shop-Id: s1"
		for name, ask := range map[string]func() reply{
			"origin-form":             func() reply { return r.origin("GET", proxyAddr, at, "", shop) },
			"absolute-form, own host": func() reply { return r.get("http://"+proxyAddr+at, shop) },
			"absolute-form, any host": func() reply { return r.get("http://u1.test"+at, shop) },
			"internal name":           func() reply { return r.get("http://retryproxy.internal/calls/"+id, shop) },
			"with a query":            func() reply { return r.get("http://u1.test"+at+"?x=1", shop) },
			"HEAD":                    func() reply { return r.do("HEAD", "http://u1.test"+at, "", shop) },
		} {
			if got := ask(); got.Status != 200 {
				t.Errorf("%s: %d %s", name, got.Status, got.Body)
			}
		}
		for name, tt := range map[string]struct {
			got  reply
			want int
		}{
			"no shop":          {r.get("http://u1.test" + at), 404},
			"another shop":     {r.get("http://u1.test"+at, "X-Shop-Id: s2"), 404},
			"another id":       {r.get("http://u1.test"+at[:len(at)-1]+"x", shop), 404},
			"no id":            {r.get("http://u1.test/.well-known/retryproxy/calls/", shop), 404},
			"another method":   {r.do("DELETE", "http://u1.test"+at, "", shop), 405},
			"a foreign Host":   {r.origin("GET", "evil.test", at, "", shop), 403},
			"internal, no id":  {r.get("http://retryproxy.internal/calls/", shop), 404},
			"internal, others": {r.get("http://retryproxy.internal/", shop), 404},
		} {
			if tt.got.Status != tt.want {
				t.Errorf("%s: %d %s, want %d", name, tt.got.Status, tt.got.Body, tt.want)
			}
			if tt.want == 404 && name != "internal, others" && (tt.got.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(tt.got.Body, "X-Shop-Id")) {
				t.Errorf("%s: the 404 does not say what to ask with: %s", name, tt.got.Body)
			}
		}
	})
}

// Many are let go and all their calls end once.
func TestHoldOfMany(t *testing.T) {
	const calls = 100
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", slowly)
		for i, got := range r.together(calls, func(i int) reply {
			return r.post("http://u1.test/", "b", fmt.Sprint("X-Idempotency-Key: k", i), fmt.Sprint("Prefer: wait=", i%3))
		}) {
			if want := map[bool]int{true: 201, false: 202}[i%3 == 2]; got.Status != want && i%3 != 1 {
				t.Errorf("call %d got %d, want %d", i, got.Status, want)
			}
		}
		rest(3 * time.Second)
		r.want(reply{}, 0, u, calls)
		if st := r.app.store.Stats().ByState; st[idempotency.StateDone] != calls {
			t.Errorf("states %v, want all done", st)
		}
	}, patches(plain, []string{"max_in_flight: 100", "max_in_flight: 100, adaptive: false"})...) // a host begins with room for fewer
}
