package config

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"retryproxy/backoff"
	"retryproxy/policy"
)

// defaultPolicy is the name of the policy that gives all others what they leave out.
const defaultPolicy = "default"

// Policies is retry_policies: the first match wins, `default` is last.
type Policies []Policy

// Policy is one entry of retry_policies.
type Policy struct {
	Name  string `key:"name"`
	Match Match  `key:"match"`

	MaxRetries  int           `key:"max_retries"`
	BaseDelay   time.Duration `key:"base_delay"`
	MaxDelay    time.Duration `key:"max_delay"`
	Multiplier  float64       `key:"multiplier"`
	Jitter      string        `key:"jitter"` // random, full, none, stable
	JitterRatio float64       `key:"jitter_ratio"`
	FirstRetry  string        `key:"first_retry"` // backoff, fast

	ConnectTimeout  time.Duration `key:"connect_timeout"`
	PerTryTimeout   time.Duration `key:"per_try_timeout"`
	BodyIdleTimeout time.Duration `key:"body_idle_timeout"`
	Deadline        time.Duration `key:"deadline"`
	ClientHold      time.Duration `key:"client_hold"` // 0: off

	RetryStatuses     Statuses      `key:"retry_statuses"`
	PermanentStatuses Statuses      `key:"permanent_statuses"`
	NotNowStatuses    Statuses      `key:"not_now_statuses"`
	HonourRetryAfter  bool          `key:"honour_retry_after"`
	RetryAfterCap     time.Duration `key:"retry_after_cap"`
	RetryAfterOverCap string        `key:"retry_after_over_cap"` // cap, stop, park

	Safe        string   `key:"safe"` // auto, method, key, always, never
	SafeMethods []string `key:"safe_methods"`
	OnUnknown   string   `key:"on_unknown"`   // manual_review, retry
	OnOpen      string   `key:"on_open"`      // wait, fail
	OnPark      int      `key:"on_park"`      // 202, 503
	Preset      string   `key:"preset"`       // empty: that of the host; none
	BusinessKey bool     `key:"business_key"` // a call without a key gets one made of its order
	Query       string   `key:"query"`        // preset that says how to ask what became of an order; empty: nobody is asked
	Failover    Names    `key:"failover"`     // presets of the suppliers that get an order next
	Replay      string   `key:"replay"`       // window, handback, resign; empty: the preset's

	ForwardHeaders    []string        `key:"forward_headers"`
	FingerprintIgnore []string        `key:"fingerprint_ignore"`
	DeadLetter        string          `key:"dead_letter"` // none, unsafe, all
	Redrive           []time.Duration `key:"redrive"`     // after how long a dead letter is tried again, time by time
	Priority          int             `key:"priority"`
	Variants          Variants        `key:"variants"` // the last field: see Policy.encode

	index             int  // in the file; builtin outside it
	forwardHeadersSet bool // the operator named other headers than the built-in ones
}

// builtin is the index of a policy that is not in the file.
const builtin = -1

// Match says which calls are meant; a key left out is for all.
type Match struct {
	TaskType  Patterns `key:"task_type"`
	Shop      Patterns `key:"shop"`
	ShopTier  Patterns `key:"shop_tier"`
	Host      Patterns `key:"host"`
	Path      Patterns `key:"path"`
	Method    Patterns `key:"method"`
	Operation Patterns `key:"operation"`
	HourRange Hours    `key:"hour_range"`
}

// decode reads the list: first `default` over the built-in one, wherever it
// stands, then each policy over that. `default` ends up last.
func (p *Policies) decode(d *decoder, n *yaml.Node, path string) {
	if !d.isKind(n, yaml.SequenceNode, path) {
		return
	}
	base := (*p)[len(*p)-1]
	at := slices.IndexFunc(n.Content, isDefault)
	if at >= 0 {
		base.decode(d, n.Content[at], fmt.Sprintf("%s[%d]", path, at), at)
	}
	list := make(Policies, 0, len(n.Content)+1)
	for i, item := range n.Content {
		if i != at {
			own := base
			own.Name, own.Match, own.Variants = fmt.Sprintf("policy_%d", i+1), Match{}, nil
			own.decode(d, item, fmt.Sprintf("%s[%d]", path, i), i)
			list = append(list, own)
		}
	}
	*p = append(list, base)
}

// decode reads one policy over what it already holds. forward_headers counts as
// named by the operator, except where `default` only repeats the built-in value,
// as a copy of the example file does.
func (p *Policy) decode(d *decoder, n *yaml.Node, path string, index int) {
	before := p.ForwardHeaders
	p.index = index
	d.decode(n, path, valueOf(p))
	if d.given(path + ".forward_headers") {
		same := p.Name == defaultPolicy && slices.Equal(before, p.ForwardHeaders)
		p.forwardHeadersSet = p.forwardHeadersSet || !same
	}
	if at := path + ".variants"; d.given(at) {
		p.readVariants(d, valueIn(resolve(n), "variants"), at)
	}
}

// valueIn is the value of a key that a mapping has.
func valueIn(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if resolve(n.Content[i]).Value == key {
			return resolve(n.Content[i+1])
		}
	}
	panic("bug: no key " + key)
}

// isDefault says whether a list item is the policy named default.
func isDefault(n *yaml.Node) bool {
	n = resolve(n)
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "name" {
			return resolve(n.Content[i+1]).Value == defaultPolicy
		}
	}
	return false
}

// Policies builds the set of policies.
func (c *Config) Policies() (*policy.Set, error) {
	list := make([]*policy.Policy, len(c.RetryPolicies))
	for i := range c.RetryPolicies {
		list[i] = c.RetryPolicies[i].build()
		c.RetryPolicies[i].buildVariants(list[i])
	}
	set, err := policy.NewSet(list, c.zone)
	if err != nil {
		return nil, fmt.Errorf("config: retry_policies: %w", err)
	}
	return set, nil
}

// build turns the entry into the policy a call lives by.
func (p *Policy) build() *policy.Policy {
	return &policy.Policy{
		Name:  p.Name,
		Match: p.Match.Policy(),

		MaxRetries: p.MaxRetries,
		Backoff: backoff.Policy{
			Base: p.BaseDelay, Max: p.MaxDelay, Multiplier: p.Multiplier,
			Jitter: p.Jitter, Ratio: p.JitterRatio,
		},
		FirstRetry: p.FirstRetry,

		ConnectTimeout: p.ConnectTimeout, PerTryTimeout: p.PerTryTimeout,
		BodyIdleTimeout: p.BodyIdleTimeout, Deadline: p.Deadline, ClientHold: p.ClientHold,

		RetryStatuses: p.RetryStatuses.set(), PermanentStatuses: p.PermanentStatuses.set(), NotNowStatuses: p.NotNowStatuses.set(),
		HonourRetryAfter: p.HonourRetryAfter, RetryAfterCap: p.RetryAfterCap, RetryAfterOverCap: p.RetryAfterOverCap,
		Safe: p.Safe, SafeMethods: p.SafeMethods, OnUnknown: p.OnUnknown, OnOpen: p.OnOpen, OnPark: p.OnPark,
		Preset: p.Preset, BusinessKey: p.BusinessKey, Replay: p.Replay, Query: p.Query, Failover: p.Failover, ForwardHeaders: p.ForwardHeaders, ForwardHeadersSet: p.forwardHeadersSet,
		FingerprintIgnore: p.FingerprintIgnore, DeadLetter: p.DeadLetter, Redrive: p.Redrive, Priority: p.Priority,
	}
}

// Policy is the match as package policy has it, also for scopes of the switch.
func (m Match) Policy() policy.Match {
	return policy.Match{
		TaskType: m.TaskType, Shop: m.Shop, ShopTier: m.ShopTier, Host: m.Host,
		Path: m.Path, Method: m.Method, Operation: m.Operation, Hours: m.HourRange,
	}
}
