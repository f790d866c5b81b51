package main

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pastCall is a call as the admin API shows it.
type pastCall struct {
	ID, Origin, State, Result, Reason, Path string

	Status   int
	KeyHash  string `json:"key_hash"`
	ClientID string `json:"client_request_id"`
	Trace    string `json:"traceparent"`
	Started  time.Time
	Ended    *time.Time
	NextAt   *time.Time `json:"next_at"`
	Attempts []struct {
		N          int
		Status     int
		UpstreamID string `json:"upstream_request_id"`
	}
	Records []struct {
		State   string
		Expires *time.Time
	}
}

// history asks for calls, once what ended is noted.
func (r *rig) history(query string) (calls []pastCall) {
	r.t.Helper()
	rest(noteEvery)
	synctest.Wait()
	r.want(r.admin("GET", "/api/v1/calls?"+query, "", &calls), 200, nil, 0)
	return calls
}

func results(calls []pastCall) string {
	var out []string
	for _, c := range calls {
		out = append(out, c.Result)
	}
	return strings.Join(out, " ")
}

// What happened to order X three days ago, after two restarts: by its number in
// the body, by its key, by the request ids of both sides.
func TestOrderOfThreeDaysAgo(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		const order = `{"order_sn":"260304-778899","note":"\u8ba2\u5355"}`
		u := r.upstream("u1.test:80", answer(503, "", "X-Request-Id: up-first"), answer(200, `{"ok":true}`, "Eagleeye-Traceid: up-second"))
		headers := []string{keyed, "X-Shop-Id: s17", "X-Task-Type: order_ship", "X-Request-Id: rpa-run-42", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Content-Type: application/json"}
		r.want(r.post("http://u1.test/orders?shop_order=AB-1001", order, headers...), 200, u, 2)
		r.want(r.post("http://u1.test/orders?shop_order=AB-1001", order, headers...), 200, u, 2) // from the record
		r.want(r.get("http://u1.test/stock?sku=SKU-55001"), 200, u, 3)
		again()
		r.end()
		rest(72 * time.Hour)
		again()

		for query, want := range map[string]string{
			"text=260304-778899": "replay recovered", "text=ab-1001": "replay recovered", "text=rpa-run-42": "replay recovered", "text=up-second": "success recovered",
			"text=4bf92f3577b34da6a3ce929d0e0e4736": "replay recovered", "text=260304-778899+up-first": "recovered", "text=sku-55001": "success", "text=sku-55002": "",
			"shop=s17": "replay recovered", "shop=s17&result=replay": "replay", "reason=status_503": "recovered", "host=u1.test": "success replay recovered",
			"since=4d": "success replay recovered", "since=71h": "", "until=73h": "", "key=" + url.QueryEscape(strings.TrimPrefix(keyed, "X-Idempotency-Key: ")): "replay recovered",
		} {
			if got := results(r.history(query)); got != want {
				t.Errorf("calls of %s = %q, want %q", query, got, want)
			}
		}
		found := r.history("text=up-first")
		if len(found) != 1 {
			t.Fatalf("found %d calls", len(found))
		}
		var one pastCall
		r.want(r.admin("GET", "/api/v1/calls/"+found[0].ID, "", &one), 200, nil, 0)
		if one.Path != "/orders" || one.ClientID != "rpa-run-42" || one.Trace == "" || len(one.Attempts) != 2 || one.Attempts[0].UpstreamID != "up-first" || one.Attempts[1].UpstreamID != "up-second" {
			t.Errorf("the call is %+v", one)
		}
		if age := time.Since(one.Started); age < 72*time.Hour || one.Ended == nil {
			t.Errorf("it began %v ago and ended at %v", age, one.Ended)
		}
		if len(one.Records) != 0 {
			t.Errorf("records %+v, want none: the ttl of an hour is long over", one.Records)
		}
		r.wantMetric(0, "history_dropped_total")
	}, plain...)
}

// All that ends is noted, however it ended, once; what asks the proxy itself is not.
func TestEveryEndIsNoted(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(200, "ok"), answer(400, "no"))
		r.want(r.get("http://u1.test/one"), 200, u, 1)
		r.want(r.get("http://u1.test/two"), 400, u, 2)
		r.want(r.get("http://169.254.169.254/three-3"), 403, nil, 0)
		r.want(r.post("http://u1.test/four", "{}", "X-Idempotency-Key: a", "Idempotency-Key: b"), 400, u, 2)
		r.want(r.get("http://retryproxy.internal/ca.pem"), 404, nil, 0)
		calls := r.history("")
		if got, want := results(calls), "rejected rejected failed success"; got != want {
			t.Errorf("calls ended as %q, want %q", got, want)
		}
		again := r.history("")
		if !slices.EqualFunc(calls, again, func(a, b pastCall) bool { return a.ID == b.ID }) {
			t.Errorf("asked again the calls are %v", again)
		}
		if got := results(r.history("text=three-3")); got != "rejected" {
			t.Errorf("by a path that was refused: %q", got)
		}
	}, plain...)
}

// A call that waits is found by what it said, before it ends.
func TestAWaitingCallIsFoundByItsText(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(503, "", "Retry-After: 3"), answer(200, "ok"))
		got := r.async(func() reply { return r.post("http://u1.test/", `{"order":"order-9001"}`, keyed) })
		rest(time.Second)
		calls := r.history("text=order-9001")
		if len(calls) != 1 || calls[0].State != "waiting" || calls[0].Ended != nil {
			t.Errorf("calls = %+v, want the one that waits", calls)
		}
		r.want(<-got, 200, u, 2)
		if calls = r.history("text=order-9001"); len(calls) != 1 || calls[0].State != "done" {
			t.Fatalf("calls = %+v, want the one that ended, once", calls)
		}
		var one pastCall
		r.want(r.admin("GET", "/api/v1/calls/"+calls[0].ID, "", &one), 200, nil, 0)
		if len(one.Records) != 1 || one.Records[0].State != "done" || one.Records[0].Expires == nil {
			t.Errorf("records = %+v, want the one that is done", one.Records)
		}
	}, plain...)
}

// A parked call is listed as such, by shop, host, type, reason, text and id, and not
// as over as well; it is told from one that a client asked for when it has gone on.
func TestParkedCallsAreListed(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 300"), answer(201, "x"))
		r.want(r.post("http://u1.test/one", `{"order":"order-9001"}`, keyed, "X-Shop-Id: s1", "X-Task-Type: ship"), 202, u, 1)
		r.get("http://u1.test/two")
		for _, restarted := range []bool{false, true} {
			if restarted {
				again()
			}
			for query, want := range map[string]string{
				"state=parked": "parked", "state=parked&shop=s1&host=u1.test&task_type=ship": "parked", "state=parked&shop=s2": "", "state=parked&reason=retry_after_too_long": "parked",
				"state=parked&reason=breaker_open": "", "state=parked&limit=1": "parked", "": "parked done", "text=order-9001": "parked", "result=rejected&shop=s1": "done", "state=waiting": "",
			} {
				var states []string
				for _, c := range r.history(query) {
					states = append(states, c.State)
				}
				if got := strings.Join(states, " "); got != want {
					t.Errorf("restarted %v: calls of %q are %q, want %q", restarted, query, got, want)
				}
			}
		}
		parked := r.history("state=parked")[0]
		var one pastCall
		r.want(r.admin("GET", "/api/v1/calls/"+parked.ID, "", &one), 200, nil, 0)
		if one.State != "parked" || one.Reason != "retry_after_too_long" || len(one.Attempts) != 1 || one.NextAt == nil || time.Until(*one.NextAt) < 4*time.Minute || one.Ended != nil || one.Status != 0 {
			t.Errorf("the parked call is %+v", one)
		}
		rest(10 * time.Minute)
		calls := r.history("text=order-9001")
		if len(calls) != 2 || calls[1].ID != parked.ID || calls[0].Origin != "parked" || calls[0].Status != 201 || calls[1].Origin != "" || calls[1].Reason != "parked" {
			t.Errorf("once it went on, the calls are %+v", calls)
		}
		if got := r.admin("GET", "/api/v1/calls?state=parkd", "", nil); got.Status != 400 || !strings.Contains(string(got.Body), "state: want running, waiting, parked or done") {
			t.Errorf("a wrong state = %d %s", got.Status, got.Body)
		}
	}, parks...)
}

func TestHistoryWithoutADurableStore(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		r.want(r.get("http://u1.test/order-1"), 200, u, 1)
		if got := results(r.history("host=u1.test")); got != "success" {
			t.Errorf("calls = %q, want the recent one", got)
		}
		if got := r.admin("GET", "/api/v1/calls?text=order-1", "", nil); got.Status != 400 || !strings.Contains(string(got.Body), "-data DIR") {
			t.Errorf("text = %d %s, want 400 and what is missing", got.Status, got.Body)
		}
	})
}

// With store.key neither bodies nor credentials can be read on the disk; what
// they said is found all the same, also with a later key.
func TestSealedStore(t *testing.T) {
	key := func(id string) string {
		return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(id[:1]), 32))
	}
	dir := ""
	lasting(t, func(r *rig, again func()) {
		dir = r.app.config().Store.Path
		u := r.upstream("u1.test:80", answer(503, "", "Retry-After: 2"), answer(201, "answer-hush-1"))
		got := r.async(func() reply {
			return r.post("http://u1.test/?token=hush-query", `{"order":"hush-order-5"}`, keyed, "Authorization: Bearer hush-token")
		})
		rest(time.Second)
		for _, file := range []string{"retryproxy.db", "retryproxy.db-wal", "retryproxy.db.redo1"} {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil || bytes.Contains(text, []byte("hush")) {
				t.Errorf("%s: %v, or it holds what is secret", file, err)
			}
		}
		again()
		<-got
		joined := r.post("http://u1.test/?token=hush-query", `{"order":"hush-order-5"}`, keyed, "Authorization: Bearer hush-token")
		r.want(joined, 201, u, 2)
		r.wantBody(joined, "answer-hush-1")
		if q := u.seen()[1]; q.Header.Get("Authorization") != "Bearer hush-token" || string(q.Body) != `{"order":"hush-order-5"}` || !strings.Contains(q.Line, "hush-query") {
			t.Errorf("after the restart the attempt was %s %v %q", q.Line, q.Header, q.Body)
		}
		if got := r.history("text=hush-order-5"); len(got) < 2 {
			t.Errorf("%d calls are found by their body, want those of both processes", len(got))
		}
		if strings.Contains(r.log.String(), "kept in the clear") {
			t.Error("a sealed store is warned about")
		}
		text, err := os.ReadFile(filepath.Join(dir, "retryproxy.db"))
		if err != nil || bytes.Contains(text, []byte("hush")) {
			t.Errorf("the file: %v, or it holds what is secret", err)
		}
	}, append([]string{"durability: process", "durability: process, key: '" + key("one") + "'"}, plain...)...)
}

func TestAStoreInTheClearIsWarnedAbout(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		if !strings.Contains(r.log.String(), "credentials included; store.key seals it") {
			t.Errorf("log: %s", r.log)
		}
		if w := r.app.banner().Warnings; !slices.ContainsFunc(w, func(s string) bool { return strings.HasPrefix(s, "store.key: ") }) {
			t.Errorf("warnings: %q", w)
		}
	}, plain...)
}
