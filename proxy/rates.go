package proxy

import (
	"time"

	"retryproxy/limiter"
)

// causeRate is a wait for a limit that the platform is known to have.
const causeRate = "rate"

// planRate takes a place among the calls of the operation, where the preset knows how
// many the platform takes; false: there is none in time.
func (x *exchange) planRate(c *limiter.Claim, now time.Time) bool {
	if x.preset == nil || x.hasPlace(c) {
		return true
	}
	l := x.preset.Limit(x.known.Operation)
	if l == nil {
		return true
	}
	key := limiter.RateKey{Platform: x.preset.Name, Operation: l.Operation}
	if l.Scope == "shop" {
		key.Shop = x.labels.Shop
	}
	place, at, ok := x.p.Rates.Take(key, l.Rate, l.Burst, now, c.Deadline)
	if !ok {
		x.turn = limiter.Answer{Refused: limiter.RefusedTokens, At: at, Cause: causeRate, Dimension: "operation"}
		return false
	}
	x.place, x.placeAt = place, at
	return x.hasPlace(c)
}

// hasPlace says that the attempt has its place already, and not to begin before it.
func (x *exchange) hasPlace(c *limiter.Claim) bool {
	if x.placeAt.IsZero() {
		return false
	}
	if x.placeAt.After(c.NotBefore) && x.placeAt.After(time.Now()) {
		c.NotBefore, c.Cause = x.placeAt, causeRate
	}
	return true
}

// giveUpPlace gives the place back of an attempt that is not made.
func (x *exchange) giveUpPlace(now time.Time) {
	x.place.GiveBack(now)
	x.place, x.placeAt = limiter.Place{}, time.Time{}
}
