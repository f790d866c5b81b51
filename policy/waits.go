package policy

import "time"

// Delays are the planned waits before the retries, without jitter.
func (p *Policy) Delays() []time.Duration {
	out := make([]time.Duration, p.MaxRetries)
	for i := range out {
		out[i] = p.Backoff.Nominal(i + 1)
	}
	return out
}

// Longest is how long all attempts and the waits between them can take, at most the
// deadline: each attempt its per_try_timeout, each wait with the most jitter. What an
// upstream or a line wants beyond that is not in it.
func (p *Policy) Longest() time.Duration {
	sum := p.PerTryTimeout
	for n := 1; n <= p.MaxRetries && sum < p.Deadline; n++ {
		sum += p.Backoff.Delay(n, 1) + p.PerTryTimeout
	}
	return min(sum, p.Deadline)
}
