package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/message"
)

// Claim is what a new client request, or a requeue, says about itself to Begin.
type Claim struct {
	ID
	Version     uint64 // a record that may run again must have it still, for what was decided by what was read; 0: any
	Owner       string // call id
	Fingerprint [32]byte
	Credentials [32]byte // hash of Authorization in NoTenant; ignored elsewhere
	Policy      string
	Labels      attempt.Labels
	Method      string
	Host, Path  string
	Deadline    time.Time
	ClientCount int
	TTL         time.Duration // how long the record outlives its end
	Kind        Kind
	Keyless     bool     // the key was made here
	Honoured    bool     // the key goes upstream, to hosts that may use it
	ClientID    string   // the client's own request id
	Trace       string   // traceparent of the span of the run; empty: it has none
	Terms       []uint64 // what the call can be found by
	// Request is what it takes to go on without the client. A durable store keeps
	// it while the call is not over; nil: it cannot go on.
	Request *Request
}

// Request is a call as its attempts are made of it, so that a process that its
// client never spoke to can send it to the same places. A configuration that
// changed meanwhile changes neither.
type Request struct {
	Mode     string         // forward, intercept, reverse
	Place                   // where attempts go
	Others   []Place        // further upstreams of its route
	Honoured bool           // the key goes there, to hosts that may use it
	Version  string         // of the client's HTTP
	Fields   message.Fields // without those of the connection to us, and what was for us alone
	Trailers message.Fields
	Body     []byte // complete; nil: none. A store does not write to it, and is done with it when Begin returns
	Listener string // address that it came in by
	Client   string // address that it came from
	User     string // configured proxy user
}

// Place is where an attempt can go.
type Place struct {
	Scheme    string // http, https or h2c
	Authority string // becomes Host
	Target    string // path and query, byte for byte
	Exempt    bool   // comes from the configuration
}

// Result is what Begin found.
type Result uint8

// Results of Begin.
const (
	Fresh       Result = iota + 1 // the caller now owns the record and must end the run
	Replay                        // done: Record.Answer is the answer (a marker when not Kept)
	Busy                          // a run that is not over holds it; parked: until Record.NextAt
	Mismatch                      // the key was used for another request, see Record
	Credentials                   // NoTenant: the key was used with another Authorization
	InDoubt                       // may have been executed; nobody may run it again yet
)

// resultNames are in the order of the constants.
var resultNames = [...]string{"none", "fresh", "replay", "busy", "mismatch", "credentials", "in_doubt"}

// String returns the token used in logs and metrics.
func (r Result) String() string { return resultNames[r] }

// Begun is the answer of Begin. Record is the state after it; with Credentials
// it names the record and tells nothing else.
type Begun struct {
	Result Result
	Record Record
	Letter bool // Fresh: the same call was given up before, and is a dead letter until it ends
}

// Change is what Advance applies, plain data. Zero fields change nothing,
// except where noted.
type Change struct {
	Now      time.Time // required
	Version  uint64    // the record must have it still, for what was decided by what was read; 0: any
	Owner    string    // from running, waiting: must be the record's owner; from parked to running or waiting: the new one
	Append   []attempt.Attempt
	Reason   string
	NextAt   time.Time         // set as given, zero clears; to in_doubt: zero is the end of its time
	Executed classify.Executed // raises, never lowers, except by Settle; so does every appended verdict
	Settle   bool              // an operator or a query settled it: Executed is set as given
	Answer   *Answer           // to done: nil leaves a marker; to dead, in_doubt: the last answer, nil keeps what is there
	Receipt  bool              // the record gets its receipt, if it has none; a change that asks for nothing else needs no Owner and works in every state
	Note     *Note             // added to the record's
	Deadline time.Time         // the new one of the run; zero: as before
	// Adopt takes the record over from a process that is gone: Owner is the new one
	// whatever the state. A store that several processes share refuses it
	// (ErrConflict) while that process may be alive.
	Adopt bool
	TTL   time.Duration // from Now, for states that expire; 0: the record's
	Host  string        // of the attempt that is about to be sent; empty: as before
	// Supplier is who gets the order with the attempt that is about to be sent; zero: as before.
	Supplier Supplier
	EndRun   bool // parked: the current run ends with Reason; in ended states it always does
}

// Errors of a Store. ErrUnavailable wraps what went wrong.
var (
	ErrConflict    = errors.New("idempotency: the record changed meanwhile")
	ErrNotFound    = errors.New("idempotency: no such record")
	ErrTransition  = errors.New("idempotency: no such transition")
	ErrFull        = errors.New("idempotency: the store is full and nothing may be evicted")
	ErrUnavailable = errors.New("idempotency: the store is unavailable")
	ErrCursor      = errors.New("idempotency: this is no place of a list")
)

// Store keeps records. All methods are safe for concurrent use. What a method
// is given it copies where it keeps it: buffers may be used again afterwards.
type Store interface {
	// Begin claims (tenant, key) or says why not, in one atomic step, as Admit
	// decides. On Fresh a run was started and the state is running.
	// Errors: ErrFull, ErrUnavailable.
	Begin(ctx context.Context, c Claim, now time.Time) (Begun, error)
	// Advance moves a record from one state to another (or the same) by
	// compare-and-set, as Apply computes it, and returns it. Errors: ErrConflict
	// (state, version or owner differ), ErrNotFound, ErrTransition, ErrUnavailable.
	Advance(ctx context.Context, id ID, from, to State, change Change) (Record, error)
	// Get reads a record. Errors: ErrNotFound (expired ones included), ErrUnavailable.
	Get(ctx context.Context, id ID, now time.Time) (Record, error)
	// Bury keeps a call that had no record as a dead one, in one step, as the
	// function Bury computes it. Errors: ErrConflict (the key is in use), ErrFull,
	// ErrUnavailable.
	Bury(ctx context.Context, c Claim, ch Change) (Record, error)
	// List finds records, the latest changed first unless Query.Oldest says otherwise,
	// without their answers, and says where to go on: empty, that was all. Those whose time is over may be missing. Errors: ErrUnavailable, ErrCursor.
	List(ctx context.Context, q Query) (found []Record, next string, err error)
	// Due lists records whose NextAt has come, at most limit, the longest due first,
	// and the time of the next one after now (zero: there is none). They are parked,
	// dead (to be tried again) or in doubt (their time is over). A store that several
	// processes share adds running and waiting ones of processes that are gone.
	// They come without their answers, and are not moved. Errors: ErrUnavailable.
	Due(ctx context.Context, now time.Time, limit int) (due []Record, next time.Time, err error)
	// Parked counts the parked records by when they go on: number i are due before
	// edges[i] and not before the edge in front of it, the last number are all later
	// ones. Edges are in order. It may be asked often. Errors: ErrUnavailable.
	Parked(ctx context.Context, edges []time.Time) ([]int, error)
	// Lease makes sure that no other process adopts a running or waiting record of
	// this owner within least, and that none has. A store of one process says so at
	// once. Errors: ErrConflict (it is not his any more), ErrUnavailable.
	Lease(ctx context.Context, id ID, owner string, least time.Duration) error
	// Durable says that records outlive the process. Only then the methods below
	// find anything.
	Durable() bool
	// Pending lists the running and waiting records of this store's earlier process,
	// by the time they go on, those that are due first. It is asked once at the
	// start, before anything else moves them. Errors: ErrUnavailable.
	Pending(ctx context.Context) ([]Record, error)
	// Load gives the request of a record. Errors: ErrNotFound, ErrUnavailable.
	Load(ctx context.Context, id ID) (*Request, error)
	// Stats are for metrics and the operator.
	Stats() Stats
	// Close releases what the store holds; later calls fail with ErrUnavailable.
	Close() error
}

// Stats of a store.
type Stats struct {
	Records      int
	ByState      map[State]int
	Bytes        int64     // of stored answers
	EvictedEarly int64     // records or bodies that went before their time
	OldestParked time.Time // since when the first of those parked now is; zero: none
}

// Query says which records List finds; what is zero is not asked.
type Query struct {
	States                       []State
	Receipt                      string
	KeyHash                      string // as KeyHash gives it
	Host, Shop, TaskType, Reason string // Host without a port: any port
	Executed                     []classify.Executed
	Words                        [][]uint64 // of each at least one, among the record's Terms
	Since, Until                 time.Time  // of the last change; Until is not included
	Oldest                       bool       // the list begins with those that were changed first
	After                        string     // where the list before this one ended
	Limit                        int        // at most; 0: 100
}

// Wants says whether a record is asked for, whatever its place in the list.
func (q *Query) Wants(r *Record) bool {
	return (len(q.States) == 0 || slices.Contains(q.States, r.State)) &&
		is(q.Receipt, r.Receipt) && (q.KeyHash == "" || q.KeyHash == KeyHash(r.Key)) &&
		(is(q.Host, r.Host) || q.Host == nameOf(r.Host)) && is(q.Shop, r.Labels.Shop) && is(q.TaskType, r.Labels.TaskType) && is(q.Reason, r.Reason) &&
		(q.Since.IsZero() || !r.Updated.Before(q.Since)) && (q.Until.IsZero() || r.Updated.Before(q.Until)) &&
		(len(q.Executed) == 0 || slices.Contains(q.Executed, r.Executed)) && q.said(r.Terms)
}

// said says whether all words are among the terms.
func (q *Query) said(terms []uint64) bool {
	for _, word := range q.Words {
		if !slices.ContainsFunc(word, func(h uint64) bool { return slices.Contains(terms, h) }) {
			return false
		}
	}
	return true
}

func is(want, value string) bool { return want == "" || want == value }

// nameOf is a host without its port.
func nameOf(hostport string) string {
	if i := strings.LastIndexByte(hostport, ':'); i > strings.LastIndexByte(hostport, ']') {
		return hostport[:i]
	}
	return hostport
}

// KeyHash is what logs and operators see of a key: the first 16 hex digits of its
// SHA-256.
func KeyHash(key string) string {
	h := sha256.Sum256([]byte(key))
	return hex.EncodeToString(h[:8])
}
