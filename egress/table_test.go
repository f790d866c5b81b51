package egress

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// proxies parses URLs.
func proxies(t testing.TB, urls ...string) []Proxy {
	t.Helper()
	var out []Proxy
	for _, u := range urls {
		out = append(out, proxyOf(t, u))
	}
	return out
}

func newTable(t testing.TB, c Config) *Table {
	t.Helper()
	table, err := NewTable(c)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// describe names a way in one line.
func describe(w Way, err error) string {
	if err != nil {
		return err.Error()
	}
	if len(w.Exits) == 0 {
		return w.Rule + ": direct"
	}
	names := make([]string, len(w.Exits))
	for i, e := range w.Exits {
		names[i] = e.Name()
	}
	return w.Rule + ": " + strings.Join(names, ", ")
}

func testRules(t testing.TB) []Rule {
	return []Rule{
		{Name: "named", Proxies: proxies(t, "socks5://acct:pw@10.0.0.1")},
		{Name: "inner", Match: Match{Host: []string{"*.corp.test"}}, Direct: true},
		{Name: "both", Match: Match{Shop: []string{"s1", "s2*"}, TaskType: []string{"report"}}, Proxies: proxies(t, "http://10.0.0.2:3128")},
		{Name: "shop", Match: Match{Shop: []string{"s1"}}, Proxies: proxies(t, "https://[2001:db8::1]:8443")},
		{Name: "port", Match: Match{Host: []string{"gw.test:8443"}}, Proxies: proxies(t, "http://10.0.0.3")},
		{Name: "session", Match: Match{TaskType: []string{"scan"}}, Proxies: proxies(t, "socks5h://u-{shop}-{task_type}:x@10.0.0.4")},
		{Name: "asked", Match: Match{TaskType: []string{"ask"}}, Proxies: proxies(t, "socks5h://u:{shop}@10.0.0.5")},
		{Name: "kind", Match: Match{Host: []string{"kind.test"}}, Proxies: proxies(t, "socks5h://u-{task_type}@10.0.0.6")},
	}
}

func TestWay(t *testing.T) {
	table := newTable(t, Config{Rules: testRules(t), Shops: map[string]string{"vip": "named", "home": "inner", "none": "", "": "named"}})
	tests := []struct{ name, shop, task, host, want string }{
		{"no rule", "s9", "", "a.test:443", ": direct"},
		{"no labels", "", "", "a.test:443", ": direct"},
		{"by name", "vip", "", "a.test:443", "named: named (10.0.0.1:1080)"},
		{"by name before what matches", "vip", "report", "x.corp.test:80", "named: named (10.0.0.1:1080)"},
		{"by name to direct", "home", "", "a.test:443", "inner: direct"},
		{"shop without an egress in its table", "none", "", "a.test:443", ": direct"},
		{"by host to direct", "s1", "", "x.corp.test", "inner: direct"},
		{"host in capitals", "s1", "", "X.Corp.test:443", "inner: direct"},
		{"all kinds must match", "s1", "order", "a.test", "shop: shop ([2001:db8::1]:8443)"},
		{"the first that matches", "s1", "report", "a.test", "both: both (10.0.0.2:3128)"},
		{"glob", "s27", "report", "a.test", "both: both (10.0.0.2:3128)"},
		{"host with its port", "", "", "gw.test:8443", "port: port (10.0.0.3:80)"},
		{"host with another port", "", "", "gw.test:443", ": direct"},
		{"session", "店/1", "scan", "a.test", "session: session (10.0.0.4:1080, shop ~e5~ba~97~2f1, task type scan)"},
		{"session without a shop", "", "scan", "a.test", `egress: denied: egress rule "session" names {shop} and the call has none`},
		{"label in the password is not shown", "s9", "ask", "a.test", "asked: asked (10.0.0.5:1080)"},
		{"password without a shop", "", "ask", "a.test", `egress: denied: egress rule "asked" names {shop} and the call has none`},
		{"session without a task type", "s9", "", "kind.test", `egress: denied: egress rule "kind" names {task_type} and the call has none`},
	}
	for _, test := range tests {
		w, err := table.Way(test.shop, test.task, test.host)
		if got := describe(w, err); got != test.want {
			t.Errorf("%s: Way(%q, %q, %q) = %q, want %q", test.name, test.shop, test.task, test.host, got, test.want)
		}
		if err != nil && !errors.Is(err, ErrDenied) {
			t.Errorf("%s: %v is not ErrDenied", test.name, err)
		}
	}
}

func TestWayDeny(t *testing.T) {
	table := newTable(t, Config{Rules: testRules(t), Shops: map[string]string{"home": "inner"}, Deny: true})
	const denied = "egress: denied: egress_default is deny and no egress rule is meant for this call"
	tests := []struct{ shop, host, want string }{
		{"s9", "a.test", denied},
		{"", "a.test", denied},
		{"s1", "a.test", "shop: shop ([2001:db8::1]:8443)"},
		{"home", "a.test", "inner: direct"},
		{"", "x.corp.test", "inner: direct"},
	}
	for _, test := range tests {
		w, err := table.Way(test.shop, "", test.host)
		if got := describe(w, err); got != test.want {
			t.Errorf("Way(%q, %q) = %q, want %q", test.shop, test.host, got, test.want)
		}
		if (test.want == denied) != errors.Is(err, ErrDenied) {
			t.Errorf("Way(%q, %q): %v", test.shop, test.host, err)
		}
	}
}

// TestZeroMatch: a rule without a match is for nobody but the shops that name it.
func TestZeroMatch(t *testing.T) {
	table := newTable(t, Config{Rules: []Rule{{Name: "a", Proxies: proxies(t, "http://a.test")}}})
	if got := describe(table.Way("s1", "x", "h.test")); got != ": direct" {
		t.Errorf("Way = %q, want direct", got)
	}
}

func TestExit(t *testing.T) {
	tests := []struct {
		url      string
		scheme   string
		host     string
		port     uint16
		resolves bool
		id       string
	}{
		{"http://u:s3cret@a.test:1", "http", "a.test", 1, true, "r/a.test:1"},
		{"https://u:s3cret@a.test:1", "https", "a.test", 1, true, "r/a.test:1"},
		{"socks5h://u:s3cret@a.test:1", "socks5", "a.test", 1, true, "r/a.test:1"},
		{"socks5://u:s3cret@[::1]:1", "socks5", "::1", 1, false, "r/[::1]:1"},
	}
	for _, test := range tests {
		table := newTable(t, Config{Rules: []Rule{{Name: "r", Proxies: proxies(t, test.url)}}, Shops: map[string]string{"s": "r"}})
		w, err := table.Way("s", "", "")
		if err != nil {
			t.Fatal(err)
		}
		e := w.Exits[0]
		scheme, host, port := e.Proxy()
		if scheme != test.scheme || host != test.host || port != test.port || e.Resolves() != test.resolves || e.ID() != test.id {
			t.Errorf("%s: Proxy() = %s, %s, %d, Resolves() = %v, ID() = %s", test.url, scheme, host, port, e.Resolves(), e.ID())
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if text := fmt.Sprintf(verb, e) + fmt.Sprintf(verb, w); strings.Contains(text, "s3cret") {
				t.Errorf("%s shows the password: %s", verb, text)
			}
		}
	}
}

func TestProxyHidesItsPassword(t *testing.T) {
	r := Rule{Name: "r", Proxies: proxies(t, "http://acct:s3cret@a.test")}
	if got := fmt.Sprintf("%v %+v", r, r); strings.Contains(got, "s3cret") || strings.Contains(got, "acct") {
		t.Errorf("printed: %s", got)
	}
}

// TestIdentity: one value for each identity, and another for each other one.
func TestIdentity(t *testing.T) {
	rules := []Rule{
		{Name: "fixed", Match: Match{Host: []string{"fixed.test"}}, Proxies: proxies(t, "http://u:p@a.test")},
		{Name: "same", Match: Match{Host: []string{"same.test"}}, Proxies: proxies(t, "http://u:p@a.test")},
		{Name: "session", Match: Match{Host: []string{"session.test"}}, Proxies: proxies(t, "http://u-{shop}:p@a.test")},
	}
	table := newTable(t, Config{Rules: rules})
	exit := func(shop, task, host string) *Exit {
		w, err := table.Way(shop, task, host)
		if err != nil || len(w.Exits) != 1 {
			t.Fatalf("Way(%q, %q) = %v, %v", shop, host, w, err)
		}
		return w.Exits[0]
	}
	fixed, session := exit("s1", "", "fixed.test"), exit("s1", "x", "session.test")
	if exit("s2", "", "fixed.test") != fixed || exit("s1", "y", "session.test") != session {
		t.Error("the same identity has two exits")
	}
	if exit("s1", "", "same.test") == fixed || exit("s2", "", "session.test") == session {
		t.Error("two identities have one exit")
	}
}

// TestManyIdentities: what clients can name is bounded, what is configured stays.
func TestManyIdentities(t *testing.T) {
	table := newTable(t, Config{Rules: []Rule{
		{Name: "fixed", Match: Match{Shop: []string{"fixed"}}, Proxies: proxies(t, "http://a.test")},
		{Name: "session", Match: Match{Shop: []string{"*"}}, Proxies: proxies(t, "http://u-{shop}@a.test")},
	}})
	fixed, _ := table.Way("fixed", "", "")
	for i := range 2 * mostIdentities {
		_, _ = table.Way(fmt.Sprint(i), "", "")
	}
	if n := table.made.Len(); n != mostIdentities {
		t.Errorf("%d identities are kept, want %d", n, mostIdentities)
	}
	if again, _ := table.Way("fixed", "", ""); again.Exits[0] != fixed.Exits[0] {
		t.Error("a configured exit was forgotten")
	}
}

func TestSuccessor(t *testing.T) {
	rule := func(name, shop, url string) Rule {
		return Rule{Name: name, Match: Match{Shop: []string{shop}}, Proxies: proxies(t, url)}
	}
	old := newTable(t, Config{Rules: []Rule{
		rule("kept", "k*", "http://u:p@a.test"), rule("session", "s*", "http://u-{shop}@a.test"),
		rule("password", "p*", "http://u:old@a.test"), rule("gone", "g*", "http://g.test"),
	}})
	next, err := old.Successor(Config{Rules: []Rule{
		rule("session", "s*", "http://u-{shop}@a.test"), rule("password", "p*", "http://u:new@a.test"), rule("kept", "k*", "http://u:p@a.test"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	last, err := next.Successor(Config{Rules: []Rule{rule("kept", "k*", "http://u:p@a.test")}})
	if err != nil {
		t.Fatal(err)
	}
	exit := func(table *Table, shop string) *Exit {
		w, err := table.Way(shop, "", "")
		if err != nil || len(w.Exits) == 0 {
			return nil
		}
		return w.Exits[0]
	}
	tests := []struct {
		name     string
		old, new *Exit
		same     bool
	}{
		{"unchanged", exit(old, "k1"), exit(next, "k1"), true},
		{"unchanged twice", exit(old, "k1"), exit(last, "k1"), true},
		{"session", exit(old, "s1"), exit(next, "s1"), true},
		{"session first seen by the new one", exit(next, "s2"), exit(old, "s2"), true},
		{"password changed", exit(old, "p1"), exit(next, "p1"), false},
		{"gone", exit(old, "g1"), exit(next, "g1"), false},
	}
	for _, test := range tests {
		if test.old == nil || (test.old == test.new) != test.same {
			t.Errorf("%s: %v and %v, the same: %v, want %v", test.name, test.old, test.new, !test.same, test.same)
		}
	}
	if _, err := old.Successor(Config{Rules: []Rule{{}}}); !errors.Is(err, ErrConfig) {
		t.Errorf("Successor(bad) = %v, want ErrConfig", err)
	}
}

func TestConfigFaults(t *testing.T) {
	one := func(r Rule) Config {
		if r.Name == "" {
			r.Name = "r"
		}
		return Config{Rules: []Rule{r}}
	}
	proxy := func(p Proxy) Config { return one(Rule{Proxies: []Proxy{p}}) }
	long := strings.Repeat("s3cret", 43)
	tests := []struct {
		name   string
		config Config
		want   string
	}{
		{"no name", Config{Rules: []Rule{{Direct: true}}}, `rule "": it needs a name`},
		{"control character", one(Rule{Name: "a\nb", Direct: true}), "control"},
		{"twice", Config{Rules: []Rule{{Name: "r", Direct: true}, {Name: "r", Direct: true}}}, `rule "r": another`},
		{"nothing", one(Rule{}), "needs a proxy"},
		{"direct and proxy", one(Rule{Direct: true, Proxies: proxies(t, "http://a")}), "direct and has a proxy"},
		{"on_failure", one(Rule{OnFailure: "maybe", Proxies: proxies(t, "http://a", "http://b")}), "on_failure is stay or next"},
		{"next without pool", one(Rule{OnFailure: Next, Proxies: proxies(t, "http://a")}), "needs a pool"},
		{"twice in a pool", one(Rule{Proxies: proxies(t, "http://a", "http://b", "http://a")}), "proxy 3: it stands twice"},
		{"unknown shop rule", Config{Shops: map[string]string{"s1": "x"}}, `shop "s1": there is no egress rule "x"`},
		{"scheme", proxy(Proxy{Scheme: "ftp", Host: "a", Port: 1}), "its scheme"},
		{"no host", proxy(Proxy{Scheme: "http", Port: 1}), "needs a host"},
		{"capitals", proxy(Proxy{Scheme: "http", Host: "A", Port: 1}), "needs a host"},
		{"brackets", proxy(Proxy{Scheme: "http", Host: "[::1]", Port: 1}), "needs a host"},
		{"no port", proxy(Proxy{Scheme: "http", Host: "a"}), "needs a host"},
		{"no user", proxy(Proxy{"http", "a", 1, "", "s3cret"}), "no user"},
		{"colon", proxy(Proxy{"http", "a", 1, "a:b", "s3cret"}), "colon"},
		{"newline", proxy(Proxy{"https", "a", 1, "a", "s3cret\n"}), "control"},
		{"unknown placeholder", proxy(Proxy{"http", "a", 1, "u-{shpo}", "s3cret"}), `rule "r": proxy 1: its user holds an unknown placeholder`},
		{"unknown placeholder in the password", proxy(Proxy{"http", "a", 1, "u", "{s_cret}s3cret"}), "its password holds an unknown placeholder"},
		{"long user", proxy(Proxy{"socks5", "a", 1, long, ""}), "its user is longer than the 255 bytes"},
		{"long password", proxy(Proxy{"socks5h", "a", 1, "u", long}), "its password is longer"},
		{"no room", proxy(Proxy{"http", "a", 1, long[:230] + "{shop}", "s3cret"}), "too long to hold"},
	}
	for _, test := range tests {
		_, err := NewTable(test.config)
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: NewTable = %v, want ErrConfig with %q", test.name, err, test.want)
		} else if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "s_cret") {
			t.Errorf("%s: %v holds the password", test.name, err)
		}
	}
	_, err := NewTable(Config{Rules: []Rule{{Name: "a"}, {Name: "b"}}})
	if err == nil || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("NewTable(two faults) = %v, want both", err)
	}
}

// TestConfigThatLooksOdd: what must not be taken for a fault.
func TestConfigThatLooksOdd(t *testing.T) {
	newTable(t, Config{Rules: []Rule{
		{Name: "braces", Proxies: []Proxy{{"http", "a", 1, "u{", "}{9}{a b}{}:"}}},
		{Name: "long", Proxies: []Proxy{{"http", "a", 1, "u", strings.Repeat("x", 2000)}}},
		{Name: "same address, other user", Proxies: proxies(t, "http://a:x@p.test", "http://b:x@p.test")},
		{Name: "stay", OnFailure: Stay, Proxies: proxies(t, "http://a")},
		{Name: "6", Proxies: []Proxy{{"http", "2001:db8::1", 1, "", ""}}},
	}})
}

func TestConcurrentWays(t *testing.T) {
	table := newTable(t, Config{Rules: []Rule{{Name: "r", Match: Match{Shop: []string{"*"}}, Proxies: proxies(t, "http://u-{shop}@a.test")}}})
	const shops = 2000 // so that some first looks coincide
	var group sync.WaitGroup
	found := make([][shops]*Exit, 4)
	for i := range found {
		group.Go(func() {
			for s := range shops {
				w, _ := table.Way(fmt.Sprint(s), "", "")
				found[i][s] = w.Exits[0]
			}
		})
	}
	group.Wait()
	for i := range found {
		if found[i] != found[0] {
			t.Fatal("one identity has two exits")
		}
	}
}

func BenchmarkWay(b *testing.B) {
	pool := make([]string, 20)
	for i := range pool {
		pool[i] = fmt.Sprintf("http://10.0.0.%d:3128", i+1)
	}
	table := newTable(b, Config{Rules: []Rule{
		{Name: "host", Match: Match{Host: []string{"host.test"}}, Proxies: proxies(b, "http://a.test")},
		{Name: "pool", Match: Match{Host: []string{"pool.test"}}, Proxies: proxies(b, pool...)},
		{Name: "next", Match: Match{Host: []string{"next.test"}}, Proxies: proxies(b, pool...), OnFailure: Next},
		{Name: "session", Match: Match{Host: []string{"session.test"}}, Proxies: proxies(b, "http://u-{shop}@a.test")},
	}})
	for _, host := range []string{"none.test", "host.test", "pool.test", "next.test", "session.test"} {
		b.Run(host, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.Way("s17", "order_ship", host); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestWayAllocatesNothing(t *testing.T) {
	table := newTable(t, Config{Rules: testRules(t), Shops: map[string]string{"vip": "named"}})
	for _, shop := range []string{"", "vip", "s1"} {
		if n := testing.AllocsPerRun(100, func() { _, _ = table.Way(shop, "report", "a.test:443") }); n != 0 {
			t.Errorf("Way(%q) allocates %v times", shop, n)
		}
	}
}

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// proxyOf parses a URL; the port may be left out.
func proxyOf(t testing.TB, text string) Proxy {
	t.Helper()
	u, err := url.Parse(strings.NewReplacer("{", "%7B", "}", "%7D").Replace(text))
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.ParseUint(u.Port(), 10, 16)
	if port == 0 {
		port = map[string]uint64{"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}[u.Scheme]
	}
	password, _ := u.User.Password()
	return Proxy{Scheme: u.Scheme, Host: u.Hostname(), Port: uint16(port), User: u.User.Username(), Password: password}
}
