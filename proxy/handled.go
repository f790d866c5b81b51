package proxy

import (
	"time"

	"retryproxy/idempotency"
	"retryproxy/report"
)

// handled says that the retry rule had the call, and that the call is over. It had
// none that was refused before, answered from a record or by another call's attempts,
// or parked; a dead letter that runs again was counted when it became one.
func (x *exchange) handled(result string) bool {
	switch result {
	case "success", "recovered", "failed", "cancelled":
	default:
		return false
	}
	began := x.earlier+len(x.past) > 0 || x.turn.Refused != ""
	return began && x.lastRun().Kind == idempotency.ByClient
}

// handledAs is what the report gets of it at now.
func (x *exchange) handledAs(result string, now time.Time) report.Call {
	n := x.earlier + len(x.past)
	return report.Call{
		Left: result == "cancelled", Succeeded: result == "success" || result == "recovered",
		Attempts: n, Sent: n - x.unsent, Added: x.added(now),
	}
}

// added is what the call took beyond its last attempt, waits without its client
// included. A wait after that led to no further one.
func (x *exchange) added(now time.Time) time.Duration {
	since := x.begun
	if run := x.lastRun(); x.resumes && !run.Started.IsZero() {
		since = run.Started
	}
	if len(x.past) == 0 {
		return now.Sub(since)
	}
	d := x.past.Last().Started.Sub(since)
	if x.turn.Refused != "" {
		d += x.delay
	}
	return d
}
