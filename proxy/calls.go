package proxy

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"retryproxy/attempt"
	"retryproxy/breaker"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/limiter"
)

// States of a live call.
const (
	stateRunning = "running"
	stateWaiting = "waiting"
	stateDone    = "done"
)

// statusGone is logged for a client that left before its answer, as is the custom.
const statusGone = 499

// recentCalls is how many finished calls an operator can look back at.
const recentCalls = 1000

// liveState is the part of a call that operators read while it runs.
type liveState struct {
	state  string
	ticket *limiter.Ticket
}

// registry holds the calls in progress and the latest finished ones.
type registry struct {
	mu     sync.Mutex
	live   map[*exchange]struct{}
	recent []*attempt.Summary // ring
	next   int

	following atomic.Int64 // calls that wait for another one with their key
}

func (r *registry) init() {
	r.live = make(map[*exchange]struct{})
	r.recent = make([]*attempt.Summary, 0, recentCalls)
}

func (r *registry) add(x *exchange) {
	r.mu.Lock()
	r.live[x] = struct{}{}
	r.mu.Unlock()
}

func (r *registry) done(x *exchange, s *attempt.Summary) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, x)
	if len(r.recent) < recentCalls {
		r.recent = append(r.recent, s)
		return
	}
	r.recent[r.next] = s
	r.next = (r.next + 1) % recentCalls
}

// drop forgets a call that began nothing.
func (r *registry) drop(x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, x)
}

// snapshot gives all calls at one moment, so that one that ends meanwhile is
// not missed: those that ended, oldest first, and those in progress.
func (r *registry) snapshot() (ended []*attempt.Summary, live []*exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended = slices.Concat(r.recent[r.next:], r.recent[:r.next])
	return ended, slices.Collect(maps.Keys(r.live))
}

// Calls are the calls in progress and the latest finished ones, newest last.
func (p *Proxy) Calls() []*attempt.Summary {
	now := time.Now()
	out, live := p.calls.snapshot()
	for _, x := range live {
		out = append(out, x.look(now))
	}
	return out
}

// Waiting counts the waiting calls by cause, the parked ones included.
func (p *Proxy) Waiting() map[string]int {
	out := p.Line()
	if n := p.Store.Stats().ByState[idempotency.StateParked]; n > 0 {
		out["parked"] = n
	}
	return out
}

// Line is Waiting without the parked ones: the store is not asked.
func (p *Proxy) Line() map[string]int {
	out := p.Limiter.Waiting(time.Now())
	if n := p.calls.following.Load(); n > 0 {
		out[causeKey] = int(n)
	}
	return out
}

// show tells operators what the call is doing.
func (x *exchange) show(state string, ticket *limiter.Ticket) {
	x.mu.Lock()
	x.live = liveState{state, ticket}
	x.mu.Unlock()
}

// look is a summary of a call in progress.
func (x *exchange) look(now time.Time) *attempt.Summary {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := *x.sum
	s.Duration = now.Sub(x.started)
	s.Attempts = append(attempt.History(nil), x.past...)
	if s.State = x.live.state; s.State == "" {
		s.State = stateRunning
	}
	if s.State == stateWaiting {
		s.Cause = causeKey
	}
	if t := x.live.ticket; t != nil {
		v := x.p.Limiter.View(t, now)
		s.Cause, s.Dimension, s.Lane, s.Place, s.NextAt = v.Cause, v.Dimension, v.Lane, v.Place, v.At
		s.Reason = v.Dimension
	}
	return &s
}

// describe fills who and where, once they are settled.
func (x *exchange) describe() {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, f := x.sum, x.call.Request.Fields
	s.Mode, s.User, s.Labels, s.Method = x.mode, x.user.Name, x.labels, x.call.Request.Method
	s.ClientID, s.Trace = f.Get("X-Request-Id"), x.traceparent()
	s.Agent = agentOf(f)
	if len(x.hops) > 0 {
		s.Scheme, s.Host = x.hops[0].target.Scheme, x.hops[0].host
	}
	if x.policy != nil {
		s.Policy, s.Path = x.policy.Name, x.attrs.Path
	}
	if x.key != "" {
		s.KeyHash = idempotency.KeyHash(x.key)
	}
}

// finishHere finishes the call unless another goroutine has it.
func (x *exchange) finishHere() {
	if x.held == nil {
		x.finish()
	}
}

// finish gives everything back and reports the call.
func (x *exchange) finish() {
	now := time.Now()
	if x.sum.Terms == nil {
		x.index() // it was refused before its content was read
	}
	x.release()
	x.dropKept()
	x.body.close()
	if x.flight != nil {
		if !x.ended {
			x.abandon()
		}
		x.flight.End(x.landed)
	}
	x.reportShop(now)
	s := x.summary(now)
	x.carriedOut()
	x.deadLetter(s)
	x.p.calls.done(x, s)
	if h := x.p.Hooks.Handled; h != nil && x.handled(s.Result) {
		h(x.policy.Name, x.handledAs(s.Result, now))
	}
	if h := x.p.Hooks.Call; h != nil {
		h(s)
	}
	x.endTrace(s)
}

// summary completes what is known of the call.
func (x *exchange) summary(now time.Time) *attempt.Summary {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.sum
	s.State, s.Ended, s.Duration = stateDone, now, now.Sub(x.started)
	x.indexAnswersLocked()
	s.Overhead = max(s.Duration-x.away, 0)
	s.Attempts, s.Previous, s.Waits = x.past, x.rec.Attempts, x.waits
	s.Reason, s.Status, s.Bytes = x.outcome.decision.Reason, x.outcome.status, x.outcome.bytes
	s.Executed, s.Result, s.Detail = x.executed(), x.result(), x.past.Last().Detail
	if x.held != nil && !x.held.Keep() { // it was let go
		s.Status, s.Bytes = x.policy.OnPark, 0
	}
	if r := x.outcome.refusal; r != nil {
		s.Detail = r.detail
	} else if x.outcome.detail != "" {
		s.Detail = x.outcome.detail
	} else if text := x.hindrance(&x.outcome.decision); text != "" {
		s.Detail = text
	}
	if !x.end.IsZero() {
		s.Deadline = x.end.Sub(x.begun)
	}
	if at := x.call.Left(); !at.IsZero() {
		s.Left = max(at.Sub(x.started), 1)
	}
	switch s.Result {
	case "replay":
		s.Attempts = nil // the leader's, not ours
	case "cancelled":
		s.Status, s.Bytes = statusGone, 0
		if s.Reason == "ok" {
			s.Reason = "client_gone" // while its answer was on the way
		}
	}
	return s
}

// deadLetter writes a call that was given up, and that the policy wants to be
// looked at, to the log.
func (x *exchange) deadLetter(s *attempt.Summary) {
	if !x.isLetter() {
		return
	}
	if h := x.p.Hooks.DeadLetter; h != nil {
		h(s)
	}
	x.p.Log.Warn("dead letter", "call_id", s.ID, "host", s.Host, "method", s.Method, "path", s.Path, "shop", s.Labels.Shop,
		"task_type", s.Labels.TaskType, "key_hash", s.KeyHash, "reason", s.Reason, "executed", s.Executed.String(),
		"advice", advice(s.Reason, s.Executed), "attempts", s.Previous+len(s.Attempts), "letter", x.rec.Receipt)
}

// isLetter says that the call was given up, and that its policy wants somebody to
// look at it. A definite no of the upstream is an answer, not a loss, where somebody
// hears it.
func (x *exchange) isLetter() bool {
	last := x.past.Last().Verdict.Class
	if len(x.past) == 0 {
		last = x.rec.History.Last().Verdict.Class
	}
	result, tried := x.result(), len(x.past)+x.rec.Attempts > 0
	switch {
	case result != "failed" && result != "cancelled":
		return false
	case x.policy == nil:
		return x.lasting
	case !tried && !x.lasting, x.outcome.decision.Reason == "fail_permanent" && !x.alone:
		return false
	case last == classify.Success && x.outcome.decision.Reason != "manual_review": // that is ours: see abandon
		return false
	}
	method := x.call.Request.Method
	return x.policy.DeadLetter == "all" || x.policy.DeadLetter == "unsafe" && (x.key != "" || method == "POST" || method == "PATCH")
}

// result is the one word the metrics count by.
func (x *exchange) result() string {
	switch {
	case x.outcome.result != "":
		return x.outcome.result
	case x.outcome.decision.Reason == "client_gone" || x.past.Last().Verdict.Reason == "cancelled":
		return "cancelled"
	case x.outcome.decision.Do != Deliver || x.outcome.cut:
		return "failed"
	case x.earlier+len(x.past) > 1:
		return "recovered"
	}
	return "success"
}

// reportShop tells the shop's breaker how the call ended. Only failures that
// speak of this shop count, and nothing while the host itself is in trouble.
func (x *exchange) reportShop(now time.Time) {
	if x.labels.Shop == "" || len(x.past) == 0 {
		return
	}
	host, v := x.past.Last().Host, x.past.Last().Verdict
	if v.Class == classify.Success {
		x.breakerEvent(x.p.Shops.Report(x.labels.Shop, host, "", true, now))
		return
	}
	status := x.past.Last().Status
	if BlamesShop(&v, status) && x.outcome.result == "" && x.p.Limiter.Closed(host, now) {
		x.breakerEvent(x.p.Shops.Report(x.labels.Shop, host, v.Reason, false, now))
	}
}

func (x *exchange) breakerEvent(e *breaker.Event) {
	if e != nil && x.p.Hooks.Breaker != nil {
		x.p.Hooks.Breaker(e)
	}
}

// noted remembers what was already said once; bounded.
type noted struct {
	mu   sync.Mutex
	seen *simplelru.LRU[string, struct{}]
}

func (n *noted) init() { n.seen, _ = simplelru.NewLRU[string, struct{}](1000, nil) }

// first says whether the text is new.
func (n *noted) first(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen.Contains(text) {
		return false
	}
	n.seen.Add(text, struct{}{})
	return true
}
