package journal

import (
	"context"
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
	queue   chan *attempt.Summary
	lost    func(calls int64)

	dropped atomic.Int64

	// Of Run and Flush, which take turns.
	batch  []*attempt.Summary
	told   int64     // of dropped
	toldAt time.Time // when
}

// NewRecorder returns a Recorder for a Journal. lost is told how many calls were
// dropped since it was told last, once a minute at most; nil: nobody is.
func NewRecorder(j Journal, lost func(calls int64)) *Recorder {
	if lost == nil {
		lost = func(int64) {}
	}
	return &Recorder{journal: j, queue: make(chan *attempt.Summary, mostQueued), lost: lost}
}

// Add takes a call that ended, which nobody changes any more. It never blocks.
func (r *Recorder) Add(s *attempt.Summary) {
	select {
	case r.queue <- s:
	default:
		r.dropped.Add(1)
	}
}

// Dropped is how many calls were dropped.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

// Run hands calls on until ctx ends: when after has fired, which is asked anew
// whenever the first of some waits, and earlier when many wait. What came last is
// left to Flush.
func (r *Recorder) Run(ctx context.Context, after func() <-chan time.Time) {
	var due <-chan time.Time // nil: nothing waits
	queue := r.queue
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-due:
			r.take()
			r.tell(now)
		case s := <-queue:
			if r.batch = append(r.batch, s); len(r.batch) == 1 {
				due = after()
			}
			if len(r.batch) < enough {
				continue
			}
			r.take()
		}
		due, queue = nil, r.queue
		if r.note(ctx) != nil {
			due, queue = after(), nil // until then they wait
		}
	}
}

// Flush hands on all that waits. It is called after Run.
func (r *Recorder) Flush(ctx context.Context) error {
	for {
		r.take()
		if len(r.batch) == 0 {
			return nil
		}
		if err := r.note(ctx); err != nil {
			return err
		}
	}
}

// take fills the batch with what waits.
func (r *Recorder) take() {
	for len(r.batch) < mostTogether {
		select {
		case s := <-r.queue:
			r.batch = append(r.batch, s)
		default:
			return
		}
	}
}

// note hands the batch on; it stays when that fails.
func (r *Recorder) note(ctx context.Context) error {
	if len(r.batch) == 0 {
		return nil
	}
	if err := r.journal.Note(ctx, r.batch); err != nil {
		return err
	}
	clear(r.batch)
	r.batch = r.batch[:0]
	return nil
}

// tell says how many were dropped, when it is time.
func (r *Recorder) tell(now time.Time) {
	if n := r.dropped.Load(); n > r.told && now.Sub(r.toldAt) >= tellEvery {
		r.lost(n - r.told)
		r.told, r.toldAt = n, now
	}
}
