package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/message"
)

// collector is an exporter that does what send says.
type collector struct {
	send func(ctx context.Context) error
}

func (c collector) ExportSpans(ctx context.Context, _ []sdk.ReadOnlySpan) error { return c.send(ctx) }
func (collector) Shutdown(context.Context) error                                { return nil }

// call is one that was made twice.
func call(t *Tracer) (*attempt.Trace, *attempt.Summary) {
	c := t.Start(&message.Request{Method: "GET", Scheme: "http", Authority: "u1.test", Fields: message.Fields{{Name: "User-Agent", Value: "bot"}}})
	s := &attempt.Summary{ID: "c", Method: "GET", Path: "/", Host: "u1.test:80", Client: "127.0.0.1:1", Result: "recovered", Reason: "ok", Status: 200}
	for n := 1; n <= 2; n++ {
		c.Sends = append(c.Sends, attempt.Send{Span: t.Span(), N: n, Method: "GET", URL: "http://u1.test/"})
		s.Attempts = append(s.Attempts, attempt.Attempt{N: n, Host: "u1.test:80", Status: 200, Verdict: classify.Verdict{Class: classify.Success}})
	}
	return c, s
}

// While the collector hangs, calls end at once, so many spans are kept as the queue takes,
// and closing lasts no longer than it may.
func TestACollectorThatHangsHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := collector{func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		var log bytes.Buffer
		tracer := New(resource.Empty(), 1, sdk.NewBatchSpanProcessor(patient{hangs, &teller{log: slog.New(slog.NewTextHandler(&log, nil))}}))
		began := time.Now()
		for range 10000 {
			tracer.End(call(tracer))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("10000 calls waited %s for the collector", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_ = tracer.Close(ctx)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it was closed after %s, want 3s", took)
		}
		time.Sleep(time.Hour) // what hung gives up
	})
}

// Failures are told once a minute, with what was lost meanwhile.
func TestFailuresAreToldOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := patient{collector{func(context.Context) error { return errors.New("refused") }}, &teller{log: slog.New(slog.NewTextHandler(&log, nil))}}
		for range 121 { // in two minutes
			if err := p.ExportSpans(t.Context(), make([]sdk.ReadOnlySpan, 5)); err != nil {
				t.Errorf("ExportSpans = %v, want it told here alone", err)
			}
			time.Sleep(time.Second)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 3 || !strings.Contains(lines[0], "spans_lost=5") || !strings.Contains(lines[2], "error=refused spans_lost=300") {
			t.Errorf("the log is\n%s\nwant three lines, the last with 300 spans", log.String())
		}
	})
}

// Of the traces that begin here a share is kept, of others what their client says; what goes
// on for a call is kept like that.
func TestSample(t *testing.T) {
	for sample, want := range map[float64][2]int{0: {0, 0}, 0.25: {200, 300}, 1: {1000, 1000}} {
		tracer := New(resource.Empty(), sample, tracetest.NewSpanRecorder())
		kept := 0
		for range 1000 {
			c := tracer.Start(&message.Request{})
			if c.Sampled != (c.Own.Flags == 1) {
				t.Fatalf("sampled %v with flags %d", c.Sampled, c.Own.Flags)
			}
			if c.Sampled {
				kept++
			}
			if again := tracer.Again(c.Own.String()); again.Sampled != c.Sampled || again.Own.Trace == c.Own.Trace {
				t.Fatalf("sampled %v goes on as %v", c.Sampled, again.Sampled)
			}
		}
		if kept < want[0] || kept > want[1] {
			t.Errorf("sample %v kept %d of 1000, want %v", sample, kept, want)
		}
		for flags, sampled := range map[string]bool{"00": false, "01": true} {
			c := tracer.Start(&message.Request{Fields: message.Fields{{Name: "Traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-" + flags}}})
			if c.Sampled != sampled {
				t.Errorf("sample %v: a call with flags %s is sampled: %v", sample, flags, c.Sampled)
			}
		}
	}
}

// What a platform says under a good status is the attempt's error, by its class.
func TestErrorsOfAttempts(t *testing.T) {
	for name, tt := range map[string]struct {
		status  int
		verdict classify.Verdict
		token   string
		want    string
	}{
		"success":                {200, classify.Verdict{Class: classify.Success}, "", ""},
		"moved":                  {302, classify.Verdict{Class: classify.Success}, "", ""},
		"throttled by its words": {200, classify.Verdict{Class: classify.Transient, Kind: classify.Throttled}, "", "business:throttled"},
		"throttled":              {429, classify.Verdict{Class: classify.Transient, Kind: classify.Throttled}, "", "429"},
		"cut off":                {200, classify.Verdict{Class: classify.Unknown, Reason: "truncated"}, "http_response_incomplete", "http_response_incomplete"},
		"no name":                {0, classify.Verdict{Class: classify.Unknown, Reason: "odd"}, "", "_OTHER"},
		"called off":             {0, classify.Verdict{Class: classify.Unknown, Reason: "cancelled"}, "", ""},
	} {
		got, failed := attemptError(&attempt.Send{Error: tt.token}, &attempt.Attempt{Status: tt.status, Verdict: tt.verdict})
		if got != tt.want || failed != (tt.want != "") {
			t.Errorf("%s: error %q, %v, want %q", name, got, failed, tt.want)
		}
	}
}

func BenchmarkEnd(b *testing.B) {
	tracer := New(resource.Empty(), 1, sdk.NewBatchSpanProcessor(collector{func(context.Context) error { return nil }}))
	b.ReportAllocs()
	for b.Loop() {
		tracer.End(call(tracer))
	}
}
