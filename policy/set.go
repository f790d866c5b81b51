package policy

import (
	"fmt"
	"strings"
	"time"
)

// Set is the ordered list of policies; the first match wins. Build it with
// NewSet. It is never changed afterwards, so any number of calls may read it.
type Set struct {
	policies []*Policy
	matchers []*Matcher
}

// NewSet compiles policies, the default one last; hour ranges are read in zone,
// nil is UTC. It fails with ErrSet or ErrHours.
func NewSet(policies []*Policy, zone *time.Location) (*Set, error) {
	if len(policies) == 0 || !policies[len(policies)-1].Match.all() {
		return nil, ErrSet
	}
	s := &Set{policies: policies}
	names := make(map[string]bool, len(policies))
	for _, p := range policies {
		if p.Name == "" || names[p.Name] {
			return nil, fmt.Errorf("%w: %q is used twice or is empty", ErrSet, p.Name)
		}
		names[p.Name] = true
		if err := addVariants(names, p); err != nil {
			return nil, err
		}
		m, err := NewMatcher(p.Match, zone)
		if err != nil {
			return nil, fmt.Errorf("policy %q: %w", p.Name, err)
		}
		s.matchers = append(s.matchers, m)
	}
	return s, nil
}

// addVariants checks those of a policy and adds their names.
func addVariants(names map[string]bool, p *Policy) error {
	for _, v := range p.Variants {
		if names[v.Name] || v.Weight <= 0 || v.Of != p || len(v.Variants) > 0 {
			return fmt.Errorf("%w: variant %q needs a name of its own and a weight above 0", ErrSet, v.Name)
		}
		names[v.Name] = true
	}
	return nil
}

// Match returns the first policy that is for a call with these facts at now.
// It is never nil: the last one is for every call.
func (s *Set) Match(a *Attrs, now time.Time) *Policy {
	for i, m := range s.matchers {
		if m.Match(a, now) {
			return s.policies[i]
		}
	}
	return s.policies[len(s.policies)-1]
}

// Policies returns the policies in order, for the operator; read only.
func (s *Set) Policies() []*Policy { return s.policies }

// Named is the policy or variant of that name, for a variant that there is no more
// its policy; nil: there is none any more.
func (s *Set) Named(name string) *Policy {
	if p := s.named(name); p != nil {
		return p
	}
	return s.named(name[:max(0, strings.LastIndexByte(name, '/'))])
}

func (s *Set) named(name string) *Policy {
	for _, p := range s.policies {
		if p.Name == name {
			return p
		}
		for _, v := range p.Variants {
			if v.Name == name {
				return v
			}
		}
	}
	return nil
}

// all says whether m matches every call.
func (m *Match) all() bool {
	return len(m.TaskType)+len(m.Shop)+len(m.ShopTier)+len(m.Host)+len(m.Path)+
		len(m.Method)+len(m.Operation)+len(m.Hours) == 0
}
