package egress

import (
	"net/netip"
	"strings"
)

// parseHost takes the brackets off; an IPv6 address must have them.
func parseHost(text string) (string, bool) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		return addr.String(), closed && err == nil && addr.Is6() && addr.Zone() == ""
	}
	text = strings.ToLower(strings.TrimSuffix(text, "."))
	return text, validName(text)
}

const longestName = 255 // what SOCKS5 can say, and more than DNS has

// validName says whether text can be a name or an IPv4 address, or stand for one
// in a request without being read as something else.
func validName(text string) bool {
	if text == "" || len(text) > longestName {
		return false
	}
	for i := 0; i < len(text); i++ {
		if !plain(text[i]) {
			return false
		}
	}
	return true
}

// plain bytes are those of names and of user names that every proxy takes.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_'
}
