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
	all  *rate.Limiter
	each *simplelru.LRU[string, *rate.Limiter]
}

func newGuesses() *guesses {
	each, _ := simplelru.NewLRU[string, *rate.Limiter](mostGuesser, nil) // fails on sizes below 1 only
	return &guesses{all: rate.NewLimiter(refillAll, guessesAll), each: each}
}

// wait is for how long no token of an address is looked at; 0: it is.
func (g *guesses) wait(remote string, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := shortOf(g.all, now)
	if l, ok := g.each.Get(addressOf(remote)); ok {
		d = max(d, shortOf(l, now))
	}
	return d
}

// wrong notes a token that nobody has.
func (g *guesses) wrong(remote string, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all.AllowN(now, 1)
	address := addressOf(remote)
	l, ok := g.each.Get(address)
	if !ok {
		l = rate.NewLimiter(refillEach, guessesEach)
		g.each.Add(address, l)
	}
	l.AllowN(now, 1)
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
