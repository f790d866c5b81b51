// Package idempotency answers one question: was this call already made?
//
// It owns the record of a call under (tenant, key) in all its states and the
// Store that keeps records; the rules that need no store (key syntax,
// fingerprints, what may be stored) are pure functions beside it.
package idempotency

import (
	"context"
	"errors"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/message"
)

// ID names a record.
type ID struct{ Tenant, Key string }

// State is where a record is in its life.
type State uint8

// States. A record whose key is free keeps its history: StateFree.
const (
	StateRunning State = iota + 1 // an attempt is in flight or about to be
	StateWaiting                  // between attempts
	StateParked                   // waiting durably, no client attached
	StateDone                     // finished with an answer that is replayed
	StateFree                     // ended without one: the key may run again, history kept
	StateDead                     // given up, a dead letter
	StateInDoubt                  // may have been executed, key not honoured upstream
)

// String returns the token used in logs, API and stores.
func (s State) String() string {
	return [...]string{"none", "running", "waiting", "parked", "done", "free", "dead", "in_doubt"}[s]
}

// Record is what is known about a call. A Store returns copies: slices and
// bodies in them are never written to by anyone.
type Record struct {
	ID
	State       State
	Version     uint64 // rises with every change
	Owner       string // call id of the run that holds it
	Fingerprint [32]byte
	Credentials [32]byte // hash of Authorization in tenant "-"; zero elsewhere
	Binding     bool     // a free record whose fingerprint still binds: executed is not "no"
	Policy      string
	Labels      attempt.Labels
	Method      string
	Host        string // normalised host:port
	Path        string // without query

	Created, Updated time.Time
	Expires          time.Time // for records that may be evicted: done, free, in_doubt
	Deadline         time.Time // of the current run
	NextAt           time.Time // waiting, parked: when it goes on
	Reason           string    // why it is in this state
	Executed         classify.Executed
	ClientCount      int // the largest X-Retry-Count a client sent
	History          attempt.History
	Runs             []Run
	Answer           *Answer // done: what is replayed; nil with Kept false is a marker
}

// Run is what one client request or requeue bought.
type Run struct {
	CallID  string
	Started time.Time
	Ended   time.Time // zero: running
	First   int       // index into History of its first attempt
	Reason  string    // how it ended
}

// Answer is a stored answer. Body is nil and Kept false when only the marker
// is left (result_not_kept).
type Answer struct {
	Status int
	Reason string
	Fields message.Fields // less hop-by-hop and Set-Cookie
	Body   []byte
	Kept   bool
	Stored time.Time // for Age
}

// Claim is what a new client request says about itself to Begin.
type Claim struct {
	ID
	Owner       string // call id
	Fingerprint [32]byte
	Credentials [32]byte
	Policy      string
	Labels      attempt.Labels
	Method      string
	Host, Path  string
	Deadline    time.Time
	ClientCount int
	TTL         time.Duration
}

// Result is what Begin found.
type Result uint8

// Results of Begin.
const (
	Fresh       Result = iota + 1 // the caller now owns the record and must end the run
	Replay                        // done: Record.Answer is the answer (a marker when not Kept)
	Busy                          // another run owns it
	Mismatch                      // the key was used for another request, see Record
	Credentials                   // tenant "-": the key was used with another Authorization
	InDoubt                       // may have been executed; nobody may run it again yet
)

// Begun is the answer of Begin. Record is the state after it.
type Begun struct {
	Result Result
	Record Record
}

// Change is what Advance applies, plain data. Zero fields change nothing,
// except where noted.
type Change struct {
	Now      time.Time // required
	Owner    string    // required from running, waiting: must be the record's owner
	Append   []attempt.Attempt
	Reason   string
	NextAt   time.Time         // set as given, zero clears
	Executed classify.Executed // raises, never lowers, except by Settle
	Settle   bool              // an operator or a query settled it: Executed is set as given
	Answer   *Answer           // to done
	TTL      time.Duration     // from Now, for states that expire
	EndRun   bool              // the current run ends with Reason
}

// Errors of a Store. ErrUnavailable wraps what went wrong.
var (
	ErrConflict    = errors.New("idempotency: the record changed meanwhile")
	ErrNotFound    = errors.New("idempotency: no such record")
	ErrTransition  = errors.New("idempotency: no such transition")
	ErrFull        = errors.New("idempotency: the store is full and nothing may be evicted")
	ErrUnavailable = errors.New("idempotency: the store is unavailable")
)

// Store keeps records. All methods are safe for concurrent use.
type Store interface {
	// Begin claims (tenant, key) or says why not, in one atomic step. On Fresh
	// a run was started and the state is running. Errors: ErrFull, ErrUnavailable.
	Begin(ctx context.Context, c Claim, now time.Time) (Begun, error)
	// Advance moves a record from one state to another (or the same) by
	// compare-and-set and returns it. Errors: ErrConflict (state or owner
	// differ), ErrNotFound, ErrTransition, ErrUnavailable.
	Advance(ctx context.Context, id ID, from, to State, change Change) (Record, error)
	// Get reads a record. Errors: ErrNotFound, ErrUnavailable.
	Get(ctx context.Context, id ID, now time.Time) (Record, error)
	// Stats are for metrics and the operator.
	Stats() Stats
	// Close releases what the store holds; later calls fail with ErrUnavailable.
	Close() error
}

// Stats of a store.
type Stats struct {
	Records      int
	ByState      map[State]int
	Bytes        int64
	EvictedEarly int64 // records or bodies that went before their time
}
