package limiter_test

import (
	"fmt"
	"time"

	"retryproxy/breaker"
	"retryproxy/limiter"
)

// A retry beyond the burst waits for its token; a further one would have to
// wait longer than it has time, and is told so at once.
func ExampleLimiter_Ask() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	off := limiter.Limit{Off: true}
	l := limiter.New(limiter.Config{
		MaxInFlight: 10, MaxWait: 30 * time.Second, MaxWaiting: 100,
		Buckets: limiter.Buckets{Global: off, TaskType: off, Shop: limiter.Limit{Rate: 5. / 60, Burst: 1}},
	}, nil)
	retry := limiter.Claim{
		Host: "gw-api.pinduoduo.com:443", Shop: "s17", Retry: true,
		Arrived: now, Deadline: now.Add(20 * time.Second), MaxWait: 30 * time.Second,
	}

	first, _ := l.Ask(&retry, now)
	fmt.Println("first:", first.Refused == "")
	_, second := l.Ask(&retry, now)
	v := l.View(second, now)
	fmt.Println("second:", v.Cause, v.Dimension, v.Place, v.At.Sub(now))
	third, _ := l.Ask(&retry, now)
	fmt.Println("third:", third.Refused, third.Dimension, third.At.Sub(now))

	l.Report(first.Grant, breaker.Alive, now)
	l.Release(first.Grant, now)
	next := l.Tick(now)
	l.Tick(next)
	<-second.Ready()
	fmt.Println("second after", next.Sub(now), second.Answer().Refused == "")
	// Output:
	// first: true
	// second: tokens shop 1 12s
	// third: retry_limited shop 24s
	// second after 12s true
}
