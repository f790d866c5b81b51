package access

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"retryproxy/policy"
)

// GuardConfig says where calls may go.
type GuardConfig struct {
	// Private is what happens to private and loopback addresses: allow, deny,
	// or auto, which allows them while all Proxies are on loopback.
	Private string
	// Allow and Deny hold prefixes, addresses and host patterns. Allow lifts
	// Private, Deny is stronger than Allow.
	Allow, Deny []string
	// Proxies are the addresses where calls come in, Others those of admin and
	// health, with their real ports. A call to any of them is a loop.
	Proxies, Others []netip.AddrPort
	// Interfaces are this machine's addresses, ours when a listener is on all of them.
	Interfaces []netip.Addr
}

// Guard judges destinations. It never changes and is safe for concurrent use.
type Guard struct {
	private     string // allow or deny
	setting     string // that decided it, for messages
	allow, deny []netip.Prefix
	allowHosts  policy.Hosts
	denyHosts   policy.Hosts
	own         []netip.AddrPort
	interfaces  []netip.Addr
}

// NewGuard builds the rules.
func NewGuard(c GuardConfig) *Guard {
	g := &Guard{
		private: c.Private, setting: "destinations.private: " + c.Private,
		own: slices.Concat(c.Proxies, c.Others), interfaces: slices.Clone(c.Interfaces),
	}
	if c.Private == "auto" {
		g.private, g.setting = "allow", "destinations.private: auto, all listeners on loopback"
		if !slices.ContainsFunc(c.Proxies, isBeyondLoopback) {
			return g.lists(c)
		}
		g.private, g.setting = "deny", "destinations.private: auto, with a listener beyond loopback"
	}
	return g.lists(c)
}

func isBeyondLoopback(a netip.AddrPort) bool { return !a.Addr().Unmap().IsLoopback() }

// lists tells prefixes and host patterns apart.
func (g *Guard) lists(c GuardConfig) *Guard {
	var hosts []string
	g.allow, hosts = splitList(c.Allow)
	g.allowHosts = policy.NewHosts(hosts)
	g.deny, hosts = splitList(c.Deny)
	g.denyHosts = policy.NewHosts(hosts)
	return g
}

func splitList(entries []string) (prefixes []netip.Prefix, hosts []string) {
	for _, e := range entries {
		if p, err := netip.ParsePrefix(e); err == nil {
			prefixes = append(prefixes, p)
		} else if a, err := netip.ParseAddr(e); err == nil {
			prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
		} else {
			hosts = append(hosts, e)
		}
	}
	return unmapAll(prefixes), hosts
}

// Check judges the address that is about to be dialled. Exempt destinations
// come from the configuration or were named in destinations.allow: for them
// private addresses are fine. Link-local, metadata, our own listeners and the
// like are so for nobody. It returns ErrDestination or ErrLoop.
func (g *Guard) Check(to netip.AddrPort, exempt bool) error {
	addr := to.Addr()
	if !addr.IsValid() || addr.Zone() != "" {
		return fmt.Errorf("%w: %s: addresses with a zone are never allowed", ErrDestination, addr)
	}
	if err := g.judge(addr.Unmap(), to.Port(), exempt); err != nil {
		return err
	}
	if v4, ok := embedded(addr); ok && !addr.Is4In6() {
		return g.judge(v4, to.Port(), exempt)
	}
	return nil
}

// judge checks one address, the most telling reason first.
func (g *Guard) judge(addr netip.Addr, port uint16, exempt bool) error {
	k := kindOf(addr)
	if k >= linkLocal {
		return fmt.Errorf("%w: %s is a %s address; those are never allowed", ErrDestination, addr, k)
	}
	if g.isOwn(addr, port) {
		return fmt.Errorf("%w: %s; what listens there is called without a proxy (curl --noproxy '*')", ErrLoop, netip.AddrPortFrom(addr, port))
	}
	if contains(g.deny, addr) {
		return fmt.Errorf("%w: %s is in destinations.deny", ErrDestination, addr)
	}
	if k == public || exempt || g.private == "allow" || contains(g.allow, addr) {
		return nil
	}
	return fmt.Errorf("%w: %s is a %s address (%s)", ErrDestination, addr, k, g.setting)
}

// isOwn says whether we listen there. A listener on all addresses is reached by
// each of this machine's.
func (g *Guard) isOwn(addr netip.Addr, port uint16) bool {
	for _, l := range g.own {
		if l.Port() != port {
			continue
		}
		at := l.Addr().Unmap()
		if at == addr || at.IsUnspecified() && (addr.IsLoopback() || slices.Contains(g.interfaces, addr)) {
			return true
		}
	}
	return false
}

// CheckHost judges a destination's name before it is resolved: host without
// port, brackets or not. Spellings of an address that are not the plain one
// (2130706433, 0x7f.1, 0177.0.0.1) are refused: resolvers differ in what they
// make of them. It returns ErrDestination.
func (g *Guard) CheckHost(host string) error {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	switch {
	case strings.IndexByte(host, ':') >= 0 || endsInNumber(host):
		return checkLiteral(host)
	case strings.IndexFunc(host, notInName) >= 0:
		return fmt.Errorf("%w: %.64q is not a host name", ErrDestination, host)
	case g.denyHosts.Match(host):
		return fmt.Errorf("%w: %.64q is in destinations.deny", ErrDestination, host)
	}
	return nil
}

// CheckName judges a name that an egress proxy looks up, where there is no address
// to judge. What is ours or private by its name is treated as such an address;
// names of metadata services are never allowed. It returns ErrDestination or
// ErrLoop.
func (g *Guard) CheckName(name string, port uint16, exempt bool) error {
	switch {
	case slices.Contains(metadataNames, name):
		return fmt.Errorf("%w: %s is the name of a metadata service; those are never allowed", ErrDestination, name)
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		return g.judge(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port, exempt)
	case exempt || g.private == "allow" || !privateName(name):
		return nil
	}
	return fmt.Errorf("%w: %s is a name of a private network (%s)", ErrDestination, name, g.setting)
}

// metadataNames are those by which clouds give out credentials.
var metadataNames = []string{"metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"}

// privateName says whether only a private network gives the name a meaning: one
// label alone, and the endings that are kept for that (RFC 6762, RFC 8375, ICANN's .internal).
func privateName(name string) bool {
	return !strings.Contains(name, ".") || slices.ContainsFunc([]string{".local", ".internal", ".lan", ".home.arpa", ".intranet"},
		func(end string) bool { return strings.HasSuffix(name, end) })
}

// checkLiteral lets through what is an address in plain spelling; which one is
// judged when it is dialled.
func checkLiteral(host string) error {
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil && addr.Zone() != "":
		return fmt.Errorf("%w: addresses with a zone are never allowed", ErrDestination)
	case err != nil:
		return fmt.Errorf("%w: %.64q is an unusual spelling of an address; write it as a.b.c.d", ErrDestination, host)
	}
	return nil
}

// Exempt says whether destinations.allow names this host, so that it may have a
// private address.
func (g *Guard) Exempt(host string) bool { return g.allowHosts.Match(host) }

// endsInNumber is the test of the URL standard: a name whose last label is a
// number is meant as an IPv4 address.
func endsInNumber(host string) bool {
	last := strings.TrimSuffix(host, ".")
	last = strings.ToLower(last[strings.LastIndexByte(last, '.')+1:])
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

func notInName(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("%/\\:@#?[]<>^|\"'`{}", r)
}
