package config

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
)

// policies checks each policy, `default` first: what is wrong there is not
// reported again for a policy that only inherits it.
func (c *checker) policies(list Policies) {
	names := map[string]string{}
	for i := range list {
		path := list[i].Path(i)
		if name := list[i].Name; name == "" || len(name) > 64 || !isVisible(name) {
			c.fail(path+".name", "%q must be 1 to 64 visible characters", shorten(name))
		}
		c.unique(names, list[i].Name, path+".name")
		c.variants(path+".variants", &list[i], names)
	}
	known := map[string]bool{}
	for i := len(list) - 1; i >= 0; i-- {
		p, path := &list[i], list[i].Path(i)
		own := c.faultsOf(path, p, known)
		if p.Name == defaultPolicy {
			maps.Copy(known, own)
		}
		maps.Copy(own, known)
		for j := range p.Variants {
			c.faultsOf(fmt.Sprintf("%s.variants[%d]", path, j), &p.Variants[j].Policy, own)
		}
	}
}

// faultsOf checks one policy or variant, but for what it inherited with its fault,
// and says what it found, less the path.
func (c *checker) faultsOf(path string, p *Policy, inherited map[string]bool) map[string]bool {
	k, found := &checker{source: c.source, keep: c.keep}, map[string]bool{}
	k.policy(path, p)
	for _, q := range k.problems {
		same := strings.TrimPrefix(q.Path, path) + q.Rule
		if inherited[same] && c.source.lines[q.Path] == 0 {
			continue
		}
		found[same] = true
		c.problems = append(c.problems, q)
	}
	return found
}

// variants checks how many there are, their names and weights.
func (c *checker) variants(path string, p *Policy, names map[string]string) {
	n := len(p.Variants)
	if n > 0 && n < leastVariants || n > mostVariants {
		c.fail(path, "has %d of them: from %d to %d can be compared, or none", n, leastVariants, mostVariants)
	}
	for i := range p.Variants {
		v, at := &p.Variants[i], fmt.Sprintf("%s[%d]", path, i)
		if v.Name == "" || len(v.Name) > 64 || !isVisible(v.Name) || strings.Contains(v.Name, "/") {
			c.fail(at+".name", "%q must be 1 to 64 visible characters without /", shorten(v.Name))
		} else {
			c.unique(names, v.named(p), at+".name")
		}
		between(c, at+".weight", v.Weight, 1, mostWeight)
	}
}

// Path is where policy i stands in the file, or would stand.
func (p *Policy) Path(i int) string {
	if p.index != builtin {
		i = p.index
	}
	return fmt.Sprintf("retry_policies[%d]", i)
}

func (c *checker) policy(path string, p *Policy) {
	if p.Name == defaultPolicy && !p.Match.empty() {
		c.fail(path+".match", "the default policy is for every call that no other matches; it has no match")
	}
	c.match(path+".match", &p.Match)
	c.delays(path, p)
	c.above(path+".connect_timeout", p.ConnectTimeout)
	c.above(path+".per_try_timeout", p.PerTryTimeout)
	c.above(path+".body_idle_timeout", p.BodyIdleTimeout)
	c.above(path+".deadline", p.Deadline)
	if p.ClientHold < 0 || p.ClientHold > 0 && p.ClientHold < time.Millisecond {
		c.fail(path+".client_hold", "%s must be 0 (off) or at least 1ms", durationText(p.ClientHold))
	}
	if p.OnPark != 202 && p.OnPark != 503 {
		c.fail(path+".on_park", "%d must be 202 or 503", p.OnPark)
	}
	c.statuses(path+".retry_statuses", p.RetryStatuses)
	c.statuses(path+".permanent_statuses", p.PermanentStatuses)
	c.statuses(path+".not_now_statuses", p.NotNowStatuses)
	c.choices(path, p)
	for i, m := range p.SafeMethods {
		if !isToken(m) {
			c.fail(fmt.Sprintf("%s.safe_methods[%d]", path, i), "%q is not a method", shorten(m))
		}
	}
	for i, name := range p.ForwardHeaders {
		c.oneOf(fmt.Sprintf("%s.forward_headers[%d]", path, i), name, "idempotency_key", "retry_count", "shop", "shop_tier", "task_type", "trace_context")
	}
	for i, name := range p.FingerprintIgnore {
		if name == "" {
			c.fail(fmt.Sprintf("%s.fingerprint_ignore[%d]", path, i), "a name is empty")
		}
	}
	c.redrive(path+".redrive", p.Redrive)
	between(c, path+".priority", p.Priority, 0, 100)
}

const (
	leastKeep    = time.Hour            // of a dead letter: a person has to see it
	leastRedrive = time.Minute          // what fails for good must not be hammered
	mostRedrives = idempotency.RunsLast // so many runs a record surely remembers
)

// redrive checks when dead letters are tried again: not when they are gone.
func (c *checker) redrive(path string, list []time.Duration) {
	if len(list) > mostRedrives {
		c.fail(path, "has %d entries, at most %d are possible", len(list), mostRedrives)
	}
	for i, after := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case after < leastRedrive:
			c.fail(at, "%s is below %s", durationText(after), durationText(leastRedrive))
		case after >= c.keep && c.keep >= leastKeep:
			c.fail(at, "%s is not below dead_letters.keep %s: the letter would be gone", durationText(after), durationText(c.keep))
		}
	}
}

// delays checks what backoff needs to be sane.
func (c *checker) delays(path string, p *Policy) {
	between(c, path+".max_retries", p.MaxRetries, 0, 1000)
	c.above(path+".base_delay", p.BaseDelay)
	if p.MaxDelay < p.BaseDelay {
		c.fail(path+".max_delay", "%s is below base_delay %s", durationText(p.MaxDelay), durationText(p.BaseDelay))
	}
	between(c, path+".multiplier", p.Multiplier, 1, 1000)
	c.oneOf(path+".jitter", p.Jitter, "random", "full", "none", "stable")
	between(c, path+".jitter_ratio", p.JitterRatio, 0, 1)
	c.oneOf(path+".first_retry", p.FirstRetry, "backoff", "fast")
}

// choices checks the values that are one of a few words.
func (c *checker) choices(path string, p *Policy) {
	c.oneOf(path+".retry_after_over_cap", p.RetryAfterOverCap, "cap", "stop", "park")
	c.oneOf(path+".safe", p.Safe, "auto", "method", "key", "always", "never")
	c.oneOf(path+".on_unknown", p.OnUnknown, "manual_review", "retry")
	c.oneOf(path+".on_open", p.OnOpen, "wait", "fail")
	c.oneOf(path+".replay", p.Replay, "", "window", "handback", "resign")
	c.oneOf(path+".dead_letter", p.DeadLetter, "none", "unsafe", "all")
}

// statuses checks that only failures are named.
func (c *checker) statuses(path string, list Statuses) {
	for i, s := range list {
		_, err := classify.ParseStatuses(list[i : i+1])
		if err != nil || s[0] < '4' {
			c.fail(fmt.Sprintf("%s[%d]", path, i), "%q must be a status from 400 to 599, or 4xx or 5xx", shorten(s))
		}
	}
}

// match checks patterns; an empty one would match nothing.
func (c *checker) match(path string, m *Match) {
	for key, list := range map[string]Patterns{
		"task_type": m.TaskType, "shop": m.Shop, "shop_tier": m.ShopTier, "path": m.Path, "method": m.Method,
	} {
		for i, p := range list {
			if p == "" {
				c.fail(fmt.Sprintf("%s.%s[%d]", path, key, i), "an empty pattern matches no call; leave the key out to match all")
			}
		}
	}
	c.hostPatterns(path+".host", m.Host)
}

// empty says whether m is for every call.
func (m *Match) empty() bool {
	return len(m.TaskType)+len(m.Shop)+len(m.ShopTier)+len(m.Host)+len(m.Path)+
		len(m.Method)+len(m.Operation)+len(m.HourRange) == 0
}
