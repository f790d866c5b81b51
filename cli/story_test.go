package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/attempt"
	"retryproxy/deadletter"
)

// inShanghai sets the zone of the machine for a test.
func inShanghai(t *testing.T) {
	old := time.Local
	time.Local = time.FixedZone("CST", 8*3600)
	t.Cleanup(func() { time.Local = old })
}

// noon is 12:00 in Shanghai, three days before anybody asks.
var noon = time.Date(2026, 3, 1, 4, 0, 0, 0, time.UTC)

func after(d time.Duration) *time.Time {
	t := noon.Add(d)
	return &t
}

// try is an attempt so long after noon.
func try(n int, d time.Duration, status int, id string) tried {
	a := tried{
		View: attempt.View{N: n, Started: noon.Add(d), DurationMS: 12, Status: status, Reason: fmt.Sprint("status_", status), Class: "success"},
		Host: "gw.test:443", UpstreamID: id,
	}
	if status >= 500 {
		a.Class, a.Basis = "transient", "key"
	}
	return a
}

// ended is a request with the key that came so long after noon.
func ended(id string, d time.Duration, status int, result, reason string, attempts ...tried) call {
	return call{
		ID: id, Mode: "forward", Policy: "order_ship", State: "done", Result: result, Reason: reason, Status: status, Executed: "yes", KeyHash: "ad370ed99b189921",
		Labels: attempt.Labels{Shop: "s17"}, Method: "POST", Host: "gw.test:443", Path: "/orders", ClientID: "rpa-" + id,
		Started: noon.Add(d), Ended: after(d + time.Second), DurationMS: 1000, Attempts: attempts,
	}
}

func told(s story, now time.Time) string {
	var out bytes.Buffer
	s.tell(&out, now)
	return out.String()
}

func TestStoryOfAKey(t *testing.T) {
	inShanghai(t)
	first := ended("c1", 0, 503, "rejected", "parked", try(1, 0, 503, "up-1"))
	first.Executed = "maybe"
	again := ended("c1", 0, 200, "recovered", "ok", try(2, 13*time.Hour, 200, "up-2")) // after a restart, at one in the morning
	again.Origin, again.Previous, again.Ended = "restart", 1, after(13*time.Hour)
	s := story{
		calls: []call{ // the newest first
			ended("c5", 16*time.Hour, 200, "replay", "ok"), ended("c4", 15*time.Hour, 200, "replay", "ok"), ended("c3", 14*time.Hour, 200, "replay", "ok"),
			again, ended("c2", time.Minute, 409, "rejected", "key_busy"), first,
		},
		records: []record{{State: "done", Executed: "yes", Expires: after(37 * time.Hour)}},
	}
	want := `Key hash ad370ed99b189921: 5 requests, 2026-03-01 12:00:00 to 2026-03-02 04:00:00 (+08:00)

Call c1: POST gw.test:443/orders
  forward mode, policy order_ship, shop s17, client request id rpa-c1, key hash ad370ed99b189921, started 2026-03-01 12:00:00
  12:00:00.000  Attempt 1 went to gw.test:443 and brought status 503 in 12ms: a repeat may mend that and is safe, because its key goes along, by which a host that honours keys knows it. Upstream request id up-1.
  The client got 503 after 1s: the call goes on without its client (parked). It was not over then: the same key gets its answer. The upstream may have acted already.

Call c2: POST gw.test:443/orders
  forward mode, policy order_ship, shop s17, client request id rpa-c2, key hash ad370ed99b189921, started 2026-03-01 12:01:00
  The client got 409 after 1s: the same key was still being worked on (key_busy).

Call c1: POST gw.test:443/orders
  forward mode, policy order_ship, shop s17, client request id rpa-c1, key hash ad370ed99b189921, started 2026-03-01 12:00:00
  It went on without its client: the proxy had ended in the middle of it.
  Before that, 1 attempt had been made.
  2026-03-02 01:00:00.000  Attempt 2 went to gw.test:443 and brought status 200 in 12ms: that is the answer. Upstream request id up-2.
  It ended with 200 after 1s, and no client waited for that: all is well (ok).

3 requests, 2026-03-02 02:00:00 to 04:00:00, the first is call c3
  Each: The client got the answer of an earlier call with the same key, 200.

Now: it is done, and the same key gets the answer that was kept until 2026-03-03 01:00:00.
`
	if diff := cmp.Diff(want, told(s, noon.Add(72*time.Hour))); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
}

func TestStoryFitsOnAScreen(t *testing.T) {
	inShanghai(t)
	var s story
	for n := range 100 {
		status := 500 + n%2 // no two in a row are alike
		s.calls = append(s.calls, ended(fmt.Sprint("c", 99-n), time.Duration(99-n)*time.Minute, status, "failed", fmt.Sprint("status_", status)))
	}
	s.more = true
	got := told(s, noon)
	for _, want := range []string{
		"the newest 100 requests, 2026-03-01 12:00:00 to 2026-03-01 13:39:00", "Call c0:", "Call c3:", "\n… 88 more in between, see retryproxy calls -key-hash ad370ed99b189921\n",
		"Call c92:", "Call c99:", "Now: nothing is known under this key any more.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the story lacks %q:\n%s", want, got)
		}
	}
	if lines := strings.Count(got, "\n"); lines > 60 || strings.Contains(got, "Call c4:") || strings.Contains(got, "Call c91:") {
		t.Errorf("the story has %d lines", lines)
	}
}

func TestStoryOfSeveralKeys(t *testing.T) {
	inShanghai(t)
	s := story{asked: "order-77"}
	for n := range mostChoices + 1 {
		k := ended(fmt.Sprint("c", n), 0, 200, "success", "ok")
		k.KeyHash = fmt.Sprintf("%016x", n)
		s.calls = append(s.calls, k)
	}
	got := told(s, noon)
	for _, want := range []string{`21 calls with "order-77". Which one? Ask with its ID:`, "c19", "\n…\n", `retryproxy calls -text "order-77" with -shop`} {
		if !strings.Contains(got, want) {
			t.Errorf("the choice lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "c20") || !strings.Contains(got, "2026-03-01 12:00:00") {
		t.Errorf("the choice is\n%s\nwant %d calls with their date", got, mostChoices)
	}
}

func TestHowThingsStand(t *testing.T) {
	inShanghai(t)
	soon, tomorrow := after(time.Hour), after(24*time.Hour)
	tests := []struct {
		r    record
		want string
	}{
		{record{State: "running", Deadline: soon}, "Now: an attempt is in flight, the time for it ends at 13:00:00.\nTo do: wait; a request with the same key joins it.\n"},
		{record{State: "waiting", NextAt: soon, Reason: "status_503"}, "Now: it waits until 13:00:00 for its next attempt: "},
		{record{State: "parked", NextAt: tomorrow, Reason: "retry_limited", Executed: "no"}, "Now: it is parked until 2026-03-02 12:00:00: no retry token would be there in time (retry_limited). So far nothing was executed upstream.\nTo do: nothing, it goes on by itself; a request with the same key gets its answer then.\n"},
		{record{State: "done", Answer: "unknown", Expires: soon}, "Now: it is done: a person settled it as executed, so there is no answer to give. The same key gets 409 result_not_kept until 13:00:00.\n"},
		{record{State: "done", Answer: "not_kept"}, "but its answer was not kept. The same key gets 409 result_not_kept.\nTo do: read the result at gw.test:443.\n"},
		{record{State: "done", Answer: "unknown", Keyless: true}, "Now: a person settled it as executed.\n"},
		{record{State: "failed", Executed: "no", Reason: "resolved"}, "Now: it is over without success; executed: no: a person settled it (resolved).\n"},
		{record{State: "failed", Executed: "no", Keyless: true}, "To do: nothing was done: it may be sent again.\n"},
		{record{State: "done"}, "Now: it is done, and the same key gets the answer that was kept.\n"},
		{record{State: "failed", Executed: "no"}, "Now: it is over without success; executed: no.\nTo do: nothing was done: it may be sent again, with the same key.\n"},
		{record{State: "failed", Executed: "maybe"}, "To do: look at gw.test:443 before it is sent again;"},
		{record{State: "dead", Receipt: "r1", Executed: "no", Reason: "attempts_exhausted", NextAt: soon, Advice: "Advised."}, "Now: it was given up and is a dead letter, r1; executed: no: all attempts that the policy allows failed (attempts_exhausted); tried again at 13:00:00.\nTo do: Advised.\n  retryproxy deadletters show -admin a:1 r1\n"},
		{record{State: "dead", Executed: "maybe"}, "To do: look at gw.test:443 before it is sent again;"},
		{record{State: "in_doubt", Receipt: "r1", Expires: tomorrow, Advice: "Advised."}, "Nothing is sent under this key before 2026-03-02 12:00:00.\nTo do: Advised.\n  retryproxy deadletters show -admin a:1 r1\n"},
		{record{State: "in_doubt", Receipt: "r1"}, "To do: look at gw.test:443: was it done? If it was not, send it with a new key.\n"},
	}
	for _, test := range tests {
		got := told(story{calls: []call{ended("c1", 0, 200, "success", "ok")}, records: []record{test.r}, again: " -admin a:1"}, noon)
		if !strings.Contains(got, test.want) {
			t.Errorf("%s:\n%s\nwant %s", test.r.State, got, test.want)
		}
	}
	got := told(story{calls: []call{ended("c1", 0, 200, "success", "ok")}, records: []record{{State: "done", Shop: "s1"}, {State: "failed"}}}, noon)
	if !strings.Contains(got, "Now for shop s1: it is done") || !strings.Contains(got, "Now for shop -: it is over") {
		t.Errorf("two records under one key:\n%s", got)
	}
}

// A client whose call was cut off by a kill got nothing: what the next process did is
// not told as its answer, and the attempts before are those of the record.
func TestStoryOfAKilledProcess(t *testing.T) {
	inShanghai(t)
	k := ended("c1", 0, 201, "recovered", "ok", try(2, 2*time.Second, 503, ""), try(3, 8*time.Second, 201, ""))
	k.Origin, k.Previous, k.DurationMS = "restart", 1, 8000
	s := story{calls: []call{k}, records: []record{{State: "done", CallID: "c1", History: []tried{try(1, 0, 503, "up-1"), k.Attempts[0], k.Attempts[1]}}}}
	got := told(s, noon)
	for _, want := range []string{
		"It went on without its client: the proxy had ended in the middle of it.\n  Before that, 1 attempt had been made:\n  12:00:00.000  Attempt 1 went to", "\n  12:00:02.000  Attempt 2 went",
		"\n  It ended with 201 after 8s, and no client waited for that: all is well (ok).\n\nNow: it is done, and the same key gets the answer",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the story lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "client got") || strings.Count(got, "Attempt 1") != 1 {
		t.Errorf("the story:\n%s", got)
	}
}

// One request that was parked, woken, given up and requeued is one request.
func TestStoryOfALetter(t *testing.T) {
	inShanghai(t)
	first := ended("c1", 0, 202, "rejected", "parked", try(1, 0, 429, ""))
	first.Attempts[0].Executed = "no"
	woken := ended("c2", 0, 503, "failed", "attempts_exhausted", try(2, time.Minute, 503, ""))
	woken.Origin, woken.Previous, woken.Executed, woken.Status = "parked", 1, "no", 504
	again := ended("c3", time.Hour, 201, "success", "ok", try(3, time.Hour, 201, ""))
	again.Origin, again.Previous = "requeue", 2
	s := story{calls: []call{again, woken, first}, records: []record{{
		State: "done", Answer: "unknown",
		Runs:  []deadletter.RunView{{CallID: "c1", Kind: "client"}, {CallID: "c3", Kind: "requeue"}},
		Notes: []deadletter.NoteView{{At: noon.Add(time.Hour), By: "ann", Did: "requeued", Text: "the shop is well again"}, {At: noon.Add(2 * time.Hour), By: "bob", Did: "executed", Text: "seen in the ERP"}},
	}}}
	got := told(s, noon.Add(3*time.Hour))
	at := 0
	for _, want := range []string{
		"1 request, 1 requeue, 2026-03-01 12:00:00 to 2026-03-01 13:00:00 (+08:00)\n",
		"The client got 202 after 1s: the call goes on without its client (parked). It was not over then: the same key gets its answer. So far nothing was executed upstream.\n",
		"Call c2:", "had been parked, and its time came.\n  Before that, 1 attempt had been made.\n", "It ended after 1s, and no client waited for that: all attempts that the policy allows failed (attempts_exhausted). Nothing was executed upstream.",
		"2026-03-01 13:00:00  ann had it sent again: the shop is well again\n", "Call c3:", "It was sent again without its client: a person requeued it.",
		"It ended with 201", "2026-03-01 14:00:00  bob settled it as executed: seen in the ERP\n", "Now: it is done: a person settled it as executed",
	} {
		i := strings.Index(got[at:], want)
		if i < 0 {
			t.Fatalf("the story lacks %q there:\n%s", want, got)
		}
		at += i
	}
	if strings.Count(got, "client got") != 1 || strings.Contains(got, "check before you repeat") {
		t.Errorf("the story:\n%s", got)
	}
}
