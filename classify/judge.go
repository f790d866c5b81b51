package classify

// Judge says what an outcome means for a call that lives by r. It is a pure
// table: phase and fault decide, or the status where an answer is complete.
func Judge(r *Rules, o *Outcome) Verdict {
	switch {
	case o.Fault == FaultNone && o.Said.Kind != Unsaid:
		return judgeSaid(r, o)
	case o.Fault == FaultNone:
		return judgeAnswer(r, o)
	}
	v := Verdict{Reason: faultReason(o), Executed: executedBy(o), HostFault: blamesHost(o.Fault), EgressFault: o.Fault.Egress()}
	switch o.Fault {
	case FaultVerify, FaultDenied, FaultLoop, FaultBadTarget:
		v.Class, v.Executed = Permanent, ExecutedNo
	case FaultCancelled, FaultBody:
		v.Class = endedByClient(v.Executed)
	case FaultMalformed:
		v.Class = Unknown // an upstream that breaks the protocol is not asked again
	case FaultRefusedStream, FaultGoaway:
		v.Class, v.Basis, v.Executed = Transient, BasisRefused, ExecutedNo
	default:
		judgeTransport(&v, r, o)
	}
	return v
}

// judgeTransport fills in the class of a failure on the way to a complete answer.
func judgeTransport(v *Verdict, r *Rules, o *Outcome) {
	switch {
	case o.Fault == FaultNoSuchHost && r.SecondNoSuchHost:
		v.Class = Permanent
	case !sent(o):
		v.Class, v.Basis = Transient, BasisNotSent
	case refuses(r, o):
		// The header is complete: a cut body does not take back its "not now".
		v.Class, v.Basis, v.Executed = Transient, BasisRefused, ExecutedNo
	default:
		v.Class, v.Basis = repeatable(r)
	}
}

// judgeAnswer judges a complete answer by its status.
func judgeAnswer(r *Rules, o *Outcome) Verdict {
	v := Verdict{Reason: StatusReason(o.Status), Alive: true}
	switch {
	case o.Status < 100 || o.Status > 599:
		return Verdict{Class: Unknown, Reason: "malformed", Executed: ExecutedMaybe, HostFault: true}
	case o.Status < 400:
		v.Class, v.Executed = Success, ExecutedYes
		if o.Suspect {
			v.Reason, v.Executed = "suspect", ExecutedMaybe
		}
	case o.Status == 425 && o.EarlyData: // for the client itself (RFC 8470 section 5.2)
		v.Class = Permanent
	case !retried(r, o.Status):
		v.Class, v.Executed = Permanent, executedByStatus(o)
	case refuses(r, o):
		v.Class, v.Basis = Transient, BasisRefused
	default:
		v.Class, v.Basis = repeatable(r)
		v.Executed = executedByStatus(o)
		if v.Class == Unknown {
			v.Executed = ExecutedMaybe
		}
	}
	// A plain 503 and one with Retry-After count alike: either way the host
	// cannot serve now, and holding calls back is what lets it recover.
	v.HostFault = o.Status >= 500 && retried(r, o.Status)
	v.Alive = !v.HostFault
	return v
}

// repeatable is the class of an outcome after which the upstream may have acted.
func repeatable(r *Rules) (Class, Basis) {
	switch {
	case r.Safe != "":
		return Transient, r.Safe
	case r.OnUnknown == "retry":
		return Transient, BasisRule
	}
	return Unknown, ""
}

// endedByClient is the class of an attempt that we broke off. It is never
// repeated, and only one that was sent leaves a doubt.
func endedByClient(e Executed) Class {
	if e == ExecutedNo {
		return Permanent
	}
	return Unknown
}

// retried says whether a repeat may mend the status.
func retried(r *Rules, status int) bool {
	return r.Retry.Has(status) && !r.Permanent.Has(status)
}

// refuses says whether the status proves that nothing was done. A 429 or 425 is
// always the server's own word; any other one may be a gateway's.
func refuses(r *Rules, o *Outcome) bool {
	ownWord := !o.Forwarded || o.Status == 429 || o.Status == 425
	return retried(r, o.Status) && r.NotNow.Has(o.Status) && ownWord
}

// sent says whether a byte of the request may have reached the upstream.
func sent(o *Outcome) bool { return o.Phase >= PhaseSent }

func executedBy(o *Outcome) Executed {
	if sent(o) {
		return ExecutedMaybe
	}
	return ExecutedNo
}

// executedByStatus says what a complete failure answer leaves open: client
// errors and refused versions, methods or networks were not acted on.
func executedByStatus(o *Outcome) Executed {
	switch o.Status {
	case 501, 505, 506, 508, 510, 511:
		return ExecutedNo
	}
	if o.Status >= 500 || o.Forwarded {
		return ExecutedMaybe
	}
	return ExecutedNo
}

// blamesHost says whether the fault counts against the host's breaker. Our own
// faults do not, nor do those that waiting cannot mend (a wrong name, a wrong
// certificate) and the orderly end of a connection.
func blamesHost(f Fault) bool {
	if f.Egress() {
		return false
	}
	switch f {
	case FaultLocal, FaultCancelled, FaultDenied, FaultLoop, FaultBadTarget, FaultBody,
		FaultVerify, FaultNoSuchHost, FaultGoaway:
		return false
	}
	return true
}
