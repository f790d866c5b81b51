package classify

// statusReasons holds status_000 to status_999 one after the other, so that
// naming one allocates nothing.
var statusReasons = func() string {
	text := make([]byte, 0, 1000*len("status_000"))
	for n := range 1000 {
		text = append(text, "status_"...)
		text = append(text, byte('0'+n/100), byte('0'+n/10%10), byte('0'+n%10))
	}
	return string(text)
}()

// StatusReason is the verdict reason of a status: status_503. What is no status
// at all is malformed.
func StatusReason(status int) string {
	if status < 0 || status > 999 {
		return "malformed"
	}
	at := status * len("status_000")
	return statusReasons[at : at+len("status_000")]
}

// fixedReasons are the faults whose reason does not depend on the phase.
var fixedReasons = [...]string{
	FaultDNS:           "dns_failed",
	FaultNoSuchHost:    "dns_no_such_host",
	FaultVerify:        "tls_verify",
	FaultMalformed:     "malformed",
	FaultRefusedStream: "refused_stream",
	FaultGoaway:        "goaway",
	FaultLocal:         "local_resource",
	FaultCancelled:     "cancelled",
	FaultDenied:        "destination_denied",
	FaultLoop:          "loop",
	FaultBadTarget:     "bad_target",
	FaultBody:          "body_failed",

	FaultEgressUnreachable: "egress_unreachable",
	FaultEgressTimeout:     "egress_timeout",
	FaultEgressAuth:        "egress_auth",
	FaultEgressDenied:      "egress_denied",
	FaultEgressFailed:      "egress_failed",
}

// faultReason names what ended an attempt, by fault and phase.
func faultReason(o *Outcome) string {
	if int(o.Fault) < len(fixedReasons) && fixedReasons[o.Fault] != "" {
		return fixedReasons[o.Fault]
	}
	switch o.Phase {
	case PhaseResolve:
		return "dns_failed"
	case PhaseNone, PhaseConnect:
		if o.Fault == FaultTimeout {
			return "connect_timeout"
		}
		return "connect_refused"
	case PhaseTLS:
		return "tls_handshake"
	case PhaseReady:
		return "reset_before_send"
	case PhaseBody, PhaseDone:
		return "truncated"
	}
	return sentReason(o.Fault)
}

// sentReason names a fault between the first byte sent and the end of the
// answer's header.
func sentReason(f Fault) string {
	switch f {
	case FaultTimeout:
		return "header_timeout"
	case FaultEOF:
		return "eof_after_send"
	}
	return "reset_after_send"
}
