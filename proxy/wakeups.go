package proxy

import (
	"context"
	"time"
)

// causeParked stands for parked calls among those that wait.
const causeParked = "parked"

// Wakeups are how many calls go on when, of those that wait or are parked.
type Wakeups struct {
	Start   time.Time        `json:"start"`
	Step    int              `json:"step_s"`
	ByCause map[string][]int `json:"by_cause"` // one number for each step; what is overdue is in the first
	Later   int              `json:"later"`    // than the last step
	Undated int              `json:"undated"`  // in line for a breaker, a slot or a token, or for another call with their key
}

// NewWakeups counts from start on, in steps of whole seconds.
func NewWakeups(start time.Time, step time.Duration) *Wakeups {
	return &Wakeups{Start: start, Step: int(step / time.Second), ByCause: map[string][]int{}}
}

// Add counts n calls that go on at a time, of so many steps.
func (w *Wakeups) Add(cause string, at time.Time, n, steps int) {
	i := max(int(at.Sub(w.Start)/(time.Duration(w.Step)*time.Second)), 0)
	switch {
	case n == 0:
		return
	case i >= steps:
		w.Later += n
		return
	case w.ByCause[cause] == nil:
		w.ByCause[cause] = make([]int, steps)
	}
	w.ByCause[cause][i] += n
}

// Wakeups counts the calls that wait here, and those that are parked in the store, by when
// they go on. No call is looked at by itself. Errors: idempotency.ErrUnavailable.
func (p *Proxy) Wakeups(ctx context.Context, start time.Time, step time.Duration, steps int) (*Wakeups, error) {
	w := NewWakeups(start, step)
	dates, inLine := p.Limiter.Starts(time.Now())
	for cause, all := range dates {
		for _, at := range all {
			w.Add(cause, at, 1, steps)
		}
	}
	w.Undated = inLine + int(p.calls.following.Load())
	if !p.durable {
		return w, nil
	}
	edges := make([]time.Time, steps)
	for i := range edges {
		edges[i] = start.Add(time.Duration(i+1) * step)
	}
	counts, err := p.Store.Parked(ctx, edges)
	if err != nil {
		return nil, err
	}
	for i, n := range counts {
		w.Add(causeParked, start.Add(time.Duration(i)*step), n, steps)
	}
	return w, nil
}
