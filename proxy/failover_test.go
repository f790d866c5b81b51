package proxy

import (
	"testing"

	"retryproxy/attempt"
	"retryproxy/classify"
)

// Every kind that a platform can say, every fault and the statuses: an order goes on only
// where it is certain that nobody has executed it.
func TestHandsOn(t *testing.T) {
	statuses := func(list ...string) classify.StatusSet {
		set, err := classify.ParseStatuses(list)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	rules := classify.Rules{Retry: statuses("408", "425", "429", "5xx"), Permanent: statuses("501"), NotNow: statuses("408", "425", "429", "503")}
	said := func(k classify.Kind) classify.Outcome {
		return classify.Outcome{Phase: classify.PhaseDone, Status: 200, Said: classify.Said{Kind: k, Write: true}}
	}
	status := func(n int) classify.Outcome { return classify.Outcome{Phase: classify.PhaseDone, Status: n} }
	failed := func(p classify.Phase, f classify.Fault) classify.Outcome { return classify.Outcome{Phase: p, Fault: f} }
	for name, test := range map[string]struct {
		o    classify.Outcome
		want bool
	}{
		"success": {said(classify.Done), false}, "already_done": {said(classify.AlreadyDone), false},
		"processing": {said(classify.Processing), false}, "partly_done": {said(classify.PartlyDone), false},
		"throttled": {said(classify.Throttled), true}, "quota_exhausted": {said(classify.QuotaExhausted), true},
		"not_now": {said(classify.NotNow), true}, "doubt": {said(classify.Doubt), false},
		"auth_expired": {said(classify.AuthExpired), true}, "signature_refused": {said(classify.SignatureRefused), true},
		"risk_control": {said(classify.RiskControl), true}, "refused": {said(classify.Refused), true},
		"new_code": {said(classify.NewCode), false}, "unreadable": {said(classify.Unreadable), false},
		"400": {status(400), false}, "404": {status(404), false}, "409": {status(409), false}, "422": {status(422), false},
		"429": {status(429), true}, "500": {status(500), false}, "501": {status(501), false}, "502": {status(502), false}, "503": {status(503), true},
		"a 503 of a gateway that sent it on": {classify.Outcome{Phase: classify.PhaseDone, Status: 503, Forwarded: true}, false},
		"connect_refused":                    {failed(classify.PhaseConnect, classify.FaultRefused), true},
		"connect_timeout":                    {failed(classify.PhaseConnect, classify.FaultTimeout), true},
		"dns":                                {failed(classify.PhaseResolve, classify.FaultDNS), true},
		"a certificate that does not hold":   {failed(classify.PhaseTLS, classify.FaultVerify), true},
		"the egress refuses us":              {failed(classify.PhaseConnect, classify.FaultEgressAuth), true},
		"refused stream":                     {failed(classify.PhaseSent, classify.FaultRefusedStream), true},
		"reset after sending":                {failed(classify.PhaseSent, classify.FaultReset), false},
		"time-out":                           {failed(classify.PhaseSent, classify.FaultTimeout), false},
		"cut off":                            {failed(classify.PhaseBody, classify.FaultEOF), false},
		"malformed":                          {failed(classify.PhaseHeader, classify.FaultMalformed), false},
		"the destination is forbidden":       {failed(classify.PhaseNone, classify.FaultDenied), false},
	} {
		v := classify.Judge(&rules, &test.o)
		made := attempt.History{{Verdict: v}}
		for _, d := range []Decision{{Do: Stop, Reason: "attempts_exhausted"}, {Do: Stop, Reason: "fail_permanent"}, {Do: Park, Reason: "breaker_open"}} {
			if got := HandsOn(d, made, made.Executed()); got != test.want {
				t.Errorf("%s (%s, executed %s), then %s: HandsOn = %v, want %v", name, v.Reason, v.Executed, d.Reason, got, test.want)
			}
		}
		sure := attempt.History{{Verdict: classify.Verdict{Class: classify.Transient, Basis: classify.BasisNotSent}}}
		if got := HandsOn(Decision{Do: Stop, Reason: "attempts_exhausted"}, append(made, sure...), made.Executed()); got != test.want {
			t.Errorf("%s before an attempt that was not sent: HandsOn = %v, want %v", name, got, test.want)
		}
	}
}

func TestHandsOnOnlyWhatIsOver(t *testing.T) {
	made := attempt.History{{Verdict: classify.Verdict{Class: classify.Transient, Reason: "connect_refused", Basis: classify.BasisNotSent}}}
	for reason, want := range map[string]bool{
		"attempts_exhausted": true, "deadline_exceeded": true, "breaker_open": true, "quota_exhausted": true, "retry_after_too_long": true,
		"manual_review": false, "client_gone": false, "retry_limited": false, "retries_off": false, "shutting_down": false, "no_slot": false,
		"body_not_replayable": false, "signature_expired": false, "ok": false,
	} {
		for do, ends := range map[Do]bool{Stop: true, Park: true, Retry: false, Deliver: false} {
			if got := HandsOn(Decision{Do: do, Reason: reason}, made, classify.ExecutedNo); got != (want && ends) {
				t.Errorf("%s %s: HandsOn = %v", do, reason, got)
			}
		}
	}
	d := Decision{Do: Stop, Reason: "attempts_exhausted"}
	if HandsOn(d, made, classify.ExecutedMaybe) {
		t.Error("an attempt that was forgotten may have been executed, and the order goes on")
	}
	if !HandsOn(Decision{Do: Stop, Reason: "breaker_open"}, nil, classify.ExecutedNo) {
		t.Error("nothing was sent, and the order stays")
	}
}
