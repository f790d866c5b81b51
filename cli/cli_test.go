package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"retryproxy/config"
	"retryproxy/internal/seal"
)

// defaults is the built-in configuration.
func defaults(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// typed runs a command line.
func typed(t *testing.T, change func(*Env), args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problems bytes.Buffer
	env := Env{
		Life: t.Context(), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problems,
		Getenv: func(string) string { return "" }, Defaults: defaults(t), Version: "v1.2.3",
	}
	if change != nil {
		change(&env)
	}
	code = Run(args, env)
	return code, out.String(), problems.String()
}

// file writes a configuration.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{"help", []string{"help"}, OK, "hash-password", ""},
		{"-h", []string{"-h"}, OK, "usage: retryproxy COMMAND [flags] [ARGS]", ""},
		{"unknown command", []string{"fly"}, Usage, "", `"fly" is not a command`},
		{"wrong flag", []string{"check", "-what"}, Usage, "", "-what"},
		{"help COMMAND", []string{"help", "calls"}, OK, "", "usage: retryproxy calls [flags]\ncalls of a running proxy"},
		{"help of no command", []string{"help", "fly"}, Usage, "", `"fly" is not a command`},
		{"help of two words", []string{"help", "store", "new-key"}, OK, "", "usage: retryproxy store new-key [flags]\nmake a key"},
		{"half of a command", []string{"store"}, Usage, "", "\n  store new-key [-id name]\n"},
		{"data of serve", []string{"help"}, OK, "serve [-config file] [-data directory]", ""},
		{"help of a command", []string{"calls", "-h"}, OK, "", "usage: retryproxy calls [flags]\ncalls of a running proxy"},
		{"help with arguments", []string{"explain", "-h"}, OK, "", "usage: retryproxy explain [flags] URL\n"},
		{"help without flags", []string{"version", "-h"}, OK, "", "usage: retryproxy version\n"},
		{"placeholder of a number", []string{"calls", "-h"}, OK, "", "-limit n\n"},
		{"placeholder of a time", []string{"retries", "-h"}, OK, "", "-for 30m\n"},
		{"configuration to explain by", []string{"explain", "-h"}, OK, "", "-config file\n    \tthe configuration file to explain by"},
		{"unknown state", []string{"calls", "-state", "bogus"}, Usage, "", "want running, waiting, parked or done"},
		{"too many arguments", []string{"check", "a", "b"}, Usage, "", "check: want no argument"},
		{"too few arguments", []string{"why"}, Usage, "", "why: want one argument"},
		{"version", []string{"version"}, OK, "retryproxy v1.2.3 (go", ""},
		{"-version", []string{"-version"}, OK, "retryproxy v1.2.3 (go", ""},
		{"--version", []string{"--version"}, OK, "retryproxy v1.2.3 (go", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := typed(t, nil, test.args...)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("%q = %d %q %q, want %d %q %q", test.args, code, stdout, stderr, test.code, test.stdout, test.stderr)
			}
		})
	}
	_, all, _ := typed(t, nil, "help")
	for _, name := range []string{"serve", "demo", "check", "explain", "health", "ca", "doctor", "calls", "why", "deadletters", "preset", "report", "simulate", "hash-password", "version"} {
		if !strings.Contains(all, "\n  "+name) {
			t.Errorf("the usage does not list %s", name)
		}
	}
}

func TestRunServesAndDemonstrates(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{{nil, "serve []"}, {[]string{"serve", "-x"}, "serve [-x]"}, {[]string{"demo", "-serve"}, "demo [-serve]"}, {[]string{"help", "serve"}, "serve [-h]"}} {
		got := ""
		code, _, _ := typed(t, func(e *Env) {
			e.Serve = func(_ Env, args []string) int { got = "serve [" + strings.Join(args, " ") + "]"; return 7 }
			e.Demo = func(args []string) int { got = "demo [" + strings.Join(args, " ") + "]"; return 7 }
		}, test.args...)
		if got != test.want || code != 7 {
			t.Errorf("Run(%q) = %d, called %s, want 7 and %s", test.args, code, got, test.want)
		}
	}
}

func TestCheck(t *testing.T) {
	code, stdout, _ := typed(t, nil, "check")
	if code != OK || !strings.Contains(stdout, "name: order_ship_vip") {
		t.Errorf("check of the built-in configuration = %d %s, want its YAML", code, stdout)
	}
	code, stdout, _ = typed(t, nil, "check", "-config", file(t, "drain: 7s\nadmin: {token: hush}\n"))
	if code != OK || !strings.Contains(stdout, "drain: 7s") || strings.Contains(stdout, "hush") {
		t.Errorf("check = %d %s, want drain: 7s and no secret", code, stdout)
	}
}

func TestCheckTellsAllFaults(t *testing.T) {
	code, stdout, stderr := typed(t, nil, "check", "-config", file(t, "drain: soon\nwhat: 1\n"))
	if code != Usage || stdout != "" || !strings.Contains(stderr, ":1: drain") || !strings.Contains(stderr, ":2: what") {
		t.Errorf("check of a bad file = %d %q %q, want 2 and both faults", code, stdout, stderr)
	}
	code, _, stderr = typed(t, nil, "check", "-config", filepath.Join(t.TempDir(), "none.yaml"))
	if code != Usage || !strings.Contains(stderr, "none.yaml") {
		t.Errorf("check of no file = %d %q, want 2 and its name", code, stderr)
	}
}

func TestCheckTellsWhatServeWouldRefuse(t *testing.T) {
	refuse := func(e *Env) {
		e.Check = func(c *config.Config) error { return fmt.Errorf("not on %s", c.Listen.Proxy) }
	}
	code, stdout, stderr := typed(t, refuse, "check", "-config", file(t, "listen: {proxy: 0.0.0.0:8080}\n"))
	if code != Usage || stdout != "" || stderr != "not on 0.0.0.0:8080\n" {
		t.Errorf("check of what may not run = %d %q %q, want 2 and why", code, stdout, stderr)
	}
}

func TestVersionIsNeverEmpty(t *testing.T) {
	if got := VersionName(""); got == "" {
		t.Error("VersionName() is empty, want what the build knows")
	}
	if got := VersionName("v1"); got != "v1" {
		t.Errorf("VersionName(v1) = %s, want v1", got)
	}
}

func TestHashPassword(t *testing.T) {
	for _, input := range []string{"open sesame\r\n", "open sesame"} {
		code, stdout, stderr := typed(t, func(e *Env) { e.Stdin = strings.NewReader(input) }, "hash-password")
		hash := strings.TrimSuffix(stdout, "\n")
		if code != OK || bcrypt.CompareHashAndPassword([]byte(hash), []byte("open sesame")) != nil {
			t.Errorf("hash-password of %q = %d %q %q, want a hash of it", input, code, stdout, stderr)
		}
	}
	for _, input := range []string{"", "\n", strings.Repeat("x", 73)} {
		if code, stdout, _ := typed(t, func(e *Env) { e.Stdin = strings.NewReader(input) }, "hash-password"); code != Failure || stdout != "" {
			t.Errorf("hash-password of %q = %d %q, want a failure", input, code, stdout)
		}
	}
}

func TestNewStoreKey(t *testing.T) {
	_, first, _ := typed(t, nil, "store", "new-key")
	code, second, _ := typed(t, nil, "store", "new-key")
	keys, err := seal.Parse(first + second)
	if code != OK || err != nil || len(keys.IDs()) != 2 {
		t.Errorf("store new-key twice = %d %q %q, want two keys for one file: %v", code, first, second, err)
	}
	if _, named, _ := typed(t, nil, "store", "new-key", "-id", "k7"); !strings.HasPrefix(named, "k7:") {
		t.Errorf("store new-key -id k7 = %q", named)
	}
	if code, _, stderr := typed(t, nil, "store", "new-key", "-id", "k 7"); code != Usage || !strings.Contains(stderr, "an id must be") {
		t.Errorf("store new-key -id 'k 7' = %d %q, want 2 and the rule", code, stderr)
	}
}

func TestReseal(t *testing.T) {
	key := "new:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	named := file(t, "store: {kind: sqlite, path: /data, key: '"+key+"'}\n")
	keyed := file(t, "store: {key: '"+key+"'}\n")
	shared := file(t, "store: {kind: redis, url: 'redis://cache.test:6379', key: '"+key+"'}\n")
	tests := []struct {
		name   string
		args   []string
		fails  bool
		code   int
		stdout string
		stderr string
	}{
		{"the path of the file", []string{"-config", named}, false, OK, `7 requests and answers in /data were sealed anew; all are sealed by the key "new"`, ""},
		{"another directory", []string{"-config", named, "-data", "/other"}, false, OK, "in /other were", ""},
		{"a file with the key only", []string{"-config", keyed, "-data", "/other"}, false, OK, "in /other were", ""},
		{"no directory", []string{"-config", keyed}, false, Usage, "", "which store?"},
		{"Redis", []string{"-config", shared}, false, Usage, "", "not sealed anew"},
		{"no key", []string{"-data", "/other"}, false, Usage, "", "no store.key"},
		{"it fails", []string{"-config", named}, true, Failure, "", "in use"},
	}
	for _, test := range tests {
		code, stdout, stderr := typed(t, func(e *Env) {
			e.Reseal = func(c *config.Config, dir string) (int, error) {
				if c.Store.Keys() == nil || test.fails {
					return 0, errors.New(dir + " is in use")
				}
				return 7, nil
			}
		}, append([]string{"store", "reseal"}, test.args...)...)
		if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
			t.Errorf("%s: %d %q %q, want %d %q %q", test.name, code, stdout, stderr, test.code, test.stdout, test.stderr)
		}
	}
}

func TestBanner(t *testing.T) {
	var out bytes.Buffer
	Banner(&out, Info{
		Version: "v1", Proxy: "0.0.0.0:8080", Admin: "127.0.0.1:9090", Extra: []string{"127.0.0.1:8117 (shop s17)"},
		Routes: []Route{{"", "/pdd", "https://gw-api.pinduoduo.com"}, {"api.local", "/v1", "http://b.test"}}, Upgrade: []string{"gw-api.pinduoduo.com"},
		Memory: true, Warnings: []string{"beware"},
	})
	for _, want := range []string{
		"retryproxy v1 on the built-in configuration",
		"proxy   http://127.0.0.1:8080 (listens on all addresses: 0.0.0.0:8080)\n", "admin   http://127.0.0.1:9090\n", "127.0.0.1:8117 (shop s17)",
		"export http_proxy=http://127.0.0.1:8080 HTTP_PROXY=http://127.0.0.1:8080\n",
		`$env:HTTP_PROXY = "http://127.0.0.1:8080"`, "curl -x http://127.0.0.1:8080 ",
		"http://127.0.0.1:8080/pdd  ->  https://gw-api.pinduoduo.com", "http://127.0.0.1:8080/v1 with Host: api.local  ->  http://b.test",
		"a restart forgets them", "warning: beware",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("banner = %s, want %q in it", out.String(), want)
		}
	}
	out.Reset()
	Banner(&out, Info{Proxy: "127.0.0.1:8080", Opened: []string{"*.temu.com"}, CA: "/data/ca.pem", Egress: []string{"proxy-a  socks5h://10.0.0.1:1080"}})
	for _, want := range []string{
		"HTTPS_PROXY=http://127.0.0.1:8080", `$env:HTTPS_PROXY = "http://127.0.0.1:8080"`,
		"opened to *.temu.com: clients must trust /data/ca.pem", "egress  proxy-a  socks5h://10.0.0.1:1080",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("banner = %s, want %q in it", out.String(), want)
		}
	}
	out.Reset()
	Banner(&out, Info{Proxy: "[::]:8080", Config: "my.yaml", Users: true, Log: "/var/log/x.log"})
	text := out.String()
	if !strings.Contains(text, "curl -x http://USER:PASSWORD@127.0.0.1:8080 ") || !strings.Contains(text, "on my.yaml\n") || !strings.Contains(text, "log is in /var/log/x.log.\n") || strings.Contains(text, "restart") || strings.Contains(text, "admin") {
		t.Errorf("banner = %s, want credentials, my.yaml, the log, and neither admin nor memory", text)
	}
}
