package classify

import "time"

// Kind is what a platform says of a call in its answer, finer than a class.
type Kind uint8

// The kinds of docs/presets.md. Their names are verdict reasons.
const (
	Unsaid           Kind = iota // the status decides
	Done                         // it was done now
	AlreadyDone                  // it was done before
	Processing                   // accepted, the result comes later
	PartlyDone                   // a part of it failed
	Throttled                    // refused for seconds
	QuotaExhausted               // refused until a reset
	NotNow                       // the gateway did not take it
	Doubt                        // it may have been done
	AuthExpired                  // the token is dead
	SignatureRefused             // signature or clock
	RiskControl                  // captcha, ban, suspension
	Refused                      // the platform says no
	NewCode                      // no success, and no rule knows it
	Unreadable                   // it cannot be read
)

var kindNames = [...]string{
	"", "success", "already_done", "processing", "partly_done", "throttled", "quota_exhausted", "not_now", "doubt",
	"auth_expired", "signature_refused", "risk_control", "refused", "new_code", "unreadable",
}

// String returns the token of docs/presets.md.
func (k Kind) String() string { return kindNames[k] }

// ParseKind is the way back from String, for what a rule may say: new_code and
// unreadable are none of that.
func ParseKind(text string) (Kind, bool) {
	for k := Done; k < NewCode; k++ {
		if kindNames[k] == text {
			return k, true
		}
	}
	return Unsaid, false
}

// Said is what a platform says in an answer, as Book reads it.
type Said struct {
	Kind Kind
	Rule string // the name of the rule that says so; empty: none did
	// Code, Sub, Message and RequestID are the platform's own, trimmed and not too long.
	Code, Sub, Message, RequestID string
	Wait                          time.Duration // until it may be asked again; 0: it says nothing
	Scope                         string        // of QuotaExhausted: whose calls it is about
	Everywhere                    bool          // another supplier would say the same
	Write                         bool          // the call is not known to be a read
}

// judgeSaid judges an answer by what the platform says in it.
func judgeSaid(r *Rules, o *Outcome) Verdict {
	v := Verdict{Kind: o.Said.Kind, Reason: o.Said.Kind.String(), Alive: true}
	switch v.Kind {
	case Done:
		v.Class, v.Executed, v.Reason = Success, ExecutedYes, StatusReason(o.Status)
	case AlreadyDone:
		v.Class, v.Executed = Success, ExecutedYes
	case Processing: // taken, and nobody knows yet whether it comes to anything
		v.Class, v.Executed = Success, ExecutedMaybe
	case PartlyDone:
		v.Class, v.Executed = Permanent, ExecutedYes
	case Throttled, NotNow:
		v.Class, v.Basis = Transient, BasisRefused
	case QuotaExhausted, AuthExpired, SignatureRefused, RiskControl, Refused:
		v.Class = Permanent
	case NewCode:
		if !o.Said.Write { // a read that fails is passed on: a repeat hardly mends what nobody knows
			v.Class, v.Executed = Permanent, ExecutedMaybe
			return v
		}
		fallthrough
	default:
		v.Class, v.Basis = repeatable(r)
		v.Executed = ExecutedMaybe
	}
	// What the platform decides says that it works; a gateway that takes nothing may
	// be as ill as its status says.
	if v.Kind == NotNow || v.Kind == Doubt || v.Kind == Unreadable {
		v.HostFault = o.Status >= 500 && retried(r, o.Status)
		v.Alive = !v.HostFault
	}
	return v
}
