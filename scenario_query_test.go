package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"retryproxy/idempotency"
)

// supplier is a preset whose orders can be asked about.
const supplier = mine + `
business_key: ["json:$.no"]
rules: [{name: works, code: [1], is: processing}, {name: no, code: [3], is: refused}, {name: fast, code: [6], is: throttled}]
query:
  request: {method: POST, url: "http://ask.test/query", form: {no: "{business_key}", shop: "{shop}"}}
  first_after: 10s
  every: 10s
  max: 4
  grace: 25s
  not_found_answers: 2
  rate: 10/s
  rules:
    - {where: [{at: $.state, is: [done]}], is: done}
    - {where: [{at: $.state, is: [failed]}], is: failed}
    - {where: [{at: $.state, is: [works]}], is: processing}
    - {where: [{at: $.state, is: [unknown]}], is: not_found}
`

// asking is the configuration of these tests.
func asking(t *testing.T) []string { return askingOf(t, supplier) }

func askingOf(t *testing.T, preset string) []string {
	p := ownPreset(t, preset)
	return append([]string{"deadline: 6s", "deadline: 100s, query: mine", strings.ReplaceAll(p[0], "6s", "100s"), strings.ReplaceAll(p[1], "6s", "100s")}, p[2:]...)
}

// states answers questions in turn.
func (r *rig) answersWith(list ...string) *scripted {
	var steps []step
	for _, s := range list {
		steps = append(steps, answer(200, `{"state":"`+s+`"}`, js))
	}
	return r.upstream("ask.test:80", steps...)
}

// sendOrder sends an order to a supplier.
func (r *rig) sendOrder(no string, more ...string) reply {
	return r.post("http://u1.test/?op=submit", `{"no":"`+no+`"}`, append(more, js, "X-Shop-Id: s1")...)
}

// with runs a test with a store in memory, with and without a key, and with a durable one.
func everyStore(t *testing.T, f func(r *rig, key []string, durable bool)) {
	t.Helper()
	t.Run("keyless", func(t *testing.T) { bubble(t, func(r *rig) { f(r, nil, false) }, asking(t)...) })
	t.Run("memory", func(t *testing.T) { bubble(t, func(r *rig) { f(r, []string{keyed}, false) }, asking(t)...) })
	t.Run("durable", func(t *testing.T) {
		lasting(t, func(r *rig, _ func()) { f(r, []string{keyed}, true) }, asking(t)...)
	})
}

// The client of an order that may have been executed is answered from what the supplier
// says of it, and nothing is sent twice.
func TestQueryFindsTheOrderDone(t *testing.T) {
	everyStore(t, func(r *rig, key []string, _ bool) {
		u, asked := r.upstream("u1.test:80", answer(500, "?")), r.answersWith("works", "done")
		start := time.Now()
		got := r.sendOrder("7", key...)
		r.want(got, 200, u, 1)
		r.wantBody(got, `{"state":"done"}`)
		r.wantHeader(got, "X-Retry-Reason", "")
		r.between("the answer", time.Since(start), 20*time.Second, 22*time.Second)
		if q := asked.seen(); len(q) != 2 || string(q[0].Body) != "no=7&shop=s1" || q[0].Header.Get("X-Idempotency-Key") != "" {
			t.Errorf("the supplier was asked %d times: %+v", len(q), q)
		}
		r.wantMetric(1, "queries_total", "preset=mine", "answer=done")
		r.wantMetric(0, "retries_total")
		if key != nil {
			again := r.sendOrder("7", key...)
			r.want(again, 200, u, 1)
			r.wantBody(again, `{"state":"done"}`)
			r.wantHeader(again, "Idempotency-Replayed", "true")
		}
	})
}

// What the supplier did not execute is sent again: when it says so, or when it does not
// know it, said twice and after the grace time.
func TestQueryFindsTheOrderNotExecuted(t *testing.T) {
	for name, c := range map[string]struct {
		states []string
		asked  int
	}{"failed": {[]string{"failed"}, 1}, "not found": {[]string{"unknown", "unknown", "unknown"}, 3}} {
		t.Run(name, func(t *testing.T) {
			everyStore(t, func(r *rig, key []string, _ bool) {
				u, asked := r.upstream("u1.test:80", answer(500, "?"), answer(200, `{"code":0}`, js)), r.answersWith(c.states...)
				got := r.sendOrder("7", key...)
				r.want(got, 200, u, 2)
				r.wantBody(got, `{"code":0}`)
				if n := asked.count(); n != c.asked {
					t.Errorf("the supplier was asked %d times, want %d", n, c.asked)
				}
			})
		})
	}
}

// An answer that nobody understands, and none at all, is a person's: nothing is sent.
func TestUnclearOrdersAreAPersons(t *testing.T) {
	for name, list := range map[string][]string{"unclear": {"what?"}, "at work for ever": {"works"}} {
		t.Run(name, func(t *testing.T) {
			everyStore(t, func(r *rig, key []string, durable bool) {
				u := r.upstream("u1.test:80", answer(500, "?"))
				r.answersWith(list...)
				got := r.sendOrder("7", key...)
				r.want(got, 500, u, 1)
				r.wantHeader(got, "X-Retry-Reason", "manual_review")
				r.wantHeader(got, "X-Retry-Executed", "maybe")
				if key == nil {
					return
				}
				again := r.sendOrder("7", key...)
				r.want(again, 409, u, 1)
				r.wantHeader(again, "X-Retry-Reason", "in_doubt")
				if durable {
					notes := r.letter().Notes
					if last := notes[len(notes)-1]; last.By != "query" || last.Did != "query_gave_up" {
						t.Errorf("the letter says %+v", notes)
					}
				}
			})
		})
	}
}

// Questions outlive the process: the order is asked about by the next one, and never sent
// again by itself.
func TestQuestionsOutliveAKill(t *testing.T) {
	for name, kill := range map[string]time.Duration{"in the attempt": 300 * time.Millisecond, "before the question": 5 * time.Second, "in the question": 10900 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			lasting(t, func(r *rig, again func()) {
				u := r.upstream("u1.test:80", after(600*time.Millisecond, answer(500, "?")))
				asked := r.upstream("ask.test:80", after(500*time.Millisecond, answer(200, `{"state":"done"}`, js)))
				r.async(func() reply { return r.sendOrder("7", keyed) })
				rest(kill)
				r.kill()
				again()
				got := r.sendOrder("7", keyed)
				r.want(got, 200, u, 1)
				r.wantBody(got, `{"state":"done"}`)
				if asked.count() == 0 {
					t.Error("nobody asked")
				}
			}, asking(t)...)
		})
	}
}

// Repeats wait for what comes of the questions, as far as they have time.
func TestRepeatsWaitForTheAnswer(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u, asked := r.upstream("u1.test:80", answer(500, "?")), r.answersWith("works", "done")
		all := r.together(20, func(i int) reply {
			if i == 7 {
				rest(time.Second)
				return r.sendOrder("7", keyed, "X-Request-Timeout: 2")
			}
			return r.sendOrder("7", keyed)
		})
		for i, got := range all {
			want := 200
			if i == 7 {
				want = 409
				r.wantHeader(got, "X-Retry-Reason", "in_doubt")
				r.wantAfter(got, 6, 8)
			}
			r.want(got, want, u, 1)
		}
		if n := asked.count(); n != 2 {
			t.Errorf("the supplier was asked %d times, want 2", n)
		}
	}, asking(t)...)
}

// An order that is at work is asked about, though its client has its answer.
func TestProcessingIsAskedAbout(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(200, `{"code":1}`, js))
		r.answersWith("works", "done")
		got := r.sendOrder("7", keyed)
		r.want(got, 200, u, 1)
		r.wantBody(got, `{"code":1}`)
		rest(15 * time.Second)
		if rec := r.letters(); len(rec) != 1 || rec[0].Reason != "processing" || rec[0].State != idempotency.StateInDoubt {
			t.Errorf("while it is at work: %+v", rec)
		}
		rest(10 * time.Second)
		again := r.sendOrder("7", keyed)
		r.want(again, 200, u, 1)
		r.wantBody(again, `{"state":"done"}`)
		if n := len(r.letters()); n != 0 {
			t.Errorf("%d letters are left", n)
		}
	}, asking(t)...)
}

// An order that the supplier took is never sent again because a query does not find it.
func TestAcceptedOrdersAreNotSentAgain(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(200, `{"code":1}`, js))
		asked := r.answersWith("unknown")
		r.want(r.sendOrder("7", keyed), 200, u, 1)
		rest(5 * time.Minute)
		r.want(r.sendOrder("7", keyed), 409, u, 1)
		if n := asked.count(); n != 4 {
			t.Errorf("the supplier was asked %d times, want 4", n)
		}
		if notes := r.letter().Notes; notes[len(notes)-1].Did != "query_gave_up" {
			t.Errorf("the letter says %+v", notes)
		}
	}, asking(t)...)
}

// A supplier that does not answer questions is asked again, and that says nothing about
// the order.
func TestQuestionsMayFail(t *testing.T) {
	everyStore(t, func(r *rig, key []string, _ bool) {
		u := r.upstream("u1.test:80", answer(500, "?"))
		r.upstream("ask.test:80", answer(200, `{"code":6}`, js), answer(503, ""), answer(200, "<html>", "Content-Type: text/html"), answer(200, `{"state":"done"}`, js))
		got := r.sendOrder("7", key...)
		r.want(got, 200, u, 1)
		r.wantMetric(3, "queries_total", "answer=unanswered")
	})
}

// Questions that could not be asked are not counted: each order is asked about in its turn.
func TestOnlyQuestionsThatWereAskedCount(t *testing.T) {
	once := strings.Replace(supplier, "max: 4", "max: 1", 1)
	t.Run("too many for the supplier", func(t *testing.T) {
		lasting(t, func(r *rig, _ func()) {
			u, asked := r.upstream("u1.test:80", answer(500, "?")), r.answersWith("done")
			key := func(i int) string { return "X-Idempotency-Key: order-" + strconv.Itoa(i) }
			r.together(20, func(i int) reply { return r.sendOrder(strconv.Itoa(i), key(i), "X-Request-Timeout: 3") })
			rest(5 * time.Minute)
			if n := asked.count(); n > 6 {
				t.Errorf("%d questions in five minutes, want one a minute", n)
			}
			rest(20 * time.Minute)
			for i := range 20 {
				r.want(r.sendOrder(strconv.Itoa(i), key(i)), 200, u, 20)
			}
			if n := asked.count(); n != 20 {
				t.Errorf("the supplier was asked %d times, want 20", n)
			}
			r.wantMetric(20, "queries_total")
		}, askingOf(t, strings.Replace(once, "rate: 10/s", "rate: 1/m", 1))...)
	})
	t.Run("cut off", func(t *testing.T) {
		cutOff := append(askingOf(t, once), "open: 2s, open_max: 2s", "open: 5m, open_max: 5m")
		lasting(t, func(r *rig, _ func()) {
			u := r.upstream("u1.test:80", answer(500, "?"))
			asked := r.upstream("ask.test:80", answer(503, ""), answer(503, ""), answer(503, ""), answer(503, ""), answer(503, ""), answer(200, `{"state":"done"}`, js))
			for range 5 {
				r.post("http://ask.test/x", "")
			}
			r.want(r.sendOrder("7", keyed, "X-Request-Timeout: 3"), 500, u, 1)
			rest(4 * time.Minute)
			r.want(r.sendOrder("7", keyed, "X-Request-Timeout: 1"), 409, u, 1)
			if n := asked.count(); n != 5 {
				t.Errorf("%d requests at a host that is cut off, want 5", n)
			}
			rest(2 * time.Minute)
			r.want(r.sendOrder("7", keyed), 200, u, 1)
		}, cutOff...)
	})
	t.Run("without a store", func(t *testing.T) {
		bubble(t, func(r *rig) {
			u := r.upstream("u1.test:80", answer(500, "?"))
			r.answersWith("done")
			for _, got := range r.together(2, func(i int) reply { return r.sendOrder(strconv.Itoa(i)) }) {
				r.want(got, 200, u, 2)
				r.wantBody(got, `{"state":"done"}`)
			}
		}, askingOf(t, strings.Replace(once, "rate: 10/s", "rate: 1/m", 1))...)
	})
}

// An answer that is too large to be kept is not stored, though it says that the order is done.
func TestLargeAnswersToQuestions(t *testing.T) {
	small := append(asking(t), "idempotency: {ttl: 1h", "idempotency: {max_response: 1KiB, ttl: 1h")
	ends := func(r *rig, first int) {
		u := r.upstream("u1.test:80", answer(500, "?"))
		r.upstream("ask.test:80", answer(200, `{"state":"done","text":"`+strings.Repeat("x", 1<<10)+`"}`, js))
		r.want(r.sendOrder("7", keyed), first, u, 1)
		again := r.sendOrder("7", keyed)
		r.want(again, 409, u, 1)
		r.wantHeader(again, "X-Retry-Reason", "result_not_kept")
	}
	bubble(t, func(r *rig) { ends(r, 200) }, small...)
	lasting(t, func(r *rig, _ func()) { ends(r, 409) }, small...)
}

// A client without patience gets what it gets today, with a date; the questions go on.
func TestClientThatDoesNotWaitForQuestions(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(500, "?"))
		r.answersWith("done")
		got := r.sendOrder("7", keyed, "X-Request-Timeout: 3")
		r.want(got, 500, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "manual_review")
		rest(10 * time.Second)
		again := r.sendOrder("7", keyed)
		r.want(again, 200, u, 1)
		r.wantBody(again, `{"state":"done"}`)
	}, asking(t)...)
}
