package policy

import (
	"slices"
	"testing"
	"time"

	"retryproxy/backoff"
)

func TestWaits(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name     string
		retries  int
		ratio    float64
		perTry   time.Duration
		deadline time.Duration
		delays   []time.Duration
		longest  time.Duration
	}{
		{"no retries", 0, 0.2, 15 * s, 300 * s, nil, 15 * s},
		{"they fit", 3, 0, 15 * s, 300 * s, []time.Duration{s, 2 * s, 4 * s}, 67 * s},
		{"jitter", 2, 0.5, 15 * s, 300 * s, []time.Duration{s, 2 * s}, 49*s + s/2},
		{"the largest delay", 5, 0, s, 300 * s, []time.Duration{s, 2 * s, 4 * s, 8 * s, 10 * s}, 31 * s},
		{"more than the deadline", 3, 0, 15 * s, 40 * s, []time.Duration{s, 2 * s, 4 * s}, 40 * s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Policy{MaxRetries: tt.retries, PerTryTimeout: tt.perTry, Deadline: tt.deadline, Backoff: backoff.Policy{
				Base: s, Max: 10 * s, Multiplier: 2, Jitter: backoff.JitterRandom, Ratio: tt.ratio,
			}}
			if got := p.Delays(); !slices.Equal(got, tt.delays) {
				t.Errorf("Delays = %v, want %v", got, tt.delays)
			}
			if got := p.Longest(); got != tt.longest {
				t.Errorf("Longest = %v, want %v", got, tt.longest)
			}
		})
	}
}
