package main

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The presets of these tests: the platform that the bot orders at, and two suppliers that
// get the order when it is certain that nobody else has it.
const (
	firstSupplier = mine + `
business_key: [json:$.order]
rules:
  - {name: slow, code: [1], is: throttled}
  - {name: funds, code: [5], is: refused}
  - {name: number, code: [6], is: refused, failover: false}
  - {name: later, code: [7], is: processing}
  - {name: half, code: [8], is: partly_done}
  - {name: banned, code: [9], is: risk_control}
`
	supplierB = `
preset: supplier-b
answer: {code: [$.status], success: [{at: $.status, is: ["ok"]}]}
rules:
  - {name: no, code: ["no"], is: refused}
sign: {family: sorted_wrap, digest: md5, case: upper, secret: key, signature: [form:sign]}
submit:
  order_no: new_suffix
  guard: [{value: "{json:$.amount}", most: 100.5}]
  request:
    url: http://b.test/pay
    form: {no: "{order_no}", sku: "{json:$.product | map products}", app: "{cred.app}", at: "{now:unix}", sign: "-"}
    tables: {products: {"10": B-10}}
`
	supplierC = `
preset: supplier-c
answer: {code: [$.c], success: [{at: $.c, is: ["0"]}]}
rules: [{name: no, code: ["1"], is: refused}]
submit:
  request: {url: http://c.test/orders, json: '{"id":"{order_no}","shop":"{shop | default ""}"}'}
`
)

// suppliers is a configuration of them; more are keys of the policy.
func suppliers(t *testing.T, more ...string) []string {
	return suppliersAfter(t, firstSupplier, more...)
}

// suppliersAfter is that with another first one.
func suppliersAfter(t *testing.T, first string, more ...string) []string {
	return withPresets(t, map[string]string{"mine": first, "supplier-b": supplierB, "supplier-c": supplierC}, more...)
}

func withPresets(t *testing.T, texts map[string]string, more ...string) []string {
	dir := t.TempDir()
	for name, text := range texts {
		write(t, filepath.Join(dir, name+".yaml"), text)
	}
	policy := append([]string{"deadline: 6s, preset: mine, failover: [supplier-b], jitter: none"}, more...)
	return []string{
		"deadline: 6s", strings.Join(policy, ", "),
		"slots:", "presets: {dir: '" + dir + "'}\ncredentials: [{preset: supplier-b, values: {key: " + secret + ", app: shop-1}}]\nslots:",
	}
}

const orderA1 = `{"order":"A1","product":"10","amount":100.5}`

// places an order at the first supplier.
func (r *rig) places(body string, headers ...string) reply {
	return r.post("http://u1.test/?op=order", body, append(headers, js)...)
}

func inJSON(body string) step { return answer(200, body, js) }

var (
	paid    = inJSON(`{"status":"ok","card":"4711"}`)
	broke   = inJSON(`{"code":5,"text":"no funds"}`)
	tooFast = inJSON(`{"code":1,"text":"too fast"}`)
)

// After a definite failure the next supplier gets the order: as its own request, under a
// number of its own, signed by its own scheme.
func TestOrderGoesToTheNextSupplier(t *testing.T) {
	bubble(t, func(r *rig) {
		u, b := r.upstream("u1.test:80", broke), r.upstream("b.test:80", paid)
		got := r.places(orderA1, keyed)
		r.want(got, 200, b, 1)
		r.want(got, 200, u, 1)
		r.wantBody(got, `{"status":"ok","card":"4711"}`)
		if b.count() != 1 {
			return
		}
		sent := b.seen()[0]
		form, _ := url.ParseQuery(string(sent.Body))
		at := fmt.Sprint(sent.At.Unix())
		sum := md5.Sum([]byte(secret + "appshop-1at" + at + "noA1-r2skuB-10" + secret))
		want := url.Values{"no": {"A1-r2"}, "sku": {"B-10"}, "app": {"shop-1"}, "at": {at}, "sign": {strings.ToUpper(hex.EncodeToString(sum[:]))}}
		if sent.Line != "POST /pay HTTP/1.1" || sent.Host != "b.test" || form.Encode() != want.Encode() {
			t.Errorf("the supplier got %s at %s: %s, want %s", sent.Line, sent.Host, form.Encode(), want.Encode())
		}
		for _, name := range []string{"X-Idempotency-Key", "X-Retry-Count", "Via"} {
			r.wantSent(b, 1, name, "")
		}
		r.wantHeader(got, "X-Retry-Count", "1")
		r.wantHeader(got, "Proxy-Status", "retryproxy; next-hop=supplier-b")
		r.wantMetric(1, "failovers_total", "policy=default", "from=mine", "to=supplier-b")
		last := r.last()
		if a := last.Attempts; len(a) != 2 || a[0].Supplier != "" || a[1].Supplier != "supplier-b" || a[1].Host != "b.test:80" || a[1].N != 2 {
			t.Errorf("attempts = %+v", a)
		}
		if lines := r.logged("call"); !strings.Contains(r.log.String(), `"supplier":"supplier-b"`) {
			t.Errorf("no line of the log names the supplier: %v", lines)
		}
		if strings.Contains(r.log.String(), secret) {
			t.Error("the log holds the secret")
		}
		// Whoever delivered: a repeat is answered from the record.
		again := r.places(orderA1, keyed)
		r.want(again, 200, b, 1)
		r.want(again, 200, u, 1)
		r.wantHeader(again, "Idempotency-Replayed", "true")
		r.wantHeader(again, "Proxy-Status", "retryproxy; next-hop=supplier-b")
	}, suppliers(t)...)
}

// Whatever leaves a doubt stays where it is.
func TestWhenAnOrderGoesOn(t *testing.T) {
	for name, test := range map[string]struct {
		first      step
		body       string
		sent, next int // requests at the first and the second supplier
		status     int
	}{
		"refused":                 {broke, orderA1, 1, 1, 200},
		"throttled to the end":    {tooFast, orderA1, 4, 1, 200},
		"banned":                  {inJSON(`{"code":9}`), orderA1, 1, 1, 200},
		"503 to the end":          {answer(503, ""), orderA1, 4, 1, 200},
		"refused by everybody":    {inJSON(`{"code":6}`), orderA1, 1, 0, 200},
		"processing":              {inJSON(`{"code":7}`), orderA1, 1, 0, 200},
		"partly done":             {inJSON(`{"code":8}`), orderA1, 1, 0, 200},
		"an unknown code":         {inJSON(`{"code":77}`), orderA1, 1, 0, 200},
		"unreadable":              {answer(200, "<html>", "Content-Type: text/html"), orderA1, 1, 0, 200},
		"500":                     {answer(500, ""), orderA1, 1, 0, 500},
		"409":                     {answer(409, ""), orderA1, 1, 0, 409},
		"404":                     {answer(404, ""), orderA1, 1, 0, 404},
		"a time-out":              {silent, orderA1, 1, 0, 504},
		"reset":                   {reset, orderA1, 1, 0, 502},
		"too dear":                {broke, strings.Replace(orderA1, "100.5", "100.51", 1), 1, 0, 200},
		"no price":                {broke, strings.Replace(orderA1, "100.5", `"free"`, 1), 1, 0, 200},
		"a product it has not":    {broke, strings.Replace(orderA1, `"10"`, `"20"`, 1), 1, 0, 200},
		"an order without number": {broke, strings.Replace(orderA1, `"order":"A1",`, "", 1), 1, 1, 200},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{keyed, "X-None: 1"} {
				bubble(t, func(r *rig) {
					u, b := r.upstream("u1.test:80", test.first), r.upstream("b.test:80", paid)
					next := test.next
					if key != keyed && strings.Contains(name, "without number") {
						next = 0 // nothing to call the order by
					}
					got := r.places(test.body, key)
					r.want(got, test.status, u, test.sent)
					r.want(got, test.status, b, next)
					r.wantMetric(float64(next), "failovers_total")
					if next == 0 && strings.Contains(got.Body, "4711") {
						t.Errorf("answered with %q", got.Body)
					}
				}, suppliers(t)...)
			}
		})
	}
}

// A supplier that cannot be reached at all has nothing, also where its breaker spares it
// the attempt.
func TestOrderOfADeadSupplierGoesOn(t *testing.T) {
	bubble(t, func(r *rig) {
		u, b := r.closed("u1.test:80"), r.upstream("b.test:80", paid)
		r.want(r.places(orderA1, keyed), 200, b, 1)
		r.wantVerdict(4, "transient", "connect_refused")
		r.want(r.places(strings.Replace(orderA1, "A1", "A2", 1), "X-Idempotency-Key: k2"), 200, b, 2)
		r.want(r.places(strings.Replace(orderA1, "A1", "A3", 1), "X-Idempotency-Key: k3"), 200, b, 3)
		if u.count() != 0 {
			t.Errorf("the first supplier got %d requests", u.count())
		}
		if no := formOf(b, 3).Get("no"); !strings.HasPrefix(no, "A3-r") {
			t.Errorf("order number %q", no)
		}
	}, patches(suppliers(t), []string{"open: 2s, open_max: 2s", "open: 60s, open_max: 60s", "max_delay: 1s,", "max_delay: 1s, on_open: fail,"})...)
}

func formOf(s *scripted, n int) url.Values {
	v, _ := url.ParseQuery(string(s.seen()[n-1].Body))
	return v
}

// Each supplier has retries of its own; a doubt at the second ends it there.
func TestSuppliersInTurn(t *testing.T) {
	both := []string{"failover: [supplier-b]", "failover: [supplier-b, supplier-c]"}
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", tooFast)
		b, c := r.upstream("b.test:80", answer(503, "")), r.upstream("c.test:80", inJSON(`{"c":0}`))
		got := r.places(orderA1, keyed, "X-Shop-Id: s1")
		r.want(got, 200, b, 4)
		r.want(got, 200, c, 1)
		r.wantGaps(b, 100*time.Millisecond, 200*time.Millisecond, 400*time.Millisecond)
		if body := string(c.seen()[0].Body); body != `{"id":"A1","shop":"s1"}` {
			t.Errorf("the last supplier got %s", body)
		}
		if no := formOf(b, 4).Get("no"); no != "A1-r5" || formOf(b, 1).Get("no") != no {
			t.Errorf("the second supplier got number %q, want the same each time", no)
		}
		r.wantHeader(got, "X-Retry-Count", "8")
	}, patches(suppliers(t), both)...)
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", broke)
		b, c := r.upstream("b.test:80", hangUp), r.upstream("c.test:80", inJSON(`{"c":0}`))
		got := r.places(orderA1, keyed)
		r.want(got, 502, b, 1)
		r.want(got, 502, c, 0)
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.want(r.places(orderA1, keyed), 409, b, 1) // in doubt
	}, patches(suppliers(t), both)...)
	bubble(t, func(r *rig) { // who says no last is heard
		u := r.upstream("u1.test:80", broke)
		b, c := r.upstream("b.test:80", inJSON(`{"status":"no"}`)), r.upstream("c.test:80", inJSON(`{"c":1}`))
		got := r.places(orderA1, keyed)
		r.want(got, 200, b, 1)
		r.wantBody(got, `{"c":1}`)
		r.wantHeader(got, "X-Retry-Reason", "fail_permanent")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.places(orderA1, keyed) // nothing was executed: the client begins anew
		r.want(got, 200, u, 2)
		r.want(got, 200, c, 2)
		if first, second := formOf(b, 1).Get("no"), formOf(b, 2).Get("no"); first != "A1-r2" || second != "A1-r5" {
			t.Errorf("the numbers were %s and %s", first, second)
		}
	}, patches(suppliers(t), both)...)
}

// Of many simultaneous repeats one order is placed, wherever it ends up.
func TestSimultaneousRepeatsOrderOnce(t *testing.T) {
	bothStores(t, func(r *rig) {
		u, b := r.upstream("u1.test:80", after(100*time.Millisecond, broke)), r.upstream("b.test:80", after(100*time.Millisecond, paid))
		var calls []<-chan reply
		for range 50 {
			calls = append(calls, r.async(func() reply { return r.places(orderA1, keyed) }))
		}
		for _, call := range calls {
			got := <-call
			r.want(got, 200, u, 1)
			r.want(got, 200, b, 1)
			r.wantBody(got, `{"status":"ok","card":"4711"}`)
		}
	}, suppliers(t)...)
}

// A process that ends leaves the order with whoever has it.
func TestRestartRemembersTheSupplier(t *testing.T) {
	for name, first := range map[string]step{"waiting": answer(503, "", "Retry-After: 2"), "in flight": silent} {
		t.Run(name, func(t *testing.T) {
			lasting(t, func(r *rig, again func()) {
				u, b := r.upstream("u1.test:80", broke), r.upstream("b.test:80", first, paid)
				r.async(func() reply { return r.places(orderA1, keyed) })
				rest(500 * time.Millisecond)
				rec := r.record("k")
				if s := rec.Supplier(); s.Name != "supplier-b" || s.OrderNo != "A1-r2" || rec.Host != "b.test:80" {
					t.Errorf("the record is at %+v, host %s", s, rec.Host)
				}
				r.kill()
				again()
				rest(4 * time.Second)
				got := r.places(orderA1, keyed)
				if name == "in flight" { // it may have been executed
					r.want(got, 409, b, 1)
				} else {
					r.want(got, 200, b, 2)
					r.wantBody(got, `{"status":"ok","card":"4711"}`)
					if no := formOf(b, 2).Get("no"); no != "A1-r2" {
						t.Errorf("after the restart the order is %s", no)
					}
				}
				r.want(got, got.Status, u, 1)
			}, suppliers(t)...)
		})
	}
}

// A redrive goes to the supplier that has the order, under the number that it knows, and
// so does the requeue of a person.
func TestRedriveGoesToTheSupplierThatHasIt(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u, b := r.upstream("u1.test:80", broke), r.upstream("b.test:80", answer(503, ""), answer(503, ""), answer(503, ""), answer(503, ""), answer(503, ""), paid)
		r.want(r.places(orderA1, keyed), 503, b, 4)
		again()
		rest(time.Hour + time.Minute) // the redrive: 503, then paid
		r.want(reply{}, 0, u, 1)
		r.want(reply{}, 0, b, 6)
		if no := formOf(b, 6).Get("no"); no != "A1-r2" {
			t.Errorf("the redrive ordered %s", no)
		}
		got := r.places(orderA1, keyed)
		r.want(got, 200, b, 6)
		r.wantHeader(got, "Idempotency-Replayed", "true")
	}, patches(suppliers(t, "redrive: [1h], dead_letter: all"), []string{"idempotency: {ttl: 1h}", "idempotency: {ttl: 24h}"})...)
	for _, key := range []string{keyed, "X-None: 1"} {
		lasting(t, func(r *rig, _ func()) {
			u, b := r.upstream("u1.test:80", broke), r.upstream("b.test:80", hangUp, paid)
			r.want(r.places(orderA1, key), 502, b, 1)
			v := r.letter()
			r.orderLetter(v.ID+"/requeue", `{"executed_unknown":true,"by":"ann","note":"not there"}`, 202)
			rest(time.Second)
			r.want(reply{}, 0, u, 1)
			r.want(reply{}, 0, b, 2)
			if no := formOf(b, 2).Get("no"); no != "A1-r2" {
				t.Errorf("the requeue ordered %s", no)
			}
		}, suppliers(t, "dead_letter: all")...)
	}
}

// What explain says of the way, and what a person reads of an order that went on.
func TestSupplierIsNamed(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", broke)
		r.upstream("b.test:80", inJSON(`{"status":"no"}`))
		got := r.places(orderA1, keyed)
		var e struct {
			Hops []struct{ URL, Host, Why string }
		}
		r.admin("POST", "/api/v1/explain", `{"method":"POST","url":"http://u1.test/?op=order","headers":[]}`, &e)
		if len(e.Hops) != 2 || e.Hops[1].Host != "b.test" || e.Hops[1].URL != "http://b.test/pay" || !strings.Contains(e.Hops[1].Why, "supplier-b") {
			t.Errorf("explain names %+v", e.Hops)
		}
		var call struct {
			Attempts []struct{ Supplier, Host string }
		}
		r.admin("GET", "/api/v1/calls/"+got.Header.Get("X-Call-Id"), "", &call)
		if a := call.Attempts; len(a) != 2 || a[0].Supplier != "" || a[1].Supplier != "supplier-b" || a[1].Host != "b.test:80" {
			t.Errorf("the call's attempts are %+v", a)
		}
		if n := len(r.logged("an order is handed on to another supplier")); n != 1 {
			t.Errorf("%d lines tell of it, want 1", n)
		}
	}, suppliers(t)...)
}

// The order is where it is, also when the configuration forgets the supplier: nobody else
// gets it.
func TestSupplierThatIsGone(t *testing.T) {
	patch := suppliers(t, "dead_letter: all")
	lasting(t, func(r *rig, again func()) {
		u, b := r.upstream("u1.test:80", broke, inJSON(`{"code":0}`)), r.upstream("b.test:80", answer(503, ""))
		r.want(r.places(orderA1, keyed), 503, b, 4)
		v := r.letter()
		store := "\nstore: {kind: sqlite, path: '" + r.app.config().Store.Path + "', durability: process}"
		r.applies(append(patch, "idempotency: {ttl: 1h}", "idempotency: {ttl: 1h}"+store, "failover: [supplier-b]", "failover: []", "presets: {dir: ", "presets: {dir: '"+t.TempDir()+"'} # ", "preset: mine", "preset: none")...)
		if got := r.orderLetter(v.ID+"/requeue", "{}", 409); !strings.Contains(got.Body, "the order is at supplier-b") {
			t.Errorf("requeue = %s", got.Body)
		}
		r.want(reply{}, 0, u, 1)
	}, patch...)
}

// bothStores runs a test with a store in memory and with a durable one.
func bothStores(t *testing.T, f func(r *rig), patch ...string) {
	t.Run("memory", func(t *testing.T) { bubble(t, f, patch...) })
	t.Run("durable", func(t *testing.T) { lasting(t, func(r *rig, _ func()) { f(r) }, patch...) })
}

// longer gives the questions their time.
var longer = []string{"deadline: 6s", "deadline: 100s"}

// A supplier that says, when asked, that it did not execute the order gets it again; when
// it then refuses it, the next one does.
func TestQuestionThenTheNextSupplier(t *testing.T) {
	first := firstSupplier + supplier[strings.Index(supplier, "\nquery:"):]
	bothStores(t, func(r *rig) {
		u, b := r.upstream("u1.test:80", hangUp, broke), r.upstream("b.test:80", paid)
		ask := r.answersWith("works", "failed")
		got := r.places(orderA1, keyed, "X-Shop-Id: s1")
		r.want(got, 200, u, 2)
		r.want(got, 200, b, 1)
		r.want(got, 200, ask, 2)
		r.wantBody(got, `{"status":"ok","card":"4711"}`)
	}, patches(withPresets(t, map[string]string{"mine": first, "supplier-b": supplierB}, "query: mine"), longer)...)
}

// Of an order that was handed on only the supplier that has it is asked, by its own number.
func TestQuestionToTheSupplierThatHasIt(t *testing.T) {
	first := firstSupplier + supplier[strings.Index(supplier, "\nquery:"):]
	asks := supplierB + `query:
  request: {url: "http://b.test/query", form: {no: "{order_no}", sign: "-"}}
  first_after: 10s
  every: 10s
  rules: [{where: [{at: $.state, is: [done]}], is: done}]
`
	bothStores(t, func(r *rig) {
		u, b := r.upstream("u1.test:80", broke), r.upstream("b.test:80", hangUp, inJSON(`{"state":"works"}`), inJSON(`{"state":"done"}`))
		ask := r.answersWith("unknown")
		got := r.places(orderA1, keyed)
		r.want(got, 200, u, 1)
		r.want(got, 200, ask, 0)
		r.want(got, 200, b, 3)
		if b.count() == 3 && (formOf(b, 2).Get("no") != "A1-r2" || b.seen()[1].Line != "POST /query HTTP/1.1") {
			t.Errorf("the supplier was asked %s", b.seen()[1].Body)
		}
		r.wantBody(got, `{"state":"done"}`)
	}, patches(withPresets(t, map[string]string{"mine": first, "supplier-b": strings.Replace(asks, "[done]}], is: done}", "[works]}], is: processing}, {where: [{at: $.state, is: [done]}], is: done}", 1)}, "query: mine"), longer)...)
	bothStores(t, func(r *rig) { // one that cannot be asked leaves the order to a person
		r.upstream("u1.test:80", broke)
		b, ask := r.upstream("b.test:80", hangUp), r.answersWith("unknown")
		got := r.places(orderA1, keyed)
		r.want(got, 502, b, 1)
		r.want(got, 502, ask, 0)
		r.want(r.places(orderA1, keyed), 409, b, 1)
	}, patches(withPresets(t, map[string]string{"mine": first, "supplier-b": supplierB}, "query: mine"), longer)...)
}

// Whenever the proxy is stopped or killed, an order is placed once, with one number, and
// is in doubt only where a kill cut an attempt off.
func TestHandedOnAtEveryInstant(t *testing.T) {
	soon := func(s step) step { return after(50*time.Millisecond, s) }
	for name, end := range map[string]func(*blackout){"stop": (*blackout).stop, "crash": (*blackout).crash} {
		t.Run(name, func(t *testing.T) {
			doubts := 0
			for at := time.Duration(0); at < 620*time.Millisecond; at += 47 * time.Millisecond {
				blackouts(t, func(r *rig, o *blackout) {
					u := r.upstream("u1.test:80", soon(tooFast), soon(broke))
					b := r.upstream("b.test:80", soon(answer(503, "")), after(200*time.Millisecond, paid))
					got := r.places(orderA1, keyed, "Prefer: respond-async")
					r.want(got, 202, nil, 0)
					rest(at)
					end(o)
					rest(time.Second)
					o.start()
					rest(10 * time.Second)
					rec, _ := r.follow(got)
					switch {
					case rec.State == "done" && u.count() == 2 && b.count() == 2:
						r.wantBody(r.places(orderA1, keyed), `{"status":"ok","card":"4711"}`)
					case rec.State == "in_doubt" && name == "crash" && b.count() <= 2:
						doubts++
						r.want(r.places(orderA1, keyed), 409, b, b.count())
					default:
						t.Errorf("ended after %v it is %s (%s) after %d and %d requests", at, rec.State, rec.Reason, u.count(), b.count())
					}
					for n := range b.count() {
						if no := formOf(b, n+1).Get("no"); no != "A1-r3" {
							t.Errorf("ended after %v the order is %s", at, no)
						}
					}
				}, suppliers(t)...)
			}
			if doubts > 0 != (name == "crash") {
				t.Errorf("%d ended in doubt", doubts)
			}
		})
	}
}
