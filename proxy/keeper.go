package proxy

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/limiter"
)

const (
	mostAwake   = 256 // woken calls at a time
	mostAwakeAt = 64  // of them at one host
	mostProbing = 2   // of them at a host that is cut off: the probe, and who comes after it
	mostDue     = 512 // records looked at together

	asleep     = time.Minute            // longest sleep while nothing is due
	blink      = time.Second            // next look after the store did not answer
	soon       = 250 * time.Millisecond // next look while more is due than was looked at
	restFor    = 20 * time.Millisecond  // from look to look: what comes meanwhile is woken together
	spreadMax  = 2 * time.Second        // parked calls are woken spread over so long, or a tenth of their wait
	eachPutOff = 10 * time.Millisecond  // what is put off for a host that is cut off comes again at this distance
	eachCrowd  = 2 * time.Millisecond   // and this where there are only too many
)

// keeper wakes what waits in the store without a client. It asks for what is due,
// never for everything, and lets only so many calls go on at a time: each then
// waits at the gate of its host like any other.
type keeper struct {
	sooner chan struct{} // something may be due earlier than was known
	blind  bool          // the store did not answer when it was looked at last; of Keep

	mu        sync.Mutex
	looksAt   time.Time // when it looks next; zero: it looks just now
	awake     int
	hosts     map[string]int  // how many of them at each
	crowded   bool            // somebody was not woken for want of a place
	recovered map[string]bool // hosts whose parked calls need not wait for their dates
}

func (k *keeper) init() {
	k.sooner = make(chan struct{}, 1)
	k.hosts, k.recovered = make(map[string]int), make(map[string]bool)
}

// Recovered tells that a host takes calls again: those that are parked for its
// breaker are woken at once, as fast as the host takes them.
func (p *Proxy) Recovered(host string) {
	if !p.durable {
		return
	}
	k := &p.keeper
	k.mu.Lock()
	if len(k.recovered) < mostDue { // else their dates wake them
		k.recovered[host] = true
	}
	k.mu.Unlock()
	k.signal()
}

func (k *keeper) signal() {
	select {
	case k.sooner <- struct{}{}:
	default:
	}
}

// expect tells that something is due at a time.
func (k *keeper) expect(at time.Time) {
	k.mu.Lock()
	sooner := k.looksAt.IsZero() || at.Before(k.looksAt)
	k.mu.Unlock()
	if sooner {
		k.signal()
	}
}

// spread keeps calls that were parked until the same date from being woken at once.
func (k *keeper) spread(at, now time.Time) time.Time {
	return at.Add(rand.N(max(min(at.Sub(now)/10, spreadMax), time.Millisecond)))
}

// Keep wakes what is due until ctx ends or the proxy drains. Without a durable store
// there is nothing to keep.
func (p *Proxy) Keep(ctx context.Context) error {
	if !p.durable {
		return nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var looked time.Time
	for {
		select {
		case <-timer.C:
		case <-p.keeper.sooner:
			if early := restFor - time.Since(looked); early > 0 {
				timer.Reset(early)
				continue
			}
		case <-p.draining:
			return nil
		case <-ctx.Done():
			return nil
		}
		sleep := p.look(ctx)
		looked = time.Now()
		timer.Reset(max(sleep, restFor))
	}
}

// look wakes what is due now, and says how long until the next look. Whoever shuts
// down waits for it, so that nothing is woken behind their back.
func (p *Proxy) look(ctx context.Context) time.Duration {
	p.crew.comes()
	defer p.crew.done()
	if p.drained.Load() {
		return asleep
	}
	k, now := &p.keeper, time.Now()
	k.sleepsUntil(time.Time{}) // what is parked from now on may be missing in what is due
	more := p.wakeRecovered(ctx)
	due, next, err := p.Store.Due(ctx, now, mostDue)
	if err != nil && !k.blind {
		p.Log.Error("what waits in the store cannot be looked up", "error", err)
	}
	k.blind = err != nil
	full := len(due) == mostDue
	passed, failed := p.wakeDue(ctx, due, full, now)
	at, unmoved := p.putOff(ctx, passed, now)
	next, more = sooner(next, at), more || failed || unmoved
	sleep := cmp.Or(p.LookEvery, asleep)
	switch {
	case k.blind:
		sleep = blink
	case full || more:
		sleep = soon
	case !next.IsZero():
		sleep = min(time.Until(next), sleep)
	}
	k.sleepsUntil(now.Add(sleep))
	return sleep
}

// sooner is the earlier of two dates, of which a zero one is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (k *keeper) sleepsUntil(t time.Time) {
	k.mu.Lock()
	k.looksAt = t
	k.mu.Unlock()
}

// wakeDue lets those go on whose hosts take them, and gives those back that are to
// be put off: their hosts are cut off, or there are so many that they hide others.
// failed: the store did not take some.
func (p *Proxy) wakeDue(ctx context.Context, due []idempotency.Record, full bool, now time.Time) (passed []*idempotency.Record, failed bool) {
	var group sync.WaitGroup // letters go together: each waits for its commits
	defer group.Wait()
	for i := range due {
		rec := &due[i]
		if p.drained.Load() {
			return nil, false
		}
		switch rec.State {
		case idempotency.StateInDoubt:
			if _, wanted := deadletter.LaterOf(rec); wanted {
				group.Go(func() { p.redrive(ctx, rec, now) })
			} else if !underQuestion(rec) {
				group.Go(func() { p.outOfDoubt(ctx, rec, now) })
			} else if p.keeper.enter(rec.Host, mostAwakeAt) {
				p.crew.goes(p.Log, func() {
					defer p.keeper.exit(rec.Host)
					p.askAbout(rec)
				})
			}
		case idempotency.StateParked, idempotency.StateRunning, idempotency.StateWaiting:
			woken, err := p.wake(ctx, rec, now)
			failed = failed || err != nil
			if !woken && err == nil && (full || !p.Limiter.Closed(rec.Host, now)) {
				passed = append(passed, rec)
			}
		case idempotency.StateDead:
			group.Go(func() { p.redrive(ctx, rec, now) })
		}
	}
	return passed, failed
}

// wakeRecovered wakes what is parked for hosts that recovered; true: there is more.
func (p *Proxy) wakeRecovered(ctx context.Context) (more bool) {
	k := &p.keeper
	k.mu.Lock()
	hosts := make([]string, 0, len(k.recovered))
	for host := range k.recovered {
		hosts = append(hosts, host)
	}
	k.mu.Unlock()
	for _, host := range hosts {
		if p.wakeHost(ctx, host) {
			more = true
			continue
		}
		k.mu.Lock()
		delete(k.recovered, host)
		k.mu.Unlock()
	}
	return more
}

// wakeHost wakes some of what is parked for a host's breaker; true: there is more.
func (p *Proxy) wakeHost(ctx context.Context, host string) (more bool) {
	now := time.Now()
	for _, reason := range []string{"breaker_open", "shop_breaker_open"} {
		if !p.Limiter.Admits(host, now) {
			return false // it failed again: their dates wake them
		}
		q := idempotency.Query{States: []idempotency.State{idempotency.StateParked}, Host: host, Reason: reason, Limit: mostAwakeAt}
		parked, _, err := p.Store.List(ctx, q)
		if err != nil {
			return true
		}
		for i := range parked {
			if woken, _ := p.wake(ctx, &parked[i], now); !woken {
				return true
			}
		}
		more = more || len(parked) == mostAwakeAt
	}
	return more
}

// wake lets a call go on; false: not now, its host or this process takes no more.
func (p *Proxy) wake(ctx context.Context, rec *idempotency.Record, now time.Time) (woken bool, err error) {
	if !p.mayWake(rec.Host, now) {
		return false, nil
	}
	moved, err := p.Store.Advance(ctx, rec.ID, rec.State, wokenAs(rec), p.waking(rec, now))
	if err != nil {
		p.keeper.exit(rec.Host)
		if errors.Is(err, idempotency.ErrConflict) || errors.Is(err, idempotency.ErrNotFound) {
			return true, nil // somebody else has it
		}
		return false, err // it comes up again
	}
	p.crew.goes(p.Log, func() {
		defer p.keeper.exit(rec.Host)
		p.goOn(&moved)
	})
	return true, nil
}

// mayWake takes a place for a call. A host that is cut off gets as few as it takes
// to find out whether it is well again: who waits there would keep the places from
// the calls of others.
func (p *Proxy) mayWake(host string, now time.Time) bool {
	most := mostAwakeAt
	if !p.Limiter.Closed(host, now) {
		most = mostProbing
	}
	return !p.drained.Load() && p.Limiter.Admits(host, now) && p.keeper.enter(host, most)
}

// wokenAs is the state of a call that goes on. A parked one has nothing in flight:
// should this process end before it is sent, the next one must know.
func wokenAs(rec *idempotency.Record) idempotency.State {
	if rec.State == idempotency.StateParked {
		return idempotency.StateWaiting
	}
	return rec.State
}

// waking is the change that makes the call ours. The time that it was parked does
// not count against its deadline, and it has at least that of one attempt.
func (p *Proxy) waking(rec *idempotency.Record, now time.Time) idempotency.Change {
	c := idempotency.Change{Now: now, Owner: newID(), Reason: rec.Reason, NextAt: now, Adopt: rec.State != idempotency.StateParked}
	if c.Adopt {
		c.NextAt = rec.NextAt
		return c
	}
	least := time.Minute
	if policy := p.Settings().Policies.Named(rec.Policy); policy != nil {
		least = policy.ConnectTimeout + policy.PerTryTimeout
	}
	c.Deadline = now.Add(max(rec.Deadline.Sub(rec.Updated), least))
	return c
}

// outOfDoubt makes a record a plain letter once its key is new again.
func (p *Proxy) outOfDoubt(ctx context.Context, rec *idempotency.Record, now time.Time) {
	_, err := p.Store.Advance(ctx, rec.ID, rec.State, idempotency.StateDead, idempotency.Change{
		Now: now, Reason: rec.Reason, TTL: p.Settings().LetterTTL,
		Note: &idempotency.Note{At: now, By: "retryproxy", Did: "key_free", Text: "nobody settled the doubt within idempotency.ttl: the key may be used again"},
	})
	if err != nil && !errors.Is(err, idempotency.ErrConflict) {
		p.Log.Error("a record in doubt could not be made a letter", "key_hash", idempotency.KeyHash(rec.Key), "error", err)
	}
}

// putOff gives later dates to those that are due at hosts that take no more, so that
// they do not hide the others: spread over so long that many cost little. It says
// when the first of them comes up again; failed: some are due as before.
func (p *Proxy) putOff(ctx context.Context, passed []*idempotency.Record, now time.Time) (first time.Time, failed bool) {
	parked := time.Duration(p.Store.Stats().ByState[idempotency.StateParked])
	var group sync.WaitGroup
	var unmoved atomic.Bool
	for _, rec := range passed {
		if rec.State != idempotency.StateParked {
			continue
		}
		at, _, _ := p.Limiter.Peek(&limiter.Claim{Host: rec.Host}, now)
		c, each := idempotency.Change{Now: now, Reason: rec.Reason, Deadline: rec.Deadline.Add(now.Sub(rec.Updated))}, eachCrowd
		if !p.Limiter.Closed(rec.Host, now) {
			c.Reason, each = limiter.RefusedBreaker, eachPutOff // so that its recovery wakes it
		}
		c.NextAt = later(at, now).Add(rand.N(time.Second + parked*each))
		first = sooner(first, c.NextAt)
		group.Go(func() {
			_, err := p.Store.Advance(ctx, rec.ID, rec.State, rec.State, c)
			if err != nil && !errors.Is(err, idempotency.ErrConflict) && !errors.Is(err, idempotency.ErrNotFound) {
				unmoved.Store(true)
			}
		})
	}
	group.Wait()
	return first, unmoved.Load()
}

// enter takes a place for a call at a host that has at most so many. No host gets
// more than half of what the others leave, so that some that answer nobody do not
// keep the rest from being woken.
func (k *keeper) enter(host string, most int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	here := k.hosts[host]
	if k.awake >= mostAwake || here >= min(most, max((mostAwake-k.awake+here)/2, 1)) {
		k.crowded = true
		return false
	}
	k.awake++
	k.hosts[host]++
	return true
}

// exit gives the place back.
func (k *keeper) exit(host string) {
	k.mu.Lock()
	k.awake--
	if k.hosts[host]--; k.hosts[host] == 0 {
		delete(k.hosts, host)
	}
	crowded := k.crowded
	k.crowded = false
	k.mu.Unlock()
	if crowded {
		k.signal()
	}
}
