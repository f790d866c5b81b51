package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"retryproxy/attempt"
)

// The client's place in its trace, in all these tests.
const (
	clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan  = "00f067aa0ba902b7"
	inTrace     = "traceparent: 00-" + clientTrace + "-" + clientSpan + "-01"
)

// spans are those that calls made.
type spans struct {
	t   *testing.T
	all *tracetest.SpanRecorder
}

// traced runs f with a rig that makes spans and keeps records in a file.
func traced(t *testing.T, f func(r *rig, s spans, again func()), patch ...string) {
	t.Helper()
	lasting(t, func(r *rig, again func()) {
		s := spans{t, tracetest.NewSpanRecorder()}
		r.spans = s.all
		again()
		defer r.close() // when the test gives up as well: a bubble must not be left in use
		f(r, s, again)
	}, patch...)
}

// of are the spans of a kind that ended so far, by when they began.
func (s spans) of(kind trace.SpanKind) (out []sdk.ReadOnlySpan) {
	synctest.Wait()
	for _, span := range s.all.Ended() {
		if span.SpanKind() == kind {
			out = append(out, span)
		}
	}
	slices.SortStableFunc(out, func(a, b sdk.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	return out
}

// one is the only span of a kind.
func (s spans) one(kind trace.SpanKind) sdk.ReadOnlySpan {
	s.t.Helper()
	all := s.of(kind)
	if len(all) != 1 {
		s.t.Fatalf("%d spans of kind %s, want one", len(all), kind)
	}
	return all[0]
}

// said is the value of an attribute; empty: it is not there.
func said(span sdk.ReadOnlySpan, key string) string {
	for _, a := range span.Attributes() {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// wantSaid checks attributes: pairs of key and value; an empty value is none.
func (s spans) wantSaid(span sdk.ReadOnlySpan, pairs ...string) {
	s.t.Helper()
	for i := 0; i+1 < len(pairs); i += 2 {
		if got := said(span, pairs[i]); got != pairs[i+1] {
			s.t.Errorf("%s %s: %s = %q, want %q", span.SpanKind(), span.Name(), pairs[i], got, pairs[i+1])
		}
	}
}

func (s spans) wantStatus(span sdk.ReadOnlySpan, want codes.Code) {
	s.t.Helper()
	if span.Status().Code != want {
		s.t.Errorf("the status of %s %s is %s, want %s", span.SpanKind(), span.Name(), span.Status().Code, want)
	}
}

// A call that was mended is one span of a server without an error, and one of a client for
// each attempt, side by side; what was waited for are events.
func TestSpansOfACallThatWasMended(t *testing.T) {
	traced(t, func(r *rig, s spans, _ func()) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(503, ""), answer(200, "fine"))
		r.want(r.get("http://u1.test/orders/17?sign=hush&x=1&access_token=hush", inTrace, "tracestate: b=2,a=1", "tracestate: c=3", "User-Agent: bot/1", "X-Shop-Id: s1"), 200, u, 3)
		server := s.one(trace.SpanKindServer)
		s.wantStatus(server, codes.Unset)
		if got := server.Parent(); server.Name() != "GET" || got.TraceID().String() != clientTrace || got.SpanID().String() != clientSpan || !got.IsRemote() {
			t.Errorf("the call is %q below %s, want GET below the client's span", server.Name(), got.SpanID())
		}
		s.wantSaid(server, "http.request.method", "GET", "url.scheme", "http", "url.path", "/orders/17", "server.address", "u1.test", "http.response.status_code", "200",
			"error.type", "", "user_agent.original", "bot/1", "retryproxy.attempts", "3", "retryproxy.stop_reason", "ok", "retryproxy.result", "recovered",
			"retryproxy.policy.name", "default", "retryproxy.replay", "false", "retryproxy.shop", "s1", "client.address", "127.0.0.1")
		clients := s.of(trace.SpanKindClient)
		if len(clients) != 3 {
			t.Fatalf("%d spans of attempts, want 3", len(clients))
		}
		for i, c := range clients {
			status := []string{"503", "503", "200"}[i]
			s.wantSaid(c, "http.request.resend_count", []string{"", "1", "2"}[i], "http.response.status_code", status, "error.type", []string{"503", "503", ""}[i],
				"url.full", "http://u1.test/orders/17?sign=***&x=1&access_token=***", "server.address", "u1.test", "server.port", "80", "network.peer.address", "127.0.1.1",
				"network.protocol.version", "1.1", "retryproxy.phase", "done")
			s.wantStatus(c, []codes.Code{codes.Error, codes.Error, codes.Unset}[i])
			if c.Name() != "GET" || c.Parent().SpanID() != server.SpanContext().SpanID() {
				t.Errorf("attempt %d is %q below %s, want GET below the call", i+1, c.Name(), c.Parent().SpanID())
			}
			h := u.seen()[i].Header
			if want := "00-" + clientTrace + "-" + c.SpanContext().SpanID().String() + "-01"; h.Get("traceparent") != want || len(h["Traceparent"]) != 1 {
				t.Errorf("attempt %d has traceparent %q, want %q", i+1, h["Traceparent"], want)
			}
			if got := h["Tracestate"]; !slices.Equal(got, []string{"b=2,a=1", "c=3"}) {
				t.Errorf("attempt %d has tracestate %q, want it as it came", i+1, got)
			}
		}
		events := server.Events()
		if len(events) != 2 {
			t.Fatalf("%d events, want both waits", len(events))
		}
		for i, e := range events {
			wait := []int64{100, 200}[i]
			got := map[string]any{}
			for _, a := range e.Attributes {
				got[string(a.Key)] = a.Value.AsInterface()
			}
			if e.Name != "retryproxy.wait" || got["reason"] != "backoff" || got["planned_ms"] != wait || got["actual_ms"] != wait || !e.Time.Equal(clients[i].EndTime()) {
				t.Errorf("event %s %v at %s, want the wait of %d ms after attempt %d", e.Name, got, e.Time, wait, i+1)
			}
		}
	}, plain...)
}

// A write that may have been executed is given up: both sides are in error.
func TestSpansOfAWriteInDoubt(t *testing.T) {
	traced(t, func(r *rig, s spans, _ func()) {
		u := r.upstream("u1.test:80", reset)
		r.want(r.post("http://u1.test/pay", "{}"), 502, u, 1)
		server, client := s.one(trace.SpanKindServer), s.one(trace.SpanKindClient)
		s.wantStatus(server, codes.Error)
		s.wantSaid(server, "error.type", "502", "retryproxy.stop_reason", "manual_review", "retryproxy.failure_class", "unknown", "http.response.status_code", "502")
		s.wantStatus(client, codes.Error)
		s.wantSaid(client, "error.type", "connection_terminated", "http.response.status_code", "", "retryproxy.phase", "sent", "http.request.resend_count", "")
		if got := u.seen()[0].Header.Get("traceparent"); !strings.Contains(got, server.SpanContext().TraceID().String()) || server.Parent().IsValid() {
			t.Errorf("without a trace of the client the upstream saw %q, want a new trace", got)
		}
	})
}

// What the client asks for wrongly is its own doing: no error of the server.
func TestSpansOfAClientsFault(t *testing.T) {
	traced(t, func(r *rig, s spans, _ func()) {
		r.upstream("u1.test:80", answer(404, ""))
		r.get("http://u1.test/")
		s.wantStatus(s.one(trace.SpanKindServer), codes.Unset)
		s.wantStatus(s.one(trace.SpanKindClient), codes.Error)
		s.wantSaid(s.one(trace.SpanKindClient), "error.type", "404")
		s.wantSaid(s.one(trace.SpanKindServer), "error.type", "", "http.response.status_code", "404")
	})
}

// A client that leaves is no error, of the call as of its attempt.
func TestSpansOfACallThatItsClientLeft(t *testing.T) {
	traced(t, func(r *rig, s spans, _ func()) {
		r.upstream("u1.test:80", silent)
		c := r.dial()
		io.WriteString(c, rawRequest("GET", "http://u1.test/", ""))
		rest(100 * time.Millisecond)
		c.Close()
		rest(time.Second)
		for _, kind := range []trace.SpanKind{trace.SpanKindServer, trace.SpanKindClient} {
			span := s.one(kind)
			s.wantStatus(span, codes.Unset)
			s.wantSaid(span, "error.type", "", "http.response.status_code", "")
		}
		s.wantSaid(s.one(trace.SpanKindServer), "retryproxy.result", "cancelled")
	})
}

// A replay has no attempts, and is linked to the call that it repeats.
func TestSpansOfAReplay(t *testing.T) {
	traced(t, func(r *rig, s spans, _ func()) {
		u := r.upstream("u1.test:80", answer(201, "order 1"))
		r.want(r.post("http://u1.test/", "{}", keyed, inTrace), 201, u, 1)
		rest(time.Second)
		r.want(r.post("http://u1.test/", "{}", keyed), 201, u, 1)
		calls := s.of(trace.SpanKindServer)
		if len(calls) != 2 || len(s.of(trace.SpanKindClient)) != 1 {
			t.Fatalf("%d calls and %d attempts, want two and one", len(calls), len(s.of(trace.SpanKindClient)))
		}
		s.wantSaid(calls[1], "retryproxy.replay", "true", "retryproxy.attempts", "0")
		s.wantLinks(calls[0])
		s.wantLinks(calls[1], calls[0])
	})
}

// wantLinks checks that a span is linked to these and no other.
func (s spans) wantLinks(span sdk.ReadOnlySpan, to ...sdk.ReadOnlySpan) {
	s.t.Helper()
	links := span.Links()
	if len(links) != len(to) {
		s.t.Errorf("%s has %d links, want %d", span.Name(), len(links), len(to))
		return
	}
	for i, want := range to {
		if got := links[i].SpanContext; got.TraceID() != want.SpanContext().TraceID() || got.SpanID() != want.SpanContext().SpanID() {
			s.t.Errorf("%s is linked to %s of %s, want %s of %s", span.Name(), got.SpanID(), got.TraceID(), want.SpanContext().SpanID(), want.SpanContext().TraceID())
		}
	}
}

// A letter that runs again has a trace of its own, linked to the first call's span, also by
// a process that did not see that.
func TestSpansOfARequeue(t *testing.T) {
	traced(t, func(r *rig, s spans, again func()) {
		u := r.upstream("u1.test:80", answer(503, "busy"), answer(200, "fine"))
		r.post("http://u1.test/orders", "{}", keyed, inTrace)
		first := s.one(trace.SpanKindServer)
		rest(90 * time.Second)
		again()
		r.requeueOnly()
		run := s.one(trace.SpanKindInternal)
		if run.Name() != "retryproxy.requeue" || run.Parent().IsValid() || run.SpanContext().TraceID() == first.SpanContext().TraceID() {
			t.Errorf("the requeue is %q below %s, want a trace of its own", run.Name(), run.Parent().SpanID())
		}
		s.wantLinks(run, first)
		s.wantSaid(run, "retryproxy.dead_letter.age_s", "90", "retryproxy.result", "success", "http.response.status_code", "")
		attempts := s.of(trace.SpanKindClient)
		if len(attempts) != 2 || attempts[1].Parent().SpanID() != run.SpanContext().SpanID() {
			t.Fatalf("%d attempts, want the second one below the requeue", len(attempts))
		}
		s.wantSaid(attempts[1], "http.request.resend_count", "1")
		if got := u.seen()[1].Header.Get("traceparent"); !strings.Contains(got, run.SpanContext().TraceID().String()) {
			t.Errorf("the upstream saw %q, want the trace of the requeue", got)
		}
	}, patches(plain, []string{"max_retries: 3", "max_retries: 0"})...)
}

// requeueOnly runs the only letter again, to its end.
func (r *rig) requeueOnly() {
	r.t.Helper()
	all := r.letters()
	if len(all) != 1 {
		r.t.Fatalf("%d letters, want one", len(all))
	}
	if got := r.admin("POST", "/api/v1/deadletters/"+all[0].Receipt+"/requeue", `{"by": "zhang", "note": "again"}`, nil); got.Status >= 300 {
		r.t.Fatalf("requeue = %d %s", got.Status, got.Body)
	}
	rest(time.Second)
}

// A call that goes on in the next process is linked to its own beginning.
func TestSpansOfACallThatOutlivesItsProcess(t *testing.T) {
	traced(t, func(r *rig, s spans, again func()) {
		r.upstream("u1.test:80", answer(503, "", "Retry-After: 2"), answer(201, "order 1"))
		call := r.async(func() reply { return r.post("http://u1.test/orders", "{}", keyed, inTrace, "tracestate: a=1") })
		rest(time.Second)
		again()
		r.want(<-call, 202, nil, 0)
		rest(3 * time.Second)
		first, run := s.one(trace.SpanKindServer), s.one(trace.SpanKindInternal)
		if run.Name() != "retryproxy.resume" || run.Parent().IsValid() {
			t.Errorf("it is %q below %s, want a trace of its own", run.Name(), run.Parent().SpanID())
		}
		s.wantLinks(run, first)
		s.wantStatus(run, codes.Unset)
		clients := s.of(trace.SpanKindClient)
		if len(clients) != 2 {
			t.Fatalf("%d attempts, want each once", len(clients))
		}
		s.wantSaid(clients[1], "http.request.resend_count", "1")
	}, plain...)
}

// After a kill the link is there as well, and the attempt that was in flight is none of the
// next process.
func TestSpansAfterAKill(t *testing.T) {
	traced(t, func(r *rig, s spans, again func()) {
		u := r.upstream("u1.test:80", silent, answer(201, "order 1"))
		r.async(func() reply { return r.post("http://u1.test/", "{}", keyed, inTrace) })
		rest(100 * time.Millisecond)
		sent := u.seen()[0].Header.Get("traceparent")
		r.kill()
		again()
		rest(3 * time.Second)
		run := s.one(trace.SpanKindInternal)
		if links := run.Links(); len(links) != 1 || links[0].SpanContext.TraceID().String() != clientTrace || sent[:35] != "00-"+clientTrace {
			t.Errorf("links %v, want one to the trace %s", links, clientTrace)
		}
		for _, c := range s.of(trace.SpanKindClient) {
			if c.Parent().SpanID() == run.SpanContext().SpanID() {
				s.wantSaid(c, "http.request.resend_count", "1", "http.response.status_code", "201")
			}
		}
	}, plain...)
}

// A tunnel is a span of a server and, for the dial, one of a client.
func TestSpansOfATunnel(t *testing.T) {
	traced(t, func(r *rig, s spans, _ func()) {
		u := r.upstream("u1.test:443", silent)
		u.headOnly = true
		c, _, got := r.connect("u1.test:443")
		r.want(got, 200, nil, 0)
		io.WriteString(c, "12345")
		rest(time.Second)
		c.Close()
		rest(time.Second)
		server, client := s.one(trace.SpanKindServer), s.one(trace.SpanKindClient)
		s.wantSaid(server, "http.request.method", "CONNECT", "server.address", "u1.test", "server.port", "443", "url.path", "", "retryproxy.tunnel.bytes_sent", "5", "http.response.status_code", "200")
		s.wantSaid(client, "http.request.method", "CONNECT", "server.address", "u1.test", "url.full", "", "network.peer.address", "127.0.1.1")
		s.wantStatus(server, codes.Unset)
		if server.Name() != "CONNECT" || client.Name() != "CONNECT" {
			t.Errorf("names %q and %q, want CONNECT", server.Name(), client.Name())
		}
	})
}

// What the client says of its trace is judged by the rules of W3C Trace Context.
func TestTraceContextOfTheClient(t *testing.T) {
	for name, tt := range map[string]struct {
		headers []string
		below   bool   // the trace of the client goes on
		state   string // that the upstream sees
		flags   string
		none    bool // no span is made
	}{
		"none":                {nil, false, "", "01", false},
		"state alone":         {[]string{"tracestate: a=1"}, false, "", "01", false},
		"sampled":             {[]string{inTrace, "tracestate: a=1"}, true, "a=1", "01", false},
		"not sampled":         {[]string{strings.TrimSuffix(inTrace, "1") + "0", "tracestate: a=1"}, true, "a=1", "00", true},
		"random":              {[]string{strings.TrimSuffix(inTrace, "1") + "3"}, true, "", "03", false},
		"a later version":     {[]string{strings.Replace(inTrace, "00-4", "cc-4", 1) + "-what-the-future-will-be-like"}, true, "", "01", false},
		"bad state":           {[]string{inTrace, "tracestate: =,"}, true, "", "01", false},
		"no trace":            {[]string{"traceparent: 00-00000000000000000000000000000000-" + clientSpan + "-01", "tracestate: a=1"}, false, "", "01", false},
		"capitals":            {[]string{strings.ToUpper(inTrace), "tracestate: a=1"}, false, "", "01", false},
		"the version of none": {[]string{strings.Replace(inTrace, "00-4", "ff-4", 1), "tracestate: a=1"}, false, "", "01", false},
		"two":                 {[]string{inTrace, inTrace, "tracestate: a=1"}, false, "", "01", false},
		"junk":                {[]string{"traceparent: \xff\xfe", "tracestate: a=1"}, false, "", "01", false},
	} {
		t.Run(name, func(t *testing.T) {
			traced(t, func(r *rig, s spans, _ func()) {
				u := r.upstream("u1.test:80", answer(200, ""))
				r.want(r.get("http://u1.test/", tt.headers...), 200, u, 1)
				h := u.seen()[0].Header
				parts := strings.Split(h.Get("traceparent"), "-")
				if len(parts) != 4 || len(h["Traceparent"]) != 1 || parts[0] != "00" || (parts[1] == clientTrace) != tt.below || parts[2] == clientSpan || parts[3] != tt.flags {
					t.Errorf("traceparent = %q, want in the client's trace: %v, flags %s", h["Traceparent"], tt.below, tt.flags)
				}
				if h.Get("tracestate") != tt.state {
					t.Errorf("tracestate = %q, want %q", h["Tracestate"], tt.state)
				}
				if got := len(s.of(trace.SpanKindServer)); (got == 0) != tt.none {
					t.Errorf("%d spans, want none: %v", got, tt.none)
				}
			})
		})
	}
}

// A platform to which none of our headers goes gets what the client sent there, and no more,
// unless the operator says so; without tracing everybody does.
func TestTraceContextGoesWhereOurHeadersGo(t *testing.T) {
	const platform, own = "gw-api.pinduoduo.com", "u1.test"
	sent := strings.TrimPrefix(inTrace, "traceparent: ")
	for name, tt := range map[string]struct {
		host, policy, client string
		off                  bool
		same                 bool // the upstream sees what the client sent
	}{
		"our own service":                  {own, "", inTrace, false, false},
		"none of our headers":              {own, ", forward_headers: []", inTrace, false, true},
		"the key alone":                    {own, ", forward_headers: [idempotency_key]", inTrace, false, false},
		"a platform":                       {platform, "", inTrace, false, true},
		"a platform, nothing came":         {platform, "", "X: y", false, true},
		"a platform, another header":       {platform, ", forward_headers: [idempotency_key]", inTrace, false, true},
		"a platform, named":                {platform, ", forward_headers: [trace_context]", inTrace, false, false},
		"off":                              {own, "", inTrace, true, true},
		"off, what nobody else would take": {own, "", "traceparent: junk", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(r *rig) {
				u := r.upstream(tt.host+":80", answer(200, ""))
				r.want(r.get("http://"+tt.host+"/", tt.client, "tracestate: a=1"), 200, u, 1)
				h := u.seen()[0].Header
				want := ""
				if v, ok := strings.CutPrefix(tt.client, "traceparent: "); ok {
					want = v
				}
				if got := h.Get("traceparent"); (got == want) != tt.same || !tt.same && (got == "" || got[:35] != sent[:35]) {
					t.Errorf("traceparent = %q, want it as it came: %v", got, tt.same)
				}
				if h.Get("tracestate") != "a=1" {
					t.Errorf("tracestate = %q, want it as it came", h["Tracestate"])
				}
			}
			patch := []string{"max_retries: 3", "max_retries: 3" + tt.policy, "retry_limits:", "upgrade_to_https: []\nretry_limits:"}
			if tt.off {
				bubble(t, run, patch...)
				return
			}
			traced(t, func(r *rig, _ spans, _ func()) { run(r) }, patch...)
		})
	}
}

// Names have few values: routes and known methods.
func TestNamesOfSpans(t *testing.T) {
	traced(t, func(r *rig, s spans, _ func()) {
		r.upstream("u1.test:80", answer(200, ""))
		r.do("PURGE", "http://u1.test/1", "")
		r.ask(rawOrigin("POST", proxyAddr, "/shop/orders/17", "{}"))
		calls := s.of(trace.SpanKindServer)
		if len(calls) != 2 || calls[0].Name() != "HTTP" || calls[1].Name() != "POST /shop/*" {
			t.Fatalf("%d calls: %v, want HTTP and POST /shop/*", len(calls), calls)
		}
		s.wantSaid(calls[0], "http.request.method", "_OTHER", "http.request.method_original", "PURGE")
		s.wantSaid(calls[1], "http.route", "/shop/*", "url.path", "/orders/17", "retryproxy.mode", "reverse")
	}, "retry_limits:", "routes: [{name: shop, prefix: /shop, upstreams: ['http://u1.test']}]\nretry_limits:")
}

// What a client sends that is not UTF-8 must not cost other spans: OTLP takes none with it.
func TestSpansAreAlwaysText(t *testing.T) {
	traced(t, func(r *rig, s spans, _ func()) {
		r.upstream("u1.test:80", answer(200, ""))
		r.get("http://u1.test/x?y=%ff", "User-Agent: \xff\xfebot")
		s.wantSaid(s.one(trace.SpanKindServer), "user_agent.original", "\uFFFDbot")
	})
}

// Calls are found by the trace that they are in, theirs as their client's.
func TestCallsAreFoundByTheirTrace(t *testing.T) {
	traced(t, func(r *rig, s spans, _ func()) {
		r.upstream("u1.test:80", answer(200, ""))
		r.get("http://u1.test/")
		id := s.one(trace.SpanKindServer).SpanContext()
		got := r.ended()[0]
		if want := (attempt.SpanContext{Trace: id.TraceID(), Span: id.SpanID(), Flags: 1}).String(); got.Trace != want {
			t.Errorf("the call's trace is %q, want %q", got.Trace, want)
		}
	})
}
