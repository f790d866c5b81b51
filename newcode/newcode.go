// Package newcode answers one question: what do platforms say that no preset knows?
//
// It keeps the latest such answers in memory of fixed size, until a person has looked at
// them. It is told the time.
package newcode

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	most    = 256 // codes that are told apart
	longest = 300 // bytes of a text
)

// Answer is one that its preset does not know.
type Answer struct {
	Platform, Operation string // name of the preset; empty Operation: it found none
	Code, Sub, Message  string
	Host, Shop, CallID  string
	At                  time.Time
}

// Code is what was said, by the platform, operation, code and sub code.
type Code struct {
	Platform  string    `json:"platform"`
	Operation string    `json:"operation"`
	Code      string    `json:"code"`
	Sub       string    `json:"sub_code"`
	Message   string    `json:"message"` // the latest, like host, shop and call
	Host      string    `json:"host"`
	Shop      string    `json:"shop"`
	CallID    string    `json:"call_id"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Count     int       `json:"count"`
}

type key struct{ platform, operation, code, sub string }

type entry struct {
	Code
	seen bool // by a person: it counts on, and is not shown
}

// Board keeps codes. Make one with New; all methods are safe for concurrent use.
type Board struct {
	mu    sync.Mutex
	codes *simplelru.LRU[key, *entry]
}

// New has heard of nothing.
func New() *Board {
	b := &Board{}
	b.codes, _ = simplelru.NewLRU[key, *entry](most, nil) // fails on sizes below 1 only
	return b
}

// Note counts an answer. What was not said for the longest time makes room.
func (b *Board) Note(a *Answer) {
	k := key{short(a.Platform), short(a.Operation), short(a.Code), short(a.Sub)}
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.codes.Get(k)
	if !ok {
		e = &entry{Code: Code{Platform: k.platform, Operation: k.operation, Code: k.code, Sub: k.sub, First: a.At}}
		b.codes.Add(k, e)
	}
	e.Message, e.Host, e.Shop, e.CallID = short(a.Message), short(a.Host), short(a.Shop), short(a.CallID)
	e.Count++
	if a.At.After(e.Last) {
		e.Last = a.At
	}
}

// short is a bounded copy, so that no buffer of an answer stays alive.
func short(s string) string { return strings.ToValidUTF8(strings.Clone(s[:min(len(s), longest)]), "") }

// List has the codes that nobody has looked at, the latest first.
func (b *Board) List() []Code {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []Code{}
	for _, e := range b.codes.Values() {
		if !e.seen {
			out = append(out, e.Code)
		}
	}
	slices.SortStableFunc(out, func(x, y Code) int { return y.Last.Compare(x.Last) })
	return out
}

// Unseen counts them.
func (b *Board) Unseen() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.codes.Values() {
		if !e.seen {
			n++
		}
	}
	return n
}

// See takes a code of a platform off the list, whatever the operation and the sub code:
// a person has looked at it. It says how many there were.
func (b *Board) See(platform, code string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.codes.Values() {
		if !e.seen && e.Platform == platform && e.Code.Code == code {
			e.seen = true
			n++
		}
	}
	return n
}
