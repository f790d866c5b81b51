package proxy

import (
	"context"
	"errors"
	"time"

	"retryproxy/deadletter"
	"retryproxy/idempotency"
)

const (
	retainEvery = time.Minute
	mostRetired = 500 // letters that go in one round
	mostCounted = 10_000
)

// Retain removes dead letters beyond dead_letters.max, and says beforehand that
// some will go, by number or by age, until ctx ends. By their age the store removes
// them. Without a durable store there are none.
func (p *Proxy) Retain(ctx context.Context) error {
	if !p.Store.Durable() {
		return nil
	}
	ticker := time.NewTicker(retainEvery)
	defer ticker.Stop()
	for said := (deadletter.Said{}); ; {
		p.retain(ctx, said)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// retain is one round. What fails is tried in the next one.
func (p *Proxy) retain(ctx context.Context, said deadletter.Said) {
	set, now := p.Settings(), time.Now()
	keep := deadletter.Keep{For: set.LetterTTL, Max: set.MostLetters}
	dead := p.Store.Stats().ByState[idempotency.StateDead]
	if err := p.retire(ctx, min(keep.Excess(dead), mostRetired), keep); err != nil && ctx.Err() == nil {
		p.Log.Error("dead letters beyond dead_letters.max could not be removed", "error", err)
	}
	if keep.Fills(dead) && said.Due(deadletter.ByMax, now) {
		said[deadletter.ByMax] = now
		p.warnLetters(deadletter.Warning{Cause: deadletter.ByMax, Letters: dead, Max: keep.Max})
	}
	if dead == 0 || !said.Due(deadletter.ByAge, now) {
		return
	}
	going, first, err := p.goingByAge(ctx, keep, now)
	if err == nil && going > 0 {
		said[deadletter.ByAge] = now
		p.warnLetters(deadletter.Warning{Cause: deadletter.ByAge, Letters: going, By: first})
	}
}

// retire gives up the n oldest dead letters; those in doubt stay.
func (p *Proxy) retire(ctx context.Context, n int, keep deadletter.Keep) error {
	if n == 0 {
		return nil
	}
	gone := 0
	err := p.EachLetter(ctx, deadletter.Filter{State: "dead"}, func(rec *idempotency.Record) error {
		if gone == n {
			return errEnough
		}
		now := time.Now()
		_, err := p.Store.Advance(ctx, rec.ID, rec.State, idempotency.StateFailed, idempotency.Change{
			Now: now, Reason: deadletter.ReasonRetention, TTL: p.Settings().KeyTTL,
			Note: &idempotency.Note{At: now, By: "retryproxy", Did: deadletter.DidDrop, Text: "there were more dead letters than dead_letters.max"},
		})
		switch {
		case err == nil:
			gone++
		case errors.Is(err, idempotency.ErrUnavailable):
			return err
		}
		return nil
	})
	if gone > 0 {
		p.Log.Warn("the oldest dead letters were removed: there were more than dead_letters.max", "letters", gone, "max", keep.Max)
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// goingByAge counts the dead letters whose time is soon over, and says when that of
// the first is.
func (p *Proxy) goingByAge(ctx context.Context, keep deadletter.Keep, now time.Time) (going int, first time.Time, err error) {
	soon := now.Add(keep.Notice())
	old := deadletter.Filter{State: "dead", Until: soon.Add(-keep.For)}
	err = p.EachLetter(ctx, old, func(rec *idempotency.Record) error {
		if rec.Expires.After(soon) || !rec.Expires.After(now) {
			return nil // it was kept by other rules; it is about to go
		}
		if going++; first.IsZero() || rec.Expires.Before(first) {
			first = rec.Expires
		}
		if going == mostCounted {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return going, first, err
}

// warnLetters says beforehand that letters will go.
func (p *Proxy) warnLetters(w deadletter.Warning) {
	if w.Cause == deadletter.ByMax {
		p.Log.Warn("dead letters fill up: beyond dead_letters.max the oldest will be removed", "letters", w.Letters, "max", w.Max)
	} else {
		p.Log.Warn("dead letters will be removed for their age (dead_letters.keep)", "letters", w.Letters, "by", w.By.UTC().Format(time.RFC3339))
	}
	if h := p.Hooks.Retention; h != nil {
		h(w)
	}
}
