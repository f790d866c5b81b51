package access

import (
	"encoding/binary"
	"net/netip"
)

// kind is what an address is, as far as the guard cares.
type kind uint8

// Kinds; from link-local on they are never allowed.
const (
	public kind = iota
	private
	loopback
	linkLocal
	metadata
	unspecified
	multicast
	reserved
)

// String is the word for messages.
func (k kind) String() string {
	return [...]string{
		"public", "private", "loopback", "link-local", "cloud metadata",
		"unspecified", "multicast", "reserved",
	}[k]
}

// metadataAddrs hand out credentials to whoever asks from inside a machine.
// Those under 169.254.0.0/16 are link-local anyway.
var metadataAddrs = map[netip.Addr]bool{
	netip.MustParseAddr("169.254.169.254"):    true, // AWS, Azure, GCP and others
	netip.MustParseAddr("169.254.170.2"):      true, // AWS ECS
	netip.MustParseAddr("169.254.0.23"):       true, // Tencent
	netip.MustParseAddr("100.100.100.200"):    true, // Alibaba
	netip.MustParseAddr("192.0.0.192"):        true, // Oracle
	netip.MustParseAddr("168.63.129.16"):      true, // Azure's host agent
	netip.MustParseAddr("fd00:ec2::254"):      true, // AWS
	netip.MustParseAddr("fd00:ec2::23"):       true, // AWS EKS
	netip.MustParseAddr("fd20:ce::254"):       true, // GCP
	netip.MustParseAddr("fd00:c1::a9fe:a9fe"): true, // Oracle
}

// ranges are checked in order; what is in none is public.
var ranges = []struct {
	prefix netip.Prefix
	kind   kind
}{
	{netip.MustParsePrefix("0.0.0.0/8"), unspecified}, // "this network": reaches this host
	{netip.MustParsePrefix("127.0.0.0/8"), loopback},
	{netip.MustParsePrefix("10.0.0.0/8"), private},
	{netip.MustParsePrefix("172.16.0.0/12"), private},
	{netip.MustParsePrefix("192.168.0.0/16"), private},
	{netip.MustParsePrefix("100.64.0.0/10"), private}, // carrier-grade NAT, RFC 6598
	{netip.MustParsePrefix("192.0.0.0/24"), private},  // protocol assignments
	{netip.MustParsePrefix("198.18.0.0/15"), private}, // benchmarks; local proxies hand these out
	{netip.MustParsePrefix("169.254.0.0/16"), linkLocal},
	{netip.MustParsePrefix("224.0.0.0/4"), multicast},
	{netip.MustParsePrefix("240.0.0.0/4"), reserved}, // with the broadcast address

	{netip.MustParsePrefix("::/128"), unspecified},
	{netip.MustParsePrefix("::1/128"), loopback},
	{netip.MustParsePrefix("fc00::/7"), private},  // unique local
	{netip.MustParsePrefix("fec0::/10"), private}, // site-local, deprecated
	{netip.MustParsePrefix("64:ff9b:1::/48"), private},
	{netip.MustParsePrefix("fe80::/10"), linkLocal},
	{netip.MustParsePrefix("ff00::/8"), multicast},
	{netip.MustParsePrefix("100::/64"), reserved}, // discard
}

// kindOf says what an unmapped address without embedded IPv4 is.
func kindOf(addr netip.Addr) kind {
	if metadataAddrs[addr] {
		return metadata
	}
	for i := range ranges {
		if ranges[i].prefix.Contains(addr) {
			return ranges[i].kind
		}
	}
	return public
}

var (
	compatible = netip.MustParsePrefix("::/96")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // SIIT, RFC 7915
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
)

// embedded returns the IPv4 address that packets to an IPv6 address end up at,
// when it holds one. For Teredo that is the client's.
func embedded(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() || addr.IsLoopback() || addr.IsUnspecified() {
		return netip.Addr{}, false
	}
	b := addr.As16()
	switch {
	case addr.Is4In6():
		return addr.Unmap(), true
	case compatible.Contains(addr), translated.Contains(addr), nat64.Contains(addr), isISATAP(&b):
		return netip.AddrFrom4([4]byte(b[12:])), true
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case teredo.Contains(addr): // RFC 4380 section 4: every bit is turned over
		var v4 [4]byte
		binary.BigEndian.PutUint32(v4[:], ^binary.BigEndian.Uint32(b[12:]))
		return netip.AddrFrom4(v4), true
	}
	return netip.Addr{}, false
}

// isISATAP recognises the interface identifier of RFC 5214 section 6.1.
func isISATAP(b *[16]byte) bool {
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
