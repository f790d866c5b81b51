package alert

import (
	"math"
	"time"
)

// slots is into how many parts a window is divided: what it counts is never
// older than the window, and at most a sixtieth younger.
const slots = 60

// window counts the events of the last while.
type window struct {
	width  time.Duration // of a slot
	newest int64         // number of the newest slot
	counts [slots]int
	sum    int
}

func newWindow(within time.Duration) window { return window{width: max(within/slots, 1)} }

// add counts an event.
func (w *window) add(now time.Time) {
	w.move(now)
	w.counts[w.newest%slots]++
	w.sum++
}

// total is how many events the window holds.
func (w *window) total(now time.Time) int {
	w.move(now)
	return w.sum
}

// move forgets what has become too old. A clock that went back changes nothing.
func (w *window) move(now time.Time) {
	at := now.UnixNano() / int64(w.width)
	if at-w.newest >= slots {
		w.counts, w.sum, w.newest = [slots]int{}, 0, at
	}
	for w.newest < at {
		w.newest++
		w.sum -= w.counts[w.newest%slots]
		w.counts[w.newest%slots] = 0
	}
}

const (
	leastHours = 6  // complete hours before anything is called unusual
	meanHours  = 24 // hours that the usual looks back on, about
)

// usual learns how many events an hour brings: the plain mean of the first day,
// then an exponentially weighted one in which an hour counts for a 24th.
type usual struct {
	hour  int     // number of the hour that count is of
	count int     // events in it
	mean  float64 // of the complete hours before
}

// add counts an event of that hour.
func (u *usual) add(hour int) {
	u.move(hour)
	u.count++
}

// perHour is the mean of the complete hours.
func (u *usual) perHour(hour int) float64 {
	u.move(hour)
	return u.mean
}

// move completes the hours before that one.
func (u *usual) move(hour int) {
	if u.hour >= hour {
		return
	}
	u.mean += (float64(u.count) - u.mean) / float64(min(u.hour+1, meanHours))
	u.hour, u.count = u.hour+1, 0
	for u.hour < hour && u.hour < meanHours {
		u.mean -= u.mean / float64(u.hour+1)
		u.hour++
	}
	u.mean *= math.Pow(1-1.0/meanHours, float64(hour-u.hour)) // hours without any
	u.hour = hour
}
