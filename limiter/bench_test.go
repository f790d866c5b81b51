package limiter

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/breaker"
)

// BenchmarkFreshCall is what the plain successful call pays: closed breaker,
// free slot, nobody waiting, shares counted.
func BenchmarkFreshCall(b *testing.B) {
	l, now := New(config, nil), t0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		c := Claim{Host: "u1.test:80", Shop: "s17", TaskType: "order_ship", Arrived: now, Deadline: now.Add(time.Minute), MaxWait: time.Second}
		a, t := l.Ask(&c, now)
		if t != nil || a.Refused != "" {
			b.Fatal("not granted")
		}
		l.Report(a.Grant, breaker.Alive, now)
		l.Release(a.Grant, now)
	}
}

func BenchmarkFreshCallParallel(b *testing.B) {
	l := New(config, nil)
	var clock atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			now := at(time.Duration(clock.Add(1)) * time.Microsecond)
			c := Claim{Host: "u1.test:80", Shop: "s17", TaskType: "order_ship", Arrived: now, Deadline: now.Add(time.Minute), MaxWait: time.Second}
			a, _ := l.Ask(&c, now)
			l.Report(a.Grant, breaker.Alive, now)
			l.Release(a.Grant, now)
		}
	})
}

// BenchmarkRetryWithTokens is a retry that may go at once.
func BenchmarkRetryWithTokens(b *testing.B) {
	c := config
	c.Buckets = Buckets{Limit{Rate: 1e6, Burst: 1e6}, Limit{Rate: 1e6, Burst: 1e6}, Limit{Rate: 1e6, Burst: 1e6}}
	l, now := New(c, nil), t0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		a, t := l.Ask(&Claim{Host: "u1.test:80", Shop: "s17", TaskType: "order_ship", Retry: true, Arrived: now}, now)
		if t != nil || a.Refused != "" {
			b.Fatal("not granted")
		}
		l.Report(a.Grant, breaker.Alive, now)
		l.Release(a.Grant, now)
	}
}

// crowd has n retries of 100 shops, 5 task types and 3 hosts wait for tokens
// that come every millisecond.
func crowd(l *Limiter, n int) []*Ticket {
	var all []*Ticket
	for i := range n {
		_, t := l.Ask(&Claim{
			Host: fmt.Sprintf("u%d.test:80", i%3), Shop: fmt.Sprint("s", i%100), TaskType: fmt.Sprint("t", i%5),
			Retry: true, Priority: i % 4, Arrived: t0, MaxWait: time.Hour, Deadline: t0.Add(time.Hour),
		}, t0)
		if t != nil {
			all = append(all, t)
		}
	}
	return all
}

func crowded() Config {
	c := config
	c.MaxInFlight, c.MaxWait = 1e6, time.Hour
	c.Buckets = Buckets{Limit{Rate: 1000, Burst: 1}, Limit{Rate: 400, Burst: 5}, Limit{Rate: 50, Burst: 5}}
	return c
}

// BenchmarkServeTenThousand is 10 000 waiting retries served in order of their turn.
func BenchmarkServeTenThousand(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		l := New(crowded(), nil)
		all := crowd(l, 10_000)
		b.StartTimer()
		for next := l.Tick(t0); !next.IsZero(); next = l.Tick(next) {
		}
		for _, t := range all {
			if t.Answer().Refused != "" {
				b.Fatal(t.Answer())
			}
		}
	}
}

// BenchmarkTenThousandInTurn is 10 000 calls of 100 shops that wait for one slot, served
// one after the other.
func BenchmarkTenThousandInTurn(b *testing.B) {
	c := config
	c.MaxInFlight, c.MaxWait, c.MaxWaiting = 1, time.Hour, 20_000
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		l, served := New(c, nil), 0
		var line []*Ticket
		first, _ := l.Ask(&Claim{Host: "u1.test:80"}, t0)
		for i := range 10_000 {
			_, t := l.Ask(&Claim{Host: "u1.test:80", Shop: fmt.Sprint("s", i%100), Arrived: t0, MaxWait: time.Hour}, t0)
			line = append(line, t)
		}
		b.StartTimer()
		l.Release(first.Grant, t0)
		for _, t := range line { // the shops came in turn, so they go as they came
			if t.waits() || t.Answer().Refused != "" {
				b.Fatalf("%d served, the next is not: %+v", served, t.Answer())
			}
			l.Release(t.Answer().Grant, t0)
			served++
		}
	}
}

// BenchmarkReleaseWithTenThousand is one slot changing hands while 10 000 fresh
// calls wait for one.
func BenchmarkReleaseWithTenThousand(b *testing.B) {
	c := config
	c.MaxInFlight, c.MaxWait, c.MaxWaiting = 1, time.Hour, 20_000
	l := New(c, nil)
	claim := Claim{Host: "u1.test:80", Shop: "s17", Arrived: t0, MaxWait: time.Hour, Deadline: t0.Add(time.Hour)}
	var line []*Ticket
	a, _ := l.Ask(&claim, t0)
	for range 10_000 {
		_, t := l.Ask(&claim, t0)
		line = append(line, t)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Release(a.Grant, t0)
		a = line[0].Answer()
		_, t := l.Ask(&claim, t0)
		line = append(line[1:], t)
	}
}

// BenchmarkPeekWithTenThousand is the forecast for one more.
func BenchmarkPeekWithTenThousand(b *testing.B) {
	l := New(crowded(), nil)
	crowd(l, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		l.Peek(&Claim{Host: "u1.test:80", Shop: "s17", TaskType: "t1", Retry: true, NotBefore: t0.Add(time.Second), MaxWait: time.Second}, t0)
	}
}

// BenchmarkAskAndLeaveWithTenThousand is one more that gets in line and gives up.
func BenchmarkAskAndLeaveWithTenThousand(b *testing.B) {
	l := New(crowded(), nil)
	crowd(l, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		_, t := l.Ask(&Claim{Host: "u1.test:80", Shop: "s17", TaskType: "t1", Retry: true, Priority: 2, MaxWait: time.Second}, t0)
		l.Leave(t, t0)
	}
}

// BenchmarkBreakerCloses is 10 000 waiting retries coming before the tokens at once.
func BenchmarkBreakerCloses(b *testing.B) {
	c := crowded()
	c.Breaker = breaker.Config{ConsecutiveFailures: 1, MinCalls: 1e6, Window: time.Second, Open: time.Minute, OpenMax: time.Minute}
	for b.Loop() {
		b.StopTimer()
		l := New(c, nil)
		a, _ := l.Ask(&Claim{Host: "u0.test:80"}, t0)
		l.Report(a.Grant, breaker.Failed, t0)
		crowd(l, 10_000)
		b.StartTimer()
		l.ResetBreaker("u0.test:80", t0)
	}
}

// BenchmarkLookAt5000 is what a scrape of the metrics costs while 5,000 calls of 50
// shops wait at one gate.
func BenchmarkLookAt5000(b *testing.B) {
	c := config
	c.MaxInFlight, c.MaxWait, c.MaxWaiting = 1, time.Hour, 10_000
	l := New(c, nil)
	for i := range 5001 {
		l.Ask(&Claim{Host: "u1.test:80", Shop: fmt.Sprint(i % 50), Retry: i%2 == 1, MaxWait: time.Hour}, t0)
	}
	b.ReportAllocs()
	for b.Loop() {
		if l.Waiting(t0)["gate"] != 5000 || l.Hosts(t0)[0].Waiting != 5000 {
			b.Fatal("they do not wait")
		}
		l.Short(t0)
	}
}

// outaged is 10 000 retries of 200 shops and 5 task types in line at a host that is down
// and whose pace is known.
func outaged() (*Limiter, []*Ticket) {
	c := crowded()
	c.MaxInFlight, c.MaxWaiting, c.MaxWait, c.Buckets = 256, 20_000, 10*time.Minute, Buckets{Limit{Off: true}, Limit{Off: true}, Limit{Off: true}}
	c.Breaker = breaker.Config{ConsecutiveFailures: 1, MinCalls: 1e6, Window: time.Second, Open: time.Minute, OpenMax: time.Minute}
	l := New(c, nil)
	for i := range 2 {
		a, _ := l.Ask(&Claim{Host: "u.test:80"}, t0)
		l.Report(a.Grant, []breaker.Result{breaker.Served, breaker.Failed}[i], t0.Add(time.Second))
		l.Release(a.Grant, t0.Add(time.Second))
	}
	var all []*Ticket
	for i := range 10_000 {
		_, t := l.Ask(&Claim{
			Host: "u.test:80", Shop: fmt.Sprint("s", i%200), TaskType: fmt.Sprint("t", i/200%5), Retry: true, Retries: 1,
			Priority: 5, Arrived: t0.Add(time.Duration(i)), MaxWait: time.Hour, Deadline: t0.Add(time.Hour),
		}, t0)
		all = append(all, t)
	}
	return l, all
}

// BenchmarkViewOfTenThousand is what an operator's look at one of many costs.
func BenchmarkViewOfTenThousand(b *testing.B) {
	l, all := outaged()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.View(all[i*7919%len(all)], t0)
	}
}

// BenchmarkShedWithTenThousand is one more whose turn cannot come in time.
func BenchmarkShedWithTenThousand(b *testing.B) {
	l, _ := outaged()
	b.ReportAllocs()
	for b.Loop() {
		_, t := l.Ask(&Claim{Host: "u.test:80", Shop: "s17", TaskType: "t1", Retry: true, Retries: 1, Priority: 5, MaxWait: time.Hour, Deadline: t0.Add(70 * time.Second)}, t0)
		if t != nil {
			b.Fatal("it waits")
		}
	}
}

// BenchmarkHostsWithTenThousand is what a scrape of the gates costs.
func BenchmarkHostsWithTenThousand(b *testing.B) {
	l, _ := outaged()
	for b.Loop() {
		l.Hosts(t0)
	}
}
