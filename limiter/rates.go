package limiter

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// mostRates bounds the buckets of Rates: one that nobody asked for longest is full again
// when it goes, as a rule.
const mostRates = 10_000

// RateKey names what a rate is about.
type RateKey struct{ Platform, Operation, Shop string }

// Rates keep calls below limits that an upstream is known to have, call by call, first
// attempts included. A place is taken in the order in which calls ask. Make one with
// NewRates; safe for concurrent use.
type Rates struct {
	mu      sync.Mutex
	buckets *simplelru.LRU[RateKey, *rate.Limiter]
}

// NewRates returns rates of which nothing is used.
func NewRates() *Rates {
	buckets, _ := simplelru.NewLRU[RateKey, *rate.Limiter](mostRates, nil) // its only error is a size below 1
	return &Rates{buckets: buckets}
}

// Place is one that a call took; give it back when the call does not use it.
type Place struct {
	of *Rates
	r  *rate.Reservation
}

// Take takes the next place and says when it is. ok: it is at end at the latest; else
// nothing is taken.
func (s *Rates) Take(key RateKey, perSecond float64, burst int, now, end time.Time) (place Place, at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, found := s.buckets.Get(key)
	if !found {
		b = rate.NewLimiter(rate.Limit(perSecond), burst)
		s.buckets.Add(key, b)
	}
	if float64(b.Limit()) != perSecond || b.Burst() != burst { // another preset file
		b.SetLimitAt(now, rate.Limit(perSecond))
		b.SetBurstAt(now, burst)
	}
	r := b.ReserveN(now, 1)
	at = now.Add(r.DelayFrom(now))
	if at.After(end) {
		r.CancelAt(now)
		return Place{}, at, false
	}
	return Place{s, r}, at, true
}

// GiveBack gives a place back that is not used; of the zero Place nothing.
func (p Place) GiveBack(now time.Time) {
	if p.r == nil {
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.r.CancelAt(now)
}
