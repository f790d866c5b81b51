package admin

import (
	"strings"
	"testing"
	"time"

	"retryproxy/breaker"
	"retryproxy/limiter"
	"retryproxy/pause"
	"retryproxy/policy"
	"retryproxy/trend"
)

func sampleStanding() Standing {
	return Standing{
		Instance: "retryproxy", Version: "1.2.3", Started: began.Add(-time.Hour),
		Waiting: map[string]int{"breaker": 100, "backoff": 2, "tokens": 0, "parked": 3},
		Letters: 5, Doubts: 2, Newest: began.Add(-time.Minute), NewCodes: 1,
		Store:    StoreStanding{Kind: "sqlite", Durable: true, Healthy: true},
		Warnings: 2, Last: trend.Sum{Calls: 10, Succeeded: 8, Recovered: 3, Failed: 1},
	}
}

func sampleTrend() *trend.Trend {
	t := trend.New()
	t.Call(&trend.Call{Host: "a.test:80", Shop: "17", Failed: true, Ended: began.Add(-time.Minute)})
	t.Call(&trend.Call{Host: "a.test:80", Succeeded: true, Recovered: true, Ended: began})
	t.Attempt("a.test:80", began)
	t.Waiting(map[string]int{"breaker": 4}, began)
	return t
}

func TestOverview(t *testing.T) {
	d := newFake().deps()
	gates := append(d.Gates(),
		limiter.HostView{Host: "c.test:80", Breaker: breaker.Status{State: breaker.HalfOpen, Since: began}, Waiting: 30, Planned: 2, Outage: &limiter.Outage{
			Since: began.Add(-3 * time.Minute), Reach: "several_shops", Waiting: 30, Most: 44, GaveUp: 7, Release: began.Add(time.Minute),
		}},
		limiter.HostView{Host: "d.test:80", Capacity: 4, Limit: 20, Waiting: 6, Outage: &limiter.Outage{Since: began}},
		limiter.HostView{Host: "typo.test:80", Breaker: breaker.Status{State: breaker.Open, Since: began.Add(-time.Hour), Until: began.Add(-50 * time.Minute)}},
	)
	d.Gates = func() []limiter.HostView { return gates }
	got, err := encode((&server{Deps: d}).overview(began), "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "overview", string(got))
}

func TestLevel(t *testing.T) {
	gate := func(state breaker.State, probe time.Duration, waiting int, o *limiter.Outage) func(*Deps, *Standing) {
		return func(d *Deps, _ *Standing) {
			d.Gates = func() []limiter.HostView {
				return []limiter.HostView{{Host: "a", Breaker: breaker.Status{State: state, Until: began.Add(probe)}, Waiting: waiting, Outage: o}}
			}
		}
	}
	standing := func(change func(*Standing)) func(*Deps, *Standing) { return func(_ *Deps, s *Standing) { change(s) } }
	scope := func(value string, until time.Time) func(*Deps, *Standing) {
		return func(d *Deps, _ *Standing) {
			d.Retries = func() Switch {
				return Switch{"on", []Scope{{Match: policy.Match{Host: []string{"a"}}, Value: value, Until: until}}}
			}
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*Deps, *Standing)
		want   string
	}{
		{"all is well", nil, "ok"},
		{"warnings of the configuration", standing(func(s *Standing) { s.Warnings = 3 }), "ok"},
		{"calls wait for their own dates", standing(func(s *Standing) { s.Waiting = map[string]int{"backoff": 3, "parked": 1} }), "ok"},
		{"a host is cut off", gate(breaker.Open, time.Second, 0, nil), "bad"},
		{"a host is probed", gate(breaker.HalfOpen, -time.Hour, 1, nil), "bad"},
		{"a host that nobody calls any more", gate(breaker.Open, -11*time.Minute, 0, nil), "ok"},
		{"a host that calls wait for", gate(breaker.Open, -11*time.Minute, 1, nil), "bad"},
		{"a host on its way back", gate(breaker.Closed, 0, 1, &limiter.Outage{}), "warn"},
		{"the store fails", standing(func(s *Standing) { s.Store.Healthy = false }), "bad"},
		{"something was lost", standing(func(s *Standing) { s.Lost, s.LostAt = 1, began.Add(-time.Minute) }), "bad"},
		{"something was lost long ago", standing(func(s *Standing) { s.Lost, s.LostAt = 1, began.Add(-time.Hour) }), "warn"},
		{"a doubt", standing(func(s *Standing) { s.Doubts = 1 }), "warn"},
		{"a letter", standing(func(s *Standing) { s.Letters = 1 }), "warn"},
		{"a new code", standing(func(s *Standing) { s.NewCodes = 1 }), "warn"},
		{"a refused reload", standing(func(s *Standing) { s.ConfigFault = "line 3" }), "warn"},
		{"draining", standing(func(s *Standing) { s.Draining = true }), "warn"},
		{"retries off", func(d *Deps, _ *Standing) { d.Retries = func() Switch { return Switch{Default: "off"} } }, "warn"},
		{"retries off for a host", scope("off", time.Time{}), "warn"},
		{"retries were off for a host", scope("off", began), "ok"},
		{"retries on for a host", scope("on", time.Time{}), "ok"},
		{"a paused shop", func(d *Deps, _ *Standing) { d.Pauses = func() []pause.Pause { return make([]pause.Pause, 1) } }, "warn"},
		{"a tripped shop", func(d *Deps, _ *Standing) {
			d.Shops = func() []breaker.ShopStatus { return make([]breaker.ShopStatus, 1) }
		}, "warn"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Standing{Started: began, Store: StoreStanding{Healthy: true}}
			d := newFake().deps()
			d.Gates = func() []limiter.HostView { return nil }
			d.Pauses = func() []pause.Pause { return nil }
			d.Shops = func() []breaker.ShopStatus { return nil }
			if tt.change != nil {
				tt.change(&d, &s)
			}
			d.Standing = func() Standing { return s }
			if got := (&server{Deps: d}).overview(began).Level; got != tt.want {
				t.Errorf("level = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestTrendArguments(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/trend/hosts?minutes=0":    "minutes: want a number from 1 to 60",
		"/api/v1/trend/shops?minutes=61":   "minutes: want a number from 1 to 60",
		"/api/v1/trend/shops?minutes=many": `not \"many\"`,
	} {
		if status, _, body := exchange(t, New(newFake().deps()), "GET", path, ""); status != 400 || !strings.Contains(body, want) {
			t.Errorf("%s = %d %s, want 400 with %s", path, status, body, want)
		}
	}
}
