package redis

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/internal/redistest"
	"retryproxy/limiter"
)

// perMinute are the buckets of a retry of a shop.
func perMinute(global, shop int, name string) []limiter.Need {
	return []limiter.Need{
		{Dimension: "global", Rate: float64(global) / 60, Burst: global},
		{Dimension: "shop", Name: name, Rate: float64(shop) / 60, Burst: shop},
	}
}

// take asks, and requires what comes of it; wait is how long until the date, about.
func take(t *testing.T, s *Store, needs []limiter.Need, ok bool, dimension string, wait time.Duration) {
	t.Helper()
	got, at, lacking, err := s.Take(context.Background(), needs)
	if err != nil || got != ok || lacking != dimension {
		t.Fatalf("Take = %v, %q, %v, want %v, %q", got, lacking, err, ok, dimension)
	}
	if d := time.Until(at) - wait; !ok && d.Abs() > 2*time.Second {
		t.Errorf("the date is in %v, want %v", time.Until(at), wait)
	}
}

func TestTokensAreShared(t *testing.T) {
	c := config(redistest.Start(t))
	a, b := opened(t, c), opened(t, c)
	for i := range 5 {
		take(t, map[bool]*Store{true: a, false: b}[i%2 == 0], perMinute(60, 5, "s1"), true, "", 0)
	}
	take(t, a, perMinute(60, 5, "s1"), false, "shop", 12*time.Second)
	take(t, b, perMinute(60, 5, "s1"), false, "shop", 12*time.Second)
	// Who asks next is told the date after that.
	take(t, a, perMinute(60, 5, "s1"), false, "shop", 24*time.Second)
	take(t, a, perMinute(60, 5, "s1"), false, "shop", 36*time.Second)
	take(t, b, perMinute(60, 5, "s1"), false, "shop", 24*time.Second)
	take(t, a, perMinute(60, 5, "s2"), true, "", 0)

	// What was refused took nothing: 54 of 60 are left.
	var taken atomic.Int32
	var group sync.WaitGroup
	for i := range 80 {
		group.Go(func() {
			needs := perMinute(60, 100, "s3")
			needs[0].Rate, needs[1].Rate = 1e-6, 1e-6 // nothing comes in meanwhile
			ok, _, _, err := map[bool]*Store{true: a, false: b}[i%2 == 0].Take(context.Background(), needs)
			if err != nil {
				t.Errorf("Take = %v", err)
			}
			if ok {
				taken.Add(1)
			}
		})
	}
	group.Wait()
	if n := taken.Load(); n < 54 || n > 60 { // a token a second
		t.Errorf("%d tokens were left, want 54", n)
	}
}

// A bucket refills at its share of what all replicas get, where that is more.
func TestSharesAddUp(t *testing.T) {
	c := config(redistest.Start(t))
	a, b := opened(t, c), opened(t, c)
	of := func(fresh float64) []limiter.Need {
		return []limiter.Need{{Dimension: "global", Rate: 0.001, Burst: 1, Share: 0.1, Fresh: fresh}}
	}
	take(t, a, of(1), true, "", 0)
	// 0.1 of 1 and 1.5 calls a second are a token every 4 s, not every 10.
	take(t, b, of(1.5), false, "global", 4*time.Second)
}

func TestBucketThatNeverRefills(t *testing.T) {
	s := opened(t, config(redistest.Start(t)))
	needs := []limiter.Need{{Dimension: "global", Burst: 1}}
	take(t, s, needs, true, "", 0)
	take(t, s, needs, false, "global", longest)
	if ok, _, _, err := s.Take(context.Background(), nil); !ok || err != nil {
		t.Errorf("Take without buckets = %v, %v", ok, err)
	}
}

func TestTokensWithoutRedis(t *testing.T) {
	at := redistest.Start(t)
	s := opened(t, config(at))
	at.Kill()
	if _, _, _, err := s.Take(context.Background(), perMinute(60, 5, "s1")); err == nil {
		t.Error("Take without Redis has no error")
	}
}
