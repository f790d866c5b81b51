package proxy

import (
	"testing"
	"time"

	"retryproxy/backoff"
	"retryproxy/breaker"
	"retryproxy/classify"
	"retryproxy/policy"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func plainPolicy() *policy.Policy {
	return &policy.Policy{
		Name: "default", MaxRetries: 3, FirstRetry: "backoff",
		Backoff:          backoff.Policy{Base: time.Second, Max: time.Minute, Multiplier: 2, Jitter: "none", Ratio: 0.2},
		HonourRetryAfter: true, RetryAfterCap: 2 * time.Minute, RetryAfterOverCap: "cap",
	}
}

func transient503() Facts {
	return Facts{
		Policy: plainPolicy(), Status: 503, ID: "k", Left: 3, Now: noon, End: noon.Add(5 * time.Minute),
		Replayable: true, Switch: "on",
		Verdict: classify.Verdict{Class: classify.Transient, Reason: "status_503", Basis: classify.BasisRefused},
	}
}

func TestDecide(t *testing.T) {
	after := func(d time.Duration) func(*Facts) {
		return func(f *Facts) { f.Verdict.RetryAfter = d }
	}
	tests := []struct {
		name   string
		change func(*Facts)
		do     Do
		reason string
		wait   time.Duration // Retry, or Stop with a date
	}{
		{"a success is delivered", func(f *Facts) { f.Verdict.Class = classify.Success }, Deliver, "ok", 0},
		{"an unknown outcome needs a person", func(f *Facts) { f.Verdict.Class = classify.Unknown }, Stop, "manual_review", 0},
		{"a permanent failure stops", func(f *Facts) { f.Verdict.Class = classify.Permanent }, Stop, "fail_permanent", 0},
		{"the client cancelled the attempt", func(f *Facts) { f.Verdict = classify.Verdict{Class: classify.Unknown, Reason: "cancelled"} }, Stop, "client_gone", 0},
		{"nobody waits any more", func(f *Facts) { f.Gone = true }, Stop, "client_gone", 0},
		{"the body is used up", func(f *Facts) { f.Replayable = false }, Stop, "body_not_replayable", 0},
		{"no retries left", func(f *Facts) { f.Left = 0 }, Stop, "attempts_exhausted", 0},
		{"first retry", func(*Facts) {}, Retry, "status_503", time.Second},
		{"third retry", func(f *Facts) { f.Retries = 2 }, Retry, "status_503", 4 * time.Second},
		{"Retry-After above the own delay", after(10 * time.Second), Retry, "status_503", 10 * time.Second},
		{"Retry-After below the own delay", func(f *Facts) { f.Retries = 3; f.Verdict.RetryAfter = time.Second }, Retry, "status_503", 8 * time.Second},
		{"Retry-After over the cap waits the cap", after(time.Hour), Retry, "status_503", 2 * time.Minute},
		{"Retry-After over the cap, policy stop", func(f *Facts) { f.Policy.RetryAfterOverCap = "stop"; f.Verdict.RetryAfter = time.Hour }, Stop, "retry_after_too_long", time.Hour},
		{"Retry-After over the cap, policy park", func(f *Facts) { f.Policy.RetryAfterOverCap = "park"; f.Verdict.RetryAfter = time.Hour }, Stop, "retry_after_too_long", time.Hour},
		{"Retry-After beyond the deadline", func(f *Facts) { f.End = noon.Add(5 * time.Second); f.Verdict.RetryAfter = 30 * time.Second }, Stop, "retry_after_too_long", 30 * time.Second},
		{"Retry-After not honoured", func(f *Facts) { f.Policy.HonourRetryAfter = false; f.Verdict.RetryAfter = 10 * time.Second }, Retry, "status_503", time.Second},
		{"backoff beyond the deadline", func(f *Facts) { f.End = noon.Add(time.Second - 1) }, Stop, "deadline_exceeded", 0},
		{"backoff just within the deadline", func(f *Facts) { f.End = noon.Add(time.Second) }, Retry, "status_503", time.Second},
		{"the shop's breaker", func(f *Facts) { f.ShopOpen, f.ShopAt = true, noon.Add(30*time.Second) }, Stop, "shop_breaker_open", 30 * time.Second},
		{"no token in time", func(f *Facts) { f.Limited, f.StartsAt = "retry_limited", noon.Add(time.Hour) }, Stop, "retry_limited", time.Hour},
		{"breaker open too long", func(f *Facts) { f.Limited, f.StartsAt = "breaker_open", noon.Add(9*time.Second) }, Stop, "breaker_open", 9 * time.Second},
		{"switched off", func(f *Facts) { f.Switch = "off" }, Stop, "retries_off", 0},
		{"shutting down", func(f *Facts) { f.Draining = true }, Stop, "shutting_down", time.Second},
		{"fast first retry of an isolated failure", func(f *Facts) { f.Policy.FirstRetry = "fast"; f.Healthy = true; f.Status = 500 }, Retry, "status_503", 5 * time.Millisecond},
		{"fast first retry of an isolated 503", func(f *Facts) { f.Policy.FirstRetry = "fast"; f.Healthy = true }, Retry, "status_503", 5 * time.Millisecond},
		{"never later than the backoff", func(f *Facts) {
			f.Policy.FirstRetry, f.Policy.Backoff.Base = "fast", time.Millisecond
			f.Healthy = true
		}, Retry, "status_503", time.Millisecond},
		{"no fast retry against Retry-After", func(f *Facts) {
			f.Policy.FirstRetry = "fast"
			f.Healthy, f.Verdict.RetryAfter = true, 2*time.Second
		}, Retry, "status_503", 2 * time.Second},
		{"no fast retry on push-back", func(f *Facts) { f.Policy.FirstRetry = "fast"; f.Healthy = true; f.Status = 429 }, Retry, "status_503", time.Second},
		{"no fast retry on a failing host", func(f *Facts) { f.Policy.FirstRetry = "fast"; f.Status = 500 }, Retry, "status_503", time.Second},
		{"no fast second retry", func(f *Facts) { f.Policy.FirstRetry = "fast"; f.Healthy = true; f.Status = 500; f.Retries = 1 }, Retry, "status_503", 2 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := transient503()
			tt.change(&f)
			d := Decide(&f)
			var wait time.Duration
			if !d.At.IsZero() {
				wait = d.At.Sub(f.Now)
			}
			if d.Do != tt.do || d.Reason != tt.reason || wait != tt.wait {
				t.Errorf("decide = %v %s in %v, want %v %s in %v", d.Do, d.Reason, wait, tt.do, tt.reason, tt.wait)
			}
		})
	}
}

// The first reason that holds is named: every later one may hold as well.
func TestDecidePrecedence(t *testing.T) {
	layers := []struct {
		reason string
		add    func(*Facts)
	}{
		{"shutting_down", func(f *Facts) { f.Draining = true }},
		{"retries_off", func(f *Facts) { f.Switch = "off" }},
		{"deadline_exceeded", func(f *Facts) { f.End = noon }},
		{"shop_breaker_open", func(f *Facts) { f.ShopOpen = true }},
		{"breaker_open", func(f *Facts) { f.Limited = "breaker_open" }},
		{"retry_after_too_long", func(f *Facts) { f.Policy.RetryAfterOverCap = "stop"; f.Verdict.RetryAfter = time.Hour }},
		{"attempts_exhausted", func(f *Facts) { f.Left = 0 }},
		{"body_not_replayable", func(f *Facts) { f.Replayable = false }},
		{"client_gone", func(f *Facts) { f.Gone = true }},
		{"fail_permanent", func(f *Facts) { f.Verdict.Class = classify.Permanent }},
		{"manual_review", func(f *Facts) { f.Verdict.Class = classify.Unknown }},
	}
	f := transient503()
	for _, l := range layers {
		l.add(&f)
		if d := Decide(&f); d.Do != Stop || d.Reason != l.reason {
			t.Errorf("decide = %v %s, want stop %s", d.Do, d.Reason, l.reason)
		}
	}
}

func TestDecideObserve(t *testing.T) {
	f := transient503()
	f.Switch = "observe"
	d := Decide(&f)
	if d.Do != Stop || d.Reason != "retries_off" || !d.Would || !d.At.Equal(noon.Add(time.Second)) {
		t.Errorf("decide under observe = %+v, want a stop that says what it would have done", d)
	}
}

// Stable jitter depends on the call alone, so every proxy plans the same times.
func TestDecideStableJitter(t *testing.T) {
	f := transient503()
	f.Policy.Backoff = backoff.Policy{Base: 2 * time.Second, Max: time.Minute, Multiplier: 2, Jitter: "stable"}
	f.ID, f.Retries, f.End = "flight-1", 3, noon.Add(time.Hour)
	f.Dice = 0.1
	first := Decide(&f).At
	f.Dice = 0.9
	if got := Decide(&f).At; !got.Equal(first) || int(got.Sub(noon).Seconds()) != 11 {
		t.Errorf("4th retry of flight-1 planned after %v, want 11 s whatever the dice", got.Sub(noon))
	}
}

// An attempt that its call's deadline cuts off after a long wait says nothing of the host;
// one that had its time, or most of the call's, does.
func TestBreakerResultOfAnAttemptCutOff(t *testing.T) {
	span := func(wait, took, patience time.Duration) *Span {
		return &Span{noon, noon.Add(patience), noon.Add(wait), noon.Add(wait + took)}
	}
	silent := classify.Verdict{Class: classify.Transient, Reason: "header_timeout", HostFault: true}
	refused := classify.Verdict{Class: classify.Transient, Reason: "status_503", HostFault: true}
	for _, tt := range []struct {
		name    string
		verdict classify.Verdict
		span    *Span
		want    breaker.Result
	}{
		{"in line for long", silent, span(27*time.Second, time.Second, 28*time.Second), breaker.Excluded},
		{"an answer in the last moment", refused, span(27*time.Second, time.Second, 28*time.Second), breaker.Failed},
		{"its own time-out", silent, span(10*time.Second, 5*time.Second, 28*time.Second), breaker.Failed},
		{"a client without patience", silent, span(0, 2*time.Second, 2*time.Second), breaker.Failed},
		{"most of the call's time", silent, span(time.Second, 2*time.Second, 3*time.Second), breaker.Failed},
	} {
		if got := BreakerResult(&tt.verdict, tt.span); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
