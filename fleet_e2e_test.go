//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"retryproxy/internal/redistest"
)

// fleetConfig is that of replicas which share a Redis.
const fleetConfig = `
listen: {proxy: "127.0.0.1:0", admin: ""}
store: {kind: redis, url: "%s"}
retry_limits: {global: off, task_type: off, shop: off}
breakers: {host: {consecutive_failures: 10, open: 20ms, open_max: 50ms}}
retry_policies: [{name: default, max_retries: 6, base_delay: 10ms, max_delay: 100ms, connect_timeout: 1s, per_try_timeout: 3s, deadline: 60s}]
`

// replica starts one more process of a fleet.
func replica(t *testing.T, redis *redistest.Server) *process {
	t.Helper()
	p := &process{t: t, file: filepath.Join(t.TempDir(), "c.yaml")}
	if err := os.WriteFile(p.file, fmt.Appendf(nil, fleetConfig, redis.URL()), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start()
	return p
}

// order posts with a key; without one it is keyless.
func (p *process) order(url, key, body string) (answered, error) {
	req, err := http.NewRequestWithContext(p.t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	if key != "" {
		req.Header.Set("X-Idempotency-Key", key)
	}
	res, err := p.client().Do(req)
	if err != nil {
		return answered{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answered{res.StatusCode, res.Header, string(text)}, err
}

// receipts answers every request with its number.
func receipts(t *testing.T, before func(n int64)) (string, *atomic.Int64) {
	t.Helper()
	var seen atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		n := seen.Add(1)
		if before != nil {
			before(n)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "receipt %d", n)
	}))
	t.Cleanup(s.Close)
	return s.URL, &seen
}

// What one replica did, another one answers; what it is doing, another one waits for.
func TestE2EFleetIsOne(t *testing.T) {
	redis := redistest.Start(t)
	a, b := replica(t, redis), replica(t, redis)
	entered, leave := make(chan struct{}), make(chan struct{})
	up, seen := receipts(t, func(n int64) {
		if n == 2 {
			close(entered)
			<-leave
		}
	})
	first, err1 := a.order(up, "k1", "one")
	again, err2 := b.order(up, "k1", "one")
	if err1 != nil || err2 != nil || first.status != 201 || again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" {
		t.Fatalf("one replica answers %v %v, another one %v %v, want a replay", first, err1, again, err2)
	}
	if other, err := b.order(up, "k1", "two"); err != nil || other.status != 422 {
		t.Errorf("the key for another order = %v, %v, want 422", other, err)
	}

	var answers [2]answered
	var group sync.WaitGroup
	group.Go(func() { answers[0], _ = a.order(up, "k2", "two") })
	<-entered
	group.Go(func() { answers[1], _ = b.order(up, "k2", "two") })
	busy := time.AfterFunc(100*time.Millisecond, func() { close(leave) }) // the other one has asked by then, or will be told of the end
	defer busy.Stop()
	group.Wait()
	if answers[0].status != 201 || answers[1].status != 201 || answers[0].body != answers[1].body || seen.Load() != 2 {
		t.Errorf("two replicas with one key = %v and %v after %d requests, want the same answer and 2", answers[0], answers[1], seen.Load())
	}
}

// While Redis is away keyed calls are refused before anything is sent, and quickly;
// those without a key pass. It goes on by itself.
func TestE2ERedisGoesAndComesBack(t *testing.T) {
	redis := redistest.Start(t, "appendonly", "yes", "appendfsync", "always")
	a := replica(t, redis)
	up, seen := receipts(t, nil)
	if got, err := a.order(up, "before", "x"); err != nil || got.status != 201 {
		t.Fatalf("before: %v, %v", got, err)
	}
	for round, gone := range []struct {
		name       string
		away, back func()
	}{
		{"it is dead", redis.Kill, redis.Restart},
		{"it hangs", func() { redis.Process().Signal(syscall.SIGSTOP) }, func() { redis.Process().Signal(syscall.SIGCONT) }},
	} {
		gone.away()
		sent := seen.Load()
		for i := range 3 {
			began := time.Now()
			got, err := a.order(up, fmt.Sprintf("away-%d-%d", round, i), "x")
			if err != nil || got.status != 503 || got.header.Get("X-Retry-Reason") != "store_unavailable" || got.header.Get("X-Retry-Executed") == "maybe" {
				t.Errorf("%s: a keyed call got %d %s %s, %v, want 503 store_unavailable", gone.name, got.status, got.header.Get("X-Retry-Reason"), got.body, err)
			}
			if d := time.Since(began); d > 8*time.Second {
				t.Errorf("%s: a keyed call was refused after %v", gone.name, d)
			}
		}
		if n := seen.Load() - sent; n != 0 {
			t.Errorf("%s: %d requests were sent", gone.name, n)
		}
		if got, err := a.order(up, "", "x"); err != nil || got.status != 201 {
			t.Errorf("%s: a call without a key got %d, %v, want 201", gone.name, got.status, err)
		}
		gone.back()
		if got := a.insist(up, fmt.Sprintf("after-%d", round), 20*time.Second); got.status != 201 {
			t.Errorf("%s, then back: a keyed call got %d %s; log: %s", gone.name, got.status, got.body, a.stderr)
		}
		for i := range 3 { // none of those that were refused is stuck
			if got := a.insist(up, fmt.Sprintf("away-%d-%d", round, i), 20*time.Second); got.status != 201 {
				t.Errorf("%s: a call that was refused got %d %s %s when it was repeated", gone.name, got.status, got.header.Get("X-Retry-Reason"), got.body)
			}
		}
		if got, err := a.order(up, "before", "x"); err != nil || got.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s: what was done before = %v, %v, want a replay", gone.name, got, err)
		}
	}
}

// insist repeats an order until its answer is final, as long as patience lasts.
func (p *process) insist(url, key string, patience time.Duration) (got answered) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		var err error
		if got, err = p.order(url, key, "x"); err == nil && isFinal(got) {
			return got
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return got
		}
	}
}
