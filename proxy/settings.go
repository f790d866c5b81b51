package proxy

import (
	"time"

	"retryproxy/access"
	"retryproxy/egress"
	"retryproxy/intercept"
	"retryproxy/internal/glob"
	"retryproxy/policy"
	"retryproxy/presets"
	"retryproxy/redact"
	"retryproxy/signer"
)

// Settings are everything a reload can change. A call reads them once, so no
// call ever lives by half of an old and half of a new configuration.
type Settings struct {
	Instance string // our name in Via, Proxy-Status and Cache-Status
	Headers  HeaderNames
	Via      bool

	Policies    *policy.Set
	Presets     *presets.Set // nil: none
	Credentials Credentials
	Hide        *redact.Names // what is shown nowhere
	Shops       map[string]Shop

	Clients *access.Clients
	Guard   *access.Guard
	// Ports that CONNECT may name.
	ConnectPorts []uint16

	// Egress says by which address a call leaves; nil: always directly.
	Egress *egress.Table
	// Intercept opens tunnels; nil: none are.
	Intercept *Interception

	Routes  []Route
	Upgrade policy.Hosts // host patterns spoken to over TLS though the client said http

	Body        BodyLimits
	MaxWait     time.Duration // a call's total at gates
	TunnelIdle  time.Duration
	KeyTTL      time.Duration
	LetterTTL   time.Duration // how long a dead letter is kept
	MaxResponse int64         // bytes of an answer that is kept for its key
	MostLetters int           // dead letters that are kept, the oldest beyond it go
}

// Interception says which tunnels are opened, and with whose certificates.
type Interception struct {
	Hosts policy.Hosts
	CA    *intercept.Authority
}

// HeaderNames are the configurable names of request headers.
type HeaderNames struct {
	Keys                                      []string
	RetryCount, Shop, ShopTier, Task, Timeout string
}

// Credentials are what signatures and queries need, in the order of the configuration.
type Credentials []Credential

// Credential is for the presets and shops that it names by patterns; no shop: for all, and
// for calls without one.
type Credential struct {
	Presets, Shops []string
	Values         signer.Credentials
}

// Of are those for a shop at a platform; nil: there are none.
func (c Credentials) Of(preset, shop string) signer.Credentials {
	for i := range c {
		if glob.Any(c[i].Presets, preset) && (len(c[i].Shops) == 0 || shop != "" && glob.Any(c[i].Shops, shop)) {
			return c[i].Values
		}
	}
	return nil
}

// Shop is one entry of the shops table.
type Shop struct{ Tier string }

// BodyLimits bound what is kept of one call.
type BodyLimits struct {
	Limit   int64 // bytes of a request that can be repeated
	Hold    int64 // bytes of an answer read before its header goes out
	Inspect int64 // bytes of an answer that are looked at, once decoded
	Stream  bool  // a keyless body over the limit is streamed once
}

// Route maps a prefix or a Host of the reverse mode to upstreams.
type Route struct {
	Name        string
	Prefix      string // "/pdd"; empty: any path
	Host        string // empty: any
	Upstreams   []Origin
	StripPrefix bool
	Preset      string
	CrossSite   bool // cross-site browser requests are let in
}

// Origin is one upstream of a route.
type Origin struct {
	Scheme, Authority, Path string
}
