package sqlite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/idempotency"
)

// start is far ahead: what the store sweeps by the clock has not expired.
var start = time.Date(2126, 3, 4, 5, 6, 7, 0, time.UTC)

const ttl = time.Hour

// rig is a small store with the steps of the tests.
type rig struct {
	*testing.T
	*Store
}

func newRig(t *testing.T, entries int, bytes int64) *rig {
	c := config(t.TempDir())
	c.Entries, c.Bytes, c.MaxResponse, c.TTL = entries, bytes, 1000, ttl
	return &rig{t, opened(t, c)}
}

func key(tenant string, i int) idempotency.ID {
	return idempotency.ID{Tenant: tenant, Key: fmt.Sprintf("k%d", i)}
}

func (r *rig) claim(id idempotency.ID, now time.Time) (idempotency.Result, error) {
	begun, err := r.Begin(context.Background(), idempotency.Claim{ID: id, Owner: "o", Request: &idempotency.Request{Body: []byte("b")}}, now)
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

// now has the writer do something, between changes of others.
func (r *rig) now(do func(*writer)) {
	r.Helper()
	err := r.direct(context.Background(), func(w *writer) error { do(w); return nil })
	if err != nil {
		r.Fatalf("submit = %v", err)
	}
}

// swept sweeps until nothing is left to do, inside the transaction of a change.
func (r *rig) swept(now time.Time) {
	r.Helper()
	r.now(func(w *writer) {
		for w.sweepSome(now) {
		}
	})
}

// rows counts rows of a table.
func (r *rig) rows(table string, want int) {
	r.Helper()
	var got int
	if err := r.settled(context.Background()); err != nil {
		r.Errorf("settled = %v", err)
	}
	if err := r.reader.QueryRow("SELECT count(*) FROM " + table).Scan(&got); err != nil || got != want {
		r.Errorf("%s has %d rows, %v, want %d", table, got, err, want)
	}
}

func TestHeldRecordsAreNeverEvicted(t *testing.T) {
	for _, state := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting, idempotency.StateParked, idempotency.StateInDoubt, idempotency.StateDead} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, 4, 1000)
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
	for _, state := range []idempotency.State{idempotency.StateDone, idempotency.StateFailed} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, 4, 1000)
			r.reach(key("a", 0), idempotency.StateRunning, 0, start)
			r.reach(key("a", 1), state, 1, start)
			r.reach(key("b", 2), idempotency.StateDone, 1, start.Add(1))
			r.reach(key("b", 3), idempotency.StateFailed, 1, start.Add(2))
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
	r := newRig(t, 8, 1000)
	r.reach(key("quiet", 0), idempotency.StateDone, 1, start)
	for i := range 20 {
		r.reach(key("noisy", i), idempotency.StateDone, 1, start.Add(time.Duration(i)))
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
	if got, err := r.claim(key("held", 3), start); got != idempotency.Busy || err != nil {
		t.Errorf("Begin of a known key in a full store = %v, %v, want busy", got, err)
	}
}

func TestBytesEvictTheOldestAnswers(t *testing.T) {
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
	r.rows("answers", 2)
	if got, _ := r.claim(key("a", 0), start); got != idempotency.Replay {
		t.Errorf("Begin on a marker = %v, want replay", got)
	}
	r.reach(key("a", 9), idempotency.StateDone, 1001, start) // over MaxResponse
	r.want(key("a", 9), "marker")
	r.want(key("a", 2), "done")
}

// An old record that ends late has a young answer.
func TestAnswersAgeFromTheEnd(t *testing.T) {
	r := newRig(t, 100, 1000)
	r.fresh(key("parked", 0), start)
	for i := range 2 {
		r.reach(key("a", i), idempotency.StateDone, 400, start)
	}
	ch := idempotency.Change{Now: start, Owner: "o", Answer: &idempotency.Answer{Status: 200, Body: make([]byte, 400), Kept: true}}
	if _, err := r.Advance(t.Context(), key("parked", 0), idempotency.StateRunning, idempotency.StateDone, ch); err != nil {
		t.Fatal(err)
	}
	r.want(key("a", 0), "marker")
	r.want(key("parked", 0), "done")
}

func TestConfigureEvicts(t *testing.T) {
	r := newRig(t, 0, 0)
	for i := range 40 {
		r.reach(key("a", i), idempotency.StateDone, 100, start.Add(time.Duration(i)))
	}
	r.fresh(key("a", 40), start)
	c := *r.bounds()
	c.Entries, c.Bytes = 20, 500
	r.Configure(c, start)
	r.swept(start)
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

func TestSweepDeletesWhatExpired(t *testing.T) {
	r := newRig(t, 0, 0)
	for i, state := range idempotency.States() {
		r.reach(key("a", i), state, 100, start)
	}
	r.swept(start.Add(ttl - 1))
	r.rows("records", 7)
	r.swept(start.Add(ttl))
	r.rows("records", 4) // what is in doubt becomes a letter first
	r.rows("requests", 4)
	r.rows("answers", 0)
	st := r.Stats()
	if st.Records != 4 || st.Bytes != 0 || st.EvictedEarly != 0 {
		t.Errorf("Stats() = %+v, want the 3 that are held and the one in doubt", st)
	}
}

func TestHistoryOutlivesTheKey(t *testing.T) {
	r := newRig(t, 0, 0)
	c := *r.bounds()
	c.Keep = 30 * ttl
	r.Configure(c, start)
	for i, state := range idempotency.States() {
		r.reach(key("a", i), state, 100, start)
	}
	r.swept(start.Add(ttl))
	r.rows("records", 7)
	r.rows("records WHERE past = 1 AND answer IS NULL", 3)
	r.rows("answers", 0)
	r.rows("requests", 4)
	if st := r.Stats(); st.Records != 4 || st.Bytes != 0 {
		t.Errorf("Stats() = %+v, want the 3 that are held and the one in doubt", st)
	}
	// To callers they are gone, whatever the clock says.
	r.want(key("a", 3), "")
	r.fresh(key("a", 3), start)
	r.want(key("a", 3), "running")
	r.swept(start.Add(30*ttl - 1))
	r.rows("records", 7)
	r.swept(start.Add(30 * ttl))
	r.rows("records", 5)
}

func TestPastRecordsGoFirst(t *testing.T) {
	r := newRig(t, 4, 1000)
	c := *r.bounds()
	c.Keep = 30 * ttl
	r.Configure(c, start)
	r.reach(key("a", 0), idempotency.StateDone, 0, start)
	r.reach(key("b", 1), idempotency.StateDone, 0, start.Add(ttl))
	r.reach(key("c", 2), idempotency.StateDone, 0, start.Add(ttl))
	r.reach(key("d", 3), idempotency.StateDone, 0, start.Add(ttl))
	r.swept(start.Add(ttl))
	r.fresh(key("e", 4), start.Add(ttl))
	r.rows("records WHERE past = 1", 0)
	r.rows("records", 4)
	r.early(0)
}

// After the records are gone the file is small again.
func TestFileShrinks(t *testing.T) {
	r := newRig(t, 0, 0)
	for i := range 300 {
		id := key("a", i)
		q := &idempotency.Request{Body: make([]byte, 16<<10)}
		if _, err := r.Begin(t.Context(), idempotency.Claim{ID: id, Owner: "o", Request: q}, start); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Advance(t.Context(), id, idempotency.StateRunning, idempotency.StateDead, idempotency.Change{Now: start, Owner: "o"}); err != nil {
			t.Fatal(err)
		}
	}
	pages := func() (n int) {
		if err := r.reader.QueryRow("PRAGMA page_count").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := pages()
	r.swept(start.Add(ttl))
	if after := pages(); after*2 > before {
		t.Errorf("the file has %d pages, after the sweep %d, want less than half", before, after)
	}
}

// Counts that a failed transaction changed are as before.
func TestCountsOfAFailedTransaction(t *testing.T) {
	r := newRig(t, 100, 1000)
	r.reach(key("a", 0), idempotency.StateDone, 10, start)
	before := r.Stats()
	err := r.direct(t.Context(), func(w *writer) error {
		_, err := w.begin(idempotency.Claim{ID: key("a", 1), Owner: "o"}, start)
		w.exec("INSERT INTO nowhere VALUES (1)")
		return err
	})
	if !errors.Is(err, idempotency.ErrUnavailable) {
		t.Errorf("a broken change = %v, want ErrUnavailable", err)
	}
	r.want(key("a", 1), "")
	if st := r.Stats(); st.Records != before.Records {
		t.Errorf("Stats() = %+v, want %+v", st, before)
	}
	r.fresh(key("a", 1), start)
	if st := r.Stats(); st.Records != 2 {
		t.Errorf("Stats() = %d records, want 2", st.Records)
	}
}

// Nobody has to ask: a record goes within seconds of its time.
func TestSweepByTheClock(t *testing.T) {
	c := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t, opened(t, c)}
		r.reach(key("a", 0), idempotency.StateFailed, 0, time.Now())
		r.fresh(key("a", 1), time.Now())
		time.Sleep(ttl - 1)
		r.rows("records", 2)
		time.Sleep(2 * sweepEvery)
		r.rows("records", 1)
	})
}
