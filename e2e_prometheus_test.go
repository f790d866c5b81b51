//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"retryproxy/demo"
)

// mayBeEmpty are expressions, by a part of them, that this run brings no data for.
var mayBeEmpty = map[string]string{
	"retryproxy_egress_moves_total":          "needs a pool of egress proxies of which one fails",
	"retryproxy_intercept_refused_total":     "needs a client that refuses our CA three times",
	"retryproxy_queries_total":               "needs a supplier with a preset that can be asked",
	"retryproxy_failovers_total":             "needs two suppliers with presets",
	`reason=~"store_.*"`:                     "needs a store that fails",
	"changes(process_start_time_seconds":     "needs a restart",
	"changes(retryproxy_config_last_reload_": "needs a reload",
}

// monitored is a proxy on which much goes wrong, and the Prometheus that looks at it.
type monitored struct {
	*process
	api      string // of Prometheus
	demo     string // the misbehaving upstream
	dead     string // one that is down
	platform string // one that a preset speaks of
}

const monitoredConfig = `
listen: {proxy: "127.0.0.1:0", admin: "127.0.0.1:%d"}
destinations: {deny: [denied.test], connect_ports: [%s]}
presets: {dir: %q}
retry_policies:
  - {name: platform, match: {task_type: platform}, preset: mine, max_retries: 0}
  - {name: blind, match: {task_type: blind}, forward_headers: []}
  - {name: patient, match: {task_type: patient}, base_delay: 30s, deadline: 60s, retry_after_cap: 1s, retry_after_over_cap: park}
  - {name: default, max_retries: 3, base_delay: 10ms, jitter: none, per_try_timeout: 2s, deadline: 20s}
retry_limits: {global: off, task_type: off, shop: {rate: 6/m, burst: 1}}
breakers: {host: {consecutive_failures: 4, failure_ratio: 1, min_calls: 1000, open: 5s}, shop: {identical_failures: 100}}
alerts: [{on: dead_letters, webhook: {url: %q}}]
`

const monitoredPreset = `
preset: mine
version: "1"
operation: [query:op]
answer: {code: [$.code], success: [{at: $.code, is: ["0"]}]}
rules: [{name: risk, code: [20], is: risk_control}]
`

// monitor starts all of it.
func monitor(t *testing.T) *monitored {
	t.Helper()
	prometheus := ofPrometheus(t, "prometheus")
	up, err := demo.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { up.Close() })
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"code": %s}`, r.URL.Query().Get("code"))
	}))
	t.Cleanup(platform.Close)
	dead, _ := failing(t, math.MaxInt64)
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(hook.Close)

	dir, port := t.TempDir(), freePort(t)
	presets := filepath.Join(dir, "presets")
	if err := os.Mkdir(presets, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(presets, "mine.yaml"), monitoredPreset)
	_, connect, _ := strings.Cut(up.Addr(), ":")
	config := fmt.Sprintf(monitoredConfig, port, connect, presets, hook.URL)
	p := runBinary(t, filepath.Join(dir, "c.yaml"), port, config, "-data", filepath.Join(dir, "data"))
	return &monitored{process: p, api: scraping(t, prometheus, p.admin), demo: "http://" + up.Addr(), dead: dead.URL, platform: platform.URL}
}

// scraping starts a Prometheus on the shipped files, but for the address to scrape and
// how often, and gives its address.
func scraping(t *testing.T, path, target string) string {
	t.Helper()
	dir, addr := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	write(t, filepath.Join(dir, "rules.yaml"), readShipped(t, rulesFile))
	write(t, filepath.Join(dir, "prometheus.yaml"),
		strings.NewReplacer("127.0.0.1:9090\"]", target+"\"]", "15s", "1s").Replace(readShipped(t, "deploy/prometheus/prometheus.yaml")))
	var log lockedBuffer
	cmd := exec.Command(path, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus: %s", &log)
		}
	})
	return addr
}

// send makes one call; what comes of it is seen in the metrics.
func (m *monitored) send(ctx context.Context, method, target string, header ...string) {
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		m.t.Error(err)
		return
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	if res, err := m.client().Do(req); err == nil {
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

// play is one round of what bots do and upstreams do to them. Round n has keys of its own.
func (m *monitored) play(ctx context.Context, n int) {
	key := func(name string) string { return fmt.Sprintf("X-Idempotency-Key: %s-%d", name, n) }
	for range 3 {
		m.send(ctx, "GET", m.demo+"/ok")
	}
	m.send(ctx, "GET", m.demo+"/fail/503?times=2")
	m.send(ctx, "GET", m.demo+"/retry-after/1")
	m.send(ctx, "GET", m.demo+"/suspect", "X-Retry-Count: many")
	m.send(ctx, "GET", "http://denied.test/")
	for range 2 {
		m.send(ctx, "POST", m.demo+"/order?lose=1", key("order"))
	}
	for range 6 {
		m.send(ctx, "POST", m.demo+"/reset-after") // a dead letter
		m.send(ctx, "GET", m.demo+"/ok")           // so that its breaker stays closed
	}
	m.send(ctx, "POST", m.demo+"/reset-after", key("doubt"), "X-Task-Type: blind")
	m.send(ctx, "POST", fmt.Sprintf("%s/retry-after/7200?times=9&id=%d", m.demo, n), key("parked"), "X-Task-Type: patient")
	m.send(ctx, "POST", m.platform+"/?op=order&code=77", "X-Task-Type: platform", "X-Shop-Id: s1")
	m.send(ctx, "POST", m.platform+"/?op=order&code=20", "X-Task-Type: platform", fmt.Sprintf("X-Shop-Id: risky-%d", n))
	for i := range 4 {
		m.send(ctx, "GET", fmt.Sprintf("%s/fail/503?id=shop-%d-%d", m.demo, n, i), "X-Shop-Id: greedy", "X-Request-Timeout: 1")
	}
	gone, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	m.send(gone, "GET", m.demo+"/slow?ms=1000")
	m.tunnel()
	m.send(ctx, "GET", m.dead, "X-Request-Timeout: 1")
	for range 3 { // its breaker is open now
		m.send(ctx, "GET", m.dead, "X-Request-Timeout: 300ms")
	}
}

// tunnel opens one that says nothing of HTTP.
func (m *monitored) tunnel() {
	c, err := net.Dial("tcp", m.proxy)
	if err != nil {
		m.t.Error(err)
		return
	}
	defer c.Close()
	host := strings.TrimPrefix(m.demo, "http://")
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", host, host)
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 200 {
		m.t.Errorf("CONNECT = %v, %v, want 200", res, err)
		return
	}
	c.Write([]byte("\x16\x03\x01"))
}

// ask gives the data of one route of Prometheus's API.
func (m *monitored) ask(route string, into any) error {
	res, err := http.Get("http://" + m.api + "/api/v1/" + route)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", route, answer.Error)
	}
	return nil
}

// numbers are the values of an expression now, without those that are none.
func (m *monitored) numbers(expr string) (values []float64, err error) {
	var data struct {
		ResultType string
		Result     json.RawMessage
	}
	if err := m.ask("query?query="+url.QueryEscape(expr), &data); err != nil {
		return nil, err
	}
	var series []struct{ Value [2]any }
	if err := json.Unmarshal(data.Result, &series); err != nil {
		return nil, fmt.Errorf("%s is a %s: %w", expr, data.ResultType, err)
	}
	for _, s := range series {
		text, _ := s.Value[1].(string)
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values, nil
}

// until asks again and again, for a minute at most, until there is no fault.
func until(t *testing.T, faults func() []string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		found := faults()
		if len(found) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal(strings.Join(found, "\n"))
		}
		<-time.After(300 * time.Millisecond)
	}
}

// onBoard is an expression as Grafana would send it.
var onBoard = strings.NewReplacer("$__rate_interval", "1m", "$job", "retryproxy", "$instance", ".*")

// empty are the expressions of the board that have no data, and should, and excuses that
// nothing needs.
func (m *monitored) empty(b *board) (faults []string) {
	used := make(map[string]bool)
	for title, exprs := range b.exprs() {
		for _, expr := range exprs {
			if excuse := excuseOf(expr); excuse != "" {
				used[excuse] = true
				continue
			}
			if values, err := m.numbers(onBoard.Replace(expr)); err != nil || len(values) == 0 {
				faults = append(faults, fmt.Sprintf("%s: no data, %v: %s", title, err, expr))
			}
		}
	}
	for excuse := range mayBeEmpty {
		if !used[excuse] {
			faults = append(faults, "nothing on the board has "+excuse)
		}
	}
	return faults
}

func excuseOf(expr string) string {
	for part := range mayBeEmpty {
		if strings.Contains(expr, part) {
			return part
		}
	}
	return ""
}

// ill are the rules that do not evaluate.
func (m *monitored) ill() (faults []string) {
	var loaded struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := m.ask("rules", &loaded); err != nil {
		return []string{err.Error()}
	}
	known := shippedRules(m.t)
	for _, g := range loaded.Groups {
		for _, r := range g.Rules {
			delete(known, r.Name)
			if r.Health != "ok" {
				faults = append(faults, r.Name+" is "+r.Health+" "+r.LastError)
			}
		}
	}
	for name := range known {
		faults = append(faults, name+" is not loaded")
	}
	return faults
}

// TestE2EBoardAndRules: a real Prometheus scrapes the real binary while an upstream
// misbehaves; then every panel has data, and every rule evaluates.
func TestE2EBoardAndRules(t *testing.T) {
	t.Parallel()
	m, b := monitor(t), shippedBoard(t)
	ctx, cancel := context.WithCancel(t.Context())
	m.play(ctx, 1)
	until(t, func() []string { // what appears with a number was not seen to rise
		if values, err := m.numbers("retryproxy_client_gone_seconds_count"); err != nil || len(values) == 0 {
			return []string{fmt.Sprintf("the first round was not scraped: %v", err)}
		}
		return nil
	})
	m.play(ctx, 2)
	var waiting []func()
	defer func() {
		cancel()
		for _, end := range waiting {
			end()
		}
	}()
	for _, target := range []string{m.dead, m.demo + "/retry-after/1?times=99"} { // for a probe, and for a token
		done := make(chan struct{})
		waiting = append(waiting, func() { <-done })
		go func() {
			defer close(done)
			m.send(ctx, "GET", target, "X-Shop-Id: waiter")
		}()
	}
	until(t, func() []string { return append(m.empty(&b), m.ill()...) })

	for alert, fires := range map[string]bool{"RetryproxyDeadLetters": true, "RetryproxyUnknownCodes": true, "RetryproxyStoreFull": false, "RetryproxyRestarts": false} {
		values, err := m.numbers(fmt.Sprintf(`ALERTS{alertname=%q, alertstate="firing"}`, alert))
		if err != nil || len(values) > 0 != fires {
			t.Errorf("%s fires: %t, %v, want %t", alert, len(values) > 0, err, fires)
		}
	}
}
