package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"retryproxy/idempotency"
	"retryproxy/message"
	"retryproxy/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Exercise(t, func(t *testing.T) idempotency.Store {
		s := New(Config{Entries: 4000, Bytes: 1 << 20, MaxResponse: 1 << 16, TTL: time.Hour})
		t.Cleanup(func() { s.Close() })
		return s
	})
}

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

const ttl = time.Hour

// rig is a small store with the steps of the tests.
type rig struct {
	*testing.T
	*Store
}

func newRig(t *testing.T, entries int, bytes int64) *rig {
	return &rig{t, New(Config{Entries: entries, Bytes: bytes, MaxResponse: 1000, TTL: ttl})}
}

func key(tenant string, i int) idempotency.ID {
	return idempotency.ID{Tenant: tenant, Key: fmt.Sprintf("k%d", i)}
}

func (r *rig) claim(id idempotency.ID, now time.Time) (idempotency.Result, error) {
	begun, err := r.Begin(context.Background(), idempotency.Claim{ID: id, Owner: "o"}, now)
	return begun.Result, err
}

func (r *rig) fresh(id idempotency.ID, now time.Time) {
	r.Helper()
	if got, err := r.claim(id, now); got != idempotency.Fresh || err != nil {
		r.Fatalf("Begin(%v) = %v, %v, want fresh", id, got, err)
	}
}

// reach makes a record in a state; a done one has an answer of size bytes.
func (r *rig) reach(id idempotency.ID, to idempotency.State, size int, now time.Time) {
	r.Helper()
	r.fresh(id, now)
	ch := idempotency.Change{Now: now, Owner: "o"}
	if to == idempotency.StateDone {
		ch.Answer = &idempotency.Answer{Status: 200, Reason: "OK", Body: make([]byte, size), Kept: true, Stored: now}
	}
	if _, err := r.Advance(context.Background(), id, idempotency.StateRunning, to, ch); err != nil {
		r.Fatalf("Advance(%v to %s) = %v", id, to, err)
	}
}

// found says what is left of a record: "", its state, or marker.
func (r *rig) found(id idempotency.ID) string {
	rec, err := r.Get(context.Background(), id, start)
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		return ""
	case rec.Answer != nil && !rec.Answer.Kept:
		return "marker"
	}
	return rec.State.String()
}

func (r *rig) want(id idempotency.ID, want string) {
	r.Helper()
	if got := r.found(id); got != want {
		r.Errorf("record %v is %q, want %q", id, got, want)
	}
}

func (r *rig) early(want int64) {
	r.Helper()
	if got := r.Stats().EvictedEarly; got != want {
		r.Errorf("EvictedEarly = %d, want %d", got, want)
	}
}

func TestHeldRecordsAreNeverEvicted(t *testing.T) {
	for _, state := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting, idempotency.StateParked, idempotency.StateInDoubt} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, 4, 1000)
			for i := range 4 {
				id := key(fmt.Sprint("t", i), i)
				r.reach(id, state, 0, start)
				defer r.want(id, state.String())
			}
			if got, err := r.claim(key("new", 0), start); !errors.Is(err, idempotency.ErrFull) {
				t.Errorf("Begin with nothing to evict = %v, %v, want ErrFull", got, err)
			}
			r.early(0)
		})
	}
}

func TestOldestEndedRecordIsEvicted(t *testing.T) {
	for _, state := range []idempotency.State{idempotency.StateDone, idempotency.StateFree, idempotency.StateDead} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, 4, 1000)
			r.reach(key("a", 0), idempotency.StateRunning, 0, start)
			r.reach(key("a", 1), state, 1, start)
			r.reach(key("b", 2), idempotency.StateDone, 1, start)
			r.reach(key("b", 3), idempotency.StateFree, 1, start)
			r.fresh(key("c", 4), start)
			r.want(key("a", 0), "running")
			r.want(key("a", 1), "")
			r.want(key("b", 2), "done")
			r.want(key("b", 3), "free")
			r.early(1)
		})
	}
}

func TestReplayKeepsARecordYoung(t *testing.T) {
	r := newRig(t, 4, 1000)
	for i := range 4 {
		r.reach(key(fmt.Sprint("t", i), i), idempotency.StateDone, 1, start)
	}
	if got, _ := r.claim(key("t0", 0), start); got != idempotency.Replay {
		t.Fatalf("Begin = %v, want replay", got)
	}
	r.fresh(key("new", 0), start)
	r.want(key("t0", 0), "done")
	r.want(key("t1", 1), "")
}

func TestTenantHoldsAtMostHalf(t *testing.T) {
	r := newRig(t, 8, 1000)
	r.reach(key("quiet", 0), idempotency.StateDone, 1, start)
	for i := range 20 {
		r.reach(key("noisy", i), idempotency.StateDone, 1, start)
	}
	r.want(key("quiet", 0), "done")
	for i := range 20 {
		want := map[bool]string{true: "done"}[i >= 16]
		r.want(key("noisy", i), want)
	}
	if n := r.Stats().Records; n != 5 {
		t.Errorf("%d records, want 5", n)
	}
	r.early(16)
}

func TestTenantFullOfHeldRecords(t *testing.T) {
	r := newRig(t, 8, 1000)
	for i := range 4 {
		r.fresh(key("noisy", i), start)
	}
	if got, err := r.claim(key("noisy", 4), start); !errors.Is(err, idempotency.ErrFull) {
		t.Errorf("Begin over half = %v, %v, want ErrFull", got, err)
	}
	if got, err := r.claim(key("noisy", 3), start); got != idempotency.Busy || err != nil {
		t.Errorf("Begin of a known key in a full store = %v, %v, want busy", got, err)
	}
	r.fresh(key("other", 0), start)
}

func TestBytesEvictBodiesBeforeMarkers(t *testing.T) {
	r := newRig(t, 100, 1000)
	for i := range 4 {
		r.reach(key("a", i), idempotency.StateDone, 400, start)
	}
	r.want(key("a", 0), "marker")
	r.want(key("a", 1), "marker")
	r.want(key("a", 2), "done")
	r.want(key("a", 3), "done")
	r.early(2)
	if st := r.Stats(); st.Bytes != 800 || st.Records != 4 {
		t.Errorf("Stats() = %d bytes, %d records, want 800 and 4", st.Bytes, st.Records)
	}
	rec, _ := r.Get(context.Background(), key("a", 0), start)
	if rec.Answer.Status != 200 || rec.Answer.Body != nil {
		t.Errorf("a marker has status %d and %d bytes", rec.Answer.Status, len(rec.Answer.Body))
	}
	if got, _ := r.claim(key("a", 0), start); got != idempotency.Replay {
		t.Errorf("Begin on a marker = %v, want replay", got)
	}
}

func TestTooLargeAnswerLeavesAMarkerAndEvictsNothing(t *testing.T) {
	r := newRig(t, 100, 1500)
	r.reach(key("a", 0), idempotency.StateDone, 1000, start)
	r.reach(key("a", 1), idempotency.StateDone, 1001, start)
	r.want(key("a", 0), "done")
	r.want(key("a", 1), "marker")

	r = newRig(t, 100, 500)
	r.reach(key("a", 0), idempotency.StateDone, 500, start)
	r.reach(key("a", 1), idempotency.StateDone, 501, start)
	r.want(key("a", 0), "done")
	r.want(key("a", 1), "marker")
	r.early(0)
}

func TestFieldsCountAsBytes(t *testing.T) {
	r := newRig(t, 100, 1000)
	r.fresh(key("a", 0), start)
	a := &idempotency.Answer{Kept: true, Body: make([]byte, 10), Fields: message.Fields{{Name: "abc", Value: "defgh"}}}
	r.Advance(context.Background(), key("a", 0), idempotency.StateRunning, idempotency.StateDone, idempotency.Change{Now: start, Owner: "o", Answer: a})
	if got := r.Stats().Bytes; got != 18 {
		t.Errorf("Stats().Bytes = %d, want 18", got)
	}
}

func TestExpiredRecordsAreReclaimed(t *testing.T) {
	for _, state := range []idempotency.State{idempotency.StateDone, idempotency.StateFree, idempotency.StateDead, idempotency.StateInDoubt} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, 100, 10000)
			for i := range 10 {
				r.reach(key("a", i), state, 10, start)
			}
			for i := range 5 {
				r.fresh(key("b", i), start.Add(ttl))
			}
			if st := r.Stats(); st.Records != 5 || st.Bytes != 0 || st.EvictedEarly != 0 {
				t.Errorf("Stats() = %d records, %d bytes, %d evicted, want 5, 0, 0", st.Records, st.Bytes, st.EvictedEarly)
			}
		})
	}
}

func TestFullOfExpiredDoubtMakesRoom(t *testing.T) {
	r := newRig(t, 40, 1000)
	for i := range 20 {
		r.reach(key("a", i), idempotency.StateInDoubt, 0, start)
		r.reach(key("b", i), idempotency.StateInDoubt, 0, start)
	}
	if _, err := r.claim(key("c", 0), start.Add(ttl-1)); !errors.Is(err, idempotency.ErrFull) {
		t.Errorf("Begin before the ttl = %v, want ErrFull", err)
	}
	r.fresh(key("b", 99), start.Add(ttl))
	r.early(0)
}

func TestEvictionOfAnExpiredRecordIsNotEarly(t *testing.T) {
	r := newRig(t, 4, 1000)
	for i := range 2 {
		r.reach(key("a", i), idempotency.StateDone, 1, start)
	}
	// The older one was used again, so the younger expired one stands before it.
	r.claim(key("a", 0), start)
	r.reach(key("b", 0), idempotency.StateDone, 600, start.Add(ttl-1))
	r.reach(key("b", 1), idempotency.StateDone, 600, start.Add(ttl))
	r.want(key("b", 0), "marker")
	r.early(1)
}

// A name cut out of a large buffer must not keep the buffer alive.
func TestStoreKeepsCopiesOfTexts(t *testing.T) {
	buffer := bytes.Repeat([]byte("x"), 100)
	text := string(buffer)
	c := ownClaim(idempotency.Claim{ID: idempotency.ID{Tenant: text[:3], Key: text[3:9]}, Host: text[9:20]})
	if c.Tenant != "xxx" || c.Key != "xxxxxx" || c.Host != "xxxxxxxxxxx" {
		t.Errorf("ownClaim = %q, %q, %q", c.Tenant, c.Key, c.Host)
	}
	r := newRig(t, 4, 1000)
	a := r.ownAnswer(&idempotency.Answer{Kept: true, Reason: text[:2], Body: append(make([]byte, 0, 500), 1, 2), Fields: message.Fields{{Name: text[:4], Value: text[4:9]}}})
	if cap(a.Body) > 16 || a.Reason != "xx" || a.Fields[0].Name != "xxxx" || a.Fields[0].Value != "xxxxx" {
		t.Errorf("ownAnswer = %q %v with room for %d bytes", a.Reason, a.Fields, cap(a.Body))
	}
}

func TestTenantsAreForgotten(t *testing.T) {
	r := newRig(t, 8, 1000)
	for i := range 100 {
		r.reach(key(fmt.Sprint("t", i), i), idempotency.StateFree, 0, start)
	}
	if len(r.tenants) != 8 || r.lenLocked() != 8 {
		t.Errorf("%d tenants of %d records, want 8 of 8", len(r.tenants), r.lenLocked())
	}
}
