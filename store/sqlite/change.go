package sqlite

import (
	"context"
	"strings"
	"time"

	"retryproxy/idempotency"
)

// Begin implements idempotency.Store. It reads c.Request until it returns, and
// keeps nothing of it.
func (s *Store) Begin(ctx context.Context, c idempotency.Claim, now time.Time) (idempotency.Begun, error) {
	if c.TTL == 0 {
		c.TTL = s.bounds().TTL
	}
	c = ownClaim(c)
	var begun idempotency.Begun
	err := s.submit(ctx, func(w *writer) (err error) {
		begun, err = w.begin(c, now)
		return err
	})
	if err != nil {
		return idempotency.Begun{}, err
	}
	begun.Record = begun.Record.Clone()
	return begun, nil
}

// ownClaim is c with names that keep no read buffer alive as long as the call
// lasts.
func ownClaim(c idempotency.Claim) idempotency.Claim {
	for _, text := range []*string{&c.Tenant, &c.Key, &c.Host, &c.Path, &c.Labels.Shop, &c.Labels.ShopTier, &c.Labels.TaskType} {
		*text = strings.Clone(*text)
	}
	return c
}

func (w *writer) begin(c idempotency.Claim, now time.Time) (idempotency.Begun, error) {
	if !w.within && large(c.Request) {
		return idempotency.Begun{}, errDirect
	}
	old, err := w.find(c.ID)
	if err != nil {
		return idempotency.Begun{}, err
	}
	if old == nil {
		return w.first(c, now)
	}
	begun := idempotency.Admit(&old.rec, c, now)
	if begun.Result != idempotency.Fresh {
		return begun, nil
	}
	return begun, w.start(old, begun.Record, c.Request)
}

// first begins a record that does not exist.
func (w *writer) first(c idempotency.Claim, now time.Time) (idempotency.Begun, error) {
	if !w.roomFor(c.Tenant) {
		if !w.within {
			return idempotency.Begun{}, errDirect
		}
		if err := w.makeRoom(c.Tenant, now); err != nil {
			return idempotency.Begun{}, err
		}
	}
	begun := idempotency.Admit(nil, c, now)
	return begun, w.start(nil, begun.Record, c.Request)
}

// start begins a run, on a record that ended or on a new one (old is nil).
func (w *writer) start(old *row, rec idempotency.Record, q *idempotency.Request) error {
	r, request := &row{rec: rec}, partNone
	switch {
	case q == nil:
	case w.within:
		r.whole, request = q, partNew
	default:
		r.request, request = codedRequest(q), partNew
	}
	r.follow(old, request, partNone)
	return w.stage(old, r, request, partNone)
}

// large says that a request is too large to be kept twice.
func large(q *idempotency.Request) bool { return q != nil && len(q.Body) > largeBody }

// Bury implements idempotency.Store.
func (s *Store) Bury(ctx context.Context, c idempotency.Claim, ch idempotency.Change) (idempotency.Record, error) {
	if c.TTL == 0 {
		c.TTL = s.bounds().TTL
	}
	c = ownClaim(c)
	b := s.bounds()
	ch.Answer = ch.Answer.Bounded(b.MaxResponse, b.Bytes)
	var rec idempotency.Record
	err := s.submit(ctx, func(w *writer) (err error) {
		rec, err = w.bury(c, ch)
		return err
	})
	if err != nil {
		return idempotency.Record{}, err
	}
	return rec.Clone(), nil
}

func (w *writer) bury(c idempotency.Claim, ch idempotency.Change) (idempotency.Record, error) {
	old, err := w.find(c.ID)
	switch {
	case err != nil:
		return idempotency.Record{}, err
	case old != nil && !old.rec.Expired(ch.Now):
		return idempotency.Record{}, idempotency.ErrConflict
	case !w.within && (large(c.Request) || !w.roomFor(c.Tenant) || w.exceeds(ch.Answer)):
		return idempotency.Record{}, errDirect
	}
	if _, err := w.begin(c, ch.Now); err != nil {
		return idempotency.Record{}, err
	}
	ch.Owner = c.Owner
	return w.advance(c.ID, idempotency.StateRunning, idempotency.StateDead, ch)
}

// Lease implements idempotency.Store: the lock of the file keeps others out.
func (s *Store) Lease(context.Context, idempotency.ID, string, time.Duration) error { return nil }

func (w *writer) forgetAnswer(r *row) error {
	if r.answer == 0 {
		return nil
	}
	return w.exec(dropAnswer, r.answer)
}

// Advance implements idempotency.Store.
func (s *Store) Advance(ctx context.Context, id idempotency.ID, from, to idempotency.State, ch idempotency.Change) (idempotency.Record, error) {
	b := s.bounds()
	ch.Answer = ch.Answer.Bounded(b.MaxResponse, b.Bytes)
	ch.Append = append(ch.Append[:0:0], ch.Append...)
	var rec idempotency.Record
	err := s.submit(ctx, func(w *writer) (err error) {
		rec, err = w.advance(id, from, to, ch)
		return err
	})
	if err != nil {
		return idempotency.Record{}, err
	}
	return rec.Clone(), nil
}

func (w *writer) advance(id idempotency.ID, from, to idempotency.State, ch idempotency.Change) (idempotency.Record, error) {
	if !w.within && w.exceeds(ch.Answer) {
		return idempotency.Record{}, errDirect
	}
	old, err := w.find(id)
	switch {
	case err != nil:
		return idempotency.Record{}, err
	case old == nil || old.rec.Gone(to, ch.Now):
		return idempotency.Record{}, idempotency.ErrNotFound
	}
	r := &row{}
	if r.rec, err = idempotency.Apply(old.rec, from, to, ch); err != nil {
		return idempotency.Record{}, err
	}
	request, answer := partSame, partNone
	if to == idempotency.StateDone || to == idempotency.StateFailed {
		request = partNone
	}
	switch a := r.rec.Answer; {
	case a == nil || !a.Kept:
	case a == old.rec.Answer:
		answer = partSame
	default:
		answer, r.bytes = partNew, a.Size()
	}
	r.follow(old, request, answer)
	if err := w.stage(old, r, request, answer); err != nil || !w.within {
		return r.rec, err
	}
	return r.rec, w.shrink(ch.Now)
}

// exceeds says that an answer is too large to be kept twice, or that others have to
// go for it. Some more than the bound are taken first, as one at a time is slow.
func (w *writer) exceeds(a *idempotency.Answer) bool {
	limit, size := w.store.bounds().Bytes, a.Size()
	return size > largeBody || limit > 0 && w.tally.bytes+size > limit+min(limit/16, mostPending)
}
