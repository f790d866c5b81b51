package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"retryproxy/deadletter"
	"retryproxy/idempotency"
)

// mostBulk is how many letters of a bulk are on their way at a time.
const mostBulk = 64

// bulks holds the latest requeue of many letters.
type bulks struct {
	mu     sync.Mutex
	latest *bulk
}

// bulk is one of them.
type bulk struct {
	mu     sync.Mutex // guards view and watch
	view   deadletter.Bulk
	watch  deadletter.Watch
	cancel context.CancelFunc
	places chan struct{} // one for each letter on its way
}

// Preview says what a bulk would do, and does nothing. Errors: as EachLetter.
func (p *Proxy) Preview(ctx context.Context, o deadletter.BulkOrder) (deadletter.Preview, error) {
	out := deadletter.NewPreview()
	order, every, now := bulkOrder(&o), o.Pace(), time.Now()
	err := p.EachLetter(ctx, o.Filter, func(rec *idempotency.Record) error {
		if out.Letters == mostCounted {
			out.More = true
			return errEnough
		}
		at, err := o.At, error(nil)
		if at.IsZero() {
			err = deadletter.MayRequeue(rec, &order)
		} else {
			at = at.Add(time.Duration(out.Would) * every)
			order.At = at
			err = deadletter.MayLater(rec, &order, now)
		}
		out.Add(deadletter.NewView(rec), at, err)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return out, err
}

func bulkOrder(o *deadletter.BulkOrder) deadletter.Order {
	return deadletter.Order{Kind: idempotency.Requeued, Bulk: true, Signed: o.Signed}
}

// StartBulk begins to run all letters again that are meant and may run, the oldest
// first. It ends with the process; the letters stay. Errors: deadletter.ErrInput,
// ErrNotKept, ErrBulk, ErrDraining.
func (p *Proxy) StartBulk(o deadletter.BulkOrder) (deadletter.Bulk, error) {
	if err := o.Check(); err != nil {
		return deadletter.Bulk{}, err
	}
	if _, err := p.letterQuery(&o.Filter); err != nil {
		return deadletter.Bulk{}, err
	}
	if p.drained.Load() {
		return deadletter.Bulk{}, deadletter.ErrDraining
	}
	o.Every = o.Pace()
	ctx, cancel := context.WithCancel(p.base)
	b := &bulk{
		cancel: cancel, places: make(chan struct{}, mostBulk), watch: deadletter.NewWatch(o.Canary),
		view: deadletter.Bulk{
			State: deadletter.BulkRunning, Filter: o.Filter.Values(), By: o.By, Note: o.Note,
			Rate: o.Every.String(), Canary: o.Canary, At: o.At, Started: time.Now(),
		},
	}
	if !p.bulks.begin(b) {
		cancel()
		return deadletter.Bulk{}, deadletter.ErrBulk
	}
	p.Log.Warn("a requeue of many dead letters begins", "by", o.By, "note", o.Note, "filter", o.Filter.Values(), "canary", o.Canary, "every", o.Every.String(), "at", o.At)
	p.crew.goes(p.Log, func() { p.runBulk(ctx, b, o) })
	return b.look(), nil
}

// begin makes b the latest, unless one is on its way.
func (s *bulks) begin(b *bulk) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != nil && s.latest.look().State == deadletter.BulkRunning {
		return false
	}
	s.latest = b
	return true
}

// Bulk is how the latest bulk stands.
func (p *Proxy) Bulk() deadletter.Bulk {
	p.bulks.mu.Lock()
	b := p.bulks.latest
	p.bulks.mu.Unlock()
	if b == nil {
		return deadletter.Bulk{State: deadletter.BulkNone, Filter: map[string]string{}}
	}
	return b.look()
}

// StopBulk ends the bulk, if one is on its way. What runs, runs on.
func (p *Proxy) StopBulk(by string) deadletter.Bulk {
	p.bulks.mu.Lock()
	b := p.bulks.latest
	p.bulks.mu.Unlock()
	if b != nil {
		b.end(deadletter.BulkCancelled, "cancelled by "+by)
	}
	return p.Bulk()
}

func (b *bulk) look() deadletter.Bulk {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.view
}

// end ends it, once.
func (b *bulk) end(state, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endLocked(state, why)
}

func (b *bulk) endLocked(state, why string) {
	if b.view.State == deadletter.BulkRunning {
		b.view.State, b.view.Why, b.view.Ended = state, why, time.Now()
	}
	b.cancel()
}

// runBulk requeues letter by letter until there is none left, or it has to stop.
func (p *Proxy) runBulk(ctx context.Context, b *bulk, o deadletter.BulkOrder) {
	defer b.cancel()
	order, next, canaries := bulkOrder(&o), time.Now(), o.Canary
	err := p.EachLetter(ctx, o.Filter, func(rec *idempotency.Record) error {
		if !o.At.IsZero() {
			return p.laterOf(ctx, b, rec, &o)
		}
		if err := deadletter.MayRequeue(rec, &order); err != nil {
			return b.refused(err) // it does not take its turn
		}
		if err := b.place(ctx, next, p.draining); err != nil {
			return err
		}
		next = time.Now().Add(o.Every)
		ended := make(chan struct{})
		_, err := p.requeue(ctx, rec, &order, func(well bool) {
			b.ended(rec.Receipt, well)
			close(ended)
		})
		if err != nil {
			<-b.places
			return b.refused(err)
		}
		b.requeued(rec.Receipt)
		if canaries--; canaries >= 0 {
			select {
			case <-ended:
			case <-ctx.Done():
			}
		}
		return ctx.Err()
	})
	for range mostBulk { // all that are on their way
		if err == nil {
			err = b.place(ctx, time.Time{}, p.draining)
		}
	}
	switch {
	case err == nil:
		b.end(deadletter.BulkEnded, "")
	case errors.Is(err, deadletter.ErrDraining), ctx.Err() != nil:
		b.end(deadletter.BulkCancelled, deadletter.ErrDraining.Error()) // unless it has ended by other means
	default:
		b.end(deadletter.BulkStopped, err.Error())
	}
	v := b.look()
	p.Log.Warn("the requeue of many dead letters is over", "state", v.State, "why", v.Why, "requeued", v.Requeued, "done", v.Done, "failed", v.Failed, "refused", v.Refused, "later", v.Later)
}

// place waits for the time and for room for one more letter.
func (b *bulk) place(ctx context.Context, at time.Time, draining <-chan struct{}) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-draining:
		return deadletter.ErrDraining
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case b.places <- struct{}{}:
		return nil
	case <-draining:
		return deadletter.ErrDraining
	case <-ctx.Done():
		return ctx.Err()
	}
}

// requeued counts a letter that began to run.
func (b *bulk) requeued(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.view.Requeued++
	b.view.Last = id
}

// refused counts a letter that may not run or that somebody else has, and passes on
// what ends the bulk.
func (b *bulk) refused(err error) error {
	for _, one := range []error{deadletter.ErrRefused, deadletter.ErrInput, deadletter.ErrBusy, deadletter.ErrClosed, deadletter.ErrNotFound, deadletter.ErrNoRequest} {
		if errors.Is(err, one) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.view.Refused++
			return nil
		}
	}
	return err
}

// ended counts how a letter ended, and stops the bulk when too many fail.
func (b *bulk) ended(id string, well bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	<-b.places
	if well {
		b.view.Done++
	} else {
		b.view.Failed++
	}
	if why := b.watch.Ended(well); why != "" {
		b.endLocked(deadletter.BulkStopped, why+": "+id)
	}
}
