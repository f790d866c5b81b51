package idempotency

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/message"
)

// What may follow a state, told once more in words.
var follows = map[State]string{
	StateRunning: "running waiting parked done failed dead in_doubt",
	StateWaiting: "running waiting parked failed dead in_doubt",
	StateParked:  "running waiting parked failed dead in_doubt",
	StateDone:    "",
	StateFailed:  "done failed",
	StateDead:    "done failed dead",
	StateInDoubt: "done failed dead in_doubt",
}

func TestTransitionTable(t *testing.T) {
	for _, from := range States() {
		for _, to := range States() {
			want := slices.Contains(strings.Fields(follows[from]), to.String())
			if got := from.CanBecome(to); got != want {
				t.Errorf("%s.CanBecome(%s) = %v, want %v", from, to, got, want)
			}
		}
		if from.CanBecome(0) || from.CanBecome(StateInDoubt+1) {
			t.Errorf("%s can become what is no state", from)
		}
	}
	if State(0).CanBecome(StateRunning) || State(99).CanBecome(StateRunning) {
		t.Errorf("what is no state can become running")
	}
}

func TestKindsOfStates(t *testing.T) {
	for _, s := range States() {
		ended := slices.Contains([]State{StateDone, StateFailed, StateDead, StateInDoubt}, s)
		vacant := slices.Contains([]State{StateFailed, StateDead}, s)
		if s.Ended() != ended || s.Vacant() != vacant {
			t.Errorf("%s: Ended() = %v, Vacant() = %v, want %v, %v", s, s.Ended(), s.Vacant(), ended, vacant)
		}
	}
}

var t0 = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func running() Record {
	return Admit(nil, Claim{ID: ID{"s17", "k"}, Owner: "call-1", TTL: time.Hour, Deadline: t0.Add(time.Minute)}, t0).Record
}

func TestApplyAndAdmitArePure(t *testing.T) {
	rec := running()
	rec.History = append(make(attempt.History, 0, 64), attempt.Attempt{N: 1, Host: "a"})
	rec.Runs = slices.Grow(rec.Runs, 8)
	rec.Attempts = 1
	before := rec.Clone()
	ch := Change{Now: t0, Owner: "call-1", Reason: "ok", Append: []attempt.Attempt{{Host: "b"}}, Answer: &Answer{Status: 201, Fields: nil, Body: []byte("x")}}
	for range 2 {
		if _, err := Apply(rec, StateRunning, StateDone, ch); err != nil {
			t.Fatal(err)
		}
	}
	free, _ := Apply(rec, StateRunning, StateFailed, ch)
	freed := free.Clone()
	Admit(&free, Claim{ID: rec.ID, Owner: "call-2"}, t0)
	if diff := cmp.Diff(before, rec); diff != "" {
		t.Errorf("Apply changed its record:\n%s", diff)
	}
	if diff := cmp.Diff(freed, free); diff != "" {
		t.Errorf("Admit changed its record:\n%s", diff)
	}
	if hidden := rec.History[:2][1]; hidden != (attempt.Attempt{}) {
		t.Errorf("Apply wrote %v into spare room of the history", hidden)
	}
	if ch.Append[0].N != 0 || ch.Answer.Body == nil || !ch.Answer.Stored.IsZero() {
		t.Errorf("Apply wrote into the change: %v, %v", ch.Append[0], ch.Answer)
	}
}

func TestAdmitOnAnExpiredRecordKeepsOnlyItsVersion(t *testing.T) {
	ch := Change{Now: t0, Owner: "call-1", Append: []attempt.Attempt{{Status: 503}}, Executed: classify.ExecutedMaybe}
	rec, _ := Apply(running(), StateRunning, StateInDoubt, ch)
	now := t0.Add(time.Hour)
	c := Claim{ID: rec.ID, Owner: "call-2", Fingerprint: [32]byte{2}, TTL: time.Minute}
	want := Record{
		ID: rec.ID, State: StateRunning, Version: rec.Version + 1, Owner: "call-2", Fingerprint: c.Fingerprint,
		Created: now, Updated: now, TTL: time.Minute, Runs: []Run{{CallID: "call-2", Started: now, First: 1}},
	}
	got := Admit(&rec, c, now)
	if diff := cmp.Diff(Begun{Result: Fresh, Record: want}, got); diff != "" {
		t.Errorf("Admit differs (-want +got):\n%s", diff)
	}
}

func TestAdmitOnAFreeRecordClearsWhatItsEndSet(t *testing.T) {
	rec, _ := Apply(running(), StateRunning, StateFailed, Change{Now: t0, Owner: "call-1", Reason: "retry_limited", NextAt: t0.Add(time.Second)})
	got := Admit(&rec, Claim{ID: rec.ID, Owner: "call-2"}, t0).Record
	if got.Version != rec.Version+1 || got.Reason != "" || !got.NextAt.IsZero() || !got.Expires.IsZero() {
		t.Errorf("version %d after %d, reason %q, next %v, expires %v", got.Version, rec.Version, got.Reason, got.NextAt, got.Expires)
	}
}

func TestDoneHasAnAnswer(t *testing.T) {
	fields := message.Fields{{Name: "A", Value: "1"}}
	tests := []struct {
		name        string
		given, want *Answer
	}{
		{"none", nil, &Answer{Stored: t0}},
		{"a marker", &Answer{Status: 200, Reason: "OK", Fields: fields, Body: []byte("x"), Stored: t0.Add(-1)}, &Answer{Status: 200, Reason: "OK", Stored: t0.Add(-1)}},
		{"one without a time", &Answer{Status: 200, Fields: fields, Kept: true}, &Answer{Status: 200, Fields: fields, Kept: true, Stored: t0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec, err := Apply(running(), StateRunning, StateDone, Change{Now: t0, Owner: "call-1", Answer: tt.given})
			if diff := cmp.Diff(tt.want, rec.Answer); diff != "" || err != nil {
				t.Errorf("Apply = %v, answer differs (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestApplyErrorsNameNoKey(t *testing.T) {
	rec := running()
	rec.Key = "secret-key"
	for _, ch := range []Change{{Now: t0}, {Now: t0, Owner: "call-1"}} {
		for _, from := range States() {
			if _, err := Apply(rec, from, StateDone, ch); err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("Apply = %v", err)
			}
		}
	}
}

func TestApplyLimitsDetail(t *testing.T) {
	rec, _ := Apply(running(), StateRunning, StateWaiting, Change{
		Now: t0, Owner: "call-1",
		Append: []attempt.Attempt{{Detail: strings.Repeat("é", 256)}, {Detail: "x" + strings.Repeat("é", 256)}},
	})
	if got := rec.History[0].Detail; len(got) != 512 {
		t.Errorf("a detail of 512 bytes has %d", len(got))
	}
	if got := rec.History[1].Detail; len(got) > 512 || strings.ContainsRune(got, '\uFFFD') || !strings.HasSuffix(got, "é...") {
		t.Errorf("a detail of 513 bytes became %d, %q", len(got), got[len(got)-8:])
	}
}

func TestApplyChecksTheTableFirst(t *testing.T) {
	_, err := Apply(running(), StateDone, StateRunning, Change{Now: t0})
	if !errors.Is(err, ErrTransition) {
		t.Errorf("Apply(done to running) = %v, want %v", err, ErrTransition)
	}
}

func TestNextCount(t *testing.T) {
	tests := []struct{ client, attempts, want int }{{0, 0, 0}, {0, 1, 1}, {2, 0, 2}, {1, 4, 5}}
	for _, tt := range tests {
		r := Record{ClientCount: tt.client, Attempts: tt.attempts}
		if got := r.NextCount(); got != tt.want {
			t.Errorf("NextCount(client %d, %d attempts) = %d, want %d", tt.client, tt.attempts, got, tt.want)
		}
	}
}

// history is a record whose runs made attempts at the given seconds.
func history(runs ...[]int) *Record {
	r := running()
	for i, run := range runs {
		if i > 0 {
			r = Admit(&r, Claim{ID: r.ID, Owner: "call-1", TTL: time.Hour}, t0).Record
		}
		ch := Change{Now: t0, Owner: "call-1"}
		for _, second := range run {
			ch.Append = append(ch.Append, attempt.Attempt{
				Started: t0.Add(time.Duration(second) * time.Second), Verdict: classify.Verdict{Class: classify.Transient},
			})
		}
		r, _ = Apply(r, StateRunning, StateFailed, ch)
	}
	return &r
}

func TestRetriesLeft(t *testing.T) {
	many := make([]int, 50)
	for i := range many {
		many[i] = i
	}
	tests := []struct {
		name   string
		rec    *Record
		most   int
		client int
		second int // now; the window is 100 s
		want   int
	}{
		{"a new call", history(nil), 3, 0, 0, 3},
		{"the client has retried", history(nil), 3, 2, 0, 1},
		{"the client has retried more than that", history(nil), 3, 1000, 0, 0},
		{"one attempt is no retry", history([]int{0}), 3, 0, 1, 3},
		{"a spent run", history([]int{0, 1, 2, 3}), 3, 0, 4, 0},
		{"half a run", history([]int{0, 1}), 3, 0, 2, 2},
		{"the larger one counts, not the sum", history([]int{0, 1, 2}), 3, 2, 3, 1},
		{"the client's is larger", history([]int{0, 1}), 3, 3, 3, 0},
		{"first attempts of later runs are no retries", history([]int{0}, []int{1}, []int{2, 3}), 3, 0, 4, 2},
		{"never below none", history([]int{0, 1, 2, 3}, []int{4, 5, 6}), 3, 0, 7, 0},
		{"a retry just inside the window", history([]int{0, 1}), 3, 0, 100, 2},
		{"a retry that left the window", history([]int{0, 1}), 3, 0, 101, 3},
		{"a retry of a clock since set back", history([]int{0, 1000}), 3, 0, 1, 2},
		{"no retries allowed", history([]int{0}), 0, 0, 1, 0},
		{"a history that lost its middle", history(many), 60, 0, 50, 60 - 49},
		{"a lost middle that left the window", history(many), 60, 0, 49 + 100 - 5, 60 - 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := t0.Add(time.Duration(tt.second) * time.Second)
			if got := tt.rec.RetriesLeft(tt.most, tt.client, 100*time.Second, now); got != tt.want {
				t.Errorf("RetriesLeft(%d, %d) = %d, want %d", tt.most, tt.client, got, tt.want)
			}
		})
	}
}
