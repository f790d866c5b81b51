package idempotency

import "time"

// NextCount is the X-Retry-Count of the next attempt: the client's count plus
// all earlier attempts on the record. It never falls; 0 is not sent.
func (r *Record) NextCount() int { return r.ClientCount + r.Attempts }

// RetriesLeft is what a client's request may still spend: maxRetries less the
// larger of the X-Retry-Count it came with and the retries recorded in the last
// window (the policy's deadline); not below 0. The first attempt of a run is no
// retry: every run buys it. A requeue does not ask, it has the full budget.
func (r *Record) RetriesLeft(maxRetries, clientCount int, window time.Duration, now time.Time) int {
	return max(0, maxRetries-max(clientCount, r.retriesSince(now.Add(-window))))
}

// retriesSince counts the retries sent after start. Attempts dropped from the
// middle of the history count with the one that follows them.
func (r *Record) retriesSince(start time.Time) int {
	n := 0
	for i := range r.History {
		a := &r.History[i]
		if !a.Started.After(start) {
			continue
		}
		if !r.opensRun(a.N) {
			n++
		}
		if i > 0 {
			n += a.N - r.History[i-1].N - 1
		}
	}
	return n
}

func (r *Record) opensRun(n int) bool {
	for i := range r.Runs {
		if r.Runs[i].First == n {
			return true
		}
	}
	return false
}
