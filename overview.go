package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/admin"
	"retryproxy/attempt"
	"retryproxy/cli"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/policy"
	"retryproxy/trend"
)

const (
	sampleEvery = 5 * time.Second // how often it is noted how many calls wait
	figuresFor  = 2 * time.Second // how long what the store says stands in the overview
	newestFor   = time.Second     // how long it may take to find the latest letter
	lastMinutes = 10
)

// overview is what the overview shows and nobody else keeps.
type overview struct {
	started time.Time
	trend   *trend.Trend
	fault   atomic.Pointer[storeFault] // what the store could not do last; nil: it does all

	mu      sync.Mutex
	lost    int
	lostAt  time.Time
	reload  admin.Reloaded
	figures figures
}

// figures are those that take a while to find.
type figures struct {
	at              time.Time
	doubts, letters int
	parked          int
	newest          time.Time
	warnings        int
}

// countCall counts a call that ended in the trend.
func (o *overview) countCall(s *attempt.Summary) {
	if c, ok := inTrend(s); ok {
		o.trend.Call(&c)
	}
}

// inTrend is a call as the trend has it; false: it has not. Those are calls that were
// refused for the client's own fault, parked, or answered without an attempt, and tunnels
// that we opened, whose calls are counted themselves.
func inTrend(s *attempt.Summary) (c trend.Call, ok bool) {
	tunnel := s.Mode == "connect" || s.Method == "CONNECT"
	if toOurselves(s) || tunnel && len(s.Attempts) == 0 {
		return c, false
	}
	c = trend.Call{Host: s.Host, Shop: s.Labels.Shop, Ended: s.Ended}
	switch s.Result {
	case "success":
		c.Succeeded = true
	case "recovered":
		c.Succeeded, c.Recovered = true, true
	case "failed":
		c.Failed = true
	case "rejected":
		c.Failed = slices.Contains([]string{"store_unavailable", "store_full", "local_resource", "shutting_down"}, s.Reason)
		return c, c.Failed
	}
	return c, s.Result != "replay"
}

// countAttempt counts an attempt in the trend.
func (o *overview) countAttempt(a *attempt.Attempt) {
	o.trend.Attempt(a.Host, a.Started.Add(a.Duration))
}

// loses counts letters that went without anybody having decided it.
func (o *overview) loses(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lost += n
	o.lostAt = time.Now()
}

// storeFault is what a store could not do.
type storeFault struct {
	full   bool // it answers, but has no room
	detail string
}

// storeFails and storeWorks keep how the store does. Only a new record shows that there
// is room; this costs nothing while the store is well.
func (o *overview) storeFails(full bool, detail string) { o.fault.Store(&storeFault{full, detail}) }

func (o *overview) storeWorks(room bool) {
	if f := o.fault.Load(); f != nil && (room || !f.full) {
		o.fault.CompareAndSwap(f, nil)
	}
}

// reloaded notes what a reload came to.
func (o *overview) reloaded(err error) {
	r := admin.Reloaded{At: time.Now(), OK: err == nil}
	if err != nil {
		r.Error = err.Error()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reload = r
	o.figures.at = time.Time{}
}

// sampleWaiting notes how many calls wait until ctx ends.
func (a *app) sampleWaiting(ctx context.Context) error {
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			parked := a.store.Stats().ByState[idempotency.StateParked] // all that is wanted of the store's figures
			a.overview.trend.Waiting(a.waiting(figures{parked: parked}), now)
		}
	}
}

// waiting counts the calls that wait, by cause.
func (a *app) waiting(f figures) map[string]int {
	out := a.proxy.Line()
	if f.parked > 0 {
		out["parked"] = f.parked
	}
	return out
}

// known gives the figures, which are a little old at most. Nobody waits for somebody
// else who asks the store.
func (a *app) known(now time.Time) figures {
	o := &a.overview
	o.mu.Lock()
	f := o.figures
	if !f.at.IsZero() && now.Sub(f.at) < figuresFor {
		o.mu.Unlock()
		return f
	}
	if !f.at.IsZero() {
		o.figures.at = now // others make do with these
	}
	o.mu.Unlock()
	f = a.count(now)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.figures = f
	return f
}

// count asks the store.
func (a *app) count(now time.Time) figures {
	stats := a.store.Stats()
	f := figures{at: now, parked: stats.ByState[idempotency.StateParked], warnings: len(a.config().Warnings())}
	if !a.store.Durable() {
		return f // nobody can do anything about a letter there
	}
	f.letters, f.doubts = stats.ByState[idempotency.StateDead], stats.ByState[idempotency.StateInDoubt]
	if f.letters+f.doubts == 0 {
		return f
	}
	ctx, cancel := context.WithTimeout(a.life, newestFor)
	defer cancel()
	if found, _, err := a.proxy.Letters(ctx, deadletter.Filter{}, "", 1); err == nil && len(found) > 0 {
		f.newest = deadletter.Since(&found[0])
	}
	return f
}

// standing is what the overview shows beside what other routes have.
func (a *app) standing() admin.Standing {
	now := time.Now()
	cfg, f, o := a.config(), a.known(now), &a.overview
	s := admin.Standing{
		Instance: cfg.Instance, Version: cli.VersionName(version), Started: o.started,
		Waiting: a.waiting(f), Letters: f.letters, Doubts: f.doubts, Newest: f.newest,
		Store:    admin.StoreStanding{Kind: cfg.Store.Kind, Durable: a.store.Durable(), Healthy: true},
		Warnings: f.warnings, Draining: a.draining.Load(), Last: o.trend.Last(lastMinutes, now), NewCodes: a.newCodes.Unseen(),
	}
	if fault := o.fault.Load(); fault != nil {
		s.Store.Healthy, s.Store.Detail = false, fault.detail
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Lost, s.LostAt, s.ConfigFault = o.lost, o.lostAt, o.reload.Error
	return s
}

// trends is how the last hour went.
func (a *app) trends() admin.Trend {
	t := a.overview.trend
	return admin.Trend{
		Hosts: func(minutes int) trend.Hosts { return t.Hosts(minutes, time.Now()) },
		Shops: func(minutes int) trend.Shops { return t.Shops(minutes, time.Now()) },
	}
}

// problems are what is wrong with the configuration.
func (a *app) problems() admin.Problems {
	p := admin.Problems{File: a.file, Warnings: a.config().Warnings()}
	if p.Warnings == nil {
		p.Warnings = []string{}
	}
	a.overview.mu.Lock()
	defer a.overview.mu.Unlock()
	if r := a.overview.reload; !r.At.IsZero() {
		p.Reload = &r
	}
	return p
}

// seeNewCode notes that a person looked at an answer that no preset knows.
func (a *app) seeNewCode(platform, code, by string) int {
	n := a.newCodes.See(platform, code)
	if n > 0 {
		a.log.Info("a code that no preset knows was looked at", "preset", platform, "code", code, "by", by)
	}
	return n
}

// plannedWaits are the delays of a policy or variant; none: there is none of that name.
func (a *app) plannedWaits(name string) admin.Waits {
	for _, p := range a.proxy.Settings().Policies.Policies() {
		for _, p := range append([]*policy.Policy{p}, p.Variants...) {
			if p.Name == name {
				return admin.Waits{Delays: p.Delays(), Longest: p.Longest()}
			}
		}
	}
	return admin.Waits{}
}
