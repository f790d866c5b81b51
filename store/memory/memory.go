// Package memory answers one question: what is known about a call while this process lives?
//
// It is the idempotency.Store in memory, bounded in records and in bytes of
// answers. Keys are lost with the process.
package memory

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"retryproxy/idempotency"
)

// Config bounds a store. All values are positive; config checks them.
type Config struct {
	Entries     int           // records; no tenant holds more than half
	Bytes       int64         // of all stored answers: fields and bodies
	MaxResponse int           // of one stored body; a larger one leaves a marker
	TTL         time.Duration // for claims that come without one
}

// Store keeps records in memory.
type Store struct {
	mu      sync.Mutex
	config  Config
	share   int // records a tenant may hold
	closed  bool
	held    map[idempotency.ID]*entry              // running, waiting, parked, in_doubt: not evicted
	ended   *simplelru.LRU[idempotency.ID, *entry] // done, failed, dead: the oldest is evicted
	kept    chain                                  // those that have their answer
	doubt   chain                                  // those of held that expire
	tenants map[string]*tenant                     // those that have a record
	bytes   int64                                  // of answers
	states  [8]int                                 // records by state
	early   int64                                  // evicted before their time
}

var _ idempotency.Store = (*Store)(nil)

// New returns an empty store.
func New(c Config) *Store {
	s := &Store{config: c, share: max(1, c.Entries/2)}
	s.resetLocked()
	return s
}

// bounds are the present ones.
func (s *Store) bounds() Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// Configure changes the bounds. What no longer fits is evicted, the oldest
// first, as far as it may be.
func (s *Store) Configure(c Config, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config, s.share = c, max(1, c.Entries/2)
	s.fitLocked(now)
	s.shrinkLocked(now)
}

// resetLocked empties the store. The queue has room without end, so that nothing
// leaves it unasked.
func (s *Store) resetLocked() {
	ended, err := simplelru.NewLRU[idempotency.ID, *entry](math.MaxInt, nil)
	if err != nil {
		panic("bug: a queue without room")
	}
	s.held, s.ended, s.tenants = make(map[idempotency.ID]*entry), ended, make(map[string]*tenant)
	s.kept, s.doubt = chain{kind: byAnswer}, chain{kind: byDoubt}
	s.bytes, s.states = 0, [8]int{}
}

var errClosed = fmt.Errorf("%w: it is closed", idempotency.ErrUnavailable)

// Begin implements idempotency.Store.
func (s *Store) Begin(_ context.Context, c idempotency.Claim, now time.Time) (idempotency.Begun, error) {
	begun, err := s.begin(ownClaim(c), now)
	if err != nil {
		return idempotency.Begun{}, err
	}
	begun.Record = begun.Record.Clone()
	return begun, nil
}

func (s *Store) begin(c idempotency.Claim, now time.Time) (idempotency.Begun, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return idempotency.Begun{}, errClosed
	}
	if c.TTL == 0 {
		c.TTL = s.config.TTL
	}
	s.reclaimLocked(now)
	e := s.liveLocked(c.ID, now)
	if e == nil {
		return s.insertLocked(c, now)
	}
	begun := idempotency.Admit(&e.rec, c, now)
	switch begun.Result {
	case idempotency.Fresh:
		s.putLocked(e, begun.Record)
	case idempotency.Replay:
		s.usedLocked(e)
	}
	return begun, nil
}

// insertLocked begins a record that does not exist.
func (s *Store) insertLocked(c idempotency.Claim, now time.Time) (idempotency.Begun, error) {
	if !s.roomLocked(c.Tenant, now) {
		return idempotency.Begun{}, idempotency.ErrFull
	}
	begun := idempotency.Admit(nil, c, now)
	s.addLocked(begun.Record)
	return begun, nil
}

// Advance implements idempotency.Store.
func (s *Store) Advance(_ context.Context, id idempotency.ID, from, to idempotency.State, ch idempotency.Change) (idempotency.Record, error) {
	if ch.Answer != nil {
		ch.Answer = s.ownAnswer(ch.Answer)
	}
	rec, err := s.advance(id, from, to, ch)
	if err != nil {
		return idempotency.Record{}, err
	}
	return rec.Clone(), nil
}

func (s *Store) advance(id idempotency.ID, from, to idempotency.State, ch idempotency.Change) (idempotency.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return idempotency.Record{}, errClosed
	}
	e := s.findLocked(id)
	if e == nil || e.rec.Gone(to, ch.Now) {
		return idempotency.Record{}, idempotency.ErrNotFound
	}
	rec, err := idempotency.Apply(e.rec, from, to, ch)
	if err != nil {
		return idempotency.Record{}, err
	}
	ownAttempts(rec.History, len(ch.Append), rec.Host)
	s.putLocked(e, rec)
	s.fitLocked(ch.Now)
	s.shrinkLocked(ch.Now)
	return e.rec, nil
}

// Get implements idempotency.Store.
func (s *Store) Get(_ context.Context, id idempotency.ID, now time.Time) (idempotency.Record, error) {
	rec, err := s.get(id, now)
	if err != nil {
		return idempotency.Record{}, err
	}
	return rec.Clone(), nil
}

func (s *Store) get(id idempotency.ID, now time.Time) (idempotency.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return idempotency.Record{}, errClosed
	}
	e := s.liveLocked(id, now)
	if e == nil {
		return idempotency.Record{}, idempotency.ErrNotFound
	}
	return e.rec, nil
}

// Stats implements idempotency.Store. Expired records count until they are
// reclaimed.
func (s *Store) Stats() idempotency.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := idempotency.Stats{Records: s.lenLocked(), ByState: make(map[idempotency.State]int), Bytes: s.bytes, EvictedEarly: s.early}
	for _, state := range idempotency.States() {
		if n := s.states[state]; n > 0 {
			st.ByState[state] = n
		}
	}
	if st.ByState[idempotency.StateParked] > 0 {
		st.OldestParked = s.oldestParkedLocked()
	}
	return st
}

// Close implements idempotency.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.resetLocked()
	return nil
}

// Bury implements idempotency.Store.
func (s *Store) Bury(_ context.Context, c idempotency.Claim, ch idempotency.Change) (idempotency.Record, error) {
	c = ownClaim(c)
	if ch.Answer != nil {
		ch.Answer = s.ownAnswer(ch.Answer)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return idempotency.Record{}, errClosed
	case s.liveLocked(c.ID, ch.Now) != nil:
		return idempotency.Record{}, idempotency.ErrConflict
	case !s.roomLocked(c.Tenant, ch.Now):
		return idempotency.Record{}, idempotency.ErrFull
	}
	if c.TTL == 0 {
		c.TTL = s.config.TTL
	}
	rec, err := idempotency.Bury(c, ch)
	if err != nil {
		return idempotency.Record{}, err
	}
	ownAttempts(rec.History, len(ch.Append), rec.Host)
	s.addLocked(idempotency.Record{ID: rec.ID, State: idempotency.StateRunning})
	e := s.held[rec.ID]
	s.putLocked(e, rec)
	s.shrinkLocked(ch.Now)
	return e.rec.Clone(), nil
}

// Lease implements idempotency.Store: nobody else has these records.
func (s *Store) Lease(context.Context, idempotency.ID, string, time.Duration) error { return nil }

// Durable implements idempotency.Store: nothing outlives the process.
func (s *Store) Durable() bool { return false }

// Pending implements idempotency.Store: a new process has no records.
func (s *Store) Pending(context.Context) ([]idempotency.Record, error) { return nil, nil }

// Load implements idempotency.Store: requests are not kept.
func (s *Store) Load(context.Context, idempotency.ID) (*idempotency.Request, error) {
	return nil, idempotency.ErrNotFound
}
