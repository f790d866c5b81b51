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
	if !w.cache.Contains(c.ID) && w.roomFor(c.Tenant) {
		// Nearly all keys are new: trying is cheaper than looking.
		if begun, err := w.insert(c, now); err != nil || begun.Result == idempotency.Fresh {
			return begun, err
		}
	}
	old, err := w.find(c.ID)
	switch {
	case err != nil:
		return idempotency.Begun{}, err
	case old == nil:
		if err := w.makeRoom(c.Tenant, now); err != nil {
			return idempotency.Begun{}, err
		}
		return w.insert(c, now)
	}
	begun := idempotency.Admit(&old.rec, c, now)
	if begun.Result != idempotency.Fresh {
		return begun, nil
	}
	return begun, w.reopen(old, begun.Record, c.Request)
}

// insert begins a record that does not exist. Nothing is begun when it does.
func (w *writer) insert(c idempotency.Claim, now time.Time) (idempotency.Begun, error) {
	begun := idempotency.Admit(nil, c, now)
	r := &row{rec: begun.Record}
	id, err := w.inserted(insertRecord, r.first()...)
	if err != nil || id == 0 {
		return idempotency.Begun{}, err
	}
	r.id = id
	if c.Request != nil {
		if err := w.exec(putRequest, w.store.requestColumns(r.id, c.ID, c.Request)...); err != nil {
			return idempotency.Begun{}, err
		}
	}
	w.tally.add(r, 1)
	w.cache.Add(c.ID, r)
	return begun, nil
}

// reopen begins a run on a record that ended.
func (w *writer) reopen(old *row, rec idempotency.Record, q *idempotency.Request) error {
	r := &row{id: old.id, rec: rec}
	if err := w.exec(reopenRecord, append(append(r.identity(), r.life()...), r.id)...); err != nil {
		return err
	}
	if err := w.forgetAnswer(old); err != nil {
		return err
	}
	if err := w.replaceRequest(r, q); err != nil {
		return err
	}
	w.swap(old, r)
	return nil
}

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
	}
	if _, err := w.begin(c, ch.Now); err != nil {
		return idempotency.Record{}, err
	}
	ch.Owner = c.Owner
	return w.advance(c.ID, idempotency.StateRunning, idempotency.StateDead, ch)
}

// Lease implements idempotency.Store: the lock of the file keeps others out.
func (s *Store) Lease(context.Context, idempotency.ID, string, time.Duration) error { return nil }

func (w *writer) replaceRequest(r *row, q *idempotency.Request) error {
	if q == nil {
		return w.exec(dropRequest, r.id)
	}
	return w.exec(putRequest, w.store.requestColumns(r.id, r.rec.ID, q)...)
}

func (w *writer) forgetAnswer(r *row) error {
	if r.answer == 0 {
		return nil
	}
	return w.exec(dropAnswer, r.answer)
}

// swap counts a row that took another's place and remembers it while its call
// is not over.
func (w *writer) swap(old, r *row) {
	w.tally.add(old, -1)
	w.tally.add(r, 1)
	if r.rec.State.Ended() || r.rec.State == idempotency.StateParked {
		w.cache.Remove(r.rec.ID)
		return
	}
	w.cache.Add(r.rec.ID, r)
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
	old, err := w.find(id)
	switch {
	case err != nil:
		return idempotency.Record{}, err
	case old == nil || old.rec.Gone(to, ch.Now):
		return idempotency.Record{}, idempotency.ErrNotFound
	}
	r := &row{id: old.id}
	if r.rec, err = idempotency.Apply(old.rec, from, to, ch); err != nil {
		return idempotency.Record{}, err
	}
	if err := w.storeAnswer(r, old); err != nil {
		return idempotency.Record{}, err
	}
	if err := w.exec(moveRecord, append(r.moved(), r.id)...); err != nil {
		return idempotency.Record{}, err
	}
	if r.answer != old.answer {
		if err := w.forgetAnswer(old); err != nil {
			return idempotency.Record{}, err
		}
	}
	if to == idempotency.StateDone || to == idempotency.StateFailed {
		if err := w.exec(dropRequest, r.id); err != nil {
			return idempotency.Record{}, err
		}
	}
	w.swap(old, r)
	return r.rec, w.shrink(ch.Now)
}

// storeAnswer keeps the answer of a record that ended; what was kept already stays.
func (w *writer) storeAnswer(r, old *row) (err error) {
	a := r.rec.Answer
	switch {
	case a == nil || !a.Kept:
		return nil
	case a == old.rec.Answer:
		r.answer, r.bytes = old.answer, old.bytes
		return nil
	}
	r.bytes = a.Size()
	c := w.store.closer(r.rec.ID)
	r.answer, err = w.inserted(insertAnswer, r.id, c.text("answers.fields", fieldsText(a.Fields)), c.Seal("answers.body", a.Body), c.key())
	return err
}
