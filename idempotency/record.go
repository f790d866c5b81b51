// Package idempotency answers one question: was this call already made?
//
// It owns the record of a call under (tenant, key) in all its states and the
// Store that keeps records; the rules that need no store (key syntax,
// fingerprints, what may be stored, which state follows which) are pure
// functions beside it, so that every store decides alike.
package idempotency

import (
	"slices"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/message"
)

// NoTenant is the tenant of calls that name neither a configured user or
// listener nor a shop.
const NoTenant = "-"

// ID names a record.
type ID struct{ Tenant, Key string }

// Record is what is known about a call. A Store returns copies: everything in
// one is the caller's own, except Answer.Body, which nobody ever writes to.
type Record struct {
	ID
	State       State
	Version     uint64 // rises with every change
	Owner       string // call id of the run that holds it
	Fingerprint [32]byte
	Credentials [32]byte // hash of Authorization in NoTenant; zero elsewhere
	Policy      string
	Labels      attempt.Labels
	Method      string
	Host        string   // normalised host:port
	Path        string   // without query
	Receipt     string   // names it to its client and to people once it was parked, given up, or asked for (Change.Receipt): the call id of that run; empty: not yet
	Keyless     bool     // its key was made here: it is never sent, and makes nothing safe
	Honoured    bool     // the key goes upstream, to hosts that may use it
	Terms       []uint64 // what it can be found by (journal.Terms); stores that are not durable may drop them

	Created, Updated time.Time
	TTL              time.Duration // how long it outlives its end, unless a Change says otherwise
	Expires          time.Time     // done, failed, dead, in_doubt: from then on the key is new again
	Deadline         time.Time     // of the current run
	NextAt           time.Time     // waiting, parked: when it goes on; dead: when it is tried again; in_doubt: when its key is new again
	Parked           time.Time     // since when this run waits without a client, woken and parked again included; zero: it does not
	Reason           string        // why it is in this state
	Executed         classify.Executed
	ClientCount      int             // the largest X-Retry-Count a client sent
	Attempts         int             // made in all, those that History no longer holds included
	History          attempt.History // the first HistoryFirst and the last HistoryLast attempts
	Runs             []Run           // the first RunsFirst and the last RunsLast runs
	Notes            []Note          // what people and rules decided, the last NotesKept
	// Answer is what is replayed of a done record, never nil. Of a dead one and one
	// in doubt it is the last answer of an upstream, for people; nil: there was none.
	Answer *Answer
}

// A record keeps its first and its last attempts and runs, so that a client
// that repeats one key for days cannot make it grow.
const (
	HistoryFirst = 4  // attempts kept from the start
	HistoryLast  = 28 // attempts kept from the end
	RunsFirst    = 4  // runs kept from the start
	RunsLast     = 16 // runs kept from the end: no fewer than a policy's redrive may have entries
	NotesKept    = 16 // notes kept from the end
)

// Run is what one client request or requeue bought.
type Run struct {
	CallID   string
	ClientID string // the client's own request id, where it gave one
	Kind     Kind   // who asked for it
	Started  time.Time
	Ended    time.Time // zero: running
	First    int       // number (Attempt.N) of its first attempt, made or not
	Reason   string    // how it ended
	Supplier Supplier  // who had the order last
	Trace    string    // traceparent of its span in a distributed trace; empty: it has none
}

// Supplier is who has an order that was handed on from where its client sent it; zero:
// nobody else has it. A record is at one supplier at a time.
type Supplier struct {
	Name    string // of its preset
	OrderNo string // under which it knows the order; empty: it was given none
}

// Kind is who asked for a run.
type Kind string

// Kinds of runs.
const (
	ByClient Kind = ""        // a request
	Requeued Kind = "requeue" // an operator
	Redriven Kind = "redrive" // the schedule of its policy
)

// Note is what a person or a rule decided about a record.
type Note struct {
	At   time.Time
	By   string
	Did  string // what was done: requeued, executed, not_executed, dropped, …
	Text string
}

// Answer is a stored answer. Body is nil and Kept false when only the marker
// is left (result_not_kept).
type Answer struct {
	Status int
	Reason string         // reason phrase
	Fields message.Fields // as StoredFields gives them
	Body   []byte
	Kept   bool
	Stored time.Time // for Age
}

// Size is how many bytes a store keeps of the answer: fields and body; 0 for a
// marker and for nil.
func (a *Answer) Size() int64 {
	if a == nil || !a.Kept {
		return 0
	}
	n := len(a.Body)
	for i := range a.Fields {
		n += len(a.Fields[i].Name) + len(a.Fields[i].Value)
	}
	return int64(n)
}

// Supplier is who has the order now.
func (r *Record) Supplier() Supplier {
	if n := len(r.Runs); n > 0 {
		return r.Runs[n-1].Supplier
	}
	return Supplier{}
}

// handOn notes who has the order from now on.
func (r *Record) handOn(to Supplier) {
	if n := len(r.Runs); n > 0 && to != (Supplier{}) {
		r.Runs = slices.Clone(r.Runs)
		r.Runs[n-1].Supplier = to
	}
}

// Expired says that the record has outlived its time at now: its key is new
// again. A call that is not over never expires.
func (r *Record) Expired(now time.Time) bool {
	return r.State.Ended() && !now.Before(r.Expires)
}

// Gone says that the record has outlived its time at now for a move to another
// state: a doubt that nobody settled still becomes a plain letter.
func (r *Record) Gone(to State, now time.Time) bool {
	return r.Expired(now) && (r.State != StateInDoubt || to != StateDead)
}

// Released says that the key is as good as unused: the last run ended without
// an answer to replay and nothing was executed, so that the next claim may be
// for another request.
func (r *Record) Released() bool {
	return r.State.Vacant() && r.Executed == classify.ExecutedNo
}

// Clone returns a copy that shares nothing with r but Answer.Body.
func (r *Record) Clone() Record {
	c := *r
	c.History = slices.Clone(r.History)
	c.Runs = slices.Clone(r.Runs)
	c.Notes, c.Terms = slices.Clone(r.Notes), slices.Clone(r.Terms)
	if r.Answer != nil {
		a := *r.Answer
		a.Fields = a.Fields.Clone(0)
		c.Answer = &a
	}
	return c
}

// Interval is which of the intervals that edges part a time is in; an edge begins the next.
func Interval(edges []time.Time, at time.Time) int {
	i, _ := slices.BinarySearchFunc(edges, at, func(edge, at time.Time) int {
		if edge.After(at) {
			return 1
		}
		return -1
	})
	return i
}
