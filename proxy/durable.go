package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/inbound"
	"retryproxy/internal/spool"
	"retryproxy/message"
	"retryproxy/upstream"
)

// lasts says whether a durable store keeps the call: it goes on whatever becomes
// of its client and of this process. An upgrade ends with its client.
func (x *exchange) lasts() bool {
	return x.key != "" && x.p.durable && x.upgrade() == ""
}

// keptRequest is the request as a durable store keeps it: what attempts are made
// of, settled, so that no change of the configuration sends it elsewhere. nil
// where it cannot be sent again.
func (x *exchange) keptRequest() (*idempotency.Request, error) {
	if !x.p.durable || x.upgrade() != "" || x.body.stream != nil {
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
		Mode: x.mode, Place: x.clientHops()[0].place(), Honoured: x.honoursKey(),
		Version: x.call.Request.Version, Fields: fields, Trailers: x.call.Trailers(), Body: body,
		Listener: x.call.Listener.Addr, Client: x.call.Client.String(), User: x.user.Name,
	}
	for i := range x.clientHops()[1:] {
		out.Others = append(out.Others, x.clientHops()[i+1].place())
	}
	return out, nil
}

// honoursKey says that the key of a keyed call goes to upstreams that may use it.
func (x *exchange) honoursKey() bool { return x.keyed() && x.everywhere(x.keyHonoured) }

// place is the hop as it is kept.
func (h *hop) place() idempotency.Place {
	return idempotency.Place{Scheme: h.target.Scheme, Authority: h.authority, Target: h.path, Exempt: h.target.Exempt}
}

// inFile is how much of the content is not in memory.
func (b *requestBody) inFile() int64 {
	if b.kept == nil {
		return 0
	}
	if _, ok := b.kept.Bytes(); ok {
		return 0
	}
	return b.kept.Len()
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

// Requests are whole in memory on their way to and from the store. Of those that lie
// in files only so much is at a time: bytes to it, and requests from it.
const (
	mostWhole = 128 << 20
	mostRead  = 4
)

// Recover goes on with the calls that an earlier process left in the middle, each in
// a goroutine of its own; those that are parked are woken by Keep. It is called once,
// before new calls come in; ctx bounds the reading of the store only.
func (p *Proxy) Recover(ctx context.Context) (recovered int, err error) {
	pending, err := p.Store.Pending(ctx)
	for i := range pending {
		rec := &pending[i]
		p.crew.goes(p.Log, func() { p.goOn(rec) })
	}
	return len(pending), err
}

// Wait returns when the calls without a client have ended, or with ctx.
func (p *Proxy) Wait(ctx context.Context) error { return p.crew.wait(ctx) }

// fetch reads the request of a record and spools its content, which it takes out of
// it. While the store does not answer, or there is no room for the content, it waits,
// and others have their turn. q is nil when no request was kept. false: this process
// ends first.
func (p *Proxy) fetch(rec *idempotency.Record) (q *idempotency.Request, content *spool.Buffer, ok bool) {
	for {
		select {
		case p.reading <- struct{}{}:
		case <-p.draining:
			return nil, nil, false
		}
		q, content, err := p.fetchOnce(rec)
		<-p.reading
		if err == nil && !p.drained.Load() {
			return q, content, true
		}
		if content != nil {
			content.Close()
		}
		select {
		case <-time.After(time.Second):
		case <-p.draining:
			return nil, nil, false
		}
	}
}

// fetchOnce is fetch as things stand. Content that could never be kept stays in q.
func (p *Proxy) fetchOnce(rec *idempotency.Record) (*idempotency.Request, *spool.Buffer, error) {
	q, err := p.Store.Load(p.base, rec.ID)
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	size := int64(len(q.Body))
	if size == 0 || !p.Spool.Holds(size) {
		return q, nil, nil
	}
	content, err := p.Spool.Fill(bytes.NewReader(q.Body), size, size) // what was taken once is taken again, whatever body.limit is now
	if err != nil {
		return nil, nil, err
	}
	q.Body = nil
	return q, content, nil
}

// goOn is the path of a call whose process ended, or that was parked.
func (p *Proxy) goOn(rec *idempotency.Record) {
	q, content, ok := p.fetch(rec)
	if !ok {
		return // the next process finds it as it is
	}
	x := p.resumed(rec, q)
	x.body = requestBody{kept: content, call: x.call}
	defer x.finish()
	r := x.placed(q)
	if r == nil && len(q.Body) > 0 {
		r = refuse("local_resource", "its body is larger than all that bodies may take (body.memory_total, body.disk_total)")
	}
	if r == nil {
		r = x.chooseExits()
	}
	if r == nil {
		r = x.resumePolicy()
	}
	x.describe()
	x.begun = time.Now()
	x.index()
	if r != nil {
		x.cannotGoOn(r)
		return
	}
	x.recogniseAgain()
	x.unheard = !q.Honoured
	if r = x.goesBack(); r != nil {
		x.cannotGoOn(r)
		return
	}
	x.prepare()
	x.end = rec.Deadline
	run := x.lastRun()
	x.earlier = max(x.rec.Attempts+1-run.First, 0)
	if x.parkedFor(time.Now()) > x.set.KeyTTL {
		x.conclude(nil, x.tooLate())
		return
	}
	x.continueRun(run)
}

// tooLate is the end of a call that was parked for as long as it may be: what it
// waited for is why, but for a shutdown, which is long over.
func (x *exchange) tooLate() Decision {
	if x.rec.Reason == "shutting_down" {
		return stop("deadline_exceeded")
	}
	return stop(x.rec.Reason)
}

// parkedFor is how long the run has waited without a client.
func (x *exchange) parkedFor(now time.Time) time.Duration {
	if x.rec.Parked.IsZero() {
		return 0
	}
	return now.Sub(x.rec.Parked)
}

// parkFor is how long the call may still be parked; 0: not at all.
func (x *exchange) parkFor(now time.Time) time.Duration {
	if !x.lasting {
		return 0
	}
	return max(x.set.KeyTTL-x.parkedFor(now), 0)
}

// detachedCall is the kept request as a call without a client.
func (p *Proxy) detachedCall(rec *idempotency.Record, q *idempotency.Request) *inbound.Call {
	req := message.Request{Method: rec.Method, Authority: q.Authority, Target: q.Target, Version: q.Version, Fields: q.Fields}
	return inbound.Detached(p.base, req, inbound.Absolute, q.Body, q.Trailers, &inbound.Listener{Addr: q.Listener})
}

// resumed is the exchange of a call that goes on.
func (p *Proxy) resumed(rec *idempotency.Record, q *idempotency.Request) *exchange {
	if q == nil {
		q = &idempotency.Request{Mode: "forward"}
	}
	origin := attempt.OriginRestart
	if !rec.Parked.IsZero() {
		origin = attempt.OriginParked
	}
	x := p.exchangeOf(rec, q, origin)
	x.mu.Lock() // operators may look already
	x.id, x.sum.ID, x.sum.Started, x.lasting = rec.Owner, rec.Owner, rec.Created, true
	x.mu.Unlock()
	x.note(rec.ID)
	x.resumes = true
	x.flight = p.Flights.Start(rec.ID, rec.Owner)
	return x
}

// exchangeOf is an exchange for a kept request, without its client. origin is what
// began it.
func (p *Proxy) exchangeOf(rec *idempotency.Record, q *idempotency.Request, origin string) *exchange {
	x := p.newExchange(p.detachedCall(rec, q))
	x.mu.Lock() // operators may look already
	x.sum.Client, x.sum.Origin = q.Client, origin
	x.mu.Unlock()
	x.rec, x.key, x.keyless, x.mode = *rec, rec.Key, rec.Keyless, q.Mode
	x.user.Name, x.labels, x.count = q.User, rec.Labels, rec.ClientCount
	x.resumeTrace(rec, nil)
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

// resumePolicy takes the policy or variant that the call began with, as long as there
// is one of that name; of a variant that is gone, its policy.
func (x *exchange) resumePolicy() *refusal {
	if r := x.choosePolicy(); r != nil {
		return r
	}
	x.count = x.rec.ClientCount
	if p := x.set.Policies.Named(x.rec.Policy); p != nil {
		x.policy = p
	}
	x.policy = x.policy.Arm(x.rec.Tenant, x.jitterID())
	return nil
}

// cannotGoOn ends a call that this process may not or cannot send. What was in
// flight may have been executed all the same.
func (x *exchange) cannotGoOn(r *refusal) {
	if x.rec.State == idempotency.StateRunning {
		x.rec.Executed = max(x.rec.Executed, classify.ExecutedMaybe)
	}
	x.p.Log.Error("a call that was begun earlier cannot go on", "call_id", x.id, "host", x.rec.Host,
		"method", x.rec.Method, "path", x.rec.Path, "shop", x.rec.Labels.Shop, "key_hash", idempotency.KeyHash(x.key),
		"executed", x.rec.Executed.String(), "reason", r.reason, "detail", r.detail)
	if x.rec.Executed != classify.ExecutedNo {
		r = &refusal{reason: "manual_review", detail: r.detail} // and so in doubt
		x.honoured = false
	}
	x.outcome.refusal, x.outcome.decision = r, stop(r.reason)
	x.answerOwn(&problem{status: x.refusalStatus(r), reason: r.reason, detail: r.detail})
}

// cutOff is the detail of the attempt that a process did not live to see the end of.
const cutOff = "the proxy ended while the attempt was in flight"

// continueRun takes the run up where it was left. Whatever was in flight then may
// have been executed.
func (x *exchange) continueRun(run idempotency.Run) {
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
		Supplier: x.supplier().Name,
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
	if x.backup != nil {
		return max(x.policy.MaxRetries-x.here(), -1)
	}
	before := x.rec
	for len(before.History) > 0 && before.History.Last().N >= run.First {
		before.History = before.History[:len(before.History)-1]
	}
	if run.Kind != idempotency.ByClient {
		return max(x.policy.MaxRetries-x.earlier, -1)
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

// leavesIt says that the call is not over, though this process ends at once: the
// next one goes on with it. What came whole before a hard stop is its answer.
func (x *exchange) leavesIt(t *tried, d Decision) bool {
	whole := t != nil && t.whole && t.failed == nil
	return x.lasting && (d.Reason == "shutting_down" || x.p.base.Err() != nil && !whole)
}

// leaveIt answers the client of a call that the next process goes on with.
func (x *exchange) leaveIt() {
	now := time.Now()
	if x.p.base.Err() == nil {
		x.waitsFirst(now)
	}
	x.leaving = true
	x.answerGoesOn(Decision{Do: Park, Reason: "shutting_down", At: now.Add(time.Second)})
}

// park gives the call to the store: it goes on at the date, without its client.
func (x *exchange) park(d Decision) {
	x.release()
	now := time.Now()
	d.At = later(d.At, now)
	if d.Reason != "shutting_down" { // a planned retry has its jitter
		d.At = x.p.keeper.spread(d.At, now)
	}
	c := idempotency.Change{Owner: x.id, Append: x.unsaved(), Reason: d.Reason, NextAt: d.At, Executed: x.executed()}
	x.leaving = true
	if !x.advance(x.rec.State, idempotency.StateParked, c) {
		x.settleLater(idempotency.StateParked, c)
	}
	x.p.keeper.expect(d.At)
	x.answerGoesOn(d)
}

// answerGoesOn answers the client, and all who wait with it, that the call goes on.
func (x *exchange) answerGoesOn(d Decision) {
	x.outcome.decision, x.outcome.result = Decision{Do: Stop, Reason: "parked", At: d.At, Dimension: d.Dimension}, "rejected"
	rec, err := x.p.receipt(context.WithoutCancel(x.call.Context()), x.rec.ID)
	if err != nil {
		rec = idempotency.Record{NextAt: d.At, Method: x.rec.Method, Host: x.rec.Host, Path: x.rec.Path, History: x.past}
	}
	rec.Reason = d.Reason
	x.rec.Executed = max(x.rec.Executed, classify.ExecutedMaybe)
	x.answerParked(&rec, "")
}

// answerParked writes the answer to a client whose call goes on.
func (x *exchange) answerParked(rec *idempotency.Record, applied string) {
	out, body := x.goesOn(rec, applied)
	x.settleOwn(out, body)
	_ = x.write(out, x.policy.BodyIdleTimeout)
}

// settleLater moves a record to its end as soon as the store takes it.
func (x *exchange) settleLater(to idempotency.State, c idempotency.Change) {
	p, id, from := x.p, x.rec.ID, x.rec.State
	p.crew.goes(p.Log, func() {
		for {
			select {
			case <-time.After(time.Second):
			case <-p.base.Done():
				return
			}
			c.Now = time.Now()
			if _, err := p.Store.Advance(p.base, id, from, to, c); !errors.Is(err, idempotency.ErrUnavailable) {
				p.keeper.expect(c.NextAt)
				return // done, or not ours any more
			}
		}
	})
}
