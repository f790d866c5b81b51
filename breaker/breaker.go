// Package breaker answers one question: is this host, or this shop there, cut off?
//
// Host is a plain state machine without a lock: its owner (the host's gate)
// holds one. Shops locks itself.
package breaker

import "time"

// Config are the settings of the host breakers (breakers.host).
type Config struct {
	ConsecutiveFailures int
	FailureRatio        float64
	MinCalls            int
	Window              time.Duration
	Open, OpenMax       time.Duration
	Probes              int
}

// ShopConfig are the settings of the shop breakers (breakers.shop).
type ShopConfig struct {
	IdenticalFailures int
	ProbeEvery        time.Duration
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
)

// Event is a change of state to be reported after the lock is given up.
type Event struct {
	Scope    string // host or shop
	Host     string
	Shop     string
	From, To State
	Reason   string
	At       time.Time
	Until    time.Time // open: when the next probe may go
}
