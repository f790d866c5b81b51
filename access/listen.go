package access

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// defaultAllow is clients.allow as built in; with it we serve this machine only.
var defaultAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// CheckListeners refuses with ErrListen to open the proxy to others by accident:
// an address beyond loopback needs a clients.allow other than the default, or users.
func CheckListeners(addrs []string, c ClientsConfig) error {
	if len(c.Users) > 0 || !sameSet(unmapAll(c.Allow), defaultAllow) {
		return nil
	}
	for _, addr := range addrs {
		if !IsLoopback(addr) {
			return fmt.Errorf("%w: %s can be reached by others, but clients.allow is the default; say there who may use the proxy, or configure clients.users", ErrListen, addr)
		}
	}
	return nil
}

// CheckAdmin refuses with ErrListen an admin address beyond loopback without a token.
func CheckAdmin(addr string, tokens int) error {
	if addr == "" || tokens > 0 || IsLoopback(addr) {
		return nil
	}
	return fmt.Errorf("%w: the admin address %s can be reached by others; set admin.token, admin.tokens or listen on 127.0.0.1", ErrListen, addr)
}

// IsLoopback says whether an address to listen on can only be reached from this
// machine. An empty host listens everywhere.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func sameSet(a, b []netip.Prefix) bool {
	in := func(list []netip.Prefix) func(netip.Prefix) bool {
		return func(p netip.Prefix) bool { return !slices.Contains(list, p) }
	}
	return !slices.ContainsFunc(a, in(b)) && !slices.ContainsFunc(b, in(a))
}
