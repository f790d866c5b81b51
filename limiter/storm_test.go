package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/breaker"
)

// runTicks is the loop that the proxy runs; it counts its rounds.
func runTicks(ctx context.Context, l *Limiter, rounds *int) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ; ; *rounds++ {
		if next := l.Tick(time.Now()); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.Changed():
		}
	}
}

// attemptOnce asks and waits like a call; ok is false when it was refused.
func attemptOnce(l *Limiter, c *Claim) (Grant, bool) {
	a, ticket := l.Ask(c, time.Now())
	if ticket != nil {
		<-ticket.Ready()
		a = ticket.Answer()
	}
	return a.Grant, a.Refused == ""
}

func TestCase_SF_05_TokensHoldUnderContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tokens(Limit{Rate: 10, Burst: 5}, off, off)
		c.Breaker = breaker.Config{}
		l := New(c, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var retries, refused atomic.Int64
		var group, runner sync.WaitGroup
		runner.Go(func() { runTicks(ctx, l, new(int)) })
		end := time.Now().Add(10 * time.Second)
		for range 64 {
			group.Go(func() {
				for time.Now().Before(end) {
					fresh, _ := attemptOnce(l, &Claim{Host: host, Arrived: time.Now(), MaxWait: time.Second})
					l.Report(fresh, breaker.Failed, time.Now())
					l.Release(fresh, time.Now())
					now := time.Now()
					retry, ok := attemptOnce(l, &Claim{
						Host: host, Retry: true, Arrived: now, NotBefore: now.Add(time.Millisecond), Cause: "backoff",
						Deadline: minTime(end, now.Add(time.Second)), MaxWait: time.Second,
					})
					if !ok {
						refused.Add(1)
						time.Sleep(100 * time.Millisecond)
						continue
					}
					retries.Add(1)
					l.Report(retry, breaker.Failed, time.Now())
					l.Release(retry, time.Now())
				}
			})
		}
		group.Wait()
		cancel()
		runner.Wait()
		if n := retries.Load(); n < 100 || n > 105 {
			t.Errorf("%d retries in 10 s, want 5 + 10·10 and none idle", n)
		}
		if refused.Load() == 0 {
			t.Error("nobody was refused though the line is longer than a deadline")
		}
	})
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// An upstream is down for 20 s of 30 under 50 calls a second: it must see hardly
// more than the calls, never a burst, and be back at once when it recovers.
func TestCase_SF_08_AmplificationStaysNearOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tokens(Limit{Burst: 5, Share: 0.1}, off, off)
		c.Breaker = breaker.Config{ConsecutiveFailures: 5, FailureRatio: 0.5, MinCalls: 20, Window: 10 * time.Second, Open: 500 * time.Millisecond, OpenMax: 5 * time.Second, Probes: 1}
		s := &outage{T: t, l: New(c, nil), began: time.Now(), from: 5 * time.Second, to: 25 * time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		var runner, calls sync.WaitGroup
		runner.Go(func() { runTicks(ctx, s.l, new(int)) })
		for range 1500 {
			calls.Go(s.call)
			time.Sleep(20 * time.Millisecond)
		}
		calls.Wait()
		cancel()
		runner.Wait()
		s.judge(1500)
	})
}

// outage is an upstream that answers 503 after 20 ms for a while.
type outage struct {
	*testing.T
	l        *Limiter
	began    time.Time
	from, to time.Duration

	mu    sync.Mutex
	seen  [120]int // requests by the second
	good  int
	alive time.Duration // first good answer after the outage
}

func (s *outage) call() {
	arrived := time.Now()
	for n := range 4 {
		c := Claim{Host: host, Retry: n > 0, Retries: n, Arrived: arrived, Deadline: arrived.Add(6 * time.Second), MaxWait: 30 * time.Second}
		if n > 0 {
			c.NotBefore, c.Cause = time.Now().Add(time.Duration(rand.IntN(100)+50)*time.Millisecond<<n), "backoff"
		}
		g, ok := attemptOnce(s.l, &c)
		if !ok {
			return
		}
		good := s.request()
		result := breaker.Failed
		if good {
			result = breaker.Alive
		}
		s.l.Report(g, result, time.Now())
		s.l.Release(g, time.Now())
		if good {
			return
		}
	}
}

func (s *outage) request() bool {
	since := time.Since(s.began)
	good := since < s.from || since >= s.to
	time.Sleep(20 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[int(since.Seconds())]++
	if good {
		s.good++
		if since >= s.to && s.alive == 0 {
			s.alive = time.Since(s.began)
		}
	}
	return good
}

func (s *outage) judge(calls int) {
	total := 0
	for second, n := range s.seen {
		total += n
		if second >= int(s.from.Seconds()) && second < int(s.to.Seconds()) && n > 60 {
			s.Errorf("%d requests in second %d of the outage, want at most 60", n, second)
		}
	}
	if total > calls+calls/10 {
		s.Errorf("%d requests for %d calls, want at most 1.1 times as many", total, calls)
	}
	if s.alive > s.to+5*time.Second+20*time.Millisecond {
		s.Errorf("first good answer at %v, want within open_max of %v", s.alive, s.to)
	}
	if s.good < calls/3 {
		s.Errorf("%d of %d calls succeeded, want all outside the outage", s.good, calls)
	}
}

// Many goroutines with every operation at once: nothing is lost, nothing races.
func TestStress(t *testing.T) {
	c := worldConfig
	c.MaxWaiting = 100
	synctest.Test(t, func(t *testing.T) {
		var events atomic.Int64
		l := New(c, func(breaker.Event) { events.Add(1) })
		ctx, cancel := context.WithCancel(t.Context())
		var runner, group sync.WaitGroup
		runner.Go(func() { runTicks(ctx, l, new(int)) })
		for i := range 16 {
			group.Go(func() { hammer(l, rand.New(rand.NewPCG(uint64(i), 2))) })
		}
		group.Wait()
		cancel()
		runner.Wait()
		for _, h := range l.Hosts(time.Now()) {
			if h.InFlight+h.Waiting+h.Planned != 0 {
				t.Errorf("left behind: %+v", h)
			}
		}
		if events.Load() == 0 {
			t.Error("no breaker ever opened")
		}
	})
}

// hammer does what calls, operators and reloads do.
func hammer(l *Limiter, dice *rand.Rand) {
	for i := range 150 {
		now := time.Now()
		c := Claim{
			Host: fmt.Sprint("h", dice.IntN(3)), Shop: fmt.Sprint("s", dice.IntN(4)), TaskType: fmt.Sprint("t", dice.IntN(2)),
			Retry: dice.IntN(2) == 0, Priority: dice.IntN(3), Arrived: now, Deadline: now.Add(5 * time.Second), MaxWait: 3 * time.Second,
			NotBefore: now.Add(time.Duration(dice.IntN(200)) * time.Millisecond), Cause: "backoff",
		}
		l.Peek(&c, now)
		a, ticket := l.Ask(&c, now)
		if ticket != nil {
			l.View(ticket, now)
			select {
			case <-ticket.Ready():
				a = ticket.Answer()
			case <-time.After(time.Duration(dice.IntN(2000)) * time.Millisecond):
				a = l.Leave(ticket, time.Now())
			}
		}
		time.Sleep(time.Duration(dice.IntN(50)) * time.Millisecond)
		l.Report(a.Grant, breaker.Result(dice.IntN(3)), time.Now())
		l.Release(a.Grant, time.Now())
		switch i % 25 {
		case 3:
			l.Pause(c.Host, c.Shop, now.Add(300*time.Millisecond), time.Now())
		case 7:
			l.Hosts(time.Now())
			l.Limits(time.Now())
		case 11:
			l.ResetBreaker(c.Host, time.Now())
		case 19:
			changed := worldConfig
			changed.MaxInFlight, changed.MaxWaiting = 1+dice.IntN(4), 100
			l.Configure(changed, time.Now())
		}
	}
}
