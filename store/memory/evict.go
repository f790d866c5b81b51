package memory

import (
	"time"

	"retryproxy/idempotency"
)

// entry is one record with its places.
type entry struct {
	rec    idempotency.Record
	tenant *tenant
	links  [kinds]link
	size   int64 // of its answer
}

// tenant is who shares a limit.
type tenant struct {
	records int
	ended   chain // its records in Store.ended
}

func (s *Store) lenLocked() int { return len(s.held) + s.ended.Len() }

func (s *Store) findLocked(id idempotency.ID) *entry {
	e := s.held[id]
	if e == nil {
		e, _ = s.ended.Peek(id)
	}
	return e
}

// liveLocked finds a record that has not expired.
func (s *Store) liveLocked(id idempotency.ID, now time.Time) *entry {
	e := s.findLocked(id)
	if e != nil && e.rec.Expired(now) {
		s.removeLocked(e)
		return nil
	}
	return e
}

// addLocked keeps a new record.
func (s *Store) addLocked(rec idempotency.Record) {
	t := s.tenants[rec.Tenant]
	if t == nil {
		t = &tenant{ended: chain{kind: byTenant}}
		s.tenants[rec.Tenant] = t
	}
	t.records++
	e := &entry{rec: rec, tenant: t}
	s.states[rec.State]++
	s.held[rec.ID] = e
}

// putLocked gives an entry its next record and its places.
func (s *Store) putLocked(e *entry, rec idempotency.Record) {
	before := e.rec.State
	s.states[before]--
	s.states[rec.State]++
	e.rec = rec
	size := rec.Answer.Size()
	s.bytes += size - e.size
	e.size = size
	e.links[byAnswer].drop(byAnswer)
	e.links[byDoubt].drop(byDoubt)
	switch was, is := evictable(before), evictable(rec.State); {
	case is:
		if !was {
			delete(s.held, rec.ID)
		}
		s.usedLocked(e)
	case was:
		s.ended.Remove(rec.ID)
		e.links[byTenant].drop(byTenant)
		s.held[rec.ID] = e
	}
	if rec.State == idempotency.StateInDoubt {
		s.doubt.push(e)
		s.answeredLocked(e)
	}
}

// answeredLocked makes the answer of an entry, if it is here, the youngest.
func (s *Store) answeredLocked(e *entry) {
	if e.rec.Answer != nil && e.rec.Answer.Kept {
		s.kept.push(e)
	}
}

// evictable says that a record in this state may go when room is needed.
func evictable(state idempotency.State) bool {
	return state.Ended() && state != idempotency.StateInDoubt
}

// usedLocked makes an evictable entry the youngest.
func (s *Store) usedLocked(e *entry) {
	s.ended.Add(e.rec.ID, e)
	e.tenant.ended.push(e)
	s.answeredLocked(e)
}

func (s *Store) removeLocked(e *entry) {
	id := e.rec.ID
	if s.held[id] == e {
		delete(s.held, id)
	} else {
		s.ended.Remove(id)
	}
	for k := range kinds {
		e.links[k].drop(k)
	}
	s.states[e.rec.State]--
	s.bytes -= e.size
	if e.tenant.records--; e.tenant.records == 0 {
		delete(s.tenants, id.Tenant)
	}
}

// reclaimLocked removes a few expired records, more than one Begin adds.
func (s *Store) reclaimLocked(now time.Time) {
	for range 2 {
		_, e, ok := s.ended.GetOldest()
		if !ok || !e.rec.Expired(now) {
			break
		}
		s.removeLocked(e)
	}
	s.reclaimDoubtLocked(2, now)
}

// reclaimDoubtLocked removes at most n records whose doubt has expired.
func (s *Store) reclaimDoubtLocked(n int, now time.Time) {
	for ; n > 0 && s.doubt.length > 0 && s.doubt.oldest.rec.Expired(now); n-- {
		s.removeLocked(s.doubt.oldest)
	}
}

// roomLocked makes room for one more record of the tenant. It fails when
// everything that could go may not be evicted.
func (s *Store) roomLocked(name string, now time.Time) bool {
	if s.tryRoomLocked(name, now) {
		return true
	}
	s.reclaimDoubtLocked(s.doubt.length, now)
	return s.tryRoomLocked(name, now)
}

func (s *Store) tryRoomLocked(name string, now time.Time) bool {
	if len(s.held) >= s.config.Entries {
		return false
	}
	if t := s.tenants[name]; t != nil && t.records >= s.share && !s.evictLocked(t.ended.oldest, now) {
		return false
	}
	for s.lenLocked() >= s.config.Entries {
		_, e, _ := s.ended.GetOldest()
		s.evictLocked(e, now)
	}
	return true
}

// fitLocked evicts what is too much since Configure, as far as it has ended. The
// youngest stays: whoever waits for the end of its call is to find it.
func (s *Store) fitLocked(now time.Time) {
	for s.lenLocked() > s.config.Entries && s.ended.Len() > 1 {
		_, e, _ := s.ended.GetOldest()
		s.evictLocked(e, now)
	}
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

// shrinkLocked takes answers from the oldest records until the rest fits; what
// they leave are markers, with their places unchanged.
func (s *Store) shrinkLocked(now time.Time) {
	for s.bytes > s.config.Bytes {
		e := s.kept.oldest
		if e.rec.Expired(now) {
			s.removeLocked(e)
			continue
		}
		s.early++
		s.bytes -= e.size
		e.size = 0
		e.rec.Version++
		e.rec.Answer = marker(e.rec.Answer)
		e.links[byAnswer].drop(byAnswer)
	}
}
