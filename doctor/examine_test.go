package doctor

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/classify"
	"retryproxy/config"
)

var update = flag.Bool("update", false, "write the golden files anew")

// well are facts in which nothing is to be mended.
func well() *Facts {
	good := Answer{Phase: classify.PhaseDone, Status: 200, Date: began, At: began.Add(time.Second), Took: 80 * time.Millisecond}
	quick := good
	quick.Took = 12 * time.Millisecond
	return &Facts{
		Now: began,
		Shell: Shell{OS: "linux", Vars: map[string]string{
			"HTTP_PROXY": "http://127.0.0.1:8080", "http_proxy": "http://127.0.0.1:8080", "HTTPS_PROXY": "http://localhost:8080", "NO_PROXY": "localhost,.corp.test",
		}},
		Setup: Setup{
			File: "bot.yaml", Listen: []string{"127.0.0.1:8080"}, Proxy: "127.0.0.1:8080", Store: "sqlite",
			Upgrade: []string{"gw.pdd.test"}, Clients: []string{"127.0.0.0/8", "::1/128"},
			Upstreams: []Upstream{{URL: "https://gw.pdd.test", From: "upgrade_to_https"}, {URL: "https://10.1.2.3:8443", From: "route erp", Route: true}},
		},
		Running: Running{Admin: "127.0.0.1:9090", Version: "v1.2.3", OwnVersion: "v1.2.3", SpoolFree: 9 << 30},
		Probes:  []Probe{{Target: Target{URL: "https://gw.pdd.test"}, From: "upgrade_to_https", Answer: good}, {Target: Target{URL: "https://10.1.2.3:8443"}, From: "route erp", Answer: quick}},
		Seen:    &View{Calls: 100, Tunnels: 0, NoShop: 10, NoTask: 20, Reasons: map[string]int64{"attempts_exhausted": 3}},
	}
}

// opening are well facts of a proxy that opens tunnels.
func opening() *Facts {
	f := well()
	f.Setup.Intercept = []string{"api.temu.test"}
	f.Trust = Trust{File: "/data/ca.pem", Key: "/data/ca.key", KeyMode: 0o600, Expires: began.AddDate(5, 0, 0), System: true, Print: "AB:CD"}
	f.Running.Fingerprint = "abcd"
	f.Shell.Bundles = map[string]Bundle{}
	return f
}

// fails lets the first upstream fail.
func fails(fault classify.Fault, detail string) func(*Facts) {
	return func(f *Facts) { f.Probes[0].Answer = Answer{Fault: fault, Detail: detail} }
}

// shows lets the first upstream have a bad certificate.
func shows(c Cert) func(*Facts) {
	return func(f *Facts) {
		fails(classify.FaultVerify, "the certificate does not hold")(f)
		f.Probes[0].Cert = &c
	}
}

// sets sets variables.
func sets(pairs ...string) func(*Facts) {
	return func(f *Facts) {
		for i := 0; i < len(pairs); i += 2 {
			f.Shell.Vars[pairs[i]] = pairs[i+1]
			if pairs[i+1] == "" {
				delete(f.Shell.Vars, pairs[i])
			}
		}
	}
}

// onlyHTTP leaves HTTP_PROXY alone.
var onlyHTTP = sets("http_proxy", "", "HTTPS_PROXY", "")

func leaves(fault classify.Fault) func(*Facts) {
	return func(f *Facts) {
		f.Exits = []Exit{{"proxy-a", "socks5://10.0.0.9:1080"}}
		f.Probes[0].Exit = "proxy-a"
		fails(fault, "it said no")(f)
	}
}

func bundle(name string, b Bundle) func(*Facts) {
	return func(f *Facts) { f.Shell.Bundles[name] = b }
}

func reason(name string, n int64) func(*Facts) {
	return func(f *Facts) { f.Seen.Reasons = map[string]int64{name: n} }
}

// cuts lets the running proxy tell of breakers as its API does.
func cuts(text string) func(*Facts) {
	return func(f *Facts) {
		if err := json.Unmarshal([]byte(text), &f.Running.Cut); err != nil {
			panic(err)
		}
	}
}

func client(c ClientView) func(*Facts) {
	return func(f *Facts) { c.Client = "10.0.0.7"; f.Seen.Clients = []ClientView{c} }
}

// findingCase is one finding: facts that are well but for one thing.
type findingCase struct {
	id     string
	from   func() *Facts
	change func(*Facts)
}

func findingCases() []findingCase {
	return slices.Concat(shellCases(), proxyCases(), upstreamCases(), trustCases(), trafficCases())
}

func shellCases() []findingCase {
	upstreamAt := func(url string) func(*Facts) {
		return func(f *Facts) { f.Setup.Upstreams[0].URL = url }
	}
	return []findingCase{
		{"env.none", well, sets("HTTP_PROXY", "", "http_proxy", "", "HTTPS_PROXY", "")},
		{"env.unreadable", well, sets("HTTPS_PROXY", "http://")},
		{"env.unquoted", well, sets("HTTPS_PROXY", "http://shop=17")},
		{"env.elsewhere", well, sets("HTTPS_PROXY", "http://me:hush@10.0.0.1:3128")},
		{"env.scheme", well, sets("HTTPS_PROXY", "https://127.0.0.1:8080")},
		{"env.labels", well, sets("HTTPS_PROXY", "http://shop=17,task=order_ship,what=9:hush@127.0.0.1:8080")},
		{"env.users", well, func(f *Facts) { f.Setup.Users = true }},
		{"env.conflict", well, sets("https_proxy", "http://127.0.0.1:8080")},
		{"env.curl_upper_case", well, sets("http_proxy", "")},
		{"env.https_missing", well, sets("HTTPS_PROXY", "")},
		{"env.all_only", well, sets("HTTP_PROXY", "", "http_proxy", "", "HTTPS_PROXY", "", "ALL_PROXY", "http://127.0.0.1:8080")},
		{"env.cgi", well, sets("REQUEST_METHOD", "GET")},
		{"env.no_proxy_all", well, sets("NO_PROXY", "*")},
		{"env.no_proxy", well, sets("NO_PROXY", "localhost,pdd.test")},
		{"env.go_loopback", well, upstreamAt("http://127.0.0.1:7000")},
		{"env.node_old", well, func(f *Facts) { f.Shell.Node = "v20.11.1" }},
		{"env.node_flag", well, func(f *Facts) { f.Shell.Node = "v24.5.0" }},
		{"env.java", well, func(f *Facts) { f.Shell.Java = true }},
		{"env.java_https", well, func(f *Facts) {
			f.Shell.Java = true
			sets("JAVA_TOOL_OPTIONS", "-Xmx1g -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=8080")(f)
		}},
		{"env.socks", well, sets("ALL_PROXY", "socks5://127.0.0.1:8080")},
	}
}

func proxyCases() []findingCase {
	r := func(change func(*Running)) func(*Facts) { return func(f *Facts) { change(&f.Running) } }
	return []findingCase{
		{"config.fault", well, func(f *Facts) { f.Setup.Faults = []string{"bot.yaml:3: drain: -1s must be above 0"} }},
		{"config.warning", well, func(f *Facts) { f.Setup.Warnings = []string{"intercept.hosts: * opens every tunnel"} }},
		{"config.timezone", well, func(f *Facts) { f.Setup.Warnings = []string{"timezone: Local is UTC here"} }},
		{"config.unset", well, func(f *Facts) { f.Setup.Unset = []string{"PROXY_PW"} }},
		{"proxy.hidden", well, r(func(r *Running) { r.Hidden = []string{"proxy-a"} })},
		{"proxy.retries_off", well, func(f *Facts) {
			f.Running.Admin = "127.0.0.1:9191"
			f.Running.Retries = &Switch{Default: "observe", Scopes: []Scope{
				{Match: map[string]any{"host": []any{"a.test", "b.test"}, "shop": []any{"s1"}}, Value: "off", Until: began.Add(-time.Hour)},
				{Match: map[string]any{"host": []any{"a.test", "b.test"}, "shop": []any{"s1"}}, Value: "off", Until: began.Add(time.Hour)},
				{Match: map[string]any{"host": []any{"c.test"}}, Value: "on"},
			}}
			f.Setup.Retries.Default = "off"
		}},
		{"proxy.down", well, r(func(r *Running) { r.AdminFault, r.ProxyFault = "refused", "connection refused" })},
		{"proxy.port", well, r(func(r *Running) { r.ProxyFault = "connection refused" })},
		{"proxy.token", well, r(func(r *Running) { r.AdminFault, r.Token = "it answers 401 Unauthorized", true })},
		{"proxy.no_admin", well, r(func(r *Running) { r.Admin = "" })},
		{"proxy.admin", well, r(func(r *Running) { r.AdminFault = "connection refused" })},
		{"proxy.not_ready", well, r(func(r *Running) { r.NotReady = "shutting down" })},
		{"proxy.reload_failed", well, func(f *Facts) {
			f.Running.Reload, f.Seen.Reload = true, "bot.yaml:3: drain: must be above 0"
		}},
		{"proxy.version", well, r(func(r *Running) { r.Version = "v1.0.0" })},
		{"proxy.other_config", well, r(func(r *Running) { r.Unexamined = true })},
		{"proxy.drift", well, r(func(r *Running) { r.Drift = []string{"retry_limits", "shops"} })},
		{"proxy.memory", well, func(f *Facts) { f.Setup.Store, f.Running.Records = "memory", 12 }},
		{"proxy.data", well, func(f *Facts) { f.Setup.Kept = "/var/lib/retryproxy" }},
		{"proxy.disk", well, r(func(r *Running) { r.SpoolFree = 5 << 20 })},
	}
}

func upstreamCases() []findingCase {
	skewed := func(by time.Duration) func(*Facts) {
		return func(f *Facts) {
			for i := range f.Probes {
				f.Probes[i].At = f.Probes[i].Date.Add(by)
			}
		}
	}
	return []findingCase{
		{"up.no_such_host", well, fails(classify.FaultNoSuchHost, "no such host: gw.pdd.test")},
		{"up.dns", well, fails(classify.FaultDNS, "no address of gw.pdd.test in time")},
		{"up.refused", well, fails(classify.FaultRefused, "10.0.0.1:443 refused the connection")},
		{"up.timeout", well, fails(classify.FaultTimeout, "no answer from 10.0.0.1:443 in time")},
		{"up.tls", well, fails(classify.FaultTLS, "TLS with gw.pdd.test: first record does not look like a TLS handshake")},
		{"up.denied", well, fails(classify.FaultDenied, "10.0.0.1 is a private address")},
		{"up.loop", well, fails(classify.FaultLoop, "loop: 127.0.0.1:8080")},
		{"up.broken", well, fails(classify.FaultReset, "connection to 10.0.0.1:443 was reset")},
		{"up.tls_verify", well, fails(classify.FaultVerify, "the certificate does not hold")},
		{"up.tls_expired", well, shows(Cert{Fault: "expired", Expires: began.AddDate(0, 0, -3)})},
		{"up.tls_not_yet", well, shows(Cert{Fault: "not_yet", Begins: began.AddDate(0, 0, 3)})},
		{"up.tls_name", well, shows(Cert{Fault: "wrong_name", Names: []string{"*.shop.test", "shop.test"}})},
		{"up.tls_unknown_root", well, shows(Cert{Fault: "unknown_root", Issuer: "CN=Corp Inspection"})},
		{"up.unwell", well, func(f *Facts) { f.Probes[0].Status = 503 }},
		{"up.slow", well, func(f *Facts) { f.Probes[0].Took = 3100 * time.Millisecond }},
		{"clock.skew", well, skewed(47 * time.Second)},
		{"clock.odd_host", well, func(f *Facts) { f.Probes[0].At = f.Probes[0].Date.Add(time.Hour) }},
		{"up.not_asked", well, func(f *Facts) { f.Offline, f.Probes = true, nil }},
		{"up.shipped", well, func(f *Facts) {
			f.Probes[0].Shipped = true
			fails(classify.FaultTimeout, "no answer from 10.0.0.1:443 in time")(f)
		}},
		{"egress.shipped", well, func(f *Facts) {
			f.Probes[0].Shipped = true
			leaves(classify.FaultEgressFailed)(f)
			f.Probes[0].Detail = "egress proxy-a (socks5://10.0.0.9:1080): gw.pdd.test:443: it answered 502 Bad Gateway"
		}},
		{"egress.calls", well, failing(FailureView{Reason: "attempts_exhausted", Cause: "egress_auth", Egress: "proxy-a", Host: "gw.pdd.test:443", Calls: 9, ID: "c1", Detail: "egress proxy-a (socks5://10.0.0.9:1080): the password is wrong"})},
		{"egress.unreachable", well, leaves(classify.FaultEgressUnreachable)},
		{"egress.timeout", well, leaves(classify.FaultEgressTimeout)},
		{"egress.auth", well, leaves(classify.FaultEgressAuth)},
		{"egress.denied", well, leaves(classify.FaultEgressDenied)},
		{"egress.failed", well, leaves(classify.FaultEgressFailed)},
		{"egress.bare_shops", well, func(f *Facts) { f.Setup.Deny, f.Setup.BareShops = true, []string{"s1", "s2"} }},
	}
}

func trustCases() []findingCase {
	ours := Bundle{File: "/data/bundle.pem", Count: 140, Ours: true}
	other := Bundle{File: "/etc/corp.pem", Count: 140}
	return []findingCase{
		{"trust.missing", opening, func(f *Facts) { f.Trust.Missing, f.Running.Fingerprint = true, "" }},
		{"trust.unreadable", opening, func(f *Facts) { f.Trust.Fault = "/data/ca.pem: permission denied" }},
		{"trust.key_mode", opening, func(f *Facts) { f.Trust.KeyMode = 0o644 }},
		{"trust.expires", opening, func(f *Facts) { f.Trust.Expires = began.AddDate(0, 0, 29) }},
		{"trust.expired", opening, func(f *Facts) { f.Trust.Expires = began }},
		{"trust.other_ca", opening, func(f *Facts) { f.Running.Fingerprint = "11:22" }},
		{"trust.system", opening, func(f *Facts) { f.Trust.System = false }},
		{"trust.passed_through", opening, func(f *Facts) {
			f.Running.Passed = []Passed{{Client: "10.0.0.7", Host: "api.temu.test:443"}}
		}},
		{"trust.bundle_unreadable", well, func(f *Facts) {
			f.Shell.Bundles = map[string]Bundle{"SSL_CERT_FILE": {File: "/no", Fault: "open /no: no such file"}}
		}},
		{"trust.bundle_lacks", opening, func(f *Facts) {
			public := Bundle{File: "/etc/ssl/certs/ca-certificates.crt", Count: 140}
			f.Shell.Bundles = map[string]Bundle{"REQUESTS_CA_BUNDLE": other, "SSL_CERT_FILE": public, "CURL_CA_BUNDLE": public, "NODE_EXTRA_CA_CERTS": ours}
		}},
		{"trust.requests_replaces", opening, bundle("REQUESTS_CA_BUNDLE", Bundle{File: "/data/ca.pem", Count: 1, Ours: true})},
		{"trust.requests_unset", opening, bundle("SSL_CERT_FILE", ours)},
		{"trust.node_unset", opening, func(f *Facts) { f.Shell.Node = "v20.11.1" }},
	}
}

func trafficCases() []findingCase {
	out := []findingCase{
		{"traffic.user_name", well, func(f *Facts) { f.Running.Misspelt = 4 }},
		{"traffic.suspect", well, func(f *Facts) { f.Seen.Hosts = []HostView{{Host: "gw.pdd.test:443", Calls: 40, Suspect: 7}} }},
		{"traffic.tunnels", well, func(f *Facts) {
			f.Seen.Tunnels, f.Seen.Hosts = 300, []HostView{{Host: "api.temu.test:443", Tunnels: 200}, {Host: "b.test:8443", Tunnels: 90}, {Host: "gw.pdd.test:443", Tunnels: 10}}
		}},
		{"traffic.outage", well, cuts(`{"hosts": [{"host": "well.test:80", "state": "closed"}, {"host": "a.test:80", "state": "open", "outage": {"since": "2026-03-04T05:03:00Z", "reach": "several_shops", "waiting": 12}}]}`)},
		{"traffic.shop_cut_off", well, cuts(`{"shops": [{"shop": "s17", "host": "a.test:80", "reason": "status_401"}]}`)},
		{"traffic.labels", well, func(f *Facts) { f.Seen.NoShop = 51 }},
		{"traffic.doubled_posts", well, client(ClientView{Calls: 9, AfterFailure: 2, Failures: 2, Doubled: 2, Example: "POST gw.pdd.test:443/order"})},
		{"traffic.own_retries", well, client(ClientView{Calls: 90, AfterFailure: 8, Failures: 9, AfterSuccess: 5, Example: "GET gw.pdd.test:443/stock"})},
		{"traffic.count_without_key", well, client(ClientView{Calls: 9, Counting: 3})},
		{"traffic.not_repeated", well, client(ClientView{Calls: 9, Reviews: 3})},
	}
	out = append(out, failureCases()...)
	for i, c := range causes {
		if i == 0 {
			out = append(out, findingCase{"traffic." + c.reason, well, func(f *Facts) {
				reason(c.reason, 60)(f)
				failing(FailureView{Reason: c.reason, Host: "a.test:80", Calls: 50, ID: "c5", Detail: "wrong password"})(f)
			}})
			continue
		}
		out = append(out, findingCase{"traffic." + c.reason, well, reason(c.reason, 60)})
	}
	return out
}

func failing(list ...FailureView) func(*Facts) {
	return func(f *Facts) { f.Seen.Failures = list }
}

// failureCases are those of calls that failed or were refused.
func failureCases() []findingCase {
	refused := func(reason, cause, host, detail string) func(*Facts) {
		return failing(
			FailureView{Reason: reason, Cause: cause, Host: host, Calls: 6, ID: "c7", Detail: detail},
			FailureView{Reason: reason, Cause: cause, Host: "x.test:443", Calls: 2, ID: "c8", Detail: "another"})
	}
	return []findingCase{
		{"traffic.client_denied", well, refused("client_denied", causeAddress, "a.test:80", "client denied: address 10.0.0.9 is not in clients.allow")},
		{"traffic.label_conflict", well, refused("client_denied", causeLabels, "a.test:80", "client denied: the shop in X-Shop-Id contradicts the one configured in clients.users")},
		{"traffic.own_name", well, refused("client_denied", causeOwnName, "proxy.test:8080", `Host "proxy.test:8080" is not served here (listen.hosts)`)},
		{"traffic.cross_site", well, refused("client_denied", causeCrossSite, "a.test:80", "cross-site browser request (routes.cross_site)")},
		{"traffic.client_refused", well, refused("client_denied", "", "a.test:80", "the shop tier is wrong")},
		{"traffic.no_egress", well, refused("destination_denied", causeNoRule, "a.test:443", "egress: denied: egress_default is deny and no egress rule is meant for this call")},
		{"traffic.no_shop", well, refused("destination_denied", causeNoShop, "a.test:443", `egress: denied: egress rule "home" names {shop} and the call has none`)},
		{"traffic.no_task_type", well, refused("destination_denied", causeNoTaskType, "a.test:443", `egress: denied: egress rule "home" names {task_type} and the call has none`)},
		{"traffic.connect_port", well, refused("destination_denied", causePort, "a.test:8443", "CONNECT to port 8443 is not allowed (destinations.connect_ports)")},
		{"traffic.destination_denied", well, refused("destination_denied", causePrivate, "erp.corp.test:443", "destination denied: 10.0.0.1 is a private address (destinations.private: auto)")},
		{"traffic.destination_refused", well, refused("destination_denied", causeListed, "a.test:443", "destination denied: a.test is in destinations.deny")},
		{"traffic.failed", well, func(f *Facts) {
			f.Seen.Calls = 6
			failing(
				FailureView{Reason: "attempts_exhausted", Cause: "status_5xx", Host: "a.test:443", Calls: 3, ID: "c1", Detail: "503 Service Unavailable"},
				FailureView{Reason: "fail_permanent", Cause: "status_4xx", Host: "b.test:443", Calls: 1, ID: "c2"})(f)
		}},
		{"traffic.refused_ca", opening, func(f *Facts) {
			f.Running.Passed = []Passed{{Client: "10.0.0.8;shop=s1", Host: "api.temu.test:443"}}
			f.Seen.Refused = []FailureView{
				{Client: "10.0.0.8", Host: "api.temu.test:443", Calls: 3},
				{Client: "10.0.0.7", Host: "api.temu.test:443", Calls: 2, ID: "c3"},
			}
		}},
	}
}

// A line for an upstream that speaks HTTP/2 without TLS is one that curl takes.
func TestCurlOfH2C(t *testing.T) {
	f := well()
	f.Probes[0].URL = "h2c://gw.pdd.test:9000"
	fails(classify.FaultRefused, "refused")(f)
	want := "curl -sv -o /dev/null --http2-prior-knowledge --noproxy '*' http://gw.pdd.test:9000/"
	if list := examineUpstreams(f); list[0].Fix[0].Line != want {
		t.Errorf("fix = %s, want %s", list[0].Fix[0].Line, want)
	}
}

// The admin listener is never asked through the proxy.
func TestCurlOfTheAdminListener(t *testing.T) {
	for _, c := range findingCases() {
		f := c.from()
		c.change(f)
		for _, x := range Examine(f) {
			for _, fix := range x.Fix {
				if strings.Contains(fix.Line, "curl") && strings.Contains(fix.Line, "//"+f.Running.Admin) && !strings.Contains(fix.Line, "--noproxy '*'") {
					t.Errorf("%s: %s", x.ID, fix.Line)
				}
			}
		}
	}
}

// Where the proxy uses another CA nothing is advised about our file.
func TestAnotherCAIsTheOnlyFinding(t *testing.T) {
	f := opening()
	f.Running.Fingerprint, f.Trust.System, f.Trust.KeyMode = "11:22", false, 0o644
	f.Shell.Bundles = map[string]Bundle{"SSL_CERT_FILE": {File: "/etc/corp.pem", Count: 140}}
	list := slices.DeleteFunc(Examine(f), func(x Finding) bool { return x.Group != groupTrust })
	if len(list) != 1 || list[0].ID != "trust.other_ca" {
		t.Errorf("trust = %v, want trust.other_ca alone", list)
	}
}

// The switch of the configuration counts while none is told, and a scope for all
// calls hides what comes after it.
func TestSwitchOfTheConfiguration(t *testing.T) {
	w := world(t, `retries: {default: "off", scopes: [{match: {host: a.test, hour_range: 2-6}, value: observe}, {match: {}, value: "on"}]}`)
	f := well()
	f.Setup.Retries = configured(w.Config)
	list := examineSwitch(f)
	if len(list) != 1 || list[0].Severity != Warning || list[0].Seen != "retries are only observed for host a.test, hour_range 2-6" || len(list[0].Fix) != 1 {
		t.Errorf("examineSwitch = %v", list)
	}
	f.Setup.Retries.Scopes = nil
	if list = examineSwitch(f); len(list) != 1 || list[0].Severity != Problem || list[0].Fix[0].Into != "config" {
		t.Errorf("examineSwitch = %v", list)
	}
}

func TestAllIsWell(t *testing.T) {
	for name, f := range map[string]*Facts{"well": well(), "opening": opening()} {
		var b bytes.Buffer
		if err := Print(&b, Examine(f), "linux"); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.String())
		if n := strings.Count(b.String(), "\n"); n >= 15 || Worst(Examine(f)) != OK {
			t.Errorf("%s: %d lines, want fewer than 15 and all ok:\n%s", name, n, b.String())
		}
	}
}

// Each finding is made by the one change of its case, and by no other thing.
func TestFindings(t *testing.T) {
	for _, c := range findingCases() {
		t.Run(c.id, func(t *testing.T) {
			f := c.from()
			if slices.ContainsFunc(Examine(f), func(x Finding) bool { return x.ID == c.id }) {
				t.Fatalf("%s is found without a reason", c.id)
			}
			c.change(f)
			list := Examine(f)
			list = slices.DeleteFunc(list, func(x Finding) bool { return x.ID != c.id })
			if len(list) == 0 {
				t.Fatalf("Examine does not find %s", c.id)
			}
			var b strings.Builder
			for i := range list {
				list[i].print(&b, "")
				if len(list[i].Fix) == 0 {
					t.Errorf("%s has no line that mends it", c.id)
				}
			}
			golden(t, c.id, b.String())
			if strings.Contains(b.String(), "hush") {
				t.Errorf("%s shows a password:\n%s", c.id, b.String())
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
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

// Every id in the code has a case.
func TestEveryFindingHasACase(t *testing.T) {
	known := map[string]bool{}
	for _, c := range findingCases() {
		known[c.id] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`"((?:config|env|proxy|up|clock|egress|trust|traffic)\.[a-z_]+)"`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range id.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasSuffix(file, "_test.go") && !known[m[1]] {
				t.Errorf("%s: %s has no case", file, m[1])
			}
		}
	}
}

// Every line for the configuration is one that the configuration takes.
func TestConfigurationLinesAreValid(t *testing.T) {
	list := regexp.MustCompile(`# under (\w+)`)
	checked := 0
	ca, _ := identity(t, nil)
	opt := config.Options{
		Getenv:   func(string) string { return "x" },
		ReadFile: func(string) ([]byte, error) { return ca, nil },
	}
	for _, c := range findingCases() {
		f := c.from()
		c.change(f)
		for _, x := range Examine(f) {
			for _, fix := range x.Fix {
				if fix.Into != "config" {
					continue
				}
				text := strings.ReplaceAll(fix.Line, "HOST", "a.test")
				if m := list.FindStringSubmatch(text); m != nil {
					text = m[1] + ":\n  " + text
				}
				if strings.Contains(text, "RULE") {
					text = strings.ReplaceAll(text, "RULE", "proxy-a") + "\negress: [{name: proxy-a, proxy: \"http://10.0.0.1:1\"}]"
				}
				checked++
				if _, err := config.Parse("c.yaml", []byte(text), opt); err != nil {
					t.Errorf("%s: %q: %v", x.ID, fix.Line, err)
				}
			}
		}
	}
	if checked < 15 {
		t.Errorf("checked %d lines, want more", checked)
	}
}

func TestOrder(t *testing.T) {
	f := well()
	fails(classify.FaultRefused, "refused")(f)
	f.Running.Version = "v1.0.0"
	onlyHTTP(f)
	f.Setup.Store = "memory"
	list := Examine(f)
	if !slices.IsSortedFunc(list, func(a, b Finding) int { return int(b.Severity) - int(a.Severity) }) {
		t.Errorf("findings are not sorted by severity: %v", list)
	}
	if list[0].ID != "up.refused" || Worst(list) != Problem || list[len(list)-1].Severity != OK {
		t.Errorf("first is %s, worst %s", list[0].ID, Worst(list))
	}
	var b strings.Builder
	if err := Print(&b, list, "linux"); err != nil || !strings.HasPrefix(b.String(), "upstreams\n") {
		t.Errorf("Print begins with %.40q, want the group of the problem", b.String())
	}
}

// What one visitor met is no problem; a resolver that is deaf is one finding.
func TestOneFindingIsEnough(t *testing.T) {
	f := well()
	f.Seen.Calls = 2001
	reason("auth_required", 100)(f)
	if list := stopped(f); len(list) != 1 || list[0].Severity != Warning {
		t.Errorf("stopped = %v, want a warning", list)
	}
	f.Seen.Calls = 2000
	if list := stopped(f); list[0].Severity != Problem {
		t.Errorf("stopped = %v, want a problem", list)
	}
	for i := range f.Probes {
		f.Probes[i].Answer = Answer{Fault: classify.FaultDNS, Detail: "no address"}
	}
	if list := examineUpstreams(f); len(list) != 1 {
		t.Errorf("examineUpstreams = %v, want one finding", list)
	}
}

// The machine with old Node, Java and keys in memory is still told in few lines.
func TestNotesAreShort(t *testing.T) {
	f := well()
	f.Setup.Store, f.Shell.Node, f.Shell.Java = "memory", "v20.11.1", true
	for _, goos := range []string{"linux", "windows"} {
		var b strings.Builder
		if err := Print(&b, Examine(f), goos); err != nil {
			t.Fatal(err)
		}
		golden(t, "notes_"+goos, b.String())
		if n := strings.Count(b.String(), "\n"); n >= 15 {
			t.Errorf("%d lines, want fewer than 15:\n%s", n, b.String())
		}
	}
}

func TestSinceWhen(t *testing.T) {
	v := View{Since: time.Date(2026, 3, 4, 5, 6, 7, 0, time.Local)}
	if got := v.from(); got != " since Mar 4 05:06" {
		t.Errorf("from = %q", got)
	}
}

func TestNotFound(t *testing.T) {
	absent := func(id string, f *Facts, change func(*Facts)) {
		t.Helper()
		change(f)
		if slices.ContainsFunc(Examine(f), func(x Finding) bool { return x.ID == id }) {
			t.Errorf("%s is found", id)
		}
	}
	windows := func(f *Facts) { f.Shell.OS = "windows"; sets("http_proxy", "")(f) }
	absent("env.curl_upper_case", well(), windows)
	absent("env.users", well(), func(f *Facts) {
		f.Setup.Users = true
		sets("HTTP_PROXY", "http://u:p@127.0.0.1:8080", "http_proxy", "http://u:p@127.0.0.1:8080", "HTTPS_PROXY", "http://u:p@127.0.0.1:8080")(f)
	})
	absent("env.labels", well(), sets("HTTP_PROXY", "http://shop=17;task=order_ship:x@127.0.0.1:8080"))
	absent("env.cgi", well(), func(f *Facts) { sets("REQUEST_METHOD", "GET", "HTTP_PROXY", "")(f) })
	absent("env.no_proxy", well(), sets("NO_PROXY", "10.0.0.0/8")) // a route: clients call us
	absent("env.node_flag", well(), func(f *Facts) { f.Shell.Node = "v22.21.0"; sets("NODE_USE_ENV_PROXY", "1")(f) })
	absent("env.node_flag", well(), func(f *Facts) { f.Shell.Node = "v24.5.0"; sets("NODE_OPTIONS", "--use-env-proxy")(f) })
	absent("env.java", well(), sets("JAVA_TOOL_OPTIONS", "-Dhttp.proxyHost=a -Dhttps.proxyHost=a"))
	absent("env.elsewhere", well(), func(f *Facts) {
		f.Setup.Listen, f.Setup.Names = []string{"0.0.0.0:8080"}, []string{"proxy.test"}
		f.Setup.Local = []netip.Addr{netip.MustParseAddr("10.0.0.5")}
		sets("HTTP_PROXY", "http://10.0.0.5:8080", "http_proxy", "proxy.test:8080", "HTTPS_PROXY", "http://[::1]:8080")(f)
	})
	absent("clock.skew", well(), func(f *Facts) { f.Probes[0].At = f.Probes[0].Date.Add(time.Hour) }) // one odd upstream
	absent("clock.skew", well(), func(f *Facts) {
		for i := range f.Probes {
			f.Probes[i].Took, f.Probes[i].At = 4*time.Second, f.Probes[i].Date.Add(34*time.Second)
		}
	})
	absent("traffic.own_retries", well(), client(ClientView{Calls: 90, AfterFailure: 8, Failures: 9, AfterSuccess: 70})) // always that busy
	absent("traffic.own_retries", well(), client(ClientView{Calls: 90, AfterFailure: 4, Failures: 4}))
	absent("traffic.doubled_posts", well(), client(ClientView{Calls: 90, AfterFailure: 8, Failures: 9, Doubled: 8, AfterSuccess: 70}))
	absent("traffic.labels", well(), func(f *Facts) { f.Seen = &View{Calls: 19, NoShop: 19, NoTask: 19} })
	absent("trust.key_mode", opening(), func(f *Facts) { f.Shell.OS, f.Trust.KeyMode = "windows", 0o666 })
}

func TestEnvElsewhereByPortAndAddress(t *testing.T) {
	for _, value := range []string{"http://127.0.0.1:8081", "http://10.0.0.5:8080", "http://127.0.0.1", "proxy.test:8080"} {
		f := well()
		sets("HTTP_PROXY", value)(f)
		if !slices.ContainsFunc(Examine(f), func(x Finding) bool { return x.ID == "env.elsewhere" }) {
			t.Errorf("HTTP_PROXY=%s is taken for ours", value)
		}
	}
}

func TestSkewOfASlowClock(t *testing.T) {
	f := well()
	for i := range f.Probes {
		f.Probes[i].At = f.Probes[i].Date.Add(-31 * time.Second)
	}
	list := examineClock(f)
	if len(list) != 1 || !strings.Contains(list[0].Seen, "31s behind") {
		t.Errorf("examineClock = %v, want 31s behind", list)
	}
	for i := range f.Probes {
		f.Probes[i].At = f.Probes[i].Date.Add(-30 * time.Second)
	}
	if list = examineClock(f); len(list) != 0 {
		t.Errorf("examineClock at 30 s = %v, want nothing", list)
	}
}

func TestJSON(t *testing.T) {
	f := well()
	fails(classify.FaultRefused, "<refused>\x1b[2J")(f)
	text, err := JSON(Examine(f))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "json", string(text))
}

func TestPrintCannotSteerTheTerminal(t *testing.T) {
	var b strings.Builder
	_ = Print(&b, []Finding{{ID: "x", Group: groupProxy, Severity: Problem, Seen: "a\x1b[2Jb\nc"}}, "linux")
	if got := b.String(); !strings.Contains(got, "a?[2Jb?c") {
		t.Errorf("Print = %q", got)
	}
}
