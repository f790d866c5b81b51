package deadletter

import (
	"strconv"
	"strings"
	"time"

	"retryproxy/idempotency"
)

// Later is the wish of a person that a letter is run again at a time. It is kept as the
// letter's date and its last note, so that every store has it.
type Later struct {
	At              time.Time // when it is due; later than was wanted, where its host took no more
	ExecutedUnknown bool
	Signed
}

// What a note says was decided about such a time.
const (
	DidLater        = "later"
	DidLaterUnknown = "later_executed_unknown" // though it may have been executed
	DidNotRun       = "not_run"                // its time came, and it might not run
)

const (
	day = 24 * time.Hour
	// mostAhead is how far ahead a time may be.
	mostAhead = 30 * day
	// seenFor is how long a letter is kept past its time, so that it is still there when
	// the proxy was off over a weekend, and so that somebody sees what came of it.
	seenFor = 3 * day
)

// ParseAt reads when a letter is to be run again: a time, or how long from now. Zero: at
// once, as nothing was said or the time is over. Errors: ErrInput.
func ParseAt(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		var d time.Duration
		if d, err = ahead(text); err != nil {
			return time.Time{}, wrong("at", "want a time such as 2026-03-04T22:00:00+08:00, or one from now such as 90m, 2h or 3d, not %q", text)
		}
		at = now.Add(d)
	}
	if !at.After(now) {
		return time.Time{}, nil
	}
	return at, tooFar(at, now)
}

// ahead is a duration, also in days.
func ahead(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * day, err
	}
	return time.ParseDuration(text)
}

func tooFar(at, now time.Time) error {
	if at.After(now.Add(mostAhead)) {
		return wrong("at", "%s is more than %d days ahead", at.Format(time.RFC3339), mostAhead/day)
	}
	return nil
}

// MayLater says whether a letter may be given o.At; nil: by what is known now it may run
// then. Errors: of MayRequeue, ErrInput.
func MayLater(rec *idempotency.Record, o *Order, now time.Time) error {
	if err := MayRequeue(rec, o); err != nil {
		return err
	}
	if err := tooFar(o.At, now); err != nil {
		return err
	}
	switch {
	case o.At.Before(rec.Expires):
		return nil
	case rec.State == idempotency.StateInDoubt:
		return wrong("at", "want a time before %s, when its doubt ends (idempotency.ttl)", rec.Expires.UTC().Format(time.RFC3339))
	}
	return wrong("at", "want a time before %s, when the letter is removed (dead_letters.keep)", rec.Expires.UTC().Format(time.RFC3339))
}

// LaterOf is the time that a person gave a letter; false: none did, or it has been run
// since, by whomever.
func LaterOf(rec *idempotency.Record) (l Later, ok bool) {
	n := len(rec.Notes)
	if !rec.State.Letter() || rec.NextAt.IsZero() || n == 0 {
		return l, false
	}
	note := &rec.Notes[n-1]
	if runs := len(rec.Runs); runs > 0 && !note.At.After(rec.Runs[runs-1].Started) {
		return l, false
	}
	if note.Did != DidLater && note.Did != DidLaterUnknown {
		return l, false
	}
	return Later{rec.NextAt, note.Did == DidLaterUnknown, Signed{note.By, note.Text}}, true
}

// LaterNote is what the letter says of o.At from now on. It is later than all that happened to
// it before, whatever the clocks say: a run that begins is not before it then.
func (o *Order) LaterNote(rec *idempotency.Record, now time.Time) *idempotency.Note {
	if !now.After(rec.Updated) {
		now = rec.Updated.Add(1)
	}
	note := idempotency.Note{At: now, By: o.By, Did: DidLater, Text: o.Note}
	if o.ExecutedUnknown {
		note.Did = DidLaterUnknown
	}
	return &note
}

// Order is the order of a time that has come.
func (l *Later) Order() *Order {
	return &Order{Kind: idempotency.Requeued, ExecutedUnknown: l.ExecutedUnknown, Due: true, Signed: l.Signed}
}

// Outlives is how long from now a letter is kept that is to run at a time, or was to.
func Outlives(rec *idempotency.Record, at, now time.Time) time.Duration {
	return max(rec.Expires.Sub(now), at.Sub(now)+seenFor)
}
