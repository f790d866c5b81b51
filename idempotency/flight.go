package idempotency

import (
	"sync"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/message"
)

// FlightResult is how a call ended, for all who waited for it. It is shared:
// nobody writes to anything in it. A waiter's answer takes a copy of Fields.
type FlightResult struct {
	Status int            // 0: there is no answer to give on, only the stop
	Reason string         // reason phrase
	Fields message.Fields // as StoredFields gives them
	Body   []byte
	Kept   bool // false: Body was too large or streamed and is not here

	Stop     string // stop reason of the contract; "ok"
	Detail   string // for people
	Executed classify.Executed
	Advice   string    // repeat, check, stop; empty on success
	NextAt   time.Time // when a later try makes sense; zero: no Retry-After
	History  attempt.History
}

// Flights are the keyed calls that run in this process. The call that got Fresh
// from the store leads and shares its end; calls that got Busy wait for it. A
// waiter never becomes a leader: after the end it goes by the result, and a
// call that found no flight asks the store again.
type Flights struct {
	mu     sync.Mutex
	max    int
	flying map[ID]*Flight
}

// NewFlights returns a set that shares at most max flights at a time; those
// beyond fly unseen, and calls that wait for them ask the store.
func NewFlights(maximum int) *Flights {
	return &Flights{max: maximum, flying: make(map[ID]*Flight)}
}

// Flight is one run of a keyed call.
type Flight struct {
	set     *Flights
	id      ID
	owner   string
	waiters int           // under set.mu, as all below
	done    chan struct{} // made when somebody asks
	ended   bool
	result  *FlightResult
}

// Start begins the flight of the run that owner (the call id of the Claim)
// leads. The leader must End it, after the store has heard of the end.
func (s *Flights) Start(id ID, owner string) *Flight {
	f := &Flight{set: s, id: id, owner: owner}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, replaces := s.flying[id]; replaces || len(s.flying) < s.max {
		s.flying[id] = f
	}
	return f
}

// Join enters the flight that owner leads, the Record.Owner that Busy came
// with. It fails when that run is over, not begun, or elsewhere: ask the store
// again, after a short wait when it still says Busy. Who joined must Leave.
func (s *Flights) Join(id ID, owner string) (*Flight, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flying[id]
	if f == nil || f.owner != owner {
		return nil, false
	}
	f.waiters++
	return f, true
}

// Len is the number of flights that can be joined.
func (s *Flights) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flying)
}

// Leave ends the wait of one who joined, after the end or before it.
func (f *Flight) Leave() {
	f.set.mu.Lock()
	defer f.set.mu.Unlock()
	f.waiters--
}

// Waiters is the number of calls that wait: the leader asks when its own client
// has left.
func (f *Flight) Waiters() int {
	f.set.mu.Lock()
	defer f.set.mu.Unlock()
	return f.waiters
}

// Done is closed at the end.
func (f *Flight) Done() <-chan struct{} {
	f.set.mu.Lock()
	defer f.set.mu.Unlock()
	if f.done == nil {
		f.done = make(chan struct{})
		if f.ended {
			close(f.done)
		}
	}
	return f.done
}

// Result is how it ended. It is nil before Done, and when the leader could not
// say: ask the store again.
func (f *Flight) Result() *FlightResult {
	f.set.mu.Lock()
	defer f.set.mu.Unlock()
	return f.result
}

// End ends the flight for all who wait. Only the first call counts.
func (f *Flight) End(result *FlightResult) {
	f.set.mu.Lock()
	defer f.set.mu.Unlock()
	if f.ended {
		return
	}
	f.ended, f.result = true, result
	if f.set.flying[f.id] == f {
		delete(f.set.flying, f.id)
	}
	if f.done != nil {
		close(f.done)
	}
}
