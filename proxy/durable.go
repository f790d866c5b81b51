package proxy

import (
	"context"
	"errors"
	"io"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/inbound"
	"retryproxy/message"
	"retryproxy/upstream"
)

// lasts says whether a durable store keeps the call: it goes on whatever becomes
// of its client and of this process. An upgrade ends with its client.
func (x *exchange) lasts() bool { return x.p.Store.Durable() && x.upgrade() == "" }

// keptRequest is the request as a durable store keeps it: what attempts are made
// of, settled, so that no change of the configuration sends it elsewhere. nil
// where the call does not last.
func (x *exchange) keptRequest() (*idempotency.Request, error) {
	if !x.lasts() {
		return nil, nil
	}
	body, err := x.body.whole()
	if err != nil {
		return nil, err
	}
	in := x.call.Request.Fields
	fields := message.HopByHop(in.Clone(1), x.set.Headers.Keys...)
	if in.Listed("TE", "trailers") {
		fields.Add("TE", "trailers")
	}
	if x.login {
		fields.Del("Authorization") // it was for us
	}
	out := &idempotency.Request{
		Mode: x.mode, Place: x.hops[0].place(), Honoured: x.everywhere(x.policy.KeyHonoured),
		Version: x.call.Request.Version, Fields: fields, Trailers: x.call.Trailers(), Body: body,
		Listener: x.call.Listener.Addr, Client: x.call.Client.String(), User: x.user.Name,
	}
	for i := range x.hops[1:] {
		out.Others = append(out.Others, x.hops[i+1].place())
	}
	return out, nil
}

// place is the hop as it is kept.
func (h *hop) place() idempotency.Place {
	return idempotency.Place{Scheme: h.target.Scheme, Authority: h.authority, Target: h.path, Exempt: h.target.Exempt}
}

// whole is the content in memory; nil: there is none. It is not to be written to.
func (b *requestBody) whole() ([]byte, error) {
	if b.kept == nil {
		return nil, nil
	}
	if all, ok := b.kept.Bytes(); ok {
		return all, nil
	}
	r, err := b.kept.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	all := make([]byte, b.kept.Len())
	_, err = io.ReadFull(r, all)
	return all, err
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
		rec := &pending[i]
		request, err := p.Store.Load(ctx, rec.ID)
		if err != nil && !errors.Is(err, idempotency.ErrNotFound) {
			return recovered, err
		}
		recovered++
		p.detached.Go(func() { p.goOn(rec, request) })
	}
	return recovered, nil
}

// Wait returns when the calls without a client have ended, or with ctx.
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
func (p *Proxy) goOn(rec *idempotency.Record, q *idempotency.Request) {
	x := p.resumed(rec, q)
	defer x.finish()
	r := x.placed(q)
	if r == nil {
		r = x.chooseExits()
	}
	if r == nil {
		r = x.resumePolicy()
	}
	x.describe()
	if r == nil {
		r = x.readBody()
	}
	x.begun = time.Now()
	x.index()
	if r != nil {
		x.cannotGoOn(r)
		return
	}
	x.unheard = !q.Honoured
	x.prepare()
	x.end = rec.Deadline
	x.continueRun()
}

// resumed is the exchange of a call that goes on.
func (p *Proxy) resumed(rec *idempotency.Record, q *idempotency.Request) *exchange {
	if q == nil {
		q = &idempotency.Request{Mode: "forward"}
	}
	req := message.Request{Method: rec.Method, Authority: q.Authority, Target: q.Target, Version: q.Version, Fields: q.Fields}
	call := inbound.Detached(p.base, req, inbound.Absolute, q.Body, q.Trailers, &inbound.Listener{Addr: q.Listener})
	x := p.newExchange(call)
	x.id, x.sum.ID, x.sum.Client, x.sum.Started = rec.Owner, rec.Owner, q.Client, rec.Created
	x.rec, x.key, x.lasting, x.clientless, x.mode = *rec, rec.Key, true, true, q.Mode
	x.flight = p.Flights.Start(rec.ID, rec.Owner)
	x.user.Name, x.labels, x.count = q.User, rec.Labels, rec.ClientCount
	return x
}

// placed fills the hops with the places that were settled when the call came.
func (x *exchange) placed(q *idempotency.Request) *refusal {
	if q == nil {
		return refuse("local_resource", "the request was not kept, so nothing can be sent")
	}
	for i, at := range append([]idempotency.Place{q.Place}, q.Others...) {
		h, err := newHop(at.Scheme, at.Authority, at.Target)
		if err != nil {
			return refuse("bad_request", err.Error())
		}
		h.target.Exempt = at.Exempt
		x.hops = append(x.hops, h)
		if h.host == x.rec.Host {
			x.hop = i // where an attempt was in flight
		}
	}
	return nil
}

// resumePolicy takes the policy that the call began with, as long as there is one
// of that name.
func (x *exchange) resumePolicy() *refusal {
	if r := x.choosePolicy(); r != nil {
		return r
	}
	x.count = x.rec.ClientCount
	if p := x.set.Policies.Named(x.rec.Policy); p != nil {
		x.policy = p
	}
	return nil
}

// cannotGoOn ends a call that this process may not or cannot send. What was in
// flight may have been executed all the same.
func (x *exchange) cannotGoOn(r *refusal) {
	if x.rec.State == idempotency.StateRunning {
		x.rec.Executed = max(x.rec.Executed, classify.ExecutedMaybe)
	}
	x.p.Log.Error("a call that an earlier process left behind cannot go on", "call_id", x.id, "host", x.rec.Host,
		"method", x.rec.Method, "path", x.rec.Path, "shop", x.rec.Labels.Shop, "key_hash", idempotency.KeyHash(x.key),
		"executed", x.rec.Executed.String(), "reason", r.reason, "detail", r.detail)
	if x.rec.Executed != classify.ExecutedNo {
		r = &refusal{reason: "manual_review", detail: r.detail} // and so in doubt
		x.honoured = false
	}
	x.refuse(r)
}

// cutOff is the detail of the attempt that a process did not live to see the end of.
const cutOff = "the proxy ended while the attempt was in flight"

// continueRun takes the run up where it was left. Whatever was in flight then may
// have been executed.
func (x *exchange) continueRun() {
	run := x.lastRun()
	x.earlier = max(x.rec.Attempts+1-run.First, 0)
	x.retries = x.retriesOf(run)
	if x.rec.State == idempotency.StateWaiting {
		x.next = Decision{Do: Retry, At: x.rec.NextAt, Cause: causeBackoff}
		x.runOn()
		return
	}
	t := &tried{Result: upstream.Result{Outcome: classify.Outcome{Phase: classify.PhaseSent, Fault: classify.FaultReset, Detail: cutOff}}}
	t.verdict = x.judge(t)
	t.verdict.HostFault = false // it was our fault
	x.past = append(x.past, attempt.Attempt{
		N: x.rec.Attempts + 1, Count: x.number(), Started: x.rec.Updated, Host: x.rec.Host, Detail: cutOff, Verdict: t.verdict,
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

// retriesOf is how many retries of the run are left, in the count of a new one,
// where the first attempt is none.
func (x *exchange) retriesOf(run idempotency.Run) int {
	before := x.rec
	for len(before.History) > 0 && before.History.Last().N >= run.First {
		before.History = before.History[:len(before.History)-1]
	}
	budget := before.RetriesLeft(x.policy.MaxRetries, x.rec.ClientCount, x.policy.Deadline, run.Started)
	return max(budget-x.earlier, -1) // the first of the earlier ones was no retry, the next one is
}

// lastRun is the run that was not over.
func (x *exchange) lastRun() idempotency.Run {
	if n := len(x.rec.Runs); n > 0 {
		return x.rec.Runs[n-1]
	}
	return idempotency.Run{First: 1}
}

// waitsFirst notes that the call waits before its first attempt: a process that ends
// meanwhile has sent nothing. Without a wait nothing is written.
func (x *exchange) waitsFirst(now time.Time) {
	if x.lasting && x.rec.State == idempotency.StateRunning && len(x.past) == 0 {
		x.advance(idempotency.StateRunning, idempotency.StateWaiting, idempotency.Change{NextAt: now})
	}
}

// leavesIt says that the call is not over, though this process ends: the next one
// goes on with it.
func (x *exchange) leavesIt(d Decision) bool {
	return x.lasting && (d.Reason == "shutting_down" || x.p.base.Err() != nil)
}

// leaveIt answers the client of a call that the next process goes on with: never
// as a failure of the upstream, or it would buy elsewhere.
func (x *exchange) leaveIt() {
	now := time.Now()
	if x.p.base.Err() == nil {
		x.waitsFirst(now)
	}
	x.leaving = true
	x.outcome.decision = Decision{Do: Stop, Reason: "parked", At: now.Add(time.Second)}
	x.outcome.result = "rejected"
	x.rec.Executed = max(x.rec.Executed, classify.ExecutedMaybe)
	x.answerOwn(&problem{
		status: own["parked"], reason: "parked", at: x.outcome.decision.At,
		detail: "this proxy is shutting down; the call goes on when it is back. Ask again with the same key",
	})
}

// settleLater moves a record to its end as soon as the store takes it.
func (x *exchange) settleLater(to idempotency.State, c idempotency.Change) {
	p, id, from := x.p, x.rec.ID, x.rec.State
	p.detached.Go(func() {
		for {
			select {
			case <-time.After(time.Second):
			case <-p.base.Done():
				return
			}
			c.Now = time.Now()
			if _, err := p.Store.Advance(p.base, id, from, to, c); !errors.Is(err, idempotency.ErrUnavailable) {
				return // done, or not ours any more
			}
		}
	})
}
