package limiter

import "time"

// traffic counts fresh calls over the last minute, by the second.
type traffic struct {
	first time.Time // the first call ever; second 0 begins there
	head  int64     // number of the newest second; it is kept in ring[head%minute]
	ring  [minute]uint32
	sum   uint64
}

const minute = 60

// add counts one call. It says whether a new second began with it.
func (t *traffic) add(now time.Time) (turned bool) {
	if t.first.IsZero() {
		t.first = now
	}
	turned = t.advance(now)
	t.ring[t.head%minute]++
	t.sum++
	return turned
}

// rate is the mean of the last minute in calls per second; of the time since
// the first call if that is shorter, but of one second at least.
func (t *traffic) rate(now time.Time) float64 {
	if t.first.IsZero() {
		return 0
	}
	t.advance(now)
	return float64(t.sum) / min(max(now.Sub(t.first).Seconds(), 1), minute)
}

// advance empties the seconds that are a minute old by now.
func (t *traffic) advance(now time.Time) (turned bool) {
	head := int64(now.Sub(t.first) / time.Second)
	turned = head > t.head
	for range min(head-t.head, minute) {
		t.head++
		t.sum -= uint64(t.ring[t.head%minute])
		t.ring[t.head%minute] = 0
	}
	t.head = max(t.head, head)
	return turned
}
