package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Config says how a Client reaches hosts. The zero value works.
type Config struct {
	// Resolve looks a name up; nil: the resolver of the machine.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Dial opens a TCP connection; nil: net.Dialer.
	Dial func(ctx context.Context, addr netip.AddrPort) (net.Conn, error)
	// Guard judges the very address that is dialled next; an error forbids it,
	// ErrLoop because it is our own. nil allows all. A kept connection is not
	// judged again: when the rules change, call CloseIdle.
	Guard func(addr netip.AddrPort, exempt bool) error
	// GuardName judges a name that an exit looks up, where there is no address to
	// judge; an error forbids it. nil allows all.
	GuardName func(host string, port uint16, exempt bool) error
	// TLS gives the roots. Server name, protocols and session cache are set per
	// target, and verification is always on.
	TLS *tls.Config

	IdlePerHost int           // connections kept per target; 0: 256
	IdleTotal   int           // connections kept in all; 0: 1024
	IdleTimeout time.Duration // how long one is kept; 0: one minute
	HeaderBytes int           // limit of an answer's header, interim answers included; 0: 64 KiB
}

const (
	defaultIdlePerHost = 256
	defaultIdleTotal   = 1024
	defaultIdleTimeout = time.Minute
	defaultHeaderBytes = 64 << 10
	sessionTickets     = 1024 // TLS sessions kept for resumption, over all exits
	knownHosts         = 4096 // hosts remembered to speak HTTP/2
)

// Client sends attempts and keeps connections between them. It is safe for
// concurrent use.
type Client struct {
	resolve     func(context.Context, string) ([]netip.Addr, error)
	dial        func(context.Context, netip.AddrPort) (net.Conn, error)
	guard       func(netip.AddrPort, bool) error
	guardName   func(string, uint16, bool) error
	trust       atomic.Pointer[trust]
	headerBytes int
	pool        pool
	live        atomic.Int64 // connections open now
	speaksH2    *lru.Cache[Target, struct{}]

	mu      sync.Mutex
	flights map[Target]*flight // dials to hosts known for HTTP/2, while they last
}

// New returns a Client. Close it in the end.
func New(cfg Config) *Client {
	c := &Client{
		resolve:     cfg.Resolve,
		dial:        cfg.Dial,
		guard:       cfg.Guard,
		guardName:   cfg.GuardName,
		headerBytes: orDefault(cfg.HeaderBytes, defaultHeaderBytes),
		flights:     map[Target]*flight{},
	}
	c.SetTLS(cfg.TLS)
	c.pool.init(orDefault(cfg.IdlePerHost, defaultIdlePerHost),
		orDefault(cfg.IdleTotal, defaultIdleTotal), orDefault(cfg.IdleTimeout, defaultIdleTimeout))
	c.speaksH2, _ = lru.New[Target, struct{}](knownHosts) // fails on sizes below 1 only
	if c.resolve == nil {
		c.resolve = lookup
	}
	if c.dial == nil {
		c.dial = dialTCP
	}
	return c
}

func orDefault[T int | time.Duration](v, standard T) T {
	if v <= 0 {
		return standard
	}
	return v
}

// SetTLS changes the roots for connections made from now on.
func (c *Client) SetTLS(base *tls.Config) { c.trust.Store(newTrust(base)) }

// CloseIdle closes the connections that serve no attempt now, and the others when
// theirs ends: nothing that was open before serves a later attempt.
func (c *Client) CloseIdle() { c.pool.closeIdle(false) }

// Close closes idle connections and lets those in use end with their attempt.
// A Send after Close still works, on a connection of its own.
func (c *Client) Close() { c.pool.closeIdle(true) }

// Stats counts connections: all open ones but tunnels, and of these the idle ones.
func (c *Client) Stats() (open, idle int) { return int(c.live.Load()), c.pool.size() }
