package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"retryproxy/breaker"
	"retryproxy/idempotency"
	"retryproxy/limiter"
)

// Sources are asked at each scrape; nil ones are left out. They must not block.
type Sources struct {
	Waiting  func() map[string]int // waiting calls by cause
	Short    func() map[string]int // retries before empty buckets, by dimension
	Gates    func() []limiter.HostView
	Breakers func() []Breaker // of shops and exits
	Records  func() idempotency.Stats
	// HistoryDropped counts the calls that are missing in the history.
	HistoryDropped func() int64
}

// Breaker is the state of one breaker. Those of shops are told by host, those of
// egress proxies by rule: the worst of them counts.
type Breaker struct {
	Scope string // shop or egress; host: that of a gate
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
	descShort    = describe("token_line", "Retries that lack a token, by the buckets without one; a retry that lacks two counts for both.", "dimension")
	descInFlight = describe("in_flight", "Attempts in flight.", "host")
	descLimit    = describe("limit", "Attempts in flight that the host can take, as far as is known.", "host")
	descCapacity = describe("capacity", "Attempts in flight that are allowed at present.", "host")
	descLine     = describe("line", "Calls in line at the gate of a host.", "host", "lane")
	descLongest  = describe("line_longest_seconds", "For how long one of the calls in line has stood there.", "host")
	descOutage   = describe("outage", "1 while a host is cut off, or what that left is worked off.", "host")
	descSince    = describe("outage_since_timestamp_seconds", "When the outage of a host began; absent: there is none.", "host")
	descBreaker  = describe("breaker_state", "0 closed, 1 half-open, 2 open.", "scope", "host")
	descRecords  = describe("records", "Idempotency records held.")
	descBytes    = describe("records_bytes", "Bytes of stored answers.")
	descEvicted  = describe("records_evicted_total", "Records or bodies that went before their time.")
	descStates   = describe("records_by_state", "Idempotency records held, by state; dead and in_doubt wait for a person.", "state")
	descParked   = describe("parked_oldest_timestamp_seconds", "When the call that is parked longest was parked; absent: none is.")
	descDead     = describe("dead_letters_stored", "Dead letters held.")
	descDropped  = describe("history_dropped_total", "Calls that are missing in the history, for want of room or of a store.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("retryproxy_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c *sampler) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descWaiting, descShort, descInFlight, descLimit, descCapacity, descLine, descLongest, descOutage, descSince,
		descBreaker, descRecords, descBytes, descEvicted, descStates, descParked, descDead, descDropped,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *sampler) Collect(out chan<- prometheus.Metric) {
	gauge := gaugeTo(out)
	for cause, n := range sum(c.s.Waiting, c.m.reasons.label) {
		gauge(descWaiting, float64(n), cause)
	}
	for dimension, n := range sum(c.s.Short, c.m.reasons.label) {
		gauge(descShort, float64(n), dimension)
	}
	gates := c.gates()
	for host, g := range gates {
		gauge(descInFlight, float64(g.InFlight), host)
		gauge(descLimit, float64(g.Limit), host)
		gauge(descCapacity, float64(g.Capacity), host)
		gauge(descLine, float64(g.Waiting-g.Late), host, "fresh")
		gauge(descLine, float64(g.Late), host, "backlog")
		gauge(descLongest, g.Longest.Seconds(), host)
		gauge(descBreaker, float64(g.Breaker.State), "host", host)
		if g.Outage == nil {
			gauge(descOutage, 0, host)
			continue
		}
		gauge(descOutage, 1, host)
		gauge(descSince, float64(g.Outage.Since.UnixNano())/1e9, host)
	}
	for key, state := range c.breakers() {
		gauge(descBreaker, float64(state), key.Scope, key.Host)
	}
	if c.s.HistoryDropped != nil {
		out <- prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, float64(c.s.HistoryDropped()))
	}
	if c.s.Records != nil {
		collectRecords(out, c.s.Records())
	}
}

func gaugeTo(out chan<- prometheus.Metric) func(d *prometheus.Desc, value float64, labels ...string) {
	return func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
}

// collectRecords tells all states, so that one which comes up is seen to rise from 0.
func collectRecords(out chan<- prometheus.Metric, records idempotency.Stats) {
	gauge := gaugeTo(out)
	gauge(descRecords, float64(records.Records))
	gauge(descBytes, float64(records.Bytes))
	for _, state := range idempotency.States() {
		gauge(descStates, float64(records.ByState[state]), state.String())
	}
	if !records.OldestParked.IsZero() {
		gauge(descParked, float64(records.OldestParked.UnixNano())/1e9)
	}
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

// gates gives the gates by host label. Of those that share one, numbers are added up, and
// else the worst counts.
func (c *sampler) gates() map[string]limiter.HostView {
	if c.s.Gates == nil {
		return nil
	}
	all := make(map[string]limiter.HostView)
	for _, g := range c.s.Gates() {
		host := c.m.hosts.look(g.Host)
		v := all[host]
		v.InFlight += g.InFlight
		v.Limit += g.Limit
		v.Capacity += g.Capacity
		v.Waiting += g.Waiting
		v.Late += g.Late
		v.Longest = max(v.Longest, g.Longest)
		v.Breaker.State = max(v.Breaker.State, g.Breaker.State)
		if o := g.Outage; o != nil && (v.Outage == nil || o.Since.Before(v.Outage.Since)) {
			v.Outage = o
		}
		all[host] = v
	}
	return all
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
