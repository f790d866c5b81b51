package proxy

import (
	"bytes"
	"context"
	"errors"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/inbound"
	"retryproxy/message"
	"retryproxy/upstream"
)

// durable says that the call goes on whatever becomes of its client and of this
// process: its record, request included, outlives both.
func (x *exchange) durable() bool { return x.lasting }

// keepsRequest is the request as a durable store keeps it; nil where there is
// none, or where nobody could go on without the client.
func (x *exchange) keepsRequest() (*idempotency.Request, error) {
	if !x.p.Store.Durable() || x.upgrade() != "" {
		return nil, nil
	}
	var body bytes.Buffer
	if err := x.body.copyTo(&body); err != nil {
		return nil, err
	}
	r := &x.call.Request
	out := &idempotency.Request{
		Mode: x.mode, Scheme: r.Scheme, Authority: r.Authority, Target: r.Target, Version: r.Version,
		Fields: message.HopByHop(r.Fields.Clone(0), x.set.Headers.Keys...), Trailers: x.call.Trailers(),
		Listener: x.call.Listener.Addr, Client: x.call.Client.String(), User: x.user.Name,
	}
	if x.mode == "intercept" {
		out.Scheme = "https"
	} else if out.Scheme == "" {
		out.Scheme = "http"
	}
	if x.body.kept != nil {
		out.Body = body.Bytes()
	}
	return out, nil
}

// Recover goes on with the calls that an earlier process left behind, each in a
// goroutine of its own. It is called once, before new calls come in; ctx bounds
// the reading of the store only.
func (p *Proxy) Recover(ctx context.Context) (recovered int, err error) {
	pending, err := p.Store.Pending(ctx)
	if err != nil {
		return 0, err
	}
	for i := range pending {
		rec := pending[i]
		request, err := p.Store.Load(ctx, rec.ID)
		if err != nil && !errors.Is(err, idempotency.ErrNotFound) {
			return recovered, err
		}
		recovered++
		p.detached.Go(func() { p.goOn(&rec, request) })
	}
	return recovered, nil
}

// Wait returns when the calls that Recover began have ended, or with ctx.
func (p *Proxy) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { // ends with them; a hard stop ends them
		p.detached.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// goOn is the path of a call whose process ended.
func (p *Proxy) goOn(rec *idempotency.Record, request *idempotency.Request) {
	kept := request != nil
	if !kept {
		request = &idempotency.Request{Mode: "forward", Scheme: "http", Authority: rec.Host, Target: rec.Path, Version: "1.1"}
	}
	x := p.resumedExchange(rec, request)
	defer x.finish()
	r := x.understandAgain(request)
	if r == nil && !kept {
		r = refuse("local_resource", "the request was not kept, so nobody but its client can go on with it")
	}
	x.describe()
	if r == nil {
		r = x.readBody()
	}
	x.begun = time.Now()
	if r != nil {
		x.abort(r)
		return
	}
	x.prepare()
	x.end = rec.Deadline
	x.continueRun()
}

// abort ends a call that cannot go on. An attempt that was in flight may have
// been executed all the same: its key must not be free for another.
func (x *exchange) abort(r *refusal) {
	if x.rec.State != idempotency.StateRunning {
		x.refuse(r)
		return
	}
	x.rec.Executed = max(x.rec.Executed, classify.ExecutedMaybe)
	x.outcome.refusal = r
	x.outcome.decision = stop("manual_review")
	x.answerOwn(&problem{status: 502, reason: "manual_review", detail: "the proxy ended while the attempt was in flight, and cannot go on: " + r.detail})
}

// resumedExchange is the exchange of a call that goes on.
func (p *Proxy) resumedExchange(rec *idempotency.Record, q *idempotency.Request) *exchange {
	req := message.Request{Method: rec.Method, Scheme: q.Scheme, Authority: q.Authority, Target: q.Target, Version: q.Version, Fields: q.Fields}
	form := inbound.Absolute
	if q.Mode == "reverse" {
		form, req.Scheme = inbound.Origin, ""
	}
	call := inbound.Detached(p.base, req, form, q.Body, q.Trailers, &inbound.Listener{Addr: q.Listener})
	x := p.newExchange(call)
	x.id, x.sum.ID, x.sum.Client, x.sum.Started = rec.Owner, rec.Owner, q.Client, rec.Created
	x.rec, x.key, x.lasting = *rec, rec.Key, true
	x.flight = p.Flights.Start(rec.ID, rec.Owner)
	x.user.Name, x.labels, x.count = q.User, rec.Labels, rec.ClientCount
	return x
}

// understandAgain settles where the call goes and by which rules it lives, as
// far as that was not settled when it came.
func (x *exchange) understandAgain(q *idempotency.Request) *refusal {
	for _, step := range [...]func() *refusal{x.route, x.chooseExits, x.choosePolicy} {
		if r := step(); r != nil {
			return r
		}
	}
	x.count = x.rec.ClientCount
	if p := x.set.Policies.Named(x.rec.Policy); p != nil {
		x.policy = p // the one it began with, as long as there is one of that name
	}
	x.mode = q.Mode
	return nil
}

// continueRun takes the run up where it was left. Whatever was in flight then may
// have been executed.
func (x *exchange) continueRun() {
	x.earlier = x.rec.Attempts + 1 - x.lastRun().First
	if x.rec.State == idempotency.StateWaiting {
		x.next = Decision{Do: Retry, At: x.rec.NextAt, Cause: causeBackoff}
		x.retries = max(x.retries, 1) - 1 // the one that was planned
		x.runOn()
		return
	}
	t := &tried{Result: upstream.Result{Outcome: classify.Outcome{
		Phase: classify.PhaseSent, Fault: classify.FaultReset, Detail: "the proxy ended while the attempt was in flight",
	}}}
	t.verdict = x.judge(t)
	x.past = append(x.past, attempt.Attempt{
		N: x.rec.Attempts + 1, Count: x.number(), Started: x.rec.Updated, Host: x.rec.Host,
		Detail: t.Outcome.Detail, Verdict: t.verdict,
	})
	x.next = x.decide(t)
	if x.next.Do == Retry {
		x.next = x.plan(t, x.next)
	}
	if x.next.Do != Retry {
		x.conclude(nil, x.next)
		return
	}
	x.runOn()
}

// lastRun is the run that was not over.
func (x *exchange) lastRun() idempotency.Run {
	if n := len(x.rec.Runs); n > 0 {
		return x.rec.Runs[n-1]
	}
	return idempotency.Run{First: 1}
}

// leavesIt says that the call is not over, though this process ends: the next one
// goes on with it.
func (x *exchange) leavesIt(d Decision) bool {
	return x.durable() && (d.Reason == "shutting_down" || x.p.base.Err() != nil)
}

// leaveIt answers the client of a call that the next process goes on with: never
// as a failure of the upstream, or it would buy elsewhere.
func (x *exchange) leaveIt() {
	now := time.Now()
	if x.rec.State == idempotency.StateRunning && x.p.base.Err() == nil {
		x.advance(idempotency.StateRunning, idempotency.StateWaiting, idempotency.Change{Append: x.unsaved(), Reason: "shutting_down", NextAt: now})
	}
	x.ended = true
	x.outcome.decision = Decision{Do: Stop, Reason: "parked", At: now.Add(time.Second)}
	x.outcome.result = "rejected"
	x.rec.Executed = max(x.rec.Executed, classify.ExecutedMaybe)
	x.answerOwn(&problem{
		status: own["parked"], reason: "parked", at: x.outcome.decision.At,
		detail: "this proxy is shutting down; the call goes on when it is back. Ask again with the same key",
	})
}
