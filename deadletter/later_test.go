package deadletter

import (
	"errors"
	"strings"
	"testing"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
)

func TestParseAt(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, " 2h ": 2 * time.Hour, "3d": 72 * time.Hour, "720h": 720 * time.Hour, "2026-03-04T22:00:00+08:00": 2 * time.Hour, "2026-03-04T12:00:00.5Z": 500 * time.Millisecond,
		"": 0, "0s": 0, "-1h": 0, "2026-03-04T12:00:00Z": 0, "1999-01-01T00:00:00Z": 0,
	} {
		at, err := ParseAt(text, noon)
		if err != nil || want == 0 && !at.IsZero() || want != 0 && !at.Equal(noon.Add(want)) {
			t.Errorf("ParseAt(%q) = %v, %v, want %v from noon", text, at, err, want)
		}
	}
	for _, text := range []string{"tomorrow", "22:00", "2026-03-05", "2h from now", "d", "-3d", "31d", "720h1s", "99999999h", "2031-01-01T00:00:00Z"} {
		if at, err := ParseAt(text, noon); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "at: ") {
			t.Errorf("ParseAt(%q) = %v, %v, want an error about at", text, at, err)
		}
	}
}

func TestMayLater(t *testing.T) {
	rec := letter(classify.ExecutedNo, true)
	rec.Expires = noon.Add(10 * day)
	doubt := in(idempotency.StateInDoubt)
	doubt.Expires = noon.Add(day)
	for _, tt := range []struct {
		name    string
		rec     *idempotency.Record
		ahead   time.Duration
		unknown bool
		want    error
		text    string
	}{
		{"in time", rec, 10*day - 1, false, nil, ""},
		{"when it is removed", rec, 10 * day, false, ErrInput, "at: want a time before 2026-03-14T12:00:00Z, when the letter is removed"},
		{"too far", rec, 31 * day, false, ErrInput, "more than 30 days"},
		{"against the rule", keyless(classify.ExecutedNo), 1, false, ErrRefused, "no key"},
		{"a doubt", doubt, time.Hour, false, ErrRefused, ""},
		{"a doubt of which somebody knows", doubt, time.Hour, true, nil, ""},
		{"after the doubt", doubt, day, true, ErrInput, "when its doubt ends"},
		{"on its way", in(idempotency.StateRunning), 1, false, ErrBusy, ""},
	} {
		err := MayLater(tt.rec, &Order{Kind: idempotency.Requeued, ExecutedUnknown: tt.unknown, At: noon.Add(tt.ahead)}, noon)
		if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: MayLater = %v, want %v, %q", tt.name, err, tt.want, tt.text)
		}
	}
}

// A run that begins takes the place of the time, also in the very instant, and whatever
// the clock says.
func TestLaterOf(t *testing.T) {
	for _, clock := range []time.Time{noon, noon.Add(-time.Hour), noon.Add(time.Hour)} {
		rec := letter(classify.ExecutedNo, true)
		rec.Updated = noon
		rec.Runs = []idempotency.Run{{CallID: "a", Started: noon, Ended: noon}}
		o := Order{ExecutedUnknown: true, At: clock.Add(2 * time.Hour), Signed: Signed{"ann", "night"}}
		note := o.LaterNote(rec, clock)
		got, err := idempotency.Apply(*rec, rec.State, rec.State, idempotency.Change{Now: note.At, NextAt: o.At, Note: note, TTL: Outlives(rec, o.At, note.At)})
		if err != nil {
			t.Fatal(err)
		}
		if l, ok := LaterOf(&got); !ok || l != (Later{o.At, true, Signed{"ann", "night"}}) || !got.Expires.After(o.At.Add(2*day)) {
			t.Errorf("LaterOf = %+v, %v, kept until %v", l, ok, got.Expires)
		}
		if todo, _ := Advise(&got); todo != TodoLater {
			t.Errorf("Advise = %s, want %s", todo, TodoLater)
		}
		if v := NewView(&got); v.Later == nil || *v.Later != (LaterView{o.At, "ann", "night", true}) {
			t.Errorf("view = %+v", v.Later)
		}
		begun := idempotency.Admit(&got, idempotency.Claim{ID: got.ID, Owner: "b"}, got.Updated).Record
		begun.State, begun.NextAt = idempotency.StateDead, o.At // as its policy says when the run failed
		if l, ok := LaterOf(&begun); ok {
			t.Errorf("after another run: %+v", l)
		}
	}
	other := letter(classify.ExecutedNo, true)
	other.NextAt, other.Notes = noon, []idempotency.Note{{At: noon, Did: DidLater}, {At: noon, Did: DidNotRun}}
	if l, ok := LaterOf(other); ok {
		t.Errorf("after a refusal: %+v", l)
	}
}
