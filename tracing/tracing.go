// Package tracing answers one question: where in a distributed trace does a call stand, and what do its spans tell?
//
// It speaks W3C Trace Context and OTLP by the OpenTelemetry SDK. A call knows the ids of its
// spans beforehand, because they go upstream; the spans are made when it is over.
package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"retryproxy/attempt"
	"retryproxy/message"
)

// longestValue bounds what a client can put into one attribute, in bytes.
const longestValue = 2048

// Tracer makes the spans of calls. Make one with New; its methods may be called at any time.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	ratio    sdk.Sampler
}

// New makes a tracer that hands its spans to p. sample is the share, 0 to 1, of the traces
// that begin here.
func New(res *resource.Resource, sample float64, p sdk.SpanProcessor) *Tracer {
	limits := sdk.NewSpanLimits() // of the environment
	if limits.AttributeValueLengthLimit < 0 {
		limits.AttributeValueLengthLimit = longestValue
	}
	t := &Tracer{ratio: sdk.TraceIDRatioBased(sample)}
	t.provider = sdk.NewTracerProvider(sdk.WithResource(res), sdk.WithSampler(sdk.AlwaysSample()), sdk.WithIDGenerator(given{}),
		sdk.WithRawSpanLimits(limits), sdk.WithSpanProcessor(p))
	t.tracer = t.provider.Tracer("retryproxy")
	return t
}

// Close sends what is left, as far as ctx lets it.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Start gives a client's request its place: below the client's span and sampled like that,
// where it names one, else at the head of a new trace.
func (t *Tracer) Start(r *message.Request) *attempt.Trace {
	parent := parentOf(r.Fields)
	if !parent.IsValid() {
		return t.detailed(t.root(), r)
	}
	c := &attempt.Trace{Parent: plain(parent), State: parent.TraceState().String()}
	c.Goes = c.State != "" || !r.Fields.Has("tracestate")
	c.Own = attempt.SpanContext{Trace: parent.TraceID(), Span: t.Span(), Flags: byte(parent.TraceFlags())}
	c.Sampled = parent.IsSampled()
	return t.detailed(c, r)
}

// root is the head of a new trace.
func (t *Tracer) root() *attempt.Trace {
	c := &attempt.Trace{Own: attempt.SpanContext{Trace: newTraceID(), Span: t.Span()}}
	result := t.ratio.ShouldSample(sdk.SamplingParameters{ParentContext: context.Background(), TraceID: c.Own.Trace})
	if c.Sampled = result.Decision == sdk.RecordAndSample; c.Sampled {
		c.Own.Flags = byte(trace.FlagsSampled)
	}
	return c
}

// detailed adds what only spans need.
func (t *Tracer) detailed(c *attempt.Trace, r *message.Request) *attempt.Trace {
	if c.Sampled {
		c.Scheme, c.Authority, c.UserAgent = r.Scheme, r.Authority, r.Fields.Get("User-Agent")
	}
	return c
}

// Again begins a trace of its own for what goes on without its client, sampled like the call
// that it goes on for.
func (t *Tracer) Again(first string) *attempt.Trace {
	c := t.root()
	if parent := parentOf(message.Fields{{Name: "traceparent", Value: first}}); parent.IsValid() {
		c.Sampled = parent.IsSampled()
		c.Own.Flags = byte(parent.TraceFlags() & trace.FlagsSampled)
	}
	return c
}

// Span is a random id.
func (t *Tracer) Span() (id [8]byte) {
	for id == [8]byte{} {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

func newTraceID() (id [16]byte) {
	for id == [16]byte{} {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

// parentOf is the client's span; invalid: it names none, or names it wrongly.
func parentOf(f message.Fields) trace.SpanContext {
	if !f.Has("traceparent") {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier{f}))
}

// carrier reads the fields of a request. Two traceparents are none; lines of tracestate are
// one list.
type carrier struct{ fields message.Fields }

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(name string) string {
	values := c.fields.Values(name)
	switch {
	case name == "tracestate":
		return strings.Join(values, ",")
	case len(values) != 1:
		return ""
	}
	return values[0]
}

// Set implements propagation.TextMapCarrier: nothing is written by it.
func (carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() (names []string) {
	for i := range c.fields {
		names = append(names, c.fields[i].Name)
	}
	return names
}

func plain(c trace.SpanContext) attempt.SpanContext {
	return attempt.SpanContext{Trace: c.TraceID(), Span: c.SpanID(), Flags: byte(c.TraceFlags())}
}

// remote is the way back from plain, with the client's state.
func remote(c attempt.SpanContext, state string) trace.SpanContext {
	ts, _ := trace.ParseTraceState(state) // it was one
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: c.Trace, SpanID: c.Span, TraceFlags: trace.TraceFlags(c.Flags), TraceState: ts, Remote: true,
	})
}

// ids is the context of a span whose ids are there already.
type ids struct {
	context.Context
	trace trace.TraceID
	span  trace.SpanID
}

type idsKey struct{}

// Value gives the ids to given.
func (i *ids) Value(key any) any {
	if key == (idsKey{}) {
		return i
	}
	return i.Context.Value(key)
}

// given is an sdk.IDGenerator that makes none itself: all spans come with theirs.
type given struct{}

// NewIDs implements sdk.IDGenerator.
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	i := ctx.Value(idsKey{}).(*ids) //nolint:forcetypeassert // only End starts spans
	return i.trace, i.span
}

// NewSpanID implements sdk.IDGenerator.
func (g given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, span := g.NewIDs(ctx)
	return span
}
