package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/limiter"
)

// Requeue runs a letter again: with its key and its count, a new deadline and the
// full budget, by the policy of its name as it is now. It returns when the run has
// begun. Whatever goes wrong, the letter is there. Errors: of findLetter and
// deadletter.MayRequeue, deadletter.ErrInput, ErrNoRequest, ErrDraining,
// idempotency.ErrUnavailable.
func (p *Proxy) Requeue(ctx context.Context, id string, o deadletter.Order) (callID string, err error) {
	if err := o.CheckOptional(); err != nil {
		return "", err
	}
	rec, err := p.findLetter(ctx, id)
	if err != nil {
		return "", err
	}
	return p.requeue(ctx, &rec, &o, func(bool) {})
}

// requeue is Requeue of a record; end is told how the run ended, well: its answer
// closed the letter.
func (p *Proxy) requeue(ctx context.Context, rec *idempotency.Record, o *deadletter.Order, end func(well bool)) (callID string, err error) {
	if p.drained.Load() {
		return "", deadletter.ErrDraining
	}
	if err := deadletter.MayRequeue(rec, o); err != nil {
		return "", err
	}
	select {
	case p.reading <- struct{}{}: // its request is in memory until it is spooled
		defer func() { <-p.reading }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	request, err := p.Store.Load(ctx, rec.ID)
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		return "", deadletter.ErrNoRequest
	case err != nil:
		return "", err
	}
	x, err := p.again(rec, request, o)
	if err == nil {
		err = x.claimAgain(ctx, rec, request, o)
	}
	if err != nil {
		x.withdraw()
		return "", err
	}
	if o.Kind == idempotency.Requeued {
		p.logLetter("dead letter requeued", rec, deadletter.DidRequeue, o.Signed)
	}
	p.crew.goes(p.Log, func() {
		defer func() { end(x.rec.State == idempotency.StateDone) }()
		defer x.finish()
		x.runAgain()
	})
	return x.id, nil
}

// again is the exchange of a letter that is to run once more, with everything
// settled that does not touch its record. The error says why it cannot or may not.
func (p *Proxy) again(rec *idempotency.Record, q *idempotency.Request, o *deadletter.Order) (*exchange, error) {
	x := p.exchangeOf(rec, q, string(o.Kind)) // the names are the same
	if x.trace != nil {
		x.trace.Age = time.Since(rec.Updated)
	}
	r := x.placed(q)
	if r == nil {
		r = x.chooseExits()
	}
	if r == nil {
		r = x.resumePolicy()
	}
	if r == nil {
		r = x.readBody()
	}
	x.describe()
	x.begun = time.Now()
	switch {
	case r != nil && r.reason == "local_resource":
		return x, fmt.Errorf("%w: %s", deadletter.ErrNoRoom, r.detail)
	case r != nil:
		return x, fmt.Errorf("%w: %s: %s", deadletter.ErrRefused, r.reason, r.detail)
	}
	x.recogniseAgain()
	if r = x.goesBack(); r != nil {
		return x, fmt.Errorf("%w: %s: %s", deadletter.ErrRefused, r.reason, r.detail)
	}
	x.unheard = !q.Honoured
	now := *rec
	now.Honoured = rec.Honoured && q.Honoured && x.honoursKey()
	return x, deadletter.MayRequeue(&now, o)
}

// claimAgain begins the run in the store. A letter in doubt becomes a plain one
// first, so that it is one in every moment.
func (x *exchange) claimAgain(ctx context.Context, rec *idempotency.Record, q *idempotency.Request, o *deadletter.Order) error {
	now, version := time.Now(), rec.Version
	ctx = context.WithoutCancel(ctx) // both steps, or none
	if c, ok := x.noteAgain(rec, o, now); ok {
		moved, err := x.p.Store.Advance(ctx, rec.ID, rec.State, idempotency.StateDead, c)
		if err != nil {
			return letterError(err)
		}
		version = moved.Version
	}
	begun, err := x.p.Store.Begin(ctx, idempotency.Claim{
		ID: rec.ID, Version: version, Owner: x.id, Fingerprint: rec.Fingerprint, Credentials: rec.Credentials, Policy: x.policy.Name, Labels: rec.Labels,
		Method: rec.Method, Host: x.hops[0].host, Path: rec.Path, Deadline: x.begun.Add(x.policy.Deadline),
		ClientCount: rec.ClientCount, TTL: x.set.KeyTTL, Kind: o.Kind, Keyless: rec.Keyless, Honoured: rec.Honoured, Terms: rec.Terms, Request: q, Trace: x.ownTrace(),
	}, now)
	switch {
	case err != nil:
		return err
	case begun.Result == idempotency.Busy:
		return deadletter.ErrBusy
	case begun.Result != idempotency.Fresh:
		return deadletter.ErrClosed // somebody was quicker
	}
	x.rec, x.lasting = begun.Record, true
	x.note(rec.ID)
	x.flight = x.p.Flights.Start(rec.ID, x.id)
	return nil
}

// noteAgain is what comes before the run; false: nothing. Of a letter whose time has come
// it was noted when it got it: a process that is killed here leaves it due.
func (x *exchange) noteAgain(rec *idempotency.Record, o *deadletter.Order, now time.Time) (idempotency.Change, bool) {
	c := idempotency.Change{Now: now, Version: rec.Version, TTL: x.set.LetterTTL}
	if o.Due {
		c.NextAt = now.Add(redriveLater)
		return c, rec.State == idempotency.StateInDoubt
	}
	c.Note = &idempotency.Note{At: now, By: o.By, Did: deadletter.DidRequeue, Text: o.Note}
	if o.ExecutedUnknown {
		c.Note.Did = deadletter.DidRequeueUnknown
	}
	return c, o.Kind == idempotency.Requeued
}

// runAgain is the path of a requeued call.
func (x *exchange) runAgain() {
	x.prepare()
	x.retries = x.policy.MaxRetries
	x.end = x.rec.Deadline
	x.next = Decision{Do: Retry}
	x.runOn()
}

// staysLetter says that a call which is no letter by itself is one all the same:
// nobody waited for the end of a requeue, or its letter would be closed by an answer
// that only looks like a success.
func (x *exchange) staysLetter() bool {
	return x.lastRun().Kind != idempotency.ByClient || x.letter && x.outcome.suspect
}

// nextRedrive is when a call that ends as a dead letter now is tried again by itself;
// zero: never.
func (x *exchange) nextRedrive() time.Time {
	if x.policy == nil || len(x.policy.Redrive) == 0 {
		return time.Time{}
	}
	now := time.Now()
	rec := x.rec
	rec.State, rec.Reason, rec.Executed, rec.Honoured, rec.Keyless = idempotency.StateDead, x.outcome.decision.Reason, x.executed(), x.honoured, !x.keyed()
	at := deadletter.NextRedrive(x.policy.Redrive, &rec, now)
	if !at.IsZero() {
		at = x.p.keeper.spread(at, now)
		x.p.keeper.expect(at)
	}
	return at
}

// redrive runs a letter again whose time has come, by its policy or by a person. One that
// cannot run now is put off; one that may not, by a rule or a configuration that changed,
// waits for a person, who sees why.
func (p *Proxy) redrive(ctx context.Context, rec *idempotency.Record, now time.Time) {
	order := &deadletter.Order{Kind: idempotency.Redriven}
	l, wanted := deadletter.LaterOf(rec)
	if wanted {
		order = l.Order()
	}
	var err error
	if p.mayWake(rec.Host, now) {
		_, err = p.requeue(ctx, rec, order, func(bool) { p.keeper.exit(rec.Host) })
		if err == nil {
			return
		}
		p.keeper.exit(rec.Host)
	}
	c := idempotency.Change{Now: now, Version: rec.Version, TTL: rec.Expires.Sub(now)}
	switch {
	case err == nil, errors.Is(err, deadletter.ErrNoRoom):
		at, _, _ := p.Limiter.Peek(&limiter.Claim{Host: rec.Host}, now)
		c.NextAt = later(at, now).Add(rand.N(redriveLater))
	case errors.Is(err, deadletter.ErrRefused), errors.Is(err, deadletter.ErrNoRequest):
		c.Note = &idempotency.Note{At: now, By: "retryproxy", Did: deadletter.DidNotRun, Text: err.Error()}
		p.Log.Warn("a dead letter is not tried again by itself", "letter", rec.Receipt, "host", rec.Host, "why", err.Error())
	default:
		return // somebody else has it, or the store does not answer: it comes up again
	}
	if wanted {
		c.TTL = deadletter.Outlives(rec, later(c.NextAt, now), now)
	}
	_, _ = p.Store.Advance(ctx, rec.ID, rec.State, rec.State, c) // else it stays due
	p.keeper.expect(sooner(c.NextAt, now.Add(redriveLater)))
}

// redriveLater is how long letters are put off at most that found no room.
const redriveLater = time.Minute

// withdraw gives up an exchange that began nothing.
func (x *exchange) withdraw() {
	x.body.close()
	x.p.calls.drop(x)
}
