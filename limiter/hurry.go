package limiter

import "time"

// NotItsDate is why a ticket cannot be hurried that does not wait for a date of its own.
const NotItsDate = "not_its_date"

// Causes of waits that only callers name.
const (
	causeBackoff = "backoff"
	causeRate    = "rate"
)

// Hurry ends the wait of a ticket for its own date: backoff, Retry-After, or the pause
// that this put on its shop. It gets in line now, or at notSooner, and waits there for
// breaker, slot and tokens like any other. Where it would be turned away, nothing
// changes, and refused says why and at when that ends; empty: it is in line, or started.
func (l *Limiter) Hurry(t *Ticket, notSooner, now time.Time) (refused string, at time.Time) {
	b := l.lock(now)
	defer l.unlock()
	return b.hurry(t, b.later(notSooner))
}

// Hurries says whether a wait for this cause can be hurried.
func Hurries(cause string) bool {
	return cause == causeBackoff || cause == causeRetryAfter || cause == causePause
}

func (b *board) hurry(t *Ticket, start time.Time) (refused string, at time.Time) {
	if t.stage != planned || !Hurries(t.cause) || !start.Before(t.start) {
		return NotItsDate, time.Time{}
	}
	g := t.gate
	if ok, probe := g.breaker.Allow(start); !ok {
		return RefusedBreaker, probe // in line it would use up its patience
	}
	sooner := *t
	sooner.start = start
	if f := b.foresee(&sooner); f.refused != "" {
		return f.refused, f.at
	}
	if g.waiting >= b.config.MaxWaiting && b.blocker(g) != "" {
		return RefusedSlot, time.Time{}
	}
	was, cause := t.start, t.cause
	b.unplan(t)
	t.start = start
	if start.After(b.now) {
		t.cause = causeRate
		b.plan(t)
		return "", time.Time{}
	}
	b.join(t)
	if g.stop != "" && b.hopeless(t) {
		at = b.expects(t)
		b.unline(t)
		t.start, t.cause = was, cause
		b.plan(t)
		return RefusedSlot, at
	}
	return "", time.Time{}
}

// Starts are the dates that calls wait for, by cause, and how many stand in line, for
// which there is none.
func (l *Limiter) Starts(now time.Time) (dates map[string][]time.Time, inLine int) {
	b := l.lock(now)
	defer l.unlock()
	dates = map[string][]time.Time{}
	for a := range b.agenda.all() {
		if t, ok := a.owner.(*Ticket); ok {
			dates[t.cause] = append(dates[t.cause], t.start)
		}
	}
	for _, g := range b.gates.all() {
		inLine += g.waiting
	}
	return dates, inLine
}
