package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"retryproxy/idempotency"
	"retryproxy/internal/redistest"
)

// start is far ahead: what the store sweeps by the server's clock has not expired.
var start = time.Date(2126, 3, 4, 5, 6, 7, 0, time.UTC)

const ttl = time.Hour

// rig is a small store with the steps of the tests.
type rig struct {
	testing.TB
	*Store
}

func newRig(t testing.TB, at *redistest.Server, entries int, bytes int64) *rig {
	c := config(at)
	c.Entries, c.Bytes, c.MaxResponse, c.TTL = entries, bytes, 1000, ttl
	return &rig{t, opened(t, c)}
}

func key(tenant string, i int) idempotency.ID {
	return idempotency.ID{Tenant: tenant, Key: fmt.Sprintf("k%d", i)}
}

func (r *rig) claim(id idempotency.ID, now time.Time) (idempotency.Result, error) {
	begun, err := r.Begin(context.Background(), idempotency.Claim{ID: id, Owner: "o " + id.Key, Request: &idempotency.Request{Body: []byte("b")}}, now)
	return begun.Result, err
}

func (r *rig) fresh(id idempotency.ID, now time.Time) {
	r.Helper()
	if got, err := r.claim(id, now); got != idempotency.Fresh || err != nil {
		r.Fatalf("Begin(%v) = %v, %v, want fresh", id, got, err)
	}
}

// begin starts a call that can be sent again.
func (r *rig) begin(id idempotency.ID, q *idempotency.Request) {
	r.Helper()
	begun, err := r.Begin(context.Background(), idempotency.Claim{ID: id, Owner: "o", Request: q}, start)
	if begun.Result != idempotency.Fresh || err != nil {
		r.Fatalf("Begin(%v) = %v, %v, want fresh", id, begun.Result, err)
	}
}

func (r *rig) move(id idempotency.ID, from, to idempotency.State, ch idempotency.Change) {
	r.Helper()
	ch.Now, ch.Owner = start, "o"
	if _, err := r.Advance(context.Background(), id, from, to, ch); err != nil {
		r.Fatalf("Advance(%v to %s) = %v", id, to, err)
	}
}

// reach makes a record in a state; a done one has an answer of size bytes.
func (r *rig) reach(id idempotency.ID, to idempotency.State, size int, now time.Time) {
	r.Helper()
	r.fresh(id, now)
	if to == idempotency.StateRunning {
		return
	}
	ch := idempotency.Change{Now: now, Owner: "o " + id.Key}
	if to == idempotency.StateDone {
		ch.Answer = &idempotency.Answer{Status: 200, Reason: "OK", Body: make([]byte, size), Kept: true, Stored: now}
	}
	if _, err := r.Advance(context.Background(), id, idempotency.StateRunning, to, ch); err != nil {
		r.Fatalf("Advance(%v to %s) = %v", id, to, err)
	}
}

// want says what is left of a record: "", its state, or marker.
func (r *rig) want(id idempotency.ID, want string) {
	r.Helper()
	rec, err := r.Get(context.Background(), id, start)
	got := rec.State.String()
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		got = ""
	case err != nil:
		r.Errorf("Get(%v) = %v", id, err)
	case rec.Answer != nil && !rec.Answer.Kept:
		got = "marker"
	}
	if got != want {
		r.Errorf("record %v is %q, want %q", id, got, want)
	}
}

func (r *rig) early(want int64) {
	r.Helper()
	if got := r.Stats().EvictedEarly; got != want {
		r.Errorf("EvictedEarly = %d, want %d", got, want)
	}
}

// remove takes an ended record away.
func (r *rig) remove(id idempotency.ID) {
	r.Helper()
	script := goredis.NewScript(libText + "\nremove(ARGV[1])")
	if err := script.Run(context.Background(), r.db, []string{r.prefix}, nameOf(id)).Err(); err != nil && !errors.Is(err, goredis.Nil) {
		r.Fatal(err)
	}
}

// keys are all that Redis has of the instance, without what outlives records.
func (r *rig) keys() (left []string) {
	r.Helper()
	for _, name := range r.db.Keys(context.Background(), "*").Val() {
		rest, ours := strings.CutPrefix(name, r.prefix)
		if ours && rest != "leases" && rest != "count" {
			left = append(left, rest)
		}
	}
	return left
}

func TestHeldRecordsAreNeverEvicted(t *testing.T) {
	at := redistest.Start(t)
	for _, state := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting, idempotency.StateParked, idempotency.StateInDoubt, idempotency.StateDead} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, at, 4, 1000)
			for i := range 4 {
				r.reach(key(fmt.Sprint("t", i), i), state, 0, start)
			}
			if got, err := r.claim(key("new", 0), start); !errors.Is(err, idempotency.ErrFull) {
				t.Errorf("Begin with nothing to evict = %v, %v, want ErrFull", got, err)
			}
			for i := range 4 {
				r.want(key(fmt.Sprint("t", i), i), state.String())
			}
			r.early(0)
		})
	}
}

func TestOldestEndedRecordIsEvicted(t *testing.T) {
	at := redistest.Start(t)
	for _, state := range []idempotency.State{idempotency.StateDone, idempotency.StateFailed} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, at, 4, 1000)
			r.reach(key("a", 0), idempotency.StateRunning, 0, start)
			r.reach(key("a", 1), state, 1, start)
			r.reach(key("b", 2), idempotency.StateDone, 1, start.Add(time.Second))
			r.reach(key("b", 3), idempotency.StateFailed, 1, start.Add(2*time.Second))
			r.fresh(key("c", 4), start)
			r.want(key("a", 0), "running")
			r.want(key("a", 1), "")
			r.want(key("b", 2), "done")
			r.want(key("b", 3), "failed")
			r.early(1)
		})
	}
}

func TestTenantHoldsAtMostHalf(t *testing.T) {
	r := newRig(t, redistest.Start(t), 8, 1000)
	r.reach(key("quiet", 0), idempotency.StateDone, 1, start)
	for i := range 20 {
		r.reach(key("noisy", i), idempotency.StateDone, 1, start.Add(time.Duration(i)*time.Second))
	}
	r.want(key("quiet", 0), "done")
	for i := range 20 {
		r.want(key("noisy", i), map[bool]string{true: "done"}[i >= 16])
	}
	r.early(16)

	for i := range 4 {
		r.fresh(key("held", i), start)
	}
	if got, err := r.claim(key("held", 4), start); !errors.Is(err, idempotency.ErrFull) {
		t.Errorf("Begin over half = %v, %v, want ErrFull", got, err)
	}
	if begun, err := r.Begin(context.Background(), idempotency.Claim{ID: key("held", 3), Owner: "other"}, start); begun.Result != idempotency.Busy || err != nil {
		t.Errorf("Begin of a known key in a full store = %v, %v, want busy", begun.Result, err)
	}
}

func TestBytesEvictTheOldestAnswers(t *testing.T) {
	r := newRig(t, redistest.Start(t), 100, 1000)
	for i := range 4 {
		r.reach(key("a", i), idempotency.StateDone, 400, start.Add(time.Duration(i)*time.Second))
	}
	r.want(key("a", 0), "marker")
	r.want(key("a", 1), "marker")
	r.want(key("a", 2), "done")
	r.want(key("a", 3), "done")
	r.early(2)
	if st := r.Stats(); st.Bytes != 800 || st.Records != 4 {
		t.Errorf("Stats() = %d bytes, %d records, want 800 and 4", st.Bytes, st.Records)
	}
	if begun, err := r.Begin(context.Background(), idempotency.Claim{ID: key("a", 0), Owner: "other"}, start); begun.Result != idempotency.Replay || err != nil {
		t.Errorf("Begin on a marker = %v, %v, want replay", begun.Result, err)
	}
	r.reach(key("a", 9), idempotency.StateDone, 1001, start) // over MaxResponse
	r.want(key("a", 9), "marker")
	r.want(key("a", 2), "done")
}

func TestConfigureEvicts(t *testing.T) {
	r := newRig(t, redistest.Start(t), 0, 0)
	for i := range 40 {
		r.reach(key("a", i), idempotency.StateDone, 100, start.Add(time.Duration(i)*time.Second))
	}
	r.fresh(key("a", 40), start)
	c := *r.bounds()
	c.Entries, c.Bytes = 20, 500
	r.Configure(c, start)
	r.sweep(context.Background())
	st := r.Stats()
	if st.Records != 20 || st.Bytes != 500 || st.ByState[idempotency.StateRunning] != 1 {
		t.Errorf("Stats() = %+v, want 20 records, 500 bytes, one running", st)
	}
	r.want(key("a", 39), "done")
	r.want(key("a", 21), "marker")
	r.want(key("a", 20), "")
	// The tenant holds more than half: one more takes its oldest.
	r.fresh(key("a", 41), start)
	r.want(key("a", 21), "")
}

// What is over goes by the server's clock, and nothing of it is left.
func TestSweepDeletesWhatExpired(t *testing.T) {
	r := newRig(t, redistest.Start(t), 0, 0)
	past := time.Now().Add(-unsettled - 2*ttl)
	for i, state := range idempotency.States() {
		id := key("a", i)
		r.reach(id, state, 100, past)
		if state.Letter() || state == idempotency.StateParked {
			ch := idempotency.Change{Now: past, Owner: "o " + id.Key, NextAt: past.Add(ttl / 2)}
			if _, err := r.Advance(context.Background(), id, state, state, ch); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.sweep(context.Background())
	if st := r.Stats(); st.Records != 3 || st.Bytes != 0 || st.EvictedEarly != 0 {
		t.Errorf("Stats() = %+v, want the 3 that are held", st)
	}
	if due, _, err := r.Due(context.Background(), time.Now(), 10); len(due) != 1 || err != nil {
		t.Errorf("Due = %d records, %v, want the parked one", len(due), err)
	}
	for i, state := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting, idempotency.StateParked} {
		id := key("a", i)
		if _, err := r.Advance(context.Background(), id, state, idempotency.StateFailed, idempotency.Change{Now: past, Owner: "o " + id.Key}); err != nil {
			t.Fatal(err)
		}
	}
	r.sweep(context.Background())
	if left := r.keys(); len(left) != 0 {
		t.Errorf("of seven records these keys are left: %v", left)
	}
}

// A record whose key went by itself, with no process there to sweep, is counted no
// more.
func TestKeysThatWentByThemselves(t *testing.T) {
	r := newRig(t, redistest.Start(t), 0, 0)
	past := time.Now().Add(-keptUnswept - 2*ttl)
	r.reach(key("a", 0), idempotency.StateDone, 100, past)
	r.reach(key("a", 1), idempotency.StateDead, 0, past)
	for _, name := range r.keys() {
		if strings.HasPrefix(name, "rec:") || strings.HasPrefix(name, "ans:") || strings.HasPrefix(name, "req:") {
			t.Errorf("%s is still there", name)
		}
	}
	r.fresh(key("a", 0), time.Now()) // as a new key, though nobody swept
	r.sweep(context.Background())
	if st := r.Stats(); st.Records != 1 || st.Bytes != 0 {
		t.Errorf("Stats() = %+v, want the new one", st)
	}
	r.want(key("a", 0), "running")
}

// A key that is used again before anybody swept what is left of its old record is
// new: neither a sweep nor the counts take it for the old one.
func TestKeyIsUsedAgainBeforeTheSweep(t *testing.T) {
	r := newRig(t, redistest.Start(t), 0, 0)
	r.halt() // no sweep but that of the test
	past := time.Now().Add(-keptUnswept - 2*ttl)
	for i := range 4 {
		r.fresh(key("a", i), past)
	}
	for i := range 4 { // the last is the last to be reclaimed
		ch := idempotency.Change{Now: past.Add(time.Duration(i) * time.Second), Owner: "o " + key("a", i).Key}
		ch.Answer = &idempotency.Answer{Status: 200, Body: make([]byte, 100), Kept: true}
		if _, err := r.Advance(context.Background(), key("a", i), idempotency.StateRunning, idempotency.StateDone, ch); err != nil {
			t.Fatal(err)
		}
	}
	r.fresh(key("a", 3), time.Now())
	r.sweep(context.Background())
	r.want(key("a", 3), "running")
	if _, err := r.Load(context.Background(), key("a", 3)); err != nil {
		t.Errorf("Load = %v", err)
	}
	if st := r.Stats(); st.Records != 1 || st.Bytes != 0 {
		t.Errorf("Stats() = %+v, want the new one", st)
	}
	if n := r.db.HGet(context.Background(), r.prefix+"tenants", "a").Val(); n != "1" {
		t.Errorf("%s records of the tenant are counted, want 1", n)
	}
}

// A server without memory refuses new keys; what is under way goes on, and what is
// known is answered.
func TestRedisWithoutMemory(t *testing.T) {
	at := redistest.Start(t)
	c := config(at)
	c.Entries, c.Bytes, c.MaxResponse = 0, 0, 1<<20
	r := &rig{t, opened(t, c)}
	r.reach(key("a", 0), idempotency.StateDone, 100, start)
	r.fresh(key("a", 1), start)
	r.fresh(key("a", 2), start)
	r.reach(key("a", 3), idempotency.StateFailed, 0, start)
	if err := r.db.ConfigSet(context.Background(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []idempotency.ID{key("a", 4), key("a", 3)} {
		if got, err := r.claim(id, start); !errors.Is(err, idempotency.ErrFull) || errors.Is(err, idempotency.ErrUnavailable) {
			t.Errorf("Begin(%s) without memory = %v, %v, want ErrFull", id.Key, got, err)
		}
	}
	r.want(key("a", 4), "")
	r.want(key("a", 3), "failed")
	if begun, err := r.Begin(context.Background(), idempotency.Claim{ID: key("a", 0), Owner: "other"}, start); begun.Result != idempotency.Replay || err != nil {
		t.Errorf("Begin on what is done = %v, %v, want replay", begun.Result, err)
	}
	ch := idempotency.Change{Now: start, Owner: "o k1", Answer: &idempotency.Answer{Status: 200, Kept: true, Body: bytes.Repeat([]byte("x"), 1000)}}
	if _, err := r.Advance(context.Background(), key("a", 1), idempotency.StateRunning, idempotency.StateDone, ch); err != nil {
		t.Errorf("Advance without memory = %v", err)
	}
	if err := r.hold(context.Background(), time.Hour); err != nil {
		t.Errorf("Lease without memory = %v", err)
	}
}
