package limiter

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/breaker"
)

// counted checks that the counts are those of the single calls.
func (d *desk) counted(name string, tickets []*Ticket) {
	d.Helper()
	want := map[string]int{}
	for _, t := range tickets {
		if d.waits(t) {
			want[d.l.View(t, d.now).Cause]++
		}
	}
	if diff := cmp.Diff(want, d.l.Waiting(d.now)); diff != "" {
		d.Errorf("%s: Waiting (-want +got):\n%s", name, diff)
	}
}

func TestWaitingCountsWhatViewsSay(t *testing.T) {
	c := tokens(Limit{Rate: 0.5, Burst: 1}, off, Limit{Rate: 0.25, Burst: 1})
	c.MaxInFlight = 2
	d := newDesk(t, c)
	var all []*Ticket
	ask := func(c Claim) Answer {
		a, ticket := d.l.Ask(d.claim(c), d.now)
		if ticket != nil {
			all = append(all, ticket)
		}
		return a
	}
	d.counted("nobody", all)
	first, second := ask(Claim{Shop: "a", Retry: true}), ask(Claim{})
	for i := range 6 {
		shop := fmt.Sprint(i % 3)
		ask(Claim{Shop: shop})
		ask(Claim{Shop: shop, Retry: true})
		ask(Claim{Shop: shop, Retry: true, NotBefore: at(time.Duration(i+1) * time.Second), Cause: "backoff"})
		ask(Claim{Host: "b.test:80", Retry: true, NotBefore: at(5 * time.Second), Cause: "retry_after"})
	}
	d.counted("behind two slots", all)
	d.l.Pause(host, "1", at(4*time.Second), d.now)
	d.counted("one shop paused", all)
	d.l.Leave(all[2], d.now)
	d.l.Leave(all[0], d.now)
	d.counted("two left", all)
	d.end(first.Grant, breaker.Alive)
	d.end(second.Grant, breaker.Alive)
	for range 20 {
		for _, t := range all {
			if !d.waits(t) && t.Answer().Refused == "" {
				d.l.Report(t.Answer().Grant, breaker.Alive, d.now)
				d.l.Release(t.Answer().Grant, d.now)
			}
		}
		d.until(d.now.Add(time.Second))
		d.counted(d.now.Sub(t0).String(), all)
	}
	d.fail("b.test:80")
	ask(Claim{Host: "b.test:80"})
	d.counted("one host cut off", all)
	d.until(at(10 * time.Minute))
	d.counted("in the end", all)
}

func TestShortCountsThoseBeforeAnEmptyBucket(t *testing.T) {
	c := tokens(Limit{Rate: 1, Burst: 3}, off, Limit{Rate: 0.1, Burst: 1})
	d := newDesk(t, c)
	d.start(Claim{Shop: "a", TaskType: "x", Retry: true})
	d.wait(Claim{Shop: "a", TaskType: "x", Retry: true}, causeTokens, at(10*time.Second))
	d.wait(Claim{Shop: "a", Retry: true, NotBefore: at(time.Second), Cause: "backoff"}, "backoff", at(time.Second))
	want := map[string]int{"global": 0, "task_type": 0, "shop": 1}
	if diff := cmp.Diff(want, d.l.Short(d.now)); diff != "" {
		t.Errorf("one shop's token is used (-want +got):\n%s", diff)
	}
	d.start(Claim{Retry: true})
	d.start(Claim{Retry: true})
	d.wait(Claim{Retry: true}, causeTokens, at(2*time.Second))
	want = map[string]int{"global": 2, "task_type": 0, "shop": 1}
	if diff := cmp.Diff(want, d.l.Short(d.now)); diff != "" {
		t.Errorf("none of the global ones are left either (-want +got):\n%s", diff)
	}
	d.fail(host)
	want = map[string]int{"global": 0, "task_type": 0, "shop": 0}
	if diff := cmp.Diff(want, d.l.Short(d.now)); diff != "" {
		t.Errorf("the breaker is what they wait for (-want +got):\n%s", diff)
	}
}

// What an outage cost is told with its end, and with the end of what it left, also
// where the host failed again on the way.
func TestEventsSayWhatAnOutageCost(t *testing.T) {
	d := newDesk(t, config)
	d.l.GaveUp("unknown:80", d.now)
	d.fail(host)
	d.l.GaveUp(host, d.now)
	first, second := d.wait(Claim{}, causeBreaker, at(2*time.Second)), d.wait(Claim{}, causeBreaker, at(2*time.Second))
	if g, _ := d.l.Host(host, at(time.Second)); g.Longest != time.Second || g.Outage.Most != 2 || g.Outage.GaveUp != 1 {
		t.Errorf("Host = %+v with %+v, want two waiting for a second, one given up", g, g.Outage)
	}
	d.until(at(2 * time.Second))
	d.end(d.granted("the probe", first).Grant, breaker.Served)
	d.end(d.granted("the other", second).Grant, breaker.Served)
	over := d.events[len(d.events)-1]
	if over.To != breaker.Closed || !over.Outage.Equal(t0) || over.Waited != 2 || over.GaveUp != 1 {
		t.Errorf("event = %+v, want the end of an outage that began at the start, with 2 and 1", over)
	}
	d.l.Hosts(at(time.Minute)) // nobody is left: it is over
	d.l.GaveUp(host, at(time.Minute))
	left := d.events[len(d.events)-1]
	if left.Reason != breaker.ReasonWorkedOff || !left.Outage.Equal(t0) || left.Waited != 2 || left.GaveUp != 1 {
		t.Errorf("event = %+v, want all worked off, with 2 and 1", left)
	}
}

// idleFor counts the ticks of the loop that the proxy runs while calls wait that claim
// makes, once they all stand where they wait. What is granted fails at once.
func idleFor(t *testing.T, c Config, claim func(i int) Claim, d time.Duration) (ticks, granted int) {
	synctest.Test(t, func(t *testing.T) {
		l := New(c, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var runner, calls sync.WaitGroup
		runner.Go(func() { runTicks(ctx, l, &ticks) })
		for range 20 {
			g, _ := attemptOnce(l, &Claim{Host: "down.test:80"})
			l.Report(g, breaker.Failed, time.Now())
			l.Release(g, time.Now())
		}
		var mu sync.Mutex
		for i := range 5000 {
			calls.Go(func() {
				mine := claim(i)
				answer, ticket := l.Ask(&mine, time.Now())
				if ticket == nil {
					l.Release(answer.Grant, time.Now()) // the only one that need not wait
					return
				}
				select {
				case <-ticket.Ready():
					mu.Lock()
					granted++
					mu.Unlock()
					l.Report(ticket.Answer().Grant, breaker.Failed, time.Now())
					l.Release(ticket.Answer().Grant, time.Now())
				case <-ctx.Done():
					l.Leave(ticket, time.Now())
				}
			})
		}
		synctest.Wait()
		ticks, granted = 0, 0
		time.Sleep(d)
		synctest.Wait()
		n, m := ticks, granted
		cancel()
		calls.Wait()
		runner.Wait()
		ticks, granted = n, m
	})
	return ticks, granted
}

// 5,000 calls wait for a minute: the loop wakes up at the date of who starts
// next, and again when that has moved the next date; never besides.
func TestNobodyIsBusyWhile5000Wait(t *testing.T) {
	c := tokens(Limit{Rate: 0.2, Burst: 1}, off, off)
	c.MaxWait, c.MaxWaiting = time.Hour, 10_000
	c.Breaker = breaker.Config{ConsecutiveFailures: 5, FailureRatio: 0.5, MinCalls: 20, Window: 10 * time.Second, Open: 500 * time.Millisecond, OpenMax: 5 * time.Second, Probes: 1}
	for name, tt := range map[string]struct {
		claim  func(i int) Claim
		grants int
	}{
		"for a token": {func(int) Claim { return Claim{Host: host, Retry: true, MaxWait: time.Hour} }, 12},
		"for a Retry-After": {func(int) Claim {
			return Claim{Host: host, NotBefore: time.Now().Add(2 * time.Minute), Cause: "retry_after"}
		}, 0},
		"for a host that is down": {func(int) Claim { return Claim{Host: "down.test:80", MaxWait: time.Hour, ProbeTimeout: time.Minute} }, 14}, // after 1, 2, 4 s, then each 5 s
	} {
		t.Run(name, func(t *testing.T) {
			if ticks, granted := idleFor(t, c, tt.claim, time.Minute); ticks > 2*tt.grants || granted != tt.grants {
				t.Errorf("%d ticks for %d starts, want at most two each for %d", ticks, granted, tt.grants)
			}
		})
	}
}
