package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"retryproxy/breaker"
	"retryproxy/idempotency"
)

// Sources are asked at each scrape; nil ones are left out. They must not block.
type Sources struct {
	Waiting  func() map[string]int // waiting calls by cause
	InFlight func() map[string]int // attempts in flight by host
	Breakers func() []Breaker
	Records  func() idempotency.Stats
	// HistoryDropped counts the calls that are missing in the history.
	HistoryDropped func() int64
}

// Breaker is the state of one breaker. Those of shops are told by host, those of
// egress proxies by rule: the worst of them counts.
type Breaker struct {
	Scope string // host, shop or egress
	Host  string // egress: the name of the rule
	State breaker.State
}

// Watch makes the sources part of the metrics. It is called once.
func (m *Metrics) Watch(s Sources) { m.registry.MustRegister(&sampler{m, s}) }

// sampler turns what the sources say into metrics.
type sampler struct {
	m *Metrics
	s Sources
}

var (
	descWaiting  = describe("waiting", "Calls that wait, by what they wait for.", "cause")
	descInFlight = describe("in_flight", "Attempts in flight.", "host")
	descBreaker  = describe("breaker_state", "0 closed, 1 half-open, 2 open.", "scope", "host")
	descRecords  = describe("records", "Idempotency records held.")
	descBytes    = describe("records_bytes", "Bytes of stored answers.")
	descEvicted  = describe("records_evicted_total", "Records or bodies that went before their time.")
	descDead     = describe("dead_letters_stored", "Dead letters held.")
	descDropped  = describe("history_dropped_total", "Calls that are missing in the history, for want of room or of a store.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("retryproxy_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c *sampler) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descWaiting, descInFlight, descBreaker, descRecords, descBytes, descEvicted, descDead, descDropped} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *sampler) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for cause, n := range sum(c.s.Waiting, c.m.reasons.label) {
		gauge(descWaiting, float64(n), cause)
	}
	for host, n := range sum(c.s.InFlight, c.m.hosts.look) {
		gauge(descInFlight, float64(n), host)
	}
	for key, state := range c.breakers() {
		gauge(descBreaker, float64(state), key.Scope, key.Host)
	}
	if c.s.HistoryDropped != nil {
		out <- prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, float64(c.s.HistoryDropped()))
	}
	if c.s.Records == nil {
		return
	}
	records := c.s.Records()
	gauge(descRecords, float64(records.Records))
	gauge(descBytes, float64(records.Bytes))
	gauge(descDead, float64(records.ByState[idempotency.StateDead]+records.ByState[idempotency.StateInDoubt]))
	out <- prometheus.MustNewConstMetric(descEvicted, prometheus.CounterValue, float64(records.EvictedEarly))
}

// sum adds up what the bounded label puts together.
func sum(source func() map[string]int, label func(string) string) map[string]int {
	if source == nil {
		return nil
	}
	sums := make(map[string]int)
	for name, n := range source() {
		sums[label(name)] += n
	}
	return sums
}

// breakers gives the worst state per scope and host label.
func (c *sampler) breakers() map[Breaker]breaker.State {
	if c.s.Breakers == nil {
		return nil
	}
	worst := make(map[Breaker]breaker.State)
	for _, b := range c.s.Breakers() {
		key := Breaker{Scope: b.Scope, Host: b.Host}
		if b.Scope != "egress" {
			key.Host = c.m.hosts.look(b.Host)
		}
		worst[key] = max(worst[key], b.State)
	}
	return worst
}
