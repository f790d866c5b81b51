package proxy

import (
	"time"

	"retryproxy/policy"
)

// Switch says where retries are on, off or only observed. It is replaced as a
// whole, by a reload or an operator.
type Switch struct {
	Default string // on, off, observe
	Scopes  []Scope
}

// Scope overrides the default for the calls it matches until its time is over.
type Scope struct {
	Match policy.Match
	Value string
	Until time.Time // zero: for good
}

// Value is the switch's position for a call at a time; the first scope that
// matches wins.
func (s *Switch) Value(a *policy.Attrs, now time.Time) string {
	for i := range s.Scopes {
		c := &s.Scopes[i]
		if (c.Until.IsZero() || now.Before(c.Until)) && c.Match.Covers(a) {
			return c.Value
		}
	}
	return s.Default
}

// SetSwitch puts a new switch into force; calls that wait are judged anew when
// their turn comes, and at once where retries are off.
func (p *Proxy) SetSwitch(s *Switch) {
	p.retries.Store(s)
	p.calls.each(func(x *exchange) { x.releaseIfOff(s) })
}

// Retries is the switch in force.
func (p *Proxy) Retries() *Switch { return p.retries.Load() }
