package limiter

import (
	"time"

	"retryproxy/breaker"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

var config = Config{
	MaxInFlight: 100, MaxWait: 30 * time.Second, MaxWaiting: 10_000,
	Breaker: breaker.Config{
		ConsecutiveFailures: 5, FailureRatio: 0.5, MinCalls: 20, Window: 10 * time.Second,
		Open: 2 * time.Second, OpenMax: 8 * time.Second, Probes: 1,
	},
	Buckets: Buckets{
		Global:   Limit{Rate: 5, Burst: 300, Share: 0.2},
		TaskType: Limit{Rate: 50. / 60, Burst: 50, Share: 0.2},
		Shop:     Limit{Rate: 5. / 60, Burst: 5, Share: 0.2},
	},
}
