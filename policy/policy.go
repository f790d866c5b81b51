// Package policy answers one question: by which rules does a call live?
package policy

import (
	"time"

	"retryproxy/backoff"
	"retryproxy/classify"
)

// Policy is one entry of retry_policies with everything it left out filled in
// from default. It is read once per call and never changed afterwards.
type Policy struct {
	Name  string
	Match Match

	MaxRetries int
	Backoff    backoff.Policy
	FirstRetry string // "backoff" or "fast"

	ConnectTimeout  time.Duration
	PerTryTimeout   time.Duration
	BodyIdleTimeout time.Duration
	Deadline        time.Duration
	ClientHold      time.Duration // 0: off

	RetryStatuses, PermanentStatuses, NotNowStatuses classify.StatusSet

	HonourRetryAfter  bool
	RetryAfterCap     time.Duration
	RetryAfterOverCap string // cap, stop, park
	Safe              string // auto, method, key, always, never
	SafeMethods       []string
	OnUnknown         string   // manual_review, retry
	OnOpen            string   // wait, fail
	OnPark            int      // 202 or 503
	Preset            string   // of the platform; empty: that of the host; "none"
	BusinessKey       bool     // a call without a key gets one made of its order
	Query             string   // preset that says how a supplier is asked what became of an order; empty: it is not
	Replay            string   // of a signed request: window, handback, resign; empty: as the preset says
	Failover          []string // presets of suppliers that get an order after a definite failure, in turn
	ForwardHeaders    []string // of idempotency_key, retry_count, shop, shop_tier, task_type, trace_context
	ForwardHeadersSet bool     // named by the operator, so the platform table does not override it
	FingerprintIgnore []string
	DeadLetter        string          // none, unsafe, all
	Redrive           []time.Duration // after how long a dead letter is tried again, time by time; nil: never
	Priority          int

	// Variants are tried against each other: each call lives by one of them, see
	// Arm, and none by the policy itself. They are policies without a Match, named
	// policy/variant.
	Variants []*Policy
	Weight   int     // of a variant: its part of the calls
	Of       *Policy // of a variant: the policy that it is one of; nil: it is none
}

// Match says which calls a policy is for; a nil list matches all. Values may
// hold * globs.
type Match struct {
	TaskType, Shop, ShopTier, Host, Path, Method, Operation []string
	Hours                                                   []HourRange
}

// HourRange is [From, To) in hours of the configured zone; From > To crosses midnight.
type HourRange struct{ From, To int }

// Attrs are the facts of a call that policies match on.
type Attrs struct {
	TaskType, Shop, ShopTier, Host, Path, Method, Operation string
}
