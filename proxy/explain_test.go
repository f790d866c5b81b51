package proxy

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/bcrypt"

	"retryproxy/access"
	"retryproxy/backoff"
	"retryproxy/classify"
	"retryproxy/egress"
	"retryproxy/message"
	"retryproxy/policy"
)

// explainPolicy is like the built-in default, without jitter.
func explainPolicy(name string, m policy.Match) *policy.Policy {
	statuses := func(list ...string) classify.StatusSet {
		set, err := classify.ParseStatuses(list)
		if err != nil {
			panic(err)
		}
		return set
	}
	return &policy.Policy{
		Name: name, Match: m, MaxRetries: 3, FirstRetry: "backoff",
		Backoff:        backoff.Policy{Base: time.Second, Max: time.Minute, Multiplier: 2, Jitter: "none", Ratio: 0.2},
		ConnectTimeout: 5 * time.Second, PerTryTimeout: 15 * time.Second, BodyIdleTimeout: 30 * time.Second, Deadline: 5 * time.Minute,
		RetryStatuses:     statuses("408", "425", "429", "5xx"),
		PermanentStatuses: statuses("501", "505"), NotNowStatuses: statuses("408", "425", "429", "503"),
		HonourRetryAfter: true, RetryAfterCap: 2 * time.Minute, RetryAfterOverCap: "cap",
		Safe: "auto", SafeMethods: []string{"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}, OnUnknown: "manual_review",
		OnOpen: "wait", ForwardHeaders: []string{policy.HeaderKey, policy.HeaderRetryCount}, Priority: 5,
	}
}

// explainSettings are settings with one policy of its own for order_ship.
func explainSettings(t *testing.T) *Settings {
	t.Helper()
	vip := explainPolicy("order_ship", policy.Match{TaskType: []string{"order_ship"}, ShopTier: []string{"vip"}})
	vip.MaxRetries = 5
	night := explainPolicy("night", policy.Match{Host: []string{"*.example"}, Hours: []policy.HourRange{{From: 2, To: 6}}})
	set, err := policy.NewSet([]*policy.Policy{vip, night, explainPolicy("default", policy.Match{})}, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := access.NewClients(access.ClientsConfig{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	return &Settings{
		Instance: "retryproxy", Via: true, Policies: set, Clients: clients,
		Guard: access.NewGuard(access.GuardConfig{Private: "auto", Proxies: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8080")}}),
		Shops: map[string]Shop{"s9": {Tier: "vip"}},
		Headers: HeaderNames{
			Keys: []string{"X-Idempotency-Key", "Idempotency-Key"}, RetryCount: "X-Retry-Count", Shop: "X-Shop-Id",
			ShopTier: "X-Shop-Tier", Task: "X-Task-Type", Timeout: "X-Request-Timeout",
		},
		Routes: []Route{{
			Name: "pdd", Prefix: "/pdd", StripPrefix: true,
			Upstreams: []Origin{{"https", "a.example", "/api"}, {"https", "b.example", "/api"}},
		}},
		Upgrade: policy.NewHosts([]string{"gw-api.pinduoduo.com"}), ConnectPorts: []uint16{443},
		Body:    BodyLimits{Limit: 1000, Hold: 64 << 10, Stream: true},
		MaxWait: 30 * time.Second, KeyTTL: time.Hour, MaxResponse: 1 << 20,
	}
}

func header(lines ...string) message.Fields {
	var f message.Fields
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		f.Add(name, value)
	}
	return f
}

// explained runs Explain, with retries on and a client on loopback.
func explained(t *testing.T, s *Settings, req ExplainRequest) Explanation {
	t.Helper()
	e, err := Explain(s, &Switch{Default: "on"}, req, noon)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// row is what one outcome leads to, on one line.
func (e *Explanation) row(outcome string) string {
	for _, o := range e.Outcomes {
		if o.Outcome == outcome {
			wait := time.Duration(o.WaitMS) * time.Millisecond
			end := fmt.Sprintf("%d %s %s %s", o.InTheEnd.Status, o.InTheEnd.Reason, o.InTheEnd.Executed, o.InTheEnd.Advice)
			if o.InTheEnd.Cut {
				end += " cut"
			}
			return fmt.Sprintf("%s %s [%s] %s: %s %s %v; %d in %v: %s", o.Class, o.Reason, o.Basis, o.Executed, o.Next, o.Why, wait,
				o.Attempts, time.Duration(o.AfterMS)*time.Millisecond, end)
		}
	}
	return "no such outcome"
}

func TestExplainWayIn(t *testing.T) {
	tests := []struct {
		name string
		req  ExplainRequest
		mode string
		hops string
		note string
	}{
		{"forward", ExplainRequest{Method: "GET", URL: "http://A.example/x?q=1"}, "forward", "http://a.example:80/x?q=1", ""},
		{"https target", ExplainRequest{Method: "GET", URL: "https://a.example"}, "forward", "https://a.example:443/", "CONNECT host:443"},
		{"upgrade", ExplainRequest{Method: "GET", URL: "http://gw-api.pinduoduo.com/r"}, "forward", "https://gw-api.pinduoduo.com:443/r (upgrade_to_https)", ""},
		{
			"no upgrade from afar",
			ExplainRequest{Method: "GET", URL: "http://gw-api.pinduoduo.com/r", Client: netip.MustParseAddr("10.0.0.9")},
			"forward", "http://gw-api.pinduoduo.com:80/r", "",
		},
		{"tunnel", ExplainRequest{Method: "CONNECT", URL: "a.example:443"}, "connect", "a.example:443 (an opaque tunnel)", "a tunnel is opaque"},
		{
			"route",
			ExplainRequest{Method: "GET", URL: "/pdd/x?q"},
			"reverse",
			"https://a.example:443/api/x?q (a route), https://b.example:443/api/x?q (a route)", "",
		},
		{"https URL of an opened host", ExplainRequest{Method: "GET", URL: "https://open.example/x"}, "forward", "https://open.example:443/x", "through HTTPS_PROXY it comes in a tunnel, which is opened"},
		{
			"Host of a route, on our listener",
			ExplainRequest{Method: "GET", URL: "http://127.0.0.1:8080/x?q", Fields: header("Host: grpc.example:8080")},
			"reverse", "https://g.example:443/x?q (a route)", "a request to us, not one through us",
		},
		{
			"Host of a route, on another port of this machine",
			ExplainRequest{Method: "GET", URL: "http://localhost:18080", Fields: header("Host: grpc.example")},
			"reverse", "https://g.example:443/ (a route)", "a request to us",
		},
		{
			"our own name and a prefix",
			ExplainRequest{Method: "GET", URL: "http://127.0.0.1:8080/pdd/x", Fields: header("Host: localhost")},
			"reverse", "https://a.example:443/api/x (a route), https://b.example:443/api/x (a route)", "a request to us",
		},
		{
			"Host of a route, but not us",
			ExplainRequest{Method: "GET", URL: "http://a.example/x", Fields: header("Host: grpc.example")},
			"forward", "http://a.example:80/x", "",
		},
		{
			"Host of no route, on another port of this machine",
			ExplainRequest{Method: "GET", URL: "http://127.0.0.1:9999/x", Fields: header("Host: a.example")},
			"forward", "http://127.0.0.1:9999/x", "",
		},
		{"credentials in the URL", ExplainRequest{Method: "GET", URL: "http://u:p@a.example/"}, "forward", "http://a.example:80/", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := explainSettings(t)
			s.Intercept = &Interception{Hosts: policy.NewHosts([]string{"open.example"})}
			s.Routes = append(s.Routes, Route{Name: "grpc", Host: "grpc.example", Upstreams: []Origin{{"https", "g.example", ""}}})
			e := explained(t, s, test.req)
			var hops []string
			for _, h := range e.Hops {
				text := h.URL
				if h.Why != "" {
					text += " (" + h.Why + ")"
				}
				hops = append(hops, text)
			}
			if got := strings.Join(hops, ", "); e.Mode != test.mode || got != test.hops || e.Refused != nil {
				t.Errorf("Explain(%s) = %s %s, refused %v, want %s %s", test.req.URL, e.Mode, got, e.Refused, test.mode, test.hops)
			}
			if got := strings.Join(e.Notes, "\n"); !strings.Contains(got, test.note) || test.note == "" && got != "" {
				t.Errorf("notes = %q, want %q", got, test.note)
			}
		})
	}
}

func TestExplainRefusals(t *testing.T) {
	tests := []struct {
		name string
		req  ExplainRequest
		want Refused // Detail: a part of it
	}{
		{"metadata", ExplainRequest{Method: "GET", URL: "http://169.254.169.254/"}, Refused{403, "destination_denied", "metadata"}},
		{"odd address", ExplainRequest{Method: "GET", URL: "http://0x7f.1/"}, Refused{403, "destination_denied", "0x7f.1"}},
		{"ourselves", ExplainRequest{Method: "GET", URL: "http://127.0.0.1:8080/"}, Refused{508, "loop", "127.0.0.1:8080"}},
		{"port of a tunnel", ExplainRequest{Method: "CONNECT", URL: "a.test:22"}, Refused{403, "destination_denied", "connect_ports"}},
		{"no route", ExplainRequest{Method: "GET", URL: "/other"}, Refused{400, "bad_request", "no route"}},
		{"another Host", ExplainRequest{Method: "GET", URL: "/pdd/x", Fields: header("Host: evil.example")}, Refused{403, "client_denied", "listen.hosts"}},
		{
			"two keys",
			ExplainRequest{Method: "POST", URL: "http://a.example/", Fields: header("X-Idempotency-Key: a", "Idempotency-Key: b")},
			Refused{400, "bad_request", "key"},
		},
		{"bad target", ExplainRequest{Method: "GET", URL: "ftp://a.example/"}, Refused{400, "bad_request", "http"}},
		{"smuggling", ExplainRequest{Method: "GET", URL: "http://a.example/", Fields: header("Bad Name: x")}, Refused{400, "bad_request", "name"}},
		{
			"keyed body over the limit",
			ExplainRequest{Method: "POST", URL: "http://a.example/", Fields: header("X-Idempotency-Key: a"), Body: make([]byte, 1001)},
			Refused{413, "body_too_large", "body.limit"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := explained(t, explainSettings(t), test.req).Refused
			if r == nil || r.Status != test.want.Status || r.Reason != test.want.Reason || !strings.Contains(r.Detail, test.want.Detail) {
				t.Errorf("Explain(%s).Refused = %+v, want %+v", test.req.URL, r, test.want)
			}
		})
	}
}

func TestExplainQuestionsThatAreNone(t *testing.T) {
	for _, req := range []ExplainRequest{
		{},
		{Method: "GET"},
		{Method: "GET", URL: "http://a b/"},
		{Method: "GET\r\n", URL: "/"},
		{Method: "GET", URL: "/", Fields: message.Fields{{Name: "A", Value: "x\r\nB: y"}}},
	} {
		if _, err := Explain(explainSettings(t), &Switch{Default: "on"}, req, noon); !errors.Is(err, ErrQuestion) {
			t.Errorf("Explain(%+v) = %v, want ErrQuestion", req, err)
		}
	}
}

func TestExplainCredentials(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	s := explainSettings(t)
	if s.Clients, err = access.NewClients(access.ClientsConfig{Users: []access.User{{Name: "bot1", Hash: string(hash)}}}); err != nil {
		t.Fatal(err)
	}
	e := explained(t, s, ExplainRequest{Method: "GET", URL: "http://a.example/"})
	if e.Refused == nil || e.Refused.Status != 407 || e.Policy != "default" || len(e.Outcomes) == 0 {
		t.Errorf("without credentials = %+v, policy %q, want 407 and all the rest", e.Refused, e.Policy)
	}
	basic := "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("bot1:secret"))
	e = explained(t, s, ExplainRequest{Method: "GET", URL: "http://a.example/", Fields: header(basic)})
	if e.Refused != nil || e.User != "bot1" {
		t.Errorf("with credentials = %+v, user %q, want bot1", e.Refused, e.User)
	}
}

func TestExplainLabelsAndPolicy(t *testing.T) {
	name := base64.StdEncoding.EncodeToString([]byte("shop=s9;task=order_ship:x"))
	tests := []struct {
		name, url string
		fields    message.Fields
		labels    string
		policy    string
		passed    string
	}{
		{"none", "http://a.test/", nil, "", "default", "order_ship: task_type is not order_ship, night: host is not *.example"},
		{"not the hour", "http://a.example/", nil, "", "default", "order_ship: task_type is not order_ship, night: it is not the hour"},
		{
			"header", "http://a.test/", header("X-Shop-Id: 1", "X-Task-Type: order_ship"), "shop 1 header X-Shop-Id, task_type order_ship header X-Task-Type",
			"default", "order_ship: shop_tier is not vip, night: host is not *.example",
		},
		{
			"user name and table", "http://a.test/", header("Proxy-Authorization: Basic " + name),
			"shop s9 the proxy user name, shop_tier vip the shops table, task_type order_ship the proxy user name", "order_ship", "",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := explained(t, explainSettings(t), ExplainRequest{Method: "GET", URL: test.url, Fields: test.fields})
			var labels, passed []string
			for _, l := range e.Labels {
				labels = append(labels, l.Name+" "+l.Value+" "+l.From)
			}
			for _, p := range e.PassedOver {
				passed = append(passed, p.Policy+": "+p.Why)
			}
			if got := strings.Join(labels, ", "); got != test.labels {
				t.Errorf("labels = %q, want %q", got, test.labels)
			}
			if got := strings.Join(passed, ", "); e.Policy != test.policy || got != test.passed {
				t.Errorf("policy = %s after %q, want %s after %q", e.Policy, got, test.policy, test.passed)
			}
		})
	}
	e := explained(t, explainSettings(t), ExplainRequest{Method: "GET", URL: "http://a.test/", Fields: header("Proxy-Authorization: Basic " + name)})
	if want := "for task_type order_ship, shop_tier vip"; e.PolicyWhy != want {
		t.Errorf("why = %q, want %q", e.PolicyWhy, want)
	}
}

func TestExplainSafety(t *testing.T) {
	key := header("X-Idempotency-Key: k")
	tests := []struct {
		name, method, url string
		fields            message.Fields
		keyed, honoured   bool
		safe              string
		after             string // reset after sending
	}{
		{"POST", "POST", "http://a.test/", nil, false, false, "", "unknown reset_after_send [] maybe: stop manual_review 0s; 1 in 0s: 502 manual_review maybe check"},
		{"keyed POST", "POST", "http://a.test/", key, true, true, "key", "transient reset_after_send [key] maybe: retry reset_after_send 1s; 4 in 7s: 502 attempts_exhausted maybe check"},
		{"GET", "GET", "http://a.test/", nil, false, false, "method", "transient reset_after_send [method] maybe: retry reset_after_send 1s; 4 in 7s: 502 attempts_exhausted maybe check"},
		{"keyed POST to a platform", "POST", "http://gw-api.pinduoduo.com/", key, true, false, "", "unknown reset_after_send [] maybe: stop manual_review 0s; 1 in 0s: 502 manual_review maybe check"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := explained(t, explainSettings(t), ExplainRequest{Method: test.method, URL: test.url, Fields: test.fields})
			if e.Keyed != test.keyed || e.KeyHonoured != test.honoured || e.Safe != test.safe {
				t.Errorf("keyed, honoured, safe = %v, %v, %q, want %v, %v, %q", e.Keyed, e.KeyHonoured, e.Safe, test.keyed, test.honoured, test.safe)
			}
			if got := e.row("connection reset after sending"); got != test.after {
				t.Errorf("reset = %s, want %s", got, test.after)
			}
			if e.KeyWhy == "" || e.SafeWhy == "" {
				t.Errorf("key why %q, safe why %q, want both", e.KeyWhy, e.SafeWhy)
			}
		})
	}
}

func TestExplainOutcomes(t *testing.T) {
	e := explained(t, explainSettings(t), ExplainRequest{Method: "POST", URL: "https://a.test/"})
	tests := []struct{ outcome, want string }{
		{"the name does not exist", "transient dns_no_such_host [not_sent] no: retry dns_no_such_host 1s; 2 in 1s: 502 fail_permanent no stop"},
		{"connection refused", "transient connect_refused [not_sent] no: retry connect_refused 1s; 4 in 7s: 502 attempts_exhausted no repeat"},
		{"no connection in time", "transient connect_timeout [not_sent] no: retry connect_timeout 1s; 4 in 27s: 504 attempts_exhausted no repeat"},
		{"certificate not valid", "permanent tls_verify [] no: stop fail_permanent 0s; 1 in 0s: 502 fail_permanent no stop"},
		{"no answer in time", "unknown header_timeout [] maybe: stop manual_review 0s; 1 in 15s: 504 manual_review maybe check"},
		{"answer cut off", "unknown truncated [] maybe: stop manual_review 0s; 1 in 0s: 502 manual_review maybe check"},
		{"HTTP/2 refused stream or GOAWAY", "transient refused_stream [refused] no: retry refused_stream 1s; 4 in 7s: 502 attempts_exhausted no repeat"},
		{"200", "success status_200 [] yes: deliver ok 0s; 1 in 0s: 200   "},
		{"404", "permanent status_404 [] no: stop fail_permanent 0s; 1 in 0s: 404 fail_permanent no stop"},
		{"408", "transient status_408 [refused] no: retry status_408 1s; 4 in 7s: 504 attempts_exhausted no repeat"},
		{"500", "unknown status_500 [] maybe: stop manual_review 0s; 1 in 0s: 500 manual_review maybe check"},
		{"503", "transient status_503 [refused] no: retry status_503 1s; 4 in 7s: 503 attempts_exhausted no repeat"},
		{"503 with Retry-After: 3600", "transient status_503 [refused] no: retry status_503 2m1s; 3 in 4m2s: 503 retry_after_too_long no repeat"},
	}
	for _, test := range tests {
		if got := e.row(test.outcome); got != test.want {
			t.Errorf("%s = %s, want %s", test.outcome, got, test.want)
		}
	}
}

// What a durable store keeps is parked, and its client let go, as the policy and
// Prefer say; a note says so, or what it lacks.
func TestExplainOfDurableCalls(t *testing.T) {
	const parks = "transient status_503 [refused] no: park retry_after_too_long 1h0m0s; 1 in 0s: "
	const waits = "transient status_503 [refused] no: retry status_503 2m1s; 3 in 4m2s: 503 retry_after_too_long no repeat"
	const stops = "transient status_503 [refused] no: stop retry_after_too_long 0s; 1 in 0s: 503 retry_after_too_long no repeat"
	tests := []struct {
		name    string
		durable bool
		fields  string
		change  func(*policy.Policy)
		want    string // a 503 with Retry-After: 3600
		letGo   string
		note    string
	}{
		{"parked", true, "X-Idempotency-Key: k", func(p *policy.Policy) { p.RetryAfterOverCap = "park" }, parks + "202 parked maybe check", "", "the client gets 202 parked"},
		{"parked, with 503", true, "X-Idempotency-Key: k", func(p *policy.Policy) { p.RetryAfterOverCap, p.OnPark = "park", 503 }, parks + "503 parked maybe check", "", "the client gets 503 parked"},
		{"for longer than keys live", true, "X-Idempotency-Key: k", func(p *policy.Policy) { p.RetryAfterOverCap = "park" }, stops, "", "goes on when its client leaves"},
		{"in memory", false, "X-Idempotency-Key: k", func(p *policy.Policy) { p.RetryAfterOverCap = "park" }, stops, "", "without a durable store"},
		{"without a key", true, "A: b", func(p *policy.Policy) { p.RetryAfterOverCap = "park" }, stops, "", "without a key the call is not parked"},
		{"an upgrade", true, "X-Idempotency-Key: k\nConnection: Upgrade\nUpgrade: x", func(p *policy.Policy) { p.RetryAfterOverCap = "park" }, stops, "", "an upgrade is not parked"},
		{"nothing asked for", false, "X-Idempotency-Key: k", func(*policy.Policy) {}, waits, "", ""},
		{"held", true, "X-Idempotency-Key: k", func(p *policy.Policy) { p.ClientHold = 10 * time.Second }, waits, "202 parked maybe check after 10s", "held for 10s (client_hold): then it gets 202 parked"},
		{"asks for 202 at once", true, "X-Idempotency-Key: k\nPrefer: respond-async", func(p *policy.Policy) { p.RetryAfterOverCap = "park" }, parks + "202 parked maybe check", "202 parked maybe check after 0s", "held for 0s (Prefer: respond-async)"},
		{"held to the end", true, "X-Idempotency-Key: k", func(p *policy.Policy) { p.ClientHold = time.Hour }, waits, "", "held for 1h0m0s"},
		{"held in memory", false, "X-Idempotency-Key: k\nPrefer: wait=5", func(*policy.Policy) {}, waits, "", "without a durable store (serve -data DIR)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, p := explainSettings(t), explainPolicy("default", policy.Match{})
			p.OnPark = 202
			tt.change(p)
			var err error
			if s.Policies, err = policy.NewSet([]*policy.Policy{p}, time.UTC); err != nil {
				t.Fatal(err)
			}
			s.KeyTTL = 2 * time.Hour
			if strings.Contains(tt.name, "longer") {
				s.KeyTTL = time.Hour
			}
			e := explained(t, s, ExplainRequest{Method: "POST", URL: "http://a.test/", Durable: tt.durable, Fields: header(strings.Split(tt.fields, "\n")...)})
			if got := e.row("503 with Retry-After: 3600"); got != tt.want {
				t.Errorf("503 with Retry-After = %s, want %s", got, tt.want)
			}
			letGo := ""
			for _, o := range e.Outcomes {
				if l := o.LetGo; l != nil && o.Outcome == "503 with Retry-After: 3600" {
					letGo = fmt.Sprintf("%d %s %s %s after %v", l.Status, l.Reason, l.Executed, l.Advice, time.Duration(l.AfterMS)*time.Millisecond)
				}
			}
			if letGo != tt.letGo {
				t.Errorf("let go = %q, want %q", letGo, tt.letGo)
			}
			if got := strings.Join(e.Notes, "\n"); !strings.Contains(got, tt.note) || tt.note == "" && got != "" {
				t.Errorf("notes = %q, want %q", got, tt.note)
			}
			if lasts := tt.durable && e.Keyed && tt.name != "an upgrade"; e.Lasting != lasts {
				t.Errorf("Lasting = %v, want %v", e.Lasting, lasts)
			}
		})
	}
}

func TestExplainTunnelHasOnlyWhatATunnelCanMeet(t *testing.T) {
	e := explained(t, explainSettings(t), ExplainRequest{Method: "CONNECT", URL: "a.test:443"})
	for _, o := range e.Outcomes {
		if o.Reason == "status_200" || o.Reason == "tls_verify" || o.Reason == "reset_after_send" {
			t.Errorf("a tunnel can meet %s", o.Outcome)
		}
	}
	if got, want := e.row("connection refused"), "transient connect_refused [not_sent] no: retry connect_refused 1s; 4 in 7s: 502 attempts_exhausted no repeat"; got != want {
		t.Errorf("refused = %s, want %s", got, want)
	}
	if e.Headers != nil {
		t.Errorf("headers = %v, want none", e.Headers)
	}
}

func TestExplainStreamedBody(t *testing.T) {
	e := explained(t, explainSettings(t), ExplainRequest{Method: "PUT", URL: "http://a.test/", Body: make([]byte, 1001)})
	if got, want := e.row("500"), "transient status_500 [method] maybe: stop body_not_replayable 0s; 1 in 0s: 500 body_not_replayable maybe check"; got != want {
		t.Errorf("500 = %s, want %s", got, want)
	}
	if got := e.row("connection refused"); !strings.Contains(got, "retry connect_refused") {
		t.Errorf("refused = %s, want a retry", got)
	}
}

func TestExplainTimeAndRetries(t *testing.T) {
	req := ExplainRequest{
		Method: "GET", URL: "http://a.test/", Fields: header("X-Retry-Count: 1", "X-Request-Timeout: 20", "X-Shop-Id: 7"),
		Rates: map[string]string{"global": "300/m", "shop": "5/m"},
	}
	e := explained(t, explainSettings(t), req)
	if e.DeadlineMS != 20_000 || e.ConnectMS != 5000 || e.PerTryMS != 15_000 {
		t.Errorf("times = %d %d %d, want 20 s, 5 s, 15 s", e.DeadlineMS, e.ConnectMS, e.PerTryMS)
	}
	if e.Retries != 2 || e.RetriesWhy == "" {
		t.Errorf("retries = %d, %q, want 2 with a reason", e.Retries, e.RetriesWhy)
	}
	if diff := cmp.Diff([]Delay{{1, 1000, 1000, 1000}, {2, 2000, 2000, 2000}}, e.Delays); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Bucket{{"global", "", "300/m"}, {"shop", "7", "5/m"}}, e.Buckets); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
	want := []HeaderLine{{"Via", "1.1 retryproxy-<process>"}, {"X-Retry-Count", "1"}}
	if diff := cmp.Diff(want, e.Headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&HeaderLine{"X-Retry-Count", "2"}, e.RetryHeader); diff != "" {
		t.Errorf("retry header (-want +got):\n%s", diff)
	}
}

func TestExplainJitter(t *testing.T) {
	tests := []struct {
		jitter string
		key    string
		want   Delay
	}{
		{"random", "", Delay{1, 2000, 1600, 2400}},
		{"full", "", Delay{1, 2000, 0, 2000}},
		{"stable", "", Delay{1, 2000, 1000, 2000}},
		{"stable", "flight-1", Delay{1, 2000, 1883, 1883}},
	}
	for _, test := range tests {
		s := explainSettings(t)
		p := explainPolicy("default", policy.Match{})
		p.MaxRetries, p.FirstRetry, p.Backoff.Base, p.Backoff.Jitter = 1, "fast", 2*time.Second, test.jitter
		var err error
		if s.Policies, err = policy.NewSet([]*policy.Policy{p}, time.UTC); err != nil {
			t.Fatal(err)
		}
		req := ExplainRequest{Method: "GET", URL: "http://a.test/"}
		if test.key != "" {
			req.Fields = header("X-Idempotency-Key: " + test.key)
			test.want.MinMS = int64(2000 * (0.5 + 0.5*backoff.Stable(test.key, 1)))
			test.want.MaxMS = test.want.MinMS
		}
		e := explained(t, s, req)
		if diff := cmp.Diff([]Delay{test.want}, e.Delays); diff != "" || !e.FastFirst {
			t.Errorf("%s %s, fast %v (-want +got):\n%s", test.jitter, test.key, e.FastFirst, diff)
		}
	}
}

func TestExplainSwitch(t *testing.T) {
	sw, err := NewSwitch("on", []Scope{{Match: policy.Match{Host: []string{"a.test"}}, Value: "off"}}, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Explain(explainSettings(t), sw, ExplainRequest{Method: "GET", URL: "http://a.test/"}, noon)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.row("503"), "transient status_503 [refused] no: stop retries_off 0s; 1 in 0s: 503 retries_off no repeat"; e.Switch != "off" || got != want {
		t.Errorf("switch %s, 503 = %s, want off, %s", e.Switch, got, want)
	}
}

func TestExplainHidesCredentials(t *testing.T) {
	e := explained(t, explainSettings(t), ExplainRequest{
		Method: "GET", URL: "http://a.test/",
		Fields: header("Authorization: Bearer hush", "Cookie: s=hush", "X-Shop-Id: 7", "Connection: X-Hop", "X-Hop: 1", "Accept: */*"),
	})
	want := []HeaderLine{{"Authorization", "<secret>"}, {"Cookie", "<secret>"}, {"Accept", "*/*"}, {"Via", "1.1 retryproxy-<process>"}}
	if diff := cmp.Diff(want, e.Headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestExplainOptionsStar(t *testing.T) {
	e := explained(t, explainSettings(t), ExplainRequest{Method: "OPTIONS", URL: "*"})
	if e.Refused != nil || len(e.Notes) != 1 || len(e.Hops) != 0 {
		t.Errorf("Explain(OPTIONS *) = %+v, want a note that it is answered here", e)
	}
}

func TestExplainAnOpenedTunnel(t *testing.T) {
	s := explainSettings(t)
	s.Intercept = &Interception{Hosts: policy.NewHosts([]string{"open.example"})}
	e := explained(t, s, ExplainRequest{Method: "CONNECT", URL: "open.example:443"})
	if e.Refused != nil || len(e.Outcomes) > 0 || len(e.Delays) > 0 || e.Retries != 0 || e.RetriesWhy == "" {
		t.Errorf("Explain of an opened tunnel = %+v, want no outcome and no retry, since nothing is dialled", e)
	}
	if len(e.Notes) != 1 || !strings.Contains(e.Notes[0], "each request inside is a call of its own") {
		t.Errorf("notes = %q, want that requests inside are calls of their own", e.Notes)
	}
	if e = explained(t, s, ExplainRequest{Method: "CONNECT", URL: "a.test:443"}); len(e.Outcomes) == 0 || e.Retries != 3 {
		t.Errorf("Explain of a tunnel that stays closed = %d outcomes, %d retries, want some and 3", len(e.Outcomes), e.Retries)
	}
}

// Who leaves by which egress is known from the requests inside, so that the CONNECT is
// opened, as on the wire; a tunnel that stays closed goes nowhere.
func TestExplainAnOpenedTunnelWithoutAnEgress(t *testing.T) {
	table, err := egress.NewTable(egress.Config{Deny: true})
	if err != nil {
		t.Fatal(err)
	}
	s := explainSettings(t)
	s.Egress, s.Intercept = table, &Interception{Hosts: policy.NewHosts([]string{"open.example"})}
	e := explained(t, s, ExplainRequest{Method: "CONNECT", URL: "open.example:443"})
	if e.Refused != nil || len(e.Hops) != 1 || !strings.HasPrefix(e.Hops[0].Why, "a tunnel that is opened") {
		t.Errorf("Explain of an opened tunnel = %+v, refused %+v, want it opened", e.Hops, e.Refused)
	}
	e = explained(t, s, ExplainRequest{Method: "CONNECT", URL: "a.test:443"})
	if e.Refused == nil || e.Refused.Reason != "destination_denied" {
		t.Errorf("Explain of a tunnel that stays closed = %+v, want it denied", e.Refused)
	}
}

func TestExplainEgress(t *testing.T) {
	table, err := egress.NewTable(egress.Config{
		Rules: []egress.Rule{{
			Name: "pool", Match: egress.Match{Shop: []string{"7"}}, OnFailure: egress.Next,
			Proxies: []egress.Proxy{{Scheme: "http", Host: "10.0.0.1", Port: 3128, User: "u", Password: "hush"}, {Scheme: "http", Host: "10.0.0.2", Port: 3128}},
		}},
		Deny: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := explainSettings(t)
	s.Egress = table
	e := explained(t, s, ExplainRequest{Method: "GET", URL: "http://a.test/", Fields: header("X-Shop-Id: 7")})
	if len(e.Hops) != 1 || len(e.Hops[0].Egress) != 2 || !strings.HasPrefix(e.Hops[0].Egress[0], "pool (10.0.0.") || e.Refused != nil {
		t.Errorf("hops of shop 7 = %+v, refused %v, want both members of the pool", e.Hops, e.Refused)
	}
	e = explained(t, s, ExplainRequest{Method: "GET", URL: "http://a.test/"})
	if e.Refused == nil || e.Refused.Status != 403 || !strings.Contains(e.Refused.Detail, "egress_default is deny") {
		t.Errorf("a call without egress = %+v, want it refused by egress_default", e.Refused)
	}
}
