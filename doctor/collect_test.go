package doctor

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/classify"
	"retryproxy/config"
	"retryproxy/egress"
	"retryproxy/intercept"
	"retryproxy/message"
	"retryproxy/upstream"
)

// identity is a self-signed certificate for a.test as PEM, changed first.
func identity(t *testing.T, change func(*x509.Certificate)) ([]byte, tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Doctor Test"}, DNSNames: []string{"a.test"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// parsed is a configuration.
func parsed(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("bot.yaml", []byte(text), config.Options{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// world has nothing but a configuration.
func world(t *testing.T, text string) World {
	t.Helper()
	c := parsed(t, text)
	return World{Getenv: func(string) string { return "" }, Config: c, File: "bot.yaml", Proxy: c.Listen.Proxy, Version: "v1"}
}

func TestUpstreamsOfAConfiguration(t *testing.T) {
	c := parsed(t, `
upgrade_to_https: [a.test, "*.b.test", "c.test:8443"]
intercept: {hosts: [a.test, d.test, "*"]}
routes: [{prefix: /r, upstreams: ["https://e.test/base", "http://10.0.0.1:81"]}]
`)
	var got []string
	for _, u := range upstreams(c) {
		got = append(got, u.URL+" "+u.From)
	}
	want := []string{
		"https://a.test intercept.hosts", "https://d.test intercept.hosts",
		"https://e.test route r", "http://10.0.0.1:81 route r", "https://c.test:8443 upgrade_to_https",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("upstreams (-want +got):\n%s", diff)
	}
}

// rules are an egress proxy for a host, a pool that a shop names, and a
// template.
func rules() egress.Config {
	at := func(host, user string) egress.Proxy {
		return egress.Proxy{Scheme: "http", Host: host, Port: 3128, User: user, Password: "hush"}
	}
	return egress.Config{
		Rules: []egress.Rule{
			{Name: "by-host", Match: egress.Match{Host: []string{"a.test"}}, Proxies: []egress.Proxy{at("10.0.0.1", "u")}},
			{Name: "pool", Proxies: []egress.Proxy{at("10.0.0.2", "u"), at("10.0.0.3", "u")}},
			{Name: "template", Match: egress.Match{Shop: []string{"t*"}}, Proxies: []egress.Proxy{at("10.0.0.4", "s-{shop}")}},
		},
		Shops: map[string]string{"s1": "pool"},
	}
}

func TestPlan(t *testing.T) {
	w := world(t, `
upgrade_to_https: [a.test, b.test]
routes: []
shops: {s1: {}, s2: {}, t5: {}}
`)
	w.Egress = rules()
	planned := func() (out []string) {
		s := w.setup()
		for _, p := range w.plan(&s) {
			out = append(out, strings.TrimSpace(p.URL+" "+p.Exit))
			if p.Exit != "" {
				out[len(out)-1] += " " + p.proxy(&Facts{})
			}
		}
		return out
	}
	want := []string{
		"https://a.test by-host http://10.0.0.1:3128", "https://b.test",
		"https://a.test by-host http://10.0.0.1:3128", "https://a.test pool http://10.0.0.2:3128",
		"https://a.test pool http://10.0.0.3:3128", "https://a.test template http://10.0.0.4:3128",
	}
	if diff := cmp.Diff(want, planned()); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	w.Egress.Deny = true
	want = slices.Delete(want, 1, 2) // b.test cannot be called directly any more
	if diff := cmp.Diff(want, planned()); diff != "" {
		t.Errorf("plan with deny (-want +got):\n%s", diff)
	}
}

// A host that only the built-in default names is asked last, for a proxy that is
// for another host not at all, and through one whose password is hidden never.
func TestPlanOfTheShippedHost(t *testing.T) {
	w := world(t, `routes: [{prefix: /r, upstreams: ["https://erp.test"]}]`)
	w.Egress = egress.Config{Rules: []egress.Rule{
		{Name: "all", Match: egress.Match{Shop: []string{"s1"}}, Proxies: []egress.Proxy{{Scheme: "http", Host: "10.0.0.1", Port: 1}}},
		{Name: "wild", Match: egress.Match{Host: []string{"*.temu.test"}}, Proxies: []egress.Proxy{{Scheme: "http", Host: "10.0.0.2", Port: 1}}},
	}}
	w.Hidden = []string{"wild"}
	planned := func() (out []string) {
		s := w.setup()
		for _, p := range w.plan(&s) {
			out = append(out, fmt.Sprintf("%s %s shipped=%t listen=%t", p.URL, p.Exit, p.Shipped, p.Listen))
		}
		return out
	}
	want := []string{
		"https://erp.test  shipped=false listen=false", "https://gw-api.pinduoduo.com  shipped=true listen=false",
		"https://erp.test all shipped=false listen=false", "https://example.com wild shipped=false listen=true",
	}
	if diff := cmp.Diff(want, planned()); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	w.Config = parsed(t, "routes: []")
	if got := planned(); got[1] != "https://gw-api.pinduoduo.com all shipped=true listen=false" {
		t.Errorf("without a route the plan is %q, want the shipped host", got)
	}
}

// exit is an egress proxy at an address.
type exit struct {
	upstream.Exit
	at *net.TCPAddr
}

func (e exit) Proxy() (scheme, host string, port uint16) {
	return "http", e.at.IP.String(), uint16(e.at.Port)
}

func TestKnock(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	at := l.Addr().(*net.TCPAddr)
	ask := func(p Probe) classify.Fault {
		w := World{Send: func(context.Context, *upstream.Attempt) upstream.Result {
			return upstream.Result{Outcome: classify.Outcome{Fault: classify.FaultEgressTimeout, Detail: "no answer"}}
		}}
		p.URL, p.Exit, p.Through = "https://a.test", "x", exit{at: at}
		w.probe(t.Context(), &p)
		return p.Fault
	}
	listen, shipped := Probe{Target: Target{Listen: true}}, Probe{Target: Target{Shipped: true}}
	if a, b := ask(listen), ask(shipped); a != classify.FaultNone || b != classify.FaultEgressFailed {
		t.Errorf("a proxy that listens = %v and, for the shipped host, %v", a, b)
	}
	must(t, l.Close())
	if a, b := ask(listen), ask(shipped); a != classify.FaultEgressUnreachable || b != classify.FaultEgressTimeout {
		t.Errorf("a proxy that is not there = %v and, for the shipped host, %v", a, b)
	}
}

func TestBareShops(t *testing.T) {
	w := world(t, "shops: {s1: {}, s2: {}, t5: {}}\nupgrade_to_https: [b.test]")
	w.Egress = rules()
	if got := w.setup().BareShops; got != nil {
		t.Errorf("BareShops = %v without deny", got)
	}
	w.Egress.Deny = true
	if got := w.setup().BareShops; !slices.Equal(got, []string{"s2"}) {
		t.Errorf("BareShops = %v, want [s2]", got)
	}
}

// answering is a Send that gives an answer after some time.
func answering(after time.Duration, fields message.Fields, status int) func(context.Context, *upstream.Attempt) upstream.Result {
	return func(ctx context.Context, _ *upstream.Attempt) upstream.Result {
		select {
		case <-time.After(after):
		case <-ctx.Done():
			return upstream.Result{Outcome: classify.Outcome{Phase: classify.PhaseSent, Fault: classify.FaultTimeout, Detail: "no answer in time"}}
		}
		return upstream.Result{Response: &message.Response{Status: status, Fields: fields, Body: io.NopCloser(strings.NewReader(""))}}
	}
}

func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := World{Send: answering(2*time.Second, message.Fields{{Name: "Date", Value: "Sat, 01 Jan 2000 00:00:00 GMT"}}, 405)}
		p := Probe{Target: Target{URL: "https://A.test:8443"}}
		w.probe(t.Context(), &p)
		if p.Took != 2*time.Second || p.Status != 405 || p.Fault != classify.FaultNone || p.Date.Year() != 2000 || p.skew() != 0 {
			t.Errorf("probe = %+v", p.Answer)
		}
		w.Send = answering(time.Hour, nil, 200)
		w.probe(t.Context(), &p)
		if p.Took != oneProbe || p.Fault != classify.FaultTimeout {
			t.Errorf("probe of a silent host = %+v", p.Answer)
		}
	})
}

func TestProbesAreBoundedInNumberAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := make([]string, 60)
		for i := range hosts {
			hosts[i] = "h" + strings.Repeat("x", i) + ".test"
		}
		w := world(t, "upgrade_to_https: ["+strings.Join(hosts, ", ")+"]\nroutes: []")
		var now, most atomic.Int32
		slow := answering(time.Hour, nil, 200)
		w.Send = func(ctx context.Context, a *upstream.Attempt) upstream.Result {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			return slow(ctx, a)
		}
		f := &Facts{Setup: w.setup()}
		began := time.Now()
		got := w.probes(t.Context(), f)
		if took := time.Since(began); took != allProbes || most.Load() != atOnce || len(got) != 60 {
			t.Errorf("%d probes took %s, %d at once; want 60 in %s, %d at once", len(got), took, most.Load(), allProbes, atOnce)
		}
	})
}

func TestAttempt(t *testing.T) {
	for url, want := range map[string]upstream.Target{
		"https://A.test":        {Scheme: "https", Host: "a.test", Port: 443},
		"http://a.test":         {Scheme: "http", Host: "a.test", Port: 80},
		"https://[::1]:8443":    {Scheme: "https", Host: "::1", Port: 8443},
		"http://10.0.0.1:81":    {Scheme: "http", Host: "10.0.0.1", Port: 81},
		"h2c://a.test:9":        {Scheme: "h2c", Host: "a.test", Port: 9},
		"https://a.test:999999": {},
		"nonsense":              {},
	} {
		a, ok := attemptOf(&Target{URL: url})
		if !ok {
			a = &upstream.Attempt{}
		}
		if a.Target != want || ok && (a.Request.Method != "HEAD" || a.Request.Scheme == "h2c" || a.Request.Target != "/") {
			t.Errorf("attemptOf(%s) = %+v, want %+v", url, a.Target, want)
		}
	}
}

func TestJudgeCert(t *testing.T) {
	now := time.Now()
	tests := []struct {
		name, host string
		change     func(*x509.Certificate)
		trusted    bool
		want       string
	}{
		{"expired", "a.test", func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }, true, "expired"},
		{"not yet valid", "a.test", func(c *x509.Certificate) { c.NotBefore = now.Add(time.Minute) }, true, "not_yet"},
		{"another name", "b.test", nil, true, "wrong_name"},
		{"nobody knows the root", "a.test", nil, false, "unknown_root"},
		{"well", "a.test", nil, true, ""},
	}
	for _, test := range tests {
		_, pair := identity(t, test.change)
		cert, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		if test.trusted {
			roots.AddCert(cert)
		}
		got := judgeCert([]*x509.Certificate{cert}, test.host, roots, now)
		if got.Fault != test.want || !slices.Equal(got.Names, []string{"a.test"}) || got.Issuer != "CN=Doctor Test" {
			t.Errorf("%s: judgeCert = %+v, want %q", test.name, got, test.want)
		}
	}
}

// A real upstream with a certificate that nobody trusts, through the real client.
func TestLookAtARealCertificate(t *testing.T) {
	_, pair := identity(t, nil)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		}
	}()
	roots := x509.NewCertPool()
	up := upstream.New(upstream.Config{TLS: &tls.Config{RootCAs: roots}})
	defer up.Close()
	w := World{Send: up.Send, Roots: roots}
	p := Probe{Target: Target{URL: "https://" + l.Addr().String()}}
	w.probe(t.Context(), &p)
	if p.Fault != classify.FaultVerify || p.Cert == nil || p.Cert.Fault != "wrong_name" {
		t.Errorf("probe = %+v, %+v, want a certificate for another name", p.Answer, p.Cert)
	}
}

func TestTrust(t *testing.T) {
	dir := t.TempDir()
	ca := intercept.Files{Cert: filepath.Join(dir, "ca.pem"), Key: filepath.Join(dir, "ca.key"), Make: true}
	w := world(t, "intercept: {hosts: [a.test]}")
	w.CA = ca
	if f := Collect(t.Context(), w); !f.Trust.Missing {
		t.Errorf("Trust = %+v, want it missing", f.Trust)
	}
	authority, err := intercept.Open(ca)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := identity(t, nil)
	both, junk := filepath.Join(dir, "both.pem"), filepath.Join(dir, "junk.pem")
	must(t, os.WriteFile(both, append(other, text...), 0o600))
	must(t, os.WriteFile(junk, []byte("junk"), 0o600))
	w.Getenv = func(name string) string {
		return map[string]string{"SSL_CERT_FILE": both, "CURL_CA_BUNDLE": junk, "NODE_EXTRA_CA_CERTS": filepath.Join(dir, "none")}[name]
	}
	f := Collect(t.Context(), w)
	if f.Trust.KeyMode != 0o600 || f.Trust.Fault != "" || f.Trust.System || !f.Trust.Expires.Equal(authority.NotAfter()) {
		t.Errorf("Trust = %+v", f.Trust)
	}
	if got := plainPrint(authority.Fingerprint()); got != f.Trust.Print {
		t.Errorf("Print = %s, want %s", f.Trust.Print, got)
	}
	b := f.Shell.Bundles
	if s := b["SSL_CERT_FILE"]; !s.Ours || s.Count != 2 || s.Fault != "" {
		t.Errorf("SSL_CERT_FILE = %+v, want ours among 2", s)
	}
	if b["CURL_CA_BUNDLE"].Fault == "" || b["NODE_EXTRA_CA_CERTS"].Fault == "" || len(b) != 3 {
		t.Errorf("bundles = %+v, want two faults", b)
	}
	must(t, os.Remove(ca.Key))
	if f := Collect(t.Context(), w); f.Trust.Fault == "" {
		t.Errorf("Trust without a key = %+v, want a fault", f.Trust)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// admin answers paths.
func admin(answers map[string]string) func(context.Context, string) (int, []byte, error) {
	return func(_ context.Context, path string) (int, []byte, error) {
		switch text, ok := answers[path]; {
		case !ok:
			return 404, nil, nil
		case text == "401":
			return 401, nil, nil
		default:
			return 200, []byte(text), nil
		}
	}
}

func TestRunning(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	w := world(t, "drain: 7s\ninstance: other")
	w.Admin, w.Proxy = "127.0.0.1:9090", l.Addr().String()
	w.Ask = admin(map[string]string{
		"/readyz": "ok",
		"/metrics": `# HELP retryproxy_build_info x
retryproxy_build_info{goversion="go1.26",version="v9"} 1
retryproxy_config_last_reload_successful 0
retryproxy_ignored_values_total{field="user_name"} 3
retryproxy_records{state="done"} 4
retryproxy_records{state="running"} 1
retryproxy_records_bytes 900
nonsense
`,
		"/api/v1/config?format=yaml": string(parsed(t, "drain: 8s\ninstance: other").Marshal()),
		"/api/v1/observed":           `{"calls": 5, "hosts": [{"host": "a.test:80", "calls": 5}]}`,
		"/api/v1/retries":            `{"default": "off", "scopes": []}`,
		"/api/v1/intercept":          `{"fingerprint": "AB", "passed_through": [{"client": "c", "host": "h"}]}`,
		"/api/v1/breakers":           `{"hosts": [], "shops": [{"shop": "s17", "host": "a.test:80"}]}`,
	})
	f := Collect(t.Context(), w)
	want := Running{
		Retries: &Switch{Default: "off", Scopes: []Scope{}},
		Admin:   "127.0.0.1:9090", Version: "v9", OwnVersion: "v1", Reload: true, Drift: []string{"drain"}, Misspelt: 3,
		SpoolFree: f.Running.SpoolFree, Records: 5, Passed: []Passed{{Client: "c", Host: "h"}}, Fingerprint: "AB",
	}
	if len(f.Running.Cut.Shops) != 1 || f.Running.Cut.Shops[0].Shop != "s17" {
		t.Errorf("Cut = %+v, want the shop", f.Running.Cut)
	}
	f.Running.Cut = Cut{}
	if diff := cmp.Diff(want, f.Running); diff != "" {
		t.Errorf("Running (-want +got):\n%s", diff)
	}
	if f.Seen == nil || f.Seen.Calls != 5 || len(f.Seen.Hosts) != 1 {
		t.Errorf("Seen = %+v", f.Seen)
	}
}

func TestRunningThatDoesNotTell(t *testing.T) {
	w := world(t, "listen: {proxy: \"127.0.0.1:1\"}")
	w.Ask = func(context.Context, string) (int, []byte, error) { return 0, nil, errors.New("refused") }
	f := Collect(t.Context(), w)
	if f.Running.AdminFault != "refused" || f.Running.ProxyFault == "" || f.Seen != nil || !f.Offline || f.Probes != nil {
		t.Errorf("Running = %+v", f.Running)
	}
	w.Ask = admin(map[string]string{"/readyz": "ok", "/api/v1/config?format=yaml": "401"})
	if f = Collect(t.Context(), w); !f.Running.Token || f.Running.AdminFault != "it answers 401 Unauthorized" {
		t.Errorf("Running = %+v, want a token to be missing", f.Running)
	}
}

func TestShell(t *testing.T) {
	w := world(t, "")
	w.Getenv = func(name string) string {
		return map[string]string{"HTTP_PROXY": "http://x", "SECRET": "hush", "NO_PROXY": ""}[name]
	}
	w.Output = func(_ context.Context, name string, args ...string) (string, error) {
		if name != "node" || !slices.Equal(args, []string{"--version"}) {
			return "", errors.New("no such program")
		}
		return "v20.1.2\n", nil
	}
	w.Has = func(name string) bool { return name == "java" }
	s := w.shell(t.Context())
	if diff := cmp.Diff(map[string]string{"HTTP_PROXY": "http://x"}, s.Vars); diff != "" || s.Node != "v20.1.2" || !s.Java {
		t.Errorf("shell = %+v", s)
	}
}

func TestFreeSpace(t *testing.T) {
	if free := freeSpace(filepath.Join(t.TempDir(), "none")); free != 0 {
		t.Errorf("freeSpace of no folder = %d, want 0", free)
	}
}

func FuzzPoint(f *testing.F) {
	for _, s := range []string{"http://shop=17;task=x:y@127.0.0.1:8080", "a:b@c", "://", "http://[::1]:80", "x@y@z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		facts := well()
		sets("HTTP_PROXY", value, "NO_PROXY", value, "NODE_OPTIONS", value, "JAVA_TOOL_OPTIONS", value)(facts)
		facts.Shell.Node = value
		var b bytes.Buffer
		if err := Print(&b, Examine(facts), "linux"); err != nil {
			t.Fatal(err)
		}
	})
}
