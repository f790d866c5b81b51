package proxy

import (
	"context"
	"errors"
	"time"

	"retryproxy/deadletter"
	"retryproxy/idempotency"
)

// Later gives a letter a time, o.At, at which it is run again as by Requeue, by whichever
// process keeps the store then; it takes the place of another one that it had. What a
// rule says then is noted on the letter. Errors: of findLetter and deadletter.MayLater,
// ErrNoRequest, ErrBusy, idempotency.ErrUnavailable.
func (p *Proxy) Later(ctx context.Context, id string, o deadletter.Order) error {
	if err := o.CheckOptional(); err != nil {
		return err
	}
	rec, err := p.findLetter(ctx, id)
	if err != nil {
		return err
	}
	return p.later(ctx, &rec, &o)
}

// later is Later of a record.
func (p *Proxy) later(ctx context.Context, rec *idempotency.Record, o *deadletter.Order) error {
	if err := deadletter.MayLater(rec, o, time.Now()); err != nil {
		return err
	}
	if err := p.hasRequest(ctx, rec); err != nil {
		return err
	}
	note := o.LaterNote(rec, time.Now())
	_, err := p.Store.Advance(ctx, rec.ID, rec.State, rec.State, idempotency.Change{
		Now: note.At, Version: rec.Version, NextAt: o.At, TTL: deadletter.Outlives(rec, o.At, note.At), Note: note,
	})
	if err != nil {
		return letterError(err)
	}
	p.keeper.expect(o.At)
	p.logLetter("dead letter will be requeued later", rec, note.Did, o.Signed, "at", o.At)
	return nil
}

// hasRequest fails for a letter that there is nothing to be sent of.
func (p *Proxy) hasRequest(ctx context.Context, rec *idempotency.Record) error {
	select {
	case p.reading <- struct{}{}: // it is in memory
		defer func() { <-p.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := p.Store.Load(ctx, rec.ID)
	if errors.Is(err, idempotency.ErrNotFound) {
		return deadletter.ErrNoRequest
	}
	return err
}

// laterOf gives a letter of a bulk its time: they are due one after the other.
func (p *Proxy) laterOf(ctx context.Context, b *bulk, rec *idempotency.Record, o *deadletter.BulkOrder) error {
	order := bulkOrder(o)
	order.At = o.At.Add(time.Duration(b.look().Later) * o.Every)
	if err := p.later(ctx, rec, &order); err != nil {
		return b.refused(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.view.Later++
	b.view.Last = rec.Receipt
	return ctx.Err()
}
