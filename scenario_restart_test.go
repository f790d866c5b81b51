package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/config"
)

// lasting runs f with a rig whose records are in a file; again stops the proxy as
// a restart does and starts it anew over what was left.
func lasting(t *testing.T, f func(r *rig, again func()), patch ...string) {
	t.Helper()
	dir := t.TempDir()
	patch = append([]string{"idempotency: {ttl: 1h}", "idempotency: {ttl: 1h}\nstore: {kind: sqlite, path: '" + dir + "', durability: process}"}, patch...)
	text := caseConfig
	for i := 0; i+1 < len(patch); i += 2 {
		text = strings.ReplaceAll(text, patch[i], patch[i+1])
	}
	bubble(t, func(r *rig) {
		f(r, func() {
			t.Helper()
			r.end()
			cfg, err := config.Parse("test.yaml", []byte(text), config.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r.start(cfg, t.TempDir())
		})
	}, patch...)
}

// A keyed call that waits when the proxy stops goes on when it is back: its client
// hears when to ask again, and then gets the answer, executed once.
func TestRestartGoesOnWithWaitingCalls(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", answer(503, "", "Retry-After: 2"), answer(201, "order 1"))
		call := r.async(func() reply { return r.post("http://u1.test/orders?x=1", "two books", keyed, "X-Shop-Id: s1") })
		rest(time.Second)
		again()
		got := <-call
		r.want(got, 202, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "parked")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "X-Retry-Advice", "check")
		r.wantHeader(got, "Retry-After", "1")

		joined := r.post("http://u1.test/orders?x=1", "two books", keyed, "X-Shop-Id: s1")
		r.want(joined, 201, u, 2)
		r.wantBody(joined, "order 1")
		r.wantHeader(joined, "Idempotency-Replayed", "true")
		if u.count() < 2 {
			t.Errorf("log: %s", r.log.String())
			return
		}
		if q := u.seen()[1]; string(q.Body) != "two books" || q.Line != "POST /orders?x=1 HTTP/1.1" || q.Header.Get("X-Retry-Count") != "1" || q.Header.Get("X-Idempotency-Key") == "" {
			t.Errorf("the attempt after the restart was %s %v %q, want the same call with count 1", q.Line, q.Header, q.Body)
		}
		r.wantGaps(u, 2*time.Second)
		for _, call := range r.ended() {
			if len(call.Attempts) > 0 && call.Result != "recovered" {
				t.Errorf("the call that went on ended as %s, want recovered", call.Result)
			}
		}
		r.want(r.post("http://u1.test/orders?x=1", "two books", keyed, "X-Shop-Id: s1"), 201, u, 2) // from the record
	}, plain...)
}

// What was answered before a restart is answered after it.
func TestRestartKeepsAnswers(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", answer(201, "order 1", "X-Order: 1"))
		r.want(r.post("http://u1.test/", "{}", keyed), 201, u, 1)
		again()
		got := r.post("http://u1.test/", "{}", keyed)
		r.want(got, 201, u, 1)
		r.wantBody(got, "order 1")
		r.wantHeader(got, "X-Order", "1")
		r.wantHeader(got, "Idempotency-Replayed", "true")
		r.want(r.post("http://u1.test/", "{other}", keyed), 422, u, 1)
	})
}

// An attempt that was in flight when the process was killed may have been
// executed: it is repeated where the key is honoured, and else in doubt.
func TestRestartAfterAKill(t *testing.T) {
	for host, want := range map[string]struct{ status, sent int }{
		"u1.test":              {201, 2},
		"gw-api.pinduoduo.com": {409, 1},
	} {
		t.Run(host, func(t *testing.T) {
			lasting(t, func(r *rig, again func()) {
				u := r.upstream(host+":80", silent, answer(201, "order 1"))
				r.async(func() reply { return r.post("http://"+host+"/", "{}", keyed) })
				rest(100 * time.Millisecond)
				r.kill()
				again()
				rest(3 * time.Second)
				got := r.post("http://"+host+"/", "{}", keyed)
				r.want(got, want.status, u, want.sent)
				if want.status == 409 {
					r.wantHeader(got, "X-Retry-Reason", "in_doubt")
				}
			}, patches(plain, []string{"idempotency: {ttl: 1h}", "upgrade_to_https: []\nidempotency: {ttl: 1h}"})...)
		})
	}
}

// Where the configuration of the next process has no way for a call whose attempt
// was in flight, its key is in doubt all the same, not free.
func TestRestartAfterAKillWithoutAWay(t *testing.T) {
	dir := t.TempDir()
	text := strings.ReplaceAll(caseConfig, "idempotency: {ttl: 1h}", "idempotency: {ttl: 1h}\nstore: {kind: sqlite, path: '"+dir+"', durability: process}")
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, text)
		restart := func(text string) {
			r.kill()
			r.end()
			cfg, err := config.Parse("test.yaml", []byte(text), config.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r.start(cfg, t.TempDir())
			rest(time.Second)
		}
		u := r.upstream("u1.test:80", silent, answer(201, "order 1"))
		r.async(func() reply { return r.post("http://u1.test/", "{}", keyed) })
		rest(100 * time.Millisecond)
		restart(text + "egress_default: deny\n")
		restart(text)
		got := r.post("http://u1.test/", "{}", keyed)
		r.want(got, 409, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "in_doubt")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.close()
	})
}

// The client of a durable call may leave: the call goes on, and the next request
// with the key gets what came of it.
func TestClientOfADurableCallLeaves(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(503, ""), answer(201, "order 1"))
		c := r.dialAt(proxyAddr)
		_, _ = c.Write([]byte(rawRequest("POST", "http://u1.test/", "{}", keyed)))
		rest(50 * time.Millisecond)
		c.Close()
		rest(5 * time.Second)
		r.want(reply{}, 0, u, 3)
		got := r.post("http://u1.test/", "{}", keyed)
		r.want(got, 201, u, 3)
		r.wantHeader(got, "Idempotency-Replayed", "true")
	}, plain...)
}

// The answer of a call that goes on for nobody is kept as any other.
func TestRestartKeepsTheAnswerOfACallWithoutAClient(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", answer(503, "", "Retry-After: 2"), answer(201, "order 1", "X-Order: 1"))
		r.async(func() reply { return r.post("http://u1.test/", "{}", keyed) })
		rest(time.Second)
		again()
		rest(5 * time.Second)
		r.want(reply{}, 0, u, 2)
		got := r.post("http://u1.test/", "{}", keyed)
		r.want(got, 201, u, 2)
		r.wantBody(got, "order 1")
		r.wantHeader(got, "X-Order", "1")
		r.wantHeader(got, "Idempotency-Replayed", "true")
	}, plain...)
}

// An answer without an end is read for nobody only as far as it could be kept.
func TestRestartDoesNotReadForEver(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		read := make(chan time.Duration, 1)
		u := r.upstream("u1.test:80", answer(503, "", "Retry-After: 2"), endless(read))
		r.async(func() reply { return r.post("http://u1.test/", "{}", keyed) })
		rest(time.Second)
		again()
		r.between("the reading", <-read, time.Second, 3*time.Second)
		got := r.post("http://u1.test/", "{}", keyed)
		r.want(got, 409, u, 2)
		r.wantHeader(got, "X-Retry-Reason", "result_not_kept")
	}, patches(plain, []string{"idempotency: {", "idempotency: {max_response: 1MiB, "})...)
}

// When the time to drain is nearly over, attempts are cut, and their clients are
// told that the calls go on.
func TestDrainTellsThatCallsGoOn(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", silent, answer(201, "order 1"))
		call := r.async(func() reply { return r.post("http://u1.test/", "{}", keyed) })
		rest(100 * time.Millisecond)
		began := time.Now()
		again()
		r.between("the drain", time.Since(began), 1800*time.Millisecond, 1900*time.Millisecond)
		got := <-call
		r.want(got, 202, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "parked")
		if !strings.Contains(r.log.String(), "still in flight") {
			t.Errorf("the log does not tell: %s", r.log)
		}
		rest(3 * time.Second)
		got = r.post("http://u1.test/", "{}", keyed)
		r.want(got, 201, u, 2)
		r.wantBody(got, "order 1")
	}, patches(with("jitter: none, jitter_ratio: 0"), []string{"per_try_timeout: 1s", "per_try_timeout: 5500ms"}, lays("drain: 2s"))...)
}
