// Package pause answers one question: which shops does a platform stop, and until when?
//
// It is told the time. A platform's answer may speak of more than one call: the shop's
// token is dead, its account stopped, a quota used up. From then on its other calls are
// not sent, until that is over.
package pause

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Reasons of a Pause.
const (
	AuthExpired    = "auth_expired"    // until a call with another token is served, or a person resumes it
	RiskControl    = "risk_control"    // until a person resumes it
	QuotaExhausted = "quota_exhausted" // until its reset
)

// Key is whose calls are meant.
type Key struct {
	Platform  string // name of the preset
	Shop      string // empty: all shops
	Operation string // empty: all operations
}

// Token is the hash of an access token; zero: none is known.
type Token [32]byte

// Pause is what a platform stopped.
type Pause struct {
	Key
	Reason        string
	Since, Until  time.Time // zero Until: it has no date
	Token         Token     // the one that failed
	Unlabelled    bool      // calls without a shop: only those with this token are meant
	Code, Message string    // of the platform
	Host          string
	Calls         int // turned away since then
	By, Note      string
}

// Event is a pause that began or ended.
type Event struct {
	Pause
	Ended bool
	Why   string // of the end: new_token, operator, reset, dropped
	At    time.Time
}

// Reasons of an end.
const (
	WhyNewToken = "new_token"
	WhyOperator = "operator"
	WhyReset    = "reset"
	WhyDropped  = "dropped" // there were too many
)

// ProbeFor is how long the call with another token may take before a further one is tried.
const ProbeFor = 30 * time.Second

// Board has all pauses. Make one with New; safe for concurrent use.
type Board struct {
	most int
	on   func(Event)
	any  atomic.Int32 // how many there are: nothing else is looked at where there are none

	mu     sync.Mutex
	pauses map[Key][]*entry
}

type entry struct {
	Pause
	dead    []Token   // those that failed, the newest last
	probe   Token     // of the call that is let through
	probing time.Time // since when
}

// New returns a board of at most most pauses. on hears of each that begins or ends, outside
// of any lock; nil: nobody does.
func New(most int, on func(Event)) *Board {
	if on == nil {
		on = func(Event) {}
	}
	return &Board{most: most, on: on, pauses: map[Key][]*entry{}}
}

// Stop begins a pause, or prolongs one of the same key and reason; first says that it is new.
func (b *Board) Stop(p Pause, now time.Time) (first bool) {
	var events []Event
	b.mu.Lock()
	p.Since = now
	e := b.find(p.Key, p.Reason, p.Token, p.Unlabelled)
	if first = e == nil; first {
		events = b.makeRoom(now)
		e = &entry{Pause: p}
		b.pauses[p.Key] = append(b.pauses[p.Key], e)
		b.any.Add(1)
		events = append(events, Event{Pause: p, At: now})
	} else {
		if !e.Until.IsZero() && (p.Until.IsZero() || p.Until.After(e.Until)) {
			e.Until = p.Until
		}
		if p.Token == e.probe {
			e.probing = time.Time{} // the new token is no better
		}
	}
	e.died(p.Token)
	b.mu.Unlock()
	b.tell(events)
	return first
}

// mostDead bounds how many tokens of a shop are remembered.
const mostDead = 8

// died remembers a token that failed.
func (e *entry) died(t Token) {
	if t == (Token{}) || slices.Contains(e.dead, t) {
		return
	}
	e.dead = append(e.dead, t)
	e.dead = e.dead[max(0, len(e.dead)-mostDead):]
}

// find is the entry of that key and reason; of calls without a shop also by their token.
func (b *Board) find(k Key, reason string, token Token, unlabelled bool) *entry {
	for _, e := range b.pauses[k] {
		if e.Reason == reason && e.Unlabelled == unlabelled && (!unlabelled || e.Token == token) {
			return e
		}
	}
	return nil
}

// ranks order what is given up when there are too many: a quota is soon learnt again.
var ranks = map[string]int{QuotaExhausted: 0, AuthExpired: 1, RiskControl: 2}

// makeRoom drops the least of all when the board is full.
func (b *Board) makeRoom(now time.Time) []Event {
	if int(b.any.Load()) < b.most {
		return nil
	}
	var least *entry
	for _, list := range b.pauses {
		for _, e := range list {
			if least == nil || cmp.Or(cmp.Compare(ranks[e.Reason], ranks[least.Reason]), e.Since.Compare(least.Since)) < 0 {
				least = e
			}
		}
	}
	return []Event{b.drop(least, WhyDropped, now)}
}

// drop takes an entry out.
func (b *Board) drop(e *entry, why string, now time.Time) Event {
	list := slices.DeleteFunc(b.pauses[e.Key], func(x *entry) bool { return x == e })
	if len(list) == 0 {
		delete(b.pauses, e.Key)
	} else {
		b.pauses[e.Key] = list
	}
	b.any.Add(-1)
	return Event{Pause: e.Pause, Ended: true, Why: why, At: now}
}

func (b *Board) tell(events []Event) {
	for i := range events {
		b.on(events[i])
	}
}

// Check says whether a call is stopped, and by which pause: the gravest. Of a shop whose
// token is dead one call with another token is let through.
func (b *Board) Check(k Key, token Token, now time.Time) (p Pause, stopped bool) {
	if b.any.Load() == 0 {
		return Pause{}, false
	}
	var events []Event
	b.mu.Lock()
	var worst, tries *entry
	for _, at := range keysOf(k) {
		for _, e := range slices.Clone(b.pauses[at]) {
			switch {
			case !e.Until.IsZero() && !now.Before(e.Until):
				events = append(events, b.drop(e, WhyReset, now))
			case e.Unlabelled && (token == Token{} || token != e.Token):
				// it is about another's calls
			case e.another(token):
				tries = e
			case worst == nil || ranks[e.Reason] > ranks[worst.Reason]:
				worst = e
			}
		}
	}
	if worst == nil && tries != nil && !tries.probes(token, now) {
		worst = tries
	}
	if worst != nil {
		worst.Calls++
		p, stopped = worst.Pause, true
	}
	b.mu.Unlock()
	b.tell(events)
	return p, stopped
}

// keysOf are the keys under which a pause may stand that is about a call.
func keysOf(k Key) []Key {
	keys := []Key{k}
	add := func(o Key) {
		if !slices.Contains(keys, o) {
			keys = append(keys, o)
		}
	}
	add(Key{k.Platform, k.Shop, ""})
	add(Key{k.Platform, "", k.Operation})
	add(Key{k.Platform, "", ""})
	return keys
}

// another says whether the token may be a good one: another than those that are dead, or
// nobody knows which are.
func (e *entry) another(token Token) bool {
	return e.Reason == AuthExpired && !e.Unlabelled && (len(e.dead) == 0 || token != (Token{}) && !slices.Contains(e.dead, token))
}

// probes says whether a call with another token is let through to try it.
func (e *entry) probes(token Token, now time.Time) bool {
	if !e.probing.IsZero() && now.Sub(e.probing) < ProbeFor {
		return false
	}
	e.probe, e.probing = token, now
	return true
}

// Served notes that the platform served a call: another token ends the pause of its shop.
func (b *Board) Served(k Key, token Token, now time.Time) {
	if b.any.Load() == 0 {
		return
	}
	var events []Event
	b.mu.Lock()
	at := Key{k.Platform, k.Shop, ""}
	for _, e := range slices.Clone(b.pauses[at]) {
		if e.another(token) && e.probe == token && !e.probing.IsZero() {
			events = append(events, b.drop(e, WhyNewToken, now))
		}
	}
	b.mu.Unlock()
	b.tell(events)
}

// Resume ends the pauses of a shop at a platform, empty: at all of them, and returns them.
func (b *Board) Resume(shop, platform, by, note string, now time.Time) []Pause {
	var events []Event
	b.mu.Lock()
	for _, e := range b.sorted() {
		if e.Shop == shop && (platform == "" || e.Platform == platform) {
			e.By, e.Note = by, note
			events = append(events, b.drop(e, WhyOperator, now))
		}
	}
	b.mu.Unlock()
	b.tell(events)
	out := make([]Pause, len(events))
	for i := range events {
		out[i] = events[i].Pause
	}
	return out
}

// List are the pauses that hold now, by platform, shop and date.
func (b *Board) List(now time.Time) []Pause {
	var events []Event
	b.mu.Lock()
	var out []Pause
	for _, e := range b.sorted() {
		if e.Until.IsZero() || now.Before(e.Until) {
			out = append(out, e.Pause)
		} else {
			events = append(events, b.drop(e, WhyReset, now))
		}
	}
	b.mu.Unlock()
	b.tell(events)
	return out
}

func (b *Board) sorted() []*entry {
	var out []*entry
	for _, list := range b.pauses {
		out = append(out, list...)
	}
	slices.SortFunc(out, func(x, y *entry) int {
		return cmp.Or(cmp.Compare(x.Platform, y.Platform), cmp.Compare(x.Shop, y.Shop), x.Since.Compare(y.Since), cmp.Compare(x.Operation, y.Operation), cmp.Compare(x.Reason, y.Reason))
	})
	return out
}
