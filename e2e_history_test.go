//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// typed runs the binary and wants its exit code.
func typed(t *testing.T, code int, args ...string) string {
	t.Helper()
	skipE2E(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("retryproxy %s = %d, want %d: %s", strings.Join(args, " "), got, code, out)
	}
	return string(out)
}

// The life of a key, with the commands of the real binary: orders are kept so that
// nobody can read them, and found by their number; the key is changed, and the old
// one is not needed any more.
func TestE2ESealedHistory(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "up-77001")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "hush-answer")
	}))
	defer up.Close()
	dir := t.TempDir()
	old, young := typed(t, 0, "store", "new-key", "-id", "old"), typed(t, 0, "store", "new-key", "-id", "new")
	file, data := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "data")
	start := func(keys string) *process {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "store.key"), []byte(keys), 0o600); err != nil {
			t.Fatal(err)
		}
		port := freePort(t)
		return runBinary(t, file, port, fmt.Sprintf(e2eConfig, port, 0, "20ms")+"store: {kind: sqlite, path: '"+data+"', key: 'file:"+filepath.Join(dir, "store.key")+"'}\n")
	}
	order := func(p *process) string {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), "POST", up.URL+"/orders?token=hush-token", strings.NewReader(`{"order_sn":"260304-778899"}`))
		req.Header.Set("X-Idempotency-Key", "order-17")
		req.Header.Set("Authorization", "Bearer hush-bearer")
		req.Header.Set("X-Request-Id", "rpa-run-42")
		res, err := p.client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.Status + " " + string(body) + " " + res.Header.Get("Idempotency-Replayed")
	}
	stop := func(p *process) {
		t.Helper()
		p.cmd.Process.Signal(syscall.SIGTERM)
		if code := p.exit(); code != 0 {
			t.Errorf("exit code %d: %s", code, p.stderr)
		}
		if strings.Contains(p.stderr.String(), "hush") || strings.Contains(p.stderr.String(), strings.TrimSpace(old[4:])) {
			t.Errorf("the log tells a secret: %s", p.stderr)
		}
		for _, name := range []string{"retryproxy.db", "retryproxy.db-wal", "retryproxy.db.redo1", "retryproxy.db.redo2"} {
			if text, _ := os.ReadFile(filepath.Join(data, name)); bytes.Contains(text, []byte("hush")) {
				t.Errorf("%s holds what is secret", name)
			}
		}
	}

	p := start(old)
	if got := order(p); got != "201 Created hush-answer " {
		t.Errorf("the order = %q", got)
	}
	stop(p)

	p = start(young + old)
	for text, want := range map[string]string{"260304-778899": "Upstream request id up-77001.", "order-17": "client request id rpa-run-42", "up-77001": "Now: it is done"} {
		if told := typed(t, 0, "why", "-admin", p.admin, text); !strings.Contains(told, want) || strings.Contains(told, "hush") {
			t.Errorf("why %s = %s, want %q", text, told, want)
		}
	}
	if got := order(p); got != "201 Created hush-answer true" {
		t.Errorf("the order once more = %q", got)
	}
	for end := time.Now().Add(10 * time.Second); strings.Count(typed(t, 0, "calls", "-admin", p.admin, "-csv", "-since", "1h"), "\n") != 3; {
		if time.Now().After(end) {
			t.Fatal("the replay is not noted")
		}
	}
	stop(p)

	os.WriteFile(filepath.Join(dir, "store.key"), []byte(young), 0o600)
	if told := typed(t, 1, "serve", "-config", file); !strings.Contains(told, `sealed by the key "old", which store.key does not hold`) {
		t.Errorf("a start without the old key: %s", told)
	}
	os.WriteFile(filepath.Join(dir, "store.key"), []byte(young+old), 0o600)
	if told := typed(t, 0, "store", "reseal", "-config", file); !strings.HasPrefix(told, "1 requests and answers in ") {
		t.Errorf("reseal: %s", told)
	}
	p = start(young)
	if got := order(p); got != "201 Created hush-answer true" {
		t.Errorf("the order in the end = %q", got)
	}
	stop(p)
}
