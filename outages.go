package main

import (
	"time"

	"retryproxy/attempt"
	"retryproxy/breaker"
	"retryproxy/limiter"
	"retryproxy/patience"
)

// breakerEvent tells of a state change and of what follows from it for shops.
func (a *app) breakerEvent(e breaker.Event) {
	for _, e := range a.shops.Follow(e) {
		a.tellBreaker(&e)
	}
}

func (a *app) tellBreaker(e *breaker.Event) {
	if e.From == e.To {
		a.log.Info("what the outage left is worked off", "host", e.Host, "outage_since", e.Outage, "took", lasted(e), "waited_most", e.Waited, "gave_up", e.GaveUp)
		return
	}
	var host limiter.HostView // zero for shops and exits
	if e.Scope == "host" {
		host, _ = a.limiter.Host(e.Host, e.At)
	}
	a.logBreaker(e, &host)
	a.alertBreaker(e, &host)
	if e.Scope == "host" && e.To == breaker.Closed {
		a.proxy.Recovered(e.Host)
	}
}

// logBreaker tells of a state change: of a host what begins and what is over, with what
// it means for those who wait. Probes in between are for those who debug.
func (a *app) logBreaker(e *breaker.Event, host *limiter.HostView) {
	line := a.log.With("scope", e.Scope, "host", e.Host, "from", e.From.String(), "to", e.To.String(), "reason", e.Reason)
	if e.Scope != "host" {
		if e.Shop != "" {
			line = line.With("shop", e.Shop)
		}
		line.Warn("breaker", "what", shopOrExit(e))
		return
	}
	if o := host.Outage; o != nil && !o.Release.IsZero() {
		line = line.With("expected_release", o.Release)
	}
	switch breaker.Closed {
	case e.From:
		line.Warn("breaker", "what", "the host is cut off, calls wait for its probes", "reach", e.Reach.String(), "outage_since", e.Outage,
			"next_probe", e.Until, "waiting", host.Waiting, "planned", host.Planned)
	case e.To:
		line.Info("breaker", "what", "the host answers again", "outage_since", e.Outage, "lasted", lasted(e),
			"waiting", host.Waiting, "planned", host.Planned, "waited_most", e.Waited, "gave_up", e.GaveUp)
	default:
		line.Debug("breaker", "waiting", host.Waiting, "planned", host.Planned)
	}
}

// lasted is how long an outage lasted.
func lasted(e *breaker.Event) string { return e.At.Sub(e.Outage).Round(time.Millisecond).String() }

// shopOrExit says in a sentence what a change of a breaker of these means.
func shopOrExit(e *breaker.Event) string {
	switch {
	case e.Scope == "shop" && e.To == breaker.Closed:
		return "retries of this shop go to the host again"
	case e.Scope == "shop":
		return "only this shop fails there, the host answers others: no retries for it but single ones"
	case e.To == breaker.Open:
		return "the egress proxy is cut off, calls wait for its probes"
	case e.To == breaker.HalfOpen:
		return "a probe goes through the egress proxy"
	}
	return "the egress proxy works again"
}

// hangsUp counts how long the client of a call had patience. Where most of those that
// wait leave, a deadline promises time that nobody has.
func (a *app) hangsUp(s *attempt.Summary) {
	ours := s.Mode == "local" || s.Mode == "connect" || s.Origin != "" || s.Result == "rejected" && s.Left == 0
	if ours {
		return
	}
	v, most := a.hangups.Count(patience.Call{Kind: s.Labels.TaskType, Waited: len(s.Waits) > 0, Left: s.Left, Deadline: s.Deadline})
	if most {
		a.log.Warn("most clients of a kind hang up while their calls wait: a shorter deadline, or X-Request-Timeout, tells them in time",
			"task_type", v.Kind, "waited", v.Waited, "left", v.WaitedLeft, "p50", v.P50.String(), "p90", v.P90.String(), "deadline", v.Deadline.String())
	}
}

// givesUp counts a call that ended without a success against an outage of its host.
func (a *app) givesUp(s *attempt.Summary) {
	if s.Result != "cancelled" && (s.Result != "failed" || s.Reason == "fail_permanent") {
		return
	}
	host := s.Host
	if last := s.Attempts.Last().Host; last != "" {
		host = last
	}
	a.limiter.GaveUp(host, s.Ended)
}
