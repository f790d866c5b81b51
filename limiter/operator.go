package limiter

import (
	"time"
)

// Hosts lists the gates by name.
func (l *Limiter) Hosts(now time.Time) []HostView {
	b := l.lock(now)
	defer l.unlock()
	return b.hosts()
}

// Host is the gate of one host; false: it is not known.
func (l *Limiter) Host(host string, now time.Time) (HostView, bool) {
	b := l.lock(now)
	defer l.unlock()
	g, ok := b.gates.look(host)
	if !ok {
		return HostView{}, false
	}
	return b.hostView(g), true
}

// Limits lists the buckets: global, task types, shops.
func (l *Limiter) Limits(now time.Time) []BucketView {
	b := l.lock(now)
	defer l.unlock()
	return b.limits()
}

// ResetBreaker closes a host's breaker by hand; false: no such host is known.
func (l *Limiter) ResetBreaker(host string, now time.Time) bool {
	b := l.lock(now)
	defer l.unlock()
	g, ok := b.gates.look(host)
	if ok {
		b.note(g, g.breaker.Reset(b.now))
		b.touch(g)
	}
	return ok
}

// Healthy says whether a host answers so well that a failure is an isolated one.
func (l *Limiter) Healthy(host string, now time.Time) bool {
	b := l.lock(now)
	defer l.unlock()
	g, ok := b.gates.look(host)
	return ok && g.breaker.Healthy(b.now)
}

// Closed says whether a host's breaker is closed.
func (l *Limiter) Closed(host string, now time.Time) bool {
	b := l.lock(now)
	defer l.unlock()
	g, ok := b.gates.look(host)
	return !ok || g.closed(b.now)
}

// Admits says whether a host's breaker lets a call start now, be it as the probe
// that is due.
func (l *Limiter) Admits(host string, now time.Time) bool {
	b := l.lock(now)
	defer l.unlock()
	g, ok := b.gates.look(host)
	if !ok {
		return true
	}
	admitted, _ := g.breaker.Allow(b.now)
	return admitted
}

// Configure applies changed settings. Buckets, breakers and waiting calls stay;
// what no longer fits is refused, what now may start is started.
func (l *Limiter) Configure(config Config, now time.Time) {
	b := l.lock(now)
	defer l.unlock()
	b.reconfigure(config)
}

func (b *board) reconfigure(config Config) {
	b.config = config
	b.configure(b.global, config.Buckets.Global)
	for d := dimTaskType; d < dimensions; d++ {
		for _, k := range b.labelled[d].all() {
			b.configure(k, config.Buckets.of(d))
		}
	}
	for _, g := range b.gates.all() {
		g.breaker.Configure(config.Breaker, b.now)
		b.rejudge(g)
		b.touch(g)
	}
}
