package tracing

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/message"
)

// otherError is the error.type of what has no name.
const otherError = "_OTHER"

// known are the methods that may be names of spans: others would have no bound.
var known = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}

// End makes the spans of a call: its own, and one for each attempt that was made here.
func (t *Tracer) End(c *attempt.Trace, s *attempt.Summary) {
	if !c.Sampled {
		return
	}
	ctx := context.Background()
	if !c.Parent.IsZero() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, remote(c.Parent, c.State))
	}
	name, kind := callName(c, s)
	span := t.span(ctx, c.Own, name, kind, s.Started, callAttributes(c, s), links(c.Links)...)
	for i := range s.Waits {
		wait(span, &s.Waits[i])
	}
	own := trace.ContextWithRemoteSpanContext(context.Background(), remote(c.Own, c.State))
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if at := slices.IndexFunc(c.Sends, func(x attempt.Send) bool { return x.N == a.N }); at >= 0 {
			t.attempt(own, c, &c.Sends[at], a)
		}
	}
	if kind, failed := callError(c, s); failed {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(attribute.String("error.type", kind))
	}
	span.End(trace.WithTimestamp(s.Ended))
}

// span starts a span that has its ids.
func (t *Tracer) span(ctx context.Context, id attempt.SpanContext, name string, kind trace.SpanKind, began time.Time, attributes []attribute.KeyValue, links ...trace.Link) trace.Span {
	_, span := t.tracer.Start(&ids{ctx, id.Trace, id.Span}, name, trace.WithSpanKind(kind), trace.WithTimestamp(began),
		trace.WithAttributes(attributes...), trace.WithLinks(links...))
	return span
}

// callName names the span of a call. What no client waits for is none of a server.
func callName(c *attempt.Trace, s *attempt.Summary) (string, trace.SpanKind) {
	switch name := method(s.Method); {
	case s.Origin == attempt.OriginRestart || s.Origin == attempt.OriginParked:
		return "retryproxy.resume", trace.SpanKindInternal
	case s.Origin != "":
		return "retryproxy." + s.Origin, trace.SpanKindInternal
	case c.Route != "":
		return name + " " + c.Route, trace.SpanKindServer
	default:
		return name, trace.SpanKindServer
	}
}

func method(name string) string {
	if slices.Contains(known, name) {
		return name
	}
	return "HTTP"
}

// list collects attributes; empty ones are left out.
type list []attribute.KeyValue

// text adds a text, which may come from outside: what is not UTF-8 would cost all spans
// that are sent with it.
func (l *list) text(key, value string) {
	if value != "" {
		*l = append(*l, attribute.String(key, strings.ToValidUTF8(value, "\uFFFD")))
	}
}

func (l *list) number(key string, n int) {
	if n != 0 {
		*l = append(*l, attribute.Int(key, n))
	}
}

// method adds a method of a request.
func (l *list) method(name string) {
	if slices.Contains(known, name) {
		l.text("http.request.method", name)
		return
	}
	l.text("http.request.method", otherError)
	l.text("http.request.method_original", name)
}

// server adds host and port.
func (l *list) server(authority string) {
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		l.text("server.address", strings.Trim(authority, "[]"))
		return
	}
	l.text("server.address", host)
	n, _ := strconv.Atoi(port)
	l.number("server.port", n)
}

func callAttributes(c *attempt.Trace, s *attempt.Summary) []attribute.KeyValue {
	l := make(list, 0, 26)
	l.method(s.Method)
	if s.Mode != "connect" {
		l.text("url.scheme", scheme(c, s))
		l.text("url.path", s.Path)
	}
	l.server(orElse(c.Authority, s.Host))
	l.text("http.route", c.Route)
	if s.Origin == "" && s.Result != "cancelled" {
		l.number("http.response.status_code", s.Status)
	}
	host, _, _ := net.SplitHostPort(s.Client)
	l.text("client.address", orElse(host, s.Client))
	l.text("user_agent.original", c.UserAgent)
	l.text("retryproxy.call_id", s.ID)
	l.text("retryproxy.mode", s.Mode)
	l.text("retryproxy.policy.name", s.Policy)
	l.text("retryproxy.shop", s.Labels.Shop)
	l.text("retryproxy.task_type", s.Labels.TaskType)
	l.text("retryproxy.result", s.Result)
	l.text("retryproxy.stop_reason", s.Reason)
	l = append(l, attribute.Int("retryproxy.attempts", len(s.Attempts)), attribute.Bool("retryproxy.replay", s.Result == "replay"))
	l.number("retryproxy.previous_attempts", s.Previous)
	if s.Result != "success" && s.Result != "recovered" && len(s.Attempts) > 0 {
		l.text("retryproxy.failure_class", s.Attempts.Last().Verdict.Class.String())
	}
	if c.Age > 0 {
		l = append(l, attribute.Int64("retryproxy.dead_letter.age_s", int64(c.Age.Seconds())))
	}
	l.text("retryproxy.idempotency.basis", basis(s.Attempts))
	if s.Mode == "connect" {
		l.number("retryproxy.tunnel.bytes_sent", int(c.Up))
		l.number("retryproxy.tunnel.bytes_received", int(s.Bytes))
	}
	return l
}

// scheme is that of the client's request; in origin-form it does not say.
func scheme(c *attempt.Trace, s *attempt.Summary) string {
	if s.Mode == "intercept" {
		return "https"
	}
	return orElse(c.Scheme, "http")
}

// basis is why repeating the call was safe, as its last attempt that has one says.
func basis(h attempt.History) string {
	for i := len(h) - 1; i >= 0; i-- {
		if b := h[i].Verdict.Basis; b != "" {
			return string(b)
		}
	}
	return ""
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// callError says whether the call went wrong for whoever waits for it: what was mended on
// the way did not, nor did what its client called off.
func callError(c *attempt.Trace, s *attempt.Summary) (kind string, failed bool) {
	switch {
	case s.Result == "cancelled":
		return "", false
	case s.Origin != "":
		return orElse(c.Error, otherError), s.Result == "failed"
	case s.Status >= 500:
		return strconv.Itoa(s.Status), true
	}
	return orElse(c.Error, otherError), s.Result == "failed" && s.Status < 400 // it broke off
}

// attempt makes the span of an attempt.
func (t *Tracer) attempt(ctx context.Context, c *attempt.Trace, x *attempt.Send, a *attempt.Attempt) {
	l := make(list, 0, 16)
	l.method(x.Method)
	l.text("url.full", x.URL)
	l.server(a.Host)
	if x.Peer.IsValid() {
		l.text("network.peer.address", x.Peer.Addr().String())
		l.number("network.peer.port", int(x.Peer.Port()))
	}
	l.text("network.protocol.version", strings.TrimSuffix(x.Protocol, ".0"))
	l.number("http.request.resend_count", a.N-1)
	l.number("http.response.status_code", a.Status)
	l.text("retryproxy.phase", x.Phase.String())
	l.text("retryproxy.verdict", a.Verdict.Reason)
	l.text("retryproxy.egress", a.Egress)
	l.text("retryproxy.supplier", a.Supplier)
	own := c.Own
	own.Span = x.Span
	span := t.span(ctx, own, method(x.Method), trace.SpanKindClient, a.Started, l)
	if kind, failed := attemptError(x, a); failed {
		span.SetStatus(codes.Error, strings.ToValidUTF8(a.Detail, "\uFFFD"))
		span.SetAttributes(attribute.String("error.type", kind))
	}
	span.End(trace.WithTimestamp(a.Started.Add(a.Duration)))
}

// attemptError says whether the attempt went wrong, and how: by its status, by what the
// platform said under a good status, or without a whole answer.
func attemptError(x *attempt.Send, a *attempt.Attempt) (kind string, failed bool) {
	v := &a.Verdict
	switch {
	case v.Reason == "cancelled":
		return "", false
	case a.Status >= 400:
		return strconv.Itoa(a.Status), true
	case v.Class == classify.Success:
		return "", false
	case v.Kind != classify.Unsaid:
		return "business:" + v.Kind.String(), true
	}
	return orElse(x.Error, otherError), true
}

// wait tells of a wait at the moment when it began.
func wait(span trace.Span, w *attempt.Wait) {
	attributes := []attribute.KeyValue{attribute.String("reason", w.Cause), attribute.Int64("actual_ms", w.For.Milliseconds())}
	if w.Planned > 0 {
		attributes = append(attributes, attribute.Int64("planned_ms", w.Planned.Milliseconds()))
	}
	span.AddEvent("retryproxy.wait", trace.WithTimestamp(w.Began), trace.WithAttributes(attributes...))
}

// links are those to the calls that have these traceparents.
func links(to []string) (out []trace.Link) {
	for _, traceparent := range to {
		if c := parentOf(message.Fields{{Name: "traceparent", Value: traceparent}}); c.IsValid() {
			out = append(out, trace.Link{SpanContext: c})
		}
	}
	return out
}
