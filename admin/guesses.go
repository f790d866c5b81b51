package admin

import (
	"math"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// Bounds of wrong tokens: of one address, and of all together.
const (
	guessesEach = 10
	guessesAll  = 100
	mostGuesser = 1024 // addresses that are remembered
)

var (
	refillEach = rate.Every(30 * time.Second)
	refillAll  = rate.Every(3 * time.Second)
)

// guesses limits how often tokens may be wrong. It is safe for concurrent use.
type guesses struct {
	mu   sync.Mutex
	all  *rate.Limiter // not of those that are known: nobody elsewhere locks them out
	each *simplelru.LRU[string, *rate.Limiter]
	// known are the addresses that a right token came from.
	known *simplelru.LRU[string, struct{}]
}

func newGuesses() *guesses {
	each, _ := simplelru.NewLRU[string, *rate.Limiter](mostGuesser, nil) // fails on sizes below 1 only
	known, _ := simplelru.NewLRU[string, struct{}](mostGuesser, nil)
	return &guesses{all: rate.NewLimiter(refillAll, guessesAll), each: each, known: known}
}

// try looks at a token, unless too many were wrong: then wait is for how long none of this
// address is looked at. last: this wrong one was one too many. It is looked at under the
// lock, so that many at once are no way around.
func (g *guesses) try(remote string, now time.Time, right func() bool) (wait time.Duration, last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	address := addressOf(remote)
	if wait = g.waitLocked(address, now); wait > 0 {
		return wait, false
	}
	if right() {
		g.known.Add(address, struct{}{})
		return 0, false
	}
	g.all.AllowN(now, 1)
	l, ok := g.each.Get(address)
	if !ok {
		l = rate.NewLimiter(refillEach, guessesEach)
		g.each.Add(address, l)
	}
	l.AllowN(now, 1)
	return 0, g.waitLocked(address, now) > 0
}

func (g *guesses) waitLocked(address string, now time.Time) (d time.Duration) {
	if !g.known.Contains(address) {
		d = shortOf(g.all, now)
	}
	if l, ok := g.each.Get(address); ok {
		d = max(d, shortOf(l, now))
	}
	return d
}

// shortOf is how long it takes until there is a token again.
func shortOf(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 1e-6 {
		return 0
	}
	return time.Duration(missing / float64(l.Limit()) * float64(time.Second))
}

// addressOf is an address without its port. All of an IPv6 network of 64 bits is one.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		return ip.Mask(net.CIDRMask(64, 128)).String()
	}
	return host
}

// seconds is a Retry-After (RFC 9110, section 10.2.3): whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.Itoa(int(math.Ceil(d.Seconds())))
}
