package redis

import (
	"slices"
	"time"

	"retryproxy/attempt"
	"retryproxy/idempotency"
)

// moved is t by d; the zero time stays, it is none.
func moved(t time.Time, d time.Duration) time.Time {
	if t.IsZero() || d == 0 {
		return t
	}
	return t.Add(d)
}

// movedClaim is a claim in the server's time.
func movedClaim(c idempotency.Claim, d time.Duration) idempotency.Claim {
	c.Deadline = moved(c.Deadline, d)
	return c
}

// movedChange is a change in the server's time. It shares nothing that is written to.
func movedChange(ch idempotency.Change, d time.Duration) idempotency.Change {
	if d == 0 {
		return ch
	}
	ch.Now, ch.NextAt, ch.Deadline = moved(ch.Now, d), moved(ch.NextAt, d), moved(ch.Deadline, d)
	ch.Append = slices.Clone(ch.Append)
	moveAttempts(ch.Append, d)
	if ch.Note != nil {
		note := *ch.Note
		note.At = moved(note.At, d)
		ch.Note = &note
	}
	ch.Answer = movedAnswer(ch.Answer, d)
	return ch
}

func movedAnswer(a *idempotency.Answer, d time.Duration) *idempotency.Answer {
	if a == nil {
		return nil
	}
	out := *a
	out.Stored = moved(a.Stored, d)
	return &out
}

func moveAttempts(list []attempt.Attempt, d time.Duration) {
	for i := range list {
		list[i].Started = moved(list[i].Started, d)
	}
}

// local is a record in the time of this process; it is the caller's own.
func local(rec *idempotency.Record, d time.Duration) idempotency.Record {
	out := rec.Clone()
	if d == 0 {
		return out
	}
	for _, t := range []*time.Time{&out.Created, &out.Updated, &out.Expires, &out.Deadline, &out.NextAt, &out.Parked} {
		*t = moved(*t, -d)
	}
	moveAttempts(out.History, -d)
	for i := range out.Runs {
		out.Runs[i].Started, out.Runs[i].Ended = moved(out.Runs[i].Started, -d), moved(out.Runs[i].Ended, -d)
	}
	for i := range out.Notes {
		out.Notes[i].At = moved(out.Notes[i].At, -d)
	}
	out.Answer = movedAnswer(out.Answer, -d)
	return out
}
