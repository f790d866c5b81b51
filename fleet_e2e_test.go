//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"retryproxy/internal/redistest"
)

// fleetConfig is that of replicas which share a Redis.
const fleetConfig = `
listen: {proxy: "127.0.0.1:0", admin: ""}
store: {kind: redis, url: "%s"}
breakers: {host: {consecutive_failures: 10, open: 20ms, open_max: 50ms}}
retry_limits: %s
retry_policies:
  - {name: blind, match: {host: "%s"}, forward_headers: []}
  - {name: default, max_retries: 6, base_delay: 10ms, max_delay: 100ms, connect_timeout: 1s, per_try_timeout: 3s, deadline: 60s}
`

const noLimits = "{global: off, task_type: off, shop: off}"

// replica starts one more process of a fleet.
func replica(t *testing.T, redis *redistest.Server) *process {
	t.Helper()
	return replicaWith(t, redis, noLimits, "blind.test")
}

func replicaWith(t *testing.T, redis *redistest.Server, limits, blind string) *process {
	t.Helper()
	return runBinary(t, filepath.Join(t.TempDir(), "c.yaml"), 0, fmt.Sprintf(fleetConfig, redis.URL(), limits, blind))
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
	t.Parallel()
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
	t.Parallel()
	redis, port := redistest.Start(t, "appendonly", "yes", "appendfsync", "always"), freePort(t)
	config := strings.Replace(fmt.Sprintf(fleetConfig, redis.URL(), noLimits, "blind.test"), `admin: ""`, fmt.Sprintf(`admin: "127.0.0.1:%d"`, port), 1)
	a := runBinary(t, filepath.Join(t.TempDir(), "c.yaml"), port, config)
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
		if text := a.metrics(); !strings.Contains(text, "\nretryproxy_store_up 0\n") {
			t.Errorf("%s: the metrics do not tell", gone.name)
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

// metrics is what a scrape gets.
func (p *process) metrics() string {
	p.t.Helper()
	res, err := http.Get("http://" + p.admin + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
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

// takeover is how long it may take until the calls of a dead replica have ended: its
// lease, and what they still wait for.
const takeover = 40 * time.Second

// TestCase_ID_10_E2E_FleetLosesReplicas kills replicas under a steady load of keyed orders, while
// the others go on: none is lost, none is made twice, none hangs. RETRYPROXY_FLEET_KILLS
// and RETRYPROXY_SEED choose another run.
func TestCase_ID_10_E2E_FleetLosesReplicas(t *testing.T) {
	t.Parallel()
	kills, seed := setting(t, "RETRYPROXY_FLEET_KILLS", 2), setting(t, "RETRYPROXY_SEED", time.Now().UnixNano())
	t.Logf("RETRYPROXY_FLEET_KILLS=%d RETRYPROXY_SEED=%d", kills, seed)
	redis := redistest.Start(t, "appendonly", "yes")
	v := &victim{t: t, log: &lockedBuffer{}}
	honours, blind := newSeller(v, seed, true), newSeller(v, seed, false)
	f := &fleet{t: t, random: rand.New(rand.NewPCG(uint64(seed), 7)), start: func() *process { return replicaWith(t, redis, noLimits, blind.host) }}
	f.all = []*process{f.start(), f.start()}
	v.pick = f.pick
	load := newBuyers(v, seed, honours, blind)
	for range kills {
		load.calm(100)
		f.kill(v)
		load.calm(100) // the other one goes on
		f.replace()
	}
	load.calm(100)
	load.finish()
	f.settled(redis)
	load.check()
	if kills >= 5 && honours.cut.Load()+blind.cut.Load() == 0 {
		t.Error("no kill came while an attempt was in flight")
	}
	t.Logf("%d orders: %s", len(load.orders), load.tally())
}

// TestE2EFleetLosesRedis kills Redis again and again under the same load: none is
// lost, none is made twice, none hangs.
func TestE2EFleetLosesRedis(t *testing.T) {
	t.Parallel()
	kills, seed := setting(t, "RETRYPROXY_FLEET_KILLS", 2), setting(t, "RETRYPROXY_SEED", time.Now().UnixNano())
	t.Logf("RETRYPROXY_FLEET_KILLS=%d RETRYPROXY_SEED=%d", kills, seed)
	redis := redistest.Start(t, "appendonly", "yes")
	v := &victim{t: t, log: &lockedBuffer{}}
	honours, blind := newSeller(v, seed, true), newSeller(v, seed, false)
	f := &fleet{t: t, random: rand.New(rand.NewPCG(uint64(seed), 7)), start: func() *process { return replicaWith(t, redis, noLimits, blind.host) }}
	f.all = []*process{f.start(), f.start()}
	v.pick = f.pick
	load := newBuyers(v, seed, honours, blind)
	random := rand.New(rand.NewPCG(uint64(seed), 8))
	for range kills {
		load.calm(100)
		redis.Kill()
		<-time.After(time.Duration(random.Int64N(int64(2 * time.Second))))
		redis.Restart()
	}
	load.calm(100)
	load.finish()
	f.settled(redis)
	load.check()
	t.Logf("%d orders: %s", len(load.orders), load.tally())
}

// fleet are processes of which some die.
type fleet struct {
	t     *testing.T
	start func() *process

	mu     sync.Mutex
	random *rand.Rand
	all    []*process
}

// pick gives one of those that are there.
func (f *fleet) pick() *url.URL {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &url.URL{Scheme: "http", Host: f.all[f.random.IntN(len(f.all))].proxy}
}

// kill ends one with SIGKILL, at a moment when something is most likely to be lost or
// at any.
func (f *fleet) kill(v *victim) {
	f.mu.Lock()
	i, m := f.random.IntN(len(f.all)), moment(f.random.IntN(2*int(moments)))
	p := f.all[i]
	f.mu.Unlock()
	if m < moments {
		v.doomed[m].Store(p.cmd.Process)
		defer v.doomed[m].Store(nil)
		select {
		case <-time.After(crashPatience):
		case err := <-p.done:
			p.done <- err
		}
	}
	_ = p.cmd.Process.Kill() // the moment may have come
	<-p.done
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all[:i:i], f.all[i+1:]...)
}

// replace starts another one.
func (f *fleet) replace() {
	p := f.start()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, p)
}

// settled waits until nothing is running or waiting any more.
func (f *fleet) settled(redis *redistest.Server) {
	f.t.Helper()
	awaitRecords(f.t, redis, 0, "running", "waiting", "parked")
}

// awaitRecords waits until there are so many records in these states.
func awaitRecords(t *testing.T, redis *redistest.Server, want int64, states ...string) {
	t.Helper()
	options, err := goredis.ParseURL(redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	db := goredis.NewClient(options)
	defer db.Close()
	for end := time.Now().Add(takeover); ; {
		n := int64(0)
		for _, state := range states {
			n += db.ZCard(t.Context(), "rp:{retryproxy}:state:"+state).Val()
		}
		if n == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v %d records are %v, want %d", takeover, n, states, want)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// ordersOfABusyShop has a replica order once, at a shop that asks the first time for
// some seconds, and returns when it was asked.
func ordersOfABusyShop(t *testing.T, a *process, seconds string) (url string, seen *atomic.Int64, got <-chan answered) {
	t.Helper()
	seen = new(atomic.Int64)
	entered := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if seen.Add(1) == 1 {
			w.Header().Set("Retry-After", seconds)
			w.WriteHeader(http.StatusServiceUnavailable)
			close(entered)
			return
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "receipt")
	}))
	t.Cleanup(up.Close)
	first := make(chan answered, 1)
	go func() {
		answer, _ := a.order(up.URL, "k", "x")
		first <- answer
	}()
	<-entered
	return up.URL, seen, first
}

// One that ends in order hands its calls over at once: nobody waits for a lease.
func TestE2EFleetHandsOver(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a, b := replica(t, redis), replica(t, redis)
	up, seen, got := ordersOfABusyShop(t, a, "2")
	began := time.Now()
	a.cmd.Process.Signal(syscall.SIGTERM)
	if first := <-got; first.header.Get("X-Retry-Reason") != "parked" {
		t.Errorf("the client of the one that ends got %d %s %s, want parked", first.status, first.header.Get("X-Retry-Reason"), first.body)
	}
	if code := a.exit(); code != 0 {
		t.Errorf("exit code = %d; log: %s", code, a.stderr)
	}
	if last := b.insist(up, "k", takeover); last.status != 201 || last.body != "receipt" || seen.Load() != 2 {
		t.Errorf("the other one answers %d %q after %d requests, want 201 and 2", last.status, last.body, seen.Load())
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("it took %v", d)
	}
}

// Two replicas have one set of retry tokens.
func TestE2EFleetSharesLimits(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	limits := "{global: {rate: 1/h, burst: 5, share: 0}, task_type: off, shop: off}"
	a, b := replicaWith(t, redis, limits, "blind.test"), replicaWith(t, redis, limits, "blind.test")
	up, seen := failing(t, 1<<40)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			p := map[bool]*process{true: a, false: b}[i%2 == 0]
			req, _ := http.NewRequestWithContext(t.Context(), "GET", up.URL, nil)
			res, err := p.client().Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if reason := res.Header.Get("X-Retry-Reason"); reason != "retry_limited" && reason != "attempts_exhausted" {
				t.Errorf("a call ends with %q", reason)
			}
		})
	}
	group.Wait()
	if n := seen.Load(); n != 8+5 {
		t.Errorf("8 calls through two replicas made %d requests, want 8 and 5 retries", n)
	}
}

// A replica that was frozen for longer than its lease sends nothing of what another
// one took over, and changes nothing of it.
func TestE2EFrozenReplicaSendsNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a, b := replica(t, redis), replica(t, redis)
	up, seen, got := ordersOfABusyShop(t, a, "3")
	awaitRecords(t, redis, 1, "waiting")
	a.cmd.Process.Signal(syscall.SIGSTOP)
	if last := b.insist(up, "k", takeover); last.status != 201 || last.body != "receipt" || seen.Load() != 2 {
		t.Errorf("the other one answers %d %q after %d requests, want 201 and 2; log: %s", last.status, last.body, seen.Load(), b.stderr)
	}
	a.cmd.Process.Signal(syscall.SIGCONT)
	if first := <-got; first.status == 201 && first.body != "receipt" || seen.Load() != 2 {
		t.Errorf("the frozen one answers %d %q, after %d requests, want no further request", first.status, first.body, seen.Load())
	}
	if again, err := a.order(up, "k", "x"); err != nil || again.status != 201 || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("and then %d %q, %v, want the replay", again.status, again.body, err)
	}
}
