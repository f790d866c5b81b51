package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/config"
	"retryproxy/simulate"
)

// simulatedOutage is an upstream that answers after 103 ms, and fails for ten seconds;
// all times are odd, so that hardly two things happen at once.
const simulatedOutage = `
duration: 30s
platform: {host: "u1.test:80", service: 103ms}
phases: [{from: 5s, to: 15s, outage: true, failures: [FAILURE]}]
bots: [{name: bots, bots: 1, every: 53ms, from: 7ms, method: GET, shop: a, task_type: order, patience: 1m}]
`

// course is what an upstream got over time.
type course struct {
	Good    int           // calls
	Sent    map[int]int   // requests by the second
	Retries map[int64]int // by 100 ms
}

// The simulation does what the whole product does, to the tenth of a second, with
// the same configuration and the same upstream.
func TestSimulationDoesAsTheProxy(t *testing.T) {
	const base, slots = "base_delay: 100ms", "max_in_flight: 100"
	const odd = "base_delay: 117ms"
	busy := failure{"{share: 1, status: 503}", answer(503, "")}
	for name, tt := range map[string]struct {
		failure
		patch []string
	}{
		"breaker":         {busy, []string{base, odd}},
		"no breaker":      {busy, []string{base, odd, "consecutive_failures: 5", "consecutive_failures: 100000, min_calls: 100000"}},
		"tokens":          {busy, []string{base, "base_delay: 717ms", "global: off", "global: {rate: 2/s, burst: 4}"}},
		"few slots":       {busy, []string{base, odd, slots, "max_in_flight: 1, max_wait: 10s"}},
		"long deadline":   {busy, []string{base, "base_delay: 311ms", slots, "max_in_flight: 3", "max_retries: 3", "max_retries: 6", "deadline: 6s", "deadline: 25s"}},
		"silence":         {failure{"{share: 1, fault: hang}", silent}, []string{base, odd}},
		"pause of a shop": {failure{"{share: 1, status: 429, retry_after: 2s}", answer(429, "", "Retry-After: 2")}, []string{base, odd}},
		"permanent":       {failure{"{share: 1, status: 404}", answer(404, "")}, []string{base, odd}},
	} {
		t.Run(name, func(t *testing.T) {
			conf := strings.NewReplacer(append(tt.patch, "connect_timeout: 1s}", "connect_timeout: 1s, jitter: none, jitter_ratio: 0}")...).Replace(caseConfig)
			want, got := courseOfProduct(t, conf, tt.step), courseOfSimulation(t, conf, tt.script)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the courses differ (-product +simulation):\n%s", diff)
			}
		})
	}
}

// failure is one way to fail, for the simulation and for the product.
type failure struct {
	script string
	step   step
}

// courseOfProduct runs the outage in a bubble.
func courseOfProduct(t *testing.T, conf string, fail step) course {
	c := course{Sent: map[int]int{}, Retries: map[int64]int{}}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, conf)
		began := time.Now()
		u := r.upstream("u1.test:80", after(103*time.Millisecond, func(s *scripted, conn net.Conn, req *request) bool {
			if at := req.At.Sub(began); at >= 5*time.Second && at < 15*time.Second {
				return fail(s, conn, req)
			}
			return answer(200, "")(s, conn, req)
		}))
		var calls sync.WaitGroup
		var good atomic.Int64
		for at := 7 * time.Millisecond; at < 30*time.Second; at += 53 * time.Millisecond {
			time.Sleep(time.Until(began.Add(at)))
			calls.Go(func() {
				if r.get("http://u1.test/", "X-Shop-Id: a", "X-Task-Type: order").Status == 200 {
					good.Add(1)
				}
			})
		}
		calls.Wait()
		for _, req := range u.seen() {
			at := req.At.Sub(began)
			c.Sent[int(at/time.Second)]++
			if req.Header.Get("X-Retry-Count") != "" {
				c.Retries[(at/(100*time.Millisecond)*100).Nanoseconds()]++
			}
		}
		c.Good = int(good.Load())
		r.close()
	})
	return c
}

// courseOfSimulation runs it on virtual time.
func courseOfSimulation(t *testing.T, conf, script string) course {
	file := filepath.Join(t.TempDir(), "conf.yaml")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := simulate.Parse("outage.yaml", []byte(strings.Replace(simulatedOutage, "FAILURE", script, 1)))
	if err != nil {
		t.Fatal(err)
	}
	s.Against([]string{file})
	report, err := simulate.Simulate(t.Context(), s, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	run := report.Runs[len(report.Runs)-1]
	c := course{Good: run.Total.Good, Sent: map[int]int{}, Retries: map[int64]int{}}
	for n := range run.Seconds {
		if sent := run.Seconds[n].Upstream; sent > 0 {
			c.Sent[n] = sent
		}
	}
	for _, b := range run.Wakeups.Bins {
		c.Retries[b.AtMS] = b.Retries
	}
	return c
}
