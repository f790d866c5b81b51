package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"retryproxy/deadletter"
	"retryproxy/idempotency"
)

const (
	retainEvery = time.Minute
	retireEvery = time.Second
	mostRetired = 500 // letters that go at a time
	mostCounted = 10_000
)

// keep is how long dead letters are kept, and how many.
func (s *Settings) keep() deadletter.Keep {
	return deadletter.Keep{For: s.LetterTTL, Max: s.MostLetters}
}

// Retain removes dead letters beyond dead_letters.max, and says beforehand that
// some will go, by number or by age, until ctx ends. By their age the store removes
// them. Without a durable store there are none.
func (p *Proxy) Retain(ctx context.Context) error {
	if !p.durable {
		return nil
	}
	ticker := time.NewTicker(retireEvery)
	defer ticker.Stop()
	said, round, failed := deadletter.Said{}, time.Time{}, false
	for {
		if time.Since(round) >= retainEvery {
			round = time.Now()
			p.announce(ctx, said)
		}
		err := p.retireSome(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			p.Log.Error("dead letters beyond dead_letters.max could not be removed", "error", err)
		}
		failed = err != nil
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// retireSome removes some of the letters that are too many. What fails is tried again.
func (p *Proxy) retireSome(ctx context.Context) error {
	keep := p.Settings().keep()
	return p.retire(ctx, min(keep.Excess(p.Store.Stats().ByState[idempotency.StateDead]), mostRetired), keep)
}

// roomForLetters refuses one more letter of a call without a record where they come
// faster than they are removed: they must not take the room of keyed calls.
func (p *Proxy) roomForLetters() error {
	most := p.Settings().MostLetters
	if dead := p.Store.Stats().ByState[idempotency.StateDead]; dead > most+most/2 {
		return fmt.Errorf("%w: there are %d dead letters, dead_letters.max is %d", idempotency.ErrFull, dead, most)
	}
	return nil
}

// announce says which letters will go.
func (p *Proxy) announce(ctx context.Context, said deadletter.Said) {
	keep, now := p.Settings().keep(), time.Now()
	dead := p.Store.Stats().ByState[idempotency.StateDead]
	if keep.Fills(dead) && said.Due(deadletter.ByMax, now) {
		said[deadletter.ByMax] = now
		p.Log.Warn("dead letters fill up: beyond dead_letters.max the oldest will be removed", "letters", dead, "max", keep.Max)
	}
	if dead == 0 || !said.Due(deadletter.ByAge, now) {
		return
	}
	going, first, err := p.goingByAge(ctx, keep, keep.Notice(), now)
	if err == nil && going > 0 {
		said[deadletter.ByAge] = now
		p.Log.Warn("dead letters will be removed for their age (dead_letters.keep)", "letters", going, "by", first.UTC().Format(time.RFC3339))
	}
}

// retire gives up the n oldest dead letters; those in doubt stay, and those that a person
// gave a time.
func (p *Proxy) retire(ctx context.Context, n int, keep deadletter.Keep) error {
	if n == 0 {
		return nil
	}
	gone := 0
	err := p.EachLetter(ctx, deadletter.Filter{State: "dead"}, func(rec *idempotency.Record) error {
		if gone == n {
			return errEnough
		}
		if _, wanted := deadletter.LaterOf(rec); wanted {
			return nil // a person counts on it
		}
		now := time.Now()
		_, err := p.Store.Advance(ctx, rec.ID, rec.State, idempotency.StateFailed, idempotency.Change{
			Now: now, Version: rec.Version, Reason: deadletter.ReasonRetention, TTL: p.Settings().KeyTTL,
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
		p.lost(gone)
		p.Log.Warn("the oldest dead letters were removed: there were more than dead_letters.max", "letters", gone, "max", keep.Max)
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// lost tells that letters went without anybody having decided it.
func (p *Proxy) lost(letters int) {
	if h := p.Hooks.Lost; h != nil {
		h(letters)
	}
}

// GoingLetters says how many dead letters will be removed within a time, and when
// the first will be: for their age, and for dead_letters.max at the pace of the last
// day (then the date may be zero: unknown). Without a durable store there are none.
func (p *Proxy) GoingLetters(ctx context.Context, within time.Duration) (going int, first time.Time, err error) {
	if !p.durable {
		return 0, time.Time{}, nil
	}
	keep, now := p.Settings().keep(), time.Now()
	going, first, err = p.goingByAge(ctx, keep, within, now)
	dead := p.Store.Stats().ByState[idempotency.StateDead]
	if err != nil || !keep.Fills(dead) {
		return going, first, err
	}
	const day = 24 * time.Hour
	lately, err := p.countLetters(ctx, deadletter.Filter{State: "dead", Since: now.Add(-day)}, func(*idempotency.Record) bool { return true })
	growth := float64(lately) * float64(within) / float64(day)
	return max(going, keep.Excess(dead+int(growth))), first, err
}

// goingByAge counts the dead letters whose time is over within a time, and says when
// that of the first is.
func (p *Proxy) goingByAge(ctx context.Context, keep deadletter.Keep, within time.Duration, now time.Time) (going int, first time.Time, err error) {
	soon := now.Add(within)
	old := deadletter.Filter{State: "dead", Until: soon.Add(-keep.For)}
	going, err = p.countLetters(ctx, old, func(rec *idempotency.Record) bool {
		if rec.Expires.After(soon) || !rec.Expires.After(now) {
			return false // it was kept by other rules; it is gone already
		}
		if first.IsZero() || rec.Expires.Before(first) {
			first = rec.Expires
		}
		return true
	})
	return going, first, err
}

// countLetters counts letters, at most mostCounted.
func (p *Proxy) countLetters(ctx context.Context, f deadletter.Filter, counts func(*idempotency.Record) bool) (n int, err error) {
	err = p.EachLetter(ctx, f, func(rec *idempotency.Record) error {
		if counts(rec) {
			n++
		}
		if n == mostCounted {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return n, err
}
