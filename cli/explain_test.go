package cli

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"retryproxy/access"
	"retryproxy/config"
	"retryproxy/policy"
	"retryproxy/proxy"
)

// offline explains a configuration as main does, by the rules of the proxy.
func offline(t *testing.T) func(*Env) {
	return func(e *Env) {
		e.Explain = func(c *config.Config, q Question) (any, error) {
			set, err := c.Policies()
			if err != nil {
				t.Fatal(err)
			}
			clients, err := access.NewClients(access.ClientsConfig{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
			if err != nil {
				t.Fatal(err)
			}
			h := &c.Headers
			return proxy.Explain(&proxy.Settings{
				Instance: c.Instance, Via: true, Policies: set, Clients: clients,
				Guard:   access.NewGuard(access.GuardConfig{Private: "auto"}),
				Headers: proxy.HeaderNames{Keys: h.IdempotencyKey, RetryCount: h.RetryCount, Shop: h.Shop, ShopTier: h.ShopTier, Task: h.TaskType, Timeout: h.Timeout},
				Upgrade: policy.NewHosts(c.UpgradeToHTTPS), Body: proxy.BodyLimits{Limit: 1 << 20}, ConnectPorts: []uint16{443},
			}, &proxy.Switch{Default: "on"}, proxy.ExplainRequest{
				Method: q.Method, URL: q.URL, Fields: q.Fields, Body: q.Body, Rates: map[string]string{"global": "300/m"},
			}, time.Now())
		}
	}
}

func TestExplainText(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"a keyless order", []string{"-H", "X-Task-Type: order_ship", "-H", "X-Shop-Id: 17", "-d", "{}", "http://gw-api.pinduoduo.com/r"}, []string{
			"POST http://gw-api.pinduoduo.com/r\n",
			"way in     forward\n", "goes to    https://gw-api.pinduoduo.com:443/r (upgrade_to_https)\n",
			"shop       17 (header X-Shop-Id)\n", "policy     order_ship, for task_type order_ship\n",
			"not        order_ship_vip: shop_tier is not vip\n", "key        no: none was sent", "safe       no: ",
			"time       5m in all, 5s to connect, 15s for each answer\n", "retries    3\n", "delays     2s (1.6s to 2.4s), 3s (2.4s to 3.6s), 4.5s (3.6s to 5.4s)\n",
			"token of   global (300/m)\n", "token of   task_type order_ship\n", "token of   shop 17\n",
			"connection reset after sending       unknown    maybe     manual_review ",
			"503 attempts_exhausted, repeat; 4 attempts, 9.5s\n",
		}},
		{"a keyed order", []string{"-X", "POST", "a.test", "-H", "X-Idempotency-Key: k", "-H", "X-Retry-Count: 2"}, []string{
			"POST http://a.test\n", "goes to    http://a.test:80/\n", "key        yes: ", "safe       yes: the key goes upstream",
			"retries    1 (max_retries 3, and the client itself retried 2 times)\n",
			"sends      X-Idempotency-Key: k\n", "X-Retry-Count: 2\n", "X-Retry-Count: 3 with the first retry\n",
		}},
		{"a tunnel", []string{"-X", "CONNECT", "a.test:443"}, []string{"way in     connect\n", "note       a tunnel is opaque"}},
		{"forbidden", []string{"http://169.254.169.254/"}, []string{"refused    403 destination_denied: "}},
		{"keyed platform", []string{"-d", "x", "-H", "Idempotency-Key: k", "http://openapi.temu.com/"}, []string{"key        yes, but it makes no repeat upstream safe: openapi.temu.com is a known platform"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := typed(t, offline(t), append([]string{"explain"}, test.args...)...)
			if code != OK {
				t.Fatalf("explain %q = %d %s", test.args, code, stderr)
			}
			for _, want := range test.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("explain %q lacks %q:\n%s", test.args, want, stdout)
				}
			}
		})
	}
}

// A key always gets the same variant; without one it is a matter of chance.
func TestExplainVariant(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "retry_policies: [{name: ship, match: {task_type: order_ship}, variants: [{name: now, weight: 2}, {name: quick, base_delay: 7s}]}]"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(header ...string) string {
		code, stdout, stderr := typed(t, offline(t), append(append([]string{"explain", "-config", file, "-H", "X-Task-Type: order_ship"}, header...), "http://a.test/")...)
		if code != OK {
			t.Fatalf("explain = %d %s", code, stderr)
		}
		return stdout
	}
	const shares = " (of all calls now 66.7 %, quick 33.3 %)\n"
	seen := map[string]bool{}
	for i := range 20 {
		first, again := ask("-H", fmt.Sprint("X-Idempotency-Key: k", i)), ask("-H", fmt.Sprint("X-Idempotency-Key: k", i))
		if first != again {
			t.Fatalf("the same key is explained differently:\n%s\n%s", first, again)
		}
		quick := strings.Contains(first, "policy     ship/quick, for task_type order_ship\n")
		if delays := strings.Contains(first, "delays     7s "); quick != delays || !strings.Contains(first, "variant    by tenant and key: every call with them gets it"+shares) {
			t.Errorf("key k%d: %s", i, first)
		}
		seen[fmt.Sprint(quick)] = true
	}
	if len(seen) != 2 {
		t.Error("20 keys got the same variant")
	}
	if got := ask(); !strings.Contains(got, "variant    by chance, since the call has no key: the next one may get another"+shares) {
		t.Errorf("without a key: %s", got)
	}
}

func TestExplainEgressText(t *testing.T) {
	exits, refused := []string{"proxy-a (10.0.0.1:1080)", "proxy-a (10.0.0.2:1080)"}, &proxy.Refused{Status: 403, Reason: "destination_denied", Detail: "egress: denied: egress_default is deny and no egress rule is meant for this call"}
	for _, test := range []struct {
		e    proxy.Explanation
		want string
	}{
		{proxy.Explanation{Hops: []proxy.Hop{{URL: "http://a.test:80/", Egress: exits[:1]}}}, "goes to    http://a.test:80/\n    through  egress proxy-a (10.0.0.1:1080)\n"},
		{proxy.Explanation{Hops: []proxy.Hop{{URL: "http://a.test:80/", Egress: exits}}}, "egress proxy-a (10.0.0.1:1080), else proxy-a (10.0.0.2:1080)\n"},
		{proxy.Explanation{Refused: refused}, "refused    403 destination_denied: egress: denied: egress_default is deny"},
	} {
		explain := func(e *Env) {
			e.Explain = func(*config.Config, Question) (any, error) { return test.e, nil }
		}
		if code, stdout, stderr := typed(t, explain, "explain", "http://a.test/"); code != OK || !strings.Contains(stdout, test.want) {
			t.Errorf("explain = %d %s %s, want %s", code, stdout, stderr, test.want)
		}
	}
}

// What is parked, and who is let go before the end, in words.
func TestExplainTextOfDurableCalls(t *testing.T) {
	parked := proxy.Ending{Status: 202, Reason: "parked", Executed: "maybe", Advice: "check"}
	failed := proxy.Ending{Status: 503, Reason: "attempts_exhausted", Executed: "no", Advice: "repeat"}
	explain := func(e *Env) {
		e.Explain = func(*config.Config, Question) (any, error) {
			return proxy.Explanation{Outcomes: []proxy.WouldLeadTo{
				{Outcome: "a", Next: "park", Why: "retry_after_too_long", WaitMS: 3_600_000, Attempts: 1, InTheEnd: parked},
				{Outcome: "b", Next: "retry", Why: "status_503", WaitMS: 1000, Attempts: 4, AfterMS: 7000, InTheEnd: failed, LetGo: &proxy.LetGo{AfterMS: 2000, Ending: parked}},
				{Outcome: "c", Next: "deliver", Why: "ok", Attempts: 1, InTheEnd: proxy.Ending{Status: 200}, LetGo: &proxy.LetGo{Ending: parked}},
			}}, nil
		}
	}
	_, stdout, _ := typed(t, explain, "explain", "http://a.test/")
	for _, want := range []string{
		"park for 1h0m (retry_after_too_long)  202 parked, check\n",
		"retry in 1s                           202 parked, check, after 2s; the call: 503 attempts_exhausted, repeat; 4 attempts, 7s\n",
		"done                                  202 parked, check, at once; the call: 200\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("explain lacks %q:\n%s", want, stdout)
		}
	}
}

func TestExplainArguments(t *testing.T) {
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		code int
		want string // of stdout and stderr
	}{
		{"JSON", []string{"-json", "http://a.test/"}, OK, `"policy": "default"`},
		{"body of a file", []string{"-json", "-d", "@" + body, "http://a.test/"}, OK, `"method": "POST"`},
		{"no such file", []string{"-d", "@/none", "http://a.test/"}, Usage, "/none"},
		{"no URL", nil, Usage, "want one argument"},
		{"no request", []string{"http://a test/"}, Usage, "want a method and a URL"},
		{"bad header", []string{"-H", "nonsense", "http://a.test/"}, Usage, "Name: value"},
		{"bad configuration", []string{"-config", file(t, "what: 1"), "http://a.test/"}, Usage, "what"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := typed(t, offline(t), append([]string{"explain"}, test.args...)...)
			if code != test.code || !strings.Contains(stdout+stderr, test.want) {
				t.Errorf("explain %q = %d %s %s, want %d and %q", test.args, code, stdout, stderr, test.code, test.want)
			}
			if test.name == "JSON" && !json.Valid([]byte(stdout)) {
				t.Errorf("explain -json = %s, want JSON", stdout)
			}
		})
	}
}

// Where clients are known to hang up, their patience stands beside the deadline.
func TestExplainSaysHowLongClientsWait(t *testing.T) {
	var e explanation
	if err := json.Unmarshal([]byte(`{"policy":"ship","deadline_ms":300000,"patience":{"calls":40,"left":10,"p50_ms":30000,"p90_ms":41000}}`), &e); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	e.print(&out)
	if want := "patience   10 of 40 clients of this kind hung up, half of them after 30s or less, nine in ten after 41s or less; the deadline is 5m\n"; !strings.Contains(out.String(), want) {
		t.Errorf("print:\n%s\nwant %s", &out, want)
	}
}
