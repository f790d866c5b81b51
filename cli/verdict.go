package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

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

// judge says what an answer to q means by a configuration.
func (e Env) judge(config string, q *Question, a answerFlags) (*presets.Verdict, error) {
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
	now := time.Now()
	return p.Judge(policies.Match(&attrs, now), &facts, q.Method, &answer, int(cfg.Body.InspectMax), now), nil
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

// tellVerdict prints it for people.
func tellVerdict(j *presets.Verdict, out plain) {
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
		tellVerdict(j, plain{e.Stdout})
		return nil
	}
	text, err := json.MarshalIndent(j, "", "  ")
	if err == nil {
		_, err = e.Stdout.Write(append(text, '\n'))
	}
	return err
}
