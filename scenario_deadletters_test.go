package main

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/attempt"
	"retryproxy/config"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
)

const lettersAPI = "/api/v1/deadletters"

// lettersOf are the dead letters that a query finds, the latest first.
func (r *rig) lettersOf(query string) []deadletter.View {
	r.t.Helper()
	synctest.Wait()
	var list struct{ Letters []deadletter.View }
	r.admin("GET", lettersAPI+query, "", &list)
	return list.Letters
}

// letter is the only dead letter.
func (r *rig) letter() deadletter.View {
	r.t.Helper()
	all := r.lettersOf("")
	if len(all) != 1 {
		r.t.Fatalf("dead letters = %+v, want one", all)
	}
	return all[0]
}

// letterOf is a letter by its id, whatever became of it.
func (r *rig) letterOf(id string) (v deadletter.View) {
	r.t.Helper()
	synctest.Wait()
	r.admin("GET", lettersAPI+"/"+id, "", &v)
	return v
}

// orderLetter gives an order about a letter and wants a status.
func (r *rig) orderLetter(path, body string, status int) reply {
	r.t.Helper()
	got := r.admin("POST", lettersAPI+"/"+path, body, nil)
	if got.Status != status {
		r.t.Errorf("POST %s %s = %d %s, want %d", path, body, got.Status, got.Body, status)
	}
	return got
}

// wantLetter checks how a letter stands.
func (r *rig) wantLetter(v deadletter.View, state, reason, executed string, attempts int) {
	r.t.Helper()
	if v.State != state || v.Reason != reason || v.Executed != executed || v.Made != attempts {
		r.t.Errorf("letter = %s, %s, executed %s, %d attempts; want %s, %s, executed %s, %d", v.State, v.Reason, v.Executed, v.Made, state, reason, executed, attempts)
	}
}

// quick gives up after one retry.
var quick = patches(plain, []string{"max_retries: 3", "max_retries: 1"}, breakerOff)

// also adds keys to the policy of quick.
func also(keys string) []string { return []string{"max_retries: 1,", "max_retries: 1, " + keys + ","} }

// repolicy puts another policy into force.
func (r *rig) repolicy(keys string) {
	r.t.Helper()
	cfg, err := config.Parse("test.yaml", []byte(strings.ReplaceAll(caseConfig, "max_retries: 3", keys)), config.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	s := *r.app.proxy.Settings()
	if s.Policies, err = cfg.Policies(); err != nil {
		r.t.Fatal(err)
	}
	r.app.proxy.Apply(&s)
}

// A keyed call that was given up is a letter. A requeue runs it again with its key,
// its count and the full budget; the answer closes the letter.
func TestRequeueClosesALetter(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(503, "down"), answer(503, "down"), answer(503, "down"), answer(201, "order 1"))
		r.want(r.post("http://u1.test/orders?sign=abc", "two books", keyed, "X-Shop-Id: s1", "X-Task-Type: order_ship", "X-Retry-Count: 4", "X-Request-Id: bot-7"), 503, u, 1)
		v := r.letter()
		r.wantLetter(v, "dead", "attempts_exhausted", "no", 1)
		if v.Labels.Shop != "s1" || v.Labels.TaskType != "order_ship" || v.Path != "/orders" || !v.Honoured || v.Todo != "requeue" || v.Runs[0].ClientID != "bot-7" ||
			v.KeyHash != idempotency.KeyHash("k") || v.NextAt != nil {
			t.Errorf("letter = %+v", v)
		}
		r.wantMetric(1, "dead_letters_stored")

		var order struct {
			CallID string `json:"call_id"`
		}
		r.admin("POST", lettersAPI+"/"+v.ID+"/requeue", `{"by":"ann","note":"it is back"}`, &order)
		rest(time.Second)
		r.want(reply{}, 0, u, 3) // the full budget: another retry
		r.wantSent(u, 2, "X-Idempotency-Key", "k")
		r.wantSent(u, 2, "X-Retry-Count", "5")
		r.wantSent(u, 3, "X-Retry-Count", "6")
		again := r.letter()
		r.wantLetter(again, "dead", "attempts_exhausted", "no", 3)
		if n := len(again.Runs); n != 2 || again.Runs[1].Kind != "requeue" || again.Runs[1].CallID != order.CallID || again.Notes[0].By != "ann" || again.Notes[0].Did != "requeued" || again.ID != v.ID {
			t.Errorf("after a requeue that failed: %+v", again)
		}

		r.orderLetter(v.ID+"/requeue", "", 202)
		rest(time.Second)
		if q := u.seen()[3]; string(q.Body) != "two books" || q.Line != "POST /orders?sign=abc HTTP/1.1" {
			t.Errorf("the requeue sent %s %q", q.Line, q.Body)
		}
		if all := r.lettersOf(""); len(all) != 0 {
			t.Errorf("a letter is left after its answer: %+v", all)
		}
		if got := r.letterOf(v.ID); got.State != "done" || len(got.Runs) != 3 {
			t.Errorf("the closed letter = %+v", got)
		}
		r.orderLetter(v.ID+"/requeue", "", 409)
		r.wantMetric(0, "dead_letters_stored")
		got := r.post("http://u1.test/orders?sign=abc", "two books", keyed, "X-Shop-Id: s1", "X-Task-Type: order_ship")
		r.want(got, 201, u, 4)
		r.wantHeader(got, "Idempotency-Replayed", "true")
	}, patches(quick)...)
}

// A bot that repeats the key of a letter while it is requeued gets what comes of it.
func TestRepeatJoinsARequeue(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(503, ""), after(300*time.Millisecond, answer(201, "order 1")))
		r.post("http://u1.test/", "{}", keyed)
		v := r.letter()
		r.orderLetter(v.ID+"/requeue", "", 202)
		rest(100 * time.Millisecond)
		r.orderLetter(v.ID+"/requeue", "", 409) // busy
		r.orderLetter(v.ID+"/drop", `{"by":"ann","note":"n"}`, 409)
		got := r.post("http://u1.test/", "{}", keyed)
		r.want(got, 201, u, 3)
		r.wantBody(got, "order 1")
		r.wantHeader(got, "Idempotency-Replayed", "true")
	}, quick...)
}

// What may have been executed, where nothing keeps the upstream from acting twice,
// runs again only by itself and by a person who says so.
func TestLetterInDoubt(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", hangUp, answer(201, "order 1"))
		r.want(r.post("http://u1.test/", "{}", keyed), 502, u, 1)
		v := r.letter()
		r.wantLetter(v, "in_doubt", "manual_review", "maybe", 1)
		if v.Todo != "check" || v.Honoured {
			t.Errorf("letter = %+v", v)
		}
		if got := r.orderLetter(v.ID+"/requeue", "{}", 409); !strings.Contains(got.Body, `"refused"`) {
			t.Errorf("requeue = %s, want refused", got.Body)
		}
		r.orderLetter(v.ID+"/drop", `{"by":"ann","note":"n"}`, 409)
		r.orderLetter("requeue", `{"all":true}`, 202)
		rest(time.Second)
		if b := r.bulk(); b.State != "ended" || b.Refused != 1 || b.Requeued != 0 {
			t.Errorf("bulk = %+v, want the one refused", b)
		}
		r.want(r.post("http://u1.test/", "{}", keyed), 409, u, 1)

		r.orderLetter(v.ID+"/requeue", `{"executed_unknown":true,"by":"ann","note":"not there"}`, 202)
		rest(time.Second)
		r.want(reply{}, 0, u, 2)
		got := r.letterOf(v.ID)
		if got.State != "done" || got.Notes[0].Did != "requeued_executed_unknown" || got.Executed != "yes" {
			t.Errorf("after the requeue = %+v", got)
		}
	}, patches(quick, also("forward_headers: []"))...)
}

func (r *rig) bulk() (b deadletter.Bulk) {
	r.t.Helper()
	synctest.Wait()
	r.admin("GET", lettersAPI+"/bulk", "", &b)
	return b
}

// wantSettled wants an answer, and what is known of its call, to say that a person
// settled it.
func (r *rig) wantSettled(got reply) {
	r.t.Helper()
	if !strings.Contains(string(got.Body), "a person settled it as executed") {
		r.t.Errorf("the answer does not say who: %s", got.Body)
	}
	var one struct {
		Records []struct {
			Answer  string
			Notes   []deadletter.NoteView
			Runs    []deadletter.RunView
			History []attempt.FullView
		}
	}
	r.ended()
	r.admin("GET", "/api/v1/calls/"+got.Header.Get("X-Call-Id"), "", &one)
	if len(one.Records) != 1 || one.Records[0].Answer != "unknown" || len(one.Records[0].Notes) != 1 || len(one.Records[0].Runs) != 1 || len(one.Records[0].History) != 1 {
		r.t.Errorf("what is known: %+v", one)
	}
}

// A call without a key that was given up leads to its letter.
func TestKeylessLetterIsKnownByItsCall(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", hangUp, answer(201, "order 1"))
		got := r.post("http://u1.test/", "{}")
		id := got.Header.Get("X-Call-Id")
		r.ended()
		type record struct {
			State, Receipt, Advice string
			Keyless                bool
		}
		known := func(call string) (records []record) {
			var one struct{ Records any }
			one.Records = &records
			r.want(r.admin("GET", "/api/v1/calls/"+call, "", &one), 200, nil, 0)
			return records
		}
		if records := known(id); len(records) != 1 || records[0].State != "dead" || records[0].Receipt != id || !records[0].Keyless || records[0].Advice == "" {
			t.Errorf("of the call is known %+v", records)
		}
		r.orderLetter(id+"/requeue", `{"executed_unknown":true,"by":"ann","note":"not there"}`, 202)
		rest(time.Second)
		r.ended()
		calls := r.history("result=success")
		if len(calls) != 1 || calls[0].Origin != "requeue" {
			t.Fatalf("calls = %+v, want the requeue", calls)
		}
		if records := known(calls[0].ID); len(records) != 1 || records[0].State != "done" || records[0].Receipt != id {
			t.Errorf("of the requeue is known %+v", records)
		}
	}, quick...)
}

// Settled as executed, repeats are not sent; as not executed, they are.
func TestResolve(t *testing.T) {
	for executed, want := range map[bool]struct{ status, sent int }{true: {409, 1}, false: {201, 2}} {
		t.Run(fmt.Sprint(executed), func(t *testing.T) {
			lasting(t, func(r *rig, again func()) {
				u := r.upstream("u1.test:80", hangUp, answer(201, "order 1"))
				r.post("http://u1.test/", "{}", keyed)
				v := r.letter()
				r.orderLetter(v.ID+"/resolve", `{"executed":true,"by":"ann"}`, 400)
				r.orderLetter(v.ID+"/resolve", fmt.Sprintf(`{"executed":%v,"by":"ann","note":"asked the platform"}`, executed), 200)
				again()
				got := r.post("http://u1.test/", "{}", keyed)
				r.want(got, want.status, u, want.sent)
				if executed {
					r.wantHeader(got, "X-Retry-Reason", "result_not_kept")
					r.wantHeader(got, "X-Retry-Executed", "yes")
					r.wantSettled(got)
				}
				if got := r.letterOf(v.ID); len(got.Notes) != 1 || got.Notes[0].Text != "asked the platform" || got.Notes[0].By != "ann" {
					t.Errorf("notes = %+v", got.Notes)
				}
				if n := len(r.logged("dead letter closed")); n != 1 {
					t.Errorf("the log has %d lines about it, want 1", n)
				}
				r.orderLetter(v.ID+"/resolve", `{"executed":true,"by":"ann","note":"n"}`, 409)
			}, patches(quick, also("forward_headers: []"))...)
		})
	}
}

// A keyless write that was given up is a letter: it can be sent again, without a key,
// by a person who says that nobody knows whether its bot has repeated it.
func TestKeylessLetter(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", answer(503, "down"), answer(503, "down"), answer(201, "order 1"))
		r.want(r.post("http://u1.test/", "{}", "Authorization: secret"), 503, u, 2)
		v := r.letter()
		r.wantLetter(v, "dead", "attempts_exhausted", "no", 2)
		if !v.Keyless || v.KeyHash != "" || v.Todo != "ask" {
			t.Errorf("letter = %+v", v)
		}
		again()
		var whole deadletter.View
		r.admin("GET", lettersAPI+"/"+v.ID+"?reveal=1", "", &whole)
		if whole.Key != "" || whole.Answer == nil || whole.Answer.Body == nil || whole.Answer.Body.Text != "down" || whole.Request == nil || whole.Request.Body.Text != "{}" {
			t.Errorf("revealed = %+v", whole)
		}
		if n := len(r.logged("an operator is shown what may be secret of dead letters")); n != 1 {
			t.Errorf("the log has %d lines about what was revealed, want 1", n)
		}
		if got := r.orderLetter(v.ID+"/requeue", "", 409); !strings.Contains(got.Body, "no key") {
			t.Errorf("requeue = %s, want it refused for want of a key", got.Body)
		}
		r.orderLetter(v.ID+"/requeue", `{"executed_unknown":true}`, 202)
		rest(time.Second)
		r.want(reply{}, 0, u, 3)
		r.wantSent(u, 3, "X-Idempotency-Key", "")
		r.wantSent(u, 3, "Authorization", "secret")
		r.wantSent(u, 3, "X-Retry-Count", "2")
		if got := r.letterOf(v.ID); got.State != "done" {
			t.Errorf("after the requeue: %+v", got)
		}
	}, quick...)
}

// Letters are found by what was in their requests, by label, reason, time and key.
func TestLettersByConditions(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		r.upstream("u1.test:80", answer(503, ""))
		r.upstream("u2.test:80", hangUp)
		r.post("http://u1.test/orders?order_sn=SN-4711", `{"item":"book"}`, keyed, "X-Shop-Id: s1", "X-Task-Type: ship")
		rest(time.Hour)
		r.post("http://u2.test/pay", `{"order":"SN-4712"}`, "X-Shop-Id: s2")
		again()
		for query, want := range map[string]string{
			"": "u2 u1", "?text=SN-4711": "u1", "?text=sn-4712": "u2", "?text=SN-4713": "", "?shop=s1": "u1", "?task_type=ship": "u1", "?host=u2.test": "u2",
			"?reason=manual_review": "u2", "?executed=no": "u1", "?state=dead": "u2 u1", "?state=in_doubt": "", "?since=30m": "u2", "?until=30m": "u1", "?key=k": "u1",
			"?text=book&shop=s1&executed=no": "u1", "?text=book&shop=s2": "",
		} {
			var got []string
			for _, v := range r.lettersOf(query) {
				got = append(got, strings.TrimSuffix(v.Host, ".test:80"))
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%s finds %q, want %q", query, text, want)
			}
		}
		if got := r.admin("GET", lettersAPI+"?text=a+b", "", nil); got.Status != 400 || !strings.Contains(got.Body, "text: want at least one word") {
			t.Errorf("a text without words = %d %s", got.Status, got.Body)
		}
	}, quick...)
}

// What only looks like a success, or is a definite no, does not close a letter: nobody
// else would see it.
func TestRequeueWithoutSuccessKeepsTheLetter(t *testing.T) {
	for name, end := range map[string]step{
		"suspect": answer(200, `{"success":false}`, "Content-Type: application/json"), "gone": answer(404, "no"), "moved": answer(302, "", "Location: /"),
	} {
		t.Run(name, func(t *testing.T) {
			lasting(t, func(r *rig, _ func()) {
				r.upstream("u1.test:80", answer(503, ""), answer(503, ""), end)
				r.post("http://u1.test/", "{}", keyed)
				v := r.letter()
				r.orderLetter(v.ID+"/requeue", "", 202)
				rest(time.Second)
				if got := r.letterOf(v.ID); got.State != "dead" || got.Made != 3 || got.Answer == nil {
					t.Errorf("after the requeue: %+v", got)
				}
			}, quick...)
		})
	}
}

// A bot's own repeat of a letter's key that brings a doubtful success leaves it.
func TestSuspectAnswerToARepeatKeepsTheLetter(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", answer(503, ""), answer(503, ""), answer(200, `{"success":false}`, "Content-Type: application/json"), answer(404, ""))
		r.post("http://u1.test/", "{}", keyed)
		id := r.letter().ID
		r.post("http://u1.test/", "{}", keyed)
		if v := r.letterOf(id); v.State != "dead" || v.Made != 3 {
			t.Errorf("after a suspect answer: %+v", v)
		}
		r.post("http://u1.test/", "{}", keyed)
		if v := r.letterOf(id); v.State != "failed" {
			t.Errorf("after a definite answer that its bot got: %+v", v)
		}
	}, quick...)
}

// A requeue that a restart cuts off goes on as any call, and is closed by its answer.
func TestRequeueOverARestart(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(503, ""), answer(503, "", "Retry-After: 2"), answer(201, "order 1"))
		r.post("http://u1.test/", "{}", keyed)
		v := r.letter()
		r.orderLetter(v.ID+"/requeue", "", 202)
		rest(100 * time.Millisecond)
		again()
		rest(5 * time.Second)
		r.want(reply{}, 0, u, 4)
		if got := r.letterOf(v.ID); got.State != "done" || len(got.Runs) != 2 {
			t.Errorf("after the restart: %+v", got)
		}
	}, quick...)
}

// A kill while a requeue is in flight leaves a letter: in doubt, or without a key a
// plain one that may have been executed.
func TestKillDuringARequeue(t *testing.T) {
	for header, state := range map[string]string{keyed: "in_doubt", "X-Other: 1": "dead"} {
		t.Run(state, func(t *testing.T) {
			lasting(t, func(r *rig, again func()) {
				u := r.upstream("u1.test:80", answer(503, ""), answer(503, ""), silent, answer(201, ""))
				r.post("http://u1.test/", "{}", header)
				v := r.letter()
				r.wantLetter(v, "dead", "attempts_exhausted", "no", 2)
				r.orderLetter(v.ID+"/requeue", `{"executed_unknown":true}`, 202)
				rest(100 * time.Millisecond)
				r.kill()
				again()
				rest(3 * time.Second)
				r.want(reply{}, 0, u, 3)
				got := r.letter()
				r.wantLetter(got, state, "manual_review", "maybe", 3)
				if got.ID != v.ID || got.Todo != "check" || len(got.Runs) != 2 {
					t.Errorf("after the kill: %+v", got)
				}
				r.orderLetter(v.ID+"/requeue", `{"executed_unknown":true}`, 202)
				rest(time.Second)
				if got := r.letterOf(v.ID); got.State != "done" {
					t.Errorf("after another requeue: %+v", got)
				}
			}, patches(quick, also("forward_headers: [retry_count]"))...)
		})
	}
}

// With redrive a letter is tried again at its dates, and then it is up to people.
func TestRedrive(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", answer(503, ""))
		began := time.Now()
		r.post("http://u1.test/", "{}", keyed)
		v := r.letter()
		if v.NextAt == nil {
			t.Fatalf("letter = %+v, want a date", v)
		}
		r.between("the first", v.NextAt.Sub(began), time.Hour, time.Hour+3*time.Second)
		rest(30 * time.Minute)
		again()
		rest(31 * time.Minute)
		r.want(reply{}, 0, u, 4)
		v = r.letter()
		r.wantLetter(v, "dead", "attempts_exhausted", "no", 4)
		if v.NextAt == nil || v.Runs[1].Kind != "redrive" {
			t.Fatalf("letter = %+v, want another date", v)
		}
		rest(2*time.Hour + time.Minute)
		r.want(reply{}, 0, u, 6)
		if v = r.letter(); v.NextAt != nil || len(v.Runs) != 3 {
			t.Errorf("after the last: %+v", v)
		}
		rest(5 * time.Hour)
		r.want(reply{}, 0, u, 6)
		if n := len(r.lettersOf("")); n != 1 {
			t.Errorf("%d letters, want the one", n)
		}
	}, patches(quick, also("redrive: [1h, 2h]"))...)
}

// A letter whose host is cut off is put off, and one whose key would not be honoured any
// more waits for a person.
func TestRedriveIsPutOff(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(500, ""))
		r.post("http://u1.test/", "{}", keyed)
		rest(59*time.Minute + 59*time.Second)
		for range 5 {
			r.get("http://u1.test/")
		}
		sent := u.count()
		rest(3 * time.Second)
		v := r.letter()
		r.wantLetter(v, "dead", "attempts_exhausted", "maybe", 2)
		if v.NextAt == nil || len(v.Runs) != 1 || u.count() != sent {
			t.Errorf("while the host is cut off: %+v, %d requests", v, u.count()-sent)
		}
		r.between("its life", v.Expires.Sub(v.Since), 720*time.Hour, 720*time.Hour+time.Second)
		r.repolicy("forward_headers: []")
		rest(2 * time.Minute)
		if v := r.letter(); v.NextAt != nil || len(v.Runs) != 1 || v.Todo != "requeue" {
			t.Errorf("without its key: %+v", v)
		}
		if n := len(r.logged("a dead letter is not tried again by itself")); n != 1 {
			t.Errorf("the log has %d lines about it, want 1", n)
		}
	}, patches(plain, []string{"max_retries: 3", "max_retries: 1, redrive: [1h]"}, []string{"open: 2s, open_max: 2s", "open: 20s, open_max: 20s"})...)
}

// Nothing that may have been executed is redriven.
func TestRedriveLeavesDoubtAlone(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", hangUp)
		r.post("http://u1.test/", "{}")
		r.post("http://u1.test/", "{}", keyed)
		for _, v := range r.lettersOf("") {
			if v.NextAt != nil && v.State == "dead" || v.Executed != "maybe" {
				t.Errorf("letter = %+v, want none to be tried again", v)
			}
		}
		rest(90 * time.Minute)
		r.want(reply{}, 0, u, 2)
		if n := len(r.lettersOf("?state=dead")); n != 2 {
			t.Errorf("%d dead letters after the ttl, want both", n)
		}
	}, patches(quick, also("redrive: [1h], forward_headers: []"))...)
}

// A bulk sends canaries first, the oldest letters, one by one; one that fails stops it.
func TestBulkCanary(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		down := true
		u := r.upstream("u1.test:80", func(s *scripted, c net.Conn, q *request) bool {
			if down {
				return answer(503, "")(s, c, q)
			}
			return answer(201, "")(s, c, q)
		})
		for i := range 5 {
			r.post("http://u1.test/", "{}", fmt.Sprintf("X-Idempotency-Key: k%d", i))
		}
		sent := u.count()
		var p deadletter.Preview
		r.admin("POST", lettersAPI+"/requeue", `{"filter":{"host":"u1.test"},"dry_run":true}`, &p)
		if p.Letters != 5 || p.Would != 5 || len(p.First) != 5 || u.count() != sent {
			t.Errorf("preview = %+v", p)
		}
		r.orderLetter("requeue", `{}`, 400)
		r.orderLetter("requeue", `{"filter":{"host":"u1.test"},"by":"ann"}`, 202)
		r.orderLetter("requeue", `{"all":true}`, 409)
		rest(10 * time.Second)
		b := r.bulk()
		if b.State != "stopped" || b.Requeued != 1 || b.Failed != 1 || !strings.HasPrefix(b.Why, "canary 1 of 1 did not end done: ") {
			t.Errorf("bulk = %+v, want it stopped by its canary", b)
		}
		if n := u.count(); n != sent+2 {
			t.Errorf("%d requests were sent, want the canary's 2", n-sent)
		}
		down = false
		began := time.Now()
		r.orderLetter("requeue", `{"filter":{"host":"u1.test"},"rate":"2/s","canary":2}`, 202)
		rest(10 * time.Second)
		if b := r.bulk(); b.State != "ended" || b.Done != 5 || b.Failed != 0 {
			t.Errorf("bulk = %+v, want 5 done", b)
		}
		r.between("the last", u.seen()[u.count()-1].At.Sub(began), 2*time.Second, 2010*time.Millisecond)
		if all := r.lettersOf(""); len(all) != 0 {
			t.Errorf("letters are left: %+v", all)
		}
	}, quick...)
}

// A bulk can be ended, and ends with the process; what it did not send is there.
func TestBulkCancelled(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		r.upstream("u1.test:80", byCount(6, answer(503, ""), answer(201, "")))
		for i := range 3 {
			r.post("http://u1.test/", "{}", fmt.Sprintf("X-Idempotency-Key: k%d", i))
		}
		r.orderLetter("requeue", `{"all":true,"rate":"1/m"}`, 202)
		rest(time.Second)
		r.admin("DELETE", lettersAPI+"/bulk?by=ann", "", nil)
		if b := r.bulk(); b.State != "cancelled" || b.Why != "cancelled by ann" || b.Done != 1 {
			t.Errorf("bulk = %+v, want it cancelled after one", b)
		}
		if n := len(r.lettersOf("")); n != 2 {
			t.Errorf("%d letters, want 2", n)
		}
		r.orderLetter("requeue", `{"all":true,"rate":"1/m"}`, 202)
		rest(time.Second)
		again()
		if b := r.bulk(); b.State != "none" {
			t.Errorf("bulk after a restart = %+v", b)
		}
		if n := len(r.lettersOf("")); n != 1 {
			t.Errorf("%d letters after a restart, want 1", n)
		}
	}, quick...)
}

// A letter that was moved after a bulk had read it is no more what the bulk judged.
func TestBulkPassesOverWhatWasMoved(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", byCount(6, answer(503, ""), byCount(7, answer(201, ""), byCount(8, hangUp, answer(201, "")))))
		for i := range 3 {
			r.post("http://u1.test/", "{}", fmt.Sprintf("X-Idempotency-Key: k%d", i))
		}
		r.orderLetter("requeue", `{"all":true,"rate":"1/h","canary":0}`, 202)
		rest(30 * time.Minute)
		r.want(r.post("http://u1.test/", "{}", "X-Idempotency-Key: k2"), 502, u, 8)
		rest(2 * time.Hour) // the doubt ends before the bulk comes to it
		if b := r.bulk(); b.State != "ended" || b.Requeued != 2 || b.Refused != 1 || u.count() != 9 {
			t.Errorf("bulk = %+v after %d requests, want what was repeated meanwhile passed over", b, u.count())
		}
		r.wantLetter(r.letter(), "dead", "manual_review", "maybe", 3)
	}, patches(quick, also("forward_headers: []"))...)
}

// byCount plays one step for the first requests and another afterwards.
func byCount(n int, first, then step) step {
	return func(s *scripted, c net.Conn, q *request) bool {
		if q.N <= n {
			return first(s, c, q)
		}
		return then(s, c, q)
	}
}

// Over dead_letters.max the oldest go, and the log said so before.
func TestRetentionByNumber(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", answer(503, ""))
		r.upstream("u2.test:80", hangUp)
		r.post("http://u2.test/", "{}", "X-Idempotency-Key: doubt")
		var ids []string
		for i := range 13 {
			r.post("http://u1.test/", "{}", fmt.Sprintf("X-Idempotency-Key: k%d", i))
			ids = append(ids, r.lettersOf("?state=dead")[0].ID)
			rest(2 * time.Minute)
		}
		left := r.lettersOf("?state=dead")
		if len(left) != 10 || left[9].ID != ids[3] {
			t.Errorf("%d letters are left, the oldest %s; want the latest 10 from %s", len(left), left[len(left)-1].ID, ids[3])
		}
		if n := len(r.lettersOf("?state=in_doubt")); n != 1 {
			t.Error("the one in doubt is gone")
		}
		if v := r.letterOf(ids[0]); v.State != "failed" || v.Reason != "retention" || v.Request != nil {
			t.Errorf("the oldest = %+v", v)
		}
		if n, _, err := r.app.proxy.GoingLetters(r.t.Context(), 24*time.Hour); n != 10 || err != nil {
			t.Errorf("GoingLetters = %d, %v; want the 10 that the next 10 of a day push out", n, err)
		}
		said := r.logged("dead letters fill up: beyond dead_letters.max the oldest will be removed")
		if len(said) != 1 || said[0]["letters"] != 9.0 || said[0]["max"] != 10.0 {
			t.Errorf("the log says %v, want one line at 9 of 10", said)
		}
	}, patches(quick, lays("dead_letters: {max: 10}"), also("forward_headers: []"))...)
}

// Before the first letters go by their age the log says so, and not each minute.
func TestRetentionByAge(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", answer(503, ""))
		for i := range 3 {
			r.post("http://u1.test/", "{}", fmt.Sprintf("X-Idempotency-Key: k%d", i))
			rest(100 * time.Minute)
		}
		said := r.logged("dead letters will be removed for their age (dead_letters.keep)")
		if len(said) != 1 || said[0]["letters"] != 1.0 {
			t.Errorf("after 5 of 6 h the log says %v, want 1 letter", said)
		}
		rest(55 * time.Minute)
		if n := len(r.lettersOf("")); n != 3 {
			t.Errorf("%d letters before the first is due, want 3", n)
		}
		if n, first, err := r.app.proxy.GoingLetters(r.t.Context(), time.Hour); n != 1 || time.Until(first).Round(time.Minute) != 5*time.Minute || err != nil {
			t.Errorf("GoingLetters = %d from %v, %v; want 1 in 5 minutes", n, first, err)
		}
		rest(10 * time.Minute)
		if n := len(r.lettersOf("")); n != 2 {
			t.Errorf("%d letters after that, want 2", n)
		}
	}, patches(quick, lays("dead_letters: {keep: 6h}"))...)
}

// advised is what the call of a letter advises to do about it.
func (r *rig) advised(call string) string {
	r.t.Helper()
	var one struct {
		Records []struct{ State, Advice string }
	}
	r.want(r.admin("GET", "/api/v1/calls/"+call, "", &one), 200, nil, 0)
	if len(one.Records) != 1 {
		r.t.Fatalf("call %s has records %+v, want one", call, one.Records)
	}
	return one.Records[0].Advice
}

// With records in memory the API says how letters are kept.
func TestLettersInMemory(t *testing.T) {
	bubble(t, func(r *rig) {
		for _, path := range []string{"", "/summary", "/aa", "/export"} {
			got := r.admin("GET", lettersAPI+path, "", nil)
			var p struct{ Reason, Detail string }
			if json.Unmarshal([]byte(got.Body), &p) != nil || got.Status != 409 || p.Reason != "not_kept" || !strings.Contains(p.Detail, "-data DIR") {
				t.Errorf("GET %s = %d %s", path, got.Status, got.Body)
			}
		}
		r.upstream("u1.test:80", hangUp)
		got := r.post("http://u1.test/", "{}", keyed)
		if advice := r.advised(got.Header.Get("X-Call-Id")); advice != "" {
			t.Errorf("a call in doubt in memory is advised of its letter: %q", advice)
		}
	}, patches(quick, also("forward_headers: []"))...)
}

// A requeue is refused by what the configuration has come to forbid, and the letter stays.
func TestRequeueByRulesOfToday(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(500, ""), answer(500, ""), answer(201, ""))
		r.post("http://u1.test/", "{}", keyed)
		v := r.letter()
		r.wantLetter(v, "dead", "attempts_exhausted", "maybe", 2)
		if v.Todo != "requeue" || !v.Honoured {
			t.Errorf("letter = %+v, want an honoured key", v)
		}
		if got := r.advised(v.Runs[0].CallID); got != v.Advice {
			t.Errorf("the story of the call advises %q, its letter %q", got, v.Advice)
		}
		r.repolicy("forward_headers: []")
		if got := r.orderLetter(v.ID+"/requeue", "", 409); !strings.Contains(got.Body, `"refused"`) {
			t.Errorf("requeue without the key upstream = %s, want refused", got.Body)
		}
		if n := len(r.app.proxy.Calls()); n != 1 {
			t.Errorf("%d calls are shown, want the first only", n)
		}
		r.wantLetter(r.letter(), "dead", "attempts_exhausted", "maybe", 2)
		r.want(reply{}, 0, u, 2)
	}, quick...)
}
