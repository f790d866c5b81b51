package patience

import (
	"math"
	"time"
)

// Times counts times in steps of a tenth, which is as exact as a person's or a bot's
// patience has to be known. The zero value has none.
type Times struct {
	counts [buckets]int
	n      int
}

const (
	least   = 10 * time.Millisecond
	step    = 1.1
	buckets = 160 // up to 11 hours
)

// Add counts one.
func (t *Times) Add(d time.Duration) {
	i := 0
	if d > least {
		i = min(int(math.Log(float64(d)/float64(least))/math.Log(step))+1, buckets-1)
	}
	t.counts[i]++
	t.n++
}

// Quantile is the middle of the step that holds it, to two digits; 0: there are none.
func (t *Times) Quantile(q float64) time.Duration {
	rank := int(math.Ceil(q * float64(t.n)))
	seen := 0
	for i, n := range t.counts {
		if seen += n; n > 0 && seen >= rank {
			return twoDigits(time.Duration(float64(least) * math.Pow(step, float64(i)-0.5)))
		}
	}
	return 0
}

// twoDigits leaves out what is not known.
func twoDigits(d time.Duration) time.Duration {
	unit := time.Duration(math.Pow10(int(math.Log10(float64(d))) - 1))
	return d.Round(unit)
}
