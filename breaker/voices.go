package breaker

import (
	"slices"
	"strings"
	"time"
)

// voices are the shops heard of last, and when: enough to know when anybody but some of
// them was heard of. The zero value has heard nobody.
type voices [8]voice

// voice is when a shop was heard of last; empty: a call without one.
type voice struct {
	shop string
	at   time.Time
}

// hear notes a shop in place of the one that was silent for longest.
func (v *voices) hear(shop string, now time.Time) {
	oldest := 0
	for i := range v {
		switch {
		case v[i].shop == shop && !v[i].at.IsZero():
			v[i].at = now
			return
		case v[i].at.Before(v[oldest].at):
			oldest = i
		}
	}
	v[oldest] = voice{shop, now}
}

// others is when somebody else than the shop and those blamed was heard of last (zero:
// never), and how many were since a time.
func (v *voices) others(shop string, b blamed, since time.Time) (last time.Time, n int) {
	for _, x := range v {
		if x.at.IsZero() || x.shop == shop || b.find(x.shop) >= 0 {
			continue
		}
		if x.at.After(last) {
			last = x.at
		}
		if !x.at.Before(since) {
			n++
		}
	}
	return last, n
}

// blamed are shops that fail alone, and when they failed last.
type blamed []voice

// find is the place of a shop; -1: it is not blamed.
func (b blamed) find(shop string) int {
	return slices.IndexFunc(b, func(x voice) bool { return x.shop == shop })
}

// add blames a shop.
func (b *blamed) add(shop string, now time.Time) {
	*b = append(*b, voice{strings.Clone(shop), now})
}

// forget takes a shop out, and those that were silent since a time.
func (b *blamed) forget(shop string, since time.Time) {
	*b = slices.DeleteFunc(*b, func(x voice) bool { return x.shop == shop || x.at.Before(since) })
}
