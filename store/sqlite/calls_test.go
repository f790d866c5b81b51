package sqlite

import (
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// merged puts blocks together until nothing is left to do.
func (r *rig) merged() {
	r.Helper()
	r.now(func(w *writer) {
		for w.mergeCalls() {
		}
	})
}

func TestCallsGoWithTheirTime(t *testing.T) {
	for _, x := range []struct {
		name string
		prep func(*rig)
	}{{"a block each", func(*rig) {}}, {"in blocks of many", (*rig).merged}} {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, 0, 0)
			r.Configure(Config{Keep: time.Hour, MaxResponse: 1}, start)
			for n := range 3 * fewCalls {
				r.noted(call(n, time.Duration(n)*time.Second))
			}
			x.prep(r)
			r.now(func(w *writer) {
				for w.forgetCalls(start.Add(time.Hour + 490*time.Second)) { // the first 490 ended longer ago
				}
			})
			r.rows("calls", 3*fewCalls-490)
			if got := r.found(journal.Query{}); len(got) != 3*fewCalls-490 || got[len(got)-1] != 490 {
				t.Errorf("%d calls are there, the oldest is %d, want 490", len(got), got[len(got)-1])
			}
		})
	}
}

// A block that is half too old is not written anew with every sweep.
func TestABlockIsCutOnceInAWhile(t *testing.T) {
	for after, want := range map[time.Duration]int{time.Minute: 3, time.Hour: 3, time.Hour + time.Second: 1, 2*time.Hour + time.Second: 0} {
		r := newRig(t, 0, 0)
		r.Configure(Config{Keep: 16 * time.Hour, MaxResponse: 1}, start)
		r.noted(call(0, 0), call(1, time.Minute), call(2, 2*time.Hour))
		r.swept(start.Add(16*time.Hour + after))
		r.rows("calls", want)
	}
}

func TestTheNewestCallsStay(t *testing.T) {
	for _, x := range []struct {
		name string
		each int
	}{{"a block each", 1}, {"in blocks of many", 100}} {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, 0, 0)
			r.Configure(Config{Keep: 1000 * time.Hour, Calls: 10, MaxResponse: 1}, start)
			var calls []*attempt.Summary
			for n := range 300 {
				calls = append(calls, call(n, -time.Duration(n)*time.Hour/1000)) // as after a clock that was set back
			}
			for some := range slices.Chunk(calls, x.each) {
				r.noted(some...)
			}
			r.swept(start)
			r.rows("calls", 10)
			if got := r.found(journal.Query{}); len(got) != 10 || got[0] != 290 {
				t.Errorf("calls %d are there, want those that were noted last", got)
			}
		})
	}
}

// With many calls there may be a few more of them than asked for.
func TestASurplusIsBounded(t *testing.T) {
	r := newRig(t, 0, 0)
	r.Configure(Config{Keep: 1000 * time.Hour, Calls: 1000, MaxResponse: 1}, start)
	for n := 0; n < 2000; n += 5 {
		r.noted(call(n, 0), call(n+1, 0), call(n+2, 0), call(n+3, 0), call(n+4, 0))
		r.swept(start)
	}
	if n := len(r.found(journal.Query{})); n < 1000 || n > 1010 {
		t.Errorf("%d calls are there, want 1000 to 1010", n)
	}
}

// What is too much goes with the calls for which it has to, not only with a sweep.
func TestNewCallsTakeTheRoomOfOldOnes(t *testing.T) {
	r := newRig(t, 0, 0)
	r.Configure(Config{Keep: 1000 * time.Hour, Calls: 3, MaxResponse: 1}, start)
	for n := range 6 {
		r.noted(call(2*n, time.Duration(n)), call(2*n+1, time.Duration(n)))
	}
	if got, want := r.found(journal.Query{}), []int{11, 10, 9, 8}; !slices.Equal(got, want) {
		t.Errorf("found %d, want %d", got, want)
	}
}

// What did not come to be is not counted.
func TestCallsAreCountedAsTheyAre(t *testing.T) {
	c := config(t.TempDir())
	r := &rig{t, opened(t, c)}
	counted := func(when string, want int) {
		t.Helper()
		r.now(func(w *writer) {
			if w.tally.calls != want {
				t.Errorf("%s %d calls are counted, want %d", when, w.tally.calls, want)
			}
		})
	}
	r.noted(call(1, 0), call(2, 0))
	r.noted(call(3, 0))
	counted("at first", 3)
	err := r.direct(t.Context(), func(w *writer) error {
		w.dropBlocks(w.blocks(firstBlocks, 1))
		return w.exec("no statement")
	})
	if err == nil {
		t.Fatal("the transaction did not fail")
	}
	counted("after a failure", 3)
	r.swept(start.Add(1000 * time.Hour))
	counted("when all are too old", 0)
	r.noted(call(4, 0))
	r.Close()
	r = &rig{t, opened(t, c)}
	counted("after a start", 1)
}

// Blocks of few calls become fewer, whatever lies between them, and nobody notices.
func TestSmallBlocksArePutTogether(t *testing.T) {
	r := newRig(t, 0, 0)
	n := 0
	several := func(calls int) {
		var all []*attempt.Summary
		for range calls {
			all = append(all, call(n, time.Duration(n%7)*time.Second))
			n++
		}
		r.noted(all...)
	}
	const blocks = 8
	for range blocks {
		several(8)
		several(fewCalls)
		several(24)
	}
	before, err := r.pages(nil)
	if err != nil || len(before) != n {
		t.Fatalf("%d calls are found, %v, want %d", len(before), err, n)
	}
	after, err := r.pages(r.merged) // between the first page and the others
	if diff := cmp.Diff(before, after); diff != "" || err != nil {
		t.Errorf("after that %v (-before +after):\n%s", err, diff)
	}
	r.rows("call_blocks WHERE few = 1", 0)
	r.rows("call_blocks", blocks+1)
	if got := r.found(journal.Query{Words: [][]uint64{{uint64(n)}, {7}}}); len(got) != 0 {
		t.Errorf("found %d, want none", got)
	}
	if got := r.found(journal.Query{Words: [][]uint64{{uint64(n - 1)}}}); len(got) != 1 || got[0] != n-1 {
		t.Errorf("found %d, want %d", got, n-1)
	}
}

// pages are the numbers of all calls, a page at a time; meanwhile happens after the first.
func (r *rig) pages(meanwhile func()) (ids []string, err error) {
	for q := (journal.Query{Limit: 300}); ; {
		found, more, err := r.Find(r.T.Context(), q)
		for _, c := range found {
			ids = append(ids, c.ID)
		}
		if err != nil || !more {
			return ids, err
		}
		if q.After = found[len(found)-1].Place; meanwhile != nil {
			meanwhile()
			meanwhile = nil
		}
	}
}

// A block ends when its texts are long: what reads one has to have room for it.
func TestBlocksAreBounded(t *testing.T) {
	r := newRig(t, 0, 0)
	for range 10 {
		var all []*attempt.Summary
		for n := range 200 {
			c := call(n, 0)
			c.Path, c.Detail = strings.Repeat("p", journal.MostText), strings.Repeat("d", journal.MostText)
			all = append(all, c)
		}
		r.noted(all...)
	}
	r.merged()
	var longest, blocks int
	if err := r.reader.QueryRow("SELECT max(length(texts)), count(*) FROM call_blocks").Scan(&longest, &blocks); err != nil {
		t.Fatal(err)
	}
	if longest > 2*mostTexts || blocks > 30 {
		t.Errorf("%d blocks, the longest has %d bytes", blocks, longest)
	}
	if n := len(r.found(journal.Query{})); n != 2000 {
		t.Errorf("%d calls are found, want 2000", n)
	}
}

// What somebody wrote into the file hides nothing but what it replaced.
func TestSpoiltBlocks(t *testing.T) {
	for _, x := range []struct {
		name, by string
		told     bool
		want     []int
	}{
		{"marks cut off", "marks = substr(marks, 1, length(marks) - 1)", true, []int{3, 2, 1}},
		{"strange marks", "marks = x'ffffffffffffffffffff'", true, []int{3, 1}},
		{"short texts", "texts = substr(texts, 1, 100)", true, []int{3, 1}},
		{"strange texts", `texts = replace(texts, '["2",', '["2",,')`, true, []int{3, 1}},
		{"no filter", "filter = x'00'", false, []int{3, 22, 2, 1}},
		{"no filter at all", "filter = x''", false, []int{3, 22, 2, 1}},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, 0, 0)
			var told []string
			c := *r.bounds()
			c.Log = func(msg string, _ ...any) { told = append(told, msg) }
			r.setConfig(c)
			r.noted(call(1, 1))
			r.noted(call(2, 2), call(22, 3))
			r.noted(call(3, 4))
			alter(t, r.Store, "UPDATE call_blocks SET "+x.by+" WHERE calls = 2")
			if got := r.found(journal.Query{}); !slices.Equal(got, x.want) {
				t.Errorf("found %d, want %d", got, x.want)
			}
			word := journal.Query{Words: [][]uint64{{22}}}
			if got := r.found(word); slices.Contains(x.want, 22) != slices.Equal(got, []int{22}) {
				t.Errorf("found %d by a word", got)
			}
			var others []*attempt.Summary
			for range fewCalls - 1 {
				others = append(others, call(4, 5))
			}
			r.noted(others...)
			r.merged()
			if got := r.found(word); slices.Contains(x.want, 22) != slices.Equal(got, []int{22}) {
				t.Errorf("found %d by a word when blocks had been put together", got)
			}
			if x.told != (len(told) > 0) {
				t.Errorf("the operator was told %q", told)
			}
		})
	}
}

// An operator sees in the view what the search gives.
func TestTheViewShowsCalls(t *testing.T) {
	r := newRig(t, 0, 0)
	c := benchCall(1, start)
	c.Record = attempt.RecordID{Tenant: "t", Key: "k"}
	c.Path, c.User, c.Detail, c.Trace, c.Origin, c.Labels.ShopTier = "/é\"\n", "\xff", "because", "00-ab", "restart", "vip"
	c.Previous, c.Overhead = 3, 7
	r.noted(c, &attempt.Summary{ID: "empty", State: "done", Started: start, Ended: start})
	got := map[string]string{}
	rows, err := r.reader.Query("SELECT * FROM calls ORDER BY call_id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names, _ := rows.Columns()
	for _, prefix := range []string{"", "empty "} {
		if !rows.Next() {
			t.Fatal("a call is missing")
		}
		values, to := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			to[i] = &values[i]
		}
		if err := rows.Scan(to...); err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			if values[i].Valid {
				got[prefix+name] = values[i].String
			}
		}
	}
	want := map[string]string{
		"block": "2", "call_id": c.ID, "tenant": "t", "key": "k", "key_hash": c.KeyHash, "started": timeText(c.Started), "ended": timeText(c.Ended), "duration_ns": "1000000000", "overhead_ns": "7",
		"result": "recovered", "reason": "ok", "detail": "because", "status": "200", "executed": "yes", "mode": "forward", "policy": "order_ship", "shop": "s1", "shop_tier": "vip", "task_type": "order_ship",
		"user": `["/w=="]`, "client": c.Client, "method": "POST", "scheme": "https", "host": c.Host, "path": c.Path, "client_id": "rpa-1", "trace": "00-ab", "bytes": "120", "previous": "3",
		"attempts": historyText(c.Attempts), "waits": `[{"cause":"backoff","for_ns":1000000000}]`, "origin": "restart",
		"empty block": "2", "empty call_id": "empty", "empty started": timeText(start), "empty ended": timeText(start), "empty executed": "no", "empty attempts": "[]", "empty waits": "[]",
		"empty result": "", "empty reason": "", "empty mode": "", "empty client": "", "empty method": "", "empty scheme": "", "empty host": "", "empty path": "",
		"empty duration_ns": "0", "empty overhead_ns": "0", "empty status": "0", "empty bytes": "0", "empty previous": "0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the view differs (-want +got):\n%s", diff)
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
	alter(t, r.Store, "DROP TABLE call_blocks")
	if err := r.Note(t.Context(), []*attempt.Summary{call(1, 0)}); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("Note = %v, want ErrUnavailable", err)
	}
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
