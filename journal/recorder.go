package journal

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/attempt"
)

// Bounds of a Recorder.
const (
	mostQueued   = 16384
	enough       = 256  // calls that do not wait for the next tick
	mostTogether = 1024 // in one Note
)

// tellEvery is how often it is told that calls were dropped.
const tellEvery = time.Minute

// Recorder hands calls that ended on to a Journal, many at once and never so that
// a call waits for it. While the Journal is unavailable they wait; those for which
// there is no room are dropped and counted.
type Recorder struct {
	journal Journal
	lost    func(calls int64)
	wake    chan struct{} // has one when the first call waits, and when enough do

	mu      sync.Mutex
	waiting []*attempt.Summary // oldest first; the Journal reads some of the first

	dropped atomic.Int64

	// Of Run.
	told   int64     // of dropped
	toldAt time.Time // when
}

// NewRecorder returns a Recorder for a Journal. lost is told how many calls were
// dropped since it was told last, once a minute at most; nil: nobody is.
func NewRecorder(j Journal, lost func(calls int64)) *Recorder {
	if lost == nil {
		lost = func(int64) {}
	}
	return &Recorder{journal: j, lost: lost, wake: make(chan struct{}, 1)}
}

// Add takes a call that ended, which nobody changes any more. It waits for nothing,
// and wakes Run for few calls only: that would cost more than all else here.
func (r *Recorder) Add(s *attempt.Summary) {
	r.mu.Lock()
	n := len(r.waiting) + 1
	if n <= mostQueued {
		r.waiting = append(r.waiting, s)
	}
	r.mu.Unlock()
	switch {
	case n > mostQueued:
		r.dropped.Add(1)
	case n == 1 || n == enough:
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Dropped is how many calls were dropped.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

// Run hands calls on until ctx ends: when after has fired, which is asked anew
// whenever the first of some waits, and earlier when many wait. What came last is
// left to Flush.
func (r *Recorder) Run(ctx context.Context, after func() <-chan time.Time) {
	var due <-chan time.Time // nil: nothing waits
	wake := r.wake
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-due:
			r.tell(now)
		case <-wake:
			if n := len(r.first()); n < enough {
				if due == nil && n > 0 {
					due = after()
				}
				continue
			}
		}
		due, wake = nil, r.wake
		err := r.note(ctx)
		for err == nil && len(r.first()) >= enough {
			err = r.note(ctx)
		}
		if err != nil {
			due, wake = after(), nil // until then they wait
		} else if len(r.first()) > 0 {
			due = after()
		}
	}
}

// Flush hands on all that waits. It is called after Run.
func (r *Recorder) Flush(ctx context.Context) error {
	for len(r.first()) > 0 {
		if err := r.note(ctx); err != nil {
			return err
		}
	}
	return nil
}

// first gives the oldest that wait, as many as go together.
func (r *Recorder) first() []*attempt.Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting[:min(len(r.waiting), mostTogether)]
}

// note hands the oldest on; they stay when that fails.
func (r *Recorder) note(ctx context.Context) error {
	calls := r.first()
	if len(calls) == 0 {
		return nil
	}
	if err := r.journal.Note(ctx, calls); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.Delete(r.waiting, 0, len(calls)) // what comes meanwhile is behind them
	return nil
}

// tell says how many were dropped, when it is time.
func (r *Recorder) tell(now time.Time) {
	if n := r.dropped.Load(); n > r.told && now.Sub(r.toldAt) >= tellEvery {
		r.lost(n - r.told)
		r.told, r.toldAt = n, now
	}
}
