package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const hook = "{name: ops, webhook: {url: 'https://hooks.test/send?key=s3cret', format: wecom}}"

func TestAlertsAreFilledIn(t *testing.T) {
	c := parse(t, `
alerts:
  - `+hook+`
  - {name: night, webhook: {url: "http://10.0.0.9/x"}}
  - {on: dead_letters}
  - {name: spike, on: dead_letters, factor: 3, match: {host: a.test, task_type: [ship, buy]}, by: host, to: ops}
  - {on: reason}
  - {name: auth, on: reason, match: {reason: auth_expired}, count: 2, within: 60, quiet: 1d}
  - {on: breaker, for: 30s, webhook: {url: "https://own.test/y", format: feishu, secret: abc}}
  - {on: parked, older_than: 15m}
  - {on: store}
  - {on: retention, before: 2d}
  - {on: heartbeat}
  - {name: all-at-once, on: breaker, by: [], keep_firing_for: 0}
`)
	urgent := AlertMatch{Reason: Patterns{"auth_expired", "quota_exhausted", "risk_control", "signature_expired"}}
	by, half := Names{"host", "reason", "task_type"}, 30*time.Minute
	all := Names{"ops", "night", "breaker"}
	want := []Alert{
		{Name: "ops", Webhook: Webhook{URL: "https://hooks.test/send?key=s3cret", Format: "wecom"}},
		{Name: "night", Webhook: Webhook{URL: "http://10.0.0.9/x", Format: "json"}},
		{Name: "dead_letters", On: "dead_letters", By: by, Count: 1, Within: 10 * time.Minute, Quiet: half, To: all},
		{Name: "spike", On: "dead_letters", Factor: 3, Match: AlertMatch{Host: Patterns{"a.test"}, TaskType: Patterns{"ship", "buy"}}, By: Names{"host"}, Count: 5, Within: time.Hour, Quiet: half, To: Names{"ops"}},
		{Name: "reason", On: "reason", Match: urgent, By: by, Count: 1, Within: 10 * time.Minute, Quiet: half, To: all},
		{Name: "auth", On: "reason", Match: AlertMatch{Reason: Patterns{"auth_expired"}}, By: by, Count: 2, Within: time.Minute, Quiet: 24 * time.Hour, To: all},
		{
			Name: "breaker", On: "breaker", By: Names{"host", "shop"}, For: 30 * time.Second, KeepFiringFor: time.Minute, Quiet: half, To: Names{"breaker"},
			Webhook: Webhook{URL: "https://own.test/y", Format: "feishu", Secret: "abc"},
		},
		{Name: "parked", On: "parked", OlderThan: 15 * time.Minute, KeepFiringFor: time.Minute, Quiet: half, To: all},
		{Name: "store", On: "store", KeepFiringFor: time.Minute, Quiet: half, To: all},
		{Name: "retention", On: "retention", Before: 48 * time.Hour, Quiet: 24 * time.Hour, To: all},
		{Name: "heartbeat", On: "heartbeat", Every: 24 * time.Hour, To: all},
		{Name: "all-at-once", On: "breaker", Quiet: half, To: all},
	}
	if diff := cmp.Diff(want, c.Alerts); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
	shown := string(c.Marshal())
	for _, secret := range []string{"s3cret", "hooks.test", "own.test", "abc"} {
		if strings.Contains(shown, secret) {
			t.Errorf("the effective configuration shows %q:\n%s", secret, shown)
		}
	}
	again := parse(t, strings.NewReplacer("url: <secret>", "url: https://x.test/y", "secret: <secret>", "secret: z").Replace(shown))
	for i := range again.Alerts {
		if again.Alerts[i].Webhook.URL != "" {
			again.Alerts[i].Webhook = want[i].Webhook
		}
	}
	if diff := cmp.Diff(want, again.Alerts); diff != "" {
		t.Errorf("the effective configuration read again (-want +got):\n%s", diff)
	}
}

func TestAlertFaults(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"{}", "alerts[0]: an entry needs on (a rule) or a webhook"},
		{"{name: a, on: dead_letter}", `alerts[0].on: "dead_letter" must be one of dead_letters, breaker,`},
		{"{on: store}", "alerts[0].to: there is nobody to tell: no entry has a webhook"},
		{hook + ", {on: store, to: [nobody]}", `alerts[1].to[0]: "nobody" is not the name of an entry with a webhook`},
		{hook + ", {on: store}, {on: store}", `alerts[2].name: "store" is already used by alerts[1].name`},
		{hook + ", {on: store, count: 3, match: {host: a.test}}", "alerts[1].count: means nothing with on: store"},
		{hook + ", {on: store, match: {host: a.test}}", "alerts[1].match.host: means nothing with on: store"},
		{hook + ", {on: breaker, match: {reason: auth_expired}}", "alerts[1].match.reason: means nothing with on: breaker"},
		{hook + ", {on: breaker, by: [reason]}", `alerts[1].by[0]: "reason" must be one of host, shop`},
		{hook + ", {on: dead_letters, by: [path]}", `alerts[1].by[0]: "path" must be one of`},
		{hook + ", {on: dead_letters, count: 0}", "alerts[1].count: 0 must be from 1 to"},
		{hook + ", {on: dead_letters, within: 0}", "alerts[1].within: 0s must be from 1s to 720h"},
		{hook + ", {on: heartbeat, every: 59s}", "alerts[1].every: 59s must be from 1m to 720h"},
		{hook + ", {on: heartbeat, every: 31d}", "alerts[1].every: 744h must be from 1m to 720h"},
		{hook + ", {on: dead_letters, quiet: 365d}", "alerts[1].quiet: 8760h must be from 1s to 720h"},
		{hook + ", {on: dead_letters, factor: 0.5}", "alerts[1].factor: 0.5 must be from 1 to 1000"},
		{hook + ", {on: dead_letters, match: {reason: [attempts_exausted]}}", `alerts[1].match.reason[0]: "attempts_exausted" is no reason`},
		{hook + ", {on: dead_letters, match: {shop: ''}}", "alerts[1].match.shop[0]: an empty pattern"},
		{hook + ", {on: dead_letters, match: {shops: a}}", "alerts[1].match.shops: unknown key; did you mean shop?"},
		{hook + ", {on: parked}", "alerts[1]: parked needs older_than"},
		{"{webhook: {url: 'https://a.test/'}}", "alerts[0].name: is missing"},
		{"{name: a, webhook: {format: wecom}, on: store}", "alerts[0].webhook.url: is missing"},
		{"{name: a, webhook: {url: 'ftp://k3y.test/'}}", "alerts[0].webhook.url: want a URL such as"},
		{"{name: a, webhook: {url: 'https://k3y.test/', format: teams}}", `alerts[0].webhook.format: "teams" must be one of json, wecom,`},
		{"{name: a, webhook: {url: 'https://k3y.test/', format: slack, secret: k3y}}", "alerts[0].webhook.secret: slack signs nothing"},
		{"{name: a, webhook: {url: 'https://k3y.test/'}, quiet: 1h}", "alerts[0].quiet: means nothing with an entry without on"},
	} {
		got := faults(t, "alerts: ["+tt.text+"]")
		if !strings.Contains(got, "test.yaml:1: "+tt.want) {
			t.Errorf("%s: %q, want %q", tt.text, got, tt.want)
		}
		if strings.Contains(got, "k3y") {
			t.Errorf("%s: the fault shows the URL: %s", tt.text, got)
		}
	}
}
