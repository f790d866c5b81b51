package memory

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"retryproxy/idempotency"
)

// entry is one record with its places in the queues.
type entry struct {
	rec    idempotency.Record
	tenant *tenant
	queue  *queue // nil while a run holds it
	used   uint64 // orders entries of different queues
	size   int64  // of its answer
}

// queue orders entries by last use. It is given room for all there can be, so
// nothing leaves it unasked.
type queue = simplelru.LRU[*entry, struct{}]

func newQueue(size int) *queue {
	q, err := simplelru.NewLRU[*entry, struct{}](max(1, size), nil)
	if err != nil {
		panic("bug: a queue without room")
	}
	return q
}

// oldest is the least recently used entry, nil when there is none.
func oldest(q *queue) *entry {
	e, _, _ := q.GetOldest()
	return e
}

// tenant is who shares a limit.
type tenant struct {
	records int
	ended   *queue // its entries in kept and bare
}

// addLocked makes an entry without a state; putLocked follows.
func (s *Store) addLocked(id idempotency.ID) *entry {
	t := s.tenants[id.Tenant]
	if t == nil {
		t = &tenant{ended: newQueue(s.config.Entries)}
		s.tenants[id.Tenant] = t
	}
	t.records++
	e := &entry{tenant: t}
	s.index[id] = e
	s.states[0]++
	return e
}

// putLocked gives an entry its next record and its places.
func (s *Store) putLocked(e *entry, rec idempotency.Record) {
	s.states[e.rec.State]--
	s.states[rec.State]++
	e.rec = rec
	size := answerSize(rec.Answer)
	s.bytes += size - e.size
	e.size = size
	s.placeLocked(e, s.queueOf(&rec))
}

// queueOf is where a record waits for its end; nil: nobody may end it.
func (s *Store) queueOf(rec *idempotency.Record) *queue {
	switch {
	case !rec.State.Ended():
		return nil
	case rec.State == idempotency.StateInDoubt:
		return s.doubt
	case rec.Answer != nil && rec.Answer.Kept:
		return s.kept
	}
	return s.bare
}

func (s *Store) placeLocked(e *entry, q *queue) {
	if e.queue != nil && e.queue != q {
		e.queue.Remove(e)
		e.tenant.ended.Remove(e)
	}
	e.queue = q
	if q != nil {
		s.usedLocked(e)
	}
}

// usedLocked makes an entry the most recent one of its queues.
func (s *Store) usedLocked(e *entry) {
	s.uses++
	e.used = s.uses
	e.queue.Add(e, struct{}{})
	if e.queue != s.doubt {
		e.tenant.ended.Add(e, struct{}{})
	}
}

func (s *Store) removeLocked(e *entry) {
	s.placeLocked(e, nil)
	s.states[e.rec.State]--
	s.bytes -= e.size
	delete(s.index, e.rec.ID)
	if e.tenant.records--; e.tenant.records == 0 {
		delete(s.tenants, e.rec.Tenant)
	}
}

// liveLocked finds a record that has not expired.
func (s *Store) liveLocked(id idempotency.ID, now time.Time) *entry {
	e := s.index[id]
	if e != nil && e.rec.Expired(now) {
		s.removeLocked(e)
		return nil
	}
	return e
}

// reclaimLocked removes a few expired records, more than one Begin adds.
func (s *Store) reclaimLocked(now time.Time) {
	for _, q := range [...]*queue{s.kept, s.bare, s.doubt} {
		s.reclaimFromLocked(q, 2, now)
	}
}

// reclaimFromLocked removes at most n expired records from the old end of q.
func (s *Store) reclaimFromLocked(q *queue, n int, now time.Time) {
	for ; n > 0; n-- {
		e := oldest(q)
		if e == nil || !e.rec.Expired(now) {
			return
		}
		s.removeLocked(e)
	}
}

// roomLocked makes room for one more record of the tenant. It fails when
// everything that could go may not be evicted.
func (s *Store) roomLocked(name string, now time.Time) bool {
	if s.tryRoomLocked(name, now) {
		return true
	}
	s.reclaimFromLocked(s.doubt, s.doubt.Len(), now)
	return s.tryRoomLocked(name, now)
}

func (s *Store) tryRoomLocked(name string, now time.Time) bool {
	if t := s.tenants[name]; t != nil && t.records >= s.share {
		if !s.evictLocked(oldest(t.ended), now) {
			return false
		}
	}
	return len(s.index) < s.config.Entries || s.evictLocked(s.oldestLocked(), now)
}

// oldestLocked is the least recently used record that may be evicted.
func (s *Store) oldestLocked() *entry {
	a, b := oldest(s.kept), oldest(s.bare)
	if a == nil || b != nil && b.used < a.used {
		return b
	}
	return a
}

func (s *Store) evictLocked(e *entry, now time.Time) bool {
	if e == nil {
		return false
	}
	if !e.rec.Expired(now) {
		s.early++
	}
	s.removeLocked(e)
	return true
}

// shrinkLocked takes answers from the oldest records until the rest fits.
// Markers stay, as if used now: what guards against a second effect goes last.
func (s *Store) shrinkLocked(now time.Time) {
	for s.bytes > s.config.Bytes {
		e := oldest(s.kept)
		if e.rec.Expired(now) {
			s.removeLocked(e)
			continue
		}
		s.early++
		rec := e.rec
		rec.Version++
		rec.Answer = marker(rec.Answer)
		s.putLocked(e, rec)
	}
}
