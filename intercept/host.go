package intercept

import (
	"errors"
	"net/netip"
	"strings"
)

// ErrHost says that no certificate can be for such a host.
var ErrHost = errors.New("not a host name in lower case, nor an address")

// Bounds of names (RFC 1035 section 2.3.4).
const (
	maxName  = 253
	maxLabel = 63
)

// parseHost gives a host in the one form it is kept under, and its address when
// it is one.
func parseHost(host string) (string, netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return ip.String(), ip, nil
	}
	if !isName(host) {
		return "", netip.Addr{}, ErrHost
	}
	return strings.Clone(host), netip.Addr{}, nil // the caller's may be part of a big buffer
}

// isName says whether host is a DNS name that clients verify: no wildcard, no
// dot at the end, and no number in the last place, which would be an address in
// some other spelling.
func isName(host string) bool {
	if len(host) > maxName {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if !isLabel(label) {
			return false
		}
		last = label
	}
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x")
}

// isLabel allows the underscore: it is in use.
func isLabel(s string) bool {
	if s == "" || len(s) > maxLabel || s[0] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}
