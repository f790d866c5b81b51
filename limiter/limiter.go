// Package limiter answers one question: may this attempt start now, and if not, when?
//
// One lock covers the gates (slots and breaker per host) and the retry tokens,
// so that a start is granted with everything it needs or not at all. All
// methods are told the time; nothing here sleeps. The caller runs Tick when the
// date it returned has come, or when Changed says that an earlier one exists.
package limiter

import (
	"sync"
	"time"

	"retryproxy/breaker"
)

// Claim is one attempt that asks to start.
type Claim struct {
	Host     string // normalised host:port: names the gate
	Shop     string // empty: no bucket of its own
	TaskType string // empty: no bucket of its own
	Retry    bool   // needs a token from every bucket that applies; otherwise it counts as a fresh call
	Late     bool   // it has waited for long already: backlog, though no attempt failed
	Tunnel   bool   // the dial of a tunnel: may fail the host, never heals it, is no probe

	Priority int       // of the policy; lower goes first
	Retries  int       // retries already made: effective priority is Priority - min(Retries, 3)
	Arrived  time.Time // when the call came: age decides among equals; zero: now

	NotBefore    time.Time     // own backoff, Retry-After; zero: now
	Cause        string        // of the wait until NotBefore: backoff, retry_after
	Deadline     time.Time     // a start planned after it is refused at once; zero: none
	MaxWait      time.Duration // what the call has left of slots.max_wait; waiting for NotBefore and for tokens does not use it up
	FailOpen     bool          // on_open: fail
	ProbeTimeout time.Duration // a probe without a report for so long counts as failed; 0: never
}

// Reasons of a refusal. Refuse adds the caller's own.
const (
	RefusedBreaker  = "breaker_open"
	RefusedTokens   = "retry_limited"
	RefusedSlot     = "no_slot"
	RefusedPause    = "retry_after_too_long" // the host's Retry-After, to this call or its shop, does not fit
	RefusedDeadline = "deadline_exceeded"    // NotBefore does not fit
	RefusedLeft     = "left"                 // Leave: nobody waits for the answer
)

// Answer is the end of a claim: granted, or refused with a reason and a date.
type Answer struct {
	Grant     Grant         // valid when Refused is empty
	Refused   string        // one of the reasons above
	Dimension string        // retry_limited: global, task_type or shop
	At        time.Time     // when it could have started; zero: unknown or never
	Cause     string        // what it waited for last: backoff, retry_after, pause, tokens, gate, breaker; empty: nothing
	AtGate    time.Duration // time waited at the gate, to be taken off MaxWait
}

// Grant is permission to have one attempt in flight. Give it back with Release
// exactly once, after Report; both are no-ops on the zero Grant and when repeated.
type Grant struct {
	gate  *gate
	place int    // of the slot
	seq   uint64 // of the slot, so that a second Release does nothing
}

// Config are the settings of all gates and buckets.
type Config struct {
	MaxInFlight  int           // slots of each host, at most
	Adaptive     bool          // fewer, where that is what a host can take
	RetryShare   float64       // of the slots, that the backlog may hold while fresh calls wait; above 0
	BacklogShare float64       // the same while what an outage left is being worked off; one slot at least
	Ramp         time.Duration // from the probes to MaxInFlight, after a breaker closed
	MaxWait      time.Duration // longest time at gates of one claim
	MaxWaiting   int           // calls in line at each host; those that wait for their NotBefore do not count
	Breaker      breaker.Config
	Buckets      Buckets
}

// Limiter decides when attempts start. It is safe for concurrent use.
type Limiter struct {
	mu      sync.Mutex
	board   *board
	told    time.Time // the date that the runner of Tick knows
	changed chan struct{}
	onEvent func(breaker.Event)
}

// New returns a limiter with every breaker closed and every bucket full.
// onEvent is told every change of a host's breaker, without the lock; it may be nil.
func New(config Config, onEvent func(breaker.Event)) *Limiter {
	return &Limiter{board: newBoard(config), changed: make(chan struct{}, 1), onEvent: onEvent}
}

// lock begins every method.
func (l *Limiter) lock(now time.Time) *board {
	l.mu.Lock()
	l.board.begin(now)
	return l.board
}

// unlock ends every method that may have changed something: it starts who can,
// tells the runner about an earlier date, and reports events.
func (l *Limiter) unlock() {
	b := l.board
	b.settle()
	if next := b.agenda.next(); !next.IsZero() && (l.told.IsZero() || next.Before(l.told)) {
		l.told = next
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}
	events := b.events
	b.events = nil
	l.mu.Unlock()
	if l.onEvent != nil {
		for _, e := range events {
			l.onEvent(e)
		}
	}
}

// Ask asks for a start. Without a ticket the answer is final; else it comes
// through the ticket. The claim is not kept.
func (l *Limiter) Ask(c *Claim, now time.Time) (Answer, *Ticket) {
	b := l.lock(now)
	defer l.unlock()
	return b.ask(c)
}

// Peek says when a claim could start as things stand, or why it would be
// refused, so that a call can end at once instead of sleeping only to be
// refused. Nothing is booked.
func (l *Limiter) Peek(c *Claim, now time.Time) (at time.Time, refused, dimension string) {
	b := l.lock(now)
	defer l.unlock()
	f := b.foresee(b.imagine(c))
	return f.at, f.refused, f.dimension
}

// Leave gives a place up. If the ticket was answered meanwhile, the answer is
// returned, and a grant in it has to be released.
func (l *Limiter) Leave(t *Ticket, now time.Time) Answer {
	b := l.lock(now)
	defer l.unlock()
	b.expel(t, RefusedLeft)
	return t.answer
}

// Refuse ends a waiting ticket for a reason of the caller's, such as a switch
// turned off; false: it has its answer, and keeps it.
func (l *Limiter) Refuse(t *Ticket, reason string, now time.Time) bool {
	b := l.lock(now)
	defer l.unlock()
	return b.expel(t, reason)
}

// View says what a ticket waits for, honestly and as things stand.
func (l *Limiter) View(t *Ticket, now time.Time) View {
	b := l.lock(now)
	defer l.unlock()
	return b.view(t)
}

// Report says what an attempt told about its host, as soon as that is known.
// Of a tunnel only a failure counts.
func (l *Limiter) Report(g Grant, r breaker.Result, now time.Time) {
	if g.gate == nil {
		return
	}
	b := l.lock(now)
	defer l.unlock()
	if p := g.gate.find(g); p != nil {
		b.report(g.gate, p, r)
	}
}

// Release gives a slot back. Without a Report before, the attempt says nothing
// about its host.
func (l *Limiter) Release(g Grant, now time.Time) {
	if g.gate == nil {
		return
	}
	b := l.lock(now)
	defer l.unlock()
	if p := g.gate.find(g); p != nil {
		b.release(g, p)
	}
}

// Cancel gives a grant back whose attempt was never sent: the slot, the probe's
// place, and the tokens.
func (l *Limiter) Cancel(g Grant, now time.Time) {
	if g.gate == nil {
		return
	}
	b := l.lock(now)
	defer l.unlock()
	if p := g.gate.find(g); p != nil {
		for _, k := range p.sources {
			b.giveBack(k)
		}
		b.release(g, p)
	}
}

// Pause holds a shop's retries at a host back until a date, as a 429 with
// Retry-After asks; those that already wait as well. Other shops, fresh calls
// and calls without a shop are not held.
func (l *Limiter) Pause(host, shop string, until, now time.Time) {
	b := l.lock(now)
	defer l.unlock()
	b.pause(host, shop, until)
}

// Tick starts and refuses everybody whose date has come. It returns the next
// date, which is in the future; zero: nothing is planned.
func (l *Limiter) Tick(now time.Time) (next time.Time) {
	b := l.lock(now)
	defer l.unlock()
	l.told = b.agenda.next()
	return l.told
}

// Changed receives when an earlier date exists than the last Tick returned.
func (l *Limiter) Changed() <-chan struct{} { return l.changed }
