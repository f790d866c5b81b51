// Package telemetry answers one question: what do metrics and the log say about a call?
//
// It is told plain values; who calls it decides when. Labels are bounded, and
// neither shop nor key ever is one.
package telemetry

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"retryproxy/attempt"
)

// Config of the metrics.
type Config struct {
	Hosts     []string // normalised host:port of the configuration: always labels of their own
	HostLimit int      // others that become labels until restart; further ones are "other"
	Version   string
}

// Bounds of labels whose values the configuration or an upstream chooses.
const (
	mostPolicies = 100
	mostReasons  = 100
	mostRules    = 100
	mostTasks    = 32
	mostSeries   = 1000 // of attempts_total
)

var (
	toAttempts = []float64{0, 1, 2, 3, 4, 6, 11}
	toDuration = []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300}
	toAttempt  = []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 15, 60, 300}
	toOverhead = []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .05, .5, 5, 300}
)

// Metrics counts what happens. All methods are safe for concurrent use.
type Metrics struct {
	registry                 *prometheus.Registry
	hosts, policies, reasons *names
	rules, tasks             *names

	calls           *prometheus.CounterVec
	callAttempts    *prometheus.HistogramVec
	callDuration    *prometheus.HistogramVec
	attempts        *prometheus.CounterVec
	attemptDuration *prometheus.HistogramVec
	retries         *prometheus.CounterVec
	retriesDenied   *prometheus.CounterVec
	shed            *prometheus.CounterVec
	clientGone      *prometheus.HistogramVec
	retryWait       *prometheus.HistogramVec
	overhead        prometheus.Histogram
	stops           *prometheus.CounterVec
	denied          *prometheus.CounterVec
	ignored         *prometheus.CounterVec
	idempotency     *prometheus.CounterVec
	deadLetters     *prometheus.CounterVec
	tunnels         *prometheus.CounterVec
	passThrough     *prometheus.CounterVec
	moves           *prometheus.CounterVec
	suspects        *prometheus.CounterVec
	newCodes        *prometheus.CounterVec
	failovers       *prometheus.CounterVec
	queries         *prometheus.CounterVec
	pauses          *prometheus.GaugeVec
	pauseStarts     *prometheus.CounterVec
	keyOnly         *prometheus.CounterVec
	alerts          *prometheus.CounterVec
	storeUp         prometheus.Gauge
	reloadOK        prometheus.Gauge
	reloadAt        prometheus.Gauge

	callsOf    table[callKey, *callSeries]
	attemptsOf table[attemptKey, *attemptSeries]
}

// New returns metrics in a registry of their own.
func New(c Config) *Metrics {
	r := prometheus.NewRegistry()
	f := factory{r}
	m := &Metrics{
		registry: r,
		hosts:    newNames(c.HostLimit, c.Hosts...), policies: newNames(mostPolicies), reasons: newNames(mostReasons), rules: newNames(mostRules), tasks: newNames(mostTasks, noTask),

		calls:           f.counter("calls_total", "Calls that ended.", "policy", "mode", "result"),
		callAttempts:    f.histogram("call_attempts", "Attempts of a call.", toAttempts, "policy", "result"),
		callDuration:    f.histogram("call_duration_seconds", "Time from the request to its answer.", toDuration, "policy", "result"),
		attempts:        f.counter("attempts_total", "Requests sent upstream, failures to send included.", "policy", "host", "class", "reason"),
		attemptDuration: f.histogram("attempt_duration_seconds", "Time of an attempt to its verdict.", toAttempt, "host", "class"),
		retries:         f.counter("retries_total", "Attempts after the first of a call, counted when the call ends.", "policy", "host"),
		retriesDenied:   f.counter("retries_denied_total", "Retries refused for want of a token.", "dimension"),
		shed:            f.counter("shed_total", "Calls that the gate of their host turned away at once, before any attempt.", "reason"),
		clientGone:      f.histogram("client_gone_seconds", "Time from the request until its client left without an answer.", toDuration, "task_type"),
		retryWait:       f.histogram("retry_wait_seconds", "Waits of calls, by what they waited for.", toDuration, "cause"),
		overhead:        f.histogram("overhead_seconds", "Our own part of a call: neither upstream nor waiting.", toOverhead).WithLabelValues().(prometheus.Histogram),
		stops:           f.counter("stops_total", "Calls that stopped short of success, by reason.", "reason"),
		denied:          f.counter("denied_total", "Calls refused by the access rules.", "reason"),
		ignored:         f.counter("ignored_values_total", "Header values that made no sense and were ignored.", "field"),
		idempotency:     f.counter("idempotency_total", "What keyed calls found under their key.", "result"),
		deadLetters:     f.counter("dead_letters_total", "Calls given up and kept as dead letters.", "reason"),
		tunnels:         f.counter("tunnels_total", "Opaque tunnels opened.", "host"),
		passThrough:     f.counter("intercept_refused_total", "Times a client that does not trust our CA was given opaque tunnels for an hour.", "host"),
		moves:           f.counter("egress_moves_total", "Calls that left by another address of a pool than their shop's.", "egress"),
		suspects:        f.counter("suspect_answers_total", "2xx answers whose JSON says failure.", "host"),
		queries:         f.counter("queries_total", "Questions to suppliers what became of an order.", "preset", "answer"),
		pauseStarts:     f.counter("pauses_total", "Shops or operations that a platform stopped.", "platform", "reason"),
		pauses:          f.gauges("pauses", "Shops or operations that are not called, because the platform stopped them.", "platform", "reason"),
		newCodes:        f.counter("new_codes_total", "Answers whose code no rule of the preset knows.", "preset"),
		failovers:       f.counter("failovers_total", "Orders handed on to another supplier after a definite failure; from and to are presets.", "policy", "from", "to"),
		keyOnly:         f.counter("key_only_repeats_total", "Repeats that only the idempotency key makes safe.", "host"),
		alerts:          f.counter("alerts_total", "Messages of alerts, by what became of them for each target.", "rule", "result"),
		storeUp:         f.gauge("store_up", "1 while the store of records does what it is asked; 0 while it cannot be read or written."),
		reloadOK:        f.gauge("config_last_reload_successful", "1 when the newest configuration was good."),
		reloadAt:        f.gauge("config_last_reload_success_timestamp_seconds", "When a configuration was last applied."),
	}
	f.build(c.Version)
	m.StoreUp(true) // without one that opened there is no process
	return m
}

// Gatherer gives the metrics to whoever serves them.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Hosts makes these hosts labels of their own from now on, as after a reload.
func (m *Metrics) Hosts(configured []string) { m.hosts.expect(configured) }

// RetryDenied counts a retry that got no token; dimension is global, task_type or shop.
func (m *Metrics) RetryDenied(dimension string) { m.token(m.retriesDenied, dimension) }

// Shed counts a call that the gate of its host turned away at once.
func (m *Metrics) Shed(reason string) { m.token(m.shed, reason) }

// Denied counts a call refused by the access rules.
func (m *Metrics) Denied(reason string) { m.token(m.denied, reason) }

// Ignored counts a header value that made no sense.
func (m *Metrics) Ignored(field string) { m.token(m.ignored, field) }

// Idempotency counts what a keyed call found under its key.
func (m *Metrics) Idempotency(result string) { m.token(m.idempotency, result) }

// DeadLetter counts a call that was given up and kept.
func (m *Metrics) DeadLetter(reason string) { m.token(m.deadLetters, reason) }

// Tunnel counts an opaque tunnel.
func (m *Metrics) Tunnel(host string) { m.host(m.tunnels, host) }

// PassThrough counts a client that refuses our CA and is let through for an hour.
func (m *Metrics) PassThrough(host string) { m.host(m.passThrough, host) }

// EgressMoved counts a call that left by another address of a pool than its shop's.
func (m *Metrics) EgressMoved(rule string) { m.token(m.moves, rule) }

// Suspect counts a 2xx answer whose JSON says failure.
func (m *Metrics) Suspect(host string) { m.host(m.suspects, host) }

// NewCode counts an answer that its preset does not know.
func (m *Metrics) NewCode(preset string) { m.token(m.newCodes, preset) }

// Failover counts an order that goes on to another supplier.
func (m *Metrics) Failover(policy, from, to string) {
	m.failovers.WithLabelValues(m.policies.label(policy), m.reasons.label(from), m.reasons.label(to)).Inc()
}

// Query counts a question to a supplier.
func (m *Metrics) Query(preset, answer string) {
	m.queries.WithLabelValues(m.reasons.label(preset), answer).Inc()
}

// Pause counts what a platform stopped, and what goes on.
func (m *Metrics) Pause(platform, reason string, begins bool) {
	platform = m.reasons.label(platform)
	if begins {
		m.pauseStarts.WithLabelValues(platform, reason).Inc()
		m.pauses.WithLabelValues(platform, reason).Inc()
		return
	}
	m.pauses.WithLabelValues(platform, reason).Dec()
}

// KeyOnlyRepeat counts a repeat that only the idempotency key makes safe.
func (m *Metrics) KeyOnlyRepeat(host string) { m.host(m.keyOnly, host) }

// Alert counts a message to one target: sent, failed or dropped.
func (m *Metrics) Alert(rule, result string) {
	m.alerts.WithLabelValues(m.rules.label(rule), result).Inc()
}

// StoreUp tells whether the store of records works.
func (m *Metrics) StoreUp(up bool) {
	if !up {
		m.storeUp.Set(0)
		return
	}
	m.storeUp.Set(1)
}

// Reload tells how reading the configuration went.
func (m *Metrics) Reload(ok bool, at time.Time) {
	if !ok {
		m.reloadOK.Set(0)
		return
	}
	m.reloadOK.Set(1)
	m.reloadAt.Set(float64(at.UnixNano()) / 1e9)
}

func (m *Metrics) token(v *prometheus.CounterVec, value string) {
	v.WithLabelValues(m.reasons.label(value)).Inc()
}

func (m *Metrics) host(v *prometheus.CounterVec, value string) {
	v.WithLabelValues(m.hosts.label(value)).Inc()
}

// Call counts a call that ended.
func (m *Metrics) Call(s *attempt.Summary) {
	c := m.callSeries(callKey{m.policies.label(s.Policy), s.Mode, s.Result})
	made := run(s)
	c.total.Inc()
	c.attempts.Observe(float64(len(made)))
	c.duration.Observe(s.Duration.Seconds())
	m.overhead.Observe(s.Overhead.Seconds())
	for i := 1; i < len(made); i++ {
		m.retries.WithLabelValues(m.policies.label(s.Policy), m.hosts.label(made[i].Host)).Inc()
	}
	for i := range s.Waits {
		m.retryWait.WithLabelValues(m.reasons.label(s.Waits[i].Cause)).Observe(s.Waits[i].For.Seconds())
	}
	if s.Reason != "" && s.Reason != "ok" {
		m.token(m.stops, s.Reason)
	}
	if s.Left > 0 {
		m.clientGone.WithLabelValues(m.task(s.Labels.TaskType)).Observe(s.Left.Seconds())
	}
}

// noTask is the label of calls without a task type.
const noTask = "-"

func (m *Metrics) task(name string) string {
	if name == "" {
		return noTask
	}
	return m.tasks.label(name)
}

// run gives the attempts that this call made itself.
func run(s *attempt.Summary) attempt.History {
	for i := range s.Attempts {
		if s.Attempts[i].N > s.Previous {
			return s.Attempts[i:]
		}
	}
	return nil
}

// Attempt counts one attempt.
func (m *Metrics) Attempt(policy string, a *attempt.Attempt) {
	key := attemptKey{m.policies.label(policy), m.hosts.label(a.Host), a.Verdict.Class, m.reasons.label(a.Verdict.Reason)}
	s := m.attemptSeries(key)
	s.total.Inc()
	s.duration.Observe(a.Duration.Seconds())
}

// factory makes and registers metrics of our name space.
type factory struct{ registry *prometheus.Registry }

func (f factory) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "retryproxy", Name: name, Help: help}, labels)
	f.registry.MustRegister(v)
	return v
}

func (f factory) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "retryproxy", Name: name, Help: help, Buckets: buckets}, labels)
	f.registry.MustRegister(v)
	return v
}

func (f factory) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "retryproxy", Name: name, Help: help})
	f.registry.MustRegister(g)
	return g
}

func (f factory) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "retryproxy", Name: name, Help: help}, labels)
	f.registry.MustRegister(v)
	return v
}

// build registers what tells about the program itself.
func (f factory) build(version string) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "retryproxy", Name: "build_info", Help: "1; the labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	f.registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}
