package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
)

// givenUp gives an order that fails for good, and its letter.
func (r *rig) givenUp(status int) string {
	r.t.Helper()
	if got := r.post("http://u1.test/x", "two books", keyed); got.Status != status {
		r.t.Errorf("status = %d %s, want %d", got.Status, got.Body, status)
	}
	return r.letter().ID
}

func TestCase_DL_01_TwoClicks(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		boom := answer(500, "boom")
		u := r.upstream("u1.test:80", boom, boom, boom, boom, after(500*time.Millisecond, answer(200, "done")))
		id := r.givenUp(500)
		took := 0
		for _, got := range r.together(20, func(int) reply { return r.admin("POST", lettersAPI+"/"+id+"/requeue", "{}", nil) }) {
			switch got.Status {
			case 202:
				took++
			case 409:
			default:
				t.Errorf("requeue = %d %s", got.Status, got.Body)
			}
		}
		rest(time.Second)
		if r.want(reply{}, 0, u, 5); took != 1 {
			t.Errorf("%d of 20 orders were taken, want one", took)
		}
		if all := r.letters(); len(all) != 0 {
			t.Errorf("letters are left: %+v", all)
		}
	}, patches(plain, breakerOff)...)
}

func TestCase_DL_03_RedrivesEnd(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(500, "boom"))
		id := r.givenUp(500)
		rest(20 * time.Minute)
		r.want(reply{}, 0, u, 16)
		v := r.letterOf(id)
		if v.State != "dead" || v.NextAt != nil || v.Made != 16 || len(v.Runs) != 4 {
			t.Errorf("letter = %s, next %v, %d attempts in %d runs, want dead, none, 16 in 4", v.State, v.NextAt, v.Made, len(v.Runs))
		}
		r.orderLetter(id+"/requeue", "", 202) // by hand it still goes
		rest(time.Minute)
		r.want(reply{}, 0, u, 20)
	}, patches(with("jitter: none, jitter_ratio: 0, redrive: [1m, 2m, 4m]"), breakerOff)...)
}

func TestCase_DL_04_OneEntry(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(500, "boom"))
		id := r.givenUp(500)
		for range 2 {
			r.orderLetter(id+"/requeue", "", 202)
			rest(5 * time.Second)
		}
		r.want(reply{}, 0, u, 12)
		if v := r.letter(); v.ID != id || v.Made != 12 || len(v.Runs) != 3 {
			t.Errorf("letter = %s with %d attempts in %d runs, want %s with 12 in 3", v.ID, v.Made, len(v.Runs), id)
		}
	}, patches(plain, breakerOff)...)
}

func TestCase_DL_06_CrashWhileRequeued(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		boom := answer(500, "boom")
		u := r.upstream("u1.test:80", boom, boom, boom, boom, silent, answer(200, "done"))
		id := r.givenUp(500)
		r.orderLetter(id+"/requeue", "", 202)
		rest(200 * time.Millisecond)
		r.want(reply{}, 0, u, 5)
		o.crash()
		o.start()
		rest(5 * time.Second)
		r.want(reply{}, 0, u, 6)
		r.wantSent(u, 6, "X-Retry-Count", "5")
		r.wantSent(u, 6, "X-Idempotency-Key", "k")
		rec := r.record("k")
		if rec.State != idempotency.StateDone || rec.History[4].Detail != "the proxy ended while the attempt was in flight" {
			t.Errorf("the record is %s, its fifth attempt %q", rec.State, rec.History[4].Detail)
		}
	}, patches(plain, breakerOff)...)
}

func TestCase_DL_08_FreshBudgetRunningCount(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		boom := answer(500, "boom")
		u := r.upstream("u1.test:80", boom, boom, boom, boom, answer(503, ""), answer(503, ""), answer(200, "done"))
		id := r.givenUp(500)
		r.orderLetter(id+"/requeue", "", 202)
		rest(5 * time.Second)
		r.want(reply{}, 0, u, 7)
		for n, count := range map[int]string{5: "4", 6: "5", 7: "6"} {
			r.wantSent(u, n, "X-Retry-Count", count)
		}
		if rec := r.record("k"); rec.State != idempotency.StateDone {
			t.Errorf("the record is %s, want done", rec.State)
		}
	}, patches(plain, breakerOff)...)
}

func TestCase_DL_10_ARedriveIsNoDuplicate(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		boom := answer(500, "boom")
		u := r.upstream("u1.test:80", boom, boom, boom, boom, answer(200, "done"))
		id := r.givenUp(500)
		r.orderLetter(id+"/requeue", "", 202)
		rest(time.Second)
		r.want(reply{}, 0, u, 5)
		got := r.post("http://u1.test/x", "two books", keyed)
		r.want(got, 200, u, 5)
		r.wantBody(got, "done")
	}, patches(plain, breakerOff)...)
}

// Requeued all at once they come at the rate that was asked for, and fresh calls
// between them.
func TestCase_SF_09_RetryAllObeysTheRate(t *testing.T) {
	const letters = 60
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", func() step {
			return later429(answer(200, "done")) // the first is no, and there is no retry
		}())
		r.together(letters, func(i int) reply {
			return r.post("http://u1.test/x", "b", fmt.Sprint("X-Idempotency-Key: k", i))
		})
		if n := len(r.letters()); n != letters {
			t.Errorf("%d letters, want %d", n, letters)
		}
		r.orderLetter("requeue", `{"all":true,"rate":"20/s"}`, 202)
		began := time.Now()
		for u.count() < 2*letters && time.Since(began) < time.Minute {
			rest(100 * time.Millisecond)
			if made, most := u.count()-letters, int(20*time.Since(began).Seconds())+2; made > most {
				t.Errorf("%d sent after %v, want no more than %d", made, time.Since(began), most)
			}
		}
		r.between("the whole", time.Since(began), 2500*time.Millisecond, 6*time.Second)
		if all := r.letters(); len(all) != 0 {
			t.Errorf("%d letters are left", len(all))
		}
	}, patches(with("jitter: none, jitter_ratio: 0, max_retries: 0"), []string{"max_retries: 3, ", ""}, breakerOff)...)
}

// Nothing of a wait is lost with the process, for shops and tiers alike.
func TestCase_SF_03_AWaitSurvivesAKill(t *testing.T) {
	const vip, normal = 10, 50
	blackouts(t, func(r *rig, o *blackout) {
		u := r.upstream("u1.test:80", func() step {
			return func(s *scripted, c net.Conn, q *request) bool {
				if q.Header.Get("X-Retry-Count") == "" {
					return answer(429, "", "Retry-After: 2")(s, c, q)
				}
				return answer(200, "done")(s, c, q)
			}
		}())
		for i := range vip + normal {
			tier := map[bool]string{true: "X-Shop-Tier: vip", false: "X-Shop-Tier: normal"}[i < vip]
			r.async(func() reply {
				return r.post("http://u1.test/x", "b", fmt.Sprint("X-Idempotency-Key: k", i), tier)
			})
		}
		rest(time.Second)
		o.crash()
		o.start()
		rest(10 * time.Second)
		r.want(reply{}, 0, u, 2*(vip+normal))
		if n := r.app.store.Stats().ByState[idempotency.StateDone]; n != vip+normal {
			t.Errorf("%d are done, want %d", n, vip+normal)
		}
	}, plain...)
}

// away is a store whose disk is gone.
type away struct{ idempotency.Store }

func (away) Begin(context.Context, idempotency.Claim, time.Time) (idempotency.Begun, error) {
	return idempotency.Begun{}, fmt.Errorf("%w: input/output error", idempotency.ErrUnavailable)
}

func TestCase_ID_12_StoreDown(t *testing.T) {
	durably(t, func(a *app) { a.proxy.Store = away{a.proxy.Store} }, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(200, "fine"))
		began := time.Now()
		got := r.post("http://u1.test/x", "b", keyed)
		r.want(got, 503, u, 0)
		r.wantHeader(got, "X-Retry-Reason", "store_unavailable")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantAfter(got, 1, 10)
		r.between("the refusal", time.Since(began), 0, 2*time.Second)
		r.want(r.get("http://u1.test/x"), 200, u, 2)
	}, plain...)
}

// What a keyless write may have done is kept for a person, with what it takes to
// find out.
func TestCase_DE_01_KeptForAPerson(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", hangUp)
		r.want(r.post("http://u1.test/orders?n=1", "two books", "Authorization: Bearer secret"), 502, u, 1)
		all := r.letters()
		if len(all) != 1 || !all[0].Keyless || all[0].Executed != classify.ExecutedMaybe || all[0].Reason != "manual_review" {
			t.Errorf("letters = %+v", all)
			return
		}
		r.wantRequest(&all[0], "POST two books")
	})
}

// A Retry-After that is longer than the deadline is a date in the list.
func TestCase_RA_05_Parked(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(503, "busy", "Retry-After: 30"), answer(200, "done"))
		began := time.Now()
		got := r.post("http://u1.test/x", "{}", keyed)
		r.wantGoesOn(got, 30, 33)
		r.between("the answer", time.Since(began), 0, 500*time.Millisecond)
		if rec := r.record("k"); rec.State != idempotency.StateParked || rec.Reason != "retry_after_too_long" || rec.NextAt.Sub(began) < 30*time.Second {
			t.Errorf("the record is %s for %s until %v", rec.State, rec.Reason, rec.NextAt)
		}
		rest(35 * time.Second)
		r.want(r.post("http://u1.test/x", "{}", keyed), 200, u, 2)
	}, with("jitter: none, jitter_ratio: 0, retry_after_over_cap: park")...)
}

// An empty bucket parks a durable call until its date.
func TestCase_SF_01_EmptyBucketParks(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(503, ""), answer(200, "done"))
		got := r.post("http://u1.test/x", "{}", keyed, "X-Shop-Id: s1")
		r.wantGoesOn(got, 55, 65)
		r.want(got, 202, u, 2)
		rest(70 * time.Second)
		r.want(r.post("http://u1.test/x", "{}", keyed, "X-Shop-Id: s1"), 200, u, 3)
	}, patches(plain, []string{"shop: off}", "shop: {rate: 1/m, burst: 1, share: 0}}"})...)
}

func TestCase_OB_04_SecretsOfALetter(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", answer(500, "boom", "Set-Cookie: s=TOPSECRET6"))
		r.post("http://u1.test/x?access_token=TOPSECRET1&sign=TOPSECRET2", `{"password":"TOPSECRET5"}`, keyed, "Authorization: Bearer TOPSECRET3", "Cookie: s=TOPSECRET4")
		v := r.letter()
		shown, err := json.Marshal([]any{v, r.letterOf(v.ID), r.admin("GET", lettersAPI+"/export", "", nil).Body, r.admin("GET", lettersAPI+"/export?format=csv", "", nil).Body, r.log.String()})
		if err != nil || strings.Contains(string(shown), "TOPSECRET") {
			t.Errorf("a secret is shown: %v %s", err, shown)
		}
	}, patches(plain, breakerOff)...)
}
