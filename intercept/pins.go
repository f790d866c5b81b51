package intercept

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	maxPins      = 10_000    // pairs that are remembered
	refusalLimit = 3         // in a row; one may be a person who is setting up trust
	passFor      = time.Hour // then it is tried again
)

// Pins knows which clients refuse our certificates for which hosts. Three
// refusals in a row make a pair pass through for an hour. Then it is tried
// again, and one more refusal is enough for the next hour. Safe for concurrent
// use.
type Pins struct {
	mu    sync.Mutex
	pairs *simplelru.LRU[pair, *refusals]
}

type pair struct{ client, host string }

// refusals are a row of them.
type refusals struct {
	row          int
	since, until time.Time // of the last pass; zero: there was none
}

// Pin is a client whose tunnels to a host are passed through.
type Pin struct {
	Client, Host string
	Since, Until time.Time
}

// NewPins returns a table without pins.
func NewPins() *Pins {
	pairs, err := simplelru.NewLRU[pair, *refusals](maxPins, nil)
	if err != nil {
		panic("bug: " + err.Error()) // only a size below 1 fails
	}
	return &Pins{pairs: pairs}
}

// Refused takes a refusal. It says whether this one makes the pair pass through
// from now on; those that come while it does change nothing.
func (p *Pins) Refused(client, host string, now time.Time) (passed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := pair{client, host}
	r, ok := p.pairs.Get(key)
	if !ok {
		r = &refusals{}
		p.pairs.Add(pair{strings.Clone(client), strings.Clone(host)}, r)
	}
	if now.Before(r.until) {
		return false
	}
	r.row++
	if r.row < refusalLimit {
		return false
	}
	r.since, r.until = now, now.Add(passFor)
	return true
}

// Accepted takes a handshake that went well: it ends the row, and a pass too.
func (p *Pins) Accepted(client, host string, _ time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pairs.Remove(pair{client, host})
}

// Forget ends passes and rows, of one client or host or, where empty, of all. It
// returns how many passes ended.
func (p *Pins) Forget(client, host string, now time.Time) (ended int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range p.pairs.Keys() {
		if client != "" && client != key.client || host != "" && host != key.host {
			continue
		}
		if r, ok := p.pairs.Peek(key); ok && now.Before(r.until) {
			ended++
		}
		p.pairs.Remove(key)
	}
	return ended
}

// PassThrough says whether the tunnels of this client to this host stay closed.
func (p *Pins) PassThrough(client, host string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.pairs.Get(pair{client, host})
	return ok && now.Before(r.until)
}

// List gives the pairs that pass through now, by client and host.
func (p *Pins) List(now time.Time) []Pin {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []Pin
	for _, key := range p.pairs.Keys() {
		if r, _ := p.pairs.Peek(key); now.Before(r.until) {
			list = append(list, Pin{key.client, key.host, r.since, r.until})
		}
	}
	slices.SortFunc(list, func(a, b Pin) int {
		return cmp.Or(strings.Compare(a.Client, b.Client), strings.Compare(a.Host, b.Host))
	})
	return list
}
