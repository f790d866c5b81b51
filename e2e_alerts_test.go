//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A breaker opens in the real binary, and a WeCom bot hears of it, though the
// environment names a proxy; the address of the bot comes from the environment.
func TestE2EAlert(t *testing.T) {
	got := make(chan string, 10)
	bot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.String() + " " + string(body)
		io.WriteString(w, `{"errcode":0,"errmsg":"ok"}`)
	}))
	defer bot.Close()
	t.Setenv("E2E_HOOK", bot.URL+"/send?key=0123456789")
	p := startBinary(t, 0, "20ms")
	var port int
	fmt.Sscanf(p.admin, "127.0.0.1:%d", &port)
	text := fmt.Sprintf(e2eConfig, port, 0, "20ms") + "alerts: [{on: breaker, webhook: {url: \"${E2E_HOOK}\", format: wecom}}]\n"
	if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.logged("configuration reloaded")

	path, _ := binary()
	if out, err := exec.Command(path, "alerts", "test", "-rule", "breaker", "-admin", p.admin).CombinedOutput(); err != nil || !strings.Contains(string(out), "breaker (wecom): ok: 200") {
		t.Fatalf("alerts test = %v: %s", err, out)
	}
	if hook := <-got; !strings.Contains(hook, "/send?key=0123456789 ") || !strings.Contains(hook, "TEST") {
		t.Errorf("the test message was %s", hook)
	}
	up, _ := failing(t, 1000)
	for range 5 {
		res, err := p.client().Get(up.URL)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	select {
	case hook := <-got:
		for _, want := range []string{`"msgtype":"markdown"`, "FIRING", "the host is cut off", strings.TrimPrefix(up.URL, "http://"), "retryproxy doctor"} {
			if !strings.Contains(hook, want) {
				t.Errorf("the alert lacks %q: %s", want, hook)
			}
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("no alert; log: %s", p.stderr)
	}
	out, err := exec.Command(path, "alerts", "-admin", p.admin).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "FIRING breaker: the host is cut off") {
		t.Errorf("alerts = %v: %s", err, out)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code = %d, want 0", code)
	}
	if strings.Contains(p.stderr.String()+string(out), "0123456789") {
		t.Error("the key of the bot is in the log")
	}
}
