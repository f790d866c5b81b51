package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/attempt"
	"retryproxy/idempotency"
	"retryproxy/internal/race"
)

// faulty is a store that fails when it is told to.
type faulty struct {
	idempotency.Store
	advance, get func(n int32) bool // whether the n-th call fails; nil: none does
	to           idempotency.State  // only moves to it count; 0: all
	slow         time.Duration      // how long Due and Begin take

	advanced, got atomic.Int32
	held, most    atomic.Int64 // bytes of requests that Begin has, now and at most
}

func (f *faulty) Advance(ctx context.Context, id idempotency.ID, from, to idempotency.State, c idempotency.Change) (idempotency.Record, error) {
	if f.advance != nil && (f.to == 0 || f.to == to) && f.advance(f.advanced.Add(1)) {
		return idempotency.Record{}, fmt.Errorf("%w: no space left on device", idempotency.ErrUnavailable)
	}
	return f.Store.Advance(ctx, id, from, to, c)
}

func (f *faulty) Get(ctx context.Context, id idempotency.ID, now time.Time) (idempotency.Record, error) {
	if f.get != nil && f.get(f.got.Add(1)) {
		return idempotency.Record{}, fmt.Errorf("%w: too many open files", idempotency.ErrUnavailable)
	}
	return f.Store.Get(ctx, id, now)
}

func (f *faulty) Due(ctx context.Context, now time.Time, limit int) ([]idempotency.Record, time.Time, error) {
	time.Sleep(f.slow)
	return f.Store.Due(ctx, now, limit)
}

func (f *faulty) Begin(ctx context.Context, c idempotency.Claim, now time.Time) (idempotency.Begun, error) {
	if c.Request != nil {
		held := f.held.Add(int64(len(c.Request.Body)))
		defer f.held.Add(-int64(len(c.Request.Body)))
		f.most.Store(max(f.most.Load(), held)) // one at a time is not needed to be exact
	}
	time.Sleep(f.slow)
	return f.Store.Begin(ctx, c, now)
}

// durably runs f with a rig whose records are in a file; prepare gets its app
// before it runs.
func durably(t *testing.T, prepare func(*app), f func(*rig), patch ...string) {
	t.Helper()
	text := caseConfig
	patch = append([]string{"idempotency: {ttl: 1h}", "idempotency: {ttl: 1h}\nstore: {kind: sqlite, path: '" + t.TempDir() + "', durability: process}"}, patch...)
	for i := 0; i+1 < len(patch); i += 2 {
		text = strings.ReplaceAll(text, patch[i], patch[i+1])
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, text, prepare)
		f(r)
		r.close()
	})
}

// A store that fails while a wait is written loses nothing that was done until then.
func TestAttemptsOutliveAFailedWrite(t *testing.T) {
	durably(t, func(a *app) {
		a.proxy.Store = &faulty{Store: a.proxy.Store, to: idempotency.StateWaiting, advance: func(n int32) bool { return n == 2 }}
	}, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"))
		got := r.post("http://u1.test/", "b", keyed)
		r.want(got, 503, u, 2)
		r.wantHeader(got, "X-Retry-Reason", "store_unavailable")
		if rec := r.record("k"); rec.State != idempotency.StateDead || rec.Attempts != 2 || len(rec.History) != 2 {
			t.Errorf("the record is %s after %d attempts (%d known), want dead after 2", rec.State, rec.Attempts, len(rec.History))
		}
	}, plain...)
}

// A client is let go with a receipt or not at all.
func TestHoldUntilThereIsAReceipt(t *testing.T) {
	for name, want := range map[string]struct {
		failures int32
		status   int
		after    time.Duration
	}{
		"two seconds": {2, 202, 2 * time.Second},
		"for ever":    {1000, 201, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			durably(t, func(a *app) {
				a.proxy.Store = &faulty{Store: a.proxy.Store, get: func(n int32) bool { return n <= want.failures }}
			}, func(r *rig) {
				r.upstream("u1.test:80", after(3*time.Second, answer(201, "order 1")))
				got := r.post("http://u1.test/", "b", keyed, "Prefer: respond-async")
				r.want(got, want.status, nil, 0)
				r.between("the time to the answer", got.Took, want.after, want.after)
				if got.Status == 202 {
					r.follow(got)
				}
			}, patches(plain, []string{"per_try_timeout: 1s", "per_try_timeout: 5s"})...)
		})
	}
}

// A repeat that wants to be let go and cannot have a receipt is told so.
func TestRepeatWithoutAReceipt(t *testing.T) {
	durably(t, func(a *app) {
		a.proxy.Store = &faulty{Store: a.proxy.Store, get: func(int32) bool { return true }}
	}, func(r *rig) {
		u := r.upstream("u1.test:80", slowly)
		first := r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
		rest(100 * time.Millisecond)
		got := r.post("http://u1.test/", "b", keyed, "Prefer: respond-async")
		r.want(got, 503, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "store_unavailable")
		r.want(<-first, 201, u, 1)
	}, plain...)
}

// An answer that has come whole when everything is cut off is the answer of the call.
func TestHardStopKeepsWhatCameWhole(t *testing.T) {
	var r *rig
	durably(t, func(a *app) {
		booked := a.proxy.Hooks.Attempt
		a.proxy.Hooks.Attempt = func(policy string, at *attempt.Attempt) {
			booked(policy, at)
			r.kill()
		}
	}, func(rig *rig) {
		r = rig
		r.upstream(platform+":80", answer(201, "order 1"))
		got := r.post(orders, "{}", keyed)
		r.want(got, 201, nil, 0)
		r.wantBody(got, "order 1")
		if rec := r.record("k"); rec.State != idempotency.StateDone {
			t.Errorf("the record is %s, want done", rec.State)
		}
	}, plain...)
}

// The connection of a client whose held call panicked ends: it does not wait for an
// answer that nobody writes.
func TestPanicOfAHeldCall(t *testing.T) {
	for name, headers := range map[string][]string{"not held": {keyed}, "held": {keyed, "Prefer: wait=60"}} {
		t.Run(name, func(t *testing.T) {
			durably(t, func(a *app) { a.proxy.Hooks.Suspect = func(string) { panic("bug") } }, func(r *rig) {
				r.upstream("u1.test:80", answer(200, `{"success": false}`, "Content-Type: application/json"))
				c := r.dial()
				defer c.Close()
				c.SetReadDeadline(time.Now().Add(time.Minute))
				got := r.exchange(c, rawRequest("POST", "http://u1.test/", "b", headers...), "POST")
				if got.Err == nil || got.Took > time.Second {
					t.Errorf("after %v it got %d (%v), want a broken connection at once", got.Took, got.Status, got.Err)
				}
				if rec := r.record("k"); rec.State != idempotency.StateDead || rec.Reason != "manual_review" || rec.Executed.String() != "maybe" {
					t.Errorf("the record is %s (%s), executed %s", rec.State, rec.Reason, rec.Executed)
				}
			}, plain...)
		})
	}
}

// Large bodies, which lie in files, are not all in memory at once on their way to
// the store; small ones do not wait for them.
func TestLargeBodiesOnTheirWayToTheStore(t *testing.T) {
	if race.Enabled {
		t.Skip("it is about much memory, and takes a minute")
	}
	var store *faulty
	durably(t, func(a *app) {
		store = &faulty{Store: a.proxy.Store, slow: time.Second}
		a.proxy.Store = store
	}, func(r *rig) {
		u := r.upstream("u1.test:80", answer(201, "x"))
		body := strings.Repeat("b", 40<<20)
		all := r.together(5, func(i int) reply {
			if i == 4 {
				rest(100 * time.Millisecond)
				return r.post("http://u1.test/", "small", keyed)
			}
			return r.post("http://u1.test/", body, fmt.Sprint("X-Idempotency-Key: k", i))
		})
		for _, got := range all {
			r.want(got, 201, u, 5)
		}
		if n := store.most.Load(); n < 80<<20 || n > 128<<20 {
			t.Errorf("%d MiB were in memory at once, want no more than 128", n>>20)
		}
		if took := all[4].Took; took > 1200*time.Millisecond {
			t.Errorf("the small one took %v", took)
		}
	}, plain...)
}

// A definite no to a call whose client was let go is heard by nobody: it is a letter,
// until the client asks again itself.
func TestPermanentFailureThatNobodyHears(t *testing.T) {
	for name, tt := range map[string]struct {
		headers []string
		early   bool // the client comes back before the end
		state   idempotency.State
		letters int
	}{
		"held to the end":  {nil, false, idempotency.StateFailed, 0},
		"let go":           {[]string{"Prefer: respond-async"}, false, idempotency.StateDead, 1},
		"let go, and back": {[]string{"Prefer: respond-async"}, true, idempotency.StateFailed, 0},
		"answered in time": {[]string{"Prefer: wait=5"}, false, idempotency.StateFailed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			lasting(t, func(r *rig, _ func()) {
				u := r.upstream("u1.test:80", after(700*time.Millisecond, answer(422, "sold out")))
				got := r.post("http://u1.test/", "b", append(tt.headers, keyed)...)
				if tt.early {
					r.want(r.post("http://u1.test/", "b", keyed), 422, u, 1)
				}
				rest(2 * time.Second)
				rec := r.record("k")
				if rec.State != tt.state || rec.Reason != "fail_permanent" || len(r.logged("dead letter")) != tt.letters {
					t.Errorf("the record is %s (%s), and the log names %d letters", rec.State, rec.Reason, len(r.logged("dead letter")))
				}
				if got.Status == 202 {
					if rec, _ := r.follow(got); rec.Advice != "stop" || len(rec.Attempts) != 1 {
						t.Errorf("the receipt is %+v, want the advice to stop", rec)
					}
				}
				if tt.letters == 1 {
					if a := rec.Answer; a == nil || a.Status != 422 || string(a.Body) != "sold out" {
						t.Errorf("the last answer of the letter is %+v", a)
					}
					r.want(r.post("http://u1.test/", "b", keyed), 422, u, 2)
					if rec := r.record("k"); rec.State != idempotency.StateFailed {
						t.Errorf("when the client has heard it, the record is %s, want failed", rec.State)
					}
				}
			}, plain...)
		})
	}
}
