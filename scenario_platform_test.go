package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/config"
)

// js is the media type of what platforms answer.
const js = "Content-Type: application/json;charset=UTF-8"

// form is the media type of what bots send to PDD.
const form = "Content-Type: application/x-www-form-urlencoded"

// pddAt makes every call of the rig one to PDD.
var pddAt = []string{"deadline: 6s", "deadline: 6s, preset: pdd", "max_delay: 1s,", "max_delay: 1s, jitter: none,"}

// bodies as PDD answers them.
const (
	pddBusy      = `{"error_response":{"error_msg":"busy","sub_msg":"","sub_code":null,"error_code":52102,"request_id":"r1"}}`
	pddThrottled = `{"error_response":{"error_msg":"slow down","sub_code":"52101","error_code":52101,"request_id":"r2"}}`
	pddNew       = `{"error_response":{"error_msg":"what nobody knows","sub_code":"x","error_code":99999,"request_id":"r3"}}`
	pddDoubt     = `{"error_response":{"error_msg":"error","error_code":50000,"request_id":"r4"}}`
	pddDone      = `{"charge_notify_response":{"success":true,"request_id":"r5"}}`
)

// What a platform says in a 200 is what the call came to: a passing failure is retried,
// what may have been done is not, unless it is a read.
func TestWhatAPlatformSays(t *testing.T) {
	const reads, writes = "type=pdd.order.list.get", "type=pdd.order.ship"
	page := answer(200, "<html>one moment</html>", "Content-Type: text/html")
	says := func(body string) step { return answer(200, body, js) }
	done := says(pddDone)
	for name, c := range map[string]struct {
		send          string
		first         step
		sent          int
		reason, class string
		stop, did     string
	}{
		"busy":                        {writes, says(pddBusy), 2, "not_now", "transient", "", ""},
		"throttled":                   {writes, says(pddThrottled), 2, "throttled", "transient", "", ""},
		"may have been done":          {writes, says(pddDoubt), 1, "doubt", "unknown", "manual_review", "maybe"},
		"may have been read":          {reads, says(pddDoubt), 2, "doubt", "transient", "", ""},
		"a new code for a write":      {writes, says(pddNew), 1, "new_code", "unknown", "manual_review", "maybe"},
		"a new code for a read":       {reads, says(pddNew), 1, "new_code", "permanent", "fail_permanent", "maybe"},
		"a page for a write":          {writes, page, 1, "unreadable", "unknown", "manual_review", "maybe"},
		"a page for a read":           {reads, page, 2, "unreadable", "transient", "", ""},
		"packed":                      {writes, answer(200, packed(pddBusy), js, "Content-Encoding: gzip"), 2, "not_now", "transient", "", ""},
		"done":                        {writes, done, 1, "status_200", "success", "", ""},
		"a status that no rule names": {writes, answer(503, "", "Retry-After: 1"), 2, "status_503", "transient", "", ""},
		"a get that writes":           {"type=pdd.goods.spec.id.get", answer(500, ""), 1, "status_500", "unknown", "manual_review", "maybe"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", c.first, done)
				got := r.post("http://u1.test/api/router", c.send, form)
				r.want(got, got.Status, u, c.sent)
				r.wantHeader(got, "X-Retry-Reason", c.stop)
				r.wantHeader(got, "X-Retry-Executed", c.did)
				r.wantMetric(1, "attempts_total", "reason="+c.reason, "class="+c.class)
			}, pddAt...)
		})
	}
}

// The answer reaches the bot as it came, with what became of it beside.
func TestPlatformAnswersAreUntouched(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, pddNew, js))
		got := r.post("http://u1.test/", "type=pdd.order.ship", form, keyed)
		r.want(got, 200, u, 1)
		r.wantBody(got, pddNew)
		r.wantHeader(got, "X-Retry-Advice", "check")
		r.want(r.post("http://u1.test/", "type=pdd.order.ship", form, keyed), 409, u, 1) // in doubt
		r.wantMetric(1, "new_codes_total", "preset=pdd")
		if n := len(r.logged("the platform says something that its preset does not know: a write is in doubt")); n != 1 {
			t.Errorf("%d log lines tell of the new code, want 1", n)
		}
		if a := r.ended()[0].Attempts[0]; !strings.Contains(a.Detail, "99999") || a.UpstreamID != "r3" {
			t.Errorf("the attempt says %q, request id %q", a.Detail, a.UpstreamID)
		}
	}, pddAt...)
}

// Only a success of the platform is an answer to a repeat.
func TestOnlySuccessesOfAPlatformAreKept(t *testing.T) {
	for body, sent := range map[string]int{pddDone: 1, pddBusy: 5} {
		bubble(t, func(r *rig) {
			u := r.upstream("u1.test:80", answer(200, body, js))
			for range 2 { // a repeat has what is left of the retries, and its first attempt
				r.post("http://u1.test/", "type=pdd.order.ship", form, keyed)
			}
			if got := len(u.seen()); got != sent {
				t.Errorf("%s: %d requests for two calls with one key, want %d", body, got, sent)
			}
		}, pddAt...)
	}
}

// A throttle of one shop makes its other retries there wait, and no other shop.
func TestThrottleOfAShop(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, pddThrottled, js), answer(200, pddDone, js))
		start := time.Now()
		r.want(r.post("http://u1.test/", "type=a", form, "X-Shop-Id: s1"), 200, u, 2)
		r.between("the retry", time.Since(start), time.Second, 1300*time.Millisecond)
	}, pddAt...)
}

// A policy is chosen by the operation, which may stand in form, JSON or query.
func TestPolicyByOperation(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, pddBusy, js))
		for i, send := range []func() reply{
			func() reply { return r.post("http://u1.test/", "type=pdd.stock.update&x=1", form) },
			func() reply { return r.post("http://u1.test/", `{"x":1,"type":"pdd.stock.update"}`, js) },
			func() reply { return r.post("http://u1.test/?type=pdd.stock.update", "") },
		} {
			r.want(send(), 200, u, i+1)
		}
		r.post("http://u1.test/", "type=pdd.other", form)
		if n := len(u.seen()); n != 7 {
			t.Errorf("%d requests, want 3 of calls without retries and 4 of one with three", n)
		}
		r.wantMetric(3, "calls_total", "policy=stock")
	}, append([]string{"retry_policies:\n", "retry_policies:\n  - {name: stock, match: {operation: \"pdd.stock.*\"}, max_retries: 0}\n"}, pddAt...)...)
}

// An operation that costs scarce quota is sent once, unless it never got there.
func TestScarceOperations(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, pddThrottled, js))
		got := r.post("http://u1.test/", "type=pdd.open.decrypt.batch", form)
		r.want(got, 200, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "attempts_exhausted")
	}, pddAt...)
}

// A call without a key gets that of its order where the policy wants it, and what changes
// with each sending is no part of it.
func TestBusinessKey(t *testing.T) {
	patch := append([]string{"deadline: 6s", "deadline: 6s, business_key: true"}, pddAt...)
	send := func(r *rig, order, sign string) reply {
		return r.post("http://u1.test/", "type=pdd.notify&order_sn="+order+"&timestamp=1&access_token=t&sign="+sign, form, "X-Shop-Id: s1")
	}
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, pddDone, js))
		r.want(send(r, "1", "A"), 200, u, 1)
		again := send(r, "1", "B")
		r.want(again, 200, u, 1)
		r.wantHeader(again, "Idempotency-Replayed", "true")
		r.want(send(r, "2", "A"), 200, u, 2)
		if q := u.seen()[0]; q.Header.Get("X-Idempotency-Key") != "" {
			t.Error("the key of the order goes upstream")
		}
	}, patch...)
	bubble(t, func(r *rig) { // it makes nothing safe
		u := r.upstream("u1.test:80", answer(500, ""))
		r.want(send(r, "1", "A"), 500, u, 1)
		r.want(send(r, "1", "A"), 409, u, 1)
	}, patch...)
	bubble(t, func(r *rig) { // and nobody has it who did not ask for it
		u := r.upstream("u1.test:80", answer(200, pddDone, js))
		r.want(send(r, "1", "A"), 200, u, 1)
		r.want(send(r, "1", "A"), 200, u, 2)
	}, pddAt...)
}

// ownPreset is a configuration with a preset of the operator's own, named mine, for every call.
func ownPreset(t *testing.T, text string) []string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "mine.yaml"), text)
	return []string{
		"deadline: 6s", "deadline: 6s, preset: mine", "max_delay: 1s,", "max_delay: 1s, jitter: none,",
		"idempotency: {ttl: 1h}", "idempotency: {ttl: 1h}\npresets: {dir: '" + dir + "'}",
	}
}

// mine is a preset of which one thing is tested.
const mine = `
preset: mine
version: "1"
operation: [query:op]
reads: {operations: [get]}
answer: {code: [$.code], message: [$.text], success: [{at: $.code, is: ["0"]}]}
`

// What a platform takes is not exceeded: calls wait for their turn, each shop for its own,
// and who has no time for it is told when it would be.
func TestLimitsOfAPlatform(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, `{"code":0}`, js))
		call := func(shop string, more ...string) reply {
			return r.post("http://u1.test/?op=list", "{}", append(more, "X-Shop-Id: "+shop)...)
		}
		start := time.Now()
		for range 4 {
			call("a")
		}
		r.between("four calls of a shop at two a second, two at once", time.Since(start), time.Second, time.Second)
		call("b")
		r.between("another shop's", time.Since(start), time.Second, time.Second)
		got := call("a", "X-Request-Timeout: 100ms")
		r.want(got, 503, u, 5)
		r.wantHeader(got, "X-Retry-Reason", "retry_limited")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "Retry-After", "1")
		r.wantMetric(1, "retries_denied_total", "dimension=operation")
	}, ownPreset(t, mine+"limits: [{operation: list, rate: 2/s}]\n")...)
}

// Headers of ours go to a platform only as its preset says, and what has to be another in
// each request is.
func TestHeadersForAPlatform(t *testing.T) {
	for forward, want := range map[string]string{"[]": "", "[idempotency_key, retry_count, shop, via]": "k,1,s1,1.1 "} {
		bubble(t, func(r *rig) {
			u := r.upstream("u1.test:80", answer(503, ""), answer(200, `{"code":0}`, js))
			r.want(r.post("http://u1.test/?op=x", "{}", keyed, "X-Shop-Id: s1", "X-Request-Tag: one", "X-Other: one"), 200, u, 2)
			first, second := u.seen()[0].Header, u.seen()[1].Header
			if first.Get("X-Request-Tag") != "one" || second.Get("X-Request-Tag") == "one" || second.Get("X-Other") != "one" {
				t.Errorf("the retry has the tag %q, want a new one", second.Get("X-Request-Tag"))
			}
			got := strings.Join([]string{second.Get("X-Idempotency-Key"), second.Get("X-Retry-Count"), second.Get("X-Shop-Id"), second.Get("Via")}, ",")
			if !strings.HasPrefix(got, want) || want == "" && got != ",,," {
				t.Errorf("forward_headers: %s: the platform gets %q, want %q", forward, got, want)
			}
		}, ownPreset(t, mine+"renew_headers: [X-Request-Tag]\nforward_headers: "+forward+"\n")...)
	}
}

// A platform that is known to honour keys makes a repeat safe, one that is not does not.
func TestKeysOfAPlatform(t *testing.T) {
	for forward, sent := range map[string]int{"[]": 1, "[idempotency_key]": 2} {
		bubble(t, func(r *rig) {
			u := r.upstream("u1.test:80", answer(500, ""), answer(200, `{"code":0}`, js))
			r.post("http://u1.test/?op=x", "{}", keyed)
			if n := u.count(); n != sent {
				t.Errorf("forward_headers: %s: %d requests, want %d", forward, n, sent)
			}
		}, ownPreset(t, mine+"forward_headers: "+forward+"\n")...)
	}
}

// An answer that says that the work goes on is passed on, and is nobody's answer later.
func TestProcessingIsNoAnswer(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, `{"code":1}`, js), answer(200, `{"code":0}`, js))
		got := r.post("http://u1.test/?op=x", "{}", keyed)
		r.want(got, 200, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "")
		again := r.post("http://u1.test/?op=x", "{}", keyed)
		r.want(again, 409, u, 1)
		r.wantHeader(again, "X-Retry-Reason", "in_doubt")
		r.want(r.post("http://u1.test/?op=get", "{}", "X-Idempotency-Key: other"), 200, u, 2)
	}, ownPreset(t, mine+"rules: [{name: works, code: [1], is: processing}, {name: again, code: [2], is: already_done}]\n")...)
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, `{"code":2,"text":"was done"}`, js))
		r.want(r.post("http://u1.test/?op=x", "{}", keyed), 200, u, 1)
		again := r.post("http://u1.test/?op=x", "{}", keyed)
		r.want(again, 200, u, 1)
		r.wantHeader(again, "Idempotency-Replayed", "true")
		r.wantMetric(1, "attempts_total", "reason=already_done", "class=success")
	}, ownPreset(t, mine+"rules: [{name: again, code: [2], is: already_done}]\n")...)
}

// A part that failed is for the bot: the rest was done.
func TestPartlyDone(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, `{"code":3}`, js))
		got := r.post("http://u1.test/?op=get", "{}")
		r.want(got, 200, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "fail_permanent")
		r.wantHeader(got, "X-Retry-Executed", "yes")
	}, ownPreset(t, mine+"rules: [{name: part, code: [3], is: partly_done}]\n")...)
}

// stopping is a preset whose answers stop more than one call.
const stopping = mine + `
token: [header:X-Token]
rules:
  - {name: token, code: [10], is: auth_expired}
  - {name: risk, code: [20], is: risk_control}
  - {name: quota, code: [30], is: quota_exhausted, wait: [{base: 10m}]}
  - {name: day, code: [31], is: quota_exhausted, scope: all, wait: [{until: "08:00", zone: "+08:00"}]}
`

// shopCall is a call of a shop with a token, which the platform answers by the token.
func (r *rig) shopCall(shop, token string, more ...string) reply {
	return r.post("http://u1.test/?op=order", "{}", append(more, "X-Shop-Id: "+shop, "X-Token: "+token)...)
}

// says answers with the code that the call asks for as its token.
func saysToken(s *scripted, c net.Conn, q *request) bool {
	return answer(200, `{"code":`+q.Header.Get("X-Token")+`,"text":"said"}`, js)(s, c, q)
}

// A dead token pauses its shop once: no call with it is sent any more, one with another
// token is, and lets the others go on. Other shops are not touched.
func TestDeadTokenPausesItsShop(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", saysToken)
		got := r.shopCall("s1", "10")
		r.want(got, 200, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "auth_expired")
		r.wantHeader(got, "X-Retry-Advice", "stop")
		r.wantHeader(got, "X-Retry-Executed", "no")
		for range 5 {
			again := r.shopCall("s1", "10")
			r.want(again, 503, u, 1)
			r.wantHeader(again, "X-Retry-Reason", "auth_expired")
			r.wantHeader(again, "Retry-After", "") // its advice is to stop
		}
		r.want(r.shopCall("s2", "0"), 200, u, 2)
		r.wantMetric(1, "pauses", "platform=mine", "reason=auth_expired")
		r.want(r.shopCall("s1", "0"), 200, u, 3) // a new token
		r.want(r.shopCall("s1", "0"), 200, u, 4)
		r.wantMetric(0, "pauses", "platform=mine", "reason=auth_expired")
		if n := len(r.logged("a platform stopped calls: they are not sent for now")); n != 1 {
			t.Errorf("%d log lines tell of it, want 1", n)
		}
	}, ownPreset(t, stopping)...)
}

// Calls without a shop are told apart by their token, whose pause ends by itself: no other
// token could end it.
func TestDeadTokenWithoutAShop(t *testing.T) {
	bubble(t, func(r *rig) {
		call := func(token string) reply { return r.post("http://u1.test/?op=order", "{}", "X-Token: "+token) }
		u := r.upstream("u1.test:80", saysToken)
		r.want(call("10"), 200, u, 1)
		r.want(call("10"), 503, u, 1)
		r.want(call("0"), 200, u, 2)
		r.want(call("10"), 503, u, 2)
		r.want(r.shopCall("s1", "0"), 200, u, 3)
		r.wantMetric(1, "pauses", "platform=mine", "reason=auth_expired")
		time.Sleep(24*time.Hour + time.Minute)
		r.wantMetric(0, "pauses", "platform=mine", "reason=auth_expired") // nobody asked
		r.want(call("10"), 200, u, 4)
		r.want(call("10"), 503, u, 4)
	}, ownPreset(t, stopping)...)
}

// Risk control stops a shop at once, and only a person lets it go on.
func TestRiskControlStopsAShop(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", saysToken)
		r.want(r.shopCall("s1", "20"), 200, u, 1)
		for _, token := range []string{"20", "0"} {
			got := r.shopCall("s1", token)
			r.want(got, 503, u, 1)
			r.wantHeader(got, "X-Retry-Reason", "risk_control")
			r.wantHeader(got, "X-Retry-Advice", "stop")
		}
		r.want(r.shopCall("s2", "0"), 200, u, 2)
		time.Sleep(24 * time.Hour)
		r.want(r.shopCall("s1", "0"), 503, u, 2)
		if got := string(r.admin("GET", "/api/v1/shops", "", nil).Body); !strings.Contains(got, `"reason": "risk_control"`) || !strings.Contains(got, `"turned_away": 3`) || !strings.Contains(got, "said") {
			t.Errorf("the shops are shown as %s", got)
		}
		const by = `{"by":"ann","note":"passed its check"}`
		for path, order := range map[string]string{"s1": `{"by":"ann"}`, "s3": by, "s2": by} {
			if got := r.admin("POST", "/api/v1/shops/"+path+"/resume", order, nil); got.Status != 400 && got.Status != 404 {
				t.Errorf("resume %s = %d", path, got.Status)
			}
		}
		r.want(r.shopCall("s1", "0"), 503, u, 2)
		if got := r.admin("POST", "/api/v1/shops/s1/resume", by, nil); got.Status != 200 {
			t.Errorf("resume = %d %s", got.Status, got.Body)
		}
		r.want(r.shopCall("s1", "0"), 200, u, 3)
		if n := len(r.logged("calls go on that a platform had stopped")); n != 1 {
			t.Errorf("%d log lines tell who resumed it, want 1", n)
		}
	}, ownPreset(t, stopping)...)
}

// A quota is waited for until its reset, and takes no retries; what it is about is not sent
// before, and goes on by itself where it can be kept.
func TestQuotaWaitsForItsReset(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", saysToken)
		got := r.shopCall("s1", "30")
		r.want(got, 200, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "quota_exhausted")
		r.wantAfter(got, 599, 601)
		later := r.shopCall("s1", "0")
		r.want(later, 503, u, 1)
		r.wantAfter(later, 599, 601)
		r.want(r.shopCall("s2", "0"), 200, u, 2)
		time.Sleep(10 * time.Minute)
		r.want(r.shopCall("s1", "0"), 200, u, 3)
		r.want(r.shopCall("s1", "31"), 200, u, 4) // everybody's, until midnight in UTC
		everybody := r.shopCall("s2", "0")
		r.want(everybody, 503, u, 4)
		r.wantAfter(everybody, 80_000, 86_400)
	}, ownPreset(t, stopping)...)
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(200, `{"code":30}`, js), answer(200, `{"code":0}`, js))
		r.want(r.shopCall("s1", "t", keyed), 202, u, 1)
		r.want(r.shopCall("s1", "t", "X-Idempotency-Key: second"), 202, u, 1) // not even sent
		rest(9 * time.Minute)
		r.want(reply{}, 0, u, 1)
		rest(3 * time.Minute)
		r.want(reply{}, 0, u, 3)
		again := r.shopCall("s1", "t", keyed)
		r.want(again, 200, u, 3)
		r.wantHeader(again, "Idempotency-Replayed", "true")
	}, append(ownPreset(t, stopping), "idempotency: {ttl: 1h}", "idempotency: {ttl: 1h}")...)
}

// What is secret is to be seen nowhere: not in logs, metrics, the API or exports.
func TestSecretsAreShownNowhere(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		const s = "S3CR3T"
		r.upstream("u1.test:80", answer(200, `{"code":99,"text":"no","card_pwd":"`+s+`","list":[{"voucher_no":"`+s+`"}]}`, js, "Set-Cookie: a="+s))
		body := "op=order&token=" + s + "&sign=" + s + "&client_secret=" + s + "&param=" + url.QueryEscape(`{"access_token":"`+s+`"}`)
		r.post("http://u1.test/orders?op=order&app_secret="+s+"&mine_pin="+s, body, form, keyed, "X-Shop-Id: s1", "Authorization: Bearer "+s, "Cookie: c="+s, "X-Token: "+s)
		shown := r.log.String() + string(r.admin("GET", "/metrics", "", nil).Body)
		id := r.letter().ID
		for _, path := range []string{
			"/api/v1/calls", "/api/v1/calls/" + r.ended()[0].ID, "/api/v1/config", "/api/v1/policies", "/api/v1/limits", "/api/v1/breakers",
			lettersAPI, lettersAPI + "/" + id, lettersAPI + "/" + id + "?reveal=1", lettersAPI + "/export?reveal=1", lettersAPI + "/export?format=csv&reveal=1",
		} {
			shown += string(r.admin("GET", path, "", nil).Body)
		}
		shown += string(r.admin("POST", "/api/v1/explain", `{"method":"POST","url":"http://u1.test/?sign=`+s+`","body":"token=`+s+`"}`, nil).Body)
		if !strings.Contains(shown, "***") || !strings.Contains(shown, "orders") {
			t.Error("requests and answers are not shown at all")
		}
		if i := strings.Index(shown, s); i >= 0 {
			t.Errorf("a secret is shown: …%s", shown[max(0, i-300):min(len(shown), i+60)])
		}
	}, append(ownPreset(t, mine+"secrets: [mine_pin, token, X-Token]\ntoken: [form:token]\n"), "retry_limits:", "credentials: [{preset: mine, values: {client_secret: S3CR3T}}]\nretry_limits:")...)
}

// A preset that changes is applied to a running proxy, one with a fault keeps the old one.
func TestPresetsAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	file, preset := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "presets", "mine.yaml")
	if err := os.Mkdir(filepath.Dir(preset), 0o700); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("deadline: 6s", "deadline: 6s, preset: mine", "idempotency:", "presets: {dir: '"+filepath.Dir(preset)+"'}\nidempotency:").Replace(caseConfig)
	write(t, file, text)
	write(t, preset, mine)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, text, func(a *app) {
			a.parse = func(data []byte) (*config.Config, error) {
				return parseConfig(file, data, &serveFlags{}, func(string) string { return "" })
			}
			a.keepsTo(config.File{Data: []byte(text)}, file)
		})
		u := r.upstream("u1.test:80", answer(200, `{"code":5}`, js))
		ask := func(reason string, requests int) {
			t.Helper()
			got := r.post("http://u1.test/?op=x", "{}")
			r.want(got, 200, u, requests)
			r.wantHeader(got, "X-Retry-Reason", reason)
		}
		ask("manual_review", 1)
		for change, c := range []struct {
			text, reason string
			sent, faults int
		}{
			{mine + "rules: [{name: no, code: [5], is: refused}]\n", "fail_permanent", 1, 0},
			{mine + "rules: [{name: no, code: [5], is: surely}]\n", "fail_permanent", 1, 1},
			{mine + "rules: [{name: later, code: [5], is: not_now}]\n", "attempts_exhausted", 4, 1},
		} {
			write(t, preset, c.text)
			rest(2 * time.Second)
			before := u.count()
			ask(c.reason, before+c.sent)
			faults := r.logged("the changed configuration is not used; the old one stays in force")
			if len(faults) != c.faults || c.faults > 0 && !strings.Contains(fmt.Sprint(faults[0]["error"]), "mine.yaml:7: rules[0].is") {
				t.Errorf("change %d: the log tells of %v", change, faults)
			}
		}
		r.close()
	})
}
