package limiter

import "time"

// Ticket is a call's place while it waits. It ends once: with a grant, a
// refusal, or Leave.
type Ticket struct {
	claim   Claim
	turn    int    // effective priority: lower goes first
	seq     uint64 // breaks ties between calls of the same age
	gate    *gate
	sources sources // that a retry needs a token of

	stage stage
	start time.Time // not before; not in the past when made, with a pause later than the claim's
	cause string    // of the wait until start
	alarm alarm     // at start, while planned
	lane  int       // while in line
	group *group    // of the lane
	aged  bool      // half of max_wait is over: age beats priority

	joined time.Time     // when it got in line
	mark   time.Duration // the gate's stopped time then
	atGate time.Duration // stopped time of earlier stays in line
	limit  time.Duration // the gate's stopped time at which max_wait is used up

	ready  chan struct{}
	answer Answer
}

// stage is where a ticket stands.
type stage uint8

const (
	outside stage = iota // not yet, or between two stages
	planned              // waits for its start
	inLine               // waits for its gate, then for tokens
	ended
)

// maxPromotion is how many retries improve a call's turn.
const maxPromotion = 3

// Ready is closed once the answer is there.
func (t *Ticket) Ready() <-chan struct{} { return t.ready }

// Answer is valid once Ready is closed.
func (t *Ticket) Answer() Answer { return t.answer }

// waits says that the ticket has no answer yet.
func (t *Ticket) waits() bool { return t.stage != ended }

// wake runs when the start has come: the ticket gets in line.
func (t *Ticket) wake(b *board) {
	b.unplan(t)
	if t.late(b.now) {
		b.refuse(t, t.tooLate())
		return
	}
	b.join(t)
}

// late says that a start at that time comes after the deadline.
func (t *Ticket) late(at time.Time) bool {
	return !t.claim.Deadline.IsZero() && at.After(t.claim.Deadline)
}

// short says that the deadline leaves less time than a probe is given.
func (t *Ticket) short(now time.Time) bool {
	return !t.claim.Deadline.IsZero() && t.claim.Deadline.Sub(now) < t.claim.ProbeTimeout
}

// byMark is the order in which calls got in line.
func byMark(x, y *Ticket) bool {
	if x.mark != y.mark {
		return x.mark < y.mark
	}
	return x.seq < y.seq
}

// patience is how much longer the ticket may be stopped at its gate.
func (t *Ticket) patience() time.Duration { return t.claim.MaxWait - t.atGate }

// earlier is the order of turns: who has waited for long goes first, by age; then
// the effective priority decides, then the age of the call.
func earlier(x, y *Ticket) bool {
	switch {
	case x.aged != y.aged:
		return x.aged
	case !x.aged && x.turn != y.turn:
		return x.turn < y.turn
	}
	return older(x, y)
}

// older is the order of age.
func older(x, y *Ticket) bool {
	if c := x.claim.Arrived.Compare(y.claim.Arrived); c != 0 {
		return c < 0
	}
	return x.seq < y.seq
}

// sooner is the order of starts.
func sooner(x, y *Ticket) bool {
	if c := x.start.Compare(y.start); c != 0 {
		return c < 0
	}
	return x.seq < y.seq
}

// byDeadline is the order of deadlines.
func byDeadline(x, y *Ticket) bool {
	if c := x.claim.Deadline.Compare(y.claim.Deadline); c != 0 {
		return c < 0
	}
	return x.seq < y.seq
}

// fitter is the order of probes at a gate: who has time enough goes before all who have
// not, of whom the one with the most time goes; those of the shop that failed last go
// behind the others, then the retries made decide, then the turn.
func fitter(x, y *Ticket, now time.Time) bool {
	short, suspect := x.short(now), x.gate.suspects(x)
	switch {
	case short != y.short(now):
		return !short
	case short:
		return byDeadline(y, x)
	case suspect != y.gate.suspects(y):
		return !suspect
	case x.claim.Retries != y.claim.Retries:
		return x.claim.Retries < y.claim.Retries
	}
	return earlier(x, y)
}

// byPatience is the order in which max_wait is used up.
func byPatience(x, y *Ticket) bool {
	if x.limit != y.limit {
		return x.limit < y.limit
	}
	return x.seq < y.seq
}
