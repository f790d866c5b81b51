package breaker

import (
	"slices"
	"time"
)

// A host is healthy while so many recent attempts succeeded so often: then a
// failure is an isolated one (first_retry: fast).
const (
	healthyCalls = 10
	healthyShare = 0.8
)

// Host is the breaker of one host. Build it with NewHost.
//
// Methods that may change the state return the change to be reported, nil when
// there was none.
type Host struct {
	name   string
	config Config
	window window // results while closed
	row    int    // failures in a row while closed
	good   voices // who succeeded lately
	bad    voices // who failed lately
	blamed blamed // shops that fail alone, once that was reported: what they fail says nothing of the host

	state  State
	reason string    // of the last change
	since  time.Time // when it was

	// generation counts the changes, so that a result of an earlier state is
	// recognised and ignored.
	generation uint64
	span       time.Duration // of the present or last opening; 0 while closed
	until      time.Time     // when the next probe may go
	outage     time.Time     // when it was cut off first; zero while closed
	reach      Reach         // of that
	probes     []probe       // in flight
	lastProbe  uint64
}

// probe is an attempt let through while half-open.
type probe struct {
	id    uint64
	ends  time.Time // then its silence counts as a failure; zero: never
	quiet bool
}

// Pass is the permission of one attempt, given back with Report.
type Pass struct {
	generation uint64
	probe      uint64 // 0: none
	dial       bool   // of a tunnel: may fail the host, never heals it
	quiet      bool   // began long after a probe was due: its failure is a new outage
}

// Status is what an operator sees of a host's breaker.
type Status struct {
	State           State
	Reason          string    // of the last change; empty: there was none yet
	Since           time.Time // of the last change
	Outage          time.Time // when it was cut off first; zero: it is closed
	Reach           Reach     // whose calls failed then
	Until           time.Time // open: when the next probe may go
	Row             int       // failures in a row
	Calls, Failures int       // within the window
	Probes          int       // in flight
}

// NewHost returns a closed breaker.
func NewHost(name string, config Config) Host {
	return Host{name: name, config: config, window: newWindow(config.Window)}
}

// Allow says whether an attempt may start now. If not, at is the first moment
// at which it could; zero when that depends on a probe in flight.
func (h *Host) Allow(now time.Time) (ok bool, at time.Time) {
	switch {
	case h.state == Closed, h.due(now):
		return true, time.Time{}
	case h.state == HalfOpen:
		return len(h.probes) < h.places(), time.Time{}
	}
	return false, h.until
}

// Start books an attempt that Allow permits. Unless the breaker is closed it is
// a probe, which counts as failed after timeout without a report (0: never).
func (h *Host) Start(timeout time.Duration, now time.Time) (Pass, *Event) {
	p := Pass{generation: h.generation}
	if h.state == Closed {
		return p, nil
	}
	p, event := h.halfOpen(now)
	h.lastProbe++
	p.probe = h.lastProbe
	in := probe{id: p.probe, quiet: p.quiet}
	if timeout > 0 {
		in.ends = now.Add(timeout)
	}
	h.probes = append(h.probes, in)
	return p, event
}

// Dial books the dial of a tunnel that Allow permits. It takes no probe's
// place, and its success says nothing: a server that accepts connections may
// still fail every request.
func (h *Host) Dial(now time.Time) (Pass, *Event) {
	p, event := Pass{generation: h.generation}, (*Event)(nil)
	if h.state != Closed {
		p, event = h.halfOpen(now)
	}
	p.dial = true
	return p, event
}

// Report takes the result of an attempt for a shop (empty: of nobody in particular).
// Results of an earlier state are ignored. What is reported back may concern the shop
// alone: where the host answers others, it is not the host that is cut off.
func (h *Host) Report(p Pass, r Result, shop string, now time.Time) *Event {
	if p.generation != h.generation {
		return nil
	}
	switch {
	case r == Failed && h.state == Closed:
		return h.fail(shop, now)
	case r == Failed:
		return h.reopen(ReasonProbeBad, p.quiet, now)
	case r == Excluded || p.dial:
		h.probes = slices.DeleteFunc(h.probes, func(in probe) bool { return in.id == p.probe })
	case h.state == Closed:
		h.row = 0
		h.window.add(false, now)
		h.good.hear(shop, now)
		if len(h.blamed) > 0 {
			h.blamed.forget(shop, now.Add(-h.config.Window))
		}
	default:
		e := h.shut(ReasonProbeOK, now)
		h.good.hear(shop, now)
		return e
	}
	return nil
}

// Expire counts a probe whose time ran out as failed. Run it at Next.
func (h *Host) Expire(now time.Time) *Event {
	for _, in := range h.probes {
		if !in.ends.IsZero() && !now.Before(in.ends) {
			return h.reopen(ReasonProbeMute, in.quiet, now)
		}
	}
	return nil
}

// Next is the first moment at which time alone changes what Allow says: the
// next probe is due, or one in flight has been silent for too long. Zero: never.
func (h *Host) Next(now time.Time) time.Time {
	if h.state == Open && !h.due(now) {
		return h.until
	}
	var first time.Time
	for _, in := range h.probes {
		if !in.ends.IsZero() && (first.IsZero() || in.ends.Before(first)) {
			first = in.ends
		}
	}
	return first
}

// State is open until a probe is due, from then on half-open.
func (h *Host) State(now time.Time) State {
	if h.due(now) {
		return HalfOpen
	}
	return h.state
}

// Status describes the breaker for an operator.
func (h *Host) Status(now time.Time) Status {
	t := h.window.total(now)
	s := Status{State: h.State(now), Reason: h.reason, Since: h.since, Outage: h.outage, Reach: h.reach, Row: h.row, Calls: t.calls, Failures: t.failures, Probes: len(h.probes)}
	if s.State == Open {
		s.Until = h.until
	}
	return s
}

// Healthy says whether enough recent attempts went well to take one failure
// for an accident.
func (h *Host) Healthy(now time.Time) bool {
	t := h.window.total(now)
	good := float64(t.calls - t.failures)
	return h.state == Closed && t.calls >= healthyCalls && good >= healthyShare*float64(t.calls)
}

// Forgettable says that the breaker holds nothing worth keeping: it is closed,
// or nobody has wanted to probe for so long that it would begin anew.
func (h *Host) Forgettable(now time.Time) bool {
	return h.state == Closed || len(h.probes) == 0 && h.quiet(now)
}

// Reset closes the breaker by hand.
func (h *Host) Reset(now time.Time) *Event {
	if h.state == Closed {
		h.row, h.window = 0, newWindow(h.config.Window)
		return nil
	}
	return h.shut(ReasonOperator, now)
}

// Configure applies changed settings and keeps the state. A probe is never
// further off than the new OpenMax.
func (h *Host) Configure(config Config, now time.Time) {
	if config.Window != h.config.Window {
		h.window = newWindow(config.Window)
	}
	h.config = config
	if latest := now.Add(h.longest()); h.state == Open && h.until.After(latest) {
		h.until = latest
	}
}

// fail counts a failure while closed.
func (h *Host) fail(shop string, now time.Time) *Event {
	h.bad.hear(shop, now)
	if h.known(shop, now) {
		return nil
	}
	h.row++
	h.window.add(true, now)
	reason := h.verdict(now)
	switch {
	case reason == "":
		return nil
	case !h.alone(shop, now):
		h.outage, h.reach = now, h.whom(shop, now)
		return h.open(h.config.Open, reason, now)
	}
	h.blamed.add(shop, now)
	h.row, h.window = 0, newWindow(h.config.Window) // the host is judged by the others from now on
	return &Event{Scope: "shop", Host: h.name, Shop: shop, From: Closed, To: Open, Reason: ReasonOneShop, At: now}
}

// known says that a shop is blamed already: of the others somebody succeeded within the
// window, or they were well when they were heard of last.
func (h *Host) known(shop string, now time.Time) bool {
	i := h.blamed.find(shop)
	if i < 0 {
		return false
	}
	since := now.Add(-h.config.Window)
	ok, n := h.good.others(shop, h.blamed, since)
	if bad, _ := h.bad.others(shop, h.blamed, since); n > 0 || ok.After(bad) {
		h.blamed[i].at = now
		return true
	}
	h.blamed.forget(shop, since)
	return false
}

// verdict is why the host is to be cut off; empty: it is not. The ratio looks back
// over the whole window, which takes long to notice an outage of a busy host: so many
// failures in a row as the ratio needs calls are enough as well.
func (h *Host) verdict(now time.Time) string {
	t, c := h.window.total(now), &h.config
	row := c.ConsecutiveFailures > 0 && h.row >= c.ConsecutiveFailures
	switch byRatio := c.FailureRatio > 0 && t.calls >= c.MinCalls; {
	case byRatio && float64(t.failures) >= c.FailureRatio*float64(t.calls):
		return ReasonRatio
	case row && (!byRatio || h.row >= c.MinCalls):
		return ReasonRow
	}
	return ""
}

// alone says that only this shop fails: of the others, but for those that were blamed
// before, the newest word is a success, no older than the window. More shops that
// succeed than are blamed: where one is lucky and several are not it is an outage.
func (h *Host) alone(shop string, now time.Time) bool {
	if shop == "" {
		return false
	}
	since := now.Add(-h.config.Window)
	h.blamed.forget(shop, since)
	ok, n := h.good.others(shop, h.blamed, since)
	bad, _ := h.bad.others(shop, h.blamed, since)
	return ok.After(bad) && n > len(h.blamed)
}

// whom says whose failures opened the breaker.
func (h *Host) whom(shop string, now time.Time) Reach {
	switch _, n := h.bad.others(shop, nil, now.Add(-h.config.Window)); {
	case shop == "":
		return ReachAnybody
	case n > 0:
		return ReachShops
	}
	return ReachShop
}

// reopen follows a failed probe: the next one is twice as far off. Long after
// the last failure it is a new outage and begins anew.
func (h *Host) reopen(reason string, quiet bool, now time.Time) *Event {
	span := min(max(2*h.span, h.config.Open), h.longest())
	if quiet {
		span = h.config.Open
	}
	return h.open(span, reason, now)
}

func (h *Host) open(span time.Duration, reason string, now time.Time) *Event {
	h.span, h.until = span, now.Add(span)
	return h.change(Open, reason, now)
}

// halfOpen makes sure that the state is half-open and returns a pass for it.
func (h *Host) halfOpen(now time.Time) (p Pass, event *Event) {
	if h.state == Open {
		event = h.change(HalfOpen, ReasonProbe, now)
	}
	return Pass{generation: h.generation, quiet: h.quiet(now)}, event
}

// shut closes the breaker and forgets what opened it.
func (h *Host) shut(reason string, now time.Time) *Event {
	e := h.change(Closed, reason, now)
	h.row, h.span, h.window, h.outage, h.reach = 0, 0, newWindow(h.config.Window), time.Time{}, ReachUnknown
	h.good, h.bad, h.blamed = voices{}, voices{}, nil
	return e
}

func (h *Host) change(to State, reason string, now time.Time) *Event {
	e := &Event{Scope: "host", Host: h.name, From: h.state, To: to, Reason: reason, At: now, Outage: h.outage}
	if to == Open {
		e.Until, e.Reach = h.until, h.reach
	}
	h.state, h.reason, h.since = to, reason, now
	h.generation++
	h.probes = h.probes[:0]
	return e
}

// due says that the breaker is open and its next probe may go.
func (h *Host) due(now time.Time) bool { return h.state == Open && !now.Before(h.until) }

// quiet says that the last failure is long past: a probe has been due for
// longer than the longest opening.
func (h *Host) quiet(now time.Time) bool { return now.Sub(h.until) > h.longest() }

func (h *Host) longest() time.Duration { return max(h.config.Open, h.config.OpenMax) }

func (h *Host) places() int { return max(h.config.Probes, 1) }
