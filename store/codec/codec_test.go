package codec

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
)

var start = time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC)

// A record with everything, as the stores have it on disk. What is written today is
// read for as long as there are files: these texts do not change.
const (
	runsText    = `[{"call_id":"a","client_id":"c","kind":"requeue","started":"2026-03-04T05:06:07.000000089Z","ended":"2026-03-04T05:06:08.000000089Z","first":1,"reason":"because","supplier":"b","order_no":"A1-r2","trace":"00-1-2-01"}]`
	notesText   = `[{"at":"2026-03-04T05:06:07.000000089Z","by":"me","did":"executed","text":["/w=="]}]`
	historyText = `[{"n":7,"count":8,"started":"2026-03-04T05:06:07.000000089Z","duration_ns":10,"host":"u1.test:443","status":503,"class":"unknown",` +
		`"reason":"status_503","basis":"key","executed":"maybe","detail":"\"é\"","delay_ns":11,"cause":"backoff","retry_after_ns":12,` +
		`"host_fault":true,"alive":true,"egress_fault":true,"egress":"proxy-a","reused":true,"upstream_id":"u","supplier":"b"}]`
	waitsText = `[{"cause":"backoff","for_ns":13}]`
)

var (
	runs    = []idempotency.Run{{CallID: "a", ClientID: "c", Kind: idempotency.Requeued, Started: start, Ended: start.Add(time.Second), First: 1, Reason: "because", Supplier: idempotency.Supplier{Name: "b", OrderNo: "A1-r2"}, Trace: "00-1-2-01"}}
	notes   = []idempotency.Note{{At: start, By: "me", Did: "executed", Text: "\xff"}}
	history = attempt.History{{
		N: 7, Count: 8, Started: start, Duration: 10, Host: "u1.test:443", Status: 503, Detail: `"é"`,
		Delay: 11, Cause: "backoff", Egress: "proxy-a", Reused: true, UpstreamID: "u", Supplier: "b",
		Verdict: classify.Verdict{
			Class: classify.Unknown, Reason: "status_503", Basis: classify.BasisKey, Executed: classify.ExecutedMaybe,
			HostFault: true, Alive: true, EgressFault: true, RetryAfter: 12,
		},
	}}
	waits = []attempt.Wait{{Cause: "backoff", For: 13}}
)

func TestTextsDoNotChange(t *testing.T) {
	for _, x := range []struct {
		of   any
		want string
	}{{RunsOf(runs), runsText}, {NotesOf(notes), notesText}, {HistoryOf(history), historyText}, {WaitsOf(waits), waitsText}} {
		if got, err := json.Marshal(x.of); err != nil || string(got) != x.want {
			t.Errorf("%T is %s, %v\nwant %s", x.of, got, err, x.want)
		}
	}
}

// read reads a list.
func read[T any](t *testing.T, text string) (list []T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return list
}

func TestWhatWasWrittenIsRead(t *testing.T) {
	same := func(got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	same(Runs(read[Run](t, runsText)), runs)
	same(Notes(read[Note](t, notesText)), notes)
	same(Waits(read[Wait](t, waitsText)), waits)
	got, err := History(read[Attempt](t, historyText))
	if err != nil {
		t.Fatal(err)
	}
	same(got, history)
	// The first SQLite files wrote times that there were none of.
	same(Runs(read[Run](t, `[{"call_id":"a","started":"0001-01-01T00:00:00.000000000Z","first":1}]`)), []idempotency.Run{{CallID: "a", First: 1}})
}

func TestUnknownNamesAreErrors(t *testing.T) {
	for _, text := range []string{`[{"class":"bad","executed":"no"}]`, `[{"class":"success","executed":"bad"}]`, `[{}]`} {
		if got, err := History(read[Attempt](t, text)); err == nil {
			t.Errorf("History of %s = %v", text, got)
		}
	}
	if s, err := State("free"); err == nil {
		t.Errorf("State(free) = %v", s)
	}
	if e, err := Executed(""); err == nil {
		t.Errorf("Executed of nothing = %v", e)
	}
}

func TestText(t *testing.T) {
	for _, text := range []Text{"", "plain", `a"b\c`, "é\u2028<&>", "\x00\x1f\x7f", "\xff", "a\xe2\x82", "[", `["YQ=="]`} {
		out, err := json.Marshal(text)
		var got Text
		if err == nil {
			err = json.Unmarshal(out, &got)
		}
		if err != nil || got != text {
			t.Errorf("%q is %s, read as %q, %v", text, out, got, err)
		}
	}
	for text, want := range map[string]Text{`"\u00e9\n"`: "é\n", "\"a\xff\"": "a\ufffd"} {
		var got Text
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%q is read as %q, %v, want %q", text, got, err, want)
		}
	}
	for _, bad := range []string{`1`, `{}`, `[]`, `["YQ==","YQ=="]`, `["?"]`, `[1]`} {
		var got Text
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s is read as %q", bad, got)
		}
	}
}
