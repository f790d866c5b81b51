package sandbox

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a way in which a platform fails.
type Kind string

// The faults. Those marked with * come with and without the request having been
// executed; the others are never executed, but for Duplicate and Fails.
const (
	None        Kind = ""
	Down        Kind = "down"         // the listener is closed for a while: connections are refused
	Reset       Kind = "reset"        // * RST instead of an answer; on a connection: before anything is read
	Cut         Kind = "cut"          // * half of the answer, then the end of the connection
	HTML        Kind = "html"         // * a page with status 200
	BadGateway  Kind = "502"          // *
	Unavailable Kind = "503"          // *
	TimedOut    Kind = "504"          // *
	Hang        Kind = "hang"         // * silence; the answer comes when it is over
	Garbage     Kind = "garbage"      // * a torn XML document in GBK with status 200
	NewCode     Kind = "new_code"     // * a code that no document has
	SystemError Kind = "system_error" // * the code that the documents call doubtful
	Throttle    Kind = "throttle"
	Quota       Kind = "quota"
	Token       Kind = "token"       // the shop's token is refused for a while
	Maintenance Kind = "maintenance" // everything is refused for a while
	Signature   Kind = "signature"
	Clock       Kind = "clock"
	Duplicate   Kind = "duplicate" // executed, yet answered as if it had been before
	Fails       Kind = "fails"     // an accepted order fails in the end, and its charge comes back
)

// both are the kinds that come executed as well.
var both = []Kind{Reset, Cut, HTML, BadGateway, Unavailable, TimedOut, Hang, Garbage, NewCode, SystemError}

// Fault is what a script has in mind for a request.
type Fault struct {
	Kind     Kind
	Executed bool          // the request is checked and done first, as without a fault
	For      time.Duration // how long Down, Hang, Token and Maintenance last, and how long an order takes; 0: the usual
}

// String is the kind, with "/executed" where that is so.
func (f Fault) String() string {
	if f.Executed {
		return string(f.Kind) + "/executed"
	}
	return string(f.Kind)
}

// Faults are all that can happen to a request.
func Faults() []Fault {
	all := []Fault{
		{Kind: Down},
		{Kind: Throttle},
		{Kind: Quota},
		{Kind: Token},
		{Kind: Maintenance},
		{Kind: Signature},
		{Kind: Clock},
		{Kind: Duplicate, Executed: true},
	}
	for _, k := range both {
		all = append(all, Fault{Kind: k}, Fault{Kind: k, Executed: true})
	}
	return all
}

// ParseFaults reads names as String gives them, separated by commas; "all" is
// all of them.
func ParseFaults(names string) ([]Fault, error) {
	if names == "all" {
		return Faults(), nil
	}
	var out []Fault
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(Faults(), func(f Fault) bool { return f.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("sandbox: there is no fault %q, only %v", name, Faults())
		}
		out = append(out, Faults()[i])
	}
	return out, nil
}

// Phase is when a script is asked.
type Phase string

// The phases.
const (
	Connecting Phase = "connecting" // a connection was accepted: Down and Reset
	Requesting Phase = "requesting" // a request was read
	Working    Phase = "working"    // an order was accepted: Fails, and how long it takes
)

// Point is what a script is asked about. A fault hangs on the order and the number
// alone, so that it is the same however requests of different orders are interleaved.
type Point struct {
	Platform, Operation, Order string
	Phase                      Phase
	Number                     int // from 1: connections of the platform, else requests with this operation and order
}

// Script decides about each point; it must be a pure function. Nil: no faults.
type Script func(Point) Fault

// Mix is how often what happens.
type Mix struct {
	Rate        float64       // of requests that meet one of Faults; of connections as many as draw Reset
	Faults      []Fault       // each as likely as the others
	Most        int           // requests with the same operation and order that may meet one; 0: any number
	Fails       float64       // of accepted orders
	Least, Last time.Duration // how long an order takes: evenly between them
}

// Dice is the script that the seed gives.
func Dice(seed uint64, m Mix) Script {
	return func(p Point) Fault {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s\n%s\n%s\n%s\n%d", p.Platform, p.Operation, p.Order, p.Phase, p.Number)
		dice := rand.New(rand.NewPCG(seed, h.Sum64()))
		switch f := m.pick(dice); {
		case p.Phase == Working:
			return m.work(dice)
		case p.Phase == Connecting && f != (Fault{Kind: Reset}):
			return Fault{}
		case p.Phase == Requesting && m.Most > 0 && p.Number > m.Most:
			return Fault{}
		default:
			return f
		}
	}
}

func (m Mix) pick(dice *rand.Rand) Fault {
	if dice.Float64() >= m.Rate || len(m.Faults) == 0 {
		return Fault{}
	}
	return m.Faults[dice.IntN(len(m.Faults))]
}

func (m Mix) work(dice *rand.Rand) Fault {
	f := Fault{For: m.Least}
	if m.Last > m.Least {
		f.For += time.Duration(dice.Int64N(int64(m.Last - m.Least)))
	}
	if dice.Float64() < m.Fails {
		f.Kind = Fails
	}
	return f
}
