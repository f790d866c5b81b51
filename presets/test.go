package presets

import (
	"encoding/base64"
	"fmt"
	"time"

	"retryproxy/classify"
	"retryproxy/document"
	"retryproxy/message"
	"retryproxy/policy"
)

// clock is when fixtures are judged that say nothing else.
var clock = time.Unix(1_760_000_000, 0)

// byStatus is what a fixture expects of an answer about which nothing is said.
const byStatus = "status"

// Test judges the fixtures of a preset, and says of each that fails what is different.
func (p *Preset) Test() (faults []error) {
	for i := range p.Fixtures {
		if err := p.test(&p.Fixtures[i]); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", p.Fixtures[i].Name, err))
		}
	}
	return faults
}

func (p *Preset) test(f *Fixture) error {
	said, err := p.hearFixture(f)
	if err != nil {
		return err
	}
	is := said.Kind.String()
	if said.Kind == classify.Unsaid {
		is = byStatus
	}
	switch {
	case is != f.Is:
		return fmt.Errorf("it is %s (rule %q, code %q), want %s", is, said.Rule, said.Code, f.Is)
	case f.Rule != "" && said.Rule != f.Rule:
		return fmt.Errorf("rule %q says so, want %q", said.Rule, f.Rule)
	case f.Wait != 0 && said.Wait.Round(time.Millisecond) != f.Wait:
		return fmt.Errorf("the wait is %s, want %s", said.Wait, f.Wait)
	}
	return nil
}

func (p *Preset) hearFixture(f *Fixture) (classify.Said, error) {
	body := []byte(f.Body)
	if f.BodyBase64 != "" {
		var err error
		if body, err = base64.StdEncoding.DecodeString(f.BodyBase64); err != nil {
			return classify.Said{}, fmt.Errorf("body_base64: %w", err)
		}
	}
	facts := Facts{Operation: f.Operation, Nature: f.nature(p)}
	r := Response{Status: f.Status, Head: body, Whole: !f.Cut}
	for name, value := range f.Headers {
		r.Fields.Add(name, value)
	}
	now := f.Now
	if now.IsZero() {
		now = clock
	}
	return p.Hear(&facts, &r, 1<<20, now), nil
}

// nature is what the fixture says, else what the operation and the method say.
func (f *Fixture) nature(p *Preset) policy.Nature {
	switch f.Calls {
	case "read":
		return policy.NatureReads
	case "write":
		return policy.NatureWrites
	}
	return p.nature(f.Operation, &document.Request{Method: f.Method, Fields: message.Fields{}})
}
