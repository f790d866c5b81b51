package main

import (
	"context"
	"time"

	"retryproxy/attempt"
	"retryproxy/config"
	"retryproxy/journal"
)

// How calls get into the history.
const (
	noteEvery = 200 * time.Millisecond // calls wait so long for others; a kill loses them
	flushFor  = 5 * time.Second
)

// saltsOf are those of the terms of calls.
func saltsOf(cfg *config.Config) journal.Salts {
	return journal.SaltsOf(cfg.Store.Keys().Derive("terms", len(journal.Salt{})))
}

// keepHistory notes the calls that end from now on, where the store can.
func (a *app) keepHistory() {
	a.salts = saltsOf(a.config())
	if a.store.history == nil {
		return
	}
	a.history = journal.NewRecorder(a.store.history, func(calls int64) {
		a.log.Error("the history of calls has gaps: the store did not take them in time", "calls", calls)
	})
}

// terms gives what calls are found by; nil: nobody looks.
func (a *app) terms() func(body []byte, texts ...string) []uint64 {
	if a.history == nil {
		return nil
	}
	return a.salts.Terms
}

// toOurselves says that a call was none: we answered what we were asked about.
func toOurselves(s *attempt.Summary) bool { return s.Mode == "local" }

// note keeps a call that ended.
func (a *app) note(s *attempt.Summary) {
	if a.history != nil && !toOurselves(s) {
		a.history.Add(s)
	}
}

// record notes calls until ctx ends.
func (a *app) record(ctx context.Context) error {
	if a.history == nil {
		return nil
	}
	a.history.Run(ctx, func() <-chan time.Time { return time.After(noteEvery) })
	return nil
}

// flushHistory notes what came last.
func (a *app) flushHistory() {
	if a.history == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushFor)
	defer cancel()
	if err := a.history.Flush(ctx); err != nil {
		a.log.Error("the last calls are missing in the history", "error", err)
	}
}

// dropped counts the calls that are missing in the history.
func (a *app) dropped() func() int64 {
	if a.history == nil {
		return nil
	}
	return a.history.Dropped
}
