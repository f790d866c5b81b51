package config

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// Alert is one entry of alerts: a rule (On), somebody to tell (Webhook), or both.
type Alert struct {
	Name  string     `key:"name"` // Parse fills in that of On
	On    string     `key:"on"`   // empty: only a target
	Match AlertMatch `key:"match"`
	By    Names      `key:"by"` // host, reason, task_type, shop

	Count  int           `key:"count"`
	Within time.Duration `key:"within"`
	Factor float64       `key:"factor"` // times the usual; 0: count alone

	OlderThan time.Duration `key:"older_than"`
	Before    time.Duration `key:"before"`
	Every     time.Duration `key:"every"`

	For           time.Duration `key:"for"`
	KeepFiringFor time.Duration `key:"keep_firing_for"`
	Quiet         time.Duration `key:"quiet"`

	To      Names   `key:"to"` // names of entries with a webhook; Parse fills in all, or the own one
	Webhook Webhook `key:"webhook"`
}

// AlertMatch says which events a rule is about; a key left out is for all.
type AlertMatch struct {
	Reason   Patterns `key:"reason"`
	Host     Patterns `key:"host"`
	TaskType Patterns `key:"task_type"`
	Shop     Patterns `key:"shop"`
}

// Webhook is where messages are sent. Its URL is a secret: who has it can write there.
type Webhook struct {
	URL    Secret `key:"url"`
	Format string `key:"format"` // json, wecom, dingtalk, feishu, slack
	Secret Secret `key:"secret"` // signs, where the service knows that
}

// kindOf says for each kind of rule which keys it has, beside name, to and
// webhook, and what they are when left out.
var kindOf = map[string]struct {
	keys     []string
	defaults func(a *Alert)
}{
	"dead_letters": {counting, countDefaults},
	"reason": {counting, func(a *Alert) {
		countDefaults(a)
		if len(a.Match.Reason) == 0 {
			a.Match.Reason = Patterns{"auth_expired", "quota_exhausted", "risk_control", "signature_expired"}
		}
	}},
	"breaker": {[]string{"match.host", "match.shop", "by", "for", "keep_firing_for", "quiet"}, func(a *Alert) {
		a.By, a.KeepFiringFor, a.Quiet = Names{"host", "shop"}, time.Minute, 30*time.Minute
	}},
	"parked": {[]string{"count", "older_than", "for", "keep_firing_for", "quiet"}, func(a *Alert) {
		a.KeepFiringFor, a.Quiet = time.Minute, 30*time.Minute
	}},
	"store": {[]string{"for", "keep_firing_for", "quiet"}, func(a *Alert) {
		a.KeepFiringFor, a.Quiet = time.Minute, 30*time.Minute
	}},
	"retention": {[]string{"before", "quiet"}, func(a *Alert) {
		a.Before, a.Quiet = 24*time.Hour, 24*time.Hour
	}},
	"heartbeat": {[]string{"every"}, func(a *Alert) { a.Every = 24 * time.Hour }},
}

// counting are the keys of rules that count events.
var counting = []string{"match.reason", "match.host", "match.task_type", "match.shop", "by", "count", "within", "factor", "keep_firing_for", "quiet"}

// countDefaults are one in ten minutes; against the usual, five in an hour at least.
func countDefaults(a *Alert) {
	a.By, a.Count, a.Within, a.Quiet = Names{"host", "reason", "task_type"}, 1, 10*time.Minute, 30*time.Minute
	if a.Factor > 0 {
		a.Count, a.Within = 5, time.Hour
	}
}

// completeAlerts fills in what entries leave out.
func (c *Config) completeAlerts(d *decoder) {
	var targets Names
	for i := range c.Alerts {
		a := &c.Alerts[i]
		if a.Name == "" {
			a.Name = a.On
		}
		if a.Webhook.URL != "" {
			targets = append(targets, a.Name)
			if a.Webhook.Format == "" {
				a.Webhook.Format = "json"
			}
		}
	}
	for i := range c.Alerts {
		a, path := &c.Alerts[i], fmt.Sprintf("alerts[%d]", i)
		a.fill(d, path)
		switch {
		case a.On == "" || len(a.To) > 0:
		case a.Webhook.URL != "":
			a.To = Names{a.Name}
		default:
			a.To = slices.Clone(targets)
		}
	}
}

// fill lays what the file says over the defaults of the kind.
func (a *Alert) fill(d *decoder, path string) {
	kind, known := kindOf[a.On]
	if !known {
		return
	}
	full := *a
	kind.defaults(&full)
	from, to := reflect.ValueOf(&full).Elem(), reflect.ValueOf(a).Elem()
	for i := range to.NumField() {
		name := tagOf(to.Type().Field(i))
		if !d.given(path + "." + name) {
			to.Field(i).Set(from.Field(i))
		}
	}
	if len(a.Match.Reason) == 0 {
		a.Match.Reason = full.Match.Reason
	}
}

// encode leaves out the keys that the kind does not have.
func (a *Alert) encode() *yaml.Node {
	return encodeFull(reflect.ValueOf(a).Elem(), kindOf[a.On].keys...)
}

// encode leaves out the keys that match everything.
func (m *AlertMatch) encode() *yaml.Node {
	n := encodeFull(reflect.ValueOf(m).Elem())
	n.Style = yaml.FlowStyle
	return n
}

// encode leaves out the keys that say nothing.
func (w *Webhook) encode() *yaml.Node { return encodeFull(reflect.ValueOf(w).Elem()) }

// encodeFull encodes the fields of a struct that have a value, and these keys: none
// is a value, too, where the default is another one.
func encodeFull(v reflect.Value, keys ...string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		if name := tagOf(v.Type().Field(i)); !v.Field(i).IsZero() || slices.Contains(keys, name) {
			n.Content = append(n.Content, text(name), encode(v.Field(i)))
		}
	}
	return n
}
