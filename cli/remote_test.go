package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"retryproxy/admin"
	"retryproxy/attempt"
	"retryproxy/breaker"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/journal"
	"retryproxy/limiter"
	"retryproxy/policy"
)

// began is when the calls of these tests began.
var began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// rememberedCalls are those of the running proxy: one that healed, one in doubt
// and one that waits.
func rememberedCalls() []*attempt.Summary {
	refused := attempt.Attempt{
		N: 1, Started: began, Duration: 1500 * time.Millisecond, Host: "a.test:80", Status: 503,
		Verdict: classify.Verdict{Class: classify.Transient, Reason: "status_503", Basis: classify.BasisRefused, RetryAfter: 2 * time.Second},
	}
	good := attempt.Attempt{
		N: 2, Started: began.Add(4 * time.Second), Duration: 20 * time.Millisecond, Host: "a.test:80", Status: 200, Delay: 2500 * time.Millisecond,
		Cause: "retry_after", Verdict: classify.Verdict{Class: classify.Success, Reason: "status_200", Executed: classify.ExecutedYes},
	}
	suspect := good
	suspect.N, suspect.Delay, suspect.Verdict = 1, 0, classify.Verdict{Class: classify.Success, Reason: "suspect", Executed: classify.ExecutedMaybe}
	lost := attempt.Attempt{
		N: 1, Started: began, Host: "b.test:80", Detail: "read: \x1b[2Jreset",
		Verdict: classify.Verdict{Class: classify.Unknown, Reason: "reset_after_send", Executed: classify.ExecutedMaybe},
	}
	exit := "proxy-a (10.0.0.1:3128, shop 9)"
	through := good
	through.N, through.Delay, through.Egress = 1, 0, exit
	atExit := func(reason, said string) (list attempt.History) {
		for n := 1; n <= 4; n++ {
			a := attempt.Attempt{
				N: n, Started: began.Add(time.Duration(n) * time.Second), Duration: time.Duration(n) * time.Millisecond, Host: "plain.test:80",
				Detail: "egress " + exit + ": " + said, Egress: exit, Delay: time.Duration(n-1) * time.Second, Cause: "backoff",
				Verdict: classify.Verdict{Class: classify.Transient, Reason: reason, Basis: classify.BasisNotSent},
			}
			if n == 1 {
				a.Cause = ""
			}
			list = append(list, a)
		}
		return list
	}
	failed := func(id, reason, said string) *attempt.Summary {
		return &attempt.Summary{
			ID: id, Mode: "forward", Policy: "default", State: "done", Result: "failed", Reason: "attempts_exhausted", Status: 502, Method: "GET",
			Labels: attempt.Labels{Shop: "e"}, Host: "plain.test:80", Path: "/", Attempts: atExit(reason, said), Started: began.Add(-time.Hour), Duration: 7 * time.Second,
		}
	}
	all := []*attempt.Summary{
		failed("e407", "egress_auth", "the egress proxy answered 407"),
		failed("e403", "egress_denied", "the egress proxy answered 403"),
		failed("e000", "egress_unreachable", "connection refused"),
		{
			ID: "e200", Mode: "forward", Policy: "default", State: "done", Result: "success", Reason: "ok", Status: 200, Method: "GET",
			Labels: attempt.Labels{Shop: "e"}, Host: "a.test:80", Path: "/", Attempts: attempt.History{through}, Started: began.Add(-time.Hour),
		},
		{
			ID: "aa11", Mode: "forward", Policy: "order_ship", State: "done", Result: "recovered", Reason: "ok", Status: 200,
			Labels: attempt.Labels{Shop: "17", TaskType: "order_ship"}, Method: "POST", Host: "a.test:80", Path: "/orders", Client: "127.0.0.1:5000",
			KeyHash: "ad370ed99b189921", Executed: classify.ExecutedYes, Attempts: attempt.History{refused, good}, Started: began, Duration: 4020 * time.Millisecond,
		},
		{
			ID: "bb22", Mode: "forward", Policy: "default", State: "done", Result: "failed", Reason: "manual_review", Status: 502,
			Method: "POST", Host: "b.test:80", Path: "/pay", Executed: classify.ExecutedMaybe, Attempts: attempt.History{lost}, Started: began,
		},
		{
			ID: "cc33", Mode: "forward", Policy: "default", State: "waiting", Cause: "tokens", Reason: "shop", Dimension: "shop", Lane: "backlog", Place: 3, NextAt: began.Add(time.Minute),
			Labels: attempt.Labels{Shop: "9"}, Method: "GET", Host: "a.test:80", Path: "/x", Attempts: attempt.History{refused}, Started: began,
		},
		{ID: "ff66", Mode: "forward", Policy: "default", State: "running", Method: "GET", Host: "a.test:80", Path: "/f", Attempts: attempt.History{refused}, Started: began},
		{ID: "gg77", Mode: "forward", Policy: "default", State: "running", Method: "GET", Host: "a.test:80", Path: "/g", Attempts: attempt.History{refused, good}, Started: began},
		{ID: "hh88", Mode: "forward", State: "running", Method: "GET", Host: "a.test:80", Started: began},
		{
			ID: "ii99", Mode: "forward", Policy: "default", State: "done", Result: "success", Reason: "ok", Status: 200, Method: "GET", Host: "a.test:80", Path: "/i",
			Executed: classify.ExecutedMaybe, Attempts: attempt.History{suspect}, Started: began, Duration: 20 * time.Millisecond,
		},
		{ID: "ee55", Mode: "forward", State: "done", Result: "cancelled", Reason: "client_gone", Status: 499, Method: "GET", Host: "a.test:80", Started: began, Duration: time.Second},
		{ID: "dd44", Mode: "forward", State: "done", Result: "rejected", Reason: "destination_denied", Detail: "no way", Status: 403, Method: "GET", Host: "10.0.0.1:80", Started: began},
	}
	for _, c := range all {
		if c.State == "done" {
			c.Ended = c.Started.Add(c.Duration)
		}
	}
	return all
}

// running is the admin listener of a running proxy; sw is its switch.
func running(t *testing.T, sw *admin.Switch, notReady string) string {
	t.Helper()
	server := httptest.NewServer(admin.New(admin.Deps{
		Calls: rememberedCalls,
		Find: func(ctx context.Context, q journal.Query) ([]*attempt.Summary, string, error) {
			return journal.Look(ctx, nil, q, rememberedCalls(), began)
		},
		Records: func(_ context.Context, hash string) ([]idempotency.Record, error) {
			if hash != "ad370ed99b189921" {
				return nil, nil
			}
			return []idempotency.Record{{State: idempotency.StateDone, Reason: "ok", Executed: classify.ExecutedYes, Owner: "aa11", Expires: began.Add(24 * time.Hour)}}, nil
		},
		Gates:  func() []limiter.HostView { return nil },
		Shops:  func() []breaker.ShopStatus { return nil },
		Limits: func() []limiter.BucketView { return nil },
		Reset:  func(string, string) bool { return false },
		Config: func() []byte { return []byte("drain: 1s\n") }, Reload: func() error { return nil },
		Retries: func() admin.Switch { return *sw }, SetRetries: func(s admin.Switch) error { *sw = s; return nil },
		Explain: func(q admin.Question) (any, error) {
			if q.URL == "http://wrong/" {
				return nil, errors.New("no such thing")
			}
			return map[string]any{"method": q.Method, "url": q.URL, "mode": "forward", "notes": []string{"header " + q.Fields.Get("A"), "body " + string(q.Body)}}, nil
		},
		Metrics: prometheus.NewRegistry(), Ready: func() (bool, string) { return notReady == "", notReady },
		Accounts: func() []admin.Account { return []admin.Account{{Name: "admin", Role: admin.Admin, Token: "hush"}} }, Hosts: func(h string) bool { return strings.HasPrefix(h, "127.0.0.1") },
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// withToken puts the admin token into the environment.
func withToken(e *Env) {
	e.Getenv = func(name string) string {
		if name == "RETRYPROXY_TOKEN" {
			return "hush"
		}
		return ""
	}
}

func TestHealth(t *testing.T) {
	ready, not := running(t, &admin.Switch{}, ""), running(t, &admin.Switch{}, "shutting down")
	config := file(t, "listen: {proxy: 127.0.0.1:8080, admin: 127.0.0.1:1, health: \""+ready+"\"}\n")
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	tests := []struct {
		name   string
		env    string
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{"ready", "", []string{"-admin", ready}, OK, "ready\n", ""},
		{"ready, by the port alone", "", []string{"-admin", ready[strings.LastIndexByte(ready, ':')+1:]}, OK, "ready\n", ""},
		{"ready, as a URL", "", []string{"-admin", "http://" + ready + "/"}, OK, "ready\n", ""},
		{"by environment", ready, nil, OK, "ready\n", ""},
		{"by the health listener of the configuration", "", []string{"-config", config}, OK, "ready\n", ""},
		{"not ready", "", []string{"-admin", not}, Failure, "", "503: shutting down"},
		{"nobody there", "", []string{"-admin", closed.Addr().String()}, Failure, "", "retryproxy: no proxy answers at " + closed.Addr().String() + ": is it running? another address goes with -admin\n"},
		{"no address", "", []string{"-admin", "http://"}, Usage, "", "is no address"},
		{"no configuration", "", []string{"-config", "/none"}, Usage, "", "/none"},
		{"no admin listener", "", []string{"-config", file(t, "listen: {proxy: 127.0.0.1:8080, admin: \"\"}\n")}, Usage, "", "listen.admin"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := typed(t, func(e *Env) {
				e.Getenv = func(name string) string {
					return map[string]string{"RETRYPROXY_ADMIN": test.env, "HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"}[name]
				}
			}, append([]string{"health"}, test.args...)...)
			if code != test.code || stdout != test.stdout || !strings.Contains(stderr, test.stderr) {
				t.Errorf("health %q = %d %q %q, want %d %q %q", test.args, code, stdout, stderr, test.code, test.stdout, test.stderr)
			}
		})
	}
}

func TestDialable(t *testing.T) {
	tests := []struct{ addr, want string }{
		{"127.0.0.1:9090", "127.0.0.1:9090"},
		{"0.0.0.0:9090", "127.0.0.1:9090"},
		{":9090", "127.0.0.1:9090"},
		{"[::]:9090", "127.0.0.1:9090"},
		{"9090", "127.0.0.1:9090"},
		{"admin.example:9090", "admin.example:9090"},
		{"nonsense", "nonsense"},
	}
	for _, test := range tests {
		if got := dialable(test.addr); got != test.want {
			t.Errorf("dialable(%s) = %s, want %s", test.addr, got, test.want)
		}
	}
}

func TestToken(t *testing.T) {
	addr := running(t, &admin.Switch{Default: "on"}, "")
	if code, _, stderr := typed(t, nil, "calls", "-admin", addr); code != Failure || !strings.Contains(stderr, "admin.token") {
		t.Errorf("calls without token = %d %q, want a failure that names admin.token", code, stderr)
	}
	config := file(t, "listen: {proxy: 127.0.0.1:8080, admin: \""+addr+"\"}\nadmin: {token: hush}\n")
	if code, _, stderr := typed(t, nil, "calls", "-config", config); code != OK {
		t.Errorf("calls with the token of the configuration = %d %q, want 0", code, stderr)
	}
}

func TestCalls(t *testing.T) {
	addr := running(t, &admin.Switch{}, "")
	tests := []struct {
		name string
		args []string
		want []string
		not  string
	}{
		{"all", nil, []string{"cc33", "aa11", "POST a.test:80/orders", "200 recovered", "502 failed manual_review", "for tokens (shop), backlog, place 3, until ", "attempt 2 is in flight", "the answer is on its way", "the request is being read", "200 success, but its body says failure"}, "nothing"},
		{"one shop", []string{"-shop", "17"}, []string{"aa11"}, "cc33"},
		{"one host", []string{"-host", "b.test"}, []string{"bb22"}, "aa11"},
		{"one state", []string{"-state", "waiting"}, []string{"cc33"}, "aa11"},
		{"one type of task", []string{"-task-type", "order_ship"}, []string{"aa11"}, "bb22"},
		{"few", []string{"-limit", "4"}, []string{"cc33"}, "aa11"},
		{"no egress", []string{"-shop", "17"}, []string{"SHOP  TRIES  WHAT"}, "EGRESS"},
		{"egress", []string{"-shop", "e"}, []string{"SHOP  EGRESS                           TRIES  WHAT", "e     proxy-a (10.0.0.1:3128, shop 9)  4      502 failed"}, "nothing"},
		{"none", []string{"-shop", "none"}, []string{"no such calls"}, "ID"},
		{"JSON", []string{"-json", "-shop", "17"}, []string{`"id": "aa11"`}, "STATE"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := typed(t, withToken, append([]string{"calls", "-admin", addr}, test.args...)...)
			for _, want := range test.want {
				if code != OK || !strings.Contains(stdout, want) || strings.Contains(stdout, test.not) {
					t.Errorf("calls %q = %d %s %s, want %q and not %q", test.args, code, stdout, stderr, want, test.not)
				}
			}
		})
	}
}

func TestWhy(t *testing.T) {
	addr := running(t, &admin.Switch{}, "")
	tests := []struct {
		name, id string
		code     int
		want     []string
	}{
		{"healed", "aa11", OK, []string{
			"Call aa11: POST a.test:80/orders", "policy order_ship, shop 17, task type order_ship",
			"Attempt 1 went to a.test:80 and brought status 503 in 1.5s: a repeat may mend that and is safe, because the upstream said that it had not acted. It asked for 2s of rest.",
			"Attempt 2, after 2.5s that the upstream had asked for, went to a.test:80 and brought status 200 in 20ms: that is the answer.",
			"The client got 200 after 4.02s: all is well (ok).",
		}},
		{"in doubt", "bb22", OK, []string{
			"brought reset_after_send (read: ?[2Jreset) in under 1ms: the upstream may have acted, so a repeat is not safe.",
			"so a person has to look (manual_review). The upstream may have acted: check before you repeat it.",
		}},
		{"in flight", "ff66", OK, []string{"\n  Attempt 2 is in flight.\n"}},
		{"suspect", "ii99", OK, []string{
			"brought status 200, but its body says failure in 20ms: that is the answer.",
			"The client got 200 after 20ms: its status says success, but its body says failure (suspect). The upstream may have acted",
		}},
		{"waiting", "cc33", OK, []string{"It waits for tokens (shop), backlog, place 3, until "}},
		{"rejected", "dd44", OK, []string{"The client got 403", "the destination is not allowed (destination_denied). Nothing was executed upstream. (no way)"}},
		{"left", "ee55", OK, []string{"The client left after 1s. Nothing was executed upstream."}},
		{"through an egress", "e200", OK, []string{"Attempt 1 went to a.test:80 through egress proxy-a (10.0.0.1:3128, shop 9) and brought status 200 in 20ms: that is the answer."}},
		{"at its egress", "e407", OK, []string{
			"Attempts 1 to 4, the later ones after 1s to 3s of backoff, failed at egress proxy-a (10.0.0.1:3128, shop 9): the egress proxy answered 407 (egress_auth) in 1ms to 4ms; a repeat may mend that and is safe, because nothing had reached the upstream.\n  The client got 502",
			"\n  Remedy: check user and password of the egress rule proxy-a: its proxy does not take them.\n",
		}},
		{"denied by its egress", "e403", OK, []string{"\n  Remedy: the proxy of the egress rule proxy-a does not let calls to plain.test:80 through"}},
		{"egress that is not there", "e000", OK, []string{"\n  Remedy: check that a proxy runs at 10.0.0.1:3128 and can be reached from here, or correct the egress rule proxy-a;"}},
		{"by key", "kk", OK, []string{"Call aa11"}},
		{"unknown", "zz", Failure, []string{"no call in progress or remembered"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := typed(t, withToken, "why", test.id, "-admin", addr)
			for _, want := range test.want {
				if code != test.code || !strings.Contains(stdout+stderr, want) {
					t.Errorf("why %s = %d %s %s, want %d and %q", test.id, code, stdout, stderr, test.code, want)
				}
			}
			if strings.ContainsRune(stdout, 0x1b) {
				t.Errorf("why %s = %q, want no control characters", test.id, stdout)
			}
		})
	}
}

func TestRetries(t *testing.T) {
	sw := &admin.Switch{Default: "on"}
	addr := running(t, sw, "")
	tests := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"show", nil, OK, "on for every call\n"},
		{"off for a host for a while", []string{"off", "-for", "30m", "-host", "a.test"}, OK, "off for host a.test until "},
		{"observe a shop", []string{"observe", "-shop", "9", "-task-type", "report"}, OK, "observe for shop 9, task_type report\n"},
		{"show again", nil, OK, "on for all others\n"},
		{"off", []string{"off"}, OK, "off for all others\n"},
		{"on where others are on, too", []string{"on", "-host", "c.test"}, OK, "on for host c.test\n"},
		{"as before", []string{"off", "-host", "c.test"}, OK, "off for all others\n"},
		{"wrong value", []string{"maybe"}, Usage, "want on, off or observe"},
		{"no value", []string{"-host", "a.test"}, Usage, "want on, off or observe"},
		{"wrong time", []string{"off", "-for", "-1s"}, Failure, "want a duration"},
	}
	for _, test := range tests {
		code, stdout, stderr := typed(t, withToken, append([]string{"retries", "-admin", addr}, test.args...)...)
		if code != test.code || !strings.Contains(stdout+stderr, test.want) {
			t.Errorf("%s: retries %q = %d %q %q, want %d and %q", test.name, test.args, code, stdout, stderr, test.code, test.want)
		}
	}
	if len(sw.Scopes) != 2 || sw.Default != "off" || sw.Scopes[1].Match.Host[0] != "a.test" || sw.Scopes[1].Until.IsZero() {
		t.Errorf("the switch = %+v, want off, a shop observed, a host off for a while", sw)
	}
	if want := (policy.Match{Shop: []string{"9"}, TaskType: []string{"report"}}); sw.Scopes[0].Match.Shop[0] != want.Shop[0] {
		t.Errorf("scope = %+v, want %+v", sw.Scopes[0].Match, want)
	}
}

func TestSwitchInWords(t *testing.T) {
	later := time.Now().Add(time.Hour)
	until := " until " + later.Format(time.DateTime) + "\n"
	shop := policy.Match{Shop: []string{"9"}}
	tests := []struct {
		name string
		sw   admin.Switch
		want string
	}{
		{"plain", admin.Switch{Default: "on"}, "on for every call\n"},
		{"a timer for all", admin.Switch{Default: "on", Scopes: []admin.Scope{{Value: "off", Until: later}}}, "off for every call" + until + "then on for every call\n"},
		{
			"a timer for all before a rule",
			admin.Switch{Default: "on", Scopes: []admin.Scope{{Value: "off", Until: later}, {Match: shop, Value: "observe"}}},
			"off for every call" + until + "then observe for shop 9\nthen on for all others\n",
		},
		{"a rule for all before others", admin.Switch{Default: "on", Scopes: []admin.Scope{{Value: "off"}, {Match: shop, Value: "observe"}}}, "off for every call\n"},
	}
	for _, test := range tests {
		if _, stdout, stderr := typed(t, withToken, "retries", "-admin", running(t, &test.sw, "")); stdout != test.want {
			t.Errorf("%s: retries = %q %q, want %q", test.name, stdout, stderr, test.want)
		}
	}
	sw := admin.Switch{Default: "off", Scopes: []admin.Scope{{Match: shop, Value: "observe"}, {Value: "off", Until: later}}}
	if _, stdout, _ := typed(t, withToken, "retries", "on", "-admin", running(t, &sw, "")); stdout != "on for every call\n" {
		t.Errorf("retries on = %q, want on for every call", stdout)
	}
}

func TestExplainOnARunningProxy(t *testing.T) {
	addr := running(t, &admin.Switch{}, "")
	code, stdout, stderr := typed(t, withToken, "explain", "a.test/x", "-admin", addr, "-H", "A: b", "-d", "hello")
	for _, want := range []string{"POST http://a.test/x\n", "note       header b\n", "note       body hello\n"} {
		if code != OK || !strings.Contains(stdout, want) {
			t.Errorf("explain = %d %s %s, want %q", code, stdout, stderr, want)
		}
	}
	if code, _, stderr := typed(t, withToken, "explain", "http://wrong/", "-admin", addr); code != Failure || !strings.Contains(stderr, "no such thing") {
		t.Errorf("explain of nonsense = %d %q, want 1 and why", code, stderr)
	}
}

func TestAnswersThatAreNoJSON(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who are you?", http.StatusTeapot) }))
	defer server.Close()
	for _, args := range [][]string{{"calls"}, {"why", "x"}, {"retries"}, {"health"}} {
		if code, _, stderr := typed(t, nil, append(args, "-admin", server.URL)...); code != Failure || !strings.Contains(stderr, "418: who are you?") {
			t.Errorf("%q = %d %q, want 1 and what was said", args, code, stderr)
		}
	}
}
