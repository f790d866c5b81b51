package limiter

import (
	"testing"
	"time"
)

func TestRates(t *testing.T) {
	now := time.Unix(1000, 0)
	r := NewRates()
	take := func(shop string, patience time.Duration) (Place, time.Duration, bool) {
		p, at, ok := r.Take(RateKey{"pdd", "list", shop}, 2, 2, now, now.Add(patience))
		return p, at.Sub(now), ok
	}
	var last Place
	for i, want := range []time.Duration{0, 0, 500 * time.Millisecond, time.Second} {
		p, wait, ok := take("a", time.Minute)
		if !ok || wait != want {
			t.Errorf("call %d waits %s, %v, want %s", i+1, wait, ok, want)
		}
		last = p
	}
	if _, wait, ok := take("b", 0); !ok || wait != 0 {
		t.Errorf("another shop waits %s, %v", wait, ok)
	}
	if _, wait, ok := take("a", time.Second); ok || wait != 1500*time.Millisecond {
		t.Errorf("who has no time gets %s, %v, want no place before 1.5s", wait, ok)
	}
	last.GiveBack(now)
	if _, wait, ok := take("a", time.Second); !ok || wait != time.Second {
		t.Errorf("a place given back: %s, %v, want it after 1s", wait, ok)
	}
	now = now.Add(time.Minute)
	if _, at, ok := r.Take(RateKey{"pdd", "list", "a"}, 1, 1, now, now); !ok || !at.Equal(now) {
		t.Errorf("after a minute, with another rate: %s, %v", at.Sub(now), ok)
	}
	if _, at, ok := r.Take(RateKey{"pdd", "list", "a"}, 1, 1, now, now); ok || at.Sub(now) != time.Second {
		t.Errorf("the new rate gives %s, %v, want 1s", at.Sub(now), ok)
	}
	Place{}.GiveBack(now)
}

// However many shops there are, the buckets stay bounded.
func TestRatesAreBounded(t *testing.T) {
	r, now := NewRates(), time.Unix(1000, 0)
	for i := range mostRates + 100 {
		r.Take(RateKey{Shop: string(rune(i))}, 1, 1, now, now)
	}
	if n := r.buckets.Len(); n > mostRates {
		t.Errorf("%d buckets, want at most %d", n, mostRates)
	}
}
