// Package pause answers one question: which shops does a platform stop, and until when?
//
// It is told the time. A platform's answer may speak of more than one call: the shop's
// token is dead, its account stopped, a quota used up. From then on its other calls are
// not sent, until that is over.
package pause

import (
	"cmp"
	"container/list"
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
	Unlabelled    bool      // of a call without a shop: only those with its token are meant
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

// ForgetAfter is how long a dead token of calls without a shop is remembered: no other token
// can end that pause, since nobody knows whose it would be.
const ForgetAfter = 24 * time.Hour

// Board has all pauses. Make one with New; safe for concurrent use.
type Board struct {
	most int
	on   func(Event)
	any  atomic.Int32 // how many there are: nothing else is looked at where there are none

	mu     sync.Mutex
	pauses map[place][]*entry
	ages   [ranks]list.List // of *entry, the oldest first, by rank
}

// place is where the pauses of the same calls stand.
type place struct {
	Key
	token Token // of calls without a shop
}

func (p *Pause) place() place {
	if p.Unlabelled {
		return place{p.Key, p.Token}
	}
	return place{Key: p.Key}
}

type entry struct {
	Pause
	age     *list.Element
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
	return &Board{most: most, on: on, pauses: map[place][]*entry{}}
}

// Stop begins a pause, or prolongs one of the same key and reason; first says that it is new.
// Nobody is stopped by a call without shop and token: nobody knows whose calls are meant.
func (b *Board) Stop(p Pause, now time.Time) (first bool) {
	if p.Unlabelled && p.Token == (Token{}) {
		return false
	}
	if p.Unlabelled && p.Reason == AuthExpired {
		p.Until = now.Add(ForgetAfter)
	}
	p.Since = now
	b.mu.Lock()
	e := b.find(&p)
	var events []Event
	if first = e == nil; first {
		e, events = b.begin(p, now)
	} else {
		e.prolong(&p)
	}
	e.died(p.Token)
	b.mu.Unlock()
	b.tell(events)
	return first
}

// begin puts a pause on the board. Where that is full the least goes, which may be itself.
func (b *Board) begin(p Pause, now time.Time) (*entry, []Event) {
	e := &entry{Pause: p}
	at := p.place()
	b.pauses[at] = append(b.pauses[at], e)
	e.age = b.ages[rank(p.Reason)].PushBack(e)
	events := []Event{{Pause: p, At: now}}
	if int(b.any.Add(1)) > b.most {
		events = append(events, b.drop(b.least(), WhyDropped, now))
	}
	return e, events
}

// prolong notes that the platform said so again.
func (e *entry) prolong(p *Pause) {
	if !e.Until.IsZero() && (p.Until.IsZero() || p.Until.After(e.Until)) {
		e.Until = p.Until
	}
	if p.Token == e.probe {
		e.probing = time.Time{} // the new token is no better
	}
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

// find is the entry that a pause prolongs; nil: there is none.
func (b *Board) find(p *Pause) *entry {
	for _, e := range b.pauses[p.place()] {
		if e.Reason == p.Reason && e.Unlabelled == p.Unlabelled {
			return e
		}
	}
	return nil
}

// ranks is how many ranks there are.
const ranks = 3

// rank says what is given up first when there are too many, and which of several is the
// gravest: a quota is soon learnt again, a stop by risk control must not be.
func rank(reason string) int {
	return slices.Index([]string{QuotaExhausted, AuthExpired, RiskControl}, reason)
}

// least is the oldest of the lowest rank.
func (b *Board) least() *entry {
	for i := range b.ages {
		if oldest := b.ages[i].Front(); oldest != nil {
			return oldest.Value.(*entry)
		}
	}
	panic("bug: the least of no pauses")
}

// drop takes an entry out.
func (b *Board) drop(e *entry, why string, now time.Time) Event {
	at := e.place()
	rest := slices.DeleteFunc(b.pauses[at], func(x *entry) bool { return x == e })
	if len(rest) == 0 {
		delete(b.pauses, at)
	} else {
		b.pauses[at] = rest
	}
	b.ages[rank(e.Reason)].Remove(e.age)
	b.any.Add(-1)
	return Event{Pause: e.Pause, Ended: true, Why: why, At: now}
}

func (b *Board) tell(events []Event) {
	for i := range events {
		b.on(events[i])
	}
}

// Check says which pause stops a call: the gravest; nil: none does. Of a shop whose token is
// dead one call with another token is let through.
func (b *Board) Check(k Key, token Token, now time.Time) *Pause {
	if b.any.Load() == 0 {
		return nil
	}
	return b.check(k, token, now)
}

func (b *Board) check(k Key, token Token, now time.Time) (stops *Pause) {
	var events []Event
	b.mu.Lock()
	var worst, tries *entry
	for _, at := range placesOf(k, token) {
		for _, e := range slices.Backward(b.pauses[at]) { // backward: drop closes the gap
			switch {
			case !e.Until.IsZero() && !now.Before(e.Until):
				events = append(events, b.drop(e, WhyReset, now))
			case e.another(token):
				tries = e
			case worst == nil || rank(e.Reason) > rank(worst.Reason):
				worst = e
			}
		}
	}
	if worst == nil && tries != nil && !tries.probes(token, now) {
		worst = tries
	}
	if worst != nil {
		worst.Calls++
		p := worst.Pause
		stops = &p
	}
	b.mu.Unlock()
	b.tell(events)
	return stops
}

// Stops says which pause would stop a call, as Check does, but counts nothing and lets
// nobody through; of a dead token only that one's calls are stopped.
func (b *Board) Stops(k Key, token Token, now time.Time) *Pause {
	if b.any.Load() == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var worst *entry
	for _, at := range placesOf(k, token) {
		for _, e := range b.pauses[at] {
			over := !e.Until.IsZero() && !now.Before(e.Until)
			if !over && !e.another(token) && (worst == nil || rank(e.Reason) > rank(worst.Reason)) {
				worst = e
			}
		}
	}
	if worst == nil {
		return nil
	}
	p := worst.Pause
	return &p
}

// placesOf are those where a pause may stand that is about a call: of its shop, or of its
// token where it has none, and of all shops, for its operation or all of them. Some may be
// the same.
func placesOf(k Key, token Token) [4]place {
	if k.Shop != "" {
		token = Token{}
	}
	return [4]place{
		{k, token},
		{Key{k.Platform, k.Shop, ""}, token},
		{Key: Key{k.Platform, "", k.Operation}},
		{Key: Key{k.Platform, "", ""}},
	}
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
	at := place{Key: Key{k.Platform, k.Shop, ""}}
	for _, e := range slices.Backward(b.pauses[at]) {
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
	for _, at := range b.pauses {
		out = append(out, at...)
	}
	slices.SortFunc(out, func(x, y *entry) int {
		return cmp.Or(cmp.Compare(x.Platform, y.Platform), cmp.Compare(x.Shop, y.Shop), x.Since.Compare(y.Since), cmp.Compare(x.Operation, y.Operation), cmp.Compare(x.Reason, y.Reason))
	})
	return out
}
