package main

import (
	"context"
	"time"

	"retryproxy/admin"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/journal"
)

// line is what operators see of the calls that wait, and may order about them.
func (a *app) line() admin.Line {
	return admin.Line{
		Wakeups: func(ctx context.Context, start time.Time, step time.Duration, steps int) (any, error) {
			return a.proxy.Wakeups(ctx, start, step, steps)
		},
		Expedite: func(ctx context.Context, id string, s deadletter.Signed) (any, error) {
			return a.proxy.Expedite(ctx, id, s, a.recordUnder)
		},
		Cancel: func(ctx context.Context, id string, s deadletter.Signed) (any, error) {
			return a.proxy.Cancel(ctx, id, s, a.recordUnder)
		},
	}
}

// recordUnder is the record of a call that is parked, or that is known to have ended.
func (a *app) recordUnder(ctx context.Context, callID string) (idempotency.ID, bool, error) {
	calls, _, err := a.find(ctx, journal.Query{CallID: callID, Limit: 1})
	if err != nil || len(calls) == 0 {
		return idempotency.ID{}, false, err
	}
	return idempotency.ID(calls[0].Record), true, nil
}
