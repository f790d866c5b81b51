package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"retryproxy/idempotency"
	"retryproxy/inbound"
	"retryproxy/message"
)

// patient is how long a client is held while its durable call goes on.
type patient struct {
	until   time.Time // zero: to its end
	applied string    // what of Prefer that is due to
}

// holdsClient says whether the client is let go before the end of its call.
func (x *exchange) holdsClient() bool { return x.lasting && !x.patience.until.IsZero() }

// readPatience reads how long the client of a keyed call is held.
func (x *exchange) readPatience() {
	if !x.lasts() {
		return
	}
	said := parsePrefer(x.call.Request.Fields.Values("Prefer"))
	if said.bad {
		x.p.ignored("prefer_wait")
	}
	if d, applied, ok := said.hold(x.policy.ClientHold); ok {
		x.patience = patient{x.begun.Add(d), applied}
	}
}

// runHeld works on the call in a goroutine of its own, so that this one can let
// the client go.
func (x *exchange) runHeld() {
	client, held, done := x.call, inbound.Hold(x.p.base, x.call), make(chan struct{})
	id, until, ended := x.rec.ID, x.patience.until, false
	x.held, x.call, x.body.call = held, held.Call, held.Call
	x.p.crew.goes(x.p.Log, func() {
		defer close(done)
		defer x.finish()
		x.run()
		ended = true
	})
	if rec, let := x.holdUntil(until, done, id); let && held.Release() {
		x.letGo(client, &rec)
		return
	}
	<-done
	if !ended {
		panic("the work on a call whose client is held panicked") // so that its connection ends
	}
}

// holdUntil waits until the client is to be let go, for which its receipt must be
// known, or its call is over.
func (x *exchange) holdUntil(until time.Time, done <-chan struct{}, id idempotency.ID) (rec idempotency.Record, let bool) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		select {
		case <-done:
			return rec, false
		case <-timer.C:
		}
		rec, err := x.p.receipt(x.p.base, id)
		if err == nil {
			return rec, true
		}
		x.p.Log.Warn("a client is held on: its receipt cannot be had", "call_id", x.id, "error", err)
		timer.Reset(time.Second)
	}
}

// letGo answers a client whose call goes on. What changes meanwhile is not looked at.
func (x *exchange) letGo(client *inbound.Call, rec *idempotency.Record) {
	out, _ := x.goesOn(rec, x.patience.applied)
	if x.p.drained.Load() {
		client.KeepAlive = false
	}
	_, _ = client.Answer(out, x.policy.BodyIdleTimeout) // whether it is still there changes nothing
}

// isAlone says that nobody hears how the call ends: its client was let go, or spoke to
// an earlier process, and no repeat waits for it.
func (x *exchange) isAlone() bool {
	left := x.resumes || x.held != nil && !x.held.Keep()
	return left && (x.flight == nil || x.flight.Waiters() == 0)
}

// receipt gives a record its receipt, and the record. Whatever happens to it
// meanwhile: it is read again.
func (p *Proxy) receipt(ctx context.Context, id idempotency.ID) (rec idempotency.Record, err error) {
	for range 8 {
		rec, err = p.Store.Get(ctx, id, time.Now())
		if err != nil || rec.Receipt != "" {
			return rec, err
		}
		moved, err := p.Store.Advance(ctx, id, rec.State, rec.State, idempotency.Change{Now: time.Now(), Receipt: true})
		if !errors.Is(err, idempotency.ErrConflict) {
			moved.Answer = rec.Answer
			return moved, err
		}
	}
	return rec, idempotency.ErrConflict
}

// goesOn is the answer to a client whose call is not over: 202 with a receipt or,
// with on_park 503, our own 503. Never a failure of an upstream, or it would buy
// elsewhere. It reads nothing of the call that changes.
func (x *exchange) goesOn(rec *idempotency.Record, applied string) (out *message.Response, body []byte) {
	now := time.Now()
	at := now.Add(askAgainIn(rec, now))
	kind := "application/json"
	if x.policy.OnPark == 202 {
		body = encoded(receiptView(rec, x.id))
	} else {
		kind, body = "application/problem+json", encoded(parkedProblem(rec, x.id))
	}
	f := append(make(message.Fields, 0, 12), message.Field{Name: "Content-Type", Value: kind})
	f.Add(hCallID, x.id)
	if rec.Attempts > 0 {
		f.Add(hCount, strconv.Itoa(rec.History.Last().Count))
	}
	f.Add(hReason, "parked")
	f.Add(hExecuted, "maybe")
	f.Add(hAdvice, "check")
	f.Add("Retry-After", strconv.Itoa(wholeSeconds(at.Sub(now))))
	f.Add("Cache-Control", "no-store")
	if rec.Receipt != "" {
		f.Add("Location", receiptPath+rec.Receipt)
	}
	if applied != "" && x.policy.OnPark == 202 {
		f.Add("Preference-Applied", applied)
	}
	f.Add(hStatus, x.set.Instance+`; details="parked"`)
	return &message.Response{Status: x.policy.OnPark, Fields: f, Length: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}, body
}

// askAgainIn is when it makes sense to ask for a receipt again.
func askAgainIn(rec *idempotency.Record, now time.Time) time.Duration {
	if rec.NextAt.After(now) {
		return rec.NextAt.Sub(now)
	}
	return time.Second
}
