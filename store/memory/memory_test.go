package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"retryproxy/attempt"
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
	for _, state := range []idempotency.State{idempotency.StateDone, idempotency.StateFailed, idempotency.StateDead} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, 4, 1000)
			r.reach(key("a", 0), idempotency.StateRunning, 0, start)
			r.reach(key("a", 1), state, 1, start)
			r.reach(key("b", 2), idempotency.StateDone, 1, start)
			r.reach(key("b", 3), idempotency.StateFailed, 1, start)
			r.fresh(key("c", 4), start)
			r.want(key("a", 0), "running")
			r.want(key("a", 1), "")
			r.want(key("b", 2), "done")
			r.want(key("b", 3), "failed")
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

func TestReplayKeepsABodyAndATenantsRecordYoung(t *testing.T) {
	r := newRig(t, 8, 1500)
	for i := range 3 {
		r.reach(key("a", i), idempotency.StateDone, 400, start)
	}
	for _, i := range []int{0, 1, 0} {
		r.claim(key("a", i), start)
	}
	r.reach(key("a", 3), idempotency.StateDone, 400, start) // for its bytes 2 loses its body
	r.want(key("a", 2), "marker")
	r.reach(key("a", 4), idempotency.StateDone, 400, start) // for its place 2 goes, for its bytes 1's body
	r.want(key("a", 2), "")
	r.want(key("a", 1), "marker")
	r.want(key("a", 0), "done")
	r.reach(key("a", 5), idempotency.StateFailed, 0, start)
	r.want(key("a", 1), "")
	r.want(key("a", 0), "done")
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
	if rec.Version <= 2 {
		t.Errorf("the record is still version %d", rec.Version)
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
	for _, state := range []idempotency.State{idempotency.StateDone, idempotency.StateFailed, idempotency.StateDead, idempotency.StateInDoubt} {
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
	for i := range 40 {
		r.reach(key(fmt.Sprint("t", i/20), i), idempotency.StateInDoubt, 0, start)
	}
	if _, err := r.claim(key("c", 0), start.Add(ttl-1)); !errors.Is(err, idempotency.ErrFull) {
		t.Errorf("Begin before the ttl = %v, want ErrFull", err)
	}
	r.fresh(key("t1", 99), start.Add(ttl))
	r.early(0)
}

// What was settled does not stand before doubts that expire.
func TestSettledDoubtIsNoDoubt(t *testing.T) {
	r := newRig(t, 8, 1000)
	for i := range 2 {
		r.reach(key("a", i), idempotency.StateInDoubt, 0, start)
	}
	r.Advance(context.Background(), key("a", 0), idempotency.StateInDoubt, idempotency.StateFailed, idempotency.Change{Now: start})
	r.fresh(key("a", 0), start)
	r.fresh(key("b", 0), start.Add(ttl))
	if n := r.Stats().ByState[idempotency.StateInDoubt]; n != 0 {
		t.Errorf("%d records in doubt after their time", n)
	}
}

func TestReopenedRecordIsHeldAgain(t *testing.T) {
	r := newRig(t, 8, 1000)
	r.reach(key("a", 0), idempotency.StateFailed, 0, start)
	r.fresh(key("a", 0), start)
	if n := r.Stats().Records; n != 1 {
		t.Errorf("%d records, want 1", n)
	}
	for i := 1; i < 20; i++ {
		r.reach(key("a", i), idempotency.StateFailed, 0, start)
	}
	r.want(key("a", 0), "running")
}

// An expired record that was used late stands behind younger ones: it is not
// reclaimed at once, but when it goes to make room that is not early.
func TestEvictionOfAnExpiredRecordIsNotEarly(t *testing.T) {
	late := start.Add(ttl / 2)
	for _, cause := range []string{"records", "bytes"} {
		t.Run(cause, func(t *testing.T) {
			r := newRig(t, 4, 1000)
			r.reach(key("b", 0), idempotency.StateFailed, 0, late)
			r.reach(key("a", 0), idempotency.StateDone, 600, start)
			r.reach(key("a", 1), idempotency.StateFailed, 0, late)
			r.claim(key("a", 0), late)
			if cause == "records" {
				r.reach(key("a", 1), idempotency.StateRunning, 0, late)
				r.fresh(key("a", 2), start.Add(ttl))
			} else {
				r.reach(key("c", 0), idempotency.StateDone, 600, start.Add(ttl))
			}
			r.early(0)
			if n := r.Stats().Records; n != 3 {
				t.Errorf("%d records, want 3", n)
			}
		})
	}
}

// Replays run while the answer they read is taken away.
func TestReplayDuringEviction(t *testing.T) {
	r := newRig(t, 1000, 1000)
	var group sync.WaitGroup
	for g := range 2 {
		group.Go(func() {
			for i := range 200 {
				r.reach(key(fmt.Sprint("t", g), i), idempotency.StateDone, 500, start)
			}
		})
		group.Go(func() {
			for i := range 2000 {
				rec, err := r.Get(context.Background(), key(fmt.Sprint("t", g), i%200), start)
				if a := rec.Answer; err == nil && a != nil && a.Kept != (len(a.Body) == 500) {
					t.Errorf("an answer kept %v has %d bytes", a.Kept, len(a.Body))
				}
			}
		})
	}
	group.Wait()
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

func TestAttemptsAreCopiesOfTexts(t *testing.T) {
	r := newRig(t, 4, 1000)
	r.fresh(key("a", 0), start)
	buffer := "u1.test:443 connection reset u-1"
	given := attempt.Attempt{Host: buffer[:11], Detail: buffer[12:28], UpstreamID: buffer[29:]}
	rec, _ := r.Advance(context.Background(), key("a", 0), idempotency.StateRunning, idempotency.StateWaiting,
		idempotency.Change{Now: start, Owner: "o", Append: []attempt.Attempt{given}})
	got := rec.History[0]
	for _, x := range [][2]string{{given.Host, got.Host}, {given.Detail, got.Detail}, {given.UpstreamID, got.UpstreamID}} {
		if x[0] != x[1] || unsafe.StringData(x[0]) == unsafe.StringData(x[1]) {
			t.Errorf("kept %q is %q, the same memory: %v", x[0], x[1], x[0] == x[1])
		}
	}
}

func TestTenantsAreForgotten(t *testing.T) {
	r := newRig(t, 8, 1000)
	for i := range 100 {
		r.reach(key(fmt.Sprint("t", i), i), idempotency.StateFailed, 0, start)
	}
	if len(r.tenants) != 8 || r.lenLocked() != 8 {
		t.Errorf("%d tenants of %d records, want 8 of 8", len(r.tenants), r.lenLocked())
	}
}

func TestConfigureEvictsWhatNoLongerFits(t *testing.T) {
	s := New(Config{Entries: 10, Bytes: 1000, MaxResponse: 100})
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, tenant := range []string{"a", "b", "c", "d"} {
		id := idempotency.ID{Tenant: tenant, Key: "k"}
		if _, err := s.Begin(t.Context(), idempotency.Claim{ID: id, Owner: tenant, TTL: time.Hour}, now); err != nil {
			t.Fatal(err)
		}
		_, err := s.Advance(t.Context(), id, idempotency.StateRunning, idempotency.StateDone, idempotency.Change{
			Now: now, Owner: tenant, Answer: &idempotency.Answer{Status: 200, Body: make([]byte, 50), Kept: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	s.Configure(Config{Entries: 2, Bytes: 1000, MaxResponse: 100}, now)
	if got := s.Stats(); got.Records != 2 || got.EvictedEarly != 2 {
		t.Errorf("Stats() = %+v, want 2 records and 2 evicted early", got)
	}
	if _, err := s.Get(t.Context(), idempotency.ID{Tenant: "d", Key: "k"}, now); err != nil {
		t.Errorf("the newest record is gone: %v", err)
	}
	s.Configure(Config{Entries: 10, Bytes: 10, MaxResponse: 100}, now)
	if got := s.Stats(); got.Bytes > 10 || got.Records != 2 {
		t.Errorf("Stats() = %+v, want markers within 10 bytes", got)
	}
}

// Running records outlive a smaller bound; the store shrinks to it as they end.
func TestConfigureWhileRecordsRun(t *testing.T) {
	r := newRig(t, 200, 1<<20)
	id := func(i int) idempotency.ID { return key(fmt.Sprint("t", i%5), i) }
	end := func(i int) {
		t.Helper()
		ch := idempotency.Change{Now: start, Owner: "o", Answer: &idempotency.Answer{Status: 200, Body: make([]byte, 10), Kept: true}}
		if _, err := r.Advance(t.Context(), id(i), idempotency.StateRunning, idempotency.StateDone, ch); err != nil {
			t.Fatalf("Advance(%d) = %v", i, err)
		}
	}
	for i := range 100 {
		r.fresh(id(i), start)
	}
	r.Configure(Config{Entries: 40, Bytes: 1 << 20, MaxResponse: 1000, TTL: ttl}, start)
	if n := r.Stats().Records; n != 100 {
		t.Errorf("%d records of 100 that run", n)
	}
	for i := range 60 {
		end(i)
		r.want(id(i), "done") // who waits for it finds it
		if _, err := r.claim(key("other", i), start); !errors.Is(err, idempotency.ErrFull) {
			t.Fatalf("Begin while %d run = %v, want ErrFull", 99-i, err)
		}
	}
	for i := 60; i < 90; i++ {
		end(i)
	}
	for i := 90; i < 100; i++ {
		r.want(id(i), "running")
	}
	st := r.Stats()
	done, running := st.ByState[idempotency.StateDone], st.ByState[idempotency.StateRunning]
	if st.Records != 40 || done+running != 40 || st.Bytes != int64(10*done) {
		t.Errorf("Stats() = %+v, want 40 records, and the bytes of those done", st)
	}
	chained := 0
	for _, tn := range r.tenants {
		chained += tn.ended.length
	}
	if chained != done || r.kept.length != done {
		t.Errorf("%d records in the chains of the tenants, %d kept, want %d", chained, r.kept.length, done)
	}
	r.early(int64(90 - done))
	for i := range 10 { // evicted keys that run again, then their tenants need room
		r.fresh(id(i), start)
	}
	for i := 200; i < 300; i++ {
		r.claim(id(i), start)
	}
	for i := range 10 {
		r.want(id(i), "running")
	}
}

// The bounds change while calls begin and end: for the race detector.
func TestConfigureDuringCalls(t *testing.T) {
	r := newRig(t, 1000, 1000)
	var group sync.WaitGroup
	group.Go(func() {
		for i := range 100 {
			r.Configure(Config{Entries: 500 + i, Bytes: 1000, MaxResponse: 1000, TTL: ttl}, start)
		}
	})
	group.Go(func() {
		for i := range 100 {
			r.reach(key("a", i), idempotency.StateDone, 10, start)
		}
	})
	group.Wait()
}

// What a doubt keeps counts, and gives way like any other answer.
func TestAnswersOfDoubtsAreBounded(t *testing.T) {
	for _, state := range []idempotency.State{idempotency.StateInDoubt, idempotency.StateDead} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, 100, 1000)
			for i := range 4 {
				r.fresh(key("a", i), start)
				ch := idempotency.Change{Now: start, Owner: "o", Answer: &idempotency.Answer{Status: 200, Body: make([]byte, 400), Kept: true}}
				if _, err := r.Advance(context.Background(), key("a", i), idempotency.StateRunning, state, ch); err != nil {
					t.Fatal(err)
				}
			}
			r.want(key("a", 1), "marker")
			r.want(key("a", 2), state.String())
			if st := r.Stats(); st.Bytes != 800 || st.Records != 4 {
				t.Errorf("Stats() = %d bytes, %d records, want 800 and 4", st.Bytes, st.Records)
			}
		})
	}
}
