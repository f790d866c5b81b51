package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"retryproxy/classify"
)

// callKey and attemptKey name series that are looked up once and then kept, so
// that counting a call costs no hashing of labels inside the library.
type callKey struct{ policy, mode, result string }

type attemptKey struct {
	policy, host string
	class        classify.Class
	reason       string
}

type callSeries struct {
	total              prometheus.Counter
	attempts, duration prometheus.Observer
}

type attemptSeries struct {
	total    prometheus.Counter
	duration prometheus.Observer
}

func (m *Metrics) callSeries(key callKey) *callSeries {
	if s, ok := m.callsOf.get(key); ok {
		return s
	}
	s := &callSeries{
		total:    m.calls.WithLabelValues(key.policy, key.mode, key.result),
		attempts: m.callAttempts.WithLabelValues(key.policy, key.result),
		duration: m.callDuration.WithLabelValues(key.policy, key.result),
	}
	m.callsOf.mu.Lock()
	defer m.callsOf.mu.Unlock()
	m.callsOf.addLocked(key, s)
	return s
}

// attemptSeries bounds the combinations: beyond the bound only the class is told.
func (m *Metrics) attemptSeries(key attemptKey) *attemptSeries {
	s, ok := m.attemptsOf.get(key)
	if !ok && m.attemptsOf.size() >= mostSeries {
		key.policy, key.host, key.reason = other, other, other
		s, ok = m.attemptsOf.get(key)
	}
	if ok {
		return s
	}
	s = &attemptSeries{
		total:    m.attempts.WithLabelValues(key.policy, key.host, key.class.String(), key.reason),
		duration: m.attemptDuration.WithLabelValues(key.host, key.class.String()),
	}
	m.attemptsOf.mu.Lock()
	defer m.attemptsOf.mu.Unlock()
	m.attemptsOf.addLocked(key, s)
	return s
}
