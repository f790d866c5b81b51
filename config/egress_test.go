package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseProxyURL(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       Endpoint
		shown      string
	}{
		{"all of it", "socks5://bot:pw@10.0.0.1:1081", Endpoint{"socks5", "10.0.0.1", 1081, "bot", "pw"}, "socks5://bot:<secret>@10.0.0.1:1081"},
		{"usual port of http", "http://a.test", Endpoint{"http", "a.test", 80, "", ""}, "http://a.test:80"},
		{"usual port of https", "https://a.test/", Endpoint{"https", "a.test", 443, "", ""}, "https://a.test:443"},
		{"usual port of socks5h", "socks5h://a.test", Endpoint{"socks5h", "a.test", 1080, "", ""}, "socks5h://a.test:1080"},
		{"case and final dot", "HTTP://A.Test.:8080", Endpoint{"http", "a.test", 8080, "", ""}, "http://a.test:8080"},
		{"IPv6", "http://u:p@[2001:DB8::1]:3128", Endpoint{"http", "2001:db8::1", 3128, "u", "p"}, "http://u:<secret>@[2001:db8::1]:3128"},
		{"IPv6 in the long form", "http://[0:0:0:0:0:0:0:1]:1", Endpoint{"http", "::1", 1, "", ""}, "http://[::1]:1"},
		{"IPv6 without port", "socks5://[::1]", Endpoint{"socks5", "::1", 1080, "", ""}, "socks5://[::1]:1080"},
		{"user alone", "http://token@a.test", Endpoint{"http", "a.test", 80, "token", ""}, "http://token@a.test:80"},
		{"password alone", "http://:pw@a.test", Endpoint{"http", "a.test", 80, "", "pw"}, "http://:<secret>@a.test:80"},
		{"placeholders", "http://c-{shop}:{task_type}@a.test", Endpoint{"http", "a.test", 80, "c-{shop}", "{task_type}"}, "http://c-{shop}:<secret>@a.test:80"},
		{"escapes", "http://a%40b:%25%3A@a.test", Endpoint{"http", "a.test", 80, "a@b", "%:"}, "http://a%40b:<secret>@a.test:80"},
		{"password as it is", "http://u:a/b?c#d@e:f@a.test:1", Endpoint{"http", "a.test", 1, "u", "a/b?c#d@e:f"}, "http://u:<secret>@a.test:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseProxyURL(c.text)
			if err != nil || got.Endpoint != c.want || got.Direct {
				t.Errorf("parseProxyURL(%q) = %#v, %v, want %#v", c.text, got, err, c.want)
			}
			if got.String() != c.shown || fmt.Sprintf("%+v", got) != c.shown || fmt.Sprint(got.Endpoint) != c.shown {
				t.Errorf("%q is shown as %s, want %s", c.text, got, c.shown)
			}
		})
	}
	if got, err := parseProxyURL("direct"); !got.Direct || err != nil || got.String() != "direct" {
		t.Errorf("parseProxyURL(direct) = %v, %v, want direct", got, err)
	}
}

func TestParseProxyURLRefuses(t *testing.T) {
	for text, want := range map[string]error{
		"10.0.0.1:1080":            errProxyURL,
		"Direct":                   errProxyURL,
		"socks4://a.test":          errProxyURL,
		"http:a.test":              errProxyURL,
		"http://":                  errProxyHost,
		"http://u:p@":              errProxyHost,
		"http://:80":               errProxyHost,
		"http://a.test/p":          errProxyPath,
		"http://a.test?q":          errProxyPath,
		"http://a b":               errProxyHost,
		"http://::1:80":            errProxyHost,
		"http://[10.0.0.1]:80":     errProxyHost,
		"http://[::1:80":           errProxyHost,
		"http://[[::1]]:80":        errProxyHost,
		"http://[fe80::1%eth0]:80": errProxyHost,
		"http://[::1]x:80":         errProxyHost,
		"http://a.test:0":          errProxyPort,
		"http://a.test:65536":      errProxyPort,
		"http://a.test:":           errProxyPort,
		"http://a.test:80/p":       errProxyPath,
		"http://u:p@a.test:80/p":   errProxyPath,
		"http://a.test:80#f":       errProxyPath,
		"http://u%:p@a.test":       errProxyUser,
		"http://u:%zz@a.test":      errProxyUser,
	} {
		if got, err := parseProxyURL(text); err != want || !got.empty() {
			t.Errorf("parseProxyURL(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestLengthOfCredentials(t *testing.T) {
	long := strings.Repeat("u", 187)
	for _, c := range []struct{ name, proxy, user, want string }{
		{"HTTP takes any", "http://a.test", strings.Repeat("u", 300), ""},
		{"SOCKS5 takes 255", "socks5://a.test", strings.Repeat("u", 255), ""},
		{"SOCKS5 takes no more", "socks5h://a.test", strings.Repeat("u", 256), "the user is longer than the 255 bytes that SOCKS5 takes"},
		{"room for two", "http://a.test", long + "{shop}{task_type}", ""},
		{"no room for two", "http://a.test", long + "u{shop}{task_type}", "the user leaves no room for its placeholders: all may be 255 bytes, 34 for each of them"},
	} {
		_, err := Parse("test.yaml", []byte("egress: [{name: a, match: {shop: s}, proxy: '"+c.proxy+"', user: '"+c.user+"'}]"), hermetic)
		got := ""
		if err != nil {
			got = strings.TrimPrefix(err.Error(), "test.yaml:1: egress[0] (a).user: ")
		}
		if got != c.want {
			t.Errorf("%s: Parse = %q, want %q", c.name, got, c.want)
		}
	}
}

func TestEgress(t *testing.T) {
	opt := Options{
		Getenv: func(name string) string {
			return map[string]string{"PW": "p@ss:w/rd", "WHOLE": "https://w:x@whole.test"}[name]
		},
		ReadFile: func(name string) ([]byte, error) {
			return []byte(map[string]string{"/user": "c-{shop}\n", "/url": "http://f:g@file.test:81\n"}[name]), nil
		},
	}
	c, err := Parse("test.yaml", []byte(`
egress:
  - {name: a, match: {shop: s1, task_type: [report, "bulk_*"]}, proxy: "socks5h://bot:${PW}@10.0.0.1:1080"}
  - {name: own, proxy: http://u:p@a.test, user: file:/user, password: "%{shop}"}
  - {name: pool, match: {host: "*.test:443"}, pool: ["${WHOLE}", file:/url], user: both}
  - {name: stay, match: {shop: x}, pool: [http://a.test, http://b.test], sticky: shop, on_failure: next}
  - {name: none, proxy: direct}
shops: {s2: {egress: own}, s3: {egress: none}}
egress_default: deny
`), opt)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]Endpoint{
		{{"socks5h", "10.0.0.1", 1080, "bot", "p@ss:w/rd"}},
		{{"http", "a.test", 80, "c-{shop}", "%{shop}"}},
		{{"https", "whole.test", 443, "both", "x"}, {"http", "file.test", 81, "both", "g"}},
		{{"http", "a.test", 80, "", ""}, {"http", "b.test", 80, "", ""}},
		nil,
	}
	for i, w := range want {
		e := &c.Egress[i]
		if diff := cmp.Diff(w, e.Endpoints()); diff != "" {
			t.Errorf("Endpoints of %s (-want +got):\n%s", e.Name, diff)
		}
		if e.Direct() != (e.Name == "none") {
			t.Errorf("Direct of %s = %v", e.Name, e.Direct())
		}
	}
	if a := &c.Egress[0]; !cmp.Equal(a.Match, EgressMatch{Shop: Patterns{"s1"}, TaskType: Patterns{"report", "bulk_*"}}) || a.Sticky != "" || a.OnFailure != "stay" {
		t.Errorf("rule a = %+v, want its match, nothing sticky, stay", a)
	}
	if p := &c.Egress[2]; p.Sticky != "shop" || p.OnFailure != "stay" || c.Egress[3].OnFailure != "next" {
		t.Errorf("pool = %+v, want sticky shop and stay by default, next where it is written", p)
	}
	if !c.Egress[1].Match.Named() || c.Egress[2].Match.Named() || c.Shops["s2"].Egress != "own" || c.EgressDefault != "deny" {
		t.Errorf("egress = %+v, shops %+v, want own to be for s2 alone", c.Egress, c.Shops)
	}
}

func TestMarshalOfEgress(t *testing.T) {
	c := parse(t, `
egress:
  - {name: a, match: {shop: s1}, proxy: "socks5h://bot:s3cret@10.0.0.1:1080"}
  - {name: own, proxy: "http://u$${:s3cret@[::1]", user: "c-{shop}", password: s3cret}
  - {name: pool, match: {host: h.test}, pool: ["https://u:s3cret@a.test", "http://b.test"], on_failure: next}
shops: {s2: {egress: own}}
`)
	out := string(c.Marshal())
	if strings.Contains(out, "s3cret") || strings.Contains(fmt.Sprintf("%v %+v", c, c.Egress), "s3cret") {
		t.Errorf("Marshal shows a password:\n%s", out)
	}
	const want = `egress:
  - name: a
    match: {shop: [s1]}
    proxy: socks5h://bot:<secret>@10.0.0.1:1080
    on_failure: stay
  - name: own
    proxy: http://u$${:<secret>@[::1]:80
    on_failure: stay
    user: c-{shop}
    password: <secret>
  - name: pool
    match: {host: [h.test]}
    pool:
      - https://u:<secret>@a.test:443
      - http://b.test:80
    sticky: shop
    on_failure: next
egress_default: direct
`
	if !strings.Contains(out, want) {
		t.Errorf("Marshal = %s, want in it\n%s", out, want)
	}
	again := parse(t, strings.ReplaceAll(out, hiddenSecret, "s3cret"))
	if diff := cmp.Diff(c, again, same); diff != "" {
		t.Errorf("Marshal, then Parse (-before +after):\n%s", diff)
	}
}

func TestInterceptAndH2C(t *testing.T) {
	c := parse(t, `
listen: {h2c: true}
intercept: {ca_cert: /a/ca.pem, ca_key: /a/ca.key, hosts: [a.test, "*.b.test:8443", "*"]}
upgrade_to_https: [a.test]
routes: [{prefix: /grpc, upstreams: ["h2c://10.0.0.1:50051"]}]
`)
	want := Intercept{CACert: "/a/ca.pem", CAKey: "/a/ca.key", Hosts: []string{"a.test", "*.b.test:8443", "*"}}
	if diff := cmp.Diff(want, c.Intercept); diff != "" || !c.Listen.H2C || c.Routes[0].Upstreams[0] != "h2c://10.0.0.1:50051" {
		t.Errorf("intercept (-want +got):\n%s\nh2c %v, upstreams %q, want true and h2c://10.0.0.1:50051", diff, c.Listen.H2C, c.Routes[0].Upstreams)
	}
}

func TestEgressWarnings(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing to say", "intercept: {hosts: [a.test, '*.b.test']}\negress: [{name: a, match: {shop: s}, proxy: 'http://a.test'}]", ""},
		{"all tunnels", "intercept: {hosts: ['*']}", "intercept.hosts: * opens every tunnel"},
		{"all tunnels on a port", "intercept: {hosts: [a.test, '**:443']}", "intercept.hosts: * opens every tunnel"},
		{"denied anyway", "intercept: {hosts: ['a.b.test:443']}\ndestinations: {deny: ['*.b.test']}", "intercept.hosts: a.b.test:443 is never opened"},
		{"unused rule", "egress: [{name: a, proxy: direct}]", "egress: a has no match and no shop names it"},
		{"used rule", "egress: [{name: a, proxy: direct}]\nshops: {s: {egress: a}}", ""},
		{"hidden rule", "egress: [{name: a, match: {host: '*'}, proxy: direct}, {name: b, match: {shop: s}, proxy: direct}]", "egress: b is never used, since a before it"},
		{"hidden but named", "egress: [{name: a, match: {host: '*'}, proxy: direct}, {name: b, match: {shop: s}, proxy: direct}]\nshops: {s: {egress: b}}", ""},
		{"not all calls", "egress: [{name: a, match: {host: '*', shop: '*'}, proxy: direct}, {name: b, match: {shop: s}, proxy: direct}]", ""},
		{"two rules for the same", "egress: [{name: a, match: {shop: [s, t]}, proxy: direct}, {name: b, match: {shop: [t, s]}, proxy: direct}]", "egress: b is never used, since a before it has the same match"},
		{"two rules for much the same", "egress: [{name: a, match: {shop: s}, proxy: direct}, {name: b, match: {shop: s, host: h.test}, proxy: direct}]", ""},
		{"the second is named", "egress: [{name: a, match: {shop: s}, proxy: direct}, {name: b, match: {shop: s}, proxy: direct}]\nshops: {t: {egress: b}}", ""},
		{"a variable without braces", "egress: [{name: a, match: {shop: s}, proxy: 'http://a.test', user: u, password: $NOPE}]", "egress: the password of a looks like a variable"},
		{"a user without braces", "egress: [{name: a, match: {shop: s}, pool: ['http://$USER:x@a.test', 'http://$USER:x@b.test']}]", "egress: the user of a looks like a variable"},
		{"a dollar in a password", "egress: [{name: a, match: {shop: s}, proxy: 'http://u:$5-off@a.test'}]", ""},
		{"a host twice", "intercept: {hosts: [a.test, b.test, A.test]}", "intercept.hosts: A.test is there twice"},
		{"nobody out", "egress_default: deny", "egress_default: deny without any egress rule"},
	} {
		got := parse(t, "timezone: UTC\n"+c.text).Warnings()
		if c.want == "" && len(got) != 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%s: Warnings = %q, want %q", c.name, got, c.want)
		}
	}
}

// uncommented are the examples that stand in comments, indented by three.
var uncommented = regexp.MustCompile(`(?m)^#   ((?:intercept|egress|shops|  ).*)$`)

func TestExamplesInCommentsLoad(t *testing.T) {
	data, err := os.ReadFile("../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("timezone: UTC\n")
	for _, m := range uncommented.FindAllStringSubmatch(string(data), -1) {
		text.WriteString(m[1] + "\n")
	}
	c, err := Parse("examples", []byte(text.String()), anything)
	if err != nil {
		t.Fatalf("Parse of the examples in config.yaml = %v in\n%s", err, text.String())
	}
	if len(c.Egress) != 3 || len(c.Intercept.Hosts) != 2 || c.Shops["s17"].Egress != "home" || len(c.Warnings()) > 0 {
		t.Errorf("examples = %+v, want 3 rules, 2 hosts, a shop and nothing to warn of", c)
	}
}

// anything has a value for every variable and file.
var anything = Options{
	Getenv:   func(string) string { return "x" },
	ReadFile: func(string) ([]byte, error) { return []byte("x"), nil },
}

func FuzzProxyURL(f *testing.F) {
	f.Add("http://u-{shop}:p@a.test:80")
	f.Add("socks5h://:@[::1]:1")
	f.Add("https://a%40:b/c@d@A.:0443/")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseProxyURL(text)
		if err != nil || p.empty() || p.Direct {
			return
		}
		if !isHost(p.Host) || p.Port == 0 || proxyPorts[p.Scheme] == 0 {
			t.Errorf("parseProxyURL(%q) = %#v, want a host, a port and a scheme", text, p)
		}
		shown, err := parseProxyURL(strings.Replace(p.String(), hiddenSecret, "x", 1))
		want := p
		if want.Password != "" {
			want.Password = "x"
		}
		if err != nil || shown != want {
			t.Errorf("%q is shown as %s, which reads as %#v, %v, want %#v", text, p, shown, err, want)
		}
	})
}

// fenced are the configurations in a text.
var fenced = regexp.MustCompile("(?s)```yaml\n(.*?)```")

func TestReadmeConfigurationsLoad(t *testing.T) {
	for name, heading := range map[string]string{"README.md": "\n## Configure it\n", "README.zh-CN.md": "\n## 配置\n"} {
		data, err := os.ReadFile("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		_, section, _ := strings.Cut(string(data), heading)
		section, _, _ = strings.Cut(section, "\n## ")
		examples := fenced.FindAllStringSubmatch(section, -1)
		if len(examples) < 4 {
			t.Errorf("%s has %d configurations, want 4 or more", name, len(examples))
		}
		for _, m := range examples {
			c, err := Parse(name, []byte(m[1]), anything)
			if err != nil {
				t.Errorf("Parse of an example in %s = %v in\n%s", name, err, m[1])
			} else if got := append(c.interceptWarnings(), c.egressWarnings()...); len(got) > 0 {
				t.Errorf("an example in %s is warned about: %q in\n%s", name, got, m[1])
			}
		}
	}
}

func TestSingleBraces(t *testing.T) {
	const wrong = "holds a brace without the other one"
	for _, c := range []struct{ name, key, value, want string }{
		{"user not closed", "user", "user-{shop", "egress[0] (a).user: the user " + wrong},
		{"user not opened", "user", "user-shop}", wrong},
		{"user with another name", "user", "user-{shp", wrong},
		{"one of two", "user", "{shop}-{task_type", wrong},
		{"brace that opens nothing", "user", "user-{", ""},
		{"password not closed", "password", "x-{task_type", "egress[0] (a).password: the password " + wrong},
		{"brace in a password", "password", "x{y}}{z{", "no other {name}"},
		{"single brace in a password", "password", "x{y", ""},
		{"placeholder", "password", "{shop}", ""},
	} {
		other := map[string]string{"user": "password: p", "password": "user: u"}[c.key]
		_, err := Parse("test.yaml", []byte("egress: [{name: a, match: {shop: s}, proxy: 'http://a.test', "+other+", "+c.key+": '"+c.value+"'}]"), hermetic)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), c.value)) {
			t.Errorf("%s: Parse = %v, want %q and not the value", c.name, err, c.want)
		}
	}
}

func TestBracketsOfHosts(t *testing.T) {
	for host, ok := range map[string]bool{
		"[2001:db8::1]": true, "[2001:db8::1]:443": true, "2001:db8::1": true, "10.0.0.1": true,
		"[2001:db8::1": false, "2001:db8::1]": false, "[10.0.0.1]": false, "[a.test]": false, "[[::1]]": false,
	} {
		_, err := Parse("test.yaml", []byte("intercept: {hosts: ['"+host+"']}"), hermetic)
		if ok != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), "test.yaml:1: intercept.hosts[0]: ") {
			t.Errorf("Parse of intercept.hosts %s = %v, want it taken: %v", host, err, ok)
		}
	}
}

func TestFaultsNameTheRule(t *testing.T) {
	_, err := Parse("test.yaml", []byte("egress:\n  - {name: proxy-a, match: {shop: s}, proxy: 'http://10.0.0.1:1080/path'}\n  - {match: {shop: s}, proxy: nonsense}\n"), hermetic)
	text := fmt.Sprint(err)
	for _, want := range []string{"test.yaml:2: egress[0] (proxy-a).proxy: a proxy's URL ends after the port: it has no path", "test.yaml:3: egress[1].proxy: want direct or a URL"} {
		if !strings.Contains(text, want) {
			t.Errorf("Parse = %s, want %s", text, want)
		}
	}
}

func TestFaultOfTheCaller(t *testing.T) {
	opt := hermetic
	opt.Adjust = func(c *Config) { c.Listen.Proxy = ":80"; c.SetByFlag("listen.proxy", "-listen") }
	c, err := Parse("test.yaml", []byte("listeners:\n  - {addr: ':8117'}\n"), opt)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"listeners[0].addr": "test.yaml:2: listeners[0].addr: no", "listen.proxy": "-listen: no"} {
		if got := c.Fault(path, errors.New("no")); got == nil || got.Error() != want {
			t.Errorf("Fault(%s) = %v, want %s", path, got, want)
		}
	}
}
