package idempotency

// State is where a record is in its life.
type State uint8

// States.
const (
	StateRunning State = iota + 1 // an attempt is in flight or about to be
	StateWaiting                  // between attempts
	StateParked                   // waiting durably, no client attached
	StateDone                     // finished with an answer that is replayed
	StateFailed                   // ended without one: the key may run again, history kept
	StateDead                     // given up, a dead letter; its key may run again as well
	StateInDoubt                  // may have been executed, key not honoured upstream
)

// stateNames are in the order of the constants.
var stateNames = [...]string{"none", "running", "waiting", "parked", "done", "failed", "dead", "in_doubt"}

// String returns the token used in logs, API and stores.
func (s State) String() string { return stateNames[s] }

// States are all states a record can be in.
func States() []State {
	return []State{StateRunning, StateWaiting, StateParked, StateDone, StateFailed, StateDead, StateInDoubt}
}

// moves is the transition table: what Advance may do. Beside it Begin makes a
// new record running, and a failed or dead one again; nothing else leads from an
// ended record to a running one.
var moves = [...]set{
	StateRunning: of(StateRunning, StateWaiting, StateParked, StateDone, StateFailed, StateDead, StateInDoubt),
	StateWaiting: of(StateRunning, StateWaiting, StateParked, StateFailed, StateDead, StateInDoubt),
	StateParked:  of(StateRunning, StateWaiting, StateParked, StateFailed, StateDead, StateInDoubt),
	StateDone:    of(),
	StateFailed:  of(StateFailed, StateDone),                          // settled: not executed, executed
	StateDead:    of(StateDead, StateFailed, StateDone),               // noted, dropped or settled as not executed, executed
	StateInDoubt: of(StateInDoubt, StateFailed, StateDone, StateDead), // noted, settled as not executed, executed, its ttl over
}

// CanBecome says whether Advance may move a record from s to the other state.
func (s State) CanBecome(to State) bool { return int(s) < len(moves) && moves[s].has(to) }

// Ended says that no run holds a record in this state.
func (s State) Ended() bool { return ended.has(s) }

// Vacant says that Begin may start a run on a record in this state.
func (s State) Vacant() bool { return vacant.has(s) }

// Letter says that a record in this state waits for a person: what was given up,
// and what may have been executed.
func (s State) Letter() bool { return s == StateDead || s == StateInDoubt }

var (
	ended  = of(StateDone, StateFailed, StateDead, StateInDoubt)
	vacant = of(StateFailed, StateDead)
	owned  = of(StateRunning, StateWaiting) // only the owner moves these
)

// set is a set of states.
type set uint16

func of(states ...State) set {
	var s set
	for _, x := range states {
		s |= 1 << x
	}
	return s
}

func (s set) has(x State) bool { return s>>x&1 == 1 }
