package upstream

import (
	"net/netip"
	"strconv"
	"strings"
)

// refusal says why t makes no sense as a target; empty: it does.
func (t *Target) refusal() string {
	if t.Scheme != "http" && t.Scheme != "https" && t.Scheme != "h2c" {
		return "the scheme is neither http nor https nor h2c"
	}
	return t.unreachable()
}

// unreachable says why nothing can be at host and port of t; empty: something
// can. It keeps the numeric spellings that a C resolver would take for an address
// (2130706433, 0x7f.1, 0177.0.0.1) from ever reaching one.
func (t *Target) unreachable() string {
	if t.Port == 0 {
		return "the port is 0"
	}
	if addr, err := netip.ParseAddr(t.Host); err == nil {
		if addr.Zone() != "" {
			return "an address with a zone is no target"
		}
		return ""
	}
	if !validName(t.Host) {
		return "the host is not a valid name"
	}
	if endsInNumber(t.Host) {
		return "the host looks like a number but is no IP address"
	}
	return ""
}

// validName checks length, alphabet and labels; underscores exist in the wild.
func validName(host string) bool {
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return strings.IndexFunc(host, notInName) < 0
}

func notInName(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return r != '-' && r != '.' && r != '_'
}

// endsInNumber is the test by which browsers tell an address from a name: the
// last label is decimal digits, or 0x and hexadecimal ones.
func endsInNumber(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(strings.ToLower(last), "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// authority is the Host field for t.
func (t *Target) authority() string {
	host := t.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	standard := uint16(80)
	if t.Scheme == "https" {
		standard = 443
	}
	if t.Port == standard {
		return host
	}
	return host + ":" + strconv.Itoa(int(t.Port))
}

// at names for people who is at the other end of a connection to remote.
func (t *Target) at(remote netip.AddrPort) string {
	if t.Exit == nil {
		return remote.String()
	}
	return t.Host + " through " + t.Exit.Name()
}
