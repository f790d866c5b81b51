// Package classify answers one question: what does the outcome of an attempt mean?
//
// It judges by phase (what was really sent and received), never by error text.
package classify

import "time"

// Class says whether a repeat can mend an outcome.
type Class uint8

// The four classes of the contract.
const (
	Success   Class = iota + 1 // the answer is final and good
	Transient                  // a repeat may mend it and is safe
	Permanent                  // a repeat cannot mend it
	Unknown                    // the upstream may have acted; a repeat is not safe
)

// String returns the token used in headers, logs and metrics.
func (c Class) String() string {
	return [...]string{"none", "success", "transient", "permanent", "unknown"}[c]
}

// Basis says why repeating an attempt is safe.
type Basis string

// The bases; empty means that nothing makes a repeat safe.
const (
	BasisMethod  Basis = "method"   // the method is one of the policy's safe methods
	BasisKey     Basis = "key"      // the call is keyed and its key goes upstream
	BasisNotSent Basis = "not_sent" // provably nothing reached the upstream
	BasisRefused Basis = "refused"  // the upstream said that it did not act
	BasisRule    Basis = "rule"     // the policy says always
	BasisQuery   Basis = "query"    // asked, the upstream said that it did not act
)

// Executed says whether the upstream may have acted. Larger is worse.
type Executed uint8

// The values of X-Retry-Executed.
const (
	ExecutedNo Executed = iota
	ExecutedMaybe
	ExecutedYes
)

// String returns the token of X-Retry-Executed.
func (e Executed) String() string { return [...]string{"no", "maybe", "yes"}[e] }

// Phase is how far an attempt provably came.
type Phase uint8

// Phases in the order in which an attempt passes them.
const (
	PhaseNone    Phase = iota // nothing happened yet: target, resources, permission
	PhaseResolve              // name resolution
	PhaseConnect              // TCP connect
	PhaseTLS                  // TLS handshake
	PhaseReady                // connected, no byte of the request written
	PhaseSent                 // at least one byte of the request written, no byte of an answer
	PhaseHeader               // bytes of an answer, its header incomplete
	PhaseBody                 // header complete, body incomplete
	PhaseDone                 // the answer is complete, or as far as it was needed
)

// String returns the token used in traces.
func (p Phase) String() string {
	return [...]string{"none", "resolve", "connect", "tls", "ready", "sent", "header", "body", "done"}[p]
}

// Fault is what ended an attempt short of a complete answer.
type Fault uint8

// Faults, told apart by type and phase, never by text.
const (
	FaultNone          Fault = iota
	FaultDNS                 // resolver failed or timed out
	FaultNoSuchHost          // authoritative: the name does not exist
	FaultRefused             // connection refused or host unreachable
	FaultTimeout             // the time of the phase ran out
	FaultTLS                 // handshake failed for another reason than the certificate
	FaultVerify              // the certificate does not hold
	FaultReset               // connection reset, or a write failed
	FaultEOF                 // connection closed without an answer
	FaultMalformed           // framing conflict, junk, header over the limit
	FaultRefusedStream       // HTTP/2 REFUSED_STREAM
	FaultGoaway              // HTTP/2 GOAWAY below the stream
	FaultLocal               // out of descriptors, ports or memory here
	FaultCancelled           // we gave up: the client left or we stop
	FaultDenied              // the destination is forbidden
	FaultLoop                // the destination is ourselves
	FaultBadTarget           // the target makes no sense (port, name)
	FaultBody                // the client's body could not be read

	// Faults of an egress proxy, before a byte of the request was sent.
	FaultEgressUnreachable // it cannot be reached: name, connection or its own TLS
	FaultEgressTimeout     // no way through it was open in time
	FaultEgressAuth        // it does not take our user and password
	FaultEgressDenied      // its rules forbid the destination
	FaultEgressFailed      // it says that it cannot reach the destination, or breaks off
)

// Egress says that the fault lies with an egress proxy, not with the host.
func (f Fault) Egress() bool { return f >= FaultEgressUnreachable }

// Outcome is what is known about one attempt: the input of Judge.
type Outcome struct {
	Phase  Phase
	Fault  Fault
	Status int // status code once a header came; 0 before
	// Forwarded: the answer itself says that the request had been sent on
	// (Proxy-Status with an error after sending, Envoy's reset text), so its
	// 503 or 408 is no proof that nothing happened.
	Forwarded bool
	// Said is what the platform says in a complete answer, where a preset reads it.
	Said Said
	// Suspect: a 2xx whose JSON says failure by the common signs, where no preset does.
	Suspect bool
	// EarlyData: the client itself sent Early-Data, so a 425 is for it.
	EarlyData bool
	// Detail is a short text for people: the error with its address. Never judged.
	Detail string
}

// Verdict is what an attempt means.
type Verdict struct {
	Class    Class
	Kind     Kind   // what the platform said; Unsaid: the status or the fault decided
	Reason   string // a verdict reason of the contract, such as "status_503"
	Basis    Basis
	Executed Executed
	// HostFault: counts against the host's breaker.
	// Alive: a complete answer that proves the host alive.
	// EgressFault: counts against the egress proxy's breaker instead.
	HostFault, Alive, EgressFault bool
	// RetryAfter is the server's wish, 0 when it has none (or is not to be honoured).
	RetryAfter time.Duration
}

// Rules are the parts of a policy that judging needs.
type Rules struct {
	Retry     StatusSet // statuses a repeat may mend
	Permanent StatusSet // of these, the ones it cannot
	NotNow    StatusSet // the server says not now: nothing was done
	OnUnknown string    // "manual_review" or "retry"
	// Safe is why repeating the call is safe before its outcome is known:
	// BasisMethod, BasisKey, BasisRule or empty.
	Safe Basis
	// SecondNoSuchHost: this call already met NXDOMAIN once.
	SecondNoSuchHost bool
}

// StatusSet is a set of status codes 0..1023.
type StatusSet [16]uint64

// Has says whether code is in the set.
func (s *StatusSet) Has(code int) bool {
	return code >= 0 && code < 1024 && s[code>>6]&(1<<(code&63)) != 0
}

// Add puts code into the set.
func (s *StatusSet) Add(code int) { s[code>>6&15] |= 1 << (code & 63) }
