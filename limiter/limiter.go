// Package limiter answers one question: may this attempt start now, and if not, when?
//
// One lock covers the gates (slots and breaker per host) and the retry tokens,
// so that a start is granted with everything it needs or not at all. All
// methods are told the time; nothing here sleeps. The caller runs Tick when the
// date it returned has come, or when Changed says that an earlier one exists.
package limiter

import "time"

// Claim is one attempt that asks to start.
type Claim struct {
	Host     string // normalised host:port: names the gate
	Shop     string // empty: no bucket of its own
	TaskType string // empty: no bucket of its own
	Retry    bool   // needs a token from every bucket that applies
	Probe    bool   // shop breaker lets this one retry through (for the view only)

	Priority int       // of the policy; lower goes first
	Retries  int       // retries already made: effective priority is Priority - min(Retries, 3)
	Arrived  time.Time // when the call came: age decides among equals

	NotBefore time.Time     // own backoff, Retry-After; zero: now
	Cause     string        // of the wait until NotBefore: backoff, retry_after
	Deadline  time.Time     // a start planned after it is refused at once
	MaxWait   time.Duration // what the call has left of slots.max_wait; waiting for NotBefore and for tokens does not use it up
	FailOpen  bool          // on_open: fail
}

// Answer is the end of a claim: granted, or refused with a reason and a date.
type Answer struct {
	Grant     Grant         // valid when Refused is empty
	Refused   string        // breaker_open, retry_limited, no_slot
	Dimension string        // retry_limited: global, task_type or shop
	At        time.Time     // when it could have started; zero: unknown
	Cause     string        // what it waited for last: backoff, retry_after, pause, tokens, gate, breaker; empty: nothing
	AtGate    time.Duration // time waited at the gate, to be taken off MaxWait
}

// Grant is permission to have one attempt in flight. Give it back with Release
// exactly once, after Report; both are no-ops on the zero Grant and when repeated.
type Grant struct {
	gate       *gate
	generation uint64 // of the host's breaker
	seq        uint64 // of the slot, so that a second Release does nothing
	probe      bool
}
