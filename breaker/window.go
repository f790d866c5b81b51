package breaker

import "time"

// slots is how finely a window forgets: a tenth at a time.
const slots = 10

// window counts results over the recent past. The zero value with a width is
// empty and starts with its first use.
type window struct {
	width time.Duration // of one slot
	start time.Time     // of slot 0
	head  int64         // number of the newest slot; it is kept in ring[head%slots]
	ring  [slots]tally
	sum   tally
}

// tally is a number of results and how many of them were failures.
type tally struct{ calls, failures int }

// newWindow returns an empty window that looks back over span.
func newWindow(span time.Duration) window {
	return window{width: max(span/slots, 1)}
}

// add counts one result at now.
func (w *window) add(failed bool, now time.Time) {
	one := tally{calls: 1}
	if failed {
		one.failures = 1
	}
	w.advance(now)
	w.ring[w.head%slots].plus(one)
	w.sum.plus(one)
}

// total is what happened within the window that ends at now.
func (w *window) total(now time.Time) tally {
	w.advance(now)
	return w.sum
}

// advance empties the slots that are too old by now.
func (w *window) advance(now time.Time) {
	if w.start.IsZero() {
		w.start = now
	}
	head := int64(now.Sub(w.start) / w.width)
	for range min(head-w.head, slots) {
		w.head++
		old := &w.ring[w.head%slots]
		w.sum.plus(tally{-old.calls, -old.failures})
		*old = tally{}
	}
	w.head = max(w.head, head)
}

func (t *tally) plus(o tally) {
	t.calls += o.calls
	t.failures += o.failures
}
