//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const squeezedConfig = `
listen: {proxy: "127.0.0.1:0", admin: "127.0.0.1:%d"}
retry_policies: [{name: default, max_retries: 3, base_delay: 100ms, max_delay: 1s, deadline: 10s}]
retry_limits: {global: off, task_type: off, shop: off}
`

// startSqueezed runs the binary with few descriptors.
func startSqueezed(t *testing.T, descriptors int) *process {
	t.Helper()
	skipE2E(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, file: filepath.Join(t.TempDir(), "c.yaml"), stderr: &lockedBuffer{}, done: make(chan error, 1)}
	port := freePort(t)
	p.admin = fmt.Sprintf("127.0.0.1:%d", port)
	if err := os.WriteFile(p.file, fmt.Appendf(nil, squeezedConfig, port), 0o600); err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, descriptors), path, "serve", "-config", p.file)
	p.cmd.Stderr = p.stderr
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

func TestCase_RS_04_E2E_OutOfDescriptors(t *testing.T) {
	up := serving(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(100 * time.Millisecond)
		io.WriteString(w, "ok")
	})
	p := startSqueezed(t, 128)
	start := time.Now()
	var mu sync.Mutex
	got := map[int]int{}
	var crowd sync.WaitGroup
	for range 500 {
		crowd.Go(func() {
			c := &http.Client{Transport: p.client().Transport, Timeout: 8 * time.Second}
			for time.Since(start) < 3*time.Second {
				status := 0
				if res, err := c.Get("http://" + up + "/"); err == nil {
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
					status = res.StatusCode
				}
				mu.Lock()
				got[status]++
				mu.Unlock()
			}
		})
	}
	time.Sleep(time.Second)
	admin := &http.Client{Timeout: 5 * time.Second}
	if res, err := admin.Get("http://" + p.admin + "/livez"); err != nil || res.StatusCode != 200 {
		t.Errorf("the admin port during the squeeze = %v, %v, want 200", res, err)
	} else {
		res.Body.Close()
	}
	crowd.Wait()
	for status, n := range got {
		if status != 200 && status != 503 && status != 0 {
			t.Errorf("%d answers with status %d, want 200, or 503 for want of resources", n, status)
		}
	}
	if got[200] == 0 {
		t.Errorf("answers = %v, want some to succeed", got)
	}
	for range 20 {
		res, err := p.client().Get("http://" + up + "/")
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("a call after the squeeze = %v, %v, want 200", res, err)
		}
		res.Body.Close()
	}
	wall := time.Since(start)
	res, err := admin.Get("http://" + p.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if strings.Contains(p.stderr.String(), `"msg":"breaker"`) {
		t.Errorf("a breaker changed its state for want of descriptors: %s", p.stderr)
	}
	if got[503] > 0 && !strings.Contains(string(metrics), `class="transient",host="`+up+`",policy="default",reason="local_resource"`) {
		t.Errorf("%d answers 503, but no attempt is counted as local_resource", got[503])
	}
	p.cmd.Process.Signal(os.Interrupt)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code = %d, want 0", code)
	}
	used := p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	if used > wall*8/10 {
		t.Errorf("processor time = %v in %v, want less than 80 %% of one core", used, wall)
	}
	t.Logf("answers %v, processor time %v in %v", got, used, wall)
}
