package storetest

import (
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
)

var beginTests = []test{
	{"a new key is fresh and starts a run", freshStartsRun},
	{"a key in use is busy", busyWhileHeld},
	{"a done key replays, a marker too", replayWhenDone},
	{"a key in doubt stays", inDoubtStays},
	{"another request is a mismatch", mismatchInEveryState},
	{"a failed key takes another request, ID-08", freeTakesAnother},
	{"a failed key that may have been executed stays bound", freeStaysBound},
	{"other credentials get nothing", otherCredentials},
	{"renewed credentials may use a failed key", renewedCredentials},
	{"credentials count in no named tenant", credentialsOfTenant},
	{"tenants are apart, ID-01", tenantsApart},
	{"the client's count never falls", countNeverFalls},
	{"of many claims one is fresh, ID-05", oneOfManyIsFresh},
	{"a claim by what was read before a move gets nothing", claimByVersion},
}

func freshStartsRun(b *bench) {
	c := claim(order, "call-1")
	c.ClientCount = 2
	rec := b.begin(c, start, idempotency.Fresh)
	b.same("record", rec, idempotency.Record{
		ID: order, State: idempotency.StateRunning, Version: rec.Version, Owner: "call-1",
		Fingerprint: c.Fingerprint, Policy: c.Policy, Labels: c.Labels, Method: "POST", Host: c.Host, Path: c.Path,
		Created: start, Updated: start, TTL: ttl, Deadline: c.Deadline, ClientCount: 2,
		Runs: []idempotency.Run{{CallID: "call-1", Started: start, First: 1}},
	})
	b.same("stored record", b.get(order, start), rec)
}

func busyWhileHeld(b *bench) {
	at := start.Add(time.Minute)
	for i, state := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting, idempotency.StateParked} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		b.begin(claim(id, "leader"), start, idempotency.Fresh)
		ch := change("leader", start)
		ch.NextAt = at
		b.advance(id, idempotency.StateRunning, state, ch)
		rec := b.begin(claim(id, "second"), start.Add(time.Second), idempotency.Busy)
		if rec.State != state || rec.Owner != "leader" || !rec.NextAt.Equal(at) || len(rec.Runs) != 1 {
			b.Errorf("Busy on %s = state %s, owner %s, next %v, %d runs", state, rec.State, rec.Owner, rec.NextAt, len(rec.Runs))
		}
	}
}

func claimByVersion(b *bench) {
	rec := b.reach(claim(order, "call-1"), idempotency.StateDead, classify.ExecutedNo)
	c := claim(order, "call-2")
	c.Version = rec.Version
	b.advance(order, idempotency.StateDead, idempotency.StateDead, change("", start))
	if got := b.begin(c, start, idempotency.Busy); got.State != idempotency.StateDead || len(got.Runs) != 1 {
		b.Errorf("after a claim by an old version: %s with %d runs", got.State, len(got.Runs))
	}
	c.Version = b.get(order, start).Version
	b.begin(c, start, idempotency.Fresh)
}

func replayWhenDone(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateDone, classify.ExecutedYes)
	for range 2 {
		rec := b.begin(claim(order, "call-2"), start, idempotency.Replay)
		b.same("answer", rec.Answer, created())
	}
	id := idempotency.ID{Tenant: order.Tenant, Key: "large"}
	b.begin(claim(id, "call-1"), start, idempotency.Fresh)
	ch := change("call-1", start)
	ch.Answer = &idempotency.Answer{Status: 200, Reason: "OK", Stored: start}
	b.advance(id, idempotency.StateRunning, idempotency.StateDone, ch)
	rec := b.begin(claim(id, "call-2"), start, idempotency.Replay)
	b.same("marker", rec.Answer, ch.Answer)
}

func inDoubtStays(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateInDoubt, classify.ExecutedMaybe)
	for range 2 {
		rec := b.begin(claim(order, "call-2"), start, idempotency.InDoubt)
		if rec.Executed != classify.ExecutedMaybe || rec.Reason != "because" || len(rec.History) != 1 {
			b.Errorf("in doubt: executed %s, reason %q, %d attempts", rec.Executed, rec.Reason, len(rec.History))
		}
	}
}

// Reached with executed "maybe", every state binds.
func mismatchInEveryState(b *bench) {
	for i, state := range idempotency.States() {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		b.reach(claim(id, "call-1"), state, classify.ExecutedMaybe)
		before := b.get(id, start)
		c := other(9, claim(id, "call-2"))
		c.Method, c.Path = "PUT", "/other"
		rec := b.begin(c, start.Add(time.Second), idempotency.Mismatch)
		if rec.Method != "POST" || rec.Path != "/order" || !rec.Created.Equal(start) {
			b.Errorf("mismatch on %s tells %s %s at %v, want the first use", state, rec.Method, rec.Path, rec.Created)
		}
		b.same("record after a mismatch on "+state.String(), b.get(id, start), before)
	}
}

func freeTakesAnother(b *bench) {
	for i, state := range []idempotency.State{idempotency.StateFailed, idempotency.StateDead} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		b.reach(claim(id, "call-1"), state, classify.ExecutedNo)
		c := other(2, claim(id, "call-2"))
		c.Method, c.Host, c.Path, c.Policy = "PUT", "u2.test:80", "/corrected", "default"
		rec := b.begin(c, start.Add(time.Second), idempotency.Fresh)
		if rec.Fingerprint != c.Fingerprint || rec.Method != "PUT" || rec.Host != c.Host || rec.Path != c.Path || rec.Policy != "default" {
			b.Errorf("after %s the record is of %s %s%s, want the new request", state, rec.Method, rec.Host, rec.Path)
		}
		if len(rec.History) != 1 || len(rec.Runs) != 2 || rec.Runs[1].First != 2 || !rec.Expires.IsZero() || rec.Reason != "" {
			b.Errorf("after %s: %d attempts, runs %v, expires %v, reason %q", state, len(rec.History), rec.Runs, rec.Expires, rec.Reason)
		}
	}
}

func freeStaysBound(b *bench) {
	for i, state := range []idempotency.State{idempotency.StateFailed, idempotency.StateDead} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		b.reach(claim(id, "call-1"), state, classify.ExecutedMaybe)
		b.begin(other(2, claim(id, "call-2")), start, idempotency.Mismatch)
		rec := b.begin(claim(id, "call-3"), start, idempotency.Fresh)
		if rec.Executed != classify.ExecutedMaybe || len(rec.History) != 1 {
			b.Errorf("the next run begins with executed %s and %d attempts, want maybe and 1", rec.Executed, len(rec.History))
		}
		b.advance(id, idempotency.StateRunning, idempotency.StateFailed, change("call-3", start))
		b.begin(other(2, claim(id, "call-4")), start, idempotency.Mismatch)
	}
}

func credentialed(hash byte, c idempotency.Claim) idempotency.Claim {
	c.Credentials = [32]byte{hash}
	return c
}

func otherCredentials(b *bench) {
	for i, state := range idempotency.States() {
		id := idempotency.ID{Tenant: idempotency.NoTenant, Key: named(i)}
		b.reach(credentialed(1, claim(id, "call-1")), state, classify.ExecutedMaybe)
		for _, c := range []idempotency.Claim{claim(id, "call-2"), other(9, claim(id, "call-2"))} {
			rec := b.begin(credentialed(2, c), start, idempotency.Credentials)
			b.same("what others see of "+state.String(), rec, idempotency.Record{ID: id, State: state})
		}
	}
}

func renewedCredentials(b *bench) {
	c := credentialed(1, claim(loose, "call-1"))
	c.ClientCount = 1
	b.begin(c, start, idempotency.Fresh)
	ch := change("call-1", start)
	ch.Append = tries(2, classify.ExecutedNo)
	b.advance(loose, idempotency.StateRunning, idempotency.StateFailed, ch)
	rec := b.begin(credentialed(2, claim(loose, "call-2")), start, idempotency.Fresh)
	if len(rec.History) != 0 || len(rec.Runs) != 1 || rec.NextCount() != 3 {
		b.Errorf("renewed credentials begin with %d attempts, %d runs, count %d, want 0, 1, 3", len(rec.History), len(rec.Runs), rec.NextCount())
	}
}

func credentialsOfTenant(b *bench) {
	b.reach(credentialed(1, claim(order, "call-1")), idempotency.StateDone, classify.ExecutedYes)
	rec := b.begin(credentialed(2, claim(order, "call-2")), start, idempotency.Replay)
	if rec.Credentials != [32]byte{} {
		b.Errorf("a named tenant's record keeps credentials")
	}
}

func tenantsApart(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateDone, classify.ExecutedYes)
	id := idempotency.ID{Tenant: "bot1/s18", Key: order.Key}
	b.begin(other(2, claim(id, "call-2")), start, idempotency.Fresh)
	// Nor does a tenant's name run over into the key.
	id = idempotency.ID{Tenant: order.Tenant + order.Key[:1], Key: order.Key[1:]}
	b.begin(other(3, claim(id, "call-3")), start, idempotency.Fresh)
}

func countNeverFalls(b *bench) {
	c := claim(order, "call-1")
	c.ClientCount = 5
	b.begin(c, start, idempotency.Fresh)
	ch := change("call-1", start)
	ch.Append = tries(2, classify.ExecutedNo)
	b.advance(order, idempotency.StateRunning, idempotency.StateFailed, ch)
	c.ClientCount = 0
	c.Owner = "call-2"
	rec := b.begin(c, start, idempotency.Fresh)
	if rec.NextCount() != 7 {
		b.Errorf("NextCount() = %d, want 7", rec.NextCount())
	}
}

func oneOfManyIsFresh(b *bench) {
	for round, state := range []idempotency.State{0, idempotency.StateFailed, idempotency.StateDead} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(round)}
		if state != 0 {
			b.reach(claim(id, "before"), state, classify.ExecutedNo)
		}
		var fresh, busy atomic.Int32
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				begun, err := b.store.Begin(b.Context(), claim(id, named(i)), start)
				switch {
				case err != nil:
					b.Errorf("Begin = %v", err)
				case begun.Result == idempotency.Fresh:
					fresh.Add(1)
				case begun.Result == idempotency.Busy:
					busy.Add(1)
				}
			})
		}
		group.Wait()
		if fresh.Load() != 1 || busy.Load() != 49 {
			b.Errorf("50 claims = %d fresh, %d busy, want 1 and 49", fresh.Load(), busy.Load())
		}
	}
}
