package presets

import (
	"time"

	"retryproxy/classify"
	"retryproxy/policy"
)

// Verdict is what an answer means, as people and programs see it.
type Verdict struct {
	Preset     string `json:"preset"`
	Confidence string `json:"confidence"`
	Policy     string `json:"policy"`
	Operation  string `json:"operation,omitempty"`
	Nature     string `json:"call"`
	Status     int    `json:"status"`
	Code       string `json:"code,omitempty"`
	SubCode    string `json:"sub_code,omitempty"`
	Message    string `json:"message,omitempty"`
	Is         string `json:"is"`
	Rule       string `json:"rule,omitempty"`
	Class      string `json:"class"`
	Reason     string `json:"reason"`
	Basis      string `json:"basis,omitempty"`
	Executed   string `json:"executed"`
	WaitMS     int64  `json:"wait_ms,omitempty"`
	Next       string `json:"next"`
}

// Judge says what an answer to a call means by the rules of a policy; most is as for Hear.
func (p *Preset) Judge(pol *policy.Policy, f *Facts, method string, a *Response, most int, now time.Time) *Verdict {
	said := p.Hear(f, a, most, now)
	rules := pol.Rules(method, f.Nature, false)
	v := classify.Judge(&rules, &classify.Outcome{Phase: classify.PhaseDone, Status: a.Status, Said: said})
	j := &Verdict{
		Preset: p.Name, Confidence: p.Confidence, Policy: pol.Name, Operation: f.Operation, Nature: f.Nature.String(), Status: a.Status,
		Code: said.Code, SubCode: said.Sub, Message: said.Message, Is: said.Kind.String(), Rule: said.Rule,
		Class: v.Class.String(), Reason: v.Reason, Basis: string(v.Basis), Executed: v.Executed.String(), WaitMS: said.Wait.Milliseconds(),
	}
	if said.Kind == classify.Unsaid {
		j.Is = "nothing: the status decides"
	}
	j.Next = nextOf(&v, f.Scarce)
	return j
}

// nextOf is what follows, in words.
func nextOf(v *classify.Verdict, scarce bool) string {
	switch v.Kind {
	case classify.RiskControl:
		return "risk_control: the shop is stopped there until a person resumes it"
	case classify.AuthExpired:
		return "auth_expired: the shop is paused there until a call comes with another token"
	case classify.QuotaExhausted:
		return "quota_exhausted: parked until the reset, or handed back with its date"
	case classify.SignatureRefused:
		return "signature_expired: signed again where we can, else handed back"
	case classify.Processing:
		return "passed on, and never kept as an answer"
	}
	switch {
	case v.Class == classify.Success:
		return "passed on; the answer to every repeat of its key"
	case v.Class == classify.Unknown:
		return "manual_review: not repeated, or asked about where the policy has a query"
	case v.Class == classify.Permanent:
		return "fail_permanent: passed on, not repeated"
	case scarce:
		return "passed on: the operation is scarce and never sent again by itself"
	}
	return "retried"
}
