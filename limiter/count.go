package limiter

import "time"

// Waiting counts the calls that wait, by cause as View has it. It looks at the gates
// and not at each call, so that it may be asked often.
func (l *Limiter) Waiting(now time.Time) map[string]int {
	b := l.lock(now)
	defer l.unlock()
	out := make(map[string]int, len(b.planned))
	for cause, n := range b.planned {
		out[cause] = n
	}
	for _, g := range b.gates.all() {
		if g.waiting > 0 {
			out[b.waitsAt(g)] += g.waiting
		}
	}
	return out
}

// Short counts the retries that have come before the tokens, by the dimensions of which
// there is none for them now: one that is short of two counts for both.
func (l *Limiter) Short(now time.Time) map[string]int {
	b := l.lock(now)
	defer l.unlock()
	out := map[string]int{dimGlobal.String(): b.shortOf(b.global)}
	for d := dimTaskType; d < dimensions; d++ {
		n := 0
		for _, k := range b.labelled[d].all() {
			n += b.shortOf(k)
		}
		out[d.String()] = n
	}
	return out
}

// shortOf is how many retries before a bucket lack its token.
func (b *board) shortOf(k *bucket) (n int) {
	if len(k.lines) == 0 || k.limit.Off {
		return 0
	}
	if b.refill(k); k.tokens.TokensAt(b.now) >= enough {
		return 0
	}
	for g, q := range k.lines {
		if b.blocker(g) == "" {
			n += q.size
		}
	}
	return n
}

// GaveUp notes that a call to a host ended without a success, so that an outage there
// is told with how many it cost.
func (l *Limiter) GaveUp(host string, now time.Time) {
	b := l.lock(now)
	defer l.unlock()
	if g, ok := b.gates.look(host); ok && g.relief {
		g.outage.GaveUp++
	}
}

// longest is for how long one of those in line has stood there.
func (g *gate) longest(now time.Time) (d time.Duration) {
	for t := range g.patience.all() {
		d = max(d, now.Sub(t.joined))
	}
	return d
}
