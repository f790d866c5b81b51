package access

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"retryproxy/attempt"
	"retryproxy/message"
)

// ClientsConfig says who may use the proxy.
type ClientsConfig struct {
	Allow   []netip.Prefix // addresses that may connect; the default beside Users: any
	Trusted []netip.Prefix // addresses from where plain text counts as private
	Users   []User         // none: credentials are labels only
	// Hosts are the names and addresses, beside the loopback ones, under which
	// we are called: listen.hosts, the hosts of routes, addresses we listen on.
	Hosts []string
	// Mislabelled is called by Authenticate for each call whose user name is
	// accepted but has a mistake in its labels (UserLabels); nil: for none.
	Mislabelled func()
}

// User is a configured proxy user.
type User struct {
	Name   string
	Hash   string // bcrypt
	Labels attempt.Labels
}

// Clients judges clients. It is safe for concurrent use.
type Clients struct {
	allow, trusted []netip.Prefix
	anywhere       bool // credentials alone decide
	hosts          map[string]bool
	logins         *logins // nil: no users are configured
	mislabelled    func()
}

// NewClients builds the rules. It fails when a hash is none or a user is given twice.
func NewClients(c ClientsConfig) (*Clients, error) {
	out := &Clients{allow: unmapAll(c.Allow), trusted: unmapAll(c.Trusted), hosts: map[string]bool{}, mislabelled: c.Mislabelled}
	for _, h := range c.Hosts {
		// 0.0.0.0 reaches us from any page of a browser on this machine.
		if addr, err := netip.ParseAddr(hostName(h)); err != nil || !addr.IsUnspecified() {
			out.hosts[hostName(h)] = true
		}
	}
	if len(c.Users) == 0 {
		return out, nil
	}
	out.anywhere = sameSet(out.allow, defaultAllow)
	var err error
	out.logins, err = newLogins(c.Users)
	return out, err
}

// Allows says whether a client at addr may connect (clients.allow). With users
// and the allow-list that is built in, any may: its credentials decide.
func (c *Clients) Allows(addr netip.Addr) bool { return c.anywhere || contains(c.allow, addr) }

// CheckAddr is Allows with an ErrClient that says what to change.
func (c *Clients) CheckAddr(addr netip.Addr) error {
	if c.Allows(addr) {
		return nil
	}
	return fmt.Errorf("%w: address %s is not in clients.allow", ErrClient, addr.Unmap())
}

// Trusted says whether plain text from addr counts as private (clients.trusted).
func (c *Clients) Trusted(addr netip.Addr) bool { return contains(c.trusted, addr) }

// HasUsers says whether credentials are required.
func (c *Clients) HasUsers() bool { return c.logins != nil }

// AllowedHost says whether an origin-form or admin request may name host (the
// Host field, with or without port): a configured name or a loopback one. A
// name that an attacker points at us (DNS rebinding) is neither.
func (c *Clients) AllowedHost(host string) bool {
	name := hostName(host)
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || c.hosts[name] {
		return name != ""
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// CrossSite is the function of that name.
func (c *Clients) CrossSite(fields message.Fields, host string) bool { return CrossSite(fields, host) }

// CrossSite says whether a browser sent this request to host for a page of
// another site. Browsers say so themselves, in Sec-Fetch-Site or at least in
// Origin; who sends neither is no browser. Another port is another site here:
// any page on localhost would else be ours.
func CrossSite(fields message.Fields, host string) bool {
	if site := fields.Get("Sec-Fetch-Site"); site != "" {
		return site != "same-origin" && site != "none"
	}
	if !fields.Has("Origin") {
		return false
	}
	_, authority, found := strings.Cut(fields.Get("Origin"), "://")
	return !found || host == "" || !strings.EqualFold(authority, host)
}

// hostName is the lower-case name in a Host field: no port, brackets or final dot.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// contains says whether addr is in one of the prefixes, an IPv4-mapped one as IPv4.
func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// unmapAll turns IPv4-mapped prefixes into IPv4 ones.
func unmapAll(prefixes []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, len(prefixes))
	for i, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		out[i] = p.Masked()
	}
	return out
}
