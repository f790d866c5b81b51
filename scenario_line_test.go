package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/breaker"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/pause"
	"retryproxy/proxy"
)

const (
	cancelled = "cancelled_by_operator"
	byLi      = `{"by":"li","note":"the shop asks for it"}`
)

// slow is a policy with long waits.
var slow = patches(plain, []string{
	"max_retries: 3, base_delay: 100ms, max_delay: 1s", "max_retries: 3, base_delay: 60s, max_delay: 60s", "deadline: 6s", "deadline: 10m",
})

// waitingID is the id of the one call that waits or is parked.
func (r *rig) waitingID(state string) string {
	r.t.Helper()
	var calls []struct{ ID string }
	r.admin("GET", "/api/v1/calls?state="+state, "", &calls)
	if len(calls) != 1 {
		r.t.Fatalf("%d calls are %s, want one", len(calls), state)
	}
	return calls[0].ID
}

// orders gives an order about a call, and wants a status and words in the answer.
func (r *rig) orders(id, what string, status int, words string) (told proxy.Told) {
	r.t.Helper()
	var out any = &told
	if status != 200 {
		out = nil
	}
	got := r.admin("POST", "/api/v1/calls/"+url.PathEscape(id)+"/"+what, byLi, out)
	if got.Status != status || !strings.Contains(got.Body, words) {
		r.t.Errorf("%s = %d %s, want %d and %q", what, got.Status, got.Body, status, words)
	}
	return told
}

// The wait for the next attempt ends at once, whoever wished for it: backoff, the
// Retry-After of a host, and the pause that it put on the shop.
func TestExpediteAWait(t *testing.T) {
	for name, tt := range map[string]struct {
		first step
		shop  string
	}{
		"backoff":                   {answer(500, "broken"), "X-Nothing: 1"},
		"retry_after":               {answer(503, "busy", "Retry-After: 100"), "X-Nothing: 1"},
		"retry_after and the pause": {answer(429, "busy", "Retry-After: 100"), "X-Shop-Id: s1"},
	} {
		for key, header := range map[string]string{"keyless": "X-Nothing: 2", "keyed": keyed} {
			t.Run(name+" "+key, func(t *testing.T) {
				bubble(t, func(r *rig) {
					u := r.upstream("u1.test:80", tt.first, answer(200, "ok"))
					call := r.async(func() reply { return r.get("http://u1.test/x", tt.shop, header) })
					rest(5 * time.Second)
					told := r.orders(r.waitingID("waiting"), "expedite", 200, "its next attempt starts now")
					if told.State != "running" {
						t.Errorf("it is told to be %q, want running", told.State)
					}
					got := <-call
					r.want(got, 200, u, 2)
					r.between("time to the answer", got.Took, 5*time.Second, 5*time.Second)
					if w := r.last().Waits; len(w) != 1 || w[0].For != 5*time.Second {
						t.Errorf("waits = %+v, want one of 5 s", w)
					}
				}, slow...)
			})
		}
	}
}

// Who is expedited needs a retry token like any other, and waits for it.
func TestExpediteWaitsForATokenLikeAnyOther(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(500, "broken"), answer(500, "broken"), answer(500, "broken"), answer(200, "ok"))
		first := r.async(func() reply { return r.get("http://u1.test/x", "X-Shop-Id: s1") })
		rest(time.Second)
		r.orders(r.waitingID("waiting"), "expedite", 200, "starts now") // has the one token
		rest(0)
		r.orders(r.waitingID("waiting"), "cancel", 200, "")
		<-first
		call := r.async(func() reply { return r.get("http://u1.test/x", "X-Shop-Id: s1") })
		rest(time.Second)
		told := r.orders(r.waitingID("waiting"), "expedite", 200, "it waits on, for tokens")
		if told.State != "waiting" || told.Cause != "tokens" || told.NextAt.IsZero() {
			t.Errorf("told = %+v, want a wait for tokens with its date", told)
		}
		r.want(<-call, 200, u, 4)
		if gaps := u.gaps(); gaps[2] < 11*time.Second {
			t.Errorf("the retry came after %v, want it with the next token", gaps[2])
		}
	}, patches(slow, []string{"shop: off", "shop: {rate: 5/m, burst: 1, share: 0}"})...)
}

// A host that is cut off is not tried because somebody is in a hurry: the call waits on
// as before, its patience for the breaker untouched.
func TestExpediteDoesNotPassAnOpenBreaker(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", byPath(map[string]step{"/down": answer(500, ""), "/x": oneByOne(answer(500, "broken"), answer(200, "ok"))}))
		call := r.async(func() reply { return r.get("http://u1.test/x") })
		rest(time.Second)
		for range 5 {
			r.get("http://u1.test/down", "X-Retry-Count: 3")
		}
		if s := r.gate("u1.test:80").Breaker.State; s != breaker.Open {
			t.Fatalf("the breaker is %v, want it open", s)
		}
		r.orders(r.waitingID("waiting"), "expedite", 409, "breaker_open until ")
		if n := u.count(); n != 6 {
			t.Errorf("%d requests, want none by the order", n)
		}
		got := <-call
		r.want(got, 200, nil, 0)
		r.between("time to the answer", got.Took, 60*time.Second, 61*time.Second)
	}, slow...)
}

// What nobody can hurry says what it does, and what is not there that it is not.
func TestExpediteWhatDoesNotWait(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(10*time.Second, answer(200, "ok")))
		call := r.async(func() reply { return r.get("http://u1.test/x", keyed) })
		rest(time.Second)
		id := r.waitingID("running")
		twin := r.async(func() reply { return r.get("http://u1.test/x", keyed) })
		rest(time.Second)
		second := r.waitingID("waiting")
		for _, what := range []string{"expedite", "cancel"} {
			r.orders(id, what, 409, "attempt 1 is on the wire")
			r.orders(second, what, 409, "it waits for another call with its key")
			r.orders("nobody", what, 404, "state=waiting")
			if got := r.admin("POST", "/api/v1/calls/"+id+"/"+what, `{"note":"x"}`, nil); got.Status != 400 || !strings.Contains(got.Body, "by") {
				t.Errorf("%s without a name = %d %s, want 400", what, got.Status, got.Body)
			}
			if got := r.admin("POST", "/api/v1/calls/"+id+"/"+what, `{"by":"li","hurry":1}`, nil); got.Status != 400 {
				t.Errorf("%s with another field = %d %s, want 400", what, got.Status, got.Body)
			}
		}
		r.want(<-call, 200, u, 1)
		r.want(<-twin, 200, u, 1)
		r.orders(id, "cancel", 404, "")
	}, patches(plain, []string{"per_try_timeout: 1s", "per_try_timeout: 15s"}, []string{"deadline: 6s", "deadline: 60s"})...)
}

// A call that an operator ends gets the last answer of the upstream, and nothing more is
// sent.
func TestCancelAWait(t *testing.T) {
	for name, tt := range map[string]struct {
		first        step
		status       int
		body, advice string
	}{
		"with an answer":              {answer(503, "busy", "Retry-After: 100"), 503, "busy", "stop"},
		"that may have been executed": {answer(500, "broken"), 500, "broken", "check"},
		"without an answer":           {reset, 502, "", "check"},
	} {
		for key, header := range map[string]string{"keyless": "X-Nothing: 2", "keyed": keyed} {
			t.Run(name+" "+key, func(t *testing.T) {
				bubble(t, func(r *rig) {
					u := r.upstream("u1.test:80", tt.first, answer(200, "ok"))
					call := r.async(func() reply { return r.get("http://u1.test/x", header) })
					rest(5 * time.Second)
					id := r.waitingID("waiting")
					told := r.orders(id, "cancel", 200, "without another attempt")
					got := <-call
					status := tt.status
					if tt.body == "" {
						status = 503
						if !strings.Contains(got.Body, `"reason":"cancelled_by_operator"`) || strings.Contains(got.Body, "li") && strings.Contains(got.Body, "the shop asks") {
							t.Errorf("our own answer = %s, want the reason, and no names", got.Body)
						}
					} else {
						r.wantBody(got, tt.body)
					}
					r.want(got, status, u, 1)
					r.between("time to the answer", got.Took, 5*time.Second, 5*time.Second)
					r.wantHeader(got, "X-Retry-Reason", cancelled)
					r.wantHeader(got, "X-Retry-Advice", tt.advice)
					rest(5 * time.Minute)
					r.want(reply{}, 0, u, 1)
					r.wantEnd("failed", cancelled, 1)
					r.wantMetric(1, "stops_total", "reason="+cancelled)
					if d := r.last().Detail; d != "an operator ended it: li: the shop asks for it" {
						t.Errorf("the history says %q", d)
					}
					if (told.Record == "failed") != (key == "keyed") {
						t.Errorf("told = %+v", told)
					}
					r.orders(id, "cancel", 404, "")
				}, slow...)
			})
		}
	}
}

// In line for a host that is cut off a call was never sent: our own answer says so.
func TestCancelInLine(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(500, ""))
		for range 5 {
			r.get("http://u1.test/down", "X-Retry-Count: 3")
		}
		call := r.async(func() reply { return r.post("http://u1.test/x", "b") })
		rest(10 * time.Millisecond)
		id := r.waitingID("waiting")
		r.orders(id, "expedite", 409, "it waits for breaker")
		r.orders(id, "cancel", 200, "")
		got := <-call
		r.want(got, 503, u, 5)
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "stop")
		r.wantHeader(got, "Retry-After", "")
	}, slow...)
}

// A parked call goes on as soon as it is told to, be it by the next process.
func TestExpediteAParkedCall(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restarts), func(t *testing.T) {
			lasting(t, func(r *rig, again func()) {
				u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 300"), answer(201, "order 1"))
				r.want(r.post("http://u1.test/", "b", keyed), 202, u, 1)
				left := r.record("k").Deadline.Sub(r.record("k").Updated)
				rest(10 * time.Second)
				if restarts {
					again()
				}
				id := r.waitingID("parked")
				told := r.orders(id, "expedite", 200, "it is woken now")
				if told.State != "parked" {
					t.Errorf("it is told to be %q, want parked", told.State)
				}
				rest(100 * time.Millisecond)
				r.want(reply{}, 0, u, 2)
				r.wantState(idempotency.StateDone)
				rec := r.record("k")
				if n := rec.Notes; len(n) != 1 || n[0].By != "li" || n[0].Did != "expedited" {
					t.Errorf("notes = %+v, want who expedited it", n)
				}
				if left > 6*time.Second || rec.Deadline.Sub(rec.Updated) < left-time.Second {
					t.Errorf("of the deadline %v are left, want about %v", rec.Deadline.Sub(rec.Updated), left)
				}
				r.orders(id, "expedite", 404, "")
			}, parks...)
		})
	}
}

// A parked call waits on where it would meet a closed door.
func TestExpediteAParkedCallBehindABreaker(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", byPath(map[string]step{"/down": answer(500, ""), "/": oneByOne(answer(429, "", "Retry-After: 300"), answer(201, "x"))}))
		r.want(r.post("http://u1.test/", "b", keyed), 202, u, 1)
		for range 5 {
			r.get("http://u1.test/down", "X-Retry-Count: 3")
		}
		due := r.record("k").NextAt
		r.orders(r.waitingID("parked"), "expedite", 409, "breaker_open until ")
		if rec := r.record("k"); !rec.NextAt.Equal(due) || len(rec.Notes) > 0 {
			t.Errorf("it goes on at %v with notes %v, want it as it was", rec.NextAt, rec.Notes)
		}
	}, parks...)
}

// A parked call that an operator ends is a letter: nothing makes it go on by itself, and a
// repeat with its key is a person's wish.
func TestCancelAParkedCall(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 300"), answer(201, "order 1"))
		r.want(r.post("http://u1.test/", "b", keyed), 202, u, 1)
		id := r.waitingID("parked")
		told := r.orders(id, "cancel", 200, "without another attempt")
		if told.Record != "dead" || told.Executed != "no" {
			t.Errorf("told = %+v, want a dead record, not executed", told)
		}
		r.orders(id, "cancel", 404, "it is over")
		rest(time.Second)
		r.wantEnd("failed", cancelled, 0)
		r.wantMetric(1, "dead_letters_total", "reason="+cancelled)
		again()
		rest(30 * time.Minute)
		r.want(reply{}, 0, u, 1)
		r.wantState(idempotency.StateDead)
		rec := r.record("k")
		if n := rec.Notes; rec.Reason != cancelled || len(n) != 1 || n[0].Did != "cancelled" || !rec.NextAt.IsZero() {
			t.Errorf("the record = %s, %+v, next at %v", rec.Reason, n, rec.NextAt)
		}
		r.want(r.post("http://u1.test/", "b", keyed), 201, u, 2)
		r.wantState(idempotency.StateDone)
	}, with("jitter: none, jitter_ratio: 0, retry_after_over_cap: park, redrive: [1m, 5m]")...)
}

// Of two operators, and of an operator and the wake-up, one decides; the other hears it.
func TestCancelRaces(t *testing.T) {
	t.Run("two operators", func(t *testing.T) {
		bubble(t, func(r *rig) {
			u := r.upstream("u1.test:80", answer(503, "busy"), answer(200, "ok"))
			call := r.async(func() reply { return r.get("http://u1.test/x") })
			rest(time.Second)
			id := r.waitingID("waiting")
			all := r.together(4, func(i int) reply {
				return r.admin("POST", "/api/v1/calls/"+id+"/"+[]string{"cancel", "expedite"}[i%2], byLi, nil)
			})
			won := statuses(all)[200]
			if won != 1 {
				t.Errorf("statuses = %v, want one that decides", statuses(all))
			}
			got := <-call
			if sent := u.count(); got.Status == 503 && sent != 1 || got.Status == 200 && sent != 2 {
				t.Errorf("the answer is %d after %d requests", got.Status, sent)
			}
		}, slow...)
	})
	t.Run("a client that leaves", func(t *testing.T) {
		lasting(t, func(r *rig, _ func()) {
			u := r.upstream("u1.test:80", answer(503, "busy"), answer(200, "ok"))
			c := r.dial()
			_, _ = c.Write([]byte(rawRequest("POST", "http://u1.test/x", "b", keyed)))
			rest(time.Second)
			id := r.waitingID("waiting")
			_ = c.Close()
			r.orders(id, "cancel", 200, "")
			rest(5 * time.Minute)
			r.want(reply{}, 0, u, 1)
			r.wantState(idempotency.StateDead)
		}, patches(slow, []string{"jitter: none,", "jitter: none, redrive: [1m],"})...)
	})
	t.Run("many parked calls, while they are woken", func(t *testing.T) {
		lasting(t, func(r *rig, _ func()) {
			var sent atomic.Int32
			r.upstream("u1.test:80", later429(func(s *scripted, c net.Conn, q *request) bool {
				sent.Add(1)
				return answer(201, "x")(s, c, q)
			}))
			r.parkMany(40, "u1.test")
			var calls []struct{ ID string }
			r.admin("GET", "/api/v1/calls?state=parked", "", &calls)
			rest(time.Until(r.record("u1.test-0").NextAt))
			all := r.together(40, func(i int) reply { return r.admin("POST", "/api/v1/calls/"+calls[i].ID+"/cancel", byLi, nil) })
			rest(10 * time.Second)
			st := r.app.store.Stats().ByState
			won := statuses(all)[200]
			if st[idempotency.StateDead] != won || st[idempotency.StateDone] != 40-won || int(sent.Load()) != 40-won {
				t.Errorf("%v, %d sent, %v; want each cancelled call dead and no other", statuses(all), sent.Load(), st)
			}
		}, parks...)
	})
}

// The histogram counts what waits and what is parked by when it goes on.
func TestWaitingHistogram(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", answer(500, "broken"))
		r.upstream("u2.test:80", answer(429, "", "Retry-After: 295"))
		r.upstream("u3.test:80", answer(429, "", "Retry-After: 1800"))
		call := r.async(func() reply { return r.get("http://u1.test/x") })
		r.post("http://u2.test/", "b", "X-Idempotency-Key: a")
		r.post("http://u3.test/", "b", "X-Idempotency-Key: b")
		rest(time.Second)
		var v proxy.Wakeups
		r.admin("GET", "/api/v1/calls/waiting/histogram?minutes=10&step=10s", "", &v)
		for cause, at := range map[string]int{"backoff": 5, "parked": 29} {
			if n := v.ByCause[cause]; len(n) != 60 || n[at] != 1 {
				t.Errorf("%s = %v, want one in step %d of 60", cause, n, at)
			}
		}
		if v.Step != 10 || v.Later != 1 || v.Undated != 0 || !v.Start.Equal(time.Now()) {
			t.Errorf("histogram = %+v, want one later", v)
		}
		for path, words := range map[string]string{"/line": "<svg", "/line?state=parked": "u3.test"} {
			if got := r.admin("GET", path, "", nil); got.Status != 200 || !strings.Contains(got.Body, words) {
				t.Errorf("the page %s = %d without %s: %s", path, got.Status, words, got.Body)
			}
		}
		r.orders(r.waitingID("waiting"), "cancel", 200, "")
		<-call
	}, patches(slow, []string{"jitter: none,", "jitter: none, retry_after_over_cap: park,"})...)
}

// Only those who may act give orders, and what they did is noted.
func TestLineHasRoles(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"))
		call := r.async(func() reply { return r.get("http://u1.test/x") })
		rest(time.Second)
		var calls []struct{ ID string }
		r.adminAs(asViewer, "GET", "/api/v1/calls?state=waiting", "", &calls)
		path := "/api/v1/calls/" + calls[0].ID
		for _, x := range [][3]string{
			{"GET", "/api/v1/calls/waiting/histogram", "200 200 200"},
			{"POST", "/api/v1/calls/nobody/expedite", "403 404 404"},
			{"POST", "/api/v1/calls/nobody/cancel", "403 404 404"},
		} {
			if got := r.statusesOf(x[0], x[1], `{"note":"drill"}`); got != x[2] {
				t.Errorf("%s %s by viewer, operator, admin = %s, want %s", x[0], x[1], got, x[2])
			}
		}
		r.adminAs(asOperator, "POST", path+"/expedite", `{"note":"now"}`, nil)
		rest(time.Second)
		r.adminAs(asOperator, "POST", path+"/cancel", `{"note":"not wanted"}`, nil)
		r.want(<-call, 503, u, 2)
		log := r.auditLog()
		if len(log) != 8 || log[0] != "oleg (operator) call.cancel not wanted ok" || log[1] != "oleg (operator) call.expedite now ok" {
			t.Errorf("the audit log says\n%s", strings.Join(log, "\n"))
		}
	}, patches(slow, lays(team))...)
}

// What a platform stopped stays stopped: an expedited call is not sent, and waits on.
func TestExpediteDoesNotPassWhatAPlatformStopped(t *testing.T) {
	bubble(t, func(r *rig) {
		var asked atomic.Int32
		u := r.upstream("u1.test:80", func(s *scripted, c net.Conn, q *request) bool {
			if q.Header.Get("X-Token") == "0" && asked.Add(1) == 1 {
				return answer(503, "busy")(s, c, q)
			}
			return saysToken(s, c, q)
		})
		for code, reason := range map[string]string{"10": "auth_expired", "20": "risk_control"} {
			asked.Store(0)
			call := r.async(func() reply { return r.shopCall("s"+code, "0", "Idempotency-Key: wait-"+code) })
			rest(time.Second)
			r.shopCall("s"+code, code)
			before := u.count()
			id := r.waitingID("waiting")
			if reason == "risk_control" {
				r.orders(id, "expedite", 409, reason+" at mine")
			} else { // its own token is another one, and may be a good one
				r.orders(id, "expedite", 200, "starts now")
			}
			rest(time.Second)
			if sent := u.count() - before; (sent == 0) != (reason == "risk_control") {
				t.Errorf("%s: %d requests by the order", reason, sent)
			}
			<-call
		}
	}, patches(ownPreset(t, stopping), slow[2:])...)
}

// Nor does a parked call pass the breaker of its shop, or one whose shop was stopped.
func TestExpediteAParkedCallOfAStoppedShop(t *testing.T) {
	for reason, stop := range map[string]func(r *rig){
		"shop_breaker_open until ": func(r *rig) {
			for range 3 {
				r.app.shops.Report("s1", "u1.test:80", "status_401", false, time.Now())
			}
		},
		"risk_control at mine": func(r *rig) {
			r.app.pauses.Stop(pause.Pause{Key: pause.Key{Platform: "mine", Shop: "s1"}, Host: "u1.test:80", Reason: pause.RiskControl}, time.Now())
		},
		"retries_off": func(r *rig) { r.admin("PUT", "/api/v1/retries", `{"value":"off"}`, nil) },
	} {
		t.Run(reason, func(t *testing.T) {
			lasting(t, func(r *rig, _ func()) {
				u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 300"), answer(201, "x"))
				r.want(r.post("http://u1.test/", "b", keyed, "X-Shop-Id: s1"), 202, u, 1)
				stop(r)
				r.orders(r.waitingID("parked"), "expedite", 409, reason)
				rest(5 * time.Second)
				r.want(reply{}, 0, u, 1)
				if n := r.app.store.Stats().ByState[idempotency.StateParked]; n != 1 {
					t.Errorf("%d calls are parked, want it as before", n)
				}
			}, parks...)
		})
	}
}

// An order that was given before a crash is one, and a call that waited when the process
// ended can be ended by the next one.
func TestCancelAfterARestart(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		u := r.upstream("u1.test:80", answer(503, "busy"), answer(201, "order 1"))
		call := r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
		rest(time.Second)
		o.crash()
		<-call
		o.start()
		rest(time.Second)
		r.orders(r.waitingID("waiting"), "cancel", 200, `"record": "dead"`)
		o.crash()
		o.start()
		rest(5 * time.Minute)
		r.want(reply{}, 0, u, 1)
		r.wantState(idempotency.StateDead)
		if rec := r.record("k"); rec.Reason != cancelled || len(rec.Notes) != 1 || rec.Notes[0].By != "li" {
			t.Errorf("the record = %s %+v", rec.Reason, rec.Notes)
		}
	}, slow...)
}

// While the store does not answer nobody is told that a call is over for good.
func TestCancelWithoutAStore(t *testing.T) {
	var down atomic.Bool
	durably(t, func(a *app) {
		a.proxy.Store = &faulty{Store: a.proxy.Store, advance: func(int32) bool { return down.Load() }}
	}, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"), answer(201, "order 1"))
		call := r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
		rest(time.Second)
		id := r.waitingID("waiting")
		down.Store(true)
		r.orders(id, "cancel", 503, "its record is still waiting")
		r.want(<-call, 503, u, 1)
		down.Store(false)
		rest(5 * time.Second)
		r.wantState(idempotency.StateDead)
	}, slow...)
}

// An operator who was told that a call is over is right, whatever happens in the same
// instant: a shutdown does not leave it to the next process.
func TestCancelWhileDraining(t *testing.T) {
	const calls = 100
	blackouts(t, func(r *rig, o *blackout) {
		u := r.upstream("u1.test:80", later429(answer(201, "order")))
		for i := range calls {
			r.async(func() reply { return r.post("http://u1.test/", "b", fmt.Sprint("X-Idempotency-Key: k", i)) })
		}
		rest(time.Second)
		var waiting []struct{ ID string }
		r.admin("GET", "/api/v1/calls?state=waiting&limit=200", "", &waiting)
		told, p := make(chan string, calls), r.app.proxy
		for i, c := range waiting {
			go func() {
				if i == calls/2 {
					p.Drain()
				}
				if _, err := p.Cancel(r.t.Context(), c.ID, deadletter.Signed{By: "li"}, r.app.recordUnder); err != nil {
					c.ID = ""
					if errors.Is(err, idempotency.ErrUnavailable) {
						t.Errorf("an order was taken and not carried out: %v", err)
					}
				}
				told <- c.ID
			}()
		}
		over := map[string]bool{}
		for range waiting {
			over[<-told] = true
		}
		delete(over, "")
		rest(time.Second)
		o.stop()
		o.start()
		rest(10 * time.Minute)
		dead := 0
		for i := range calls {
			rec := r.record(fmt.Sprint("k", i))
			owner := rec.Runs[0].CallID
			if rec.State == idempotency.StateDead {
				dead++
			}
			if ended := rec.State == idempotency.StateDead && rec.Reason == cancelled; ended != over[owner] {
				t.Errorf("the operator was told that %s is over: %v; it is %s (%s)", owner, over[owner], rec.State, rec.Reason)
			}
		}
		if len(waiting) != calls || u.count() != calls+calls-dead {
			t.Errorf("%d of %d waited, %d were cancelled, %d requests", len(waiting), calls, dead, u.count())
		}
	}, slow...)
}
