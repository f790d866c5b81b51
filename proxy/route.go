package proxy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"retryproxy/classify"
	"retryproxy/egress"
	"retryproxy/inbound"
	"retryproxy/upstream"
)

// hop is one place an attempt can go to.
type hop struct {
	target    upstream.Target
	host      string         // normalised host:port: names gate, breaker and metric label
	authority string         // becomes Host
	path      string         // request-target as sent
	exits     []*egress.Exit // the ways out it may take, the first first; none: directly
	exit      int            // index of the one in use
}

// scheme is that of the request: how it is carried is the target's business.
func (h *hop) scheme() string {
	if h.target.Scheme == "h2c" {
		return "http"
	}
	return h.target.Scheme
}

// refusal is an answer of our own that ends a call.
type refusal struct {
	reason, detail string
	at             time.Time // when a later try makes sense; zero: unknown
}

func refuse(reason, detail string) *refusal { return &refusal{reason: reason, detail: detail} }

// route finds where the call goes: forward (absolute-form), CONNECT, or a
// route of the reverse mode.
func (x *exchange) route() *refusal {
	r := &x.call.Request
	if t := x.call.Tunnel; t != nil && !sameAuthority(insideScheme(t), t.Authority, r.Authority) {
		return refuse("bad_request", "the request is for another host than the tunnel's target")
	}
	switch x.call.Form {
	case inbound.Authority:
		x.mode = "connect"
		if x.call.Tunnel != nil { // each would be served on the stack of the one around it
			return refuse("bad_request", "a request in a tunnel cannot ask for another tunnel")
		}
		if r := x.direct("tcp", r.Authority, ""); r != nil {
			return r
		}
		if port := x.hops[0].target.Port; !slices.Contains(x.set.ConnectPorts, port) {
			return refuse("destination_denied", "CONNECT to port "+strconv.Itoa(int(port))+" is not allowed (destinations.connect_ports)")
		}
		return nil
	case inbound.Absolute:
		if x.call.Tunnel != nil && r.Scheme != insideScheme(x.call.Tunnel) {
			return refuse("bad_request", "the request has another scheme than the tunnel")
		}
		if rt := x.set.routeFor(r.Authority, r.Target, true); rt != nil {
			return x.reverse(rt)
		}
		x.mode = "forward"
		return x.forward(r.Scheme, r.Authority, r.Target)
	}
	if t := x.call.Tunnel; t != nil {
		x.mode = "forward"
		if insideScheme(t) == "https" {
			x.mode = "intercept"
		}
		return x.forward(insideScheme(t), r.Authority, r.Target)
	}
	return x.origin()
}

// origin routes an origin-form request: by Host, then by prefix. A Host that is
// neither configured nor loopback is refused, or any page a browser shows could
// reach us by a name it controls (DNS rebinding).
func (x *exchange) origin() *refusal {
	r := &x.call.Request
	x.mode = "reverse"
	rt := x.set.routeFor(r.Authority, r.Target, false)
	switch {
	case rt == nil && !x.set.Clients.AllowedHost(r.Authority):
		return notServed(r.Authority)
	case rt == nil:
		return refuse("bad_request", "no route for this path; a forward proxy is given the absolute URL")
	case rt.Host == "" && !x.set.Clients.AllowedHost(r.Authority):
		return notServed(r.Authority)
	case !rt.CrossSite && x.set.Clients.CrossSite(r.Fields, r.Authority):
		return refuse("client_denied", "cross-site browser request (routes.cross_site)")
	}
	return x.reverse(rt)
}

func notServed(authority string) *refusal {
	return refuse("client_denied", "Host "+strconv.Quote(authority)+" is not served here (listen.hosts)")
}

// routeFor finds the route of a request. An absolute-form request only matches
// a route with a Host: its prefix belongs to another site.
func (s *Settings) routeFor(authority, target string, absolute bool) *Route {
	host, _, _ := splitAuthority("http", authority)
	for i := range s.Routes {
		rt := &s.Routes[i]
		byHost := rt.Host != "" && strings.EqualFold(rt.Host, host)
		if absolute && !byHost || rt.Host != "" && !byHost {
			continue
		}
		if underPrefix(target, rt.Prefix) {
			return rt
		}
	}
	return nil
}

func underPrefix(target, prefix string) bool {
	if prefix == "" || prefix == "/" {
		return true
	}
	rest, ok := strings.CutPrefix(target, prefix)
	return ok && (rest == "" || rest[0] == '/' || rest[0] == '?')
}

// reverse fills the hops from a route.
func (x *exchange) reverse(rt *Route) *refusal {
	x.mode = "reverse"
	if x.trace != nil {
		x.trace.Route = strings.TrimSuffix(rt.Prefix, "/") + "/*"
	}
	path := x.call.Request.Target
	if rt.StripPrefix && rt.Prefix != "" && rt.Prefix != "/" {
		path = path[len(rt.Prefix):]
		if path == "" || path[0] == '?' {
			path = "/" + path
		}
	}
	x.routePreset = rt.Preset
	for _, o := range rt.Upstreams {
		h, err := newHop(o.Scheme, o.Authority, o.Path+path)
		if err != nil {
			return refuse("bad_request", "routes: "+err.Error())
		}
		h.target.Exempt = true
		x.hops = append(x.hops, h)
	}
	return nil
}

// direct fills the one hop of a forward call or a tunnel.
func (x *exchange) direct(scheme, authority, path string) *refusal {
	h, err := newHop(scheme, authority, path)
	if err != nil {
		return refuse("bad_request", err.Error())
	}
	if err := x.set.Guard.CheckHost(h.target.Host); err != nil {
		return x.deniedBy(err)
	}
	h.target.Exempt = x.set.Guard.Exempt(h.target.Host)
	x.hops = append(x.one[:0], h)
	return nil
}

// forward fills the hop of a forward call. Hosts under upgrade_to_https get TLS,
// at the port of https, though the client said http, but only for clients that
// are near enough that plain text does not cross a network.
func (x *exchange) forward(scheme, authority, path string) *refusal {
	if scheme == "http" && x.upgrades(authority) {
		scheme, authority = "https", strings.TrimSuffix(authority, ":80")
	}
	return x.direct(scheme, authority, path)
}

func (x *exchange) upgrades(authority string) bool {
	host, port, err := splitAuthority("http", authority)
	if err != nil || !x.set.Clients.Trusted(x.call.Client.Addr()) {
		return false
	}
	return x.set.Upgrade.Match(joinHost(host, port))
}

// newHop parses an authority strictly.
func newHop(scheme, authority, path string) (hop, error) {
	host, port, err := splitAuthority(scheme, authority)
	if err != nil {
		return hop{}, err
	}
	return hop{
		target:    upstream.Target{Scheme: scheme, Host: host, Port: port},
		host:      joinHost(host, port),
		authority: authority,
		path:      path,
	}, nil
}

type badAuthority string

func (e badAuthority) Error() string { return string(e) }

// splitAuthority gives the host in lower case without brackets and trailing
// dot, and the port, the scheme's own when none is named.
func splitAuthority(scheme, authority string) (string, uint16, error) {
	host, rest := authority, ""
	if strings.HasPrefix(authority, "[") {
		end := strings.IndexByte(authority, ']')
		if end < 0 {
			return "", 0, badAuthority("host: missing ']'")
		}
		host, rest = authority[1:end], authority[end+1:]
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return "", 0, badAuthority("host: not an IPv6 address")
		}
		host = addr.Unmap().String() // one name for one address, or rules could be got around
	} else if i := strings.IndexByte(authority, ':'); i >= 0 {
		host, rest = authority[:i], authority[i:]
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "" {
		return "", 0, badAuthority("host: empty")
	}
	port, err := parsePort(scheme, rest)
	return host, port, err
}

func parsePort(scheme, rest string) (uint16, error) {
	if rest == "" || rest == ":" {
		if scheme == "https" {
			return 443, nil
		}
		return 80, nil
	}
	n, err := strconv.ParseUint(rest[1:], 10, 16)
	if rest[0] != ':' || err != nil || n == 0 {
		return 0, badAuthority("port: must be 1..65535")
	}
	return uint16(n), nil
}

// joinHost is net.JoinHostPort for names that are known to be clean.
func joinHost(host string, port uint16) string {
	p := strconv.Itoa(int(port))
	if strings.IndexByte(host, ':') >= 0 {
		return "[" + host + "]:" + p
	}
	return host + ":" + p
}

// insideScheme is that of the requests in a tunnel.
func insideScheme(t *inbound.Tunnel) string {
	if t.Scheme == "https" {
		return "https"
	}
	return "http"
}

// sameAuthority compares a tunnel's target with the Host of a request in it.
func sameAuthority(scheme, tunnel, host string) bool {
	th, tp, err1 := splitAuthority(scheme, tunnel)
	hh, hp, err2 := splitAuthority(scheme, host)
	return err1 == nil && err2 == nil && th == hh && tp == hp
}

// chooseHop takes the first upstream of a route that is not cut off, beginning
// with the one in use; one whose probe is due gets it, or it would never be used
// again. A call that may have been executed stays where that was: another
// upstream knows nothing of it.
func (x *exchange) chooseHop(now time.Time) {
	if len(x.hops) == 1 {
		return
	}
	if x.executed() != classify.ExecutedNo {
		x.stayWith(x.lastHost())
		return
	}
	for i := range x.hops {
		at := (x.hop + i) % len(x.hops)
		if x.p.Limiter.Admits(x.hops[at].host, now) {
			x.hop = at
			return
		}
	}
}

// turnHop goes on to the next upstream after nothing could be sent to this one;
// moved: by another exit, to the same one.
func (x *exchange) turnHop(v *classify.Verdict, now time.Time) (moved bool) {
	switch {
	case v.EgressFault && x.turnExit(1, v.Reason):
		moved = true
	case v.Basis == classify.BasisNotSent:
		x.hop = (x.hop + 1) % len(x.hops)
	}
	x.chooseHop(now)
	return moved
}

// lastHost is where the newest attempt on the record went.
func (x *exchange) lastHost() string {
	if len(x.past) > 0 {
		return x.past.Last().Host
	}
	return x.rec.History.Last().Host
}

func (x *exchange) stayWith(host string) {
	for i := range x.hops {
		if x.hops[i].host == host {
			x.hop = i
		}
	}
}
