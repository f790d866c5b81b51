package admin

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"retryproxy/access"
	"retryproxy/attempt"
	"retryproxy/breaker"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/journal"
	"retryproxy/limiter"
	"retryproxy/newcode"
	"retryproxy/patience"
	"retryproxy/pause"
	"retryproxy/policy"
	"retryproxy/trend"
)

var update = flag.Bool("update", false, "write the golden files anew")

// began is when everything in these tests happens.
var began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// sampleCalls are one call that waits and two that ended, oldest first.
func sampleCalls() []*attempt.Summary {
	failed := attempt.Attempt{
		N: 1, Started: began, Duration: 1500 * time.Millisecond, Host: "a.test:80", Status: 503,
		Verdict: classify.Verdict{
			Class: classify.Transient, Reason: "status_503", Basis: classify.BasisRefused,
			HostFault: true, RetryAfter: 2 * time.Second,
		},
	}
	good := attempt.Attempt{
		N: 2, Count: 1, Started: began.Add(4 * time.Second), Duration: 20 * time.Millisecond, Host: "a.test:80", Status: 200,
		Delay: 2500 * time.Millisecond, Cause: "retry_after", Reused: true, UpstreamID: "u-9",
		Verdict: classify.Verdict{Class: classify.Success, Reason: "status_200", Executed: classify.ExecutedYes, Alive: true},
	}
	return []*attempt.Summary{
		{
			ID: "aa", Mode: "forward", Policy: "order_ship", Client: "127.0.0.1:5000", State: "done", Result: "recovered", Reason: "ok",
			Labels: attempt.Labels{Shop: "17", ShopTier: "vip", TaskType: "order_ship"}, Method: "POST", Scheme: "http",
			Host: "a.test:80", Path: "/orders", KeyHash: "0123456789abcdef", Status: 200, Executed: classify.ExecutedYes,
			Attempts: attempt.History{failed, good}, Started: began, Ended: began.Add(4020 * time.Millisecond), Duration: 4020 * time.Millisecond,
			Overhead: 90 * time.Microsecond, Bytes: 12, Waits: []attempt.Wait{{Cause: "retry_after", For: 2500 * time.Millisecond}},
		},
		{
			ID: "bb", Mode: "forward", Policy: "default", Client: "127.0.0.1:5001", State: "done", Result: "rejected", Reason: "destination_denied",
			Method: "GET", Scheme: "http", Host: "169.254.169.254:80", Path: "/", Status: 403, Started: began.Add(time.Second), Ended: began.Add(time.Second),
		},
		{
			ID: "cc", Mode: "reverse", Policy: "default", Client: "127.0.0.1:5002", State: "waiting", Cause: "tokens", Reason: "shop", Place: 3,
			NextAt: began.Add(time.Minute), Labels: attempt.Labels{Shop: "17"}, Method: "GET", Scheme: "https", Host: "b.test:443", Path: "/x",
			Started: began.Add(-time.Second), Duration: time.Second, Attempts: attempt.History{failed},
		},
	}
}

// salts are those of the calls in these tests.
var salts = journal.SaltsOf(nil)

// fake is everything behind the listener, and what was ordered of it.
type fake struct {
	sw      Switch
	resets  []string
	asked   Question
	answer  Answer
	query   journal.Query   // of the last Find
	history journal.Journal // nil: there is none
	reload  error
	notYet  string // why it is not ready
}

// deps are the Deps of f.
func (f *fake) deps() Deps {
	hosts, err := access.NewClients(access.ClientsConfig{Hosts: []string{"admin.example"}})
	if err != nil {
		panic(err)
	}
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "retryproxy_test_total"})
	registry := prometheus.NewRegistry()
	registry.MustRegister(counter)
	return Deps{
		Calls: sampleCalls,
		Find: func(ctx context.Context, q journal.Query) ([]*attempt.Summary, string, error) {
			f.query = q
			return journal.Look(ctx, f.history, q, sampleCalls(), began)
		},
		Words: salts.Words,
		Records: func(_ context.Context, keyHash string) ([]idempotency.Record, error) {
			if keyHash != "0123456789abcdef" {
				return nil, nil
			}
			return []idempotency.Record{{
				State: idempotency.StateParked, Owner: "aa", Receipt: "aa", Reason: "retry_limited", Labels: attempt.Labels{Shop: "17"}, Policy: "order_ship",
				Attempts: 2, Created: began, Updated: began.Add(4 * time.Second), NextAt: began.Add(time.Minute), Deadline: began.Add(5 * time.Minute),
			}}, nil
		},
		Zone: func() *time.Location { return time.FixedZone("CST", 8*3600) },
		Pauses: func() []pause.Pause {
			return []pause.Pause{
				{Key: pause.Key{Platform: "pdd", Shop: "s1"}, Reason: pause.RiskControl, Since: began, Code: "70034", Message: "code 70034; rule risk", Host: "h:443", Calls: 3},
				{Key: pause.Key{Platform: "pdd", Operation: "list"}, Reason: pause.QuotaExhausted, Since: began, Until: began.Add(time.Hour), Host: "h:443"},
			}
		},
		Gates: func() []limiter.HostView {
			return []limiter.HostView{
				{Host: "a.test:80", Breaker: breaker.Status{State: breaker.Open, Reason: "consecutive_failures", Since: began, Until: began.Add(time.Second), Row: 5, Calls: 5, Failures: 5}, Waiting: 2, Planned: 1},
				{Host: "b.test:443", InFlight: 3},
			}
		},
		Shops: func() []breaker.ShopStatus {
			return []breaker.ShopStatus{{Shop: "17", Host: "a.test:80", Reason: "status_401", Row: 3, Since: began, Probe: began.Add(30 * time.Second)}}
		},
		Reset: func(shop, host string) bool {
			f.resets = append(f.resets, shop+"|"+host)
			return host == "a.test:80"
		},
		Limits: func() []limiter.BucketView {
			return []limiter.BucketView{{Dimension: "global", Rate: 5, Burst: 300, Tokens: 299.5}, {Dimension: "shop", Name: "17", Rate: 0.125, Burst: 5, Waiting: 1, NextAt: began.Add(8 * time.Second)}}
		},
		Patience: func() []patience.View {
			return []patience.View{{Kind: "order_ship", Calls: 40, Left: 10, Waited: 12, WaitedLeft: 9, Deadline: 5 * time.Minute, P50: 30 * time.Second, P90: 41 * time.Second}}
		},
		Config: func() []byte {
			return []byte("instance: retryproxy\nadmin: {token: <secret>}\nshops: {}\nretry_policies:\n  - {name: default, max_retries: 3, base_delay: 1s, retry_statuses: [408, 5xx], honour_retry_after: true, variants: [{name: slow, weight: 1, max_retries: 1}]}\n")
		},
		Reload:     func() error { return f.reload },
		Retries:    func() Switch { return f.sw },
		SetRetries: func(s Switch) error { f.sw = s; return nil },
		Explain: func(q Question) (any, error) {
			f.asked = q
			if q.URL == "nonsense" {
				return nil, errors.New("not a target")
			}
			return map[string]string{"policy": "default"}, nil
		},
		Standing: sampleStanding,
		Trend: Trend{
			Hosts: func(minutes int) trend.Hosts { return sampleTrend().Hosts(minutes, began) },
			Shops: func(minutes int) trend.Shops { return sampleTrend().Shops(minutes, began) },
		},
		Problems: func() Problems {
			return Problems{"/etc/retryproxy.yaml", []string{"timezone: Local is UTC here"}, &Reloaded{began, false, "line 3: field capp not found"}}
		},
		NewCodes: NewCodes{
			List: func() []newcode.Code {
				return []newcode.Code{{Platform: "pdd", Operation: "order.get", Code: "10019", Sub: "x", Message: "said", Host: "h:443", Shop: "s1", CallID: "aa", First: began, Last: began.Add(time.Second), Count: 2}}
			},
			See: func(platform, code, by string) int {
				f.resets = append(f.resets, platform+"|"+code+"|"+by)
				return map[string]int{"10019": 1}[code]
			},
		},
		Verdict: func(a Answer) (any, error) {
			f.answer = a
			if a.Platform == "nobody" {
				return nil, errors.New("platform: there is no preset \"nobody\"")
			}
			return map[string]string{"rule": "busy"}, nil
		},
		Coverage: func() any { return map[string][]string{"clients": {}} },
		Waits: func(policy string) Waits {
			if policy == "default/slow" {
				return Waits{[]time.Duration{time.Minute}, 75 * time.Second}
			}
			return Waits{[]time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, 67 * time.Second}
		},
		Metrics: registry,
		Ready:   func() (bool, string) { return f.notYet == "", f.notYet },
		Hosts:   hosts.AllowedHost,
	}
}

func newFake() *fake { return &fake{sw: Switch{Default: "on"}} }

// exchange sends one request to a handler on a loopback listener.
func exchange(t *testing.T, h http.Handler, method, path, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	client := server.Client()
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}

func TestJSONShapes(t *testing.T) {
	tests := []struct{ name, method, path, body string }{
		{"calls", "GET", "/api/v1/calls", ""},
		{"call", "GET", "/api/v1/calls/aa", ""},
		{"call_unknown", "GET", "/api/v1/calls/zz", ""},
		{"breakers", "GET", "/api/v1/breakers", ""},
		{"limits", "GET", "/api/v1/limits", ""},
		{"patience", "GET", "/api/v1/patience", ""},
		{"policies", "GET", "/api/v1/policies", ""},
		{"config", "GET", "/api/v1/config", ""},
		{"retries", "PUT", "/api/v1/retries", `{"default":"on","scopes":[{"match":{"host":"a.test","hour_range":["2-6"]},"value":"off","until":"2099-12-01T02:00:00+08:00"}]}`},
		{"shops", "GET", "/api/v1/shops", ""},
		{"explain", "POST", "/api/v1/explain", `{"url":"http://a.test/"}`},
		{"trend_hosts", "GET", "/api/v1/trend/hosts?minutes=2", ""},
		{"trend_shops", "GET", "/api/v1/trend/shops?minutes=2", ""},
		{"newcodes", "GET", "/api/v1/newcodes", ""},
		{"problems", "GET", "/api/v1/config/problems", ""},
		{"reload", "POST", "/api/v1/config/reload", ""},
		{"index", "GET", "/", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, _, got := exchange(t, New(newFake().deps()), test.method, test.path, test.body)
			golden(t, test.name, got)
		})
	}
}

// golden compares with testdata/name.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestCallsAreFiltered(t *testing.T) {
	tests := []struct{ query, want string }{
		{"", "cc aa bb"}, // in progress first, then the newest end first
		{"?shop=17", "cc aa"},
		{"?host=a.test", "aa"},
		{"?host=A.test:80", "aa"},
		{"?host=a.test:81", ""},
		{"?state=waiting", "cc"},
		{"?task_type=order_ship", "aa"},
		{"?key=0123456789abcdef", "aa"},
		{"?key_hash=0123456789ABCDEF", "aa"},
		{"?key=other", ""},
		{"?id=bb", "bb"},
		{"?result=rejected", "bb"},
		{"?reason=status_503", "cc aa"},
		{"?limit=1", "cc"},
		{"?shop=17&state=done", "aa"},
	}
	for _, test := range tests {
		_, _, body := exchange(t, New(newFake().deps()), "GET", "/api/v1/calls"+test.query, "")
		var calls []struct{ ID string }
		if err := json.Unmarshal([]byte(body), &calls); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, c := range calls {
			ids = append(ids, c.ID)
		}
		if got := strings.Join(ids, " "); got != test.want {
			t.Errorf("calls%s = %q, want %q", test.query, got, test.want)
		}
	}
	if status, _, _ := exchange(t, New(newFake().deps()), "GET", "/api/v1/calls?limit=many", ""); status != 400 {
		t.Errorf("calls?limit=many = %d, want 400", status)
	}
}

func TestToken(t *testing.T) {
	d := newFake().deps()
	d.Accounts = func() []Account { return []Account{{"admin", Admin, "s3cret"}} }
	tests := []struct {
		name, path, authorization string
		want                      int
	}{
		{"none", "/api/v1/calls", "", 401},
		{"wrong", "/api/v1/calls", "Bearer s3cre", 401},
		{"another scheme", "/api/v1/calls", "Basic s3cret", 401},
		{"right", "/api/v1/calls", "Bearer s3cret", 200},
		{"scheme in lower case", "/api/v1/calls", "bearer s3cret", 200},
		{"unknown path", "/api/v1/what", "", 401},
		{"live", "/livez", "", 200},
		{"live, alias", "/healthz", "", 200},
		{"ready", "/readyz", "", 200},
		{"metrics", "/metrics", "", 200},
		{"index", "/", "", 200},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			status, h, body := exchange(t, New(d), "GET", test.path, "", "Authorization", test.authorization)
			if status != test.want {
				t.Errorf("GET %s with %q = %d, want %d", test.path, test.authorization, status, test.want)
			}
			if status == 401 && (h.Get("WWW-Authenticate") == "" || h.Get("Content-Type") != "application/problem+json") {
				t.Errorf("401 = %v %s, want a challenge and a problem document", h, body)
			}
		})
	}
}

func TestHostMustBeOurs(t *testing.T) {
	tests := []struct {
		host string
		want int
	}{
		{"localhost", 200},
		{"LOCALHOST.:9090", 200},
		{"127.0.0.1:9090", 200},
		{"127.9.9.9", 200},
		{"[::1]:9090", 200},
		{"[::ffff:127.0.0.1]", 200},
		{"admin.example:9090", 200},
		{"evil.example", 403},
		{"localhost.evil.example:9090", 403},
		{"10.0.0.1:9090", 403},
	}
	for _, test := range tests {
		if got, _, _ := exchange(t, New(newFake().deps()), "GET", "/livez", "", "Host", test.host); got != test.want {
			t.Errorf("GET with Host %s = %d, want %d", test.host, got, test.want)
		}
		if got, _, _ := exchange(t, Health(newFake().deps()), "GET", "/livez", "", "Host", test.host); got != 200 {
			t.Errorf("GET with Host %s on the health listener = %d, want 200", test.host, got)
		}
	}
}

func TestOrdersFromOtherSitesAreRefused(t *testing.T) {
	tests := []struct {
		name   string
		method string
		header []string
		want   int
	}{
		{"no browser", "POST", nil, 200},
		{"same origin", "POST", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"cross-site", "POST", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"same site", "POST", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"origin of another", "POST", []string{"Origin", "http://evil.example"}, 403},
		{"origin null", "POST", []string{"Origin", "null"}, 403},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			status, _, body := exchange(t, New(newFake().deps()), test.method, "/api/v1/config/reload", "", test.header...)
			if status != test.want {
				t.Errorf("%s with %v = %d %s, want %d", test.method, test.header, status, body, test.want)
			}
		})
	}
}

func TestHealthListenerShowsNothingElse(t *testing.T) {
	for _, path := range []string{"/", "/api/v1/calls", "/api/v1/config"} {
		if status, _, _ := exchange(t, Health(newFake().deps()), "GET", path, ""); status != 404 {
			t.Errorf("health GET %s = %d, want 404", path, status)
		}
	}
	for _, path := range []string{"/livez", "/healthz", "/readyz", "/metrics"} {
		if status, _, _ := exchange(t, Health(newFake().deps()), "GET", path, ""); status != 200 {
			t.Errorf("health GET %s = %d, want 200", path, status)
		}
	}
}

func TestReadySaysWhyNot(t *testing.T) {
	f := newFake()
	f.notYet = "draining"
	status, _, body := exchange(t, New(f.deps()), "GET", "/readyz", "")
	if status != 503 || body != "draining\n" {
		t.Errorf("readyz = %d %q, want 503 and the reason", status, body)
	}
	if status, _, _ := exchange(t, New(f.deps()), "GET", "/livez", ""); status != 200 {
		t.Errorf("livez while not ready = %d, want 200", status)
	}
	if status, _, _ := exchange(t, New(newFake().deps()), "HEAD", "/readyz", ""); status != 200 {
		t.Errorf("HEAD readyz = %d, want 200", status)
	}
}

func TestMetrics(t *testing.T) {
	_, _, body := exchange(t, New(newFake().deps()), "GET", "/metrics", "")
	if !strings.Contains(body, "retryproxy_test_total 0") {
		t.Errorf("metrics = %q, want retryproxy_test_total", body)
	}
}

func TestResetBreaker(t *testing.T) {
	tests := []struct {
		path, want string
		status     int
	}{
		{"/api/v1/breakers/a.test:80/reset", "|a.test:80", 200},
		{"/api/v1/breakers/A.test%3A80/reset", "|a.test:80", 200},
		{"/api/v1/breakers/17@a.test:80/reset", "17|a.test:80", 200},
		{"/api/v1/breakers/shop%2F1%40x%40a.test%3A80/reset", "shop/1@x|a.test:80", 200},
		{"/api/v1/breakers/%5B::1%5D:80/reset", "|[::1]:80", 404},
		{"/api/v1/breakers/a.test/reset", "", 400},
		{"/api/v1/breakers/@a.test:80/reset", "", 400},
	}
	for _, test := range tests {
		f := newFake()
		status, _, body := exchange(t, New(f.deps()), "POST", test.path, "")
		if got := strings.Join(f.resets, " "); got != test.want || status != test.status {
			t.Errorf("POST %s = %d %s, reset %q, want %d and %q", test.path, status, body, got, test.status, test.want)
		}
	}
	if status, h, _ := exchange(t, New(newFake().deps()), "GET", "/api/v1/breakers/a.test:80/reset", ""); status != 405 || h.Get("Content-Type") != "application/problem+json" {
		t.Errorf("GET reset = %d %v, want 405 and a problem document", status, h)
	}
}

func TestConfigAsYAML(t *testing.T) {
	for _, how := range [][2]string{{"?format=yaml", ""}, {"", "application/yaml"}} {
		_, h, body := exchange(t, New(newFake().deps()), "GET", "/api/v1/config"+how[0], "", "Accept", how[1])
		if h.Get("Content-Type") != "application/yaml" || !strings.HasPrefix(body, "instance: retryproxy\n") {
			t.Errorf("config %q = %v %q, want YAML", how, h, body)
		}
	}
}

func TestReloadNamesEachFault(t *testing.T) {
	f := newFake()
	f.reload = errors.Join(errors.New("config.yaml:3: drain: want a duration"), errors.New("config.yaml:9: shop: unknown key"))
	status, _, body := exchange(t, New(f.deps()), "POST", "/api/v1/config/reload", "")
	var p problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatal(err)
	}
	want := []string{"config.yaml:3: drain: want a duration", "config.yaml:9: shop: unknown key"}
	if status != 422 || p.Reason != "bad_config" || !cmp.Equal(p.Errors, want) {
		t.Errorf("reload of a bad file = %d %s, want 422 with %q", status, body, want)
	}
}

func TestSwitchOrders(t *testing.T) {
	host := policy.Match{Host: []string{"a.test"}}
	old := Switch{"on", []Scope{{policy.Match{Shop: []string{"9"}}, "observe", time.Time{}}, {host, "on", time.Time{}}, {policy.Match{}, "off", began}}}
	tests := []struct {
		name, query, body string
		status            int
		want              Switch // at the time of the order, timers as zero or the year after
	}{
		{"the whole switch", "", `{"default":"off"}`, 200, Switch{"off", nil}},
		{
			"one host, instead of the old rule, ended ones dropped", "", `{"value":"off","match":{"host":"a.test"}}`, 200,
			Switch{"on", []Scope{{host, "off", time.Time{}}, old.Scopes[0]}},
		},
		{"everybody", "", `{"value":"off"}`, 200, Switch{"off", old.Scopes[:2]}},
		{"an empty pattern list is everybody", "", `{"value":"off","match":{"host":[]}}`, 200, Switch{"off", old.Scopes[:2]}},
		{"on for everybody ends all exceptions", "", `{"value":"on"}`, 200, Switch{"on", nil}},
		{
			"on for a shop undoes its exception", "", `{"value":"on","match":{"shop":"9"}}`, 200,
			Switch{"on", []Scope{{host, "on", time.Time{}}}},
		},
		{
			"on for a host stays before the exceptions of others", "", `{"value":"on","match":{"host":"a.test"}}`, 200,
			Switch{"on", []Scope{{host, "on", time.Time{}}, old.Scopes[0]}},
		},
		{"bad value", "", `{"value":"maybe"}`, 400, old},
		{"bad default", "", `{"default":"perhaps"}`, 400, old},
		{"both forms", "", `{"default":"on","value":"off"}`, 400, old},
		{"nothing", "", `{}`, 400, old},
		{"unknown key", "", `{"valu":"off"}`, 400, old},
		{"two values", "", `{"value":"off"}{"value":"on"}`, 400, old},
		{"no JSON", "", `off`, 400, old},
		{"bad hours", "", `{"value":"off","match":{"hour_range":"7"}}`, 400, old},
		{"bad hours in the whole", "", `{"default":"on","scopes":[{"value":"off","match":{"hour_range":"1-99"}}]}`, 400, old},
		{"bad timer", "?for=soon", `{"value":"off"}`, 400, old},
		{"timer for scopes", "?for=1h", `{"default":"on","scopes":[]}`, 400, old},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFake()
			f.sw = Switch{old.Default, append([]Scope(nil), old.Scopes...)}
			status, _, body := exchange(t, New(f.deps()), "PUT", "/api/v1/retries"+test.query, test.body)
			if status != test.status {
				t.Errorf("PUT %s = %d %s, want %d", test.body, status, body, test.status)
			}
			if diff := cmp.Diff(test.want, f.sw); diff != "" {
				t.Errorf("switch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnIsNoRuleWhereAllIsOn(t *testing.T) {
	f := newFake()
	f.sw = Switch{Default: "on"}
	for range 2 {
		exchange(t, New(f.deps()), "PUT", "/api/v1/retries", `{"value":"on","match":{"host":"a.test"}}`)
	}
	if len(f.sw.Scopes) != 0 {
		t.Errorf("scopes after on for a host where all is on = %v, want none", f.sw.Scopes)
	}
	f.sw = Switch{Default: "off"}
	exchange(t, New(f.deps()), "PUT", "/api/v1/retries", `{"value":"on","match":{"host":"a.test"}}`)
	if len(f.sw.Scopes) != 1 {
		t.Errorf("scopes after on for a host where all is off = %v, want that one", f.sw.Scopes)
	}
}

func TestEndedScopesAreNotShown(t *testing.T) {
	f := newFake()
	f.sw = Switch{"on", []Scope{{policy.Match{}, "off", began}}}
	if _, _, body := exchange(t, New(f.deps()), "GET", "/api/v1/retries", ""); !strings.Contains(body, `"scopes": []`) {
		t.Errorf("GET retries = %s, want no scope that ended", body)
	}
}

func TestScopeInWords(t *testing.T) {
	tests := []struct {
		scope Scope
		want  string
	}{
		{Scope{Value: "off"}, "off for every call"},
		{Scope{policy.Match{Host: []string{"a", "b"}, Shop: []string{"9"}}, "observe", time.Time{}}, "observe for host a|b, shop 9"},
		{
			Scope{policy.Match{Hours: []policy.HourRange{{From: 2, To: 6}}}, "off", time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC)},
			"off for hour_range 2-6 until 2026-12-01T02:00:00Z",
		},
	}
	for _, test := range tests {
		if got := test.scope.String(); got != test.want {
			t.Errorf("String(%+v) = %q, want %q", test.scope.Match, got, test.want)
		}
	}
}

func TestSwitchTimer(t *testing.T) {
	for _, body := range []string{`{"value":"off"}`, `{"default":"off"}`} {
		f := newFake()
		before := time.Now()
		exchange(t, New(f.deps()), "PUT", "/api/v1/retries?for=30m", body)
		after := time.Now()
		if f.sw.Default != "on" || len(f.sw.Scopes) != 1 {
			t.Fatalf("switch after %s for 30m = %+v, want the default kept and one scope", body, f.sw)
		}
		s := f.sw.Scopes[0]
		if s.Value != "off" || s.Until.Before(before.Add(30*time.Minute)) || s.Until.After(after.Add(30*time.Minute)) {
			t.Errorf("scope after %s = %+v, want off for 30 minutes", body, s)
		}
		// Turning it on again by hand ends the timer too.
		exchange(t, New(f.deps()), "PUT", "/api/v1/retries", `{"value":"on"}`)
		if diff := cmp.Diff(Switch{Default: "on"}, f.sw); diff != "" {
			t.Errorf("switch after on (-want +got):\n%s", diff)
		}
	}
}

func TestExplainQuestions(t *testing.T) {
	f := newFake()
	tests := []struct {
		name, method, path, body string
		status                   int
		want                     Question
	}{
		{
			"by query", "GET", "/api/v1/explain?url=http://a.test/&header=X-Shop-Id:+17&header=A:b", "", 200,
			Question{"GET", "http://a.test/", nil, []byte("")},
		},
		{
			"by body", "POST", "/api/v1/explain", `{"method":"PUT","url":"/pdd/x","headers":["A:b"],"body":"hello"}`, 200,
			Question{"PUT", "/pdd/x", nil, []byte("hello")},
		},
		{"no url", "GET", "/api/v1/explain", "", 400, Question{}},
		{"bad header", "GET", "/api/v1/explain?url=/&header=nocolon", "", 400, Question{}},
		{"refused", "GET", "/api/v1/explain?url=nonsense", "", 400, Question{"GET", "nonsense", nil, []byte("")}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f.asked = Question{}
			status, _, body := exchange(t, New(f.deps()), test.method, test.path, test.body)
			fields := f.asked.Fields
			f.asked.Fields = nil
			if status != test.status || !cmp.Equal(f.asked, test.want) {
				t.Errorf("%s %s = %d %s, asked %+v, want %d and %+v", test.method, test.path, status, body, f.asked, test.status, test.want)
			}
			if test.name == "by query" && (fields.Get("X-Shop-Id") != "17" || fields.Get("A") != "b") {
				t.Errorf("fields = %v, want both headers", fields)
			}
		})
	}
}

func TestOrdersAreBounded(t *testing.T) {
	big := `{"url":"` + strings.Repeat("a", maxRequest) + `"}`
	if status, _, _ := exchange(t, New(newFake().deps()), "POST", "/api/v1/explain", big); status != 400 {
		t.Errorf("an order of %d bytes = %d, want 400", len(big), status)
	}
}
