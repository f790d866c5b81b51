package limiter

import "time"

// Need is what a retry takes a token from, for whoever counts the retries of
// several processes.
type Need struct {
	Dimension string // global, task_type, shop
	Name      string // of the task type or shop
	Rate      float64
	Burst     int
	Share     float64
	Fresh     float64 // fresh calls per second here, over the last minute
}

// Needs lists the buckets that a claim's retry draws from, without those that are
// off.
func (l *Limiter) Needs(c *Claim, now time.Time) []Need {
	b := l.lock(now)
	defer l.unlock()
	needs := make([]Need, 0, dimensions)
	for _, k := range b.sources(c) {
		if k != nil && !k.limit.Off {
			needs = append(needs, Need{k.dimension.String(), k.name, k.limit.Rate, k.limit.Burst, k.limit.Share, k.fresh.rate(b.now)})
		}
	}
	return needs
}

// Of is the part of these buckets that one of n processes may use alone.
func (b Buckets) Of(n int) Buckets {
	return Buckets{Global: b.Global.of(n), TaskType: b.TaskType.of(n), Shop: b.Shop.of(n)}
}

// of leaves the share of fresh calls as it is: each process counts its own.
func (l Limit) of(n int) Limit {
	if n > 1 && !l.Off {
		l.Rate /= float64(n)
		l.Burst = (l.Burst + n - 1) / n
	}
	return l
}
