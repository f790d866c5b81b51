package breaker

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// shopEntries bounds the table: only shops that fail are in it.
const shopEntries = 10_000

// Shops are the breakers per (shop, host). One trips when so many calls of a
// shop in a row failed there for good in the same way: that needs a person (a
// token, a ban), and retries only make it worse. It stops retries, never first
// attempts. Safe for concurrent use.
type Shops struct {
	mu      sync.Mutex
	config  ShopConfig
	entries *simplelru.LRU[shopKey, *shop]
}

type shopKey struct{ shop, host string }

// shop is a row of identical failures.
type shop struct {
	reason  string
	row     int
	tripped time.Time // zero: not
	probe   time.Time // tripped: when the next retry is let through
}

// ShopStatus is a tripped breaker as an operator sees it.
type ShopStatus struct {
	Shop, Host string
	Reason     string    // the failure that the calls shared
	Row        int       // how many in a row
	Since      time.Time // when it tripped
	Probe      time.Time // when the next retry is let through
}

// NewShops returns the table with every breaker closed.
func NewShops(config ShopConfig) *Shops {
	entries, err := simplelru.NewLRU[shopKey, *shop](shopEntries, nil)
	if err != nil {
		panic("bug: " + err.Error()) // only a size below 1 fails
	}
	return &Shops{config: config, entries: entries}
}

// MayRetry says whether a retry of that shop may go to that host. While the
// breaker is tripped one may each ProbeEvery: ok takes that chance, otherwise
// at is when the next one comes.
func (s *Shops) MayRetry(name, host string, now time.Time) (ok bool, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, found := s.entries.Get(shopKey{name, host})
	switch {
	case !found || e.tripped.IsZero():
		return true, time.Time{}
	case now.Before(e.probe):
		return false, e.probe
	}
	e.probe = now.Add(s.config.ProbeEvery)
	return true, time.Time{}
}

// Report takes the end of a call of that shop at that host: a success, or a
// failure for good named by reason (the caller leaves out what does not count).
// It returns the change to be reported, nil when there was none.
func (s *Shops) Report(name, host, reason string, ok bool, now time.Time) *Event {
	if name == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := shopKey{name, host}
	if ok {
		return s.closeLocked(key, ReasonShopAlive, now)
	}
	if s.config.IdenticalFailures <= 0 {
		return nil
	}
	e, found := s.entries.Get(key)
	if !found {
		e = &shop{}
		s.entries.Add(key, e)
	}
	return s.failLocked(key, e, reason, now)
}

// failLocked lengthens the row, or begins a new one with another reason. A
// tripped breaker keeps the reason it tripped for.
func (s *Shops) failLocked(key shopKey, e *shop, reason string, now time.Time) *Event {
	if !e.tripped.IsZero() {
		return nil
	}
	if e.reason != reason {
		e.reason, e.row = reason, 0
	}
	e.row++
	if e.row < s.config.IdenticalFailures {
		return nil
	}
	e.tripped, e.probe = now, now.Add(s.config.ProbeEvery)
	return &Event{Scope: "shop", Host: key.host, Shop: key.shop, From: Closed, To: Open, Reason: reason, At: now, Until: e.probe}
}

// Follow takes what the breaker of a host or an exit has to report, and says all that is
// to be told of it, in order: a shop that a host blames trips here, which is no news where
// it has, and the shops of a host that has recovered are let go.
func (s *Shops) Follow(e Event) []Event {
	all := []Event{e}
	var moved []*Event
	switch {
	case e.Reason == ReasonOneShop:
		all, moved = nil, []*Event{s.trip(e.Shop, e.Host, e.Reason, e.At)}
	case e.Scope == "host" && e.From != Closed && e.To == Closed:
		moved = s.hostClosed(e.Host, e.At)
	}
	for _, m := range moved {
		if m != nil {
			all = append(all, *m)
		}
	}
	return all
}

// trip trips the breaker of a shop that fails alone at a host which would have been cut
// off: that is known long before its calls have failed for good.
func (s *Shops) trip(name, host, reason string, now time.Time) *Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config.IdenticalFailures <= 0 {
		return nil
	}
	key := shopKey{name, host}
	e, found := s.entries.Get(key)
	if !found {
		e = &shop{}
		s.entries.Add(key, e)
	}
	if !e.tripped.IsZero() {
		return nil
	}
	e.reason, e.row = reason, s.config.IdenticalFailures-1
	return s.failLocked(key, e, reason, now)
}

// Reset closes one breaker by hand.
func (s *Shops) Reset(name, host string, now time.Time) *Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeLocked(shopKey{name, host}, ReasonOperator, now)
}

// hostClosed closes the breakers of every shop at a host that has recovered:
// what they counted may have been the host's fault.
func (s *Shops) hostClosed(host string, now time.Time) []*Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var events []*Event
	for _, key := range s.entries.Keys() {
		if key.host != host {
			continue
		}
		if e := s.closeLocked(key, ReasonHostClosed, now); e != nil {
			events = append(events, e)
		}
	}
	return events
}

// closeLocked forgets the row; only a tripped breaker changes its state by that.
func (s *Shops) closeLocked(key shopKey, reason string, now time.Time) *Event {
	e, found := s.entries.Peek(key)
	if !found {
		return nil
	}
	s.entries.Remove(key)
	if e.tripped.IsZero() {
		return nil
	}
	return &Event{Scope: "shop", Host: key.host, Shop: key.shop, From: Open, To: Closed, Reason: reason, At: now}
}

// Configure applies changed settings; rows and tripped breakers stay.
func (s *Shops) Configure(config ShopConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = config
}

// Tripped lists the breakers that need a person, by shop and host.
func (s *Shops) Tripped() []ShopStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []ShopStatus
	for _, key := range s.entries.Keys() {
		if e, _ := s.entries.Peek(key); !e.tripped.IsZero() {
			list = append(list, ShopStatus{key.shop, key.host, e.reason, e.row, e.tripped, e.probe})
		}
	}
	slices.SortFunc(list, func(a, b ShopStatus) int {
		return strings.Compare(a.Shop+"\x00"+a.Host, b.Shop+"\x00"+b.Host)
	})
	return list
}
