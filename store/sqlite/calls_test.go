package sqlite

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"retryproxy/attempt"
	"retryproxy/idempotency"
	"retryproxy/journal"
	"retryproxy/store/storetest"
)

func TestJournal(t *testing.T) {
	storetest.RunJournal(t, func(t *testing.T) journal.Journal { return opened(t, config(t.TempDir())) })
}

// call is one that ended so long after start, with a term of its number.
func call(n int, after time.Duration) *attempt.Summary {
	return &attempt.Summary{
		ID: strconv.Itoa(n), State: "done", Started: start, Ended: start.Add(after), Terms: []uint64{uint64(n)},
	}
}

// found are the numbers of the calls of a query.
func (r *rig) found(q journal.Query) []int {
	r.Helper()
	q.Limit = journal.MostLimit
	found, _, err := r.Find(r.T.Context(), q)
	if err != nil {
		r.Fatalf("Find = %v", err)
	}
	var out []int
	for _, c := range found {
		n, _ := strconv.Atoi(c.ID)
		out = append(out, n)
	}
	return out
}

func (r *rig) noted(calls ...*attempt.Summary) {
	r.Helper()
	if err := r.Note(r.T.Context(), calls); err != nil {
		r.Fatalf("Note = %v", err)
	}
}

func TestCallsGoWithTheirTime(t *testing.T) {
	r := newRig(t, 0, 0)
	r.Configure(Config{Keep: time.Hour, MaxResponse: 1}, start)
	for n := range 3 * mostSwept {
		r.noted(call(n, time.Duration(n)*time.Second))
	}
	at := start.Add(time.Hour + time.Duration(mostSwept+10)*time.Second) // the first 266 ended longer ago
	r.now(func(w *writer) {
		if n := w.forgetCalls(at); n != mostSwept {
			t.Errorf("%d calls went at once, want %d", n, mostSwept)
		}
		if n := w.forgetCalls(at); n != 10 {
			t.Errorf("%d calls went then, want 10", n)
		}
		if n := w.forgetCalls(at); n != 0 {
			t.Errorf("%d calls went in the end, want none", n)
		}
	})
	r.rows("calls", 2*mostSwept-10)
	r.rows("call_terms", 2*mostSwept-10)
	if got := r.found(journal.Query{}); got[len(got)-1] != mostSwept+10 {
		t.Errorf("the oldest call is %d, want %d", got[len(got)-1], mostSwept+10)
	}
}

func TestTheNewestCallsStay(t *testing.T) {
	r := newRig(t, 0, 0)
	r.Configure(Config{Keep: 1000 * time.Hour, Calls: 10, MaxResponse: 1}, start)
	for n := range mostSwept + 30 {
		r.noted(call(n, -time.Duration(n)*time.Hour/1000)) // as after a clock that was set back
	}
	r.swept(start)
	r.rows("calls", 10)
	r.rows("call_terms", 10)
	if got := r.found(journal.Query{}); len(got) != 10 || got[0] != mostSwept+20 {
		t.Errorf("calls %d are there, want those that were noted last", got)
	}
}

func TestRecordsOutliveTheirTimeByKeep(t *testing.T) {
	r := newRig(t, 10, 1000)
	r.Configure(Config{Entries: 10, Keep: 10 * time.Hour, MaxResponse: 1000, TTL: ttl}, start)
	r.reach(key("a", 1), idempotency.StateFailed, 0, start)
	r.swept(start.Add(9 * time.Hour))
	r.rows("records", 1)
	r.swept(start.Add(10 * time.Hour))
	r.rows("records", 0)
}

func TestCallsSurviveACrash(t *testing.T) {
	c := config(t.TempDir())
	r := &rig{t, opened(t, c)}
	r.noted(call(1, 0), call(2, time.Second))
	r.kill(t)
	r = &rig{t, opened(t, c)}
	if got := r.found(journal.Query{Words: [][]uint64{{2}}}); len(got) != 1 || got[0] != 2 {
		t.Errorf("found %d, want 2", got)
	}
	r.noted(call(3, 2*time.Second))
	if got := r.found(journal.Query{}); len(got) != 3 || got[0] != 3 {
		t.Errorf("found %d, want 3 2 1", got)
	}
}

// What cannot be noted is an error of the history alone: records go on.
func TestACallThatCannotBeNotedHarmsNoRecord(t *testing.T) {
	r := newRig(t, 10, 1000)
	alter(t, r.Store, "DROP TABLE call_terms")
	if err := r.Note(t.Context(), []*attempt.Summary{call(1, 0)}); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("Note = %v, want ErrUnavailable", err)
	}
	r.rows("calls", 0)
	r.fresh(key("a", 1), start)
	r.want(key("a", 1), "running")
}

func TestNoteAfterClose(t *testing.T) {
	r := newRig(t, 10, 1000)
	r.Close()
	if err := r.Note(t.Context(), []*attempt.Summary{call(1, 0)}); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("Note = %v, want ErrUnavailable", err)
	}
}
