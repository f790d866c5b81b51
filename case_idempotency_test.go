package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCase_ID_01_SameKeyOtherTenant(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(201, `{"order":"A1"}`), answer(201, `{"order":"B1"}`))
		a := r.post("http://u1.test/order", `{"qty":1}`, keyed, "X-Shop-Id: A")
		r.want(a, 201, u, 1)
		b := r.post("http://u1.test/order", `{"qty":2}`, keyed, "X-Shop-Id: B")
		r.want(b, 201, u, 2)
		if a.Body != `{"order":"A1"}` || b.Body != `{"order":"B1"}` {
			t.Errorf("A got %q, B got %q, want each its own", a.Body, b.Body)
		}
		r.wantHeader(b, "Idempotency-Replayed", "")
		r.wantHeader(b, "Cache-Status", "")
		r.wantMetric(2, "idempotency_total", "result=fresh")
	})
}

func TestCase_ID_03_SameKeyOtherBody(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(201, `{"id":1}`))
		r.want(r.post("http://u1.test/order", `{"qty":1}`, keyed), 201, u, 1)
		other := r.post("http://u1.test/order", `{"qty":2}`, keyed)
		r.want(other, 422, u, 1)
		r.wantHeader(other, "X-Retry-Reason", "key_mismatch")
		r.wantHeader(other, "X-Retry-Advice", "stop")
		if !strings.Contains(other.Body, "2000-01-01T00:00:00Z for POST u1.test:80/order") {
			t.Errorf("422 says %s, want when and for what the key was first used", other.Body)
		}
		if strings.Contains(other.Body, "qty") || strings.Contains(other.Body, `"id"`) {
			t.Errorf("422 shows a body: %s", other.Body)
		}
		again := r.post("http://u1.test/order", `{"qty":1}`, keyed)
		r.want(again, 201, u, 1)
		r.wantHeader(again, "Idempotency-Replayed", "true")
		r.wantMetric(1, "idempotency_total", "result=mismatch")
	})
}

func TestCase_ID_05_FiftyAtOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(800*time.Millisecond, answer(201, `{"id":1}`)), answer(201, `{"id":2}`))
		all := r.together(50, func(i int) reply {
			time.Sleep(time.Duration(i) * 100 * time.Microsecond)
			return r.post("http://u1.test/x", "{}", keyed)
		})
		marked := 0
		for i := range all {
			r.want(all[i], 201, u, 1)
			if all[i].Body != `{"id":1}` || all[i].Took > 800*time.Millisecond {
				t.Errorf("client %d got %q after %v", i, all[i].Body, all[i].Took)
			}
			// The contract: one who waited is marked as collapsed, not as a hit.
			if all[i].Header.Get("Cache-Status") == "retryproxy; collapsed" && all[i].Header.Get("Idempotency-Replayed") == "true" {
				marked++
			}
		}
		if marked != 49 {
			t.Errorf("marked answers = %d, want 49", marked)
		}
		r.wantMetric(1, "calls_total", "result=success")
		r.wantMetric(49, "calls_total", "result=replay")
	})
}

func TestCase_ID_07_FailuresAreNotReplayed(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "1"), answer(503, "2"), answer(503, "3"), answer(503, "4"), answer(201, "made"))
		first := r.post("http://u1.test/x", "{}", keyed)
		r.want(first, 503, u, 4)
		if first.Body != "4" {
			t.Errorf("body = %q, want the newest answer", first.Body)
		}
		second := r.post("http://u1.test/x", "{}", keyed)
		r.want(second, 201, u, 5)
		r.wantHeader(second, "Idempotency-Replayed", "")
		for n, want := range []string{"", "1", "2", "3", "4"} { // the count never falls
			if got := u.seen()[n].Header.Get("X-Retry-Count"); got != want {
				t.Errorf("X-Retry-Count of request %d = %q, want %q", n+1, got, want)
			}
		}
	})
}

func TestCase_ID_08_PermanentFailureReleasesTheKey(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(400, "qty must be positive"), answer(201, "made"))
		bad := r.post("http://u1.test/x", `{"qty":-1}`, keyed)
		r.want(bad, 400, u, 1)
		r.wantHeader(bad, "X-Retry-Executed", "no")
		good := r.post("http://u1.test/x", `{"qty":1}`, keyed)
		r.want(good, 201, u, 2)
		if good.Body != "made" {
			t.Errorf("body = %q, want that of the corrected request", good.Body)
		}
	})
}

func TestCase_ID_11_SlowRequestKeepsItsKey(t *testing.T) {
	bubble(t, func(r *rig) {
		// The contract: the lease lives as long as the call, there is no other.
		u := r.upstream("u1.test:80", after(15*time.Second, answer(201, `{"id":1}`)), answer(201, `{"id":2}`))
		var group sync.WaitGroup
		for _, at := range []time.Duration{0, 5 * time.Second, 11 * time.Second} {
			group.Go(func() {
				time.Sleep(at)
				got := r.post("http://u1.test/x", "{}", keyed)
				if got.Status != 201 || got.Body != `{"id":1}` || got.Took != 15*time.Second-at {
					t.Errorf("client at %v got %d %q after %v, want the first one's answer at 15 s", at, got.Status, got.Body, got.Took)
				}
			})
		}
		group.Wait()
		if u.count() != 1 {
			t.Errorf("requests at the upstream = %d, want 1", u.count())
		}
	}, "per_try_timeout: 1s, deadline: 6s", "per_try_timeout: 20s, deadline: 25s")
}

func TestCase_ID_14_FaithfulReplay(t *testing.T) {
	bubble(t, func(r *rig) {
		body := "{\"name\":\"订单 é\",\"nul\":\"\x00\"}"
		u := r.upstream("u1.test:80", answer(201, body,
			"Location: /o/1", `ETag: "a,b"`, `Content-Disposition: attachment; filename="a,b.txt"`,
			"Link: </1>; rel=prev, </0>; rel=first", "Link: </3>; rel=next", "Date: Fri, 31 Dec 1999 23:59:00 GMT",
			"Connection: X-Hop", "X-Hop: gone", "Set-Cookie: s=1"))
		first := r.post("http://u1.test/order", "{}", keyed)
		r.want(first, 201, u, 1)
		time.Sleep(90 * time.Second)
		second := r.post("http://u1.test/order", "{}", keyed)
		r.want(second, 201, u, 1)
		r.wantHeader(second, "Idempotency-Replayed", "true")
		r.wantHeader(second, "Age", "90")
		if second.Body != body || first.Body != body {
			t.Errorf("bodies = %q and %q, want %q", first.Body, second.Body, body)
		}
		for _, added := range []string{"Idempotency-Replayed", "Cache-Status", "Age", "X-Call-Id", "X-Retry-Count"} {
			first.Header.Del(added)
			second.Header.Del(added)
		}
		first.Header.Del("Set-Cookie") // the contract: a cookie is for the first client only
		if diff := cmp.Diff(first.Header, second.Header); diff != "" {
			t.Errorf("the replay's fields differ (-first +replay):\n%s", diff)
		}
		if got := second.Header.Values("Link"); len(got) != 2 {
			t.Errorf("Link = %q, want two lines", got)
		}
	})
}

// The contract: replays are byte-identical, so the second client gets the gzip
// bytes with the Content-Encoding that says so; nothing is transformed.
func TestCase_ID_16_CompressedAnswer(t *testing.T) {
	bubble(t, func(r *rig) {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		io.WriteString(w, `{"id":1}`)
		w.Close()
		u := r.upstream("u1.test:80", answer(201, packed.String(), "Content-Encoding: gzip", "Vary: Accept-Encoding"))
		first := r.post("http://u1.test/x", "{}", keyed, "Accept-Encoding: gzip")
		second := r.post("http://u1.test/x", "{}", keyed, "Accept-Encoding: identity")
		r.want(second, 201, u, 1)
		if second.Body != first.Body || second.Body != packed.String() {
			t.Errorf("replay = %x, want the same bytes %x", second.Body, packed.String())
		}
		r.wantHeader(second, "Content-Encoding", "gzip")
		r.wantHeader(second, "Content-Length", fmt.Sprint(packed.Len()))
		r.wantHeader(second, "Vary", "Accept-Encoding")
	})
}

func TestCase_ID_17_ReplaysDoNotChangeTheEntry(t *testing.T) {
	bubble(t, func(r *rig) {
		body := strings.Repeat("b", 2<<10)
		u := r.upstream("u1.test:80", answer(201, body, "X-A: 1"))
		r.want(r.post("http://u1.test/x", "{}", keyed), 201, u, 1)
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				for range 4 {
					got := r.post("http://u1.test/x", "{}", keyed)
					h := got.Header
					if got.Status != 201 || got.Body != body || len(h.Values("X-A")) != 1 || len(h.Values("Idempotency-Replayed")) != 1 ||
						len(h.Values("Cache-Status")) != 1 || len(h.Values("Age")) != 1 || len(h.Values("X-Call-Id")) != 1 {
						t.Errorf("replay = %d, %d bytes, %v", got.Status, len(got.Body), h)
					}
				}
			})
		}
		group.Wait()
		r.wantMetric(200, "idempotency_total", "result=replay")
		if u.count() != 1 {
			t.Errorf("requests at the upstream = %d, want 1", u.count())
		}
	})
}

func TestCase_ID_18_BadKeys(t *testing.T) {
	for _, tt := range []struct{ name, key string }{
		{"256 characters", strings.Repeat("a", 256)},
		{"8 KiB", strings.Repeat("a", 8<<10)},
		{"empty", ""},
		{"only spaces", "   "},
		{"a tab within", "a\tb"},
		{"bytes above ASCII", "\x80\xff\xc3\xa9"},
		{"a control character", "a\x01b"},
		{"an empty quoted one", `""`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(201, ""))
				got := r.post("http://u1.test/x", "{}", "X-Idempotency-Key: "+tt.key)
				r.want(got, 400, u, 0)
				r.wantHeader(got, "X-Retry-Reason", "bad_request")
				if len(tt.key) > 3 && strings.Contains(got.Body, tt.key) {
					t.Errorf("the answer repeats the key: %s", got.Body)
				}
			})
		})
	}
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(201, ""))
		key := strings.Repeat("k", 255)
		r.want(r.post("http://u1.test/x", "{}", "X-Idempotency-Key: "+key), 201, u, 1)
		if got := u.seen()[0].Header.Get("X-Idempotency-Key"); got != key {
			t.Errorf("key upstream = %q, want all 255 characters", got)
		}
		r.want(r.post("http://u1.test/x", "{}", keyed, "Idempotency-Key: other"), 400, u, 1)
	})
}

func TestCase_ID_21_ExpiryUnderConcurrentReads(t *testing.T) {
	bubble(t, func(r *rig) {
		var mu sync.Mutex
		made := map[string]time.Time{}
		u := r.upstream("u1.test:80", func(s *scripted, c net.Conn, req *request) bool {
			text := fmt.Sprintf(`{"gen":%d}`, req.N)
			mu.Lock()
			made[text] = req.At
			mu.Unlock()
			return answer(201, text)(s, c, req)
		})
		start := time.Now()
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				for time.Since(start) < 15*time.Second {
					got := r.post("http://u1.test/x", "{}", keyed)
					mu.Lock()
					age := time.Since(made[got.Body])
					mu.Unlock()
					if got.Status != 201 || got.Body == "" || age > 1200*time.Millisecond {
						t.Errorf("got %d %q, %v old", got.Status, got.Body, age)
					}
					time.Sleep(47 * time.Millisecond)
				}
			})
		}
		group.Wait()
		if n := u.count(); n < 13 || n > 17 {
			t.Errorf("requests at the upstream = %d, want 15 ± 2", n)
		}
	}, "idempotency: {ttl: 1h}", "idempotency: {ttl: 1s}")
}

func TestCase_ID_22_ReplayNeedsNoUpstream(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(201, `{"id":1}`), answer(503, ""))
		r.want(r.post("http://u1.test/x", "{}", keyed, "X-Shop-Id: A"), 201, u, 1)
		for range 5 { // empties the bucket, then opens the breaker
			r.get("http://u1.test/other", "X-Shop-Id: A")
		}
		u.l.Close()
		synctest.Wait()
		if state := r.gate("u1.test:80").Breaker.State.String(); state != "open" {
			t.Errorf("breaker = %s, want open", state)
		}
		n, denied := u.count(), r.metric("retries_denied_total")
		got := r.post("http://u1.test/x", "{}", keyed, "X-Shop-Id: A")
		r.want(got, 201, u, n)
		r.wantHeader(got, "Idempotency-Replayed", "true")
		r.between("the replay", got.Took, 0, 0)
		r.wantMetric(denied, "retries_denied_total")
	}, "shop: off", "shop: {rate: 1/h, burst: 1, share: 0}")
}
