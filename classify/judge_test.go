package classify

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// defaults are the rules of the default policy with the given basis.
func defaults(t testing.TB, safe Basis) *Rules {
	t.Helper()
	parse := func(list ...string) StatusSet {
		set, err := ParseStatuses(list)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	return &Rules{
		Retry:     parse("408", "425", "429", "5xx"),
		Permanent: parse("501", "505", "506", "508", "510", "511"),
		NotNow:    parse("408", "425", "429", "503"),
		OnUnknown: "manual_review",
		Safe:      safe,
	}
}

// show writes a verdict as one line: class, reason, basis, executed, and what it
// says about the host.
func show(v Verdict) string {
	words := []string{v.Class.String(), v.Reason, string(v.Basis), v.Executed.String()}
	if v.Basis == "" {
		words[2] = "-"
	}
	if v.HostFault {
		words = append(words, "fault")
	}
	if v.EgressFault {
		words = append(words, "egress")
	}
	if v.Alive {
		words = append(words, "alive")
	}
	return strings.Join(words, " ")
}

func TestJudge(t *testing.T) {
	answer := func(status int) Outcome { return Outcome{Phase: PhaseDone, Status: status} }
	fault := func(p Phase, f Fault) Outcome { return Outcome{Phase: p, Fault: f} }
	cut := func(status int, f Fault) Outcome { return Outcome{Phase: PhaseBody, Fault: f, Status: status} }
	forwarded := func(status int) Outcome { return Outcome{Phase: PhaseDone, Status: status, Forwarded: true} }
	const same = "same"
	tests := []struct {
		name   string
		o      Outcome
		safe   string
		unsafe string
	}{
		{"DNS failed", fault(PhaseResolve, FaultDNS), "transient dns_failed not_sent no fault", same},
		{"DNS timed out", fault(PhaseResolve, FaultTimeout), "transient dns_failed not_sent no fault", same},
		{"no such host, first time", fault(PhaseResolve, FaultNoSuchHost), "transient dns_no_such_host not_sent no", same},
		{"connect refused", fault(PhaseConnect, FaultRefused), "transient connect_refused not_sent no fault", same},
		{"reset while connecting", fault(PhaseConnect, FaultReset), "transient connect_refused not_sent no fault", same},
		{"connect timed out", fault(PhaseConnect, FaultTimeout), "transient connect_timeout not_sent no fault", same},
		{"timed out before anything", fault(PhaseNone, FaultTimeout), "transient connect_timeout not_sent no fault", same},
		{"TLS handshake", fault(PhaseTLS, FaultTLS), "transient tls_handshake not_sent no fault", same},
		{"TLS handshake timed out", fault(PhaseTLS, FaultTimeout), "transient tls_handshake not_sent no fault", same},
		{"reset in the TLS handshake", fault(PhaseTLS, FaultReset), "transient tls_handshake not_sent no fault", same},
		{"closed in the TLS handshake", fault(PhaseTLS, FaultEOF), "transient tls_handshake not_sent no fault", same},
		{"write error before the first byte", fault(PhaseReady, FaultReset), "transient reset_before_send not_sent no fault", same},
		{"closed before the first byte", fault(PhaseReady, FaultEOF), "transient reset_before_send not_sent no fault", same},
		{"egress cannot be reached", fault(PhaseConnect, FaultEgressUnreachable), "transient egress_unreachable not_sent no egress", same},
		{"egress takes too long", fault(PhaseConnect, FaultEgressTimeout), "transient egress_timeout not_sent no egress", same},
		{"407 of the egress", fault(PhaseConnect, FaultEgressAuth), "transient egress_auth not_sent no egress", same},
		{"403 of the egress", fault(PhaseConnect, FaultEgressDenied), "transient egress_denied not_sent no egress", same},
		{"502 of the egress", fault(PhaseConnect, FaultEgressFailed), "transient egress_failed not_sent no egress", same},
		{"egress lost in the TLS handshake", fault(PhaseTLS, FaultEgressFailed), "transient egress_failed not_sent no egress", same},
		{"REFUSED_STREAM", fault(PhaseSent, FaultRefusedStream), "transient refused_stream refused no fault", same},
		{"H2-01 GOAWAY below the stream", fault(PhaseSent, FaultGoaway), "transient goaway refused no", same},

		{"408", answer(408), "transient status_408 refused no alive", same},
		{"425", answer(425), "transient status_425 refused no alive", same},
		{"CB-06 429", answer(429), "transient status_429 refused no alive", same},
		{"503", answer(503), "transient status_503 refused no fault", same},
		{"503 that was sent on", forwarded(503), "transient status_503 method maybe fault", "unknown status_503 - maybe fault"},
		{"408 that was sent on", forwarded(408), "transient status_408 method maybe alive", "unknown status_408 - maybe alive"},
		{"429 that was sent on", forwarded(429), "transient status_429 refused no alive", same},

		{"500", answer(500), "transient status_500 method maybe fault", "unknown status_500 - maybe fault"},
		{"DE-05 502", answer(502), "transient status_502 method maybe fault", "unknown status_502 - maybe fault"},
		{"DE-05 504", answer(504), "transient status_504 method maybe fault", "unknown status_504 - maybe fault"},
		{"520", answer(520), "transient status_520 method maybe fault", "unknown status_520 - maybe fault"},
		{"H2-03 reset after sending", fault(PhaseSent, FaultReset), "transient reset_after_send method maybe fault", "unknown reset_after_send - maybe fault"},
		{"TLS alert after sending", fault(PhaseSent, FaultTLS), "transient reset_after_send method maybe fault", "unknown reset_after_send - maybe fault"},
		{"DE-01 closed after sending", fault(PhaseSent, FaultEOF), "transient eof_after_send method maybe fault", "unknown eof_after_send - maybe fault"},
		{"closed within the header", fault(PhaseHeader, FaultEOF), "transient eof_after_send method maybe fault", "unknown eof_after_send - maybe fault"},
		{"DE-03 header timed out", fault(PhaseSent, FaultTimeout), "transient header_timeout method maybe fault", "unknown header_timeout - maybe fault"},
		{"header timed out half way", fault(PhaseHeader, FaultTimeout), "transient header_timeout method maybe fault", "unknown header_timeout - maybe fault"},
		{"200 cut off", cut(200, FaultEOF), "transient truncated method maybe fault", "unknown truncated - maybe fault"},
		{"200 reset", cut(200, FaultReset), "transient truncated method maybe fault", "unknown truncated - maybe fault"},
		{"200 that stands still", cut(200, FaultTimeout), "transient truncated method maybe fault", "unknown truncated - maybe fault"},
		{"500 cut off", cut(500, FaultEOF), "transient truncated method maybe fault", "unknown truncated - maybe fault"},
		{"503 cut off", cut(503, FaultEOF), "transient truncated refused no fault", same},
		{"out of memory after sending", fault(PhaseSent, FaultLocal), "transient local_resource method maybe", "unknown local_resource - maybe"},

		{"RI-11 malformed header", fault(PhaseHeader, FaultMalformed), "unknown malformed - maybe fault", same},
		{"malformed chunk", cut(200, FaultMalformed), "unknown malformed - maybe fault", same},
		{"no status at all", answer(0), "unknown malformed - maybe fault", same},
		{"status out of range", answer(1000), "unknown malformed - maybe fault", same},

		{"BO-13 certificate", fault(PhaseTLS, FaultVerify), "permanent tls_verify - no", same},
		{"bad target", fault(PhaseNone, FaultBadTarget), "permanent bad_target - no", same},
		{"forbidden destination", fault(PhaseResolve, FaultDenied), "permanent destination_denied - no", same},
		{"ourselves", fault(PhaseNone, FaultLoop), "permanent loop - no", same},

		{"400", answer(400), "permanent status_400 - no alive", same},
		{"401", answer(401), "permanent status_401 - no alive", same},
		{"404", answer(404), "permanent status_404 - no alive", same},
		{"409", answer(409), "permanent status_409 - no alive", same},
		{"422", answer(422), "permanent status_422 - no alive", same},
		{"501", answer(501), "permanent status_501 - no alive", same},
		{"505", answer(505), "permanent status_505 - no alive", same},
		{"511", answer(511), "permanent status_511 - no alive", same},

		{"200", answer(200), "success status_200 - yes alive", same},
		{"206", answer(206), "success status_206 - yes alive", same},
		{"302", answer(302), "success status_302 - yes alive", same},
		{"101", answer(101), "success status_101 - yes alive", same},
		{"suspect 200", Outcome{Phase: PhaseDone, Status: 200, Suspect: true}, "success suspect - maybe alive", same},
		{"425 for the client's early data", Outcome{Phase: PhaseDone, Status: 425, EarlyData: true}, "permanent status_425 - no alive", same},

		{"RS-04 out of descriptors", fault(PhaseConnect, FaultLocal), "transient local_resource not_sent no", same},
		{"given up before sending", fault(PhaseConnect, FaultCancelled), "permanent cancelled - no", same},
		{"given up after sending", fault(PhaseSent, FaultCancelled), "unknown cancelled - maybe", same},
		{"client's body failed before sending", fault(PhaseReady, FaultBody), "permanent body_failed - no", same},
		{"client's body failed half way", fault(PhaseSent, FaultBody), "unknown body_failed - maybe", same},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.unsafe == same {
				tt.unsafe = tt.safe
			}
			for basis, want := range map[Basis]string{BasisMethod: tt.safe, "": tt.unsafe} {
				if got := show(Judge(defaults(t, basis), &tt.o)); got != want {
					t.Errorf("Judge(safe %q, %+v) = %s, want %s", basis, tt.o, got, want)
				}
			}
		})
	}
}

func TestJudgeRules(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Rules)
		o      Outcome
		want   string
	}{
		{"keyed", func(r *Rules) { r.Safe = BasisKey }, Outcome{Phase: PhaseDone, Status: 500}, "transient status_500 key maybe fault"},
		{"safe: always", func(r *Rules) { r.Safe = BasisRule }, Outcome{Phase: PhaseSent, Fault: FaultEOF}, "transient eof_after_send rule maybe fault"},
		{"on_unknown: retry", func(r *Rules) { r.OnUnknown = "retry" }, Outcome{Phase: PhaseDone, Status: 502}, "transient status_502 rule maybe fault"},
		{"on_unknown: retry, malformed", func(r *Rules) { r.OnUnknown = "retry" }, Outcome{Phase: PhaseHeader, Fault: FaultMalformed}, "unknown malformed - maybe fault"},
		{"on_unknown: retry, cancelled", func(r *Rules) { r.OnUnknown = "retry" }, Outcome{Phase: PhaseSent, Fault: FaultCancelled}, "unknown cancelled - maybe"},
		{"second NXDOMAIN", func(r *Rules) { r.SecondNoSuchHost = true }, Outcome{Phase: PhaseResolve, Fault: FaultNoSuchHost}, "permanent dns_no_such_host - no"},
		{"another DNS fault after NXDOMAIN", func(r *Rules) { r.SecondNoSuchHost = true }, Outcome{Phase: PhaseResolve, Fault: FaultDNS}, "transient dns_failed not_sent no fault"},
		{"503 not in not_now", func(r *Rules) { r.NotNow = StatusSet{} }, Outcome{Phase: PhaseDone, Status: 503}, "unknown status_503 - maybe fault"},
		{"nothing is retried", func(r *Rules) { r.Retry = StatusSet{} }, Outcome{Phase: PhaseDone, Status: 500}, "permanent status_500 - maybe alive"},
		{"503 is permanent", func(r *Rules) { r.Permanent.Add(503) }, Outcome{Phase: PhaseDone, Status: 503}, "permanent status_503 - maybe alive"},
		{"404 is retried, unsafe", func(r *Rules) { r.Retry.Add(404) }, Outcome{Phase: PhaseDone, Status: 404}, "unknown status_404 - maybe alive"},
		{"404 is retried, safe", func(r *Rules) { r.Retry.Add(404); r.Safe = BasisMethod }, Outcome{Phase: PhaseDone, Status: 404}, "transient status_404 method no alive"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := defaults(t, "")
			tt.change(r)
			if got := show(Judge(r, &tt.o)); got != tt.want {
				t.Errorf("Judge(%+v) = %s, want %s", tt.o, got, tt.want)
			}
		})
	}
}

// Whatever the outcome, nothing that may have been executed is repeated
// without a reason, and no host is at once alive and at fault.
func TestJudgeHoldsForEveryOutcome(t *testing.T) {
	r := defaults(t, "")
	for phase := PhaseNone; phase <= PhaseDone; phase++ {
		for f := FaultNone; f <= FaultBody; f++ {
			for _, status := range []int{0, 101, 200, 302, 404, 408, 429, 500, 501, 503} {
				for _, forwarded := range []bool{false, true} {
					o := Outcome{Phase: phase, Fault: f, Status: status, Forwarded: forwarded}
					v := Judge(r, &o)
					if v.Class == 0 || v.Reason == "" {
						t.Errorf("Judge(%+v) = %+v: no class or reason", o, v)
					}
					if (v.Class == Transient) != (v.Basis != "") {
						t.Errorf("Judge(%+v) = %s: a basis belongs to transient alone", o, show(v))
					}
					if v.Class == Transient && v.Executed != ExecutedNo {
						t.Errorf("Judge(%+v) = %s: repeated without a basis that covers it", o, show(v))
					}
					if v.HostFault && v.Alive {
						t.Errorf("Judge(%+v) = %s: alive and at fault", o, show(v))
					}
				}
			}
		}
	}
}

func TestParseStatuses(t *testing.T) {
	set, err := ParseStatuses([]string{"408", "5xx", "4XX"})
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[int]bool{399: false, 400: true, 499: true, 500: true, 599: true, 600: false, -1: false, 5000: false} {
		if got := set.Has(code); got != want {
			t.Errorf("Has(%d) = %v, want %v", code, got, want)
		}
	}
	for _, bad := range []string{"", "99", "600", "6xx", "0xx", "xx", "55xx", "5x", "abc", "+50", "0500", " 500"} {
		if _, err := ParseStatuses([]string{"500", bad}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("ParseStatuses(%q) = %v, want an error that names it", bad, err)
		}
	}
}

func TestStatusReason(t *testing.T) {
	for status, want := range map[int]string{0: "status_000", 7: "status_007", 503: "status_503", 999: "status_999", 1000: "malformed", -1: "malformed"} {
		if diff := cmp.Diff(want, StatusReason(status)); diff != "" {
			t.Errorf("StatusReason(%d) (-want +got):\n%s", status, diff)
		}
	}
}

func TestJudgeAllocatesNothing(t *testing.T) {
	r, o := defaults(t, BasisMethod), Outcome{Phase: PhaseDone, Status: 503}
	if n := testing.AllocsPerRun(100, func() { Judge(r, &o) }); n != 0 {
		t.Errorf("Judge allocates %v times, want 0", n)
	}
}

func BenchmarkJudge(b *testing.B) {
	r, o := defaults(b, BasisMethod), Outcome{Phase: PhaseDone, Status: 200}
	b.ReportAllocs()
	for b.Loop() {
		Judge(r, &o)
	}
}
