package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"retryproxy/policy"
)

// Warnings are things that are allowed and yet probably not meant.
func (c *Config) Warnings() []string {
	var out []string
	if c.Timezone == "Local" && c.usesHours() && isUTC(c.zone) {
		out = append(out, "timezone: Local is UTC here, so hour_range is read in UTC; set timezone, such as Asia/Shanghai, when that is not meant")
	}
	for i := range c.RetryPolicies {
		if rest := c.RetryPolicies[i+1:]; c.RetryPolicies[i].Match.empty() && len(rest) > 0 {
			out = append(out, fmt.Sprintf("retry_policies: %s matches every call, so the %d after it never apply", c.RetryPolicies[i].Name, len(rest)))
			break
		}
	}
	out = append(append(out, c.durableWarnings()...), c.redriveWarnings()...)
	out = append(out, c.failoverWarnings()...)
	if c.Store.Kind != "memory" && c.Store.Key == "" {
		out = append(out, "store.key: what bots send is kept in "+c.Store.Place()+" as it comes, credentials included; retryproxy store new-key makes a key that seals it")
	}
	return append(append(out, c.interceptWarnings()...), c.egressWarnings()...)
}

// durableWarnings names what only a durable store can do.
func (c *Config) durableWarnings() (out []string) {
	if c.Store.Kind != "memory" {
		if most := c.MostLetters(); most < c.DeadLetters.Max {
			out = append(out, fmt.Sprintf("dead_letters.max: %d letters are kept, not %d: no more than a quarter of idempotency.entries", most, c.DeadLetters.Max))
		}
		return out
	}
	if c.Store.Key != "" {
		out = append(out, "store.key: seals nothing, since records are in memory; it needs a durable store (-data DIR)")
	}
	for _, p := range c.RetryPolicies.lived() {
		if p.ClientHold > 0 {
			out = append(out, fmt.Sprintf("retry_policies: %s has client_hold, which needs a durable store (-data DIR): clients are held to the end", p.Name))
		}
		if p.RetryAfterOverCap == "park" {
			out = append(out, fmt.Sprintf("retry_policies: %s parks calls, which needs a durable store (-data DIR): such calls end instead", p.Name))
		}
	}
	return out
}

// redriveWarnings names policies that would try again what they do not keep.
func (c *Config) redriveWarnings() []string {
	return c.warnAbout(func(p *Policy) string {
		switch {
		case len(p.Redrive) == 0:
			return ""
		case p.DeadLetter == "none":
			return "redrive means nothing with dead_letter: none, as no letter is kept to be tried again"
		case c.Store.Kind == "memory":
			return "redrive needs a durable store (-data DIR), so nothing is tried again by itself"
		}
		return ""
	})
}

// failoverWarnings names policies that hand calls on which nothing holds together.
func (c *Config) failoverWarnings() []string {
	return c.warnAbout(func(p *Policy) string {
		switch {
		case len(p.Failover) == 0:
			return ""
		case !p.BusinessKey:
			return "failover without business_key: of a call without a key nobody knows later which supplier has its order, so that a repeat by its client is a second one"
		case c.Store.Kind == "memory":
			return "failover needs a durable store (-data DIR) to remember over a restart which supplier has an order"
		}
		return ""
	})
}

// warnAbout gives each fault that policies have once, with the names of those that have it.
func (c *Config) warnAbout(fault func(*Policy) string) (out []string) {
	names := map[string][]string{}
	lived := c.RetryPolicies.lived()
	for i := range lived {
		p := &lived[i]
		if f := fault(p); f != "" {
			if names[f] == nil {
				out = append(out, f)
			}
			names[f] = append(names[f], p.Name)
		}
	}
	for i, f := range out {
		out[i] = "retry_policies: " + f + ": " + strings.Join(names[f], ", ")
	}
	return out
}

func (c *Config) interceptWarnings() []string {
	var out []string
	if matchesAll(c.Intercept.Hosts) {
		out = append(out, "intercept.hosts: * opens every tunnel, browsers included; clients that do not trust our CA or pin their own fail; name the hosts that bots call")
	}
	deny := policy.NewHosts(c.Destinations.Deny)
	seen := map[string]bool{}
	for _, host := range c.Intercept.Hosts {
		if name := strings.ToLower(host); seen[name] {
			out = append(out, fmt.Sprintf("intercept.hosts: %s is there twice", host))
		} else {
			seen[name] = true
		}
		if !strings.Contains(host, "*") && deny.Match(host) {
			out = append(out, fmt.Sprintf("intercept.hosts: %s is never opened, since destinations.deny denies it", host))
		}
	}
	return out
}

// matchesAll says whether one of the host patterns is * on any port or some.
func matchesAll(patterns []string) bool {
	for _, p := range patterns {
		if host, _, err := net.SplitHostPort(p); err == nil {
			p = host
		}
		if p != "" && strings.Trim(p, "*") == "" {
			return true
		}
	}
	return false
}

func (c *Config) egressWarnings() []string {
	var out []string
	used := map[string]bool{}
	for _, shop := range c.Shops {
		used[shop.Egress] = true
	}
	all, before := "", map[string]string{}
	for i := range c.Egress {
		e := &c.Egress[i]
		switch {
		case used[e.Name]:
		case e.Match.Named():
			out = append(out, fmt.Sprintf("egress: %s has no match and no shop names it, so no call leaves by it", e.Name))
		case all != "":
			out = append(out, fmt.Sprintf("egress: %s is never used, since %s before it matches every call", e.Name, all))
		case before[e.Match.text()] != "":
			out = append(out, fmt.Sprintf("egress: %s is never used, since %s before it has the same match", e.Name, before[e.Match.text()]))
		}
		if key := e.Match.text(); before[key] == "" {
			before[key] = e.Name
		}
		out = append(out, e.loginWarnings()...)
		if all == "" && e.Match.everything() {
			all = e.Name
		}
	}
	if c.EgressDefault == "deny" && len(c.Egress) == 0 {
		out = append(out, "egress_default: deny without any egress rule lets no call out")
	}
	return out
}

// text is the same for matches that mean the same.
func (m *EgressMatch) text() string {
	sorted := func(p Patterns) []string { return slices.Compact(slices.Sorted(slices.Values(p))) }
	return fmt.Sprintf("%q %q %q", sorted(m.Shop), sorted(m.Host), sorted(m.TaskType))
}

// bareVariable is how a shell names a variable.
var bareVariable = regexp.MustCompile(`^\$[A-Za-z_][A-Za-z0-9_]*$`)

// loginWarnings tell of a user or password that was probably meant to be read
// from the environment. They repeat neither.
func (e *Egress) loginWarnings() []string {
	var out []string
	for _, p := range e.Endpoints() {
		for _, v := range [...][2]string{{"user", p.User}, {"password", p.Password}} {
			text := fmt.Sprintf("egress: the %s of %s looks like a variable of the environment and is taken as it stands; a variable is written ${NAME}", v[0], e.Name)
			if bareVariable.MatchString(v[1]) && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// usesHours says whether any policy or scope depends on the time of day.
func (c *Config) usesHours() bool {
	for i := range c.RetryPolicies {
		if len(c.RetryPolicies[i].Match.HourRange) > 0 {
			return true
		}
	}
	for i := range c.Retries.Scopes {
		if len(c.Retries.Scopes[i].Match.HourRange) > 0 {
			return true
		}
	}
	return false
}

// isUTC says whether a zone is UTC by another name, as in a container without one.
func isUTC(zone *time.Location) bool {
	name, offset := time.Date(2026, 7, 1, 0, 0, 0, 0, zone).Zone()
	return offset == 0 && name == "UTC"
}
