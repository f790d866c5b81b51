package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"retryproxy/classify"
	"retryproxy/document"
	"retryproxy/policy"
	"retryproxy/presets"
)

// answerFlags are those of explain about an answer that came.
type answerFlags struct {
	file, preset *string
	status       *int
}

func (f flags) answer() answerFlags {
	return answerFlags{
		file:   f.String("response", "", "a `file` with an answer (its body, or all that curl -i prints; - is standard input): say what that means, and by which rule"),
		preset: f.String("preset", "", "with -response: judge by the preset of this `name`, instead of that of the host"),
		status: f.Int("status", 200, "with -response: the `status` of the answer, where the file has only its body"),
	}
}

// judged is what an answer means.
type judged struct {
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

// judge says what an answer to q means by a configuration.
func (e Env) judge(config string, q *Question, a answerFlags) (*judged, error) {
	cfg, err := e.load(config)
	if err != nil {
		return nil, err
	}
	set, err := presets.Load(cfg.Presets.Dir)
	if err != nil {
		return nil, &usageError{err}
	}
	policies, err := cfg.Policies()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(q.URL)
	if err != nil {
		return nil, &usageError{err}
	}
	attrs := policy.Attrs{Method: q.Method, Host: u.Hostname(), Path: u.EscapedPath(), Shop: q.Fields.Get(cfg.Headers.Shop), ShopTier: q.Fields.Get(cfg.Headers.ShopTier), TaskType: q.Fields.Get(cfg.Headers.TaskType)}
	p := presetFor(set, policies.Match(&attrs, time.Now()), *a.preset, &attrs)
	if p == nil {
		return nil, &usageError{errors.New("no preset is for this call: name one with -preset; retryproxy preset ls lists them")}
	}
	answer, err := e.readAnswer(*a.file)
	if err != nil {
		return nil, &usageError{err}
	}
	if answer.Status == 0 {
		answer.Status = *a.status
	}
	facts := p.Facts(&document.Request{Method: q.Method, Target: u.RequestURI(), Fields: q.Fields, Body: q.Body})
	attrs.Operation = facts.Operation
	return verdictOf(p, policies.Match(&attrs, time.Now()), &facts, q.Method, &answer, int(cfg.Body.InspectMax)), nil
}

// presetFor is the one that is named, else that of the policy, else that of the host.
func presetFor(set *presets.Set, pol *policy.Policy, named string, a *policy.Attrs) *presets.Preset {
	if named == "" {
		named = pol.Preset
	}
	if named != "" {
		return set.Named(named)
	}
	return set.For(a.Host, a.Path)
}

func verdictOf(p *presets.Preset, pol *policy.Policy, f *presets.Facts, method string, a *presets.Response, most int) *judged {
	said := p.Hear(f, a, most, time.Now())
	rules := pol.Rules(method, f.Nature, false)
	v := classify.Judge(&rules, &classify.Outcome{Phase: classify.PhaseDone, Status: a.Status, Said: said})
	j := &judged{
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

// tell prints it for people.
func (j *judged) tell(out plain) {
	fmt.Fprintf(out, "Preset %s (confidence %s), policy %s\n", j.Preset, orNone(j.Confidence), j.Policy)
	fmt.Fprintf(out, "Call: %s, %s\n", orElse(j.Operation, "no operation found"), j.Nature)
	fmt.Fprintf(out, "Answer: status %d", j.Status)
	for _, part := range [][2]string{{"code", j.Code}, {"sub code", j.SubCode}, {"message", j.Message}} {
		if part[1] != "" {
			fmt.Fprintf(out, ", %s %s", part[0], part[1])
		}
	}
	fmt.Fprintf(out, "\nIt says: %s", j.Is)
	if j.Rule != "" {
		fmt.Fprintf(out, " (rule %s)", j.Rule)
	}
	fmt.Fprintf(out, "\nVerdict: %s, %s; executed: %s\n", j.Class, j.Reason, j.Executed)
	if j.WaitMS > 0 {
		fmt.Fprintf(out, "It wants to be left alone for %s.\n", time.Duration(j.WaitMS)*time.Millisecond)
	}
	fmt.Fprintf(out, "So: %s\n", j.Next)
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// explainAnswer is explain -response.
func (e Env) explainAnswer(config string, q *Question, a answerFlags, raw bool) error {
	j, err := e.judge(config, q, a)
	if err != nil {
		return err
	}
	if !raw {
		j.tell(plain{e.Stdout})
		return nil
	}
	text, err := json.MarshalIndent(j, "", "  ")
	if err == nil {
		_, err = e.Stdout.Write(append(text, '\n'))
	}
	return err
}
