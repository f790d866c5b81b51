package proxy

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"retryproxy/access"
	"retryproxy/attempt"
	"retryproxy/breaker"
	"retryproxy/classify"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/inbound"
	"retryproxy/limiter"
	"retryproxy/message"
	"retryproxy/policy"
	"retryproxy/presets"
	"retryproxy/upstream"
)

// exchange is one call on its way: what it is, what was tried, what it holds.
type exchange struct {
	p    *Proxy
	set  *Settings
	call *inbound.Call
	id   string

	opens    bool     // CONNECT: the tunnel is answered by us and what is in it served
	noWay    *refusal // CONNECT to be opened: why nothing may leave without labels from inside
	accepted net.Conn // CONNECT: the client's side, when it was answered before the dial

	// Who and where, settled at the door.
	mode        string
	user        access.User
	userLabels  attempt.Labels
	login       bool // Authorization held the credentials for us: it goes no further
	labels      attempt.Labels
	hops        []hop
	one         [1]hop // room for the usual single hop
	hop         int    // index of the one in use
	attrs       policy.Attrs
	policy      *policy.Policy
	preset      *presets.Preset // of the platform; nil: none
	known       presets.Facts   // what it knows of the request
	signature   signature
	backup      *backup  // the supplier that has the order instead; nil: none
	asksOnly    bool     // it is a question about another call
	pausedBy    string   // what stopped it, for people
	routePreset string   // the one that the route names
	sends       forwards // which headers of ours go upstream
	honoured    bool     // the key goes upstream, to a host that may use it
	unheard     bool     // an attempt before a restart went where the key may not be honoured
	count       int      // X-Retry-Count of the client
	key         string
	derived     bool // the key was made of the order: it never goes upstream
	keyless     bool // the key was made here: it never goes upstream and makes nothing safe

	// The request as it goes upstream.
	out  message.Fields
	body requestBody
	safe classify.Basis // why repeating is safe whatever happened
	end  time.Time      // of the run's deadline

	// The record of a keyed call.
	rec       idempotency.Record
	flight    *idempotency.Flight
	patience  patient                   // how long its client is held, where not to the end
	held      *inbound.Held             // its client may be let go before the end, and another goroutine works on it; nil: neither
	resumes   bool                      // its client was told, or has to find out, that it goes on
	alone     bool                      // nobody hears how it ends
	leaving   bool                      // it goes on later: parked, or the next process goes on with it
	asked     int                       // how often the store was asked about a run elsewhere
	letter    bool                      // it was given up before, and is a dead letter
	buried    bool                      // keyless: it is kept as a dead letter
	lasting   bool                      // a durable store keeps all that it takes to go on
	earlier   int                       // attempts of this run that an earlier process made, or this one before it was parked
	elsewhere int                       // attempts of this run that were made where the order is not any more
	saved     int                       // attempts of past that the record has
	ended     bool                      // the record left running and waiting
	settled   bool                      // what the answer means for the record is known
	landed    *idempotency.FlightResult // what waiters get

	// What was tried.
	past    attempt.History
	unsent  int // of past: those of which nothing reached an upstream
	retries int // retries this run may make in all
	nxHost  bool
	next    Decision       // what to do next
	turn    limiter.Answer // of the gate, for the attempt in flight
	shed    bool           // the gate answered at once, and no attempt was made before: a no sheds it
	delay   time.Duration  // of the wait before the attempt in flight
	cause   string         // of that wait
	atGate  time.Duration
	grant   limiter.Grant
	place   limiter.Place    // among the calls that the platform takes, for the next attempt
	placeAt time.Time        // when that is; zero: it has none
	permit  breaker.ExitPass // of the exit, for the attempt in flight
	// While the call waits for its exit: what tells that it recovered, and the
	// date until when it would wait otherwise.
	exitClosed <-chan struct{}
	exitAt     time.Time
	kept       *kept // newest complete answer of an earlier attempt

	// What came of it.
	outcome outcome

	mu      sync.Mutex // guards what operators read: sum, live, past, grant
	order   *order     // an operator's, which ended its wait; nil: none did. Set while it waits
	sum     *attempt.Summary
	live    liveState
	away    time.Duration // time that is not our own: upstream, waits, the client
	waits   []attempt.Wait
	trace   *attempt.Trace // nil: none
	started time.Time
	begun   time.Time // the request was read: the deadline runs
}

// Serve is the whole path of a call, top to bottom.
func (p *Proxy) Serve(call *inbound.Call) {
	x := p.newExchange(call)
	x.beginTrace()
	defer x.finishHere()
	r := x.enter()
	x.describe()
	if r != nil {
		x.refuse(r)
		return
	}
	if x.answersItself() {
		return
	}
	if x.opens {
		x.open()
		return
	}
	r = x.readBody()
	x.begun = time.Now()
	x.away += x.begun.Sub(x.started) // the client's own time
	x.index()
	if r == nil {
		r = x.recognise()
	}
	if r != nil {
		x.refuse(r)
		return
	}
	if x.answeredByKey() {
		return
	}
	if x.holdsClient() {
		x.runHeld()
		return
	}
	x.run()
}

// keyed says that the client gave the call a key.
func (x *exchange) keyed() bool { return x.key != "" && !x.keyless }

func (p *Proxy) newExchange(call *inbound.Call) *exchange {
	x := &exchange{p: p, set: p.settings.Load(), call: call, id: newID(), started: time.Now()}
	if t := call.Tunnel; t != nil && t.Requests.Add(1) == 1 && t.First != nil {
		t.First()
	}
	x.sum = &attempt.Summary{ID: x.id, Client: call.Client.String(), Started: x.started}
	p.calls.add(x)
	return x
}

// run tries until the rule says that it is enough. What a round needs lives in
// the exchange and not in this frame: thousands may wait here at a time.
func (x *exchange) run() {
	if r := x.goesBack(); r != nil {
		x.cannotGoOn(r)
		return
	}
	x.prepare()
	x.next = Decision{Do: Retry}
	x.runOn()
}

// runOn makes attempts as long as the rule says so.
func (x *exchange) runOn() {
	for x.next.Do == Retry {
		x.await()
		if x.turn.Refused != "" {
			x.turnedAway()
			continue
		}
		x.round()
	}
}

// turnedAway ends a call that gets no turn, or hands it on. What it needs must not be on the stack
// of run, which those that wait keep: a little more there, and each keeps twice
// the stack.
//
//go:noinline
func (x *exchange) turnedAway() {
	d, now := refusedTurn(&x.turn), time.Now()
	if x.order != nil {
		d.At, x.outcome.detail = time.Time{}, x.order.words() // a later try makes no sense
	}
	x.giveUpPlace(now)
	limit := x.parkFor(now)
	if d.Reason == "shutting_down" && limit > 0 {
		d.At = later(x.next.At, now)
	}
	d = parkedTooLong(parkOr(d, x.policy, limit, now), x.freshUntil())
	if x.handOn(nil, d) {
		return
	}
	if x.shed && d.Do == Stop && x.p.Hooks.Shed != nil {
		x.p.Hooks.Shed(d.Reason)
	}
	x.next = d
	x.conclude(nil, d)
}

// round makes one attempt and acts on what the rule says of it.
func (x *exchange) round() {
	if d, yes := x.tooOld(time.Now()); yes {
		x.giveBack(time.Now())
		x.conclude(nil, d)
		x.next = d
		return
	}
	if !x.setsOut() {
		x.giveBack(time.Now())
		x.next = stop("store_unavailable")
		x.conclude(nil, x.next)
		return
	}
	t := x.try()
	x.next = x.decide(t)
	if x.next.Do != Retry {
		if !x.handOn(t, x.next) && !x.asksHere(t, x.next) {
			x.conclude(t, x.next)
		}
		return
	}
	x.next = x.plan(t, x.next)
	if x.next.Do != Retry {
		x.conclude(nil, x.next) // what t brought is kept or gone
	}
}

// prepare settles what holds for all attempts.
func (x *exchange) prepare() {
	x.keepExit()
	x.settleRules()
	x.end = x.begun.Add(x.deadline())
	x.retries = x.rec.RetriesLeft(x.policy.MaxRetries, x.count, x.policy.Deadline, x.begun)
}

// settleRules settles what the place of the call decides.
func (x *exchange) settleRules() {
	x.sends = x.forwarded()
	x.honoured = x.keyed() && !x.unheard && x.everywhere(x.keyHonoured)
	x.out = x.outgoing()
	rules := x.policy.Rules(x.method(), x.known.Nature, x.honoured)
	x.safe = rules.Safe
}

// await waits for the call's turn: its own backoff, the gate of its host, for a
// retry the tokens, and the exit.
func (x *exchange) await() {
	since := time.Now()
	for !x.takeTurn() || x.turn.Refused == "" && !(x.enterExit(time.Now()) && x.takeTokens()) {
		// The exit recovered before its date, another probe was quicker, or other
		// processes took the tokens.
	}
	x.waited(since)
}

// takeTurn waits for one answer of the gate; false: it is to be asked again.
func (x *exchange) takeTurn() bool {
	ticket := x.ask(time.Now())
	if ticket == nil {
		return true
	}
	x.getsInLine(ticket)
	answered := x.wait(ticket)
	x.getsOut()
	return answered
}

// getsInLine and getsOut are apart so that what they need is not on the stack of
// those who wait: see turnedAway.
//
//go:noinline
func (x *exchange) getsInLine(ticket *limiter.Ticket) {
	x.waitsFirst(time.Now())
	x.show(stateWaiting, ticket)
	x.releaseIfOff(x.p.Retries()) // it may have been turned before the ticket was to be seen
	x.p.crowd.join()
}

//go:noinline
func (x *exchange) getsOut() {
	x.p.crowd.leave()
	x.show(stateRunning, nil)
}

// ask claims a turn; without a ticket the answer is there at once.
func (x *exchange) ask(now time.Time) *limiter.Ticket {
	x.shed = false
	if x.retrying() && x.p.Retries().Value(&x.attrs, now) != "on" {
		x.turn = limiter.Answer{Refused: "retries_off"} // turned while the last answer was read
		return nil
	}
	x.chooseHop(now)
	if x.stopped(now) {
		return nil
	}
	c := x.claimOf(x.next)
	if !x.planRate(&c, now) || !x.planExit(&c, now) {
		return nil
	}
	var ticket *limiter.Ticket
	x.turn, ticket = x.p.Limiter.Ask(&c, now)
	x.shed = ticket == nil && !x.retrying()
	return ticket
}

// claimOf is what the gate has to know of the next attempt.
func (x *exchange) claimOf(next Decision) limiter.Claim {
	return limiter.Claim{
		Host: x.hops[x.hop].host, Shop: x.labels.Shop, TaskType: x.labels.TaskType,
		Retry: x.retrying(), Retries: x.earlier + len(x.past), Late: x.resumes || x.atGate >= limiter.LateAfter, Priority: x.policy.Priority, Arrived: x.started,
		NotBefore: next.At, Cause: next.Cause, Deadline: x.end, MaxWait: x.set.MaxWait - x.atGate,
		FailOpen: x.policy.OnOpen == "fail", Tunnel: x.mode == "connect",
		ProbeTimeout: x.policy.ConnectTimeout + x.policy.PerTryTimeout,
	}
}

// wait sleeps until the ticket is answered or nobody wants the call any more;
// false: its place was given up because the exit that it waits for recovered.
func (x *exchange) wait(ticket *limiter.Ticket) (answered bool) {
	gone := x.call.Context().Done()
	for {
		select {
		case <-ticket.Ready():
			if gone == nil && !x.wanted() {
				x.leave(ticket, "client_gone") // so did the others
				return true
			}
			x.takeAnswer(ticket)
			return true
		case <-x.exitClosed:
			return x.leaveForExit(ticket)
		case <-gone:
			if !x.wanted() {
				x.leave(ticket, "client_gone")
				return true
			}
			gone = nil // others wait for this key
		case <-x.p.draining:
			x.leave(ticket, "shutting_down")
			return true
		}
	}
}

// takeAnswer is apart for the same reason as getsInLine.
//
//go:noinline
func (x *exchange) takeAnswer(ticket *limiter.Ticket) { x.turn = ticket.Answer() }

// leave gives the place up; a grant that came meanwhile is given back.
func (x *exchange) leave(ticket *limiter.Ticket, reason string) {
	now := time.Now()
	answer := x.p.Limiter.Leave(ticket, now)
	x.p.Limiter.Cancel(answer.Grant, now)
	if answer.Refused == deadletter.ReasonCancelled {
		x.turn = answer // the operator was told so
		return
	}
	x.turn = limiter.Answer{Refused: reason, Cause: answer.Cause, AtGate: answer.AtGate}
	if reason == "shutting_down" {
		x.turn.At = now.Add(time.Second) // another instance, or this one again
	}
}

// waited books a wait that is over.
func (x *exchange) waited(since time.Time) {
	x.atGate += x.turn.AtGate
	x.delay, x.cause = 0, x.turn.Cause
	if x.cause == "" {
		return
	}
	x.delay = time.Since(since)
	x.away += x.delay
	x.waits = append(x.waits, attempt.Wait{Cause: x.cause, For: x.delay, Began: since, Planned: max(x.next.At.Sub(since), 0)})
}

// tried is one attempt and what is known of its answer so far.
type tried struct {
	upstream.Result
	conn    net.Conn // CONNECT: the dialled connection
	verdict classify.Verdict
	said    classify.Said // by the platform
	head    []byte        // first part of the body, read before the header goes out
	whole   bool          // head is the whole body
	failed  error         // reading the body failed while it was held
}

// try makes one attempt, judges it, and books it.
func (x *exchange) try() *tried {
	x.grant = x.turn.Grant
	x.place, x.placeAt = limiter.Place{}, time.Time{} // it is used
	began := time.Now()
	t := &tried{}
	x.send(t)
	if t.Response != nil {
		x.hold(t)
	}
	t.verdict = x.judge(t)
	now := time.Now()
	x.away += now.Sub(began)
	x.book(t, began, now)
	return t
}

// send puts the attempt on the wire, at most once.
func (x *exchange) send(t *tried) {
	h := &x.hops[x.hop]
	if x.mode == "connect" {
		x.traceTunnel()
		t.conn, t.Result = x.p.Upstream.Tunnel(x.attemptContext(), h.target, min(x.policy.ConnectTimeout, time.Until(x.end)))
		return
	}
	req, err := x.request()
	if err != nil {
		t.Outcome = classify.Outcome{Fault: classify.FaultBadTarget, Detail: err.Error()}
		return
	}
	x.traceSend(req)
	t.Result = x.p.Upstream.Send(x.attemptContext(), &upstream.Attempt{
		Request: req, Target: h.target,
		ConnectTimeout: x.policy.ConnectTimeout, HeaderTimeout: x.policy.PerTryTimeout,
		BodyIdle: x.policy.BodyIdleTimeout, Deadline: x.end,
		Unsafe: x.safe == "", Interim: x.interim(),
	})
}

// request is that of one attempt.
func (x *exchange) request() (*message.Request, error) {
	if x.backup != nil {
		return x.orderMessage()
	}
	h := &x.hops[x.hop]
	req := &message.Request{
		Method: x.call.Request.Method, Scheme: h.scheme(), Authority: h.authority, Target: h.path,
		Version: "1.1", Fields: x.renewed(x.counted(x.number())), Body: x.body.message(),
	}
	x.sign(req)
	return req, nil
}

// attemptContext ends with the client, except for keyed calls: their attempt in
// flight runs to its end and is recorded.
func (x *exchange) attemptContext() context.Context {
	if x.key != "" {
		return x.p.base
	}
	return x.call.Context()
}

// number is the X-Retry-Count of the attempt about to be made.
func (x *exchange) number() int {
	return max(x.count, x.rec.ClientCount) + x.rec.Attempts + len(x.past)
}

// interim passes 1xx on only when no retry can follow, or the client could see
// two of them for one answer.
func (x *exchange) interim() func(int, message.Fields) {
	if x.left() > 0 && x.body.stream == nil {
		return nil // even an unsafe call is repeated when the server says not now
	}
	return func(status int, f message.Fields) { _ = x.call.Interim(status, fromUpstream(f, status)) }
}

// left is how many retries this run may still make.
func (x *exchange) left() int { return x.retries - len(x.past) }

// leftAfter is how many retries are left after the attempt that was just made: what costs
// scarce quota is not sent again by itself.
func (x *exchange) leftAfter(v *classify.Verdict) int {
	if x.known.Scarce && v.Basis != classify.BasisNotSent {
		return 0
	}
	return x.left() + 1
}

// status is that of the answer, 0 when none came. A dial that stands for a
// CONNECT is answered with 200.
func (t *tried) status() int {
	switch {
	case t.conn != nil:
		return 200
	case t.Response != nil:
		return t.Response.Status
	}
	return 0
}

// judge asks what the outcome means.
func (x *exchange) judge(t *tried) classify.Verdict {
	o := t.Outcome
	o.Status = t.status()
	if r := t.Response; r != nil {
		o.EarlyData = x.backup == nil && x.call.Request.Fields.Has("Early-Data")
		o.Forwarded = mayTell(r.Status) && classify.Forwarded(r.Fields, t.head)
		if t.said = x.hear(t); t.said.Kind == classify.Unsaid {
			o.Suspect = x.suspicious(r.Fields, t.head)
		}
		o.Said = t.said
		if t.failed != nil {
			o.Phase, o.Fault, o.Detail = classify.PhaseBody, upstream.BodyFault(t.failed), t.failed.Error()
		}
	}
	rules := x.policy.Rules(x.method(), x.known.Nature, x.honoured)
	rules.SecondNoSuchHost = x.nxHost
	v := classify.Judge(&rules, &o)
	if x.signsAgain(&v) {
		v.Class, v.Basis = classify.Transient, classify.BasisRefused
	}
	x.nxHost = x.nxHost || o.Fault == classify.FaultNoSuchHost
	if t.Response != nil && v.Class != classify.Success {
		v.RetryAfter = max(x.retryAfter(t.Response), t.said.Wait)
		if v.Kind == classify.QuotaExhausted && v.RetryAfter == 0 {
			v.RetryAfter = quotaAgain
		}
	}
	return v
}

// book writes the attempt into the history and tells gate, breaker and metrics.
func (x *exchange) book(t *tried, began, now time.Time) {
	n, token := x.number(), x.token()
	a := attempt.Attempt{
		N: x.rec.Attempts + len(x.past) + 1, Count: n, Started: began, Duration: now.Sub(began),
		Host: x.hops[x.hop].host, Detail: t.Outcome.Detail, Delay: x.delay, Cause: x.cause,
		Verdict: t.verdict, Reused: t.Reused, Egress: x.hops[x.hop].exitName(), Supplier: x.supplier().Name,
	}
	a.Status = t.status()
	if t.Response != nil {
		a.UpstreamID = orElse(upstreamID(t.Response.Fields), t.said.RequestID)
		a.Detail = orElse(worded(&t.said), a.Detail)
	}
	if t.verdict.Kind != classify.Unsaid {
		x.heed(t, token, now)
	}
	if t.verdict.Kind == classify.SignatureRefused {
		x.signature.again = true
	}
	if x.preset != nil && t.Response != nil {
		x.p.skews.note(x.preset.Name, t.Response.Fields.Get("Date"), now)
	}
	if t.verdict.Kind == classify.NewCode {
		x.noteNew(&t.said)
	}
	if a.Status == 0 && t.Outcome.Phase < classify.PhaseSent {
		x.unsent++
	}
	x.p.Limiter.Report(x.grant, BreakerResult(&t.verdict, &Span{x.started, x.end, began, now}), now)
	x.reportExit(t, now)
	x.traceSent(t, a.N)
	x.mu.Lock()
	x.past = append(x.past, a)
	x.mu.Unlock()
	if h := x.p.Hooks.Attempt; h != nil {
		h(x.policy.Name, &x.past[len(x.past)-1])
	}
}

// decide collects the facts and asks the rule.
func (x *exchange) decide(t *tried) Decision {
	now := time.Now()
	f := x.facts(t, now, rand.Float64())
	if t.verdict.Class == classify.Transient || t.verdict.Kind == classify.QuotaExhausted {
		x.lookAround(&f)
	}
	if t.verdict.Class == classify.Transient {
		if d := f.Planned(); d.Do == Retry {
			if f.Moved = x.turnHop(&t.verdict, now); f.Moved {
				d = f.Planned()
			}
			c := x.claimOf(d)
			f.LookAhead(&c, x.p.Limiter, x.p.Shops)
		}
	}
	return Decide(&f)
}

// facts are those of the call itself, after its newest attempt.
func (x *exchange) facts(t *tried, now time.Time, dice float64) Facts {
	return Facts{
		Policy: x.policy, Verdict: t.verdict, Status: x.past.Last().Status, ID: x.jitterID(),
		Retries: x.here() - 1, Left: x.leftAfter(&t.verdict), Now: now, End: x.end, Dice: dice,
		Park: x.parkFor(now), Fresh: x.freshUntil(),
	}
}

// lookAround fills the facts that only a possible retry needs.
func (x *exchange) lookAround(f *Facts) {
	host := x.hops[x.hop].host
	f.Gone = x.call.Context().Err() != nil && !x.wanted()
	f.Replayable = x.body.repeatable(&f.Verdict)
	f.Switch = x.p.Retries().Value(&x.attrs, f.Now)
	f.Draining = x.p.drained.Load()
	f.Healthy = x.p.Limiter.Healthy(host, f.Now)
	if (x.past.Last().Status == 429 || f.Verdict.Kind == classify.Throttled) && f.Verdict.RetryAfter > 0 && x.labels.Shop != "" && x.policy.HonourRetryAfter {
		x.p.Limiter.Pause(host, x.labels.Shop, f.Now.Add(min(f.Verdict.RetryAfter, x.policy.RetryAfterCap)), f.Now)
	}
}

// jitterID keeps stable jitter the same for the same call everywhere.
func (x *exchange) jitterID() string {
	if x.key != "" {
		return x.key
	}
	return x.id
}

// plan keeps the answer for the case that no better one comes, gives the slot
// back, and writes the wait into the record before it begins.
func (x *exchange) plan(t *tried, d Decision) Decision {
	x.keep(t)
	x.release()
	if t.verdict.Basis == classify.BasisKey && x.p.Hooks.KeyOnly != nil {
		x.p.Hooks.KeyOnly(x.past.Last().Host)
	}
	if x.key != "" && !x.suspend(d) {
		return stop("store_unavailable")
	}
	return d
}

// release gives the slot back; repeated calls do nothing.
func (x *exchange) release() {
	x.mu.Lock()
	g := x.grant
	x.grant = limiter.Grant{}
	x.mu.Unlock()
	if g != (limiter.Grant{}) {
		x.p.Limiter.Release(g, time.Now())
	}
}

// retrying says that the next attempt is not the first of its run.
func (x *exchange) retrying() bool { return x.earlier+len(x.past) > 0 }

// wanted says whether the call goes on without its own client: others wait for
// its end, or it is durable.
func (x *exchange) wanted() bool { return x.lasting || x.flight != nil && x.flight.Waiters() > 0 }

// refusedTurn turns the gate's no into a decision.
func refusedTurn(a *limiter.Answer) Decision {
	d := Decision{Do: Stop, Reason: a.Refused, At: a.At, Dimension: a.Dimension}
	if a.Cause == causeEgress && a.Refused == limiter.RefusedBreaker {
		d.Dimension = causeEgress
	}
	return d
}
