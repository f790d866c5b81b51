// Package attempt answers one question: what was tried for a call, and what came of it?
package attempt

import (
	"time"

	"retryproxy/classify"
)

// Attempt is one request sent upstream and what came of it.
type Attempt struct {
	N        int           // 1 is the first on the record
	Count    int           // X-Retry-Count of this attempt: client's count + earlier attempts
	Started  time.Time     // when it was sent
	Duration time.Duration // to the verdict
	Host     string        // normalised host:port it went to
	Status   int           // 0: no header came
	Detail   string        // for people
	Delay    time.Duration // waited since the attempt before, or since the call began
	Cause    string        // of that wait: backoff, retry_after, tokens, gate, breaker, pause; empty: none
	Verdict  classify.Verdict
	Egress   string // the egress proxy it went through; empty: none
	Supplier string // the preset of the backup supplier it went to; empty: where the client sent it
	// Reused: sent on a connection that had served before.
	Reused bool
	// UpstreamID is the upstream's own request id, when it gave one.
	UpstreamID string
}

// History is every attempt on a record, oldest first.
type History []Attempt

// Last returns the newest attempt; the zero value when there is none.
func (h History) Last() Attempt {
	if len(h) == 0 {
		return Attempt{}
	}
	return h[len(h)-1]
}

// Executed is the worst over all attempts.
func (h History) Executed() classify.Executed {
	worst := classify.ExecutedNo
	for i := range h {
		worst = max(worst, h[i].Verdict.Executed)
	}
	return worst
}

// Labels name who a call belongs to; an empty one is absent.
type Labels struct {
	Shop     string `json:"shop,omitempty"`
	ShopTier string `json:"shop_tier,omitempty"`
	TaskType string `json:"task_type,omitempty"`
}

// Summary is one call as the log, the metrics and the operator see it. It holds
// no credential and no body, and shows no key.
type Summary struct {
	ID       string
	Mode     string // forward, connect, intercept, reverse, local
	Policy   string
	User     string // configured proxy user, else empty
	Client   string // address
	Labels   Labels
	Method   string
	Scheme   string
	Host     string // normalised host:port
	Path     string // without query, escaped
	KeyHash  string // first 16 hex digits of SHA-256 of the key; empty: keyless
	Record   RecordID
	ClientID string // the client's X-Request-Id
	Agent    string // the beginning of the client's User-Agent
	Trace    string // the client's traceparent; where it sent none, that of our span

	// Origin is what made the call go on, or go again, without its client; empty: a
	// client asked, and is answered. See the constants.
	Origin string

	State    string // running, waiting, parked, done
	Result   string // success, recovered, replay, failed, rejected, cancelled
	Reason   string // a stop reason or own answer of the contract
	Detail   string
	Status   int // what the client got; 0: nothing yet; 499: it had left
	Executed classify.Executed
	Attempts History
	Previous int // attempts of earlier runs on the record, not among Attempts

	// Terms are hashes of what the call can be found by (journal.Salts.Terms); none
	// where no history is kept.
	Terms []uint64

	Started  time.Time
	Ended    time.Time // zero: not yet
	Duration time.Duration
	Overhead time.Duration // our own part: neither upstream nor waiting
	Bytes    int64         // of the answer's body
	Waits    []Wait        // that ended

	// Of a call that a client waits for: the time until the last answer's header, and
	// after which the client left without an answer (0: it did not).
	Deadline, Left time.Duration

	// Of the wait in progress.
	Cause     string
	Dimension string    // tokens: the bucket whose token comes last
	Lane      string    // at the gate of its host: fresh or backlog
	Place     int       // in that line, 1 is next; 0: it waits for a date
	NextAt    time.Time // when it is planned to end
}

// Origins of calls that no client waits for.
const (
	OriginRestart = "restart" // the process that had it ended
	OriginParked  = "parked"  // it was parked, and its time came
	OriginRequeue = "requeue" // an operator
	OriginRedrive = "redrive" // the schedule of its policy
)

// RecordID names the record of a keyed call; zero: it has none. The key is in it, so
// it is never shown: not by formatting, in logs or as JSON.
type RecordID struct{ Tenant, Key string }

// String hides the key.
func (RecordID) String() string { return "<record>" }

// GoString hides the key.
func (RecordID) GoString() string { return "<record>" }

// MarshalText hides the key, from JSON and logs.
func (RecordID) MarshalText() ([]byte, error) { return []byte("<record>"), nil }

// Wait is one finished wait of a call. Histories keep neither Began nor Planned.
type Wait struct {
	Cause   string
	For     time.Duration
	Began   time.Time
	Planned time.Duration // 0: nobody knew how long it would be
}
