//go:build unix

package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait: what takes so long never comes.
const patience = 90 * time.Second

// product is the running binary.
type product struct {
	t            *testing.T
	proxy, admin string
	listeners    map[string]string // addresses by shop
	ca           string            // file with its CA
	log          lockedBuffer
}

// config is what it runs on: short delays, names under .test that lead to our
// upstream, nothing else reachable.
const config = `
listen: {proxy: "127.0.0.1:0", admin: "%s"}
listeners: [%s]
tls: {ca_files: ["%s"]}
intercept: {hosts: ["*.test"]}
egress: [{name: town, match: {host: "*.test"}, proxy: "http://%s"}]
egress_default: deny
upgrade_to_https: ["*.upgrade.test"]
retry_policies: [{name: default, max_retries: 3, base_delay: 50ms, max_delay: 200ms}]
retry_limits: {global: off, task_type: off, shop: off}
breakers: {host: {consecutive_failures: 50}}
`

// start builds and runs the product; listeners are the entries of that setting.
func start(t *testing.T, up *upstream, listeners []string) *product {
	t.Helper()
	dir := t.TempDir()
	binary, file := filepath.Join(dir, "retryproxy"), filepath.Join(dir, "config.yaml")
	if out, err := exec.Command("go", "build", "-o", binary, "..").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	p := &product{t: t, admin: freeAddr(t), listeners: map[string]string{}}
	text := fmt.Appendf(nil, config, p.admin, strings.Join(listeners, ", "), up.roots(dir), up.egress)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(exec.Command(binary, "serve", "-config", file, "-data", filepath.Join(dir, "data")))
	p.ca = filepath.Join(dir, "ca.pem")
	p.fetchCA()
	return p
}

// run starts it and reads where it listens.
func (p *product) run(cmd *exec.Cmd) {
	p.t.Helper()
	cmd.Stderr = &p.log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	p.t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	in := bufio.NewReader(stdout)
	p.readBanner(in)
	go func() { io.Copy(io.Discard, in); cmd.Wait(); close(ended) }()
	if p.proxy == "" {
		<-ended
		p.t.Fatalf("it does not start: %s", p.log.String())
	}
}

var listening = regexp.MustCompile(`^  proxy +http://(\S+)(?: \((\S+).*\))?$`)

// readBanner reads up to the empty line after the addresses.
func (p *product) readBanner(in *bufio.Reader) {
	for {
		line, err := in.ReadString('\n')
		if m := listening.FindStringSubmatch(strings.TrimRight(line, "\n")); m == nil {
			if err != nil || line == "\n" {
				return
			}
		} else if m[2] == "" {
			p.proxy = m[1]
		} else {
			p.listeners[m[2]] = m[1]
		}
	}
}

// fetchCA gets the CA the way a bot's owner does: from the proxy.
func (p *product) fetchCA() {
	p.t.Helper()
	through := http.ProxyURL(&url.URL{Scheme: "http", Host: p.proxy})
	client := &http.Client{Transport: &http.Transport{Proxy: through, DisableKeepAlives: true}, Timeout: patience}
	pem := p.get(client, "http://retryproxy.internal/ca.pem")
	if err := os.WriteFile(p.ca, pem, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *product) get(client *http.Client, target string) []byte {
	p.t.Helper()
	res, err := client.Get(target)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		p.t.Fatalf("GET %s = %d, %v: %s", target, res.StatusCode, err, body)
	}
	return body
}

// call is a call as the admin API tells it.
type call struct {
	Mode, Method, Scheme, Host, Path string
	Labels                           struct {
		Shop     string
		TaskType string `json:"task_type"`
	}
}

// calls are those to a host.
func (p *product) calls(host string) []call {
	p.t.Helper()
	var list []call
	body := p.get(&http.Client{Timeout: patience}, "http://"+p.admin+"/api/v1/calls?limit=100&host="+host)
	if err := json.Unmarshal(body, &list); err != nil {
		p.t.Fatalf("calls: %v: %s", err, body)
	}
	return list
}

// logOf are the lines of the log that name a host.
func (p *product) logOf(host string) string {
	var b strings.Builder
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, host) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// freeAddr is a loopback address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// lockedBuffer is an output that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
