package main

import (
	"strings"
	"testing"
	"time"

	"retryproxy/attempt"
)

// seenOverview is GET /api/v1/overview as a page reads it.
type seenOverview struct {
	Level string
	Down  []struct {
		Host, State, Reach string
		Since              time.Time
		Waiting            int
		NextProbe          time.Time `json:"next_probe"`
	} `json:"hosts_down"`
	Ramping              []struct{ Host string }
	Waiting, Parked      int
	ByCause              map[string]int `json:"waiting_by_cause"`
	Lost, Doubts         int
	Letters              int
	Newest               time.Time `json:"newest_letter"`
	ShopsPaused          int       `json:"shops_paused"`
	NewCodes             int       `json:"new_codes"`
	Retries, ConfigFault string
	Store                struct {
		Kind             string
		Durable, Healthy bool
	}
	Last struct{ Calls, Succeeded, Recovered, Failed int } `json:"last_10m"`
}

// overview asks for the overview after what the store says has become known.
func (r *rig) overview() (v seenOverview) {
	r.t.Helper()
	rest(figuresFor)
	r.admin("GET", "/api/v1/overview", "", &v)
	return v
}

// An outage as the overview and the trend show it, from the first failures to the end of
// the ramp.
func TestOverviewOfAnOutage(t *testing.T) {
	bubble(t, func(r *rig) {
		if v := r.overview(); v.Level != "ok" || v.Retries != "on" || !v.Store.Healthy || v.Store.Durable || v.Store.Kind != "memory" {
			t.Errorf("before anything happened: %+v", v)
		}
		r.upstream("u2.test:80", answer(200, "ok"))
		r.get("http://u2.test/x", "X-Shop-Id: s2")
		fail := answer(503, "")
		r.upstream("u1.test:80", fail, fail, fail, fail, fail, answer(200, "ok"))
		for range 5 {
			r.get("http://u1.test/x", "X-Retry-Count: 3", "X-Shop-Id: s1")
		}
		var waiting []<-chan reply
		for range 3 {
			waiting = append(waiting, r.async(func() reply { return r.get("http://u1.test/x", "X-Shop-Id: s2") }))
		}
		rest(100 * time.Millisecond)
		var v seenOverview
		r.admin("GET", "/api/v1/overview", "", &v)
		if len(v.Down) != 1 || v.Level != "bad" || v.Waiting != 3 || v.ByCause["breaker"] != 3 || v.Lost != 0 {
			t.Fatalf("during the outage: %+v", v)
		}
		d := v.Down[0]
		if left := time.Until(d.NextProbe); d.Host != "u1.test:80" || d.State != "open" || d.Waiting != 3 || d.Reach != "one_shop" || left <= 0 || left > 2*time.Second {
			t.Errorf("the host that is down: %+v, its next probe in %s", d, left)
		}
		for _, w := range waiting {
			r.is("a call that waited", (<-w).Status, 200)
		}
		v = seenOverview{}
		r.admin("GET", "/api/v1/overview", "", &v)
		if len(v.Down) != 0 || len(v.Ramping) != 1 || v.Ramping[0].Host != "u1.test:80" || v.Level != "warn" || v.Waiting != 0 {
			t.Errorf("after the outage: %+v", v)
		}
		if v.Last.Calls != 9 || v.Last.Succeeded != 4 || v.Last.Recovered != 0 || v.Last.Failed != 5 {
			t.Errorf("the last 10 minutes: %+v", v.Last)
		}
		time.Sleep(15 * time.Minute)
		if v = r.overview(); v.Level != "ok" || v.Last.Calls != 0 {
			t.Errorf("long after the outage: %+v", v)
		}
		r.wantTrend()
	})
}

// is compares a number.
func (r *rig) is(what string, got, want int) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s = %d, want %d", what, got, want)
	}
}

// wantTrend checks that the last hour has the outage.
func (r *rig) wantTrend() {
	r.t.Helper()
	var hosts struct {
		Step  int `json:"step_s"`
		Start time.Time
		Hosts []struct {
			Host                                  string
			Calls, Succeeded, Recovered, Attempts []int
		}
		Waiting map[string][]int
	}
	r.admin("GET", "/api/v1/trend/hosts", "", &hosts)
	if len(hosts.Hosts) != 2 || hosts.Step != 60 || len(hosts.Hosts[0].Calls) != 60 {
		r.t.Fatalf("trend of hosts: %+v", hosts)
	}
	u1 := hosts.Hosts[0]
	r.is("calls to u1", total(u1.Calls), 8)
	r.is("of them succeeded", total(u1.Succeeded), 3)
	r.is("attempts", total(u1.Attempts), 8)
	var shops struct {
		Shops []struct {
			Shop          string
			Calls, Failed []int
		}
	}
	r.admin("GET", "/api/v1/trend/shops?minutes=60", "", &shops)
	if len(shops.Shops) != 2 || shops.Shops[0].Shop != "s1" || total(shops.Shops[0].Failed) != 5 || total(shops.Shops[1].Calls) != 4 || total(shops.Shops[1].Failed) != 0 {
		r.t.Errorf("trend of shops: %+v", shops)
	}
}

func total(list []int) (sum int) {
	for _, n := range list {
		sum += n
	}
	return sum
}

// What waits is noted while it waits.
func TestTrendOfWaiting(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(503, "", "Retry-After: 20"), answer(200, "ok"))
		got := r.get("http://u1.test/x")
		r.is("status", got.Status, 200)
		var v struct{ Waiting map[string][]int }
		r.admin("GET", "/api/v1/trend/hosts?minutes=2", "", &v)
		if n := v.Waiting["retry_after"]; total(n) == 0 || max(n[0], n[1]) != 1 {
			t.Errorf("waiting = %v, want one call that waited for its retry_after", v.Waiting)
		}
		if v := r.overview(); v.Last.Recovered != 1 || v.Last.Calls != 1 {
			t.Errorf("last 10 minutes: %+v, want one call that recovered", v.Last)
		}
	}, "deadline: 6s", "deadline: 60s")
}

// Letters are counted as they are made; those that a bound drops are lost.
func TestOverviewOfLetters(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", answer(502, "broken"))
		began := time.Now()
		for range 3 {
			r.post("http://u1.test/x", "{}")
		}
		v := r.overview()
		if v.Letters != 3 || v.Lost != 0 || v.Level != "warn" || !v.Store.Durable || v.Newest.Before(began) || v.Newest.After(time.Now()) {
			t.Errorf("with letters: %+v", v)
		}
		r.is("letters in doubt", v.Doubts, 0)
		r.post("http://u1.test/x", "{}", keyed)
		r.post("http://u1.test/x", "{}")
		time.Sleep(2 * time.Second) // what is too much goes each second
		if v = r.overview(); v.Letters != 4 || v.Lost != 1 || v.Level != "bad" {
			t.Errorf("with a letter more than are kept: %+v", v)
		}
		time.Sleep(time.Hour)
		if v = r.overview(); v.Lost != 1 || v.Level != "warn" {
			t.Errorf("an hour later: %+v", v)
		}
	}, patches(lays("dead_letters: {max: 4}"), breakerOff)...)
}

// A shop that a platform stopped, and a host that the switch leaves out.
func TestOverviewOfAPausedShop(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", saysToken)
		r.shopCall("s1", "20")
		if v := r.overview(); v.ShopsPaused != 1 || v.Level != "warn" {
			t.Errorf("with a paused shop: %+v", v)
		}
		r.admin("POST", "/api/v1/shops/s1/resume", `{"by":"ann","note":"passed its check"}`, nil)
		if v := r.overview(); v.ShopsPaused != 0 || v.Level != "ok" {
			t.Errorf("after it was resumed: %+v", v)
		}
		r.admin("PUT", "/api/v1/retries", `{"value":"off","match":{"host":"u1.test"}}`, nil)
		if v := r.overview(); v.Retries != "mixed" || v.Level != "warn" {
			t.Errorf("with a host switched off: %+v", v)
		}
	}, ownPreset(t, stopping)...)
}

// A code that no preset knows is listed until somebody has looked at it.
func TestNewCodes(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", saysToken)
		began := time.Now()
		r.shopCall("s1", "77")
		time.Sleep(time.Minute)
		id := r.shopCall("s2", "77").Header.Get("X-Call-Id")
		var v struct {
			Codes []struct {
				Platform, Operation, Code, Host, Shop string
				CallID                                string `json:"call_id"`
				First, Last                           time.Time
				Count                                 int
			}
		}
		r.admin("GET", "/api/v1/newcodes", "", &v)
		if len(v.Codes) != 1 {
			t.Fatalf("codes = %+v, want one", v.Codes)
		}
		c := v.Codes[0]
		if c.Platform != "mine" || c.Operation != "order" || c.Code != "77" || c.Host != "u1.test:80" || c.Shop != "s2" || c.CallID != id || c.Count != 2 ||
			c.First.Before(began) || c.Last.Sub(c.First) < time.Minute {
			t.Errorf("code = %+v", c)
		}
		if o := r.overview(); o.NewCodes != 1 || o.Level != "warn" {
			t.Errorf("overview: %+v", o)
		}
		if got := r.admin("DELETE", "/api/v1/newcodes?platform=mine&code=77&by=ann", "", &v); got.Status != 200 || len(v.Codes) != 0 {
			t.Errorf("seen = %d %s", got.Status, got.Body)
		}
		r.shopCall("s1", "77")
		if o := r.overview(); o.NewCodes != 0 || o.Level != "ok" {
			t.Errorf("overview after somebody looked: %+v", o)
		}
	}, ownPreset(t, stopping)...)
}

// Letters by the hour they were made in, and what policies plan and heal.
func TestLetterHoursAndHealed(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", answer(502, "broken"))
		r.upstream("u2.test:80", answer(503, ""), answer(200, "ok"))
		r.post("http://u1.test/x", "{}")
		time.Sleep(time.Hour)
		r.post("http://u1.test/x", "{}")
		r.post("http://u1.test/x", "{}")
		for range 2 {
			r.get("http://u2.test/x")
		}
		r.ended()
		var hours struct{ Reasons map[string][]int }
		r.admin("GET", "/api/v1/deadletters/hours?hours=3", "", &hours)
		if n := hours.Reasons["manual_review"]; len(n) != 3 || n[1] != 1 || n[2] != 2 {
			t.Errorf("letters by hour = %v", hours)
		}
		var report struct {
			Policies []struct{ Arms []struct{ Healed []int } }
		}
		r.admin("GET", "/api/v1/report", "", &report)
		if h := report.Policies[0].Arms[0].Healed; len(h) != 10 || h[0] != 1 || h[1] != 1 || total(h) != 2 {
			t.Errorf("healed = %v, want one call on each of the first two attempts", h)
		}
		var policies []struct {
			Name    string
			Delays  []int `json:"delays_ms"`
			Longest int   `json:"longest_ms"`
		}
		r.admin("GET", "/api/v1/policies", "", &policies)
		if p := policies[0]; len(p.Delays) != 3 || p.Delays[0] != 100 || p.Delays[2] != 400 || p.Longest != 4840 {
			t.Errorf("policies = %+v", policies)
		}
	})
}

// What an answer means is judged by the rules in force, as the command does by a file.
func TestVerdictOfAnAnswer(t *testing.T) {
	type verdict struct {
		Preset, Policy, Operation, Call, Code, Is, Rule, Class, Reason, Next string
		Status                                                               int
	}
	bubble(t, func(r *rig) {
		for _, tt := range []struct {
			body string
			want verdict
		}{
			{`{"platform":"mine","operation":"order","body":"{\"code\":20}"}`, verdict{"mine", "default", "order", "a write", "20", "risk_control", "risk", "permanent", "risk_control", "risk_control: the shop is stopped there until a person resumes it", 200}},
			{`{"platform":"mine","operation":"order","body":"{\"code\":77}"}`, verdict{"mine", "default", "order", "a write", "77", "new_code", "", "unknown", "new_code", "manual_review: not repeated, or asked about where the policy has a query", 200}},
			{`{"platform":"mine","operation":"get","method":"GET","status":503}`, verdict{"mine", "default", "get", "a read", "", "nothing: the status decides", "", "transient", "status_503", "retried", 503}},
		} {
			var got verdict
			if a := r.admin("POST", "/api/v1/verdict", tt.body, &got); a.Status != 200 || got != tt.want {
				t.Errorf("%s = %d %+v, want %+v", tt.body, a.Status, got, tt.want)
			}
		}
		if a := r.admin("POST", "/api/v1/verdict", `{"platform":"nobody"}`, nil); a.Status != 400 {
			t.Errorf("an unknown platform = %d, want 400", a.Status)
		}
	}, ownPreset(t, stopping)...)
}

// Who calls how, and the line that mends it.
func TestCoverageOfClients(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(200, "ok"))
		for range 3 {
			r.get("http://u1.test/x", "X-Shop-Id: s1", "User-Agent: bot/1")
		}
		r.upstream("u3.test:80", silent)
		r.leaves("http://u3.test/", 100*time.Millisecond)
		r.tunnelEnd("u2.test:443", silentEnd)
		c, _, _ := r.connect("u2.test:443")
		c.Close()
		r.ended()
		var v struct {
			Clients []struct {
				Client   string
				Agents   []string `json:"user_agents"`
				Modes    map[string]int
				Calls    int
				Opaque   float64 `json:"opaque_share"`
				NoShop   float64 `json:"no_shop_share"`
				NoTask   float64 `json:"no_task_share"`
				Patience int     `json:"patience_p50_ms"`
				Advice   []struct {
					ID, Finding string
					Fix         []struct{ Into, Line string }
				}
			}
		}
		r.admin("GET", "/api/v1/coverage", "", &v)
		if len(v.Clients) != 1 {
			t.Fatalf("clients = %+v, want one", v.Clients)
		}
		k := v.Clients[0]
		if k.Client == "" || len(k.Agents) != 1 || k.Agents[0] != "bot/1" || k.Modes["forward"] != 4 || k.Modes["opaque"] != 1 || k.Calls != 5 || k.Opaque != 0.2 || k.NoShop != 0.25 || k.NoTask != 1 {
			t.Errorf("client = %+v", k)
		}
		if k.Patience < 90 || k.Patience > 110 {
			t.Errorf("patience = %d ms, want about 100", k.Patience)
		}
		if len(k.Advice) != 1 || k.Advice[0].ID != "traffic.tunnels" || len(k.Advice[0].Fix) == 0 {
			t.Errorf("advice = %+v, want one about the tunnel", k.Advice)
		}
		if page := r.admin("GET", "/coverage", "", nil); !strings.Contains(page.Body, "bot/1") || !strings.Contains(page.Body, k.Advice[0].Fix[0].Into) {
			t.Errorf("the page says %s", page.Body)
		}
	})
}

// The pages understand what the API says: none shows a fault, with a letter, a dead host,
// and calls that wait.
func TestPagesOfTheAPI(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", answer(503, "down", "Retry-After: 2"))
		r.upstream("u2.test:80", answer(500, "who knows"))
		for range 6 { // a doubt each, and a shop that is stopped there
			r.post("http://u2.test/order", "x", "X-Shop-Id: s2")
		}
		call := r.async(func() reply { return r.get("http://u1.test/wait", "X-Shop-Id: s1", "X-Request-Id: bot-1") })
		rest(time.Second)
		for _, path := range []string{"/trace", "/trace?q=bot-1", "/person", "/now", "/shops", "/line", "/line?state=parked", "/policies", "/coverage", "/audit"} {
			if page := r.admin("GET", path, "", nil); page.Status != 200 || strings.Contains(page.Body, `role="alert"`) {
				t.Errorf("%s = %d %s", path, page.Status, page.Body)
			}
		}
		<-call
	})
}

func TestWhatTheTrendCounts(t *testing.T) {
	for _, tt := range []struct {
		result, reason, mode string
		attempts             int
		want                 string // empty: it is not counted
	}{
		{"success", "ok", "forward", 1, "succeeded"},
		{"recovered", "ok", "reverse", 2, "recovered"},
		{"failed", "attempts_exhausted", "forward", 4, "failed"},
		{"failed", "breaker_open", "forward", 0, "failed"},
		{"cancelled", "client_gone", "forward", 1, "left"},
		{"rejected", "store_unavailable", "forward", 0, "failed"},
		{"rejected", "auth_required", "forward", 0, ""},
		{"rejected", "parked", "forward", 1, ""}, // it counts when it is over
		{"replay", "ok", "forward", 0, ""},
		{"success", "ok", "local", 0, ""},
		{"success", "ok", "connect", 1, "succeeded"}, // opaque
		{"success", "ok", "connect", 0, ""},          // opened
	} {
		s := &attempt.Summary{Result: tt.result, Reason: tt.reason, Mode: tt.mode, Host: "h", Labels: attempt.Labels{Shop: "s"}, Ended: time.Unix(60, 0), Attempts: make(attempt.History, tt.attempts)}
		c, ok := inTrend(s)
		got := ""
		switch {
		case !ok:
		case c.Host != "h" || c.Shop != "s" || !c.Ended.Equal(s.Ended):
			got = "of nobody"
		case c.Recovered && c.Succeeded:
			got = "recovered"
		case c.Succeeded:
			got = "succeeded"
		case c.Failed:
			got = "failed"
		default:
			got = "left"
		}
		if got != tt.want {
			t.Errorf("%s, %s, %s with %d attempts counts as %q, want %q", tt.result, tt.reason, tt.mode, tt.attempts, got, tt.want)
		}
	}
}
