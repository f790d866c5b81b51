package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/idempotency"
	"retryproxy/report"
)

// reported is the report as the API has it.
type reported struct {
	Policies []struct {
		Policy    string
		ChangedAt time.Time `json:"changed_at"`
		Arms      []reportedArm
	}
}

type reportedArm struct {
	Name, Variant                  string
	Weight                         int
	Since                          time.Time
	Calls, Succeeded, Saved, Left  int
	Success, Attempts, Sent, Added reportedFigure
	P95                            reportedFigure
	Against                        *struct{ Success, Attempts, Sent, Added, P95 reportedFigure }
}

type reportedFigure struct {
	Value, Low, High float64
	Verdict          string
}

// report asks for the report; names of figures are those of reportedArm.
func (r *rig) report(query string) (out reported) {
	r.t.Helper()
	text := r.admin("GET", "/api/v1/report"+query, "", nil).Body
	for long, short := range map[string]string{
		"attempts_per_call": "attempts", "amplification": "sent", "added_latency_ms": "added", "added_latency_p95_ms": "p95", "against_first": "against",
	} {
		text = strings.ReplaceAll(text, `"`+long+`"`, `"`+short+`"`)
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		r.t.Fatalf("GET report: %v in %s", err, text)
	}
	return out
}

// arm is one of the report.
func (r *rig) arm(name string) reportedArm {
	r.t.Helper()
	for _, p := range r.report("").Policies {
		for _, a := range p.Arms {
			if a.Name == name {
				return a
			}
		}
	}
	r.t.Fatalf("the report has no %s", name)
	return reportedArm{}
}

// armOf is the name of the variant that a key without a tenant falls on.
func (r *rig) armOf(key string) string {
	return r.app.proxy.Settings().Policies.Policies()[0].Arm(idempotency.NoTenant, key).Name
}

// keyFor is a key that falls on this variant.
func (r *rig) keyFor(name string, skip int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("key-", i); r.armOf(key) == name {
			if skip--; skip < 0 {
				return key
			}
		}
	}
}

// round is how the report rounds.
func round(x float64) float64 { return math.Round(x*1e6) / 1e6 }

func key(k string) string { return "X-Idempotency-Key: " + k }

// onceIn answers every nth first attempt with 503.
func onceIn(n int32) step {
	var firsts atomic.Int32
	return func(s *scripted, c net.Conn, q *request) bool {
		if q.Header.Get("X-Retry-Count") == "" && firsts.Add(1)%n == 0 {
			return answer(503, "")(s, c, q)
		}
		return answer(200, "ok")(s, c, q)
	}
}

const noneAndThree = "variants: [{name: none, max_retries: 0}, {name: three}]"

// Two variants that really differ: one in five calls fails at first, and only one of
// the variants tries again. The report has the figures to the call, and says so.
func TestVariantsThatDiffer(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", onceIn(5))
		const calls = 1000
		want := map[string]*reportedArm{"default/none": {}, "default/three": {}}
		for i := range calls {
			k := fmt.Sprint("k", i)
			got, arm := r.get("http://u1.test/", key(k)), want[r.armOf(k)]
			arm.Calls++
			switch {
			case got.Status == 200:
				arm.Succeeded++
				if got.Header.Get("X-Retry-Count") == "1" {
					arm.Saved++
				}
			case got.Status != 503:
				t.Fatalf("call %d: status %d", i, got.Status)
			}
			r.letEnd(got)
		}
		none, three := r.arm("default/none"), r.arm("default/three")
		for _, a := range []reportedArm{none, three} {
			w := want[a.Name]
			if a.Calls != w.Calls || a.Succeeded != w.Succeeded || a.Saved != w.Saved || a.Success.Value != round(float64(w.Succeeded)/float64(w.Calls)) {
				t.Errorf("%s: calls %d, succeeded %d, saved %d; want %+v", a.Name, a.Calls, a.Succeeded, a.Saved, w)
			}
			if perCall := round(1 + float64(a.Saved)/float64(a.Calls)); a.Attempts.Value != perCall || a.Sent.Value != perCall {
				t.Errorf("%s: attempts %v and amplification %v, want %v", a.Name, a.Attempts.Value, a.Sent.Value, perCall)
			}
			if mean := round(100 * float64(a.Saved) / float64(a.Calls)); a.Added.Value != mean {
				t.Errorf("%s: added latency %v ms, want %v: 100 ms for each that was saved", a.Name, a.Added.Value, mean)
			}
		}
		if three.Saved < 50 || none.Saved != 0 || none.P95.Value != 0 || three.P95.Low > 100 || three.P95.High < 100 {
			t.Errorf("saved %d and %d, p95 %v and %v; want some and none, 0 and 100 ms", three.Saved, none.Saved, none.P95, three.P95)
		}
		v := three.Against
		if v == nil || none.Against != nil {
			t.Fatal("the second variant is to be compared with the first")
		}
		if v.Success.Verdict != report.Better || v.Attempts.Verdict != report.Worse || v.Sent.Verdict != report.Worse || v.Added.Verdict != report.Worse || v.P95.Verdict != report.Worse {
			t.Errorf("verdicts = %+v, want success better and all else worse", *v)
		}
	}, patches(with("jitter: none, "+noneAndThree), breakerOff)...)
}

// The variant is told wherever the policy of a call is: log, calls, metrics, and the
// record that a restart finds.
func TestVariantIsTold(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(200, "ok"))
		k := r.keyFor("default/three", 0)
		r.letEnd(r.get("http://u1.test/", key(k)))
		if got := r.last().Policy; got != "default/three" {
			t.Errorf("the call's policy is %s, want default/three", got)
		}
		if !strings.Contains(r.log.String(), `"policy":"default/three"`) {
			t.Errorf("the log does not name the variant: %s", r.log.String())
		}
		if got := r.record(k).Policy; got != "default/three" {
			t.Errorf("the record's policy is %s, want default/three", got)
		}
		if text := r.admin("GET", "/metrics", "", nil).Body; !strings.Contains(text, `retryproxy_calls_total{mode="forward",policy="default/three",result="success"} 1`) {
			t.Error("the metrics do not name the variant")
		}
		if text := r.admin("GET", "/api/v1/policies", "", nil).Body; !strings.Contains(text, `"max_retries": 0`) {
			t.Errorf("the policies do not show what the variant has of its own: %s", text)
		}
	}, with(noneAndThree)...)
}

// A call without a key may get any variant, one that repeats a key always the same.
func TestVariantOfCallsWithoutAKey(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(200, "ok"))
		for range 100 {
			r.letEnd(r.get("http://u1.test/"))
		}
		none, three := r.arm("default/none").Calls, r.arm("default/three").Calls
		if none+three != 100 || none < 30 || three < 30 {
			t.Errorf("%d and %d calls without a key, want about half each of 100", none, three)
		}
	}, with(noneAndThree)...)
}

// Only what the retry rule had counts: no replay, no refusal, no call of another's
// attempts. A client that left is counted apart.
func TestReportCountsWhatTheRuleHad(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", byPath(map[string]step{"/": answer(200, "ok"), "/slow": after(500*time.Millisecond, answer(200, "ok")), "/hangs": silent}))
		r.letEnd(r.post("http://u1.test/", "a", key("k1")))
		r.letEnd(r.post("http://u1.test/", "a", key("k1")))          // a replay
		r.letEnd(r.post("http://u1.test/", "b", key("k1")))          // a mismatch
		r.letEnd(r.post("http://u1.test/", "a", key("a"), key("b"))) // two keys
		r.letEnd(r.get("http://192.0.2.1/", key("k3")))              // a destination that is denied
		for _, got := range r.together(2, func(int) reply { return r.post("http://u1.test/slow", "a", key("k2")) }) {
			r.letEnd(got)
		}
		c := r.dial()
		fmt.Fprint(c, rawRequest("GET", "http://u1.test/hangs", ""))
		rest(100 * time.Millisecond)
		c.Close()
		rest(time.Second)
		a := r.arm("default")
		if a.Calls != 2 || a.Succeeded != 2 || a.Left != 1 {
			t.Errorf("calls %d, succeeded %d, left %d; want 2 (k1 and k2), 2 and 1", a.Calls, a.Succeeded, a.Left)
		}
	}, patches(plain, []string{"connect_ports: [443, 80, 7000, 7001]", "connect_ports: [443, 80, 7000, 7001], deny: [192.0.2.0/24]"})...)
}

// Of an opaque tunnel the dial counts, once the tunnel is over; what is in it is not ours.
func TestReportCountsTunnels(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.closed("u1.test:443", answer(200, "ok"))
		u.openAfter(50 * time.Millisecond)
		c, _, got := r.connect("u1.test:443")
		r.want(got, 200, nil, 0)
		rest(time.Minute)
		c.Close()
		rest(time.Second)
		if a := r.arm("default"); a.Calls != 1 || a.Saved != 1 || a.Attempts.Value != 2 || a.Sent.Value != 1 || a.Added.Value != 100 {
			t.Errorf("default = %+v, want one call of 2 dials, one of which reached the host, and 100 ms", a)
		}
	}, plain...)
}

// Attempts that never reached an upstream are attempts, and amplify nothing.
func TestReportTellsAttemptsFromRequests(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.closed("u1.test:80", answer(200, "ok"))
		u.openAfter(150 * time.Millisecond) // 2 refused attempts, at 0 and 100 ms
		r.letEnd(r.get("http://u1.test/"))
		if a := r.arm("default"); a.Attempts.Value != 3 || a.Sent.Value != 1 || a.Added.Value != 300 {
			t.Errorf("attempts %v, amplification %v, added %v ms; want 3, 1, 300", a.Attempts.Value, a.Sent.Value, a.Added.Value)
		}
	}, plain...)
}

// A call that the gate turns away has failed, and what it waited is added to it.
func TestReportCountsWhatTheGateTurnsAway(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(900*time.Millisecond, answer(200, "ok")))
		r.together(2, func(int) reply {
			return r.get("http://u1.test/")
		})
		a := r.arm("default")
		if a.Calls != 2 || a.Succeeded != 1 || a.Attempts.Value != 0.5 || u.count() != 1 || a.Added.Value != 150 {
			t.Errorf("calls %d, succeeded %d, attempts %v, added %v ms; want 2, 1, 0.5, and 150: half of max_wait", a.Calls, a.Succeeded, a.Attempts.Value, a.Added.Value)
		}
	}, patches(plain, []string{"max_in_flight: 100", "max_in_flight: 1, max_wait: 300ms"})...)
}

// What a call waited for a retry that never came is added as well.
func TestReportCountsAWaitForNothing(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", byPath(map[string]step{"/fails": answer(503, ""), "/slow": after(900*time.Millisecond, answer(200, "ok"))}))
		fails := r.async(func() reply { return r.get("http://u1.test/fails") })
		rest(50 * time.Millisecond)
		slow := r.async(func() reply { return r.get("http://u1.test/slow") }) // has the only slot when the retry is due
		got := <-fails
		r.letEnd(got)
		r.wantHeader(got, "X-Retry-Reason", "no_slot")
		if a := r.arm("default"); a.Calls != 1 || a.Attempts.Value != 1 || a.Added.Value != 400 {
			t.Errorf("default = %+v, want one call of 1 attempt and 400 ms: a backoff of 100 and max_wait", a)
		}
		r.letEnd(<-slow)
		r.want(reply{}, 0, u, 2)
	}, patches(plain, []string{"max_in_flight: 100", "max_in_flight: 1, max_wait: 300ms"})...)
}

// A call that was parked for too long counts with what was tried of it before.
func TestReportOfACallParkedForTooLong(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		r.upstream("u1.test:80", answer(429, "", "Retry-After: 300"))
		r.letEnd(r.post("http://u1.test/", "b", keyed))
		o.stop()
		rest(2 * time.Hour)
		o.start()
		rest(10 * time.Second)
		r.wantState(idempotency.StateDead)
		if a := r.arm("default"); a.Calls != 1 || a.Succeeded != 0 || a.Attempts.Value != 1 || a.Added.Value < 2*3600*1000 {
			t.Errorf("default = %+v, want one failed call of 1 attempt and 2 hours", a)
		}
	}, parks...)
}

// A reload keeps the figures of what stays as it is; a variant whose settings changed
// is another one, and begins anew.
func TestReportAfterAReload(t *testing.T) {
	policies := func(text string) []string {
		return []string{"  - {name: default,", "  - {name: ship, match: {path: /ship}}\n  - {name: default,", "connect_timeout: 1s}", "connect_timeout: 1s, " + text + "}"}
	}
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(200, "ok"))
		for range 40 {
			r.letEnd(r.get("http://u1.test/"))
			r.letEnd(r.get("http://u1.test/ship"))
		}
		a, ship := r.arm("default/a"), r.arm("ship")
		rest(time.Minute)
		r.applies(policies("variants: [{name: a, weight: 3}, {name: b, max_retries: 1}]")...)
		if got := r.arm("default/a"); got.Calls != a.Calls || !got.Since.Equal(a.Since) || got.Weight != 3 {
			t.Errorf("a = %+v, want the figures it had, %+v, and the new weight", got, a)
		}
		if got := r.arm("ship"); got.Calls != ship.Calls || got.Calls != 40 {
			t.Errorf("ship has %d calls, want 40 as before", got.Calls)
		}
		if got := r.arm("default/b"); got.Calls != 0 || !got.Since.Equal(a.Since.Add(time.Minute)) {
			t.Errorf("b = %+v, want it to begin with its new settings", got)
		}
		p := r.report("?policy=default").Policies
		if len(p) != 1 || !p[0].ChangedAt.Equal(a.Since.Add(time.Minute)) {
			t.Errorf("the report of default = %+v, want it alone, and when it changed", p)
		}

		rest(time.Minute)
		r.admin("POST", "/api/v1/report/reset?policy=default", "", nil)
		if got := r.arm("default/a"); got.Calls != 0 || !got.Since.Equal(a.Since.Add(2*time.Minute)) {
			t.Errorf("a = %+v after a reset, want nothing", got)
		}
		if p := r.report("?policy=default").Policies; !p[0].ChangedAt.IsZero() {
			t.Error("after a reset the figures are still said to be mixed")
		}
		if got := r.arm("ship"); got.Calls != 40 {
			t.Errorf("ship has %d calls after a reset of default, want 40", got.Calls)
		}
		if got := r.admin("GET", "/api/v1/report?policy=nobody", "", nil); got.Status != 404 {
			t.Errorf("the report of a policy that does not exist = %d, want 404", got.Status)
		}
		if got := r.admin("POST", "/api/v1/report/reset?policy=nobody", "", nil); got.Status != 404 {
			t.Errorf("its reset = %d, want 404", got.Status)
		}
	}, policies("variants: [{name: a}, {name: b}]")...)
}

// Variants whose policy is for other calls than before begin anew: others fail otherwise.
func TestReportBeginsAnewWithAnotherMatch(t *testing.T) {
	groups := func(text string) []report.Group {
		cfg, err := parseText(text)
		if err != nil {
			t.Fatal(err)
		}
		set, err := cfg.Policies()
		if err != nil {
			t.Fatal(err)
		}
		return reportGroups(set)
	}
	const ship = "retry_policies: [{name: ship, match: {shop: s1}, variants: [{name: a, weight: 9}, {name: b}]}]"
	r := report.New(groups(ship), time.Now())
	for _, tt := range []struct {
		old, new string
		calls    int
	}{{"weight: 9", "weight: 5", 1}, {"shop: s1", "shop: s2", 0}} {
		r.Count("ship/a", report.Call{Succeeded: true, Attempts: 1})
		r.Configure(groups(strings.Replace(ship, tt.old, tt.new, 1)), time.Now())
		v, _ := r.View("ship", time.Now())
		if got := v.Policies[0].Arms[0].Calls; got != tt.calls {
			t.Errorf("%d calls after %s became %s, want %d", got, tt.old, tt.new, tt.calls)
		}
	}
}

const slowAndQuick = "jitter: none, variants: [{name: slow, base_delay: 2s, max_delay: 2s}, {name: quick}]"

// A call goes on after a restart by the variant that it began with, whatever the
// weights are by then; once that is gone, by what its policy has.
func TestRestartKeepsTheVariant(t *testing.T) {
	for _, tt := range []struct {
		name, config string
		policy       string
		gap          time.Duration // between the second attempt and the third
	}{
		{"unchanged", slowAndQuick, "default/slow", 2 * time.Second},
		{"its weight is small", strings.Replace(slowAndQuick, "name: quick", "name: quick, weight: 1000000", 1), "default/slow", 2 * time.Second},
		{"it is gone", "jitter: none", "default", 200 * time.Millisecond},
		{"others are there", strings.Replace(slowAndQuick, "name: slow, base_delay: 2s, max_delay: 2s", "name: new", 1), "", 200 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			blackouts(t, func(r *rig, o *blackout) {
				u := r.upstream("u1.test:80", answer(503, ""), answer(503, ""), answer(201, "order"))
				k := r.keyFor("default/slow", 0)
				call := r.async(func() reply { return r.post("http://u1.test/", "b", key(k)) })
				rest(time.Second)
				o.stop()
				r.want(<-call, 202, u, 1)
				o.start(slowAndQuick, tt.config)
				rest(10 * time.Second)
				want := tt.policy
				if want == "" {
					want = r.armOf(k)
				}
				if got := r.record(k).Policy; got != "default/slow" {
					t.Errorf("the record's policy = %s, want the one it began with", got)
				}
				if gaps := u.gaps(); len(gaps) != 2 || gaps[1] != tt.gap {
					t.Errorf("waits = %v, want the second %v", gaps, tt.gap)
				}
				a := r.arm(want)
				if a.Calls != 1 || a.Saved != 1 || a.Attempts.Value != 3 || a.Added.Value < 2000 {
					t.Errorf("%s = %+v, want the call with 3 attempts and the time before the restart", want, a)
				}
			}, with(slowAndQuick)...)
		})
	}
}

// A parked call counts once, when it is over, by the variant it began with; a dead
// letter that is requeued counted when it became one.
func TestReportOfParkedAndRequeuedCalls(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 300"), answer(400, "no"), answer(200, "ok"))
		r.letEnd(r.post("http://u1.test/", "b", keyed))
		if a := r.arm("default"); a.Calls != 0 {
			t.Errorf("%d calls while the only one is parked, want none", a.Calls)
		}
		rest(310 * time.Second)
		a := r.arm("default")
		if a.Calls != 1 || a.Succeeded != 0 || a.Attempts.Value != 2 || a.Sent.Value != 2 || a.Added.Value < 300_000 {
			t.Errorf("default = %+v, want one failed call of 2 attempts and 5 minutes", a)
		}
		letters := r.lettersOf("")
		if len(letters) != 1 {
			t.Fatalf("%d letters, want 1", len(letters))
		}
		r.admin("POST", lettersAPI+"/"+letters[0].ID+"/requeue", "{}", nil)
		rest(time.Second)
		r.want(reply{}, 0, u, 3)
		if a := r.arm("default"); a.Calls != 1 {
			t.Errorf("%d calls after the letter ran again, want 1", a.Calls)
		}
	}, parks...)
}
