package storetest

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
)

var lifeTests = []test{
	{"an ended record expires at its time, not before", expiresAtTTL},
	{"a change may set another time", changeSetsTTL},
	{"a record that is held never expires", heldNeverExpires},
	{"a clock that is set back does no harm", clockSetBack},
	{"in doubt, settled as not executed", settledNotExecuted},
	{"in doubt, settled as executed", settledExecuted},
	{"in doubt, given free unsettled", freedUnsettled},
	{"expiry in parallel use gives no stale and no empty answer, ID-21", parallelExpiry},
	{"stats count", statsCount},
	{"a closed store is unavailable", closedUnavailable},
}

func expiresAtTTL(b *bench) {
	end := start.Add(ttl)
	for i, state := range idempotency.States() {
		if !state.Ended() {
			continue
		}
		id := idempotency.ID{Tenant: idempotency.NoTenant, Key: named(i)}
		reached := b.reach(credentialed(1, claim(id, "call-1")), state, classify.ExecutedMaybe)
		if !reached.Expires.Equal(end) {
			b.Errorf("%s expires at %v, want %v", state, reached.Expires, end)
		}
		late := credentialed(2, other(2, claim(id, "call-2")))
		b.get(id, end.Add(-1))
		b.begin(late, end.Add(-1), idempotency.Credentials)
		if _, err := b.store.Get(b.Context(), id, end); !errors.Is(err, idempotency.ErrNotFound) {
			b.Errorf("Get of an expired %s record = %v, want %v", state, err, idempotency.ErrNotFound)
		}
		rec := b.begin(late, end, idempotency.Fresh)
		if len(rec.History) != 0 || len(rec.Runs) != 1 || rec.Executed != classify.ExecutedNo || !rec.Created.Equal(end) {
			b.Errorf("a new record after %s has %d attempts, %d runs, executed %s", state, len(rec.History), len(rec.Runs), rec.Executed)
		}
	}
	id := idempotency.ID{Tenant: order.Tenant, Key: "settled too late"}
	b.reach(claim(id, "call-1"), idempotency.StateInDoubt, classify.ExecutedMaybe)
	b.refuse(id, idempotency.StateInDoubt, idempotency.StateFailed, change("", end), idempotency.ErrNotFound)
}

func changeSetsTTL(b *bench) {
	b.begin(claim(order, "call-1"), start, idempotency.Fresh)
	ch := change("call-1", start.Add(time.Second))
	ch.TTL = time.Minute
	b.advance(order, idempotency.StateRunning, idempotency.StateDone, ch)
	end := start.Add(time.Second + time.Minute)
	b.begin(claim(order, "call-2"), end.Add(-1), idempotency.Replay)
	b.begin(claim(order, "call-2"), end, idempotency.Fresh)
}

func heldNeverExpires(b *bench) {
	late := start.Add(1000 * ttl)
	for i, state := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting, idempotency.StateParked} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		b.reach(claim(id, "call-1"), state, classify.ExecutedNo)
		b.begin(claim(id, "call-2"), late, idempotency.Busy)
		b.advance(id, state, idempotency.StateFailed, change("call-1", late))
	}
}

func clockSetBack(b *bench) {
	back := start.Add(-time.Hour)
	b.begin(claim(order, "call-1"), start, idempotency.Fresh)
	b.begin(claim(order, "call-2"), back, idempotency.Busy)
	ch := change("call-1", back)
	ch.Answer = created()
	rec := b.advance(order, idempotency.StateRunning, idempotency.StateDone, ch)
	if !rec.Updated.Equal(start) || !rec.Expires.Equal(start.Add(ttl)) || !rec.Runs[0].Ended.Equal(start) {
		b.Errorf("updated %v, expires %v, run ended %v, want nothing before the begin", rec.Updated, rec.Expires, rec.Runs[0].Ended)
	}
	b.begin(claim(order, "call-2"), back, idempotency.Replay)
	b.begin(claim(order, "call-2"), start.Add(ttl).Add(-1), idempotency.Replay)

	id := idempotency.ID{Tenant: order.Tenant, Key: "free"}
	b.reach(claim(id, "call-1"), idempotency.StateFailed, classify.ExecutedNo)
	rec = b.begin(claim(id, "call-2"), back, idempotency.Fresh)
	if rec.Updated.Before(start) || rec.Runs[1].Started.Before(start) {
		b.Errorf("the second run began at %v, before the first", rec.Runs[1].Started)
	}
}

func settle(executed classify.Executed) idempotency.Change {
	ch := change("", start.Add(time.Minute))
	ch.Settle, ch.Executed = true, executed
	return ch
}

func settledNotExecuted(b *bench) {
	for i, state := range []idempotency.State{idempotency.StateInDoubt, idempotency.StateDead} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		b.reach(claim(id, "call-1"), state, classify.ExecutedMaybe)
		b.advance(id, state, idempotency.StateFailed, settle(classify.ExecutedNo))
		rec := b.begin(other(2, claim(id, "call-2")), start, idempotency.Fresh)
		if rec.Executed != classify.ExecutedNo || len(rec.History) != 1 {
			b.Errorf("after settling: executed %s, %d attempts, want no and 1", rec.Executed, len(rec.History))
		}
	}
}

func settledExecuted(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateInDoubt, classify.ExecutedMaybe)
	rec := b.advance(order, idempotency.StateInDoubt, idempotency.StateDone, settle(classify.ExecutedYes))
	b.same("marker", rec.Answer, &idempotency.Answer{Stored: start.Add(time.Minute)})
	if !rec.Expires.Equal(start.Add(time.Minute + ttl)) {
		b.Errorf("expires %v, want the ttl after settling", rec.Expires)
	}
	b.begin(claim(order, "call-2"), start, idempotency.Replay)

	id := idempotency.ID{Tenant: order.Tenant, Key: "queried"}
	b.reach(claim(id, "call-1"), idempotency.StateInDoubt, classify.ExecutedMaybe)
	ch := settle(classify.ExecutedYes)
	ch.Answer = created()
	b.advance(id, idempotency.StateInDoubt, idempotency.StateDone, ch)
	b.same("answer", b.begin(claim(id, "call-2"), start, idempotency.Replay).Answer, created())
}

func freedUnsettled(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateInDoubt, classify.ExecutedMaybe)
	b.advance(order, idempotency.StateInDoubt, idempotency.StateFailed, change("", start))
	b.begin(other(2, claim(order, "call-2")), start, idempotency.Mismatch)
	b.begin(claim(order, "call-2"), start, idempotency.Fresh)
}

// parallelExpiry lets 8 callers use one key while its time, a second, passes
// again and again. Every answer holds the time it was made at.
func parallelExpiry(b *bench) {
	var clock atomic.Int64
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 200 {
				now := start.Add(time.Duration(clock.Add(int64(7 * time.Millisecond))))
				if err := useExpiring(b, named(i)+"-"+strconv.Itoa(n), now); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

func useExpiring(b *bench, owner string, now time.Time) error {
	c := claim(order, owner)
	c.TTL = time.Second
	begun, err := b.store.Begin(b.Context(), c, now)
	if err != nil {
		return err
	}
	switch begun.Result {
	case idempotency.Fresh:
		ch := change(owner, now)
		ch.Answer = &idempotency.Answer{Status: 201, Kept: true, Stored: now, Body: strconv.AppendInt(nil, now.UnixNano(), 10)}
		_, err = b.store.Advance(b.Context(), order, idempotency.StateRunning, idempotency.StateDone, ch)
		return err
	case idempotency.Replay:
		made, err := strconv.ParseInt(string(begun.Record.Answer.Body), 10, 64)
		if err != nil {
			return err
		}
		if age := now.Sub(time.Unix(0, made)); age >= time.Second {
			return errors.New("a replay is " + age.String() + " old")
		}
	}
	return nil
}

func statsCount(b *bench) {
	for i, state := range idempotency.States() {
		b.reach(claim(idempotency.ID{Tenant: order.Tenant, Key: named(i)}, "call-1"), state, classify.ExecutedNo)
	}
	st := b.store.Stats()
	for _, state := range idempotency.States() {
		if st.ByState[state] != 1 {
			b.Errorf("Stats().ByState[%s] = %d, want 1", state, st.ByState[state])
		}
	}
	if st.Records != len(idempotency.States()) || st.Bytes < int64(len(created().Body)) || st.EvictedEarly != 0 {
		b.Errorf("Stats() = %d records, %d bytes, %d evicted", st.Records, st.Bytes, st.EvictedEarly)
	}
}

func closedUnavailable(b *bench) {
	b.begin(claim(order, "call-1"), start, idempotency.Fresh)
	if err := b.store.Close(); err != nil {
		b.Fatalf("Close = %v", err)
	}
	_, err := b.store.Begin(b.Context(), claim(order, "call-2"), start)
	if !errors.Is(err, idempotency.ErrUnavailable) {
		b.Errorf("Begin after Close = %v, want %v", err, idempotency.ErrUnavailable)
	}
	b.refuse(order, idempotency.StateRunning, idempotency.StateFailed, change("call-1", start), idempotency.ErrUnavailable)
	if _, err := b.store.Get(b.Context(), order, start); !errors.Is(err, idempotency.ErrUnavailable) {
		b.Errorf("Get after Close = %v, want %v", err, idempotency.ErrUnavailable)
	}
}
