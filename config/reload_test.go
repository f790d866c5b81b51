package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/breaker"
	"retryproxy/limiter"
)

func TestCheckReload(t *testing.T) {
	running := parse(t, "drain: 1s")
	for _, c := range []struct{ name, text, want string }{
		{"nothing changed", "drain: 1s", ""},
		{"what may change", "drain: 2s\nslots: {max_in_flight: 3}\nretry_policies: []", ""},
		{"instance", "drain: 1s\ninstance: other", "test.yaml:2: instance: cannot change while running; restart to apply it"},
		{
			"listen", "listen:\n  proxy: 127.0.0.1:81\n  hosts: [a.test]",
			"test.yaml:2: listen.proxy: cannot change while running; restart to apply it\ntest.yaml:3: listen.hosts: cannot change while running; restart to apply it",
		},
		{"h2c", "drain: 1s\nlisten: {h2c: true}", ""},
		{"egress and interception", "egress: [{name: a, proxy: direct}]\nshops: {s1: {egress: a}}\negress_default: deny\nintercept: {hosts: [a.test], ca_cert: /c, ca_key: /k}", ""},
		{"log", "drain: 1s\nlog: {level: debug}", ""},
		{
			"log file", "drain: 1s\nlog: {format: json, file: /x.log, max_size: 1MiB, keep: 1}",
			"test.yaml:2: log.format: cannot change while running; restart to apply it\ntest.yaml:2: log.file: cannot change while running; restart to apply it\n" +
				"test.yaml:2: log.max_size: cannot change while running; restart to apply it\ntest.yaml:2: log.keep: cannot change while running; restart to apply it",
		},
		{"listeners", "listeners: [{addr: '127.0.0.1:82'}]", "test.yaml:1: listeners: cannot change while running; restart to apply it"},
		{"tracing", "tracing: {sample: 0.5}", "test.yaml:1: tracing.sample: cannot change while running; restart to apply it"},
	} {
		err := running.CheckReload(parse(t, c.text))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: CheckReload (-want +got):\n%s", c.name, diff)
		}
		if c.want != "" && !errors.Is(err, ErrRestart) {
			t.Errorf("%s: CheckReload is no ErrRestart", c.name)
		}
	}
	other := Default()
	other.Store.Kind = "sqlite"
	if err := running.CheckReload(other); err == nil || !strings.Contains(err.Error(), "store.kind") {
		t.Errorf("CheckReload with another store = %v, want store.kind named", err)
	}
}

func TestWarnings(t *testing.T) {
	shanghai := time.FixedZone("CST", 8*3600)
	const sealed = "store: {kind: sqlite, path: /data, key: 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='}"
	for _, c := range []struct {
		name, text string
		zone       *time.Location
		want       int
	}{
		{"local is not UTC", "", shanghai, 0},
		{"local is UTC", "", time.UTC, 1},
		{"no hours are used", "retry_policies: []", time.UTC, 0},
		{"hours in the switch", "retry_policies: []\nretries: {scopes: [{match: {hour_range: 1-2}, value: off}]}", time.UTC, 1},
		{"UTC was asked for", "timezone: UTC", time.UTC, 0},
		{"a store in the clear", "store: {kind: sqlite, path: /data}", shanghai, 1},
		{"a server in the clear", "store: {kind: redis, url: 'redis://10.0.0.9:6379/0'}", shanghai, 1},
		{"a sealed store", sealed, shanghai, 0},
		{"more letters than there is room for", "store: {kind: sqlite, path: /data, key: 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='}\nidempotency: {entries: 1000}", shanghai, 1},
		{"a key for memory", "store: {key: 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='}", shanghai, 1},
		{"redrive of nothing", sealed + "\nretry_policies: [{name: default, redrive: [1h], dead_letter: none}]", shanghai, 1},
		{"redrive in memory", "retry_policies: [{name: default, redrive: [1h]}]", shanghai, 1},
		{"redrive", sealed + "\nretry_policies: [{name: default, redrive: [1h]}]", shanghai, 0},
		{"a policy hides others", "retry_policies: [{name: a}, {name: b}]", shanghai, 1},
	} {
		conf := parse(t, c.text)
		conf.zone = c.zone
		if got := conf.Warnings(); len(got) != c.want {
			t.Errorf("%s: Warnings = %q, want %d", c.name, got, c.want)
		}
	}
}

func TestTimezone(t *testing.T) {
	if got := parse(t, "timezone: UTC").Location(); got != time.UTC {
		t.Errorf("Location = %v, want UTC", got)
	}
	if got := Default().Location(); got != time.Local {
		t.Errorf("Location by default = %v, want Local", got)
	}
}

// Here: what the file may say. What the legal case does is shown where calls are made.
func TestCase_BO_04_SenselessDelaysAreRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"base_delay: 0", "retry_policies[0].base_delay: 0s must be above 0"},
		{"base_delay: 10s, max_delay: 5s", "retry_policies[0].max_delay: 5s is below base_delay 10s"},
		{"jitter_ratio: 1.5", "retry_policies[0].jitter_ratio: 1.5 must be from 0 to 1"},
	} {
		if got := faults(t, "retry_policies: [{name: default, "+c.text+"}]"); got != "test.yaml:1: "+c.want {
			t.Errorf("%s: Parse = %q, want %s", c.text, got, c.want)
		}
	}
	parse(t, "retry_policies: [{name: default, jitter_ratio: 0}]")
}

func TestOpenMaxFollowsOpen(t *testing.T) {
	if got := parse(t, "breakers: {host: {open: 60s}}").Breakers.Host.OpenMax; got != time.Minute {
		t.Errorf("open_max beside open 60s = %v, want 1m: it was not given", got)
	}
}

func TestRouteNames(t *testing.T) {
	c := parse(t, `routes: [{prefix: /pdd, upstreams: ["https://a.test"]}, {host: b.test, upstreams: ["https://a.test"], strip_prefix: false}]`)
	if c.Routes[0].Name != "pdd" || c.Routes[1].Name != "b.test" || !c.Routes[0].StripPrefix || c.Routes[1].StripPrefix {
		t.Errorf("routes = %+v, want names pdd and b.test, strip_prefix true unless written", c.Routes)
	}
}

func TestLimiter(t *testing.T) {
	got := parse(t, "slots: {max_in_flight: 9}\nretry_limits: {global: off}").Limiter()
	want := limiter.Config{
		MaxInFlight: 9, Adaptive: true, RetryShare: 0.3, BacklogShare: 0.1, Ramp: 5 * time.Second, MaxWait: 30 * time.Second, MaxWaiting: 10000,
		Breaker: breaker.Config{
			ConsecutiveFailures: 5, FailureRatio: 0.5, MinCalls: 20, Window: 10 * time.Second,
			Open: 500 * time.Millisecond, OpenMax: 5 * time.Second, Probes: 1,
		},
		Buckets: limiter.Buckets{
			Global:   limiter.Limit{Off: true},
			TaskType: limiter.Limit{Rate: 50.0 / 60, Burst: 50, Share: 0.2},
			Shop:     limiter.Limit{Rate: 5.0 / 60, Burst: 5, Share: 0.2},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Limiter (-want +got):\n%s", diff)
	}
}
