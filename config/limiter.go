package config

import (
	"retryproxy/breaker"
	"retryproxy/limiter"
)

// Limiter is what the limiter needs to know.
func (c *Config) Limiter() limiter.Config {
	return limiter.Config{
		MaxInFlight:  c.Slots.MaxInFlight,
		Adaptive:     c.Slots.Adaptive,
		RetryShare:   c.Slots.RetryShare,
		BacklogShare: c.Slots.BacklogShare,
		Ramp:         c.Slots.Ramp,
		MaxWait:      c.Slots.MaxWait,
		MaxWaiting:   c.Slots.MaxWaiting,
		Breaker:      breaker.Config(c.Breakers.Host),
		Buckets: limiter.Buckets{
			Global:   c.RetryLimits.Global.bucket(),
			TaskType: c.RetryLimits.TaskType.bucket(),
			Shop:     c.RetryLimits.Shop.bucket(),
		},
	}
}

func (l Limit) bucket() limiter.Limit {
	return limiter.Limit{Off: l.Off, Rate: l.Rate, Burst: l.Burst, Share: l.Share}
}
