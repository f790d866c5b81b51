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
	"retryproxy/inspect"
	"retryproxy/message"
	"retryproxy/policy"
)

// answeredByKey claims the record of a keyed call. It answers what needs no
// attempt: a replay, a key in use, a mismatch; true means answered.
func (x *exchange) answeredByKey() bool {
	if x.key == "" {
		return false
	}
	claim, err := x.claim()
	if err != nil {
		x.refuse(unreadable(err))
		return true
	}
	x.readPatience()
	for end := x.begun.Add(x.deadline()); ; {
		if underQuestion(&x.rec) && x.waitsForQuestion(end) {
			x.countKey(idempotency.InDoubt.String())
			return x.answeredBy(idempotency.Begun{Result: idempotency.InDoubt, Record: x.rec})
		}
		if !x.runsElsewhere(claim.ID) {
			begun, r := x.begin(claim)
			if r != nil {
				x.refuse(r)
				return true
			}
			x.rec = begun.Record
			x.note(claim.ID)
			if begun.Result == idempotency.InDoubt && underQuestion(&begun.Record) {
				continue
			}
			if begun.Result != idempotency.Busy {
				x.countKey(begun.Result.String())
				return x.answeredBy(begun)
			}
		}
		if underQuestion(&x.rec) {
			continue
		}
		if x.letsWaiterGo(end) || x.follow(claim.ID, end) {
			return true
		}
	}
}

// begin asks the store for the key, and gives it the request.
func (x *exchange) begin(claim idempotency.Claim) (idempotency.Begun, *refusal) {
	give, err := x.takeRequest(&claim)
	if err != nil {
		return idempotency.Begun{}, unreadable(err)
	}
	defer give()
	begun, err := x.p.Store.Begin(context.WithoutCancel(x.call.Context()), claim, time.Now())
	if err != nil {
		return begun, storeRefusal(err)
	}
	return begun, nil
}

func unreadable(err error) *refusal {
	return refuse("local_resource", "the request body cannot be read again: "+err.Error())
}

// takeRequest puts the request into a claim. A body that is in a file is whole in
// memory until the claim is given up again: only so much is at a time.
func (x *exchange) takeRequest(claim *idempotency.Claim) (give func(), err error) {
	size := min(x.body.inFile(), mostWhole)
	if size > 0 && x.p.durable {
		if err := x.p.whole.Acquire(x.p.base, size); err != nil {
			return nil, err
		}
		give = func() { x.p.whole.Release(size) }
	} else {
		give = func() {}
	}
	if claim.Request, err = x.keptRequest(); err != nil {
		give()
	}
	return give, err
}

// runsElsewhere says that the run of another process that was waited for goes on: it
// is looked at, so that the claim, which has the whole request, is not made for it.
func (x *exchange) runsElsewhere(id idempotency.ID) bool {
	if x.asked == 0 {
		return false
	}
	rec, err := x.p.Store.Get(context.WithoutCancel(x.call.Context()), id, time.Now())
	if err != nil || rec.State.Ended() && !underQuestion(&rec) {
		return false
	}
	x.rec = rec
	return true
}

// answeredBy acts on what the store said; true means answered.
func (x *exchange) answeredBy(b idempotency.Begun) bool {
	switch b.Result {
	case idempotency.Fresh:
		x.lasting, x.letter = x.lasts(), b.Letter
		x.flight = x.p.Flights.Start(b.Record.ID, x.id)
		return false
	case idempotency.Replay:
		x.replay(b.Record.Answer)
	default:
		r := x.keyRefusal(b.Result)
		if b.Result != idempotency.InDoubt {
			x.rec = idempotency.Record{} // of another request: nothing was sent for this one
		}
		x.refuse(r)
	}
	return true
}

// claim says what this request is, so that a repeat can be told from a misuse.
func (x *exchange) claim() (idempotency.Claim, error) {
	tenant := x.tenant()
	r, h := &x.call.Request, &x.clientHops()[0]
	print := idempotency.NewPrint(idempotency.Subject{
		Tenant: tenant, Method: r.Method, Scheme: h.target.Scheme, Host: h.host, Target: h.path,
		ContentType: r.Fields.Get("Content-Type"), Ignore: x.policy.FingerprintIgnore, Volatile: x.volatile(tenant),
	})
	if err := x.body.copyTo(print); err != nil {
		return idempotency.Claim{}, err
	}
	return idempotency.Claim{
		ID: idempotency.ID{Tenant: tenant, Key: x.key}, Owner: x.id, Terms: x.sum.Terms,
		Fingerprint: print.Sum(), Credentials: x.authorization(tenant),
		Policy: x.policy.Name, Labels: x.labels, Method: r.Method, Host: h.host, Path: x.attrs.Path,
		Deadline: x.begun.Add(x.deadline()), ClientCount: x.count, TTL: x.set.KeyTTL,
		Honoured: x.honoursKey(), ClientID: r.Fields.Get("X-Request-Id"), Trace: x.ownTrace(),
	}, nil
}

func storeRefusal(err error) *refusal {
	switch {
	case err == idempotency.ErrFull: // one that is wrapped says more
		return refuse("store_full", "no record can be evicted to make room (idempotency.entries)")
	case errors.Is(err, idempotency.ErrFull):
		return refuse("store_full", err.Error())
	}
	return refuse("store_unavailable", err.Error())
}

// keyRefusal is the answer for a key that may not run.
func (x *exchange) keyRefusal(r idempotency.Result) *refusal {
	rec := &x.rec
	first := rec.Created.UTC().Format(time.RFC3339) + " for " + rec.Method + " " + rec.Host + rec.Path
	switch r {
	case idempotency.Mismatch:
		return refuse("key_mismatch", "the key was first used at "+first+" with another request")
	case idempotency.Credentials:
		return refuse("key_mismatch", "the key was used with other credentials; nothing of that call is shown")
	}
	doubt := refuse("in_doubt", "the call first made at "+first+" may have been executed; it needs a person or a query")
	if underQuestion(rec) {
		doubt.at = later(rec.NextAt, time.Now().Add(time.Second))
		doubt.detail = "the call first made at " + first + " may have been executed; its supplier is being asked"
	}
	return doubt
}

// replay answers from the record.
func (x *exchange) replay(a *idempotency.Answer) {
	switch {
	case a != nil && a.Kept:
	case a == nil || a.Status == 0:
		x.refuse(refuse("result_not_kept", "a person settled it as executed, so there is no answer to give"))
		return
	default:
		x.refuse(refuse("result_not_kept", "the call was done, but its answer was too large to be kept or was evicted"))
		return
	}
	out := x.recalled(a)
	x.outcome.result = "replay"
	x.outcome.decision = Decision{Do: Deliver, Reason: "ok"}
	x.mark(&out.Fields, "", time.Time{})
	out.Fields.Add(hReplayed, "true")
	out.Fields.Add(hCache, x.set.Instance+"; hit") // Via is among the stored fields
	_ = x.write(out, x.policy.BodyIdleTimeout)
}

// recalled is a stored answer as it goes out again.
func (x *exchange) recalled(a *idempotency.Answer) *message.Response {
	return &message.Response{
		Status: a.Status, Reason: a.Reason, Fields: idempotency.ReplayFields(a, time.Now()),
		Length: x.lengthOf(a.Body), Body: io.NopCloser(bytes.NewReader(a.Body)),
	}
}

// follow waits for the run that holds the key and gives its answer, failure
// included; a waiter never becomes a second leader. It returns false when that
// run is not to be seen here: the store is asked again.
func (x *exchange) follow(id idempotency.ID, end time.Time) bool {
	f, ok := x.p.Flights.Join(id, x.rec.Owner)
	var done <-chan struct{}
	patience := time.Until(end)
	if !x.patience.until.IsZero() {
		patience = min(patience, time.Until(x.patience.until))
	}
	if ok {
		defer f.Leave()
		done = f.Done()
	} else {
		patience = min(patience, x.askAgainIn(askAgainLast))
	}
	x.show(stateWaiting, nil)
	x.p.calls.following.Add(1)
	over := x.sleep(done, patience)
	x.p.calls.following.Add(-1)
	switch {
	case ok && f.Result() != nil:
		x.countKey("busy")
		x.share(f.Result())
	case over || !time.Now().Before(end):
		x.countKey("busy")
		busy := refuse("key_busy", "another request with this key is still being worked on")
		busy.at = later(x.rec.NextAt, time.Now().Add(time.Second))
		if x.rec.State == idempotency.StateRunning {
			x.rec.Executed = max(x.rec.Executed, classify.ExecutedMaybe) // its attempt is in flight
		}
		x.refuse(busy)
	default:
		return false
	}
	return true
}

// lengthOf is the length of a stored body; of a HEAD's answer there is none, and
// what it declared is not known any more.
func (x *exchange) lengthOf(body []byte) int64 {
	if x.call.Request.Method == "HEAD" {
		return -1
	}
	return int64(len(body))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// How soon the store is asked about a run that is not in this process, first and in
// the end.
const (
	askAgain     = 20 * time.Millisecond
	askAgainLast = 250 * time.Millisecond

	// Questions to a platform come minutes after each other, and of their answers nobody
	// needs to hear within a moment.
	askAgainOfQuestion = 2 * time.Second
)

// askAgainIn is how long to wait before the store is asked once more.
func (x *exchange) askAgainIn(last time.Duration) time.Duration {
	d := min(askAgain<<min(x.asked, 8), last)
	x.asked++
	return d
}

// letsWaiterGo answers a client whose key is with a run that goes on without it: one
// that is parked for longer than it waits, or that it asked not to be held for.
func (x *exchange) letsWaiterGo(end time.Time) bool {
	parked := x.rec.State == idempotency.StateParked && !x.rec.NextAt.Before(end)
	if !parked && (x.patience.until.IsZero() || time.Now().Before(x.patience.until)) {
		return false
	}
	rec, err := x.p.receipt(context.WithoutCancel(x.call.Context()), x.rec.ID)
	switch {
	case errors.Is(err, idempotency.ErrUnavailable):
		x.refuse(storeRefusal(err))
		return true
	case err != nil:
		return false // it is over: ask for what came of it
	}
	x.countKey("busy")
	x.outcome.decision, x.outcome.result = Decision{Do: Stop, Reason: "parked", At: rec.NextAt}, "rejected"
	x.answerParked(&rec, x.patience.applied)
	return true
}

// sleep waits for done, for a time, or until the client or we are gone; over
// says the last.
func (x *exchange) sleep(done <-chan struct{}, d time.Duration) (over bool) {
	began := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-x.call.Context().Done():
		over = true
	case <-x.p.base.Done():
		over = true
	case <-x.unled(done):
		over = true
	}
	spent := time.Since(began)
	x.away += spent
	x.waits = append(x.waits, attempt.Wait{Cause: "key", For: spent, Began: began})
	return over
}

// unled ends the wait for a run that is not in this process when that shuts down.
func (x *exchange) unled(done <-chan struct{}) <-chan struct{} {
	if done == nil {
		return x.p.draining
	}
	return nil
}

// share gives a waiter the leader's final answer.
func (x *exchange) share(r *idempotency.FlightResult) {
	x.mu.Lock()
	x.past, x.rec.Executed = r.History, r.Executed
	x.mu.Unlock()
	switch {
	case !r.Kept && r.Stop == "ok":
		x.refuse(refuse("result_not_kept", "the call ended, but its answer was too large to be kept"))
		return
	case !r.Kept: // a failure that was too large, or an answer that broke off
		x.outcome.decision = Decision{Do: Stop, Reason: r.Stop, At: r.NextAt}
		x.outcome.result = "replay"
		x.answerOwn(x.failure(x.outcome.decision))
		return
	}
	out := &message.Response{
		Status: r.Status, Reason: r.Reason, Fields: r.Fields.Clone(8),
		Length: x.lengthOf(r.Body), Body: io.NopCloser(bytes.NewReader(r.Body)),
	}
	reason := r.Stop
	if reason == "ok" {
		reason = ""
		out.Fields.Add(hReplayed, "true")
	}
	x.outcome.decision = Decision{Do: Stop, Reason: r.Stop}
	x.outcome.result = "replay"
	x.mark(&out.Fields, reason, r.NextAt)
	out.Fields.Add(hCache, x.set.Instance+"; collapsed")
	_ = x.write(out, x.policy.BodyIdleTimeout)
}

// suspend writes a planned retry into the record before the wait begins.
func (x *exchange) suspend(d Decision) bool {
	before := x.saved
	ok := x.advance(idempotency.StateRunning, idempotency.StateWaiting, idempotency.Change{
		Append: x.unsaved(), Reason: d.Reason, NextAt: d.At,
		Executed: x.past.Last().Verdict.Executed,
	})
	if !ok {
		x.saved = before // the end of the record tells of them
	}
	return ok
}

// setsOut writes what must be known of an attempt before it is sent: that the wait
// is over, and where it goes, unless the record says so. Without a wait nothing is
// written. No other process may take the call over while the attempt is in flight.
func (x *exchange) setsOut() bool {
	switch {
	case x.flight != nil && !x.leased():
		return false
	case x.rec.State == idempotency.StateWaiting:
		return x.resume()
	case x.lasting && x.hops[x.hop].host != x.rec.Host:
		return x.advance(idempotency.StateRunning, idempotency.StateRunning, idempotency.Change{Host: x.hops[x.hop].host})
	}
	return true
}

// leased says that the call stays with this process for an attempt.
func (x *exchange) leased() bool {
	err := x.p.Store.Lease(x.p.base, x.rec.ID, x.id, x.policy.ConnectTimeout+x.policy.PerTryTimeout)
	if err != nil {
		x.p.Log.Error("nothing is sent: another process may have the call", "call_id", x.id, "error", err)
	}
	return err == nil
}

// resume takes the record out of its wait before the attempt is sent.
func (x *exchange) resume() bool {
	return x.advance(idempotency.StateWaiting, idempotency.StateRunning, idempotency.Change{Host: x.hops[x.hop].host})
}

// advance moves the record; false: the store refused, nothing may be sent.
func (x *exchange) advance(from, to idempotency.State, c idempotency.Change) bool {
	return !x.couldNotMove(to, x.move(from, to, c))
}

func (x *exchange) move(from, to idempotency.State, c idempotency.Change) error {
	c.Now, c.Owner = time.Now(), x.id
	rec, err := x.p.Store.Advance(context.WithoutCancel(x.call.Context()), x.rec.ID, from, to, c)
	if err == nil {
		x.rec.State, x.rec.Host, x.rec.Receipt = rec.State, rec.Host, rec.Receipt
	}
	return err
}

// couldNotMove logs why the record is still where it was, if so.
func (x *exchange) couldNotMove(to idempotency.State, err error) bool {
	if err != nil {
		x.p.Log.Error("the record could not be moved", "call_id", x.id, "from", x.rec.State.String(), "to", to.String(), "error", err)
	}
	return err != nil
}

// settle ends the record of a call that got an upstream's answer; only the first
// call counts.
func (x *exchange) settle(out *message.Response, r *relay, whole bool) {
	if x.settled {
		return
	}
	x.settled = true
	x.judgeSuspect(out, r)
	if x.key == "" {
		if x.mayBury() {
			x.bury(x.stored(out, r.capture, whole && r.limit > 0 && !r.over))
		}
		return
	}
	if x.ended {
		return
	}
	kept := whole && !r.over
	x.land(out, r.capture, kept)
	if x.outcome.decision.Do == Deliver && idempotency.Storable(out.Status, whole, x.outcome.suspect) && !x.unfinished() {
		x.endRecord(idempotency.StateDone, idempotency.Change{Answer: x.stored(out, r.capture, kept)})
		return
	}
	x.endWithout(x.stored(out, r.capture, kept))
}

// endWithout ends the record of a call that has no answer to replay. last is the
// last answer of an upstream, for people; nil: there was none.
func (x *exchange) endWithout(last *idempotency.Answer) {
	version, promised := x.promised()
	x.alone = promised || x.isAlone()
	switch to := x.lastState(); to {
	case idempotency.StateFailed:
		if !x.endRecord(to, idempotency.Change{Version: version}) {
			x.endWithout(last) // promised meanwhile
		}
	default:
		x.endRecord(to, idempotency.Change{Answer: last})
	}
}

// lastState is that of a record whose call has no answer to replay.
func (x *exchange) lastState() idempotency.State {
	switch {
	case x.doubtful() && !x.keyless:
		return idempotency.StateInDoubt
	case x.p.durable && (x.isLetter() || x.staysLetter()):
		return idempotency.StateDead
	}
	return idempotency.StateFailed
}

// promised says that a repeat was told 202 while this run went on: it hears the end
// from nobody but the receipt. version is what the record was looked at as; 0: nothing
// depends on it.
func (x *exchange) promised() (version uint64, yes bool) {
	if !x.lasting || x.outcome.decision.Reason != "fail_permanent" || x.flight != nil && x.flight.Waiters() > 0 {
		return 0, false
	}
	rec, err := x.p.Store.Get(context.WithoutCancel(x.call.Context()), x.rec.ID, time.Now())
	if err != nil || rec.Owner != x.id {
		return 0, false
	}
	return rec.Version, rec.Receipt == x.id // an older one is of an earlier run
}

// bury keeps a keyless call that was given up: somebody has to look at it.
func (x *exchange) bury(last *idempotency.Answer) {
	x.buried = true
	claim, err := x.claim()
	if err == nil {
		err = x.p.roomForLetters()
	}
	var give func()
	if err == nil {
		give, err = x.takeRequest(&claim)
	}
	if err == nil {
		defer give()
		claim.Key, claim.Keyless = "keyless-"+x.id, true
		_, err = x.p.Store.Bury(context.WithoutCancel(x.call.Context()), claim, idempotency.Change{
			Now: time.Now(), Append: x.past, Reason: x.outcome.decision.Reason, Executed: x.executed(), Answer: last, TTL: x.set.LetterTTL,
			NextAt: x.nextRedrive(), Supplier: x.supplier(),
		})
	}
	if err != nil {
		x.p.Log.Error("a call that was given up could not be kept as a dead letter", "call_id", x.id, "error", err)
		x.p.lost(1)
		return
	}
	x.rec.Receipt = x.id
}

// mayBury says that the call ends as a letter without a key.
func (x *exchange) mayBury() bool {
	return x.key == "" && !x.buried && x.mode != "connect" && x.p.durable && x.isLetter()
}

// lastKept is the newest complete answer of an upstream that the call still has;
// nil: none.
func (x *exchange) lastKept() *idempotency.Answer {
	if x.kept == nil {
		return nil
	}
	r := x.kept.response
	body, err := x.kept.body.Open()
	if err != nil {
		return nil
	}
	defer body.Close()
	all, err := io.ReadAll(io.LimitReader(body, x.set.MaxResponse+1))
	return x.stored(&r, all, err == nil && int64(len(all)) <= x.set.MaxResponse)
}

// settleOwn ends the record of a call that got an answer of our own.
func (x *exchange) settleOwn(out *message.Response, body []byte) {
	if x.key == "" {
		if x.mayBury() {
			x.bury(x.lastKept())
		}
		return
	}
	if x.flight == nil || x.ended {
		return
	}
	x.land(out, body, true)
	if x.leaving {
		x.ended = true // for this process
		return
	}
	x.endWithout(x.lastKept())
}

// settleMarker ends the record at the header, or as soon as it is clear that the
// answer is too large to be kept: of a stream, an upgrade, a download there is
// no end to wait for and nothing to replay.
func (x *exchange) settleMarker(r *message.Response) {
	if x.flight == nil || x.ended {
		return
	}
	x.land(r, nil, false)
	success := r.Status == 101 || idempotency.Storable(r.Status, true, false)
	if x.outcome.decision.Do == Deliver && success {
		x.endRecord(idempotency.StateDone, idempotency.Change{Answer: x.stored(r, nil, false)})
		return
	}
	x.endWithout(x.stored(r, nil, false))
}

// abandon ends the record of a call that ended without an answer: a handler that
// panicked. What it had in flight may have been executed.
func (x *exchange) abandon() {
	x.outcome.decision = stop("manual_review")
	x.raise(classify.ExecutedMaybe)
	x.rec.Executed = max(x.rec.Executed, classify.ExecutedMaybe)
	x.endWithout(nil)
}

// doubtful: it may have been executed, and the key, not honoured upstream,
// gives no second way to find out.
func (x *exchange) doubtful() bool {
	return (x.outcome.decision.Reason == "manual_review" || x.unfinished() && x.known.Nature != policy.NatureReads) && !x.honoured
}

// stored is the answer as the record keeps it.
func (x *exchange) stored(out *message.Response, body []byte, kept bool) *idempotency.Answer {
	return &idempotency.Answer{
		Status: out.Status, Reason: out.Reason, Fields: idempotency.StoredFields(out.Fields),
		Body: body, Kept: kept, Stored: time.Now(),
	}
}

// endRecord moves the record to its last state of this run, then wakes the waiters.
// false: it is not at the version that c names any more, and nothing was done.
func (x *exchange) endRecord(to idempotency.State, c idempotency.Change) bool {
	saved := x.saved
	c.Owner, c.Append, c.Reason, c.TTL, c.EndRun, c.Executed = x.id, x.unsaved(), x.outcome.decision.Reason, x.set.KeyTTL, true, x.executed()
	switch to {
	case idempotency.StateDead:
		c.TTL, c.NextAt = x.set.LetterTTL, x.nextRedrive()
	case idempotency.StateInDoubt:
		if x.unfinished() {
			c.Reason = classify.Processing.String()
		}
		if at := x.firstQuestion(time.Now()); !at.IsZero() && (x.unfinished() || x.asks(x.outcome.decision)) {
			c.NextAt = at
			x.p.keeper.expect(at)
		}
	}
	if x.order != nil {
		c.Note = x.order.noteOf(time.Now())
	}
	err := x.move(x.rec.State, to, c)
	if c.Version != 0 && errors.Is(err, idempotency.ErrConflict) {
		x.saved = saved
		return false
	}
	x.ended = true
	if x.couldNotMove(to, err) && x.lasting {
		x.settleLater(to, c)
	}
	x.carriedOut()
	x.flight.End(x.landed)
	return true
}

// unsaved are the attempts that the record does not have yet; it gets them now.
func (x *exchange) unsaved() []attempt.Attempt {
	made := x.past[x.saved:]
	x.saved = len(x.past)
	return made
}

// raise notes that more may have happened than the verdict said.
func (x *exchange) raise(e classify.Executed) {
	if n := len(x.past); n > 0 {
		x.mu.Lock()
		x.past[n-1].Verdict.Executed = max(x.past[n-1].Verdict.Executed, e)
		x.mu.Unlock()
	}
}

// land prepares what the waiters get; they are woken when the call is finished,
// after the record moved.
func (x *exchange) land(out *message.Response, body []byte, kept bool) {
	if x.flight == nil {
		return
	}
	reason := x.outcome.decision.Reason
	x.landed = &idempotency.FlightResult{
		Status: out.Status, Reason: out.Reason, Fields: idempotency.StoredFields(out.Fields), Body: body, Kept: kept,
		Stop: reason, NextAt: x.outcome.decision.At, Executed: x.executed(), History: x.past,
	}
}

func (x *exchange) countKey(result string) {
	if h := x.p.Hooks.Key; h != nil {
		h(result)
	}
}

// suspicious looks for the common signs of failure in a body, decoded as far as
// we can; one that we cannot read is not accused.
func (x *exchange) suspicious(f message.Fields, head []byte) bool {
	if !isJSON(f) && f.Has("Content-Encoding") {
		return false
	}
	plain := inspect.Plain(f, head, int(min(x.set.Body.Inspect, 1<<20)))
	return classify.Suspect(f.Get("Content-Type"), plain)
}

// judgeSuspect looks at the start of a 2xx for the common signs of failure.
func (x *exchange) judgeSuspect(out *message.Response, r *relay) {
	if out.Status < 200 || out.Status > 299 || x.past.Last().Verdict.Kind != classify.Unsaid {
		return
	}
	host := x.hops[x.hop].host
	x.outcome.suspect = x.past.Last().Verdict.Reason == "suspect" || x.suspicious(out.Fields, r.start())
	if !x.outcome.suspect {
		return
	}
	if h := x.p.Hooks.Suspect; h != nil {
		h(host)
	}
	if x.p.hosts.first("suspect " + host) {
		x.p.Log.Warn("a success whose body says failure: passed on, never stored; a preset would understand it", "host", host)
	}
}
