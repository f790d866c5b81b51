package proxy

import (
	"slices"
	"strings"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/message"
)

// Tracer gives calls their place in distributed traces (W3C Trace Context) and makes their
// spans. It must not block.
type Tracer interface {
	// Start is for a client's request: below the client's span, where it names one.
	Start(r *message.Request) *attempt.Trace
	// Again is for what goes on without its client: a trace of its own. first is the
	// traceparent of the call that it goes on for, or empty.
	Again(first string) *attempt.Trace
	// Span is the id of an attempt.
	Span() [8]byte
	// End tells of a call that is over. It keeps neither.
	End(t *attempt.Trace, s *attempt.Summary)
}

// Fields of W3C Trace Context.
const (
	hTraceparent = "traceparent"
	hTracestate  = "tracestate"
)

// beginTrace takes the place of a client's call in its trace.
func (x *exchange) beginTrace() {
	if x.p.Tracer != nil {
		x.trace = x.p.Tracer.Start(&x.call.Request)
	}
}

// resumeTrace begins the trace of what goes on for a record without a client. asking is the
// trace of the call that asks; nil: it is the call itself.
func (x *exchange) resumeTrace(rec *idempotency.Record, asking *attempt.Trace) {
	if x.p.Tracer == nil {
		return
	}
	first := ""
	switch {
	case asking != nil:
		first = asking.Own.String()
	case len(rec.Runs) > 0 && rec.Runs[0].Trace != "":
		first = rec.Runs[0].Trace
	default: // of a time without tracing
		first = x.call.Request.Fields.Get(hTraceparent)
	}
	x.trace = x.p.Tracer.Again(first)
	if first != "" {
		x.trace.Links = append(x.trace.Links, first)
	}
}

// ownTrace is the traceparent of the call; empty: it has none.
func (x *exchange) ownTrace() string {
	if x.trace == nil {
		return ""
	}
	return x.trace.Own.String()
}

// traceparent is what people find the call's trace by.
func (x *exchange) traceparent() string {
	if sent := x.call.Request.Fields.Get(hTraceparent); sent != "" {
		return sent
	}
	return x.ownTrace()
}

// traceSend gives the request of an attempt its own place in the trace. Where none of our
// headers goes, the client's own fields stay as they came.
func (x *exchange) traceSend(req *message.Request) {
	t := x.trace
	if t == nil {
		return
	}
	span := x.p.Tracer.Span()
	if x.sends.trace {
		own := t.Own
		own.Span = span
		req.Fields = withTraceparent(req.Fields, own.String(), t.Goes)
	}
	if t.Sampled {
		t.Sends = append(t.Sends, attempt.Send{
			Span: span, Method: req.Method, URL: x.set.Hide.Target(req.Scheme + "://" + req.Authority + req.Target),
		})
	}
}

// traceTunnel is traceSend of a dial.
func (x *exchange) traceTunnel() {
	if t := x.trace; t != nil && t.Sampled {
		t.Sends = append(t.Sends, attempt.Send{Span: x.p.Tracer.Span(), Method: "CONNECT"})
	}
}

// withTraceparent are the fields with another traceparent, in the place of the one that came.
// goes: what came was good, and so tracestate stays as it is.
func withTraceparent(f message.Fields, traceparent string, goes bool) message.Fields {
	out := make(message.Fields, 0, len(f)+1)
	found := false
	for i := range f {
		switch {
		case strings.EqualFold(f[i].Name, hTraceparent):
			if !found {
				out = append(out, message.Field{Name: f[i].Name, Value: traceparent})
			}
			found = true
		case goes || !strings.EqualFold(f[i].Name, hTracestate):
			out = append(out, f[i])
		}
	}
	if !found {
		out.Add(hTraceparent, traceparent)
	}
	return out
}

// traceSent notes what became of the attempt that was begun last; n is its number.
func (x *exchange) traceSent(t *tried, n int) {
	if x.trace == nil || len(x.trace.Sends) == 0 {
		return
	}
	s := &x.trace.Sends[len(x.trace.Sends)-1]
	if s.N != 0 {
		return // there was no request to send
	}
	s.N, s.Peer, s.Phase = n, t.Remote, t.Outcome.Phase
	if t.Response != nil {
		s.Protocol = t.Response.Version
		if s.Phase = classify.PhaseDone; t.failed != nil {
			s.Phase = classify.PhaseBody
		}
	}
}

// endTrace hands the call over to the tracer, with a link to the first call on its record.
func (x *exchange) endTrace(s *attempt.Summary) {
	t := x.trace
	if t == nil || !t.Sampled {
		return
	}
	for i := range t.Sends {
		for j := range s.Attempts {
			if a := &s.Attempts[j]; a.N == t.Sends[i].N {
				t.Sends[i].Error = proxyErrors[a.Verdict.Reason]
			}
		}
	}
	t.Error = proxyErrors[s.Attempts.Last().Verdict.Reason]
	if len(x.rec.Runs) > 0 {
		x.linkTo(x.rec.Runs[0].Trace)
		if x.resumes {
			x.linkTo(x.lastRun().Trace) // the earlier process's, or its own before it was parked
		}
	}
	x.p.Tracer.End(t, s)
}

// linkTo links the call to another one.
func (x *exchange) linkTo(traceparent string) {
	t := x.trace
	if traceparent != "" && traceparent != t.Own.String() && !slices.Contains(t.Links, traceparent) {
		t.Links = append(t.Links, traceparent)
	}
}
