//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// binaryDir is where binary built; empty: nobody asked for it.
var binaryDir string

// binary builds the product once for all end-to-end tests.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "retryproxy-e2e-")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	path := filepath.Join(dir, "retryproxy")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if binaryDir != "" {
		os.RemoveAll(binaryDir)
	}
	os.Exit(code)
}

// process is a running binary.
type process struct {
	t            *testing.T
	cmd          *exec.Cmd
	proxy, admin string
	file         string
	stderr       *lockedBuffer
	done         chan error
}

const e2eConfig = `
listen: {proxy: "127.0.0.1:0", admin: "127.0.0.1:%d"}
retry_policies: [{name: default, max_retries: %d, base_delay: %s, jitter: none}]
retry_limits: {global: off, task_type: off, shop: off}
`

// startBinary runs the binary on a configuration file, with further flags, and waits
// for its banner.
func startBinary(t *testing.T, retries int, delay string, args ...string) *process {
	t.Helper()
	file, port := filepath.Join(t.TempDir(), "c.yaml"), freePort(t)
	return runBinary(t, file, port, fmt.Sprintf(e2eConfig, port, retries, delay), args...)
}

// skipE2E leaves a test with the real binary to make e2e, where both would run.
func skipE2E(t *testing.T) {
	if os.Getenv("RETRYPROXY_E2E") == "off" && strings.Contains(t.Name(), "E2E") {
		t.Skip("make e2e runs it")
	}
}

// runBinary runs the binary on a configuration that has this admin port.
func runBinary(t *testing.T, file string, port int, config string, args ...string) *process {
	t.Helper()
	skipE2E(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, file: file, admin: fmt.Sprintf("127.0.0.1:%d", port), stderr: &lockedBuffer{}, done: make(chan error, 1)}
	p.cmd = exec.Command(path, append([]string{"serve", "-config", p.file}, args...)...)
	p.cmd.Stderr = p.stderr
	p.cmd.Env = append(os.Environ(), "HTTP_PROXY=http://127.0.0.1:1") // ours is not for us
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	p.proxy = bannerAddress(t, stdout)
	go func() { io.Copy(io.Discard, stdout); p.done <- p.cmd.Wait() }()
	return p
}

func (p *process) write(port, retries int, delay string) {
	if err := os.WriteFile(p.file, fmt.Appendf(nil, e2eConfig, port, retries, delay), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	u, _ := url.Parse(s.URL)
	var port int
	fmt.Sscan(u.Port(), &port)
	return port
}

var proxyLine = regexp.MustCompile(`proxy +http://(\S+)`)

// bannerAddress reads where the proxy listens.
func bannerAddress(t *testing.T, stdout io.Reader) string {
	t.Helper()
	in := bufio.NewScanner(stdout)
	for in.Scan() {
		if m := proxyLine.FindStringSubmatch(in.Text()); m != nil {
			return m[1]
		}
	}
	t.Fatal("the banner names no address")
	return ""
}

// client is a bot that goes through the proxy.
func (p *process) client() *http.Client {
	u := &url.URL{Scheme: "http", Host: p.proxy}
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u), DisableKeepAlives: true}}
}

// exit waits for the process and returns its exit code.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(20 * time.Second):
		p.t.Fatalf("the process does not end; log: %s", p.stderr)
		return -1
	}
}

// failing answers 503 to the first n requests.
func failing(t *testing.T, n int64) (*httptest.Server, *atomic.Int64) {
	var seen atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1) <= n {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"n":%d}`, seen.Load())
	}))
	t.Cleanup(s.Close)
	return s, &seen
}

func TestE2EHealsReplaysReloadsDrains(t *testing.T) {
	p := startBinary(t, 2, "20ms")
	up, seen := failing(t, 2)
	res, err := p.client().Get(up.URL)
	if err != nil || res.StatusCode != 200 || res.Header.Get("X-Retry-Count") != "2" {
		t.Fatalf("GET = %v, %v, want 200 after two retries", res, err)
	}
	first, again := p.keyed(up.URL), p.keyed(up.URL)
	if first.body != again.body || again.header.Get("Idempotency-Replayed") != "true" || seen.Load() != 4 {
		t.Errorf("answers %q, then %q with %v after %d requests, want a replay and 4", first.body, again.body, again.header, seen.Load())
	}
	p.reloads()
	p.drains()
}

type answered struct {
	status int
	header http.Header
	body   string
}

func (p *process) keyed(url string) answered {
	p.t.Helper()
	req, _ := http.NewRequest("POST", url, strings.NewReader("{}"))
	req.Header.Set("X-Idempotency-Key", "k1")
	res, err := p.client().Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return answered{res.StatusCode, res.Header, string(body)}
}

// reloads changes the file and asks by SIGHUP and by health what came of it.
func (p *process) reloads() {
	p.t.Helper()
	var port int
	fmt.Sscanf(p.admin, "127.0.0.1:%d", &port)
	p.write(port, 1, "30s")
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.logged("configuration reloaded")
	p.write(port, -1, "30s")
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.logged("max_retries")
	path, _ := binary()
	if out, err := exec.Command(path, "health", "-admin", p.admin).CombinedOutput(); err != nil {
		p.t.Errorf("health after a bad reload = %v: %s, want the old rules in force", err, out)
	}
}

// logged waits until the log says text: the process tells us, we do not guess.
func (p *process) logged(text string) {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(p.stderr.String(), text); {
		if time.Now().After(end) {
			p.t.Fatalf("the log never says %q: %s", text, p.stderr)
		}
		p.cmd.Process.Signal(syscall.Signal(0))
	}
}

// drains stops it while a call waits an hour for its retry: the call gets its
// last answer and the process ends by itself.
func (p *process) drains() {
	p.t.Helper()
	entered := make(chan struct{}, 1)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
		entered <- struct{}{}
	}))
	defer up.Close()
	got := make(chan answered, 1)
	go func() {
		res, err := p.client().Get(up.URL)
		if err != nil {
			got <- answered{body: err.Error()}
			return
		}
		got <- answered{res.StatusCode, res.Header, ""}
	}()
	<-entered
	p.waiting()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if a := <-got; a.status != 429 || a.header.Get("X-Retry-Reason") != "shutting_down" {
		p.t.Errorf("the waiting call got %d %v %s, want its 429 and shutting_down", a.status, a.header, a.body)
	}
	if code := p.exit(); code != 0 {
		p.t.Errorf("exit code = %d, want 0; log: %s", code, p.stderr)
	}
}

// waiting waits until the API shows a call that waits.
func (p *process) waiting() {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		res, err := http.Get("http://" + p.admin + "/api/v1/calls?state=waiting")
		if err != nil {
			p.t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if bytes.Contains(body, []byte(`"retry_after"`)) {
			return
		}
	}
	p.t.Fatal("no call waits")
}

func TestE2EExitCodes(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	os.WriteFile(bad, []byte("listne: {}\nretry_policies: [{name: a, base_delay: 0}]\n"), 0o600)
	open, noDir := filepath.Join(t.TempDir(), "open.yaml"), filepath.Join(t.TempDir(), "nodir.yaml")
	os.WriteFile(open, []byte("listen: {proxy: 0.0.0.0:0, admin: 0.0.0.0:0}\n"), 0o600)
	os.WriteFile(noDir, []byte("body: {dir: /does/not/exist}\nlog: {file: /nor/does/this.log}\n"), 0o600)
	isDir := filepath.Join(t.TempDir(), "isdir.yaml")
	os.WriteFile(isDir, []byte("log:\n  file: "+t.TempDir()+"\n"), 0o600)
	for _, tt := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"-version", []string{"--version"}, 0, []string{"retryproxy"}},
		{"serve takes no argument", []string{"serve", "my.yaml"}, 2, []string{`"my.yaml"`, "-config"}},
		{"help of serve", []string{"serve", "-h"}, 0, []string{"usage: retryproxy serve [flags]\n", "adds a reverse route /prefix=url"}},
		{"help of demo", []string{"demo", "-h"}, 0, []string{"usage: retryproxy demo [flags]\n"}},
		{"a bad -listen", []string{"-listen", "nowhere"}, 2, []string{`-listen: "nowhere" must be an address`}},
		{"a bad -route", []string{"-route", "/a=what"}, 2, []string{"-route /a=what: want a URL"}},
		{"a bad -upgrade", []string{"-upgrade", "a b"}, 2, []string{"-upgrade a b: "}},
		{"check beyond loopback", []string{"check", "-config", open}, 2, []string{"clients.allow", "admin.token"}},
		{"check without a folder", []string{"check", "-config", noDir}, 2, []string{"body.dir", "/does/not/exist", "nodir.yaml:2: log.file: stat /nor/does"}},
		{"a log file that is a folder", []string{"serve", "-config", isDir}, 1, []string{"isdir.yaml:2: log.file: open "}},
		{"serve without a folder", []string{"serve", "-config", noDir}, 2, []string{"body.dir", "/does/not/exist"}},
		{"version", []string{"version"}, 0, []string{"retryproxy"}},
		{"help", []string{"help"}, 0, []string{"serve", "demo", "explain"}},
		{"unknown command", []string{"frobnicate"}, 2, []string{"frobnicate"}},
		{"unknown flag", []string{"serve", "-nope"}, 2, []string{"-nope"}},
		{"no file", []string{"serve", "-config", "/does/not/exist"}, 2, []string{"/does/not/exist"}},
		{"check names all faults", []string{"check", "-config", bad}, 2, []string{"bad.yaml:1: listne", "base_delay"}},
		{"serve with a bad file", []string{"-config", bad}, 2, []string{"listne", "base_delay"}},
		{"beyond loopback", []string{"serve", "-listen", "0.0.0.0:0"}, 2, []string{"0.0.0.0:0", "clients.allow"}},
		{"health of nobody", []string{"health", "-admin", "127.0.0.1:1"}, 1, nil},
		{"check the default", []string{"check"}, 0, []string{"retry_policies"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(path, tt.args...)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit code = %d, want %d; output: %s", code, tt.code, out)
			}
			for _, text := range tt.says {
				if !strings.Contains(string(out), text) {
					t.Errorf("output lacks %q: %s", text, out)
				}
			}
		})
	}
}

// TestE2ELogFile: all lines are in the file, from the first to the last, and a
// restart goes on with it.
func TestE2ELogFile(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "retryproxy.log")
	port := freePort(t)
	config := fmt.Sprintf(e2eConfig+"log: {file: %q}\n", port, 1, "1ms", log)
	for n := 1; n <= 2; n++ {
		up, _ := failing(t, 1)
		p := runBinary(t, filepath.Join(dir, "c.yaml"), port, config)
		if _, err := p.client().Get(up.URL); err != nil {
			t.Fatal(err)
		}
		p.cmd.Process.Signal(syscall.SIGTERM)
		if code := p.exit(); code != 0 || p.stderr.String() != "" {
			t.Errorf("exit code = %d, and stderr has %q, want 0 and nothing", code, p.stderr)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"msg":"call"`, `"msg":"shutting down"`} {
			if got := strings.Count(string(text), want); got != n {
				t.Errorf("after %d runs %s is there %d times: %s", n, want, got, text)
			}
		}
	}
}

// A second signal stops at once, whatever is in flight.
func TestE2ESecondSignal(t *testing.T) {
	p := startBinary(t, 0, "1s")
	entered := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}))
	defer up.Close()
	go p.client().Get(up.URL)
	<-entered
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.logged("shutting down")
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.exit(); code != 1 {
		t.Errorf("exit code = %d, want 1", code)
	}
}
