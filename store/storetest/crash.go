package storetest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
)

// crashTests end the store in the middle, more than once.
var crashTests = []struct {
	name string
	run  func(b *bench, reopen Reopen)
}{
	{"crash in the middle of many claims", crashAmongClaims},
	{"versions rise over a crash", versionsRise},
	{"a record expires over a crash, and over a clock set back", crashAndClock},
	{"counts are those of before the crash", countsOverCrash},
}

// crash ends the store with a record in a state. What was acknowledged before
// is there afterwards, and a call that was not over goes on under its owner.
func crash(b *bench, state idempotency.State, reopen Reopen) {
	before := b.reach(requested(difficult(), claim(order, "call-1")), state, classify.ExecutedMaybe)
	b.store = reopen(b.T, b.store)
	b.same("record after the crash", b.get(order, start), before)
	if state == idempotency.StateDone {
		b.same("answer after the crash", b.begin(claim(order, "call-2"), start, idempotency.Replay).Answer, created())
	}
	if state == idempotency.StateDone || state == idempotency.StateFailed {
		b.load(order, nil)
	} else {
		b.load(order, difficult())
	}
	if state.Ended() {
		b.left()
		return
	}
	if state == idempotency.StateParked {
		b.left()
	} else {
		b.left(order.Key)
		b.takeOver(order, state, "call-1")
	}
	b.begin(claim(order, "call-2"), start, idempotency.Busy)
	b.advance(order, state, idempotency.StateFailed, change("call-1", start))
	b.left()
}

// left requires the calls that an ended process left behind: pending, or due in a
// store that several processes share.
func (b *bench) left(want ...string) {
	b.Helper()
	if !b.store.Durable() {
		want = nil
	}
	pending, err1 := b.store.Pending(b.Context())
	due, _, err2 := b.store.Due(b.Context(), start, 100)
	if err := errors.Join(err1, err2); err != nil {
		b.Fatalf("Pending and Due = %v", err)
	}
	var got []string
	for _, rec := range slices.Concat(pending, due) {
		if rec.State == idempotency.StateRunning || rec.State == idempotency.StateWaiting {
			got = append(got, rec.Key)
			b.same("record left behind", rec, b.get(rec.ID, start))
		}
	}
	b.same("keys left behind", got, want)
}

// takeOver goes on with a call of a process that is gone.
func (b *bench) takeOver(id idempotency.ID, state idempotency.State, owner string) idempotency.Record {
	b.Helper()
	return b.advance(id, state, state, idempotency.Change{Now: start, Owner: owner, Adopt: true, NextAt: b.get(id, start).NextAt})
}

// crashAmongClaims: what was said to be fresh is there, and is nobody else's.
func crashAmongClaims(b *bench, reopen Reopen) {
	for round := range 3 {
		owner := named(round)
		var fresh sync.Map
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				for n := range 25 {
					id := idempotency.ID{Tenant: owner, Key: named(i*100 + n)}
					begun, err := b.store.Begin(b.Context(), requested(difficult(), claim(id, owner)), start)
					if err == nil && begun.Result == idempotency.Fresh {
						fresh.Store(id, begun.Record)
					}
				}
			})
		}
		group.Wait()
		b.store = reopen(b.T, b.store)
		n := 0
		fresh.Range(func(id, rec any) bool {
			n++
			b.same("record after the crash", b.get(id.(idempotency.ID), start), rec)
			b.begin(claim(id.(idempotency.ID), "second"), start, idempotency.Busy)
			return true
		})
		if n != 200 {
			b.Errorf("%d claims were fresh, want 200", n)
		}
	}
}

func versionsRise(b *bench, reopen Reopen) {
	var last uint64
	rises := func(version uint64) {
		b.Helper()
		if version <= last {
			b.Errorf("version %d after %d", version, last)
		}
		last = version
	}
	for run := range 3 {
		rises(b.begin(claim(order, named(run)), start, idempotency.Fresh).Version)
		b.store = reopen(b.T, b.store)
		rises(b.takeOver(order, idempotency.StateRunning, named(run)).Version)
		ch := change(named(run), start)
		ch.Append = tries(1, classify.ExecutedNo)
		rises(b.advance(order, idempotency.StateRunning, idempotency.StateFailed, ch).Version)
		b.store = reopen(b.T, b.store)
	}
	rec := b.get(order, start)
	if rec.Attempts != 3 || len(rec.Runs) != 3 || rec.NextCount() != 3 {
		b.Errorf("%d attempts, %d runs, next count %d, want 3 of each", rec.Attempts, len(rec.Runs), rec.NextCount())
	}
}

func crashAndClock(b *bench, reopen Reopen) {
	b.reach(claim(order, "call-1"), idempotency.StateDone, classify.ExecutedYes)
	b.store = reopen(b.T, b.store)
	b.begin(claim(order, "call-2"), start.Add(-24*time.Hour), idempotency.Replay)
	b.begin(claim(order, "call-2"), start.Add(ttl-1), idempotency.Replay)
	rec := b.begin(claim(order, "call-2"), start.Add(ttl), idempotency.Fresh)
	b.store = reopen(b.T, b.store)
	b.same("the new record", b.get(order, start), rec)
}

func countsOverCrash(b *bench, reopen Reopen) {
	for i, state := range idempotency.States() {
		b.reach(claim(idempotency.ID{Tenant: order.Tenant, Key: named(i)}, "call-1"), state, classify.ExecutedNo)
	}
	before := b.store.Stats()
	b.store = reopen(b.T, b.store)
	b.same("stats", b.store.Stats(), before)
}
