package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"retryproxy/policy"
)

// same compares configurations without where they came from.
var same = cmp.Options{
	cmpopts.IgnoreUnexported(Config{}, Policy{}, TLS{}, Limit{}),
	cmpopts.EquateComparable(netip.Prefix{}),
	cmpopts.EquateEmpty(),
}

// hermetic keeps tests away from the machine they run on.
var hermetic = Options{
	Getenv:   func(string) string { return "" },
	ReadFile: func(name string) ([]byte, error) { return nil, fmt.Errorf("open %s: %w", name, os.ErrNotExist) },
}

func parse(t testing.TB, text string) *Config {
	t.Helper()
	c, err := Parse("test.yaml", []byte(text), hermetic)
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return c
}

// faults returns the error lines of a file.
func faults(t *testing.T, text string) string {
	t.Helper()
	c, err := Parse("test.yaml", []byte(text), hermetic)
	if err == nil {
		t.Fatalf("Parse(%q) = %+v, want an error", text, c)
	}
	return err.Error()
}

func TestExampleIsTheDefault(t *testing.T) {
	data, err := os.ReadFile("../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("config.yaml", data, hermetic)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), c, same); diff != "" {
		t.Errorf("config.yaml differs from Default() (-default +file):\n%s", diff)
	}
	if err := Default().Validate(); err != nil {
		t.Errorf("Default().Validate() = %v, want nil", err)
	}
	for _, p := range c.RetryPolicies {
		if p.forwardHeadersSet {
			t.Errorf("policy %s of config.yaml counts as naming forward_headers, want the built-in default", p.Name)
		}
	}
}

// Every key stands in the example, with a comment at it or at the list it is in.
func TestExampleNamesAndCommentsEveryKey(t *testing.T) {
	data, err := os.ReadFile("../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	c, err := Parse("config.yaml", data, hermetic)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Parse("effective", Default().Marshal(), hermetic)
	if err != nil {
		t.Fatal(err)
	}
	last := len(Default().RetryPolicies) - 1
	for path := range all.source.lines {
		if strings.HasPrefix(path, "retry_policies[") && !strings.HasPrefix(path, fmt.Sprintf("retry_policies[%d].", last)) {
			continue
		}
		line := c.source.lines[path]
		if path == "" || strings.HasSuffix(path, "]") || strings.HasSuffix(path, ".burst") {
			continue // burst follows from the rate
		}
		if line == 0 {
			t.Errorf("config.yaml does not have %s", path)
		} else if !commented(lines, line, path) {
			t.Errorf("config.yaml:%d: %s has no comment", line, path)
		}
	}
}

// commented: at the key, or above it, or all of its own keys are commented.
func commented(lines []string, line int, path string) bool {
	text := lines[line-1]
	return strings.Contains(text, "#") || strings.HasPrefix(lines[line-2], "#") ||
		(!strings.Contains(path, ".") || path == "breakers.host") && strings.HasSuffix(text, ":")
}

func TestSeedLoads(t *testing.T) {
	c := parse(t, `{"retry_policies":[{"match":{"task_type":"order_ship","shop_tier":"vip"},"max_retries":5,"base_delay":1,"max_delay":30,"multiplier":1.5},{"match":{"task_type":"order_ship","shop_tier":"normal"},"max_retries":3,"base_delay":2,"max_delay":60,"multiplier":2},{"match":{"task_type":"bulk_upload","hour_range":"2-6"},"max_retries":1,"base_delay":10,"max_delay":120,"multiplier":1}]}`)
	set, err := c.Policies()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range set.Policies() {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"policy_1", "policy_2", "policy_3", "default"}, names); diff != "" {
		t.Errorf("names of the seed's policies (-want +got):\n%s", diff)
	}
	night := time.Date(2026, 3, 1, 3, 0, 0, 0, c.Location())
	p := set.Match(&policy.Attrs{TaskType: "bulk_upload"}, night)
	if p.Name != "policy_3" || p.MaxRetries != 1 || p.Backoff.Base != 10*time.Second || p.Backoff.Max != 2*time.Minute || p.Deadline != 5*time.Minute {
		t.Errorf("policy at night = %+v, want policy_3 with the seed's numbers and the default deadline", p)
	}
	if p := set.Match(&policy.Attrs{TaskType: "bulk_upload"}, night.Add(3*time.Hour)); p.Name != "default" {
		t.Errorf("policy at 6:00 = %s, want default", p.Name)
	}
	if p := set.Match(&policy.Attrs{TaskType: "order_ship", ShopTier: "vip"}, night); p.Backoff.Multiplier != 1.5 || p.MaxRetries != 5 {
		t.Errorf("policy of a vip = %+v, want multiplier 1.5 and 5 retries", p)
	}
}

func TestLayers(t *testing.T) {
	c := parse(t, `
listen: {proxy: "127.0.0.1:0"}
clients:
  allow: [10.0.0.0/8]
headers: {via: false}
upgrade_to_https: []
slots: {max_in_flight: 7, adaptive: false}
`)
	want := Default()
	want.Listen.Proxy = "127.0.0.1:0"
	want.Clients.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	want.Headers.Via = false
	want.UpgradeToHTTPS = nil
	want.Slots.MaxInFlight, want.Slots.Adaptive = 7, false
	if diff := cmp.Diff(want, c, same); diff != "" {
		t.Errorf("file over defaults (-want +got):\n%s", diff)
	}
}

func TestPoliciesInherit(t *testing.T) {
	c := parse(t, `
retry_policies:
  - {match: {host: "*.test"}, max_retries: 9}
  - {name: default, base_delay: 3, forward_headers: [shop]}
  - {name: slow, match: {shop: [s1, 17]}, max_delay: 10m, forward_headers: [retry_count]}
`)
	first, slow, last := c.RetryPolicies[0], c.RetryPolicies[1], c.RetryPolicies[2]
	if first.Name != "policy_1" || slow.Name != "slow" || last.Name != "default" {
		t.Fatalf("order = %s, %s, %s, want policy_1, slow, default", first.Name, slow.Name, last.Name)
	}
	if first.BaseDelay != 3*time.Second || slow.BaseDelay != 3*time.Second || first.MaxDelay != time.Minute {
		t.Errorf("base_delay = %v, %v, max_delay %v, want 3s from default and 1m built in", first.BaseDelay, slow.BaseDelay, first.MaxDelay)
	}
	if last.MaxRetries != 3 || first.MaxRetries != 9 || slow.MaxDelay != 10*time.Minute {
		t.Errorf("own values = %d, %d, %v, want 3, 9, 10m", last.MaxRetries, first.MaxRetries, slow.MaxDelay)
	}
	if diff := cmp.Diff(Patterns{"s1", "17"}, slow.Match.Shop); diff != "" {
		t.Errorf("match.shop (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"shop"}, first.ForwardHeaders); diff != "" {
		t.Errorf("inherited forward_headers (-want +got):\n%s", diff)
	}
}

func TestForwardHeadersSet(t *testing.T) {
	for _, c := range []struct {
		name, text    string
		first, second bool // of the first policy and of default
	}{
		{"nobody", `retry_policies: [{name: a}, {name: default}]`, false, false},
		{"default repeats the built-in", `retry_policies: [{name: a}, {name: default, forward_headers: [idempotency_key, retry_count]}]`, false, false},
		{"default names others", `retry_policies: [{name: a}, {name: default, forward_headers: [idempotency_key]}]`, true, true},
		{"a policy names the same", `retry_policies: [{name: a, forward_headers: [idempotency_key, retry_count]}]`, true, false},
	} {
		set, err := parse(t, c.text).Policies()
		if err != nil {
			t.Fatal(err)
		}
		p := set.Policies()
		if p[0].ForwardHeadersSet != c.first || p[1].ForwardHeadersSet != c.second {
			t.Errorf("%s: ForwardHeadersSet = %v, %v, want %v, %v", c.name, p[0].ForwardHeadersSet, p[1].ForwardHeadersSet, c.first, c.second)
		}
	}
}

func TestValues(t *testing.T) {
	c := parse(t, `
drain: 1.5
idempotency: {ttl: 2d, bytes: 1000000, max_response: 2KiB}
retries: {default: off, scopes: [{match: {host: h.test, hour_range: [22-6, 12-13]}, value: observe, until: 2026-12-01T02:00:00+08:00}]}
shops: {17: {tier: vip}}
clients: {allow: ["::ffff:10.0.0.0/104", 192.168.1.7]}
`)
	if c.Drain != 1500*time.Millisecond || c.Idempotency.TTL != 48*time.Hour || c.Idempotency.Bytes != 1000000 || c.Idempotency.MaxResponse != 2048 {
		t.Errorf("drain %v, ttl %v, bytes %d, max_response %d, want 1.5s, 48h, 1000000, 2048", c.Drain, c.Idempotency.TTL, c.Idempotency.Bytes, c.Idempotency.MaxResponse)
	}
	scope := Scope{
		Match: Match{Host: Patterns{"h.test"}, HourRange: Hours{{From: 22, To: 6}, {From: 12, To: 13}}},
		Value: "observe", Until: time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC),
	}
	if diff := cmp.Diff(Retries{Default: "off", Scopes: []Scope{scope}}, c.Retries, same); diff != "" {
		t.Errorf("retries (-want +got):\n%s", diff)
	}
	if c.Shops["17"].Tier != "vip" {
		t.Errorf("shops = %v, want 17 to be vip", c.Shops)
	}
	allow := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.1.7/32")}
	if diff := cmp.Diff(allow, c.Clients.Allow, same); diff != "" {
		t.Errorf("clients.allow (-want +got):\n%s", diff)
	}
}

func TestParseDuration(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"1s", time.Second, true},
		{"500ms", 500 * time.Millisecond, true},
		{"1h30m", 90 * time.Minute, true},
		{"30d", 720 * time.Hour, true},
		{"0", 0, true},
		{"0s", 0, true},
		{"2", 2 * time.Second, true},
		{"0.25", 250 * time.Millisecond, true},
		{"1e2", 100 * time.Second, true},
		{"-1", 0, false},
		{"-1s", 0, false},
		{"1e300", 0, false},
		{"200000d", 0, false},
		{"NaN", 0, false},
		{"inf", 0, false},
		{"0x10", 0, false},
		{"1_000", 0, false},
		{"soon", 0, false},
		{"", 0, false},
	} {
		got, err := parseDuration(c.text)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("parseDuration(%q) = %v, %v, want %v, ok %v", c.text, got, err, c.want, c.ok)
		}
	}
}

func TestDurationText(t *testing.T) {
	for _, text := range []string{"0s", "500ms", "1s", "1.5s", "1m30s", "5m", "2m", "1h", "24h", "1h30m", "1h0m5s"} {
		d, err := parseDuration(text)
		if got := durationText(d); err != nil || got != text {
			t.Errorf("durationText(%q) = %q, %v, want it unchanged", text, got, err)
		}
	}
}

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		text string
		want Size
		ok   bool
	}{
		{"0", 0, true},
		{"17", 17, true},
		{"17B", 17, true},
		{"256KiB", 256 << 10, true},
		{"64 MiB", 64 << 20, true},
		{"4GiB", 4 << 30, true},
		{"9999999TiB", 0, false},
		{"1KB", 0, false},
		{"1.5MiB", 0, false},
		{"-1", 0, false},
		{"", 0, false},
	} {
		got, err := parseSize(c.text)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("parseSize(%q) = %v, %v, want %v, ok %v", c.text, got, err, c.want, c.ok)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		text string
		want Limit // shop's default is 5/m with share 0.2
	}{
		{"300/m", Limit{Rate: 5, Burst: 300}},
		{"10/s", Limit{Rate: 10, Burst: 10}},
		{"36/h", Limit{Rate: 0.01, Burst: 36}},
		{"0.5/s", Limit{Rate: 0.5, Burst: 1}},
		{"off", Limit{Off: true}},
		{"0", Limit{}},
		{"{rate: off}", Limit{Off: true, Share: 0}},
		{"{rate: 120/m}", Limit{Rate: 2, Burst: 120, Share: 0.2}},
		{"{rate: 120/m, burst: 3, share: 0}", Limit{Rate: 2, Burst: 3}},
		{"{share: 0.5}", Limit{Rate: 5.0 / 60, Burst: 5, Share: 0.5}},
		{"{burst: 9}", Limit{Rate: 5.0 / 60, Burst: 9, Share: 0.2}},
		{"{rate: 0}", Limit{}},
		{"{rate: 0, share: 0.1, burst: 1}", Limit{Burst: 1, Share: 0.1}},
	} {
		got := parse(t, "retry_limits: {shop: "+c.text+"}").RetryLimits.Shop
		if diff := cmp.Diff(c.want, got, same); diff != "" {
			t.Errorf("retry_limits.shop: %s (-want +got):\n%s", c.text, diff)
		}
	}
}

func TestLimitWithoutItsOldBurst(t *testing.T) {
	got := parse(t, `retry_limits: {shop: {rate: 2/m}}`).RetryLimits.Shop
	if got.Burst != 2 {
		t.Errorf("burst of {rate: 2/m} = %d, want 2", got.Burst)
	}
}

func TestEnvironment(t *testing.T) {
	opt := Options{
		Getenv: func(name string) string {
			return map[string]string{"TOKEN": "s3cret", "N": "7", "HOST": "10.0.0.9", "ODD": "${TOKEN}"}[name]
		},
		ReadFile: func(name string) ([]byte, error) { return []byte("from " + name + "\r\n"), nil },
	}
	c, err := Parse("test.json", []byte(`{"admin": {"token": "${TOKEN}"}, "slots": {"max_in_flight": "${N}"},
		"listen": {"proxy": "${HOST}:80${N}"}, "log": {"level": "info"},
		"retry_policies": [{"name": "a$${N}${ODD}", "max_retries": "${N}"}]}`), opt)
	if err != nil {
		t.Fatal(err)
	}
	if c.Admin.Token != "s3cret" || c.Slots.MaxInFlight != 7 || c.Listen.Proxy != "10.0.0.9:807" {
		t.Errorf("token %q, max_in_flight %d, proxy %s, want s3cret, 7, 10.0.0.9:807", string(c.Admin.Token), c.Slots.MaxInFlight, c.Listen.Proxy)
	}
	if got := c.RetryPolicies[0].Name; got != "a${N}${TOKEN}" {
		t.Errorf("name = %q, want a${N}${TOKEN}: escaped, and not replaced twice", got)
	}
	c, err = Parse("test.yaml", []byte("admin: {token: 'file:/run/secrets/admin'}"), opt)
	if err != nil || c.Admin.Token != "from /run/secrets/admin" {
		t.Errorf("token from file = %v, %v, want its content without line break", c, err)
	}
}

func TestEncodings(t *testing.T) {
	for _, text := range []string{
		"\ufeffdrain: 3s\r\nlog:\r\n  level: warn\r\n",
		"drain: 3s\nlog: {level: warn}",
		"\ufeff{\"drain\": \"3s\",\r\n\t\"log\": {\"level\": \"warn\"}}\r\n",
		" \n{\"drain\": 3, \"log\": {\"level\": \"w\\u0061rn\"}}",
		"drain: &x 3s\nslots: {max_wait: *x}\nlog: {level: warn}",
	} {
		c := parse(t, text)
		if c.Drain != 3*time.Second || c.Log.Level != "warn" {
			t.Errorf("Parse(%q): drain %v, level %s, want 3s, warn", text, c.Drain, c.Log.Level)
		}
	}
}

func TestNothingIsTheDefault(t *testing.T) {
	for _, text := range []string{"", "# only a comment\n", "{}", "---\n"} {
		if diff := cmp.Diff(Default(), parse(t, text), same); diff != "" {
			t.Errorf("Parse(%q) (-default +got):\n%s", text, diff)
		}
	}
}

// Each testdata/bad-<fault>.yaml (or .json) has what Parse says in a .want file.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad-*.[yj]*")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d bad files (%v), want at least 20", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(file, filepath.Ext(file)) + ".want")
		if err != nil {
			t.Fatal(err)
		}
		c, err := Parse(filepath.Base(file), data, hermetic)
		if err == nil {
			t.Errorf("Parse(%s) succeeded, want %s", file, want)
			continue
		}
		if c != nil {
			t.Errorf("Parse(%s) returned a configuration beside its error, want nil", file)
		}
		if diff := cmp.Diff(string(want), err.Error()+"\n"); diff != "" {
			t.Errorf("Parse(%s) (-want +got):\n%s", file, diff)
		}
	}
}

func TestProblemsAreTyped(t *testing.T) {
	_, err := Parse("f.yaml", []byte("drain: soon\nlog: {level: loud}"), hermetic)
	p, ok := errors.AsType[Problem](err)
	if !ok || p.File != "f.yaml" || p.Line != 1 || p.Path != "drain" {
		t.Errorf("Parse error = %#v, want a Problem at f.yaml:1 drain", err)
	}
}

func TestAdjustIsChecked(t *testing.T) {
	opt := hermetic
	opt.Adjust = func(c *Config) { c.Listen.Proxy = "nowhere" }
	if _, err := Parse("f.yaml", []byte("listen: {proxy: '127.0.0.1:1'}"), opt); err == nil || !strings.Contains(err.Error(), `listen.proxy: "nowhere"`) {
		t.Errorf("Parse with a bad flag = %v, want an error for listen.proxy", err)
	}
}

func TestTooLarge(t *testing.T) {
	if got := faults(t, strings.Repeat("#", maxBytes+1)); !strings.Contains(got, "larger than") {
		t.Errorf("Parse of a huge file = %q, want it refused", got)
	}
}

func TestCAFiles(t *testing.T) {
	opt := hermetic
	opt.ReadFile = func(string) ([]byte, error) { return []byte("no certificate"), nil }
	_, err := Parse("f.yaml", []byte("tls:\n  ca_files: [a.pem]"), opt)
	if want := "f.yaml:2: tls.ca_files[0]: a.pem holds no PEM certificate"; err == nil || err.Error() != want {
		t.Errorf("Parse with junk in ca_files = %v, want %s", err, want)
	}
	if roots := Default().TLS.Roots(); roots != nil {
		t.Errorf("Roots without ca_files = %v, want nil: the system's", roots)
	}
}

func TestMarshalRoundTrip(t *testing.T) {
	c := parse(t, `
clients: {users: {bot1: {hash: "$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy", shop: s1}}}
admin: {token: t0ken, tokens: [{name: 小王, role: operator, token: n1ght-duty}]}
routes: [{prefix: /pdd, upstreams: ["https://gw-api.pinduoduo.com"]}]
retry_limits: {global: off, shop: {rate: 5/m, burst: 2, share: 0}}
retries: {scopes: [{match: {host: a.test}, value: off, until: 2026-12-01T02:00:00Z}]}
retry_policies: [{name: "x$${y}", match: {hour_range: [22-6, 1-2]}}]
`)
	out := string(c.Marshal())
	for _, secret := range []string{"t0ken", "N9qo8", "n1ght"} {
		if strings.Contains(out, secret) {
			t.Errorf("Marshal shows the secret %q", secret)
		}
	}
	if n := strings.Count(out, "<secret>"); n != 3 {
		t.Errorf("Marshal has %d <secret>, want 3", n)
	}
	if !strings.Contains(out, "retry_statuses: [408, 425, 429, 5xx]\n") {
		t.Error("Marshal does not write statuses as in the file")
	}
	hash := strings.Replace(out, "hash: <secret>", `hash: "$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"`, 1)
	again := parse(t, strings.Replace(strings.Replace(hash, "<secret>", "t0ken", 1), "<secret>", "n1ght-duty", 1))
	if diff := cmp.Diff(c, again, same); diff != "" {
		t.Errorf("Marshal, then Parse (-before +after):\n%s", diff)
	}
}

func TestSecretHidesItself(t *testing.T) {
	if got := fmt.Sprintf("%v %s", Secret("a"), Secret("")); got != "<secret> " {
		t.Errorf("printing secrets = %q, want <secret>", got)
	}
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("../config.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"retry_policies":[{"match":{"hour_range":"2-6"},"base_delay":1e9}]}`))
	f.Add([]byte("a: &x [*x]\nlisteners: *x\nretry_policies: *x"))
	f.Add([]byte("intercept: {ca_cert: /c, ca_key: /k, hosts: ['*']}\nlisten: {h2c: true}\nroutes: [{prefix: /a, upstreams: ['h2c://a.test:80']}]"))
	f.Add([]byte("egress: [{name: a, match: {shop: [s1]}, proxy: 'socks5h://u-{shop}:p@[::1]:1080'}, {name: d, proxy: direct}]\nshops: {s2: {egress: d}}"))
	f.Add([]byte("egress: [{name: p, match: {host: '*'}, pool: ['http://a.test', 'https://b.test:8443/'], on_failure: next, user: u, password: p}]\negress_default: deny"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data, hermetic)
		if err != nil {
			return
		}
		if _, err := c.Policies(); err != nil {
			t.Errorf("Policies of a valid file = %v", err)
		}
		if _, err := document(c.Marshal()); err != nil {
			t.Errorf("Marshal is not valid YAML: %v", err)
		}
		c.Warnings()
	})
}

func TestFaultsOfFlagsNameTheFlag(t *testing.T) {
	opt := hermetic
	opt.Adjust = func(c *Config) {
		c.Listen.Proxy = "nowhere"
		c.SetByFlag("listen.proxy", "-listen")
		c.Routes = append(c.Routes, Route{Prefix: "/b", Upstreams: []string{"what"}})
		c.SetByFlag("routes[1]", "-route /b=what")
	}
	_, err := Parse("test.yaml", []byte("routes: [{prefix: /a, upstreams: [what]}]\n"), opt)
	const want = `-listen: "nowhere" must be an address and a port such as 127.0.0.1:8080
-route /b=what: want a URL such as https://gw-api.pinduoduo.com
test.yaml:1: routes[0].upstreams[0]: want a URL such as https://gw-api.pinduoduo.com`
	if fmt.Sprint(err) != want {
		t.Errorf("Parse(bad flags) = %v, want %s", err, want)
	}
}

func TestHints(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"tab", "drain: 1s\nlisten:\n\tproxy: 127.0.0.1:1\n", "test.yaml:3: not valid YAML: found character that cannot start any token; indent with spaces, not with tabs"},
		{"tab after spaces", "listen:\n  admin: \"\"\n \tproxy: a\n", "test.yaml:3: not valid YAML: found character that cannot start any token; indent with spaces, not with tabs"},
		{"star in a list", "upgrade_to_https: [*.a.test]\n", "test.yaml:1: not valid YAML: did not find expected alphabetic or numeric character; quote values that begin with *"},
		{"star as a value", "drain: 1s\nretry_policies:\n  - match:\n      shop: *x\n", "test.yaml:4: not valid YAML: unknown anchor 'x' referenced; quote values that begin with *"},
		{"no hint", "a: [1\n", "test.yaml:2: not valid YAML: did not find expected ',' or ']'"},
		{"close name", "retry_policies: [{max_retry: 1}]\n", "test.yaml:1: retry_policies[0].max_retry: unknown key; did you mean max_retries?"},
		{"no close name", "retry_policies: [{what: 1}]\n", "test.yaml:1: retry_policies[0].what: unknown key"},
		{"output of check", "admin: {token: <secret>}\n", "test.yaml:1: admin.token: <secret> is what check prints in the place of a secret; write the secret, ${NAME} or file:/path"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := faults(t, test.text); got != test.want {
				t.Errorf("Parse(%q) = %s, want %s", test.text, got, test.want)
			}
		})
	}
}

func TestOneKeyHeaderStandsForAList(t *testing.T) {
	if got := parse(t, "headers: {idempotency_key: X-Order}\n").Headers.IdempotencyKey; !cmp.Equal(got, Names{"X-Order"}) {
		t.Errorf("idempotency_key = %q, want X-Order alone", got)
	}
}

func TestMethodsAreInUpperCase(t *testing.T) {
	c := parse(t, "retry_policies: [{match: {method: post}, safe_methods: [get, Put]}]\nretries: {scopes: [{match: {method: [get]}, value: off}]}\n")
	p := c.RetryPolicies[0]
	if !cmp.Equal(p.SafeMethods, []string{"GET", "PUT"}) || p.Match.Method[0] != "POST" || c.Retries.Scopes[0].Match.Method[0] != "GET" {
		t.Errorf("methods = %q, %q, %q, want GET and PUT, POST, GET", p.SafeMethods, p.Match.Method, c.Retries.Scopes[0].Match.Method)
	}
}

func TestUpgradeMayNameAPort(t *testing.T) {
	if got := parse(t, "upgrade_to_https: ['*.a.test:8443']\n").UpgradeToHTTPS; !cmp.Equal(got, []string{"*.a.test:8443"}) {
		t.Errorf("upgrade_to_https = %q, want the pattern with its port", got)
	}
}

// A policy without a redrive of its own has that of default.
func TestRedrive(t *testing.T) {
	c := parse(t, "retry_policies: [{name: a}, {name: b, redrive: []}, {name: default, redrive: [1h, 7200]}]\ndead_letters: {keep: 7d, max: 5}")
	set, err := c.Policies()
	if err != nil {
		t.Fatal(err)
	}
	hours := []time.Duration{time.Hour, 2 * time.Hour}
	for name, want := range map[string][]time.Duration{"a": hours, "b": {}, "default": hours} {
		if got := set.Named(name).Redrive; !slices.Equal(got, want) {
			t.Errorf("redrive of %s = %v, want %v", name, got, want)
		}
	}
	if want := (DeadLetters{Keep: 7 * 24 * time.Hour, Max: 5}); c.DeadLetters != want {
		t.Errorf("dead_letters = %v, want %v", c.DeadLetters, want)
	}
}
