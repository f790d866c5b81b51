// Package breaker answers one question: is this host, or this shop there, cut off?
//
// Host is a plain state machine without a lock: its owner (the host's gate)
// holds one. Shops locks itself. Both are told the time.
//
// The state machine is our own, not sony/gobreaker's: that one allocates a
// closure per call, and window, probes and dates would have been ours anyway.
package breaker

import "time"

// Config are the settings of the host breakers (breakers.host).
type Config struct {
	ConsecutiveFailures int           // in a row that open it while Window holds fewer than MinCalls; 0: no such rule
	FailureRatio        float64       // share of failures in Window that opens it from MinCalls on; 0: the row always decides
	MinCalls            int           // results that Window must hold before the ratio decides
	Window              time.Duration // how far back results count
	Open, OpenMax       time.Duration // from opening to the next probe; doubles with each failed probe up to OpenMax
	Probes              int           // attempts in flight while half-open, at least 1
}

// ShopConfig are the settings of the shop breakers (breakers.shop).
type ShopConfig struct {
	IdenticalFailures int           // identical failed calls in a row that trip it; 0: never
	ProbeEvery        time.Duration // one retry is let through that often while tripped
}

// State is what is shown: 0 closed, 1 half-open, 2 open.
type State uint8

// The states, with the numbers of the metric.
const (
	Closed State = iota
	HalfOpen
	Open
)

// String returns closed, half_open or open.
func (s State) String() string { return [...]string{"closed", "half_open", "open"}[s] }

// Result is what an attempt says about its host.
type Result uint8

// Results of an attempt.
const (
	Excluded Result = iota // cancelled, local or egress fault: says nothing
	Alive                  // a complete answer that is no counted failure
	Failed                 // counts against the host
	Served                 // alive, and a success: how long it took tells how busy the host is
)

// String returns excluded, alive, failed or served.
func (r Result) String() string { return [...]string{"excluded", "alive", "failed", "served"}[r] }

// Event is a change of state to be reported after the lock is given up.
type Event struct {
	Scope    string // host, shop or egress
	Host     string
	Shop     string
	From, To State
	Reason   string // why; see the Reason constants. Of a tripped shop: the failure that its calls shared
	At       time.Time
	Until    time.Time // open: when the next probe may go
	Reach    Reach     // of a host that opens: whose calls failed

	// Of a host: since when it is, or was, cut off. Its gate adds, once that is over,
	// the most calls that waited at a time and those that ended without a success.
	Outage         time.Time
	Waited, GaveUp int
}

// Reach says whose calls fail at a host that is cut off.
type Reach uint8

// Whom an outage reaches.
const (
	ReachUnknown Reach = iota
	ReachAnybody       // calls without a shop
	ReachShop          // one shop, and nobody else was heard of
	ReachShops         // several shops
)

// String returns a word for operators; empty: unknown.
func (r Reach) String() string { return [...]string{"", "unlabelled", "one_shop", "several_shops"}[r] }

// Reasons of events.
const (
	ReasonRow        = "consecutive_failures"
	ReasonRatio      = "failure_ratio"
	ReasonOneShop    = "one_shop"       // of a shop: the host would have been cut off, but answers others
	ReasonWorkedOff  = "worked_off"     // closed to closed: nobody waits any more of those whom an outage kept waiting
	ReasonProbe      = "probe"          // open to half-open: a probe goes
	ReasonProbeOK    = "probe_alive"    // half-open to closed
	ReasonProbeBad   = "probe_failed"   // half-open to open
	ReasonProbeMute  = "probe_silent"   // half-open to open: its time ran out
	ReasonOperator   = "operator"       // reset by hand
	ReasonShopAlive  = "success"        // a call of that shop succeeded there
	ReasonHostClosed = "host_recovered" // the host's own breaker closed
)
