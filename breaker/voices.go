package breaker

import "time"

// voices are the two shops heard of last, and when: enough to know when anybody but a
// given shop was heard of. The zero value has heard nobody.
type voices [2]struct {
	shop string
	at   time.Time
}

// hear notes a shop; empty: a call without one.
func (v *voices) hear(shop string, now time.Time) {
	if v[0].shop != shop || v[0].at.IsZero() {
		v[1] = v[0]
		v[0].shop = shop
	}
	v[0].at = now
}

// other is when somebody else than the shop was heard of last; zero: never.
func (v *voices) other(shop string) time.Time {
	if v[0].shop != shop {
		return v[0].at
	}
	return v[1].at
}
