package telemetry

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"retryproxy/attempt"
	"retryproxy/breaker"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/limiter"
)

func newMetrics() *Metrics {
	return New(Config{Hosts: []string{"u1.test:80"}, HostLimit: 2, Version: "v1"})
}

// exposition is what a scrape gets.
func exposition(t testing.TB, m *Metrics) string {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

// assertMetrics checks that a scrape has each of the lines.
func assertMetrics(t testing.TB, m *Metrics, want ...string) {
	t.Helper()
	text := "\n" + exposition(t, m)
	for _, line := range want {
		if !strings.Contains(text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			t.Errorf("no line %s, but\n%s", line, linesOf(text, name))
		}
	}
}

func linesOf(text, name string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// recovered is a call that needed two attempts.
func recovered() *attempt.Summary {
	return &attempt.Summary{
		ID: "c1", Mode: "forward", Policy: "default", Client: "127.0.0.1:5000", Method: "POST", Scheme: "http",
		Host: "u1.test:80", Path: "/x", State: "done", Result: "recovered", Reason: "ok", Status: 200,
		Executed: classify.ExecutedYes, Duration: 1500 * time.Millisecond, Overhead: 150 * time.Microsecond,
		Bytes: 2, Waits: []attempt.Wait{{Cause: "backoff", For: time.Second}},
		Started: time.Date(2026, 10, 21, 7, 28, 0, 0, time.UTC),
		Attempts: attempt.History{
			{
				N: 1, Host: "u1.test:80", Status: 503, Duration: 12 * time.Millisecond, Detail: "busy",
				Started: time.Date(2026, 10, 21, 7, 28, 0, 0, time.UTC),
				Verdict: classify.Verdict{Class: classify.Transient, Reason: "status_503", Basis: classify.BasisRefused},
			},
			{
				N: 2, Count: 1, Host: "u1.test:80", Status: 200, Duration: 9 * time.Millisecond, Delay: time.Second, Cause: "backoff",
				Started: time.Date(2026, 10, 21, 7, 28, 1, 0, time.UTC), Reused: true, UpstreamID: "r2",
				Verdict: classify.Verdict{Class: classify.Success, Reason: "status_200", Executed: classify.ExecutedYes},
			},
		},
	}
}

func TestCallAndAttempts(t *testing.T) {
	m := newMetrics()
	s := recovered()
	for i := range s.Attempts {
		m.Attempt(s.Policy, &s.Attempts[i])
	}
	m.Call(s)
	assertMetrics(t, m,
		`retryproxy_calls_total{mode="forward",policy="default",result="recovered"} 1`,
		`retryproxy_call_attempts_sum{policy="default",result="recovered"} 2`,
		`retryproxy_call_duration_seconds_sum{policy="default",result="recovered"} 1.5`,
		`retryproxy_call_duration_seconds_bucket{policy="default",result="recovered",le="300"} 1`,
		`retryproxy_attempts_total{class="transient",host="u1.test:80",policy="default",reason="status_503"} 1`,
		`retryproxy_attempts_total{class="success",host="u1.test:80",policy="default",reason="status_200"} 1`,
		`retryproxy_attempt_duration_seconds_sum{class="success",host="u1.test:80"} 0.009`,
		`retryproxy_retries_total{host="u1.test:80",policy="default"} 1`,
		`retryproxy_retry_wait_seconds_sum{cause="backoff"} 1`,
		`retryproxy_overhead_seconds_sum 0.00015`,
	)
	if text := exposition(t, m); strings.Contains(text, "retryproxy_stops_total") {
		t.Error("a success counts as a stop")
	}
}

func TestEarlierRunsAreNotCountedAgain(t *testing.T) {
	m := newMetrics()
	s := recovered()
	s.Previous = 1
	m.Call(s)
	assertMetrics(t, m, `retryproxy_call_attempts_sum{policy="default",result="recovered"} 1`)
	if text := exposition(t, m); strings.Contains(text, "retryproxy_retries_total") {
		t.Error("the first attempt of a run counts as a retry")
	}
}

func TestCounters(t *testing.T) {
	m := newMetrics()
	m.Call(&attempt.Summary{Mode: "forward", Policy: "default", Result: "rejected", Reason: "bad_request"})
	m.Denied("client_denied")
	m.RetryDenied("shop")
	m.Shed("breaker_open")
	m.Call(&attempt.Summary{Result: "cancelled", Left: 2500 * time.Millisecond})
	for i := range 40 {
		m.Call(&attempt.Summary{Result: "cancelled", Labels: attempt.Labels{TaskType: fmt.Sprint("t", i)}, Left: time.Second})
	}
	m.Ignored("retry_count")
	m.Idempotency("replay")
	m.DeadLetter("manual_review")
	m.Tunnel("u1.test:80")
	m.Suspect("u2.test:80")
	m.KeyOnlyRepeat("u1.test:80")
	m.Reload(true, time.Unix(1800000000, 5e8))
	m.Reload(false, time.Unix(1900000000, 0))
	assertMetrics(t, m,
		`retryproxy_stops_total{reason="bad_request"} 1`,
		`retryproxy_denied_total{reason="client_denied"} 1`,
		`retryproxy_retries_denied_total{dimension="shop"} 1`,
		`retryproxy_shed_total{reason="breaker_open"} 1`,
		`retryproxy_client_gone_seconds_sum{task_type="-"} 2.5`,
		`retryproxy_client_gone_seconds_sum{task_type="t31"} 1`,
		`retryproxy_client_gone_seconds_sum{task_type="other"} 8`,
		`retryproxy_ignored_values_total{field="retry_count"} 1`,
		`retryproxy_idempotency_total{result="replay"} 1`,
		`retryproxy_dead_letters_total{reason="manual_review"} 1`,
		`retryproxy_tunnels_total{host="u1.test:80"} 1`,
		`retryproxy_suspect_answers_total{host="u2.test:80"} 1`,
		`retryproxy_key_only_repeats_total{host="u1.test:80"} 1`,
		`retryproxy_config_last_reload_successful 0`,
		`retryproxy_config_last_reload_success_timestamp_seconds 1.8000000005e+09`,
	)
	if text := exposition(t, m); !strings.Contains(text, `retryproxy_build_info{goversion="go1.`) {
		t.Error("no build_info")
	}
}

func TestSources(t *testing.T) {
	m := newMetrics()
	m.Watch(Sources{
		Waiting: func() map[string]int { return map[string]int{"tokens": 3} },
		Short:   func() map[string]int { return map[string]int{"shop": 2} },
		Gates: func() []limiter.HostView {
			since := time.Unix(1800000000, 5e8)
			return []limiter.HostView{
				{
					Host: "u1.test:80", InFlight: 4, Limit: 64, Waiting: 5, Late: 3, Longest: 1500 * time.Millisecond,
					Breaker: breaker.Status{State: breaker.Open}, Outage: &limiter.Outage{Since: since},
				},
				{Host: "a.test:80", InFlight: 1, Limit: 10, Capacity: 9, Longest: time.Second, Outage: &limiter.Outage{Since: since}},
				{Host: "b.test:80", InFlight: 2, Limit: 20, Capacity: 20, Waiting: 1, Longest: time.Minute, Outage: &limiter.Outage{Since: since.Add(-time.Second)}},
			}
		},
		Breakers: func() []Breaker {
			return []Breaker{
				{"shop", "a.test:80", breaker.Open},
				{"shop", "b.test:80", breaker.Closed},
			}
		},
		Records: func() idempotency.Stats {
			return idempotency.Stats{Records: 7, Bytes: 900, EvictedEarly: 2, OldestParked: time.Unix(1800000000, 5e8), ByState: map[idempotency.State]int{idempotency.StateDead: 1, idempotency.StateInDoubt: 2}}
		},
	})
	assertMetrics(t, m,
		`retryproxy_waiting{cause="tokens"} 3`,
		`retryproxy_token_line{dimension="shop"} 2`,
		`retryproxy_line{host="u1.test:80",lane="fresh"} 2`,
		`retryproxy_line{host="u1.test:80",lane="backlog"} 3`,
		`retryproxy_line{host="other",lane="fresh"} 1`,
		`retryproxy_line_longest_seconds{host="u1.test:80"} 1.5`,
		`retryproxy_line_longest_seconds{host="other"} 60`,
		`retryproxy_limit{host="u1.test:80"} 64`,
		`retryproxy_limit{host="other"} 30`,
		`retryproxy_capacity{host="u1.test:80"} 0`,
		`retryproxy_capacity{host="other"} 29`,
		`retryproxy_outage{host="u1.test:80"} 1`,
		`retryproxy_outage_since_timestamp_seconds{host="u1.test:80"} 1.8000000005e+09`,
		`retryproxy_outage_since_timestamp_seconds{host="other"} 1.7999999995e+09`, // the first of them
		`retryproxy_in_flight{host="u1.test:80"} 4`,
		`retryproxy_in_flight{host="other"} 3`, // a scrape makes no new labels
		`retryproxy_breaker_state{host="u1.test:80",scope="host"} 2`,
		`retryproxy_breaker_state{host="other",scope="shop"} 2`,
		`retryproxy_records 7`,
		`retryproxy_records_bytes 900`,
		`retryproxy_records_evicted_total 2`,
		`retryproxy_records_by_state{state="in_doubt"} 2`,
		`retryproxy_records_by_state{state="parked"} 0`,
		`retryproxy_parked_oldest_timestamp_seconds 1.8000000005e+09`,
		`retryproxy_dead_letters_stored 3`,
	)
}

func TestSourcesLeftOut(t *testing.T) {
	m := newMetrics()
	m.Watch(Sources{})
	if text := exposition(t, m); strings.Contains(text, "retryproxy_records") {
		t.Error("records are shown without a source")
	}
}

func TestStoreUp(t *testing.T) {
	m := newMetrics()
	assertMetrics(t, m, `retryproxy_store_up 1`)
	m.StoreUp(false)
	assertMetrics(t, m, `retryproxy_store_up 0`)
	m.StoreUp(true)
	assertMetrics(t, m, `retryproxy_store_up 1`)
}

func TestNothingParkedHasNoDate(t *testing.T) {
	m := newMetrics()
	m.Watch(Sources{Records: func() idempotency.Stats { return idempotency.Stats{} }})
	if text := exposition(t, m); strings.Contains(text, "retryproxy_parked_oldest") {
		t.Error("a date is shown though nothing is parked")
	}
}

func TestHostLabelIsBounded(t *testing.T) {
	m := newMetrics()
	for _, host := range []string{"a.test:80", "b.test:80", "c.test:80", "d.test:80", "u1.test:80", "a.test:80"} {
		m.Tunnel(host)
	}
	m.Hosts([]string{"d.test:80"}) // a reload names it
	m.Tunnel("d.test:80")
	assertMetrics(t, m,
		`retryproxy_tunnels_total{host="a.test:80"} 2`,
		`retryproxy_tunnels_total{host="b.test:80"} 1`,
		`retryproxy_tunnels_total{host="other"} 2`,
		`retryproxy_tunnels_total{host="d.test:80"} 1`,
		`retryproxy_tunnels_total{host="u1.test:80"} 1`,
	)
}

func TestCase_OB_02_series_stay_bounded(t *testing.T) {
	m := New(Config{HostLimit: 20})
	for i := range 10000 {
		host := fmt.Sprintf("h%d.test:80", i)
		switch {
		case i%100 == 7:
			host = strings.Repeat("x", 25<<10)
		case i%100 == 8:
			host = "\xff\xfe.test"
		}
		a := attempt.Attempt{N: 1, Host: host, Verdict: classify.Verdict{Class: classify.Transient, Reason: "status_503"}}
		if i%2 == 0 {
			a.Verdict.Reason = "connect_refused"
		}
		m.Attempt("default", &a)
		m.Call(&attempt.Summary{
			Mode: "forward", Policy: "default", Result: "failed", Reason: "attempts_exhausted", Host: host,
			Method: fmt.Sprintf("M%d", i), Labels: attempt.Labels{Shop: host, TaskType: host}, Attempts: attempt.History{a},
		})
	}
	text := exposition(t, m)
	if n := strings.Count(text, "\n"); n > 2000 || len(text) > 1<<20 {
		t.Errorf("a scrape has %d lines and %d bytes, want at most 2000 and 1 MiB", n, len(text))
	}
	if !strings.Contains(text, `retryproxy_attempts_total{class="transient",host="other",policy="default",reason="status_503"}`) {
		t.Error("what is over the bound is not counted as other")
	}
}

func TestAttemptSeriesAreBounded(t *testing.T) {
	m := New(Config{HostLimit: 50})
	for i := range 50 {
		for status := range 90 {
			m.Attempt("default", &attempt.Attempt{
				Host: fmt.Sprint("h", i), Verdict: classify.Verdict{Class: classify.Permanent, Reason: classify.StatusReason(status)},
			})
		}
	}
	if n := strings.Count(exposition(t, m), "\nretryproxy_attempts_total{"); n > mostSeries+4 {
		t.Errorf("attempts_total has %d series, want at most %d", n, mostSeries)
	}
	assertMetrics(t, m, fmt.Sprintf(`retryproxy_attempts_total{class="permanent",host="other",policy="other",reason="other"} %d`, 50*90-mostSeries))
}

func TestMetricsPassTheLinter(t *testing.T) {
	m := newMetrics()
	s := recovered()
	m.Call(s)
	m.Attempt(s.Policy, &s.Attempts[0])
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("Lint() = %v, %v", problems, err)
	}
}

func TestMetricsUnderContention(t *testing.T) {
	m := newMetrics()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				s := recovered()
				s.Attempts[0].Host = fmt.Sprint("h", (g+i)%5)
				m.Attempt("default", &s.Attempts[0])
				m.Call(s)
			}
		})
	}
	wg.Wait()
	assertMetrics(t, m, `retryproxy_calls_total{mode="forward",policy="default",result="recovered"} 1600`)
	if total := sumOf(t, m.attempts); total != 1600 {
		t.Errorf("attempts_total sums to %v, want 1600", total)
	}
}

func sumOf(t testing.TB, c prometheus.Collector) (total float64) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			total += metric.GetCounter().GetValue()
		}
	}
	return total
}

func plainSuccess() *attempt.Summary {
	s := recovered()
	s.Result, s.Attempts, s.Waits = "success", s.Attempts[1:], nil
	s.Attempts[0].N, s.Attempts[0].Delay, s.Attempts[0].Cause = 1, 0, ""
	return s
}

func TestPlainSuccessAllocatesNothing(t *testing.T) {
	m, s := newMetrics(), plainSuccess()
	count := func() {
		m.Attempt(s.Policy, &s.Attempts[0])
		m.Call(s)
	}
	if n := testing.AllocsPerRun(100, count); n != 0 {
		t.Errorf("counting a plain success allocates %v times, want 0", n)
	}
}

func BenchmarkPlainSuccess(b *testing.B) {
	m, s := newMetrics(), plainSuccess()
	b.ReportAllocs()
	for b.Loop() {
		m.Attempt(s.Policy, &s.Attempts[0])
		m.Call(s)
	}
}
