package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/inbound"
	"retryproxy/limiter"
	"retryproxy/message"
	"retryproxy/policy"
	"retryproxy/presets"
	"retryproxy/query"
	"retryproxy/template"
)

// Where a call waits for the next question, or its client for what comes of them.
const causeQuery = "query"

// byQuery signs the notes that questions leave in a record. What they did is the prefix
// and the answer: the notes are all that has to be remembered of them.
const (
	byQuery   = "query"
	didQuery  = "query_"
	didGiveUp = "query_gave_up"
)

// queries says how the call's supplier is asked; nil: it is not.
func (x *exchange) queries() (*presets.Preset, *presets.Query) {
	if x.backup != nil { // nobody else knows of its order
		return x.backup.preset, x.backup.preset.Query
	}
	if x.policy == nil || x.policy.Query == "" || x.mode == "connect" || x.body.stream != nil {
		return nil, nil
	}
	p := x.set.Presets.Named(x.policy.Query)
	if p == nil {
		return nil, nil
	}
	return p, p.Query
}

// asks says that the call ends in a doubt that a question may settle.
func (x *exchange) asks(d Decision) bool {
	if d.Do != Stop || d.Reason != "manual_review" || x.executed() != classify.ExecutedMaybe {
		return false
	}
	_, q := x.queries()
	return q != nil
}

// asksHere asks in the call's own goroutine, where nothing is left of it when that ends:
// without a key, or with a store that is not durable. True: the call goes on or is over.
func (x *exchange) asksHere(t *tried, d Decision) (settled bool) {
	if x.lasting || !x.asks(d) {
		return false
	}
	_, q := x.queries()
	x.keep(t)
	x.release()
	s := query.State{Since: time.Now()}
	for at := q.Plan.First(s.Since); ; {
		if !x.waitToAsk(at) {
			x.conclude(nil, d)
			return true
		}
		a := x.question(x.call.Context())
		if !a.putOff.IsZero() {
			at = a.putOff
			continue
		}
		s = s.Add(a.means)
		switch do, next := q.Plan.Next(s, a.means, time.Now()); do {
		case query.Conclude:
			x.concludeFrom(a)
			return true
		case query.NotExecuted:
			x.goesOnAfter(d)
			return true
		case query.Person:
			x.conclude(nil, d)
			return true
		default:
			at = next
		}
	}
}

// waitToAsk waits for the date of a question; false: nobody waits for its answer.
func (x *exchange) waitToAsk(at time.Time) bool {
	if at.After(x.end) || x.p.drained.Load() {
		return false
	}
	x.show(stateWaiting, nil)
	defer x.show(stateRunning, nil)
	began := time.Now()
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	ok := false
	select {
	case <-timer.C:
		ok = true
	case <-x.call.Context().Done():
		ok = x.wanted() && x.flight != nil && x.p.base.Err() == nil && x.sleepOn(timer.C)
	case <-x.p.draining:
	}
	spent := time.Since(began)
	x.away += spent
	x.waits = append(x.waits, attempt.Wait{Cause: causeQuery, For: spent, Began: began, Planned: max(at.Sub(began), 0)})
	return ok
}

// sleepOn waits on for those that wait with the call, whose own client left.
func (x *exchange) sleepOn(over <-chan time.Time) bool {
	select {
	case <-over:
		return true
	case <-x.p.draining:
		return false
	}
}

// goesOnAfter repeats a call that was not executed, as long as it has retries left.
func (x *exchange) goesOnAfter(d Decision) {
	x.mu.Lock()
	last := &x.past[len(x.past)-1].Verdict
	last.Executed, last.Basis, last.Class = classify.ExecutedNo, classify.BasisQuery, classify.Transient
	x.mu.Unlock()
	if x.left()+1 <= 0 {
		x.next = stop("attempts_exhausted")
		if !x.handOn(nil, x.next) {
			x.conclude(nil, x.next)
		}
		return
	}
	x.next = Decision{Do: Retry, Reason: d.Reason, Cause: causeQuery, At: time.Now()}
}

// concludeFrom answers the client from what the supplier said of its order.
func (x *exchange) concludeFrom(a asked) {
	x.outcome.decision = Decision{Do: Deliver, Reason: "ok"}
	x.dropKept()
	x.raise(classify.ExecutedYes)
	out := &message.Response{
		Status: a.status, Fields: fromUpstream(a.fields, a.status),
		Length: int64(len(a.body)), Body: io.NopCloser(bytes.NewReader(a.body)),
	}
	if x.key != "" && x.flight != nil && !x.ended {
		kept := a.stored(x.set.MaxResponse, time.Now())
		x.settled = true
		x.land(out, kept.Body, kept.Kept)
		x.endRecord(idempotency.StateDone, idempotency.Change{Answer: kept})
	}
	x.mark(&out.Fields, "", time.Time{})
	_ = x.write(out, x.policy.BodyIdleTimeout)
}

// asked is one question and its answer.
type asked struct {
	means   query.Answer
	message string // of the supplier, short
	status  int
	fields  message.Fields
	body    []byte
	putOff  time.Time // it was not asked at all, and may be then; zero: it was
}

// stored is the answer as the record of the order keeps it.
func (a *asked) stored(most int64, now time.Time) *idempotency.Answer {
	s := &idempotency.Answer{
		Status: a.status, Fields: idempotency.StoredFields(fromUpstream(a.fields, a.status)),
		Kept: int64(len(a.body)) <= most, Stored: now,
	}
	if s.Kept {
		s.Body = a.body
	}
	return s
}

// question asks once what became of the call, by a call of our own: one attempt, through
// the gate of its host and the exit of the shop.
func (x *exchange) question(ctx context.Context) (a asked) {
	p, q := x.queries()
	if at, ok := x.mayAsk(ctx, p, q); !ok {
		return asked{putOff: at, message: "too many questions to this supplier"}
	}
	r, err := x.filled(&q.Request, q.Sign, p.Name, x.backup)
	if err == nil {
		a = x.sendQuestion(p, q, r)
	} else {
		x.p.Log.Error("what became of an order cannot be asked", "call_id", x.id, "preset", p.Name, "error", err.Error())
		a = asked{means: query.Unclear, message: err.Error()}
	}
	if h := x.p.Hooks.Query; h != nil && a.putOff.IsZero() {
		h(p.Name, a.means.String())
	}
	return a
}

// longestLine is how long a question waits for its place among all to one supplier; what
// would wait longer comes up again.
const longestLine = 10 * time.Second

// mayAsk waits for the question's place among all to its supplier; false: there is none
// before at.
func (x *exchange) mayAsk(ctx context.Context, p *presets.Preset, q *presets.Query) (at time.Time, ok bool) {
	now := time.Now()
	place, at, ok := x.p.Rates.Take(limiter.RateKey{Platform: p.Name, Operation: causeQuery}, q.Rate, q.Burst, now, now.Add(longestLine))
	if !ok {
		return at, false
	}
	timer := time.NewTimer(at.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return at, true
	case <-ctx.Done():
		place.GiveBack(time.Now())
		return at, false
	}
}

// askingPolicy is by which rules a question lives: one attempt.
func (x *exchange) askingPolicy() *policy.Policy {
	p := *x.policy
	p.Name, p.MaxRetries, p.DeadLetter, p.Variants, p.Query = "query", 0, "none", nil, ""
	p.ForwardHeaders, p.ForwardHeadersSet = nil, true
	p.Deadline = p.ConnectTimeout + p.PerTryTimeout
	return &p
}

func (x *exchange) sendQuestion(p *presets.Preset, q *presets.Query, r *template.Request) (a asked) {
	req := message.Request{Method: r.Method, Scheme: r.Scheme, Authority: r.Authority, Target: r.Target, Version: "1.1", Fields: r.Fields}
	y := x.p.newExchange(inbound.Detached(x.p.base, req, inbound.Absolute, r.Body, nil, x.call.Listener))
	defer y.finish()
	y.mu.Lock()
	y.sum.Origin, y.sum.Client = causeQuery, x.sum.Client
	y.mu.Unlock()
	h, err := newHop(r.Scheme, r.Authority, r.Target)
	if err != nil {
		return asked{means: query.Unclear, message: err.Error()}
	}
	h.target.Exempt = true // the operator's preset names it
	y.mode, y.user, y.labels, y.hops = "forward", x.user, x.labels, []hop{h}
	y.policy, y.preset = x.askingPolicy(), p
	y.attrs = policy.Attrs{Host: h.host, Method: r.Method, Shop: x.labels.Shop, TaskType: x.labels.TaskType}
	y.attrs.Path, _, _ = strings.Cut(h.path, "?")
	y.resumes = true // it is none of the fresh calls
	y.resumeTrace(&x.rec, x.trace)
	y.describe()
	refused := y.chooseExits()
	if refused == nil {
		refused = y.readBody()
	}
	y.begun = time.Now()
	if refused != nil {
		y.outcome.refusal, y.outcome.decision = refused, stop(refused.reason)
		return asked{message: refused.detail}
	}
	return y.heardOf(q)
}

// heardOf makes the one attempt of a question.
func (x *exchange) heardOf(q *presets.Query) (a asked) {
	preset := x.preset
	x.preset = nil // what it means is for the rules of the question
	x.asksOnly = true
	x.prepare()
	x.next = Decision{Do: Retry}
	x.await()
	if x.turn.Refused != "" { // nothing was asked
		x.outcome.decision = refusedTurn(&x.turn)
		return asked{message: x.turn.Refused, putOff: later(x.turn.At, time.Now().Add(q.Plan.Every))}
	}
	t := x.try()
	defer x.release()
	if t.Response == nil || t.failed != nil {
		x.outcome.decision = stop(t.verdict.Reason)
		return asked{message: t.verdict.Reason}
	}
	defer t.Response.Body.Close()
	x.outcome.decision, x.outcome.status = Decision{Do: Deliver, Reason: "ok"}, t.Response.Status
	if !t.whole {
		return asked{message: "the answer is too long"}
	}
	a = asked{status: t.Response.Status, fields: t.Response.Fields, body: t.head}
	a.means, a.message = q.Hear(preset, &presets.Response{Status: a.status, Fields: a.fields, Head: t.head, Whole: t.whole}, int(x.set.Body.Inspect), time.Now())
	return a
}

// What follows is about calls that a durable store keeps: the keeper asks, and whoever
// waits looks at the record.

// underQuestion says that a record in doubt is being asked about: its date is that of the
// next question, and not that of its end, nor one that a person gave it.
func underQuestion(rec *idempotency.Record) bool {
	if rec.State != idempotency.StateInDoubt || rec.NextAt.IsZero() || !rec.NextAt.Before(rec.Expires.Add(-time.Second)) {
		return false
	}
	_, wanted := deadletter.LaterOf(rec)
	return !wanted
}

// firstQuestion is when a call that ends in doubt is asked about; zero: it is not.
func (x *exchange) firstQuestion(now time.Time) time.Time {
	_, q := x.queries()
	if q == nil || !x.lasting {
		return time.Time{}
	}
	return q.Plan.First(now)
}

// asksLater gives the doubt to the keeper, and lets the client wait for what comes of it
// as long as it would have waited for the call. taken: t is kept, or gone.
func (x *exchange) asksLater(t *tried, d Decision) (taken, answered bool) {
	if !x.lasting || !x.keyed() || x.honoured || !x.asks(d) {
		return false, false
	}
	if t != nil {
		x.keep(t)
	}
	x.release()
	x.settled = true
	x.endRecord(idempotency.StateInDoubt, idempotency.Change{Answer: x.lastKept()})
	return true, x.sum.Origin == "" && x.waitsForAnswer()
}

// waitsForAnswer lets the call's own client wait; true: it was answered.
func (x *exchange) waitsForAnswer() bool {
	x.show(stateWaiting, nil)
	for time.Now().Before(x.end) {
		if x.sleep(nil, x.askAgainIn(askAgainOfQuestion)) {
			break
		}
		rec, err := x.p.Store.Get(context.WithoutCancel(x.call.Context()), x.rec.ID, time.Now())
		if err != nil || underQuestion(&rec) {
			continue
		}
		x.rec.State, x.rec.Answer, x.rec.Executed = rec.State, rec.Answer, rec.Executed
		switch rec.State {
		case idempotency.StateDone:
			x.answerSettled(rec.Answer)
			return true
		case idempotency.StateRunning, idempotency.StateWaiting, idempotency.StateParked:
			x.rec = rec
			if x.follow(rec.ID, x.end) {
				return true
			}
			continue
		}
		return false // nobody but a person can tell, or it is not to be repeated
	}
	return false
}

// answerSettled answers the call's own client from what a question brought.
func (x *exchange) answerSettled(a *idempotency.Answer) {
	if a == nil || !a.Kept {
		x.replay(a)
		return
	}
	x.outcome.decision, x.outcome.result = Decision{Do: Deliver, Reason: "ok"}, "recovered"
	out := x.recalled(a)
	x.mark(&out.Fields, "", time.Time{})
	_ = x.write(out, x.policy.BodyIdleTimeout)
}

// waitsForQuestion lets a repeat wait for what comes of the questions; false: it is asked
// for its key again.
func (x *exchange) waitsForQuestion(end time.Time) (over bool) {
	if x.patience.until.IsZero() || end.Before(x.patience.until) {
		return !time.Now().Before(end) || x.sleep(nil, x.askAgainIn(askAgainOfQuestion))
	}
	return !time.Now().Before(x.patience.until) || x.sleep(nil, x.askAgainIn(askAgainOfQuestion))
}

// stateOf is what was asked about a record since its last attempt.
func stateOf(rec *idempotency.Record) query.State {
	last := rec.History.Last()
	s := query.State{Since: last.Started.Add(last.Duration), Known: last.Verdict.Reason == classify.Processing.String()}
	if n := len(rec.Runs); n > 0 { // of an attempt that was cut off nobody knows when it ended
		s.Since = later(s.Since, rec.Runs[n-1].Ended)
	}
	for _, n := range rec.Notes {
		if n.By != byQuery || n.At.Before(s.Since) {
			continue
		}
		if a, ok := query.ParseAnswer(strings.TrimPrefix(n.Did, didQuery)); ok {
			s = s.Add(a)
		}
	}
	return s
}

// rounds is how often a question said that the order was not executed.
func rounds(rec *idempotency.Record) (n int) {
	for _, note := range rec.Notes {
		if note.By == byQuery && note.Did == didQuery+"not_executed" {
			n++
		}
	}
	return n
}

// leaseQuestion is for how long nobody else asks about a record.
const leaseQuestion = 2 * time.Minute

// askAbout asks once about a record in doubt whose question is due, and writes down what
// came of it. Before that it is claimed: another process does not ask at the same time,
// and asks when this one does not live to hear the answer.
func (p *Proxy) askAbout(rec *idempotency.Record) {
	now := time.Now()
	claimed, err := p.Store.Advance(p.base, rec.ID, idempotency.StateInDoubt, idempotency.StateInDoubt, idempotency.Change{
		Now: now, Version: rec.Version, NextAt: now.Add(leaseQuestion), TTL: p.Settings().KeyTTL,
	})
	if err != nil {
		return // somebody else has it, or it comes up again
	}
	claimed.Answer = nil
	q, content, ok := p.fetch(&claimed)
	if !ok {
		return
	}
	x := p.exchangeOf(&claimed, orNothing(q), causeQuery)
	x.body = requestBody{kept: content, call: x.call}
	defer x.withdraw()
	a := asked{means: query.Unclear, message: "the request was not kept"}
	var plan query.Plan
	if q != nil {
		if refused := x.recallOrder(q); refused != nil {
			a.message = refused.detail
		} else if _, how := x.queries(); how != nil {
			plan = how.Plan
			a = x.question(p.base)
		} else {
			a.message = "the policy has no query any more"
		}
	}
	if p.base.Err() == nil {
		p.heard(&claimed, &plan, a)
	}
}

func orNothing(q *idempotency.Request) *idempotency.Request {
	if q == nil {
		return &idempotency.Request{Mode: "forward"}
	}
	return q
}

// recallOrder settles where the order was sent and what is known of it.
func (x *exchange) recallOrder(q *idempotency.Request) *refusal {
	if r := x.placed(q); r != nil {
		return r
	}
	if r := x.resumePolicy(); r != nil {
		return r
	}
	x.begun = time.Now()
	x.recogniseAgain()
	return x.goesBack()
}

// heard writes down what came of a question.
func (p *Proxy) heard(rec *idempotency.Record, plan *query.Plan, a asked) {
	now, set, so := time.Now(), p.Settings(), stateOf(rec)
	note := &idempotency.Note{At: now, By: byQuery, Did: didQuery + a.means.String(), Text: a.message}
	c := idempotency.Change{Now: now, Version: rec.Version, Note: note, TTL: set.KeyTTL, Reason: rec.Reason}
	to := idempotency.StateInDoubt
	do, at := plan.Next(so.Add(a.means), a.means, now)
	if !a.putOff.IsZero() && now.Sub(so.Since) < set.KeyTTL { // not for ever
		do, at, c.Note = query.AskAgain, a.putOff, nil
	}
	switch do {
	case query.Conclude:
		to, c.Settle, c.Executed, c.Reason = idempotency.StateDone, true, classify.ExecutedYes, "ok"
		c.Answer = a.stored(set.MaxResponse, now)
	case query.NotExecuted:
		to, c.Settle, c.TTL, note.Did = idempotency.StateDead, true, set.LetterTTL, didQuery+"not_executed"
	case query.Person:
		c.NextAt, note.Did = now.Add(c.TTL), didGiveUp
		note.Text = a.means.String() + ": " + note.Text
	default:
		c.NextAt = at
	}
	moved, err := p.Store.Advance(p.base, rec.ID, idempotency.StateInDoubt, to, c)
	if err != nil {
		if !errors.Is(err, idempotency.ErrConflict) {
			p.Log.Error("what a supplier said of an order could not be written down", "key_hash", idempotency.KeyHash(rec.Key), "answer", a.means.String(), "error", err)
		}
		return // it is asked again
	}
	p.keeper.expect(c.NextAt)
	p.logQuestion(&moved, a, do)
	if do == query.NotExecuted {
		p.repeatUnexecuted(&moved)
	}
}

func (p *Proxy) logQuestion(rec *idempotency.Record, a asked, do query.Do) {
	what := [...]string{"", "asked again later", "executed", "not executed", "a person has to look"}[do]
	attrs := []any{"letter", rec.Receipt, "key_hash", idempotency.KeyHash(rec.Key), "host", rec.Host, "shop", rec.Labels.Shop, "message", a.message}
	if do == query.AskAgain {
		attrs = append(attrs, "next_at", rec.NextAt)
	}
	if !a.putOff.IsZero() {
		p.Log.Info("a supplier cannot be asked now what became of an order", attrs...)
		return
	}
	p.Log.Info("a supplier was asked what became of an order", append(attrs, "answer", a.means.String(), "so", what)...)
}

// repeatUnexecuted runs a call again that a supplier says it did not execute, as often as
// its policy lets a call be retried. Where it cannot, it stays a letter that is safe to
// run again.
func (p *Proxy) repeatUnexecuted(rec *idempotency.Record) {
	// Old notes are forgotten, the number of attempts is not.
	if pol := p.Settings().Policies.Named(rec.Policy); pol == nil || rounds(rec) > pol.MaxRetries || rec.Attempts > 2*pol.MaxRetries+1 {
		return
	}
	order := deadletter.Order{Kind: idempotency.Redriven, Signed: deadletter.Signed{By: byQuery, Note: "the supplier says that it was not executed"}}
	if _, err := p.requeue(p.base, rec, &order, func(bool) {}); err != nil {
		p.Log.Warn("an order that was not executed stays a dead letter", "letter", rec.Receipt, "error", err.Error())
	}
}
