// Package proxy answers one question: what becomes of a client's call?
//
// exchange.go is the path of a call, top to bottom; decide.go is the retry rule.
package proxy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"retryproxy/attempt"
	"retryproxy/breaker"
	"retryproxy/idempotency"
	"retryproxy/inbound"
	"retryproxy/intercept"
	"retryproxy/internal/spool"
	"retryproxy/limiter"
	"retryproxy/newcode"
	"retryproxy/pause"
	"retryproxy/report"
	"retryproxy/upstream"
)

// Tokens are retry tokens that several processes share.
type Tokens interface {
	// Take takes a token from every bucket, or none and says when they could all be
	// there, and which is the last. While it fails, the limiter's own tokens count.
	Take(ctx context.Context, needs []limiter.Need) (ok bool, at time.Time, dimension string, err error)
}

// Deps are the parts a Proxy is wired from. All but Tokens, Terms, Tracer, Hooks and Log are required.
type Deps struct {
	Upstream *upstream.Client
	Limiter  *limiter.Limiter
	Shops    *breaker.Shops
	Exits    *breaker.Exits
	Pauses   *pause.Board
	Rates    *limiter.Rates  // of operations, as presets know them
	Pins     *intercept.Pins // clients that refuse our CA
	Store    idempotency.Store
	Flights  *idempotency.Flights
	Tokens   Tokens // nil: those of Limiter are all there are
	// LookEvery is how long calls that other processes leave in the store may go
	// unnoticed; 0: nobody else leaves any.
	LookEvery time.Duration
	Spool     *spool.Pool // request bodies
	Answers   *spool.Pool // answers kept while their call waits
	// Words are the words of a text, each as the hashes that calls can be found by.
	Words func(text string) [][]uint64
	// Inside serves HTTP that was found inside a CONNECT tunnel, or inside the TLS
	// that we opened there.
	Inside func(c net.Conn, from *inbound.Call, t *inbound.Tunnel)
	// Terms gives what a call is found by in the history; nil: none is kept. It
	// keeps nothing of what it is given.
	Terms  func(body []byte, texts ...string) []uint64
	Tracer Tracer // nil: calls take no part in distributed traces
	Hooks  Hooks
	Log    *slog.Logger
}

// Hooks report what happens; nil ones are not called. They must not block.
type Hooks struct {
	Attempt     func(policy string, a *attempt.Attempt)
	Call        func(s *attempt.Summary)
	Handled     func(policy string, c report.Call) // the retry rule had the call, which is over
	Denied      func(reason string)
	RetryDenied func(dimension string)
	Shed        func(reason string) // the gate turned a call away at once, before its first attempt
	Ignored     func(field string)
	Key         func(result string)
	DeadLetter  func(s *attempt.Summary) // the call was given up; as Call gets it
	Lost        func(letters int)        // dead letters that nobody settled are gone, or could not be kept
	Tunnel      func(host string)
	Suspect     func(host string)
	Breaker     func(e *breaker.Event)        // of a shop or an exit
	Moved       func(egress string)           // a call left by another address than its shop's
	PassThrough func(host string)             // a client refuses our CA: its tunnels there stay closed
	Failover    func(policy, from, to string) // an order goes to another supplier: names of presets
	Query       func(preset, answer string)
	NewCode     func(a *newcode.Answer) // one that its preset does not know
	KeyOnly     func(host string)       // a repeat whose only basis is the key
}

// Proxy serves calls. Make one with New.
type Proxy struct {
	Deps
	name     string // instance and random digits: ours alone in Via, so that loops are seen
	via      string // our whole entry for HTTP/1.1
	durable  bool   // the store is
	settings atomic.Pointer[Settings]
	retries  atomic.Pointer[Switch]
	calls    registry
	crowd    crowd
	skews    skews
	hosts    noted // hosts already logged once as opaque or suspect
	base     context.Context
	reading  chan struct{}       // a place for each request that is read from the store
	whole    *semaphore.Weighted // bytes of bodies in files that may be in memory for the store
	crew     crew                // calls that go on without a client's goroutine
	keeper   keeper
	bulks    bulks // requeues of many dead letters
	draining chan struct{}
	drained  atomic.Bool
}

// New wires a proxy; ctx ends all attempts at once (a hard stop).
func New(ctx context.Context, d Deps, s *Settings) *Proxy {
	p := &Proxy{Deps: d, base: ctx, durable: d.Store.Durable(), name: s.Instance + "-" + newID()[:12], draining: make(chan struct{}), reading: make(chan struct{}, mostRead), whole: semaphore.NewWeighted(mostWhole)}
	p.via = "1.1 " + p.name
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	p.settings.Store(s)
	p.retries.Store(&Switch{Default: "on"})
	p.calls.init()
	p.hosts.init()
	p.keeper.init()
	return p
}

// Apply makes new settings the rules of all calls that start from now on.
func (p *Proxy) Apply(s *Settings) { p.settings.Store(s) }

// Settings are the rules in force.
func (p *Proxy) Settings() *Settings { return p.settings.Load() }

// Drain ends waiting calls with shutting_down and starts no further retry;
// attempts in flight run on.
func (p *Proxy) Drain() {
	if p.drained.CompareAndSwap(false, true) {
		close(p.draining)
	}
}

// Run grants what waits when its time has come, until ctx ends.
func (p *Proxy) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if next := p.Limiter.Tick(time.Now()); next.IsZero() {
			timer.Reset(time.Hour)
		} else {
			timer.Reset(max(time.Until(next), time.Millisecond))
		}
		select {
		case <-timer.C:
		case <-p.Limiter.Changed():
		case <-ctx.Done():
			return nil
		}
	}
}

// newID returns 128 random bits in hex.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	var out [32]byte
	hex.Encode(out[:], b[:])
	return string(out[:])
}
