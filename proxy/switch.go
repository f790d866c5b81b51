package proxy

import (
	"fmt"
	"time"

	"retryproxy/policy"
)

// Switch says where retries are on, off or only observed. It is replaced as a
// whole, by a reload or an operator. Make one with NewSwitch.
type Switch struct {
	Default  string // on, off, observe
	Scopes   []Scope
	matchers []*policy.Matcher
}

// Scope overrides the default for the calls it matches until its time is over.
type Scope struct {
	Match policy.Match
	Value string
	Until time.Time // zero: for good
}

// NewSwitch compiles the scopes; their hours are those of zone. It fails when
// an hour range makes no sense.
func NewSwitch(value string, scopes []Scope, zone *time.Location) (*Switch, error) {
	s := &Switch{Default: value, Scopes: scopes}
	for i := range scopes {
		m, err := policy.NewMatcher(scopes[i].Match, zone)
		if err != nil {
			return nil, fmt.Errorf("retries.scopes[%d]: %w", i, err)
		}
		s.matchers = append(s.matchers, m)
	}
	return s, nil
}

// Value is the switch's position for a call at a time; the first scope that
// matches wins.
func (s *Switch) Value(a *policy.Attrs, now time.Time) string {
	for i := range s.Scopes {
		c := &s.Scopes[i]
		if (c.Until.IsZero() || now.Before(c.Until)) && s.matchers[i].Match(a, now) {
			return c.Value
		}
	}
	return s.Default
}

// SetSwitch puts a new switch into force; where retries are no longer on,
// calls that wait for one get their last answer at once.
func (p *Proxy) SetSwitch(s *Switch) {
	p.retries.Store(s)
	_, live := p.calls.snapshot()
	for _, x := range live {
		x.releaseIfOff(s)
	}
}

// Retries is the switch in force.
func (p *Proxy) Retries() *Switch { return p.retries.Load() }
