package main

import (
	"errors"
	"testing"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/message"
)

// letters are the dead and doubtful records, the latest first.
func (r *rig) letters() []idempotency.Record {
	r.t.Helper()
	r.ended()
	found, _, err := r.app.store.List(r.t.Context(), idempotency.Query{States: []idempotency.State{idempotency.StateDead, idempotency.StateInDoubt}})
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range found {
		if found[i], err = r.app.store.Get(r.t.Context(), found[i].ID, time.Now()); err != nil {
			r.t.Fatal(err)
		}
	}
	return found
}

// What a policy names is kept when it is given up, with all that a person needs;
// what it does not name, and a definite no, is not.
func TestWhatBecomesALetter(t *testing.T) {
	const keyless, gold = "", "gw-api.pinduoduo.com"
	for _, tt := range []struct {
		name, method, host, key string
		policy                  string
		script                  step
		state                   idempotency.State // 0: no letter
		reason                  string
		executed                classify.Executed
	}{
		{"keyed, exhausted", "POST", "u1.test", keyed, "", answer(503, "busy"), idempotency.StateDead, "attempts_exhausted", classify.ExecutedNo},
		{"keyed GET, exhausted", "GET", "u1.test", keyed, "", answer(503, "busy"), idempotency.StateDead, "attempts_exhausted", classify.ExecutedNo},
		{"keyed, honoured, in doubt", "POST", "u1.test", keyed, "", answer(502, "broken"), idempotency.StateDead, "attempts_exhausted", classify.ExecutedMaybe},
		{"keyed, not honoured, in doubt", "POST", gold, keyed, "", answer(502, "broken"), idempotency.StateInDoubt, "manual_review", classify.ExecutedMaybe},
		{"keyless write, in doubt", "POST", "u1.test", keyless, "", answer(502, "broken"), idempotency.StateDead, "manual_review", classify.ExecutedMaybe},
		{"keyless PATCH, in doubt", "PATCH", "u1.test", keyless, "", answer(502, "broken"), idempotency.StateDead, "manual_review", classify.ExecutedMaybe},
		{"keyless write, nothing sent", "POST", "u1.test", keyless, "", answer(503, "busy"), idempotency.StateDead, "attempts_exhausted", classify.ExecutedNo},
		{"keyless, without an answer", "POST", "u1.test", keyless, "", silent, idempotency.StateDead, "manual_review", classify.ExecutedMaybe},
		{"keyless PUT", "PUT", "u1.test", keyless, "", answer(503, "busy"), 0, "", 0},
		{"keyless PUT, all", "PUT", "u1.test", keyless, ", dead_letter: all", answer(503, "busy"), idempotency.StateDead, "attempts_exhausted", classify.ExecutedNo},
		{"none", "POST", "u1.test", keyless, ", dead_letter: none", answer(502, "broken"), 0, "", 0},
		{"none, keyed", "POST", "u1.test", keyed, ", dead_letter: none", answer(502, "broken"), 0, "", 0},
		{"a definite no", "POST", "u1.test", keyless, "", answer(400, "wrong"), 0, "", 0},
		{"a definite no, keyed", "POST", "u1.test", keyed, "", answer(404, "wrong"), 0, "", 0},
		{"success", "POST", "u1.test", keyless, "", answer(200, "fine"), 0, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lasting(t, func(r *rig, _ func()) {
				r.upstream(tt.host+":80", tt.script)
				headers := []string{"X-Request-Id: req-1", "X-Shop-Id: s1", "Authorization: Bearer secret"}
				if tt.key != "" {
					headers = append(headers, tt.key)
				}
				got := r.do(tt.method, "http://"+tt.host+"/orders?n=1", "two books", headers...)
				all := r.letters()
				if tt.state == 0 {
					if len(all) != 0 {
						t.Errorf("letters %+v, want none", all)
					}
					return
				}
				if len(all) != 1 {
					t.Errorf("%d letters, want one", len(all))
					return
				}
				rec := &all[0]
				if rec.State != tt.state || rec.Reason != tt.reason || rec.Executed != tt.executed || rec.Keyless != (tt.key == keyless) || rec.Labels.Shop != "s1" ||
					rec.Receipt == "" || len(rec.History) == 0 || rec.Runs[0].ClientID != "req-1" || rec.Runs[0].Reason != tt.reason {
					t.Errorf("the letter is %+v", rec)
				}
				if id := got.Header.Get("X-Call-Id"); rec.Receipt != id {
					t.Errorf("the letter is named %s, its call is %s", rec.Receipt, id)
				}
				r.wantRequest(rec, tt.method+" two books")
				want := got.Body
				if got.Header.Get("Content-Type") == "application/problem+json" {
					want = ""
				}
				if have := answerText(rec.Answer); have != want {
					t.Errorf("its last answer is %q, want %q", have, want)
				}
				if until := rec.Expires.Sub(rec.Updated); tt.state == idempotency.StateDead && until != 30*24*time.Hour || tt.state == idempotency.StateInDoubt && until != time.Hour {
					t.Errorf("it is kept for %v", until)
				}
			}, patches(with("jitter: none, jitter_ratio: 0"+tt.policy), lays("upgrade_to_https: []"))...)
		})
	}
}

func answerText(a *idempotency.Answer) string {
	if a == nil || !a.Kept {
		return ""
	}
	return string(a.Body)
}

// wantRequest checks that a letter's request is kept as it came.
func (r *rig) wantRequest(rec *idempotency.Record, want string) {
	r.t.Helper()
	q, err := r.app.store.Load(r.t.Context(), rec.ID)
	if err != nil {
		r.t.Errorf("its request: %v", err)
		return
	}
	if have := rec.Method + " " + string(q.Body); have != want || q.Target != "/orders?n=1" || message.Fields(q.Fields).Get("Authorization") != "Bearer secret" {
		r.t.Errorf("its request is %q %q %v, want %q", have, q.Target, q.Fields, want)
	}
}

// A letter in doubt that nobody settled becomes a plain one when its key is new.
func TestDoubtEndsWithTheTTL(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("gw-api.pinduoduo.com:80", answer(502, "broken"), answer(201, "order 1"))
		ask := func() reply { return r.post("http://gw-api.pinduoduo.com/orders?n=1", "two books", keyed) }
		r.want(ask(), 502, u, 1)
		rest(59 * time.Minute)
		r.want(ask(), 409, u, 1)
		rest(2 * time.Minute)
		all := r.letters()
		if len(all) != 1 || all[0].State != idempotency.StateDead || all[0].Executed != classify.ExecutedMaybe || len(all[0].Notes) != 1 || all[0].Notes[0].Did != "key_free" {
			t.Errorf("after the ttl the letters are %+v", all)
		}
		r.want(ask(), 201, u, 2)
		if all := r.letters(); len(all) != 0 {
			t.Errorf("after the repeat there are letters: %+v", all)
		}
	}, patches(plain, lays("upgrade_to_https: []"))...)
}

// What cannot be sent again is kept without its request: nobody can requeue it, but
// it is found.
func TestLetterOfAStreamedBody(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", answer(502, "broken"))
		r.post("http://u1.test/orders", string(make([]byte, 2000)))
		all := r.letters()
		if len(all) != 1 || !all[0].Keyless {
			t.Errorf("letters %+v", all)
			return
		}
		if _, err := r.app.store.Load(r.t.Context(), all[0].ID); !errors.Is(err, idempotency.ErrNotFound) {
			t.Errorf("Load = %v, want none", err)
		}
	}, lays("body: {limit: 1000}")...)
}
