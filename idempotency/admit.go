package idempotency

import (
	"slices"
	"time"

	"retryproxy/classify"
)

// Admit decides what a claim gets: the rule behind Begin of every store. rec is
// the record under the claim's ID, nil when there is none. Only on Fresh does
// the returned record differ from rec and has to be kept. rec is not changed.
func Admit(rec *Record, c Claim, now time.Time) Begun {
	switch {
	case rec == nil:
		return Begun{Result: Fresh, Record: started(Record{Created: now}, c, now)}
	case rec.Expired(now) && rec.State == StateInDoubt && !rec.otherCredentials(c) && rec.Fingerprint == c.Fingerprint:
		return Begun{Result: Fresh, Record: started(*rec, c, now), Letter: true} // nobody settled it: what happened is not forgotten
	case rec.Expired(now):
		return Begun{Result: Fresh, Record: started(Record{Created: now, Version: rec.Version}, c, now)}
	case rec.State.Vacant() && c.Version != 0 && c.Version != rec.Version:
		return Begun{Result: Busy, Record: *rec} // somebody else moved it meanwhile
	case rec.State.Vacant():
		return reopen(rec, c, now)
	}
	return Begun{Result: holds(rec, c), Record: *rec}.guarded()
}

// holds is what a record that may not run again says to a claim.
func holds(rec *Record, c Claim) Result {
	switch {
	case rec.otherCredentials(c):
		return Credentials
	case rec.Fingerprint != c.Fingerprint:
		return Mismatch
	case rec.State == StateDone:
		return Replay
	case rec.State == StateInDoubt:
		return InDoubt
	}
	return Busy
}

// reopen starts a run on a failed or dead record. One that was or may have been
// executed stays bound to its credentials and fingerprint. One that was not
// takes the new fingerprint; to other credentials (a token renewed after a 401)
// it passes on its count and nothing else.
func reopen(rec *Record, c Claim, now time.Time) Begun {
	switch {
	case rec.Released() && rec.otherCredentials(c):
		return Begun{Result: Fresh, Record: started(Record{Created: now, Version: rec.Version, ClientCount: rec.NextCount()}, c, now)}
	case rec.Released() && rec.Fingerprint != c.Fingerprint:
		again := *rec
		again.Receipt = "" // whoever has the old one asks about another request
		return Begun{Result: Fresh, Record: started(again, c, now)}
	case !rec.otherCredentials(c) && rec.Fingerprint == c.Fingerprint:
		return Begun{Result: Fresh, Record: started(*rec, c, now), Letter: rec.State == StateDead}
	}
	return Begun{Result: holds(rec, c), Record: *rec}.guarded()
}

// guarded hides the record from a claim with other credentials.
func (b Begun) guarded() Begun {
	if b.Result == Credentials {
		b.Record = Record{ID: b.Record.ID, State: b.Record.State}
	}
	return b
}

func (r *Record) otherCredentials(c Claim) bool {
	return c.Tenant == NoTenant && r.Credentials != c.Credentials
}

// started is rec with a new run for the claim.
func started(rec Record, c Claim, now time.Time) Record {
	now = later(now, rec.Updated)
	supplier := rec.keptBy(c)
	rec.ID = c.ID
	rec.State = StateRunning
	rec.Version++
	rec.Owner = c.Owner
	rec.Fingerprint, rec.Credentials = c.Fingerprint, [32]byte{}
	if c.Tenant == NoTenant {
		rec.Credentials = c.Credentials
	}
	rec.Policy, rec.Labels = c.Policy, c.Labels
	rec.Method, rec.Host, rec.Path = c.Method, c.Host, c.Path
	rec.Updated, rec.Deadline, rec.TTL = now, c.Deadline, c.TTL
	rec.Expires, rec.NextAt, rec.Reason, rec.Answer = time.Time{}, time.Time{}, "", nil
	rec.ClientCount = max(rec.ClientCount, c.ClientCount)
	rec.Keyless, rec.Honoured, rec.Terms, rec.Parked = c.Keyless, c.Honoured, c.Terms, time.Time{}
	run := Run{CallID: c.Owner, ClientID: c.ClientID, Kind: c.Kind, Started: now, First: rec.Attempts + 1, Supplier: supplier, Trace: c.Trace}
	rec.Runs = bounded(slices.Concat(rec.Runs, []Run{run}), RunsFirst, RunsLast)
	return rec
}

// keptBy is who has the order when a claim runs it again. A letter goes back to whoever
// has it; a client that orders once more, where nothing was executed, begins anew.
func (r *Record) keptBy(c Claim) Supplier {
	if c.Kind == ByClient && r.Executed == classify.ExecutedNo {
		return Supplier{}
	}
	return r.Supplier()
}

// Bury is the record of a call that had none and was given up: the rule behind
// Bury of every store. It begins and ends in one step.
func Bury(c Claim, ch Change) (Record, error) {
	ch.Owner = c.Owner
	return Apply(started(Record{Created: ch.Now}, c, ch.Now), StateRunning, StateDead, ch)
}

// later keeps the times of a record in order when the clock is set back.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// bounded drops the middle of what has grown beyond first + last. It may write
// to s, so s belongs to the caller.
func bounded[S ~[]E, E any](s S, first, last int) S {
	if len(s) <= first+last {
		return s
	}
	return append(s[:first], s[len(s)-last:]...)
}
