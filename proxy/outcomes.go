package proxy

import (
	"io"
	"strings"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/message"
	"retryproxy/upstream"
)

// WouldLeadTo is what one outcome of an attempt leads to.
type WouldLeadTo struct {
	Outcome  string `json:"outcome"` // in words
	Reason   string `json:"reason"`
	Class    string `json:"class"`
	Basis    string `json:"basis,omitempty"` // why a repeat is safe
	Executed string `json:"executed"`
	Next     string `json:"next"`              // deliver, retry, stop, park
	Why      string `json:"why"`               // the reason of that
	WaitMS   int64  `json:"wait_ms,omitempty"` // retry, park: about
	// When no attempt brings anything better: how many there are, how long that
	// takes, and what the client gets. A parked call goes on after that.
	Attempts int    `json:"attempts"`
	AfterMS  int64  `json:"after_ms"`
	InTheEnd Ending `json:"in_the_end"`
	// LetGo is what the client gets before that, because it is held no longer.
	LetGo *LetGo `json:"let_go,omitempty"`
}

// LetGo is what a client gets while its call goes on.
type LetGo struct {
	AfterMS int64 `json:"after_ms"`
	Ending
}

// Ending is what the client gets.
type Ending struct {
	Status   int    `json:"status"`
	Reason   string `json:"reason,omitempty"` // X-Retry-Reason
	Executed string `json:"executed,omitempty"`
	Advice   string `json:"advice,omitempty"`
	Cut      bool   `json:"cut,omitempty"` // and then the connection breaks
}

// outcome in words, and how the upstream client would report it.
type imagined struct {
	words  string
	result func() *tried
	// Where it cannot happen: over plain HTTP, once a tunnel stands.
	tlsOnly, inHTTP bool
	egressOnly      bool
}

// imaginable are the outcomes that explain goes through.
var imaginable = []imagined{
	{"the name cannot be resolved", fault(classify.PhaseResolve, classify.FaultDNS), false, false, false},
	{"the name does not exist", fault(classify.PhaseResolve, classify.FaultNoSuchHost), false, false, false},
	{"connection refused", fault(classify.PhaseConnect, classify.FaultRefused), false, false, false},
	{"no connection in time", fault(classify.PhaseConnect, classify.FaultTimeout), false, false, false},
	{"TLS handshake fails", fault(classify.PhaseTLS, classify.FaultTLS), true, true, false},
	{"certificate not valid", fault(classify.PhaseTLS, classify.FaultVerify), true, true, false},
	{"connection lost before sending", fault(classify.PhaseReady, classify.FaultReset), false, true, false},
	{"connection reset after sending", fault(classify.PhaseSent, classify.FaultReset), false, true, false},
	{"connection closed without an answer", fault(classify.PhaseSent, classify.FaultEOF), false, true, false},
	{"no answer in time", fault(classify.PhaseSent, classify.FaultTimeout), false, true, false},
	{"answer cut off", truncated, false, true, false},
	{"answer makes no sense", fault(classify.PhaseHeader, classify.FaultMalformed), false, true, false},
	{"HTTP/2 refused stream or GOAWAY", fault(classify.PhaseSent, classify.FaultRefusedStream), true, true, false},
	{"the egress proxy cannot be reached", fault(classify.PhaseConnect, classify.FaultEgressUnreachable), false, false, true},
	{"the egress proxy takes too long", fault(classify.PhaseConnect, classify.FaultEgressTimeout), false, false, true},
	{"407 of the egress proxy", fault(classify.PhaseConnect, classify.FaultEgressAuth), false, false, true},
	{"403 of the egress proxy", fault(classify.PhaseConnect, classify.FaultEgressDenied), false, false, true},
	{"502 of the egress proxy", fault(classify.PhaseConnect, classify.FaultEgressFailed), false, false, true},
	{"out of descriptors or ports here", fault(classify.PhaseConnect, classify.FaultLocal), false, false, false},
	{"200", answer(200, ""), false, true, false},
	{"200 whose JSON says failure", suspect, false, true, false},
	{"400", answer(400, ""), false, true, false},
	{"404", answer(404, ""), false, true, false},
	{"408", answer(408, ""), false, true, false},
	{"425", answer(425, ""), false, true, false},
	{"429", answer(429, ""), false, true, false},
	{"429 with Retry-After: 10", answer(429, "10"), false, true, false},
	{"500", answer(500, ""), false, true, false},
	{"501", answer(501, ""), false, true, false},
	{"502", answer(502, ""), false, true, false},
	{"503", answer(503, ""), false, true, false},
	{"503 with Retry-After: 3600", answer(503, "3600"), false, true, false},
	{"504", answer(504, ""), false, true, false},
}

// fault is an attempt that ended without an answer.
func fault(p classify.Phase, f classify.Fault) func() *tried {
	return func() *tried { return &tried{Result: upstream.Result{Outcome: classify.Outcome{Phase: p, Fault: f}}} }
}

// answer is an attempt with a complete answer.
func answer(status int, retryAfter string) func() *tried {
	return func() *tried {
		r := &message.Response{Status: status, Version: "1.1", Body: io.NopCloser(strings.NewReader(""))}
		if retryAfter != "" {
			r.Fields.Add("Retry-After", retryAfter)
		}
		return &tried{Result: upstream.Result{Response: r}, whole: true}
	}
}

func truncated() *tried {
	t := answer(200, "")()
	t.whole, t.failed = false, upstream.ErrTruncated
	t.Response.Length = 10
	return t
}

func suspect() *tried {
	t := answer(200, "")()
	t.Response.Fields.Add("Content-Type", "application/json")
	t.head = []byte(`{"success":false}`)
	return t
}

// outcomes goes through everything that can come of an attempt; at is the
// position of the switch.
func (x *exchange) outcomes(at string) []WouldLeadTo {
	var list []WouldLeadTo
	for i := range imaginable {
		o := &imaginable[i]
		https := x.hops[0].target.Scheme == "https"
		if o.egressOnly && x.hops[0].out() == nil {
			continue
		}
		if o.tlsOnly && !https || o.inHTTP && x.mode == "connect" {
			continue
		}
		list = append(list, x.imagine(o, at))
	}
	x.past, x.nxHost = nil, false
	return list
}

// imagine makes a call whose every attempt ends so: judged, decided and waited
// for as on the path, in time that only counts.
func (x *exchange) imagine(o *imagined, at string) WouldLeadTo {
	x.past, x.nxHost = nil, false
	out := WouldLeadTo{Outcome: o.words}
	for now := x.started; ; {
		t := x.pretend(o)
		now = now.Add(min(x.takes(t), x.end.Sub(now)))
		f := x.facts(t, now, 0.5)
		f.Replayable, f.Switch = x.body.repeatable(&t.verdict), at
		next := Decide(&f)
		if len(x.past) == 1 {
			out.judged(&t.verdict, &next, now)
		}
		if next.Do != Retry {
			out.Attempts, out.AfterMS, out.InTheEnd = len(x.past), now.Sub(x.started).Milliseconds(), x.ending(t, next)
			if x.holdsClient() && !now.Before(x.patience.until) {
				out.LetGo = &LetGo{x.patience.until.Sub(x.started).Milliseconds(), x.goingOn(time.Time{})}
			}
			return out
		}
		now = next.At
	}
}

// judged notes what the first attempt leads to.
func (w *WouldLeadTo) judged(v *classify.Verdict, d *Decision, now time.Time) {
	w.Reason, w.Class, w.Basis, w.Executed = v.Reason, v.Class.String(), string(v.Basis), v.Executed.String()
	w.Next, w.Why = d.Do.String(), d.Reason
	if d.Do == Retry || d.Do == Park {
		w.WaitMS = d.At.Sub(now).Milliseconds()
	}
}

// takes is how long an attempt lasts that runs into a time-out; others take no time.
func (x *exchange) takes(t *tried) time.Duration {
	switch {
	case t.Outcome.Fault == classify.FaultEgressTimeout:
		return x.policy.ConnectTimeout
	case t.Outcome.Fault != classify.FaultTimeout:
		return 0
	case t.Outcome.Phase < classify.PhaseSent:
		return x.policy.ConnectTimeout
	}
	return x.policy.PerTryTimeout
}

// pretend makes an attempt with that outcome part of the history.
func (x *exchange) pretend(o *imagined) *tried {
	t := o.result()
	if x.body.stream != nil {
		x.body.stream.used = t.Outcome.Phase >= classify.PhaseSent || t.Response != nil
	}
	if t.failed != nil && !x.holds(t.Response) {
		t.failed = nil // it is seen when the header is already with the client
	}
	t.verdict = x.judge(t)
	a := attempt.Attempt{N: len(x.past) + 1, Count: x.number(), Host: x.hops[0].host, Verdict: t.verdict}
	if t.Response != nil {
		a.Status = t.Response.Status
	}
	x.past = append(x.past, a)
	return t
}

// ending is the answer that conclude would give.
func (x *exchange) ending(t *tried, d Decision) Ending {
	if d.Do == Park {
		return x.goingOn(d.At)
	}
	x.outcome = outcome{decision: d}
	var f message.Fields
	status := 0
	if t.Response != nil && t.failed == nil {
		out := x.final(t.Response)
		status, f = out.Status, out.Fields
	} else {
		p := x.failure(d)
		status = p.status
		x.mark(&f, p.reason, time.Time{})
	}
	cut := t.Response != nil && t.failed == nil && !t.whole && t.head == nil
	return Ending{status, f.Get(hReason), f.Get(hExecuted), f.Get(hAdvice), cut}
}

// goingOn is the answer to a client whose call goes on; at is when, zero: now.
func (x *exchange) goingOn(at time.Time) Ending {
	out, _ := x.goesOn(&idempotency.Record{NextAt: at}, x.patience.applied)
	return Ending{out.Status, out.Fields.Get(hReason), out.Fields.Get(hExecuted), out.Fields.Get(hAdvice), false}
}
