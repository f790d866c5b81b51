package proxy

import (
	"time"

	"retryproxy/backoff"
	"retryproxy/breaker"
	"retryproxy/classify"
	"retryproxy/limiter"
	"retryproxy/policy"
)

// Do is what happens next with a call.
type Do uint8

// The decisions. Only what a durable store keeps is parked.
const (
	Deliver Do = iota + 1 // the answer is good
	Retry                 // another attempt, at Decision.At
	Stop                  // no further attempt
	Park                  // no client, no process waits: another attempt after Decision.At
)

// String returns the token used in logs and by explain.
func (d Do) String() string { return [...]string{"none", "deliver", "retry", "stop", "park"}[d] }

// Decision is what to do next, and why.
type Decision struct {
	Do        Do
	Reason    string    // a stop reason of docs/outcomes.md; the verdict's reason for a retry
	Cause     string    // Retry: what it waits for first: backoff or retry_after
	At        time.Time // Retry: not before; Stop: when a later try makes sense, zero: unknown; Park: when it goes on
	Dimension string    // retry_limited: the bucket that is empty
	Would     bool      // Stop by the switch's observe: it would have retried
}

// Facts are all that Decide looks at.
type Facts struct {
	Policy  *policy.Policy
	Verdict classify.Verdict
	Status  int    // of the last attempt; 0: no header came
	ID      string // key or call id, for stable jitter
	Retries int    // made in this run so far
	Left    int    // retries the run may still make
	Now     time.Time
	End     time.Time // of the run's deadline
	Dice    float64   // in [0, 1)

	Healthy    bool      // the host answers others: an isolated failure
	Moved      bool      // the retry goes by another exit, where nobody asked for time
	Gone       bool      // the client left and nobody else waits
	Replayable bool      // the body can be sent again
	Switch     string    // on, off, observe
	Draining   bool      // we shut down
	ShopOpen   bool      // the shop's breaker there lets no retry through
	ShopAt     time.Time // when it lets the next one through
	StartsAt   time.Time // earliest start by tokens and gate as things stand; zero: at once
	Limited    string    // why that start is refused: retry_limited, breaker_open, no_slot; empty: it is not
	Dimension  string    // of Limited by retry_limited: the bucket that is empty

	Fresh time.Time     // until when the platform takes the request; zero: it does not matter
	Park  time.Duration // how long the call may be parked; 0: not at all
}

// Decide is the retry rule: a pure function of what happened so far. The order
// of the cases is the order of precedence of the stop reasons.
func Decide(f *Facts) Decision {
	switch {
	case f.Verdict.Class == classify.Success:
		return Decision{Do: Deliver, Reason: "ok"}
	case f.Verdict.Reason == "cancelled" || f.Verdict.Reason == "body_failed":
		return stop("client_gone")
	case stopsAll(f.Verdict.Kind) != "" && f.Verdict.Class != classify.Transient:
		return f.parkHalted()
	case f.Verdict.Class == classify.Unknown:
		return stop("manual_review")
	case f.Verdict.Class == classify.Permanent:
		return stop("fail_permanent")
	case f.Gone:
		return stop("client_gone")
	case !f.Replayable:
		return stop("body_not_replayable")
	case f.Left <= 0:
		return stopAt("attempts_exhausted", f.Now.Add(f.Verdict.RetryAfter), f.Verdict.RetryAfter > 0)
	}
	return f.plan()
}

// stopsAll is the stop reason of what a platform says about more than one call; empty:
// it is about this one.
func stopsAll(k classify.Kind) string {
	switch k {
	case classify.RiskControl:
		return "risk_control"
	case classify.QuotaExhausted:
		return "quota_exhausted"
	case classify.AuthExpired:
		return "auth_expired"
	case classify.SignatureRefused:
		return reasonSignature
	}
	return ""
}

// parkHalted ends a call for such a reason, or lets it wait for the reset of a quota.
func (f *Facts) parkHalted() Decision {
	d := stopAt(stopsAll(f.Verdict.Kind), f.Now.Add(f.Verdict.RetryAfter), f.Verdict.RetryAfter > 0)
	if f.Gone || !f.Replayable {
		return d
	}
	return f.park(d)
}

// plan finds the time of the next attempt and what stands in its way.
func (f *Facts) plan() Decision {
	wait, cause, long := f.wait()
	at := f.Now.Add(wait)
	switch {
	case f.tooOldAt(later(at, f.StartsAt)) && !long:
		return stopAt(reasonSignature, at, true)
	case long || cause == causeRetryAfter && at.After(f.End):
		return f.park(stopAt("retry_after_too_long", f.Now.Add(f.Verdict.RetryAfter), true))
	case f.Limited != "":
		return f.park(Decision{Do: Stop, Reason: f.Limited, Dimension: f.Dimension, At: f.StartsAt})
	case f.ShopOpen:
		return f.park(stopAt("shop_breaker_open", f.ShopAt, true))
	case at.After(f.End):
		return stop("deadline_exceeded")
	case f.Switch == "off":
		return stop("retries_off")
	case f.Switch == "observe":
		return Decision{Do: Stop, Reason: "retries_off", Would: true, At: at}
	case f.Draining && f.Park > 0:
		return f.park(stopAt("shutting_down", at, true))
	case f.Draining:
		return stopAt("shutting_down", f.Now.Add(time.Second), true)
	}
	return Decision{Do: Retry, Reason: f.Verdict.Reason, Cause: cause, At: at}
}

// park turns the end of a retry into a wait without a client, where the call may
// wait so and nobody has turned retries off.
func (f *Facts) park(d Decision) Decision {
	if f.Switch != "on" {
		return d
	}
	return parkedTooLong(parkOr(d, f.Policy, f.Park, f.Now), f.Fresh)
}

// tooOldAt says whether the platform would refuse the signature then.
func (f *Facts) tooOldAt(at time.Time) bool { return !f.Fresh.IsZero() && at.After(f.Fresh) }

// parkOr parks what would stop for a reason that passes at a known time: a long
// Retry-After where the policy says so, an empty bucket, an open breaker (unless
// the policy wants to fail at once), our own shutdown. limit is how long it may
// wait so; 0: not at all.
func parkOr(d Decision, p *policy.Policy, limit time.Duration, now time.Time) Decision {
	passes := false
	switch d.Reason {
	case "retry_after_too_long":
		passes = p.RetryAfterOverCap == "park"
	case "breaker_open":
		passes = p.OnOpen != "fail"
	case "retry_limited", "shop_breaker_open", "shutting_down", "quota_exhausted":
		passes = true
	}
	if passes && limit > 0 && !d.At.IsZero() && d.At.Before(now.Add(limit)) {
		d.Do = Park
	}
	return d
}

// Planned is the decision without what stands in the way of a retry from our
// side: what would be planned, so that the gate can be asked about it.
func (f *Facts) Planned() Decision {
	free := *f
	free.Switch, free.Draining = "on", false
	return Decide(&free)
}

// LookAhead asks when a planned retry could really start, so that nobody sleeps
// only to be refused. The shop's breaker comes last: its yes takes the one probe.
func (f *Facts) LookAhead(c *limiter.Claim, gates *limiter.Limiter, shops *breaker.Shops) {
	f.StartsAt, f.Limited, f.Dimension = gates.Peek(c, f.Now)
	if f.Limited == "" && c.Shop != "" && f.Switch == "on" && !f.Draining {
		ok, at := shops.MayRetry(c.Shop, c.Host, f.Now)
		f.ShopOpen, f.ShopAt = !ok, at
	}
}

// Span is when an attempt was made within its call.
type Span struct {
	Arrived, End time.Time // of the call, and of its deadline
	Began, Ended time.Time // of the attempt
}

// cut says that the call's deadline ended an attempt, and that the call had waited for
// longer before. Whoever leaves a host so little time after a long wait in line must not
// have it taken for silent: it would be cut off just as it works an outage's backlog off.
func (s *Span) cut() bool {
	return !s.Ended.Before(s.End) && s.Ended.Sub(s.Began) < s.Began.Sub(s.Arrived)
}

// BreakerResult is what a verdict says about the host.
func BreakerResult(v *classify.Verdict, s *Span) breaker.Result {
	switch {
	case v.HostFault && v.Reason == "header_timeout" && s.cut():
		return breaker.Excluded
	case v.HostFault:
		return breaker.Failed
	case v.Class == classify.Success:
		return breaker.Served
	case v.Alive:
		return breaker.Alive
	}
	return breaker.Excluded
}

// BlamesShop says whether a call that failed for good, at last by this verdict and
// status, speaks of its shop: not a bad request of one call, and not a throttle.
func BlamesShop(v *classify.Verdict, status int) bool {
	return v.HostFault || status == 401 || status == 403 || v.Kind == classify.AuthExpired || v.Kind == classify.RiskControl
}

// Causes of a wait, as shown to operators.
const (
	causeBackoff    = "backoff"
	causeRetryAfter = "retry_after"
	causeEgress     = "egress" // its proxy is cut off
	causeKey        = "key"    // another call with its key is at work
)

// wait is how long until the next attempt, what for, and whether the server's
// wish is over the cap and the policy says not to wait for less.
func (f *Facts) wait() (wait time.Duration, cause string, long bool) {
	p, n := f.Policy, f.Retries+1
	if f.Moved {
		return backoff.FastDelay(f.Dice), causeBackoff, false
	}
	own := p.Backoff.Delay(n, f.dice(n))
	after := f.Verdict.RetryAfter
	if n == 1 && p.FirstRetry == "fast" && f.Healthy && !pushback(f.Status) && after <= 0 {
		return min(own, backoff.FastDelay(f.Dice)), causeBackoff, false
	}
	if after <= 0 || !p.HonourRetryAfter {
		return own, causeBackoff, false
	}
	if after > p.RetryAfterCap && p.RetryAfterOverCap != "cap" {
		return after, causeRetryAfter, true
	}
	total := backoff.Wait(own, after, p.RetryAfterCap)
	return backoff.Spread(total, p.Backoff.Ratio, f.Dice), causeRetryAfter, false
}

// dice is the chance that jitter uses: with stable jitter the same for the same
// call on every proxy.
func (f *Facts) dice(n int) float64 {
	if f.Policy.Backoff.Jitter == "stable" {
		return backoff.Stable(f.ID, n)
	}
	return f.Dice
}

// pushback are the statuses by which a server asks for time: no fast retry. A 503 is none
// of them: without Retry-After, at a host that answers others, it is an isolated failure
// like a 500, and says of itself that repeating it is safe.
func pushback(status int) bool { return status == 408 || status == 425 || status == 429 }

func stop(reason string) Decision { return Decision{Do: Stop, Reason: reason} }

func stopAt(reason string, at time.Time, known bool) Decision {
	if !known {
		return stop(reason)
	}
	return Decision{Do: Stop, Reason: reason, At: at}
}
