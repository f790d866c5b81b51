package config

import (
	"fmt"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
)

// stopReasons are why calls stop, and why dead letters are made: docs/outcomes.md.
var stopReasons = []string{
	"risk_control", "quota_exhausted", "auth_expired", "signature_expired", "manual_review", "fail_permanent", "client_gone",
	"body_not_replayable", "attempts_exhausted", "retry_after_too_long", "retry_limited", "breaker_open", "shop_breaker_open",
	"no_slot", "deadline_exceeded", "retries_off", "shutting_down", "cancelled_by_operator", "parked",
	"bad_request", "header_too_large", "auth_required", "client_denied", "destination_denied", "body_too_large", "key_busy",
	"in_doubt", "result_not_kept", "key_mismatch", "loop", "local_resource", "store_unavailable", "store_full",
}

// longestQuiet bounds times: longer ones are slips.
const longestQuiet = 30 * 24 * time.Hour

// alerts checks rules and targets, and that those named exist.
func (c *checker) alerts(conf *Config) {
	names, targets := map[string]string{}, map[string]bool{}
	for i := range conf.Alerts {
		a, at := &conf.Alerts[i], fmt.Sprintf("alerts[%d]", i)
		if a.Name == "" {
			c.fail(at+".name", "is missing; rules that are told to this webhook name it in to")
		} else {
			c.label(at+".name", a.Name)
			c.unique(names, a.Name, at+".name")
		}
		targets[a.Name] = targets[a.Name] || a.Webhook.URL != ""
		c.webhook(at+".webhook", a)
	}
	for i := range conf.Alerts {
		a, at := &conf.Alerts[i], fmt.Sprintf("alerts[%d]", i)
		c.alertRule(at, a)
		for j, name := range a.To {
			if !targets[name] {
				c.fail(fmt.Sprintf("%s.to[%d]", at, j), "%q is not the name of an entry with a webhook", shorten(name))
			}
		}
	}
}

// alertRule checks one entry.
func (c *checker) alertRule(at string, a *Alert) {
	kind, known := kindOf[a.On]
	switch {
	case a.On == "" && a.Webhook.URL == "":
		c.fail(at, "an entry needs on (a rule) or a webhook with a url (somebody to tell)")
		return
	case a.On == "":
		c.onlyKeys(at, a, "an entry without on", nil)
		return
	case !known:
		c.oneOf(at+".on", a.On, "dead_letters", "breaker", "parked", "store", "reason", "retention", "heartbeat")
		return
	case len(a.To) == 0:
		c.fail(at+".to", "there is nobody to tell: no entry has a webhook")
	}
	c.onlyKeys(at, a, "on: "+a.On, kind.keys)
	c.alertBounds(at, a, kind.keys)
	c.alertMatch(at, a)
}

// alertBounds checks the numbers of a rule that has these keys.
func (c *checker) alertBounds(at string, a *Alert, keys []string) {
	for key, d := range map[string]time.Duration{"within": a.Within, "quiet": a.Quiet, "before": a.Before} {
		if slices.Contains(keys, key) && (d < time.Second || d > longestQuiet) {
			c.fail(at+"."+key, "%s must be from 1s to %s", durationText(d), durationText(longestQuiet))
		}
	}
	for key, d := range map[string]time.Duration{"for": a.For, "keep_firing_for": a.KeepFiringFor, "older_than": a.OlderThan} {
		if d > longestQuiet {
			c.fail(at+"."+key, "%s must be at most %s", durationText(d), durationText(longestQuiet))
		}
	}
	if slices.Contains(keys, "every") && (a.Every < time.Minute || a.Every > longestQuiet) {
		c.fail(at+".every", "%s must be from 1m to %s", durationText(a.Every), durationText(longestQuiet))
	}
	switch {
	case a.On == "parked" && a.Count == 0 && a.OlderThan == 0:
		c.fail(at, "parked needs older_than (age of the oldest), count (how many), or both")
	case a.On == "dead_letters" || a.On == "reason":
		between(c, at+".count", a.Count, 1, most)
	case a.Count < 0 || a.Count > most:
		c.fail(at+".count", "%d must be from 0 to %d", a.Count, most)
	}
	if a.Factor != 0 && (a.Factor < 1 || a.Factor > 1000) {
		c.fail(at+".factor", "%v must be from 1 to 1000; 0 counts without looking at the usual", a.Factor)
	}
}

// alertMatch checks patterns, and that the reasons exist: a slip would be silent for ever.
func (c *checker) alertMatch(at string, a *Alert) {
	m := &a.Match
	c.match(at+".match", &Match{Shop: m.Shop, Host: m.Host, TaskType: m.TaskType})
	for i, pattern := range m.Reason {
		known := func(reason string) bool {
			ok, err := path.Match(pattern, reason)
			return ok && err == nil
		}
		if !slices.ContainsFunc(stopReasons, known) {
			c.fail(fmt.Sprintf("%s.match.reason[%d]", at, i), "%q is no reason that a call stops for; docs/outcomes.md lists them", shorten(pattern))
		}
	}
	words := []string{"host", "reason", "task_type", "shop"}
	if a.On == "breaker" {
		words = []string{"host", "shop"}
	}
	for i, by := range a.By {
		c.oneOf(fmt.Sprintf("%s.by[%d]", at, i), by, words...)
	}
}

// onlyKeys finds keys that have a value and mean nothing here.
func (c *checker) onlyKeys(at string, a *Alert, where string, keys []string) {
	check := func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			name := tagOf(v.Type().Field(i))
			if key := prefix + name; !v.Field(i).IsZero() && !slices.Contains(keys, key) {
				c.fail(at+"."+key, "means nothing with %s", where)
			}
		}
	}
	check(reflect.ValueOf(&a.Match).Elem(), "match.")
	rest := *a
	rest.Name, rest.On, rest.Match, rest.Webhook = "", "", AlertMatch{}, Webhook{}
	if a.On != "" {
		rest.To = nil
	}
	check(reflect.ValueOf(&rest).Elem(), "")
}

// webhook checks where an entry is told. No message repeats the URL.
func (c *checker) webhook(at string, a *Alert) {
	w := &a.Webhook
	if w.URL == "" {
		if w.Format != "" || w.Secret != "" {
			c.fail(at+".url", "is missing")
		}
		return
	}
	u, err := url.Parse(string(w.URL))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.ContainsFunc(string(w.URL), unprintable) {
		c.fail(at+".url", "want a URL such as https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…")
	}
	c.oneOf(at+".format", w.Format, "json", "wecom", "dingtalk", "feishu", "slack")
	if w.Secret != "" && (w.Format == "wecom" || w.Format == "slack") {
		c.fail(at+".secret", "%s signs nothing; its url alone is the secret", w.Format)
	}
}

func unprintable(r rune) bool { return r <= ' ' || r == 0x7f }
