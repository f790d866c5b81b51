package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"retryproxy/config"
	"retryproxy/doctor"
	"retryproxy/intercept"
	"retryproxy/message"
	"retryproxy/upstream"
)

// patient is a running proxy, and what to type to have it examined.
type patient struct {
	admin string
	file  string
	env   func(*Env)
}

// healthy is a proxy that runs on a configuration with one upstream, called from
// a shell that is set up for it.
func healthy(t *testing.T, running string) patient {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	at := l.Addr().String()
	text := "listen: {proxy: \"" + at + "\"}\nroutes: []\nretry_policies: []\nupgrade_to_https: [a.test]\n"
	conf, err := config.Parse("running", []byte(text+running), config.Options{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") && r.Header.Get("Authorization") != "Bearer hush" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case "/readyz":
			_, _ = io.WriteString(w, "ok\n")
		case "/metrics":
			_, _ = io.WriteString(w, "retryproxy_build_info{goversion=\"go1\",version=\"v1.2.3\"} 1\n")
		case "/api/v1/config":
			_, _ = w.Write(conf.Marshal())
		case "/api/v1/observed":
			_, _ = io.WriteString(w, `{"calls": 7}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	proxy := "http://" + at
	return patient{strings.TrimPrefix(server.URL, "http://"), file(t, text), func(e *Env) {
		e.Getenv = func(name string) string {
			return map[string]string{"HTTP_PROXY": proxy, "http_proxy": proxy, "HTTPS_PROXY": proxy, "RETRYPROXY_TOKEN": "hush"}[name]
		}
		e.Doctor = func(*config.Config) (doctor.World, func(), error) {
			return doctor.World{Send: func(context.Context, *upstream.Attempt) upstream.Result {
				return upstream.Result{Response: &message.Response{Status: 200, Body: io.NopCloser(strings.NewReader(""))}}
			}}, func() {}, nil
		}
	}}
}

// ids are what the JSON report holds.
func ids(t *testing.T, text string) map[string]string {
	t.Helper()
	var report struct {
		Findings []struct{ ID, Severity string }
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("the report is no JSON: %v\n%s", err, text)
	}
	out := map[string]string{}
	for _, f := range report.Findings {
		out[f.ID] = f.Severity
	}
	return out
}

func TestDoctorOfAHealthyProxy(t *testing.T) {
	p := healthy(t, "")
	for _, args := range [][]string{{"-config", p.file}, nil} {
		code, stdout, stderr := typed(t, p.env, append([]string{"doctor", "-admin", p.admin}, args...)...)
		for _, want := range []string{"ok: v1.2.3 runs at 127.0.0.1:", "ok: this shell sends calls to", "https://a.test answers in", "ok: 7 calls and 0 opaque tunnels seen"} {
			if code != OK || !strings.Contains(stdout, want) {
				t.Errorf("doctor %v = %d %s%s, want %q", args, code, stdout, stderr, want)
			}
		}
		if n := strings.Count(stdout, "\n"); n >= 15 {
			t.Errorf("doctor %v says %d lines, want fewer than 15:\n%s", args, n, stdout)
		}
	}
}

func TestDoctorFindsProblems(t *testing.T) {
	p := healthy(t, "drain: 9s\n")
	tests := []struct {
		name   string
		args   []string
		change func(*Env)
		code   int
		want   map[string]string
	}{
		{"drift", []string{"-config", p.file, "-admin", p.admin}, nil, OK, map[string]string{"proxy.drift": "warning", "up.ok": "ok"}},
		{"no drift from what runs", []string{"-admin", p.admin}, nil, OK, map[string]string{"proxy.drift": "", "proxy.memory": "note"}},
		{"nothing runs", []string{"-config", file(t, "listen: {proxy: \"127.0.0.1:1\", admin: \"127.0.0.1:2\"}")}, nil, Failure, map[string]string{"proxy.down": "problem"}},
		{"bad configuration", []string{"-config", file(t, "drain: -1s\ncapp: 3"), "-admin", p.admin}, nil, Failure, map[string]string{"config.fault": "problem", "config.ok": "", "proxy.drift": "", "env.ok": "ok"}},
		{"serve would refuse it", []string{"-config", p.file, "-admin", p.admin}, func(e *Env) {
			e.Check = func(*config.Config) error { return errors.New("body.dir: no") }
		}, Failure, map[string]string{"config.fault": "problem"}},
		{"cannot be wired", []string{"-config", p.file, "-admin", p.admin}, func(e *Env) {
			e.Doctor = func(*config.Config) (doctor.World, func(), error) { return doctor.World{}, nil, errors.New("no roots") }
		}, Failure, map[string]string{"config.fault": "problem"}},
		{"offline", []string{"-config", p.file, "-admin", p.admin, "-offline"}, nil, OK, map[string]string{"up.not_asked": "note", "up.ok": ""}},
		{"no token", []string{"-config", p.file, "-admin", p.admin}, func(e *Env) {
			getenv := e.Getenv
			e.Getenv = func(name string) string { return strings.TrimSuffix(getenv(name), "hush") }
		}, OK, map[string]string{"proxy.token": "warning", "traffic.ok": ""}},
		{"no CA yet", []string{"-config", file(t, "intercept: {hosts: [a.test]}"), "-admin", p.admin}, func(e *Env) {
			e.CA = func(_, data string) (intercept.Files, error) {
				return intercept.Files{Cert: filepath.Join(data, "ca.pem"), Key: filepath.Join(data, "ca.key")}, nil
			}
		}, Failure, map[string]string{"trust.missing": "warning", "env.elsewhere": "problem"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := typed(t, func(e *Env) {
				p.env(e)
				if test.change != nil {
					test.change(e)
				}
			}, append([]string{"doctor", "-json", "-data", t.TempDir()}, test.args...)...)
			if code != test.code || stderr != "" {
				t.Errorf("doctor = %d %q, want %d", code, stderr, test.code)
			}
			got := ids(t, stdout)
			for id, severity := range test.want {
				if got[id] != severity {
					t.Errorf("%s is %q, want %q in\n%s", id, got[id], severity, stdout)
				}
			}
		})
	}
}

func TestDoctorOfNoFile(t *testing.T) {
	if code, _, stderr := typed(t, nil, "doctor", "-config", filepath.Join(t.TempDir(), "none.yaml")); code != Usage || !strings.Contains(stderr, "none.yaml") {
		t.Errorf("doctor = %d %q, want %d and the file", code, stderr, Usage)
	}
	if code, _, _ := typed(t, nil, "doctor", "what"); code != Usage {
		t.Errorf("doctor with an argument = %d, want %d", code, Usage)
	}
}

// secrets is a configuration that cannot be shown as it is.
const secrets = `
clients: {users: {bot: {hash: "$2a$04$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"}}}
admin: {token: hush, tokens: [{name: zhang, role: operator, token: hush-zhang}, {name: li, role: viewer, token: hush-li1}]}
egress:
  - {name: proxy-a, match: {shop: s1}, proxy: "socks5h://bot:hush@127.0.0.1:1"}
  - {name: open, match: {shop: s2}, proxy: "http://127.0.0.1:2"}
`

// What hides its secrets is examined all the same: what they are needed for is
// left out, and said.
func TestDoctorOfAConfigurationWithSecrets(t *testing.T) {
	p := healthy(t, secrets)
	var examined *config.Config
	_, stdout, _ := typed(t, func(e *Env) {
		p.env(e)
		wired := e.Doctor
		e.Doctor = func(c *config.Config) (doctor.World, func(), error) { examined = c; return wired(c) }
	}, "doctor", "-json", "-admin", p.admin)
	got := ids(t, stdout)
	if got["proxy.hidden"] != "note" || got["proxy.other_config"] != "" || got["env.users"] != "problem" || got["up.ok"] != "ok" {
		t.Errorf("doctor = %s", stdout)
	}
	if len(examined.Egress) != 2 || !slices.Equal(hidden(examined), []string{"proxy-a"}) {
		t.Errorf("hidden = %v, want proxy-a", hidden(examined))
	}
}

// What serve got by -data holds for doctor: its own -data or, without it, what the
// running proxy tells.
func TestDoctorOfAProxyWithData(t *testing.T) {
	const held = "retry_policies: [{name: default, client_hold: 10s}]\n"
	memory, durable := healthy(t, ""), healthy(t, "store: {kind: sqlite, path: /d}\n")
	tests := []struct {
		name, data string
		patient
		drift, memory, note string
	}{
		{"none", "", memory, "", "note", ""},
		{"of serve", "", durable, "", "", "note"},
		{"of both", "/d", durable, "", "", ""},
		{"others", "/e", durable, "warning", "", ""},
		{"of doctor only", "/d", memory, "warning", "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, stdout, _ := typed(t, test.env, "doctor", "-json", "-admin", test.admin, "-config", test.file, "-data", test.data)
			got := ids(t, stdout)
			if got["proxy.drift"] != test.drift || got["proxy.memory"] != test.memory || got["proxy.data"] != test.note {
				t.Errorf("doctor = %s\nwant drift %q, memory %q, data %q", stdout, test.drift, test.memory, test.note)
			}
		})
	}
	_, stdout, _ := typed(t, durable.env, "doctor", "-json", "-admin", durable.admin, "-config", file(t, held))
	if strings.Contains(stdout, "client_hold") {
		t.Errorf("doctor warns of what needs a durable store, though there is one: %s", stdout)
	}
}

// Nor does it matter what a hidden secret must look like: a key of the store, an
// address.
func TestDoctorOfHiddenKeysAndAddresses(t *testing.T) {
	const hidden = "store: {kind: sqlite, path: /d, key: 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='}\nalerts: [{name: ops, webhook: {url: 'https://hook.test/hush'}}]\n"
	p := healthy(t, hidden)
	code, stdout, _ := typed(t, p.env, "doctor", "-json", "-admin", p.admin)
	if got := ids(t, stdout); code != OK || got["proxy.other_config"] != "" || got["config.fault"] != "" || got["proxy.memory"] != "" {
		t.Errorf("doctor = %d %s", code, stdout)
	}
	_, stdout, _ = typed(t, p.env, "doctor", "-json", "-admin", p.admin, "-config", p.file)
	if got := ids(t, stdout); got["proxy.data"] != "note" {
		t.Errorf("doctor of a file without the store = %s", stdout)
	}
	name := file(t, "store: {kind: sqlite, path: /d, key: '${STORE_KEY}'}\nalerts: [{name: ops, webhook: {url: '${HOOK}'}}]\n")
	_, stdout, _ = typed(t, p.env, "doctor", "-json", "-admin", p.admin, "-config", name)
	if got := ids(t, stdout); got["config.unset"] != "note" || got["config.fault"] != "" {
		t.Errorf("doctor of a file with variables = %s", stdout)
	}
}

// A variable that only the running proxy has is no fault of its file.
func TestDoctorWithoutAVariable(t *testing.T) {
	p := healthy(t, secrets)
	name := file(t, "egress: [{name: proxy-a, match: {shop: s1}, proxy: \"socks5h://bot:${PROXY_PW}@127.0.0.1:1\"}]")
	code, stdout, _ := typed(t, func(e *Env) { p.env(e); e.Getenv = users(e.Getenv) }, "doctor", "-json", "-admin", p.admin, "-config", name)
	if got := ids(t, stdout); code != OK || got["config.unset"] != "note" || got["config.fault"] != "" || got["proxy.drift"] != "" {
		t.Errorf("doctor = %d %s", code, stdout)
	}
	bad := file(t, "drain: -1s\nadmin: {token: \"${TOKEN}\"}")
	_, stdout, _ = typed(t, p.env, "doctor", "-json", "-admin", p.admin, "-config", bad)
	if got := ids(t, stdout); got["config.unset"] != "note" || strings.Count(stdout, `"config.fault"`) != 1 {
		t.Errorf("with a fault besides doctor = %s", stdout)
	}
	_, stdout, _ = typed(t, p.env, "doctor", "-json", "-admin", "127.0.0.1:1", "-config", name)
	if got := ids(t, stdout); got["config.unset"] != "" || got["config.fault"] != "problem" {
		t.Errorf("while nothing runs doctor = %s", stdout)
	}
}

// users puts a user into the proxy variables.
func users(getenv func(string) string) func(string) string {
	return func(name string) string {
		return strings.Replace(getenv(name), "http://", "http://bot:pw@", 1)
	}
}

func TestProxyAddress(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	name = strings.ToLower(name)
	tests := []struct{ listen, admin, want, names string }{
		{"127.0.0.1:8080", "", "127.0.0.1:8080", ""},
		{"0.0.0.0:8080", "", "127.0.0.1:8080", ""},
		{"127.0.0.1:8080", "127.0.0.1:9090", "127.0.0.1:8080", name + " 127.0.0.1"},
		{"0.0.0.0:8080", "proxy.test:9090", "proxy.test:8080", name + " proxy.test"},
		{":8080", "10.0.0.5:9090", "10.0.0.5:8080", name + " 10.0.0.5"},
	}
	for _, test := range tests {
		var c *client
		if test.admin != "" {
			if c, err = newClient(test.admin, ""); err != nil {
				t.Fatal(err)
			}
		}
		if got, names := proxyAddress(test.listen, c); got != test.want || strings.Join(names, " ") != test.names {
			t.Errorf("proxyAddress(%s, %s) = %s %v, want %s %s", test.listen, test.admin, got, names, test.want, test.names)
		}
	}
}
