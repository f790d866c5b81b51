//go:build unix

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// shopkeeper is an upstream that is down until it is told otherwise, and counts what
// it was asked to do.
type shopkeeper struct {
	mu     sync.Mutex
	up     bool
	orders map[string]int // by key
	hold   chan struct{}  // closed: orders are answered; nil: at once
}

func (s *shopkeeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	up, hold := s.up, s.hold
	if up {
		s.orders[r.Header.Get("X-Idempotency-Key")]++
	}
	s.mu.Unlock()
	switch {
	case r.URL.Path == "/lost": // the order may be there, its answer is not
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	case !up:
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		if hold != nil {
			<-hold
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "order of "+r.Header.Get("X-Idempotency-Key"))
	}
}

func (s *shopkeeper) open(hold chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up, s.hold = true, hold
}

func (s *shopkeeper) made(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders[key]
}

// What a person does at night, with the commands of the real binary.
func TestE2EDeadLetters(t *testing.T) {
	shop := &shopkeeper{orders: map[string]int{}}
	up := httptest.NewServer(shop)
	defer up.Close()
	p := startBinary(t, 0, "20ms", "-data", t.TempDir())
	order := func(key, path string) (int, string, http.Header) {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), "POST", up.URL+path+"?token=secret", strings.NewReader("two books"))
		if key != "" {
			req.Header.Set("X-Idempotency-Key", key)
		}
		req.Header.Set("X-Shop-Id", "17")
		res, err := p.client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body), res.Header
	}
	for _, key := range []string{"order-1", "order-2", "order-3"} {
		if code, _, _ := order(key, "/orders"); code != 503 {
			t.Fatalf("%s = %d, want 503", key, code)
		}
	}
	if code, _, _ := order("", "/lost"); code != 502 {
		t.Fatalf("the lost order = %d, want 502", code)
	}

	listed := p.letters(0, "ls")
	if !strings.Contains(listed, "4 letters: 1 to check, 3 to requeue.") || strings.Contains(listed, "secret") {
		t.Errorf("ls = %s", listed)
	}
	lines := strings.Split(listed, "\n")
	lost, first := strings.Fields(lines[1])[0], strings.Fields(lines[4])[0]
	if told := p.letters(0, "show", first); !strings.Contains(told, "brought status 503") || !strings.Contains(told, "deadletters requeue -admin "+p.admin+" "+first) || strings.Contains(told, "secret") {
		t.Errorf("show = %s", told)
	}
	if told := p.letters(0, "show", "-reveal", first); !strings.Contains(told, "/orders?token=secret") || !strings.Contains(told, "two books") || !strings.Contains(told, "key order-1") {
		t.Errorf("show -reveal = %s", told)
	}
	p.logged("an operator is shown what may be secret of dead letters")
	if sheet := p.letters(0, "export", "-format", "csv"); strings.Count(sheet, "\n") != 5 || strings.Contains(sheet, "secret") {
		t.Errorf("export = %s", sheet)
	}

	if told := p.letters(1, "requeue", "-shop", "17", "-rate", "50/s", "-by", "ann"); !strings.Contains(told, "stopped: 1 requeued, 0 done, 1 failed") || !strings.Contains(told, "canary 1 of 1 did not end done") {
		t.Errorf("requeue while the shop is down = %s", told)
	}

	hold := make(chan struct{})
	shop.open(hold)
	requeued := make(chan string)
	go func() { requeued <- p.letters(0, "requeue", first) }()
	for shop.made("order-1") == 0 {
		time.Sleep(time.Millisecond)
	}
	joined := make(chan string)
	go func() {
		code, body, header := order("order-1", "/orders")
		joined <- strings.Join([]string{http.StatusText(code), body, header.Get("Idempotency-Replayed")}, ", ")
	}()
	time.Sleep(50 * time.Millisecond) // the bot waits; were it early or late, it would be answered all the same
	close(hold)
	if got := <-joined; got != "Created, order of order-1, true" {
		t.Errorf("the bot's repeat got %s", got)
	}
	if told := <-requeued; !strings.Contains(told, "done: the upstream answered 201, the letter is closed") || shop.made("order-1") != 1 {
		t.Errorf("requeue = %s; order-1 was made %d times", told, shop.made("order-1"))
	}
	if told := p.letters(0, "requeue", "-all", "-rate", "50/s"); !strings.Contains(told, "ended: 2 requeued, 2 done, 0 failed, 1 refused") || shop.made("order-2") != 1 || shop.made("order-3") != 1 {
		t.Errorf("requeue -all = %s", told)
	}

	if told := p.letters(1, "requeue", lost); !strings.Contains(told, "may have been executed") {
		t.Errorf("requeue of the lost one = %s", told)
	}
	p.letters(2, "resolve", lost, "--not-executed")
	if told := p.letters(0, "resolve", lost, "--not-executed", "--by", "ann", "--note", "looked at the shop"); !strings.Contains(told, "resolved as not executed") {
		t.Errorf("resolve = %s", told)
	}
	if told := p.letters(0, "ls"); told != "no such dead letters\n" {
		t.Errorf("ls in the end = %s", told)
	}
}

// letters types a command about dead letters and wants its exit code.
func (p *process) letters(code int, args ...string) string {
	p.t.Helper()
	path, _ := binary()
	cmd := exec.Command(path, append([]string{"deadletters", args[0], "-admin", p.admin}, args[1:]...)...)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("deadletters %s = %d, want %d: %s", strings.Join(args, " "), got, code, out)
	}
	return string(out)
}
