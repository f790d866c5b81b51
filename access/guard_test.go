package access

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func ports(list ...string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range list {
		out = append(out, netip.MustParseAddrPort(s))
	}
	return out
}

// check judges addr at port 80.
func check(g *Guard, addr string, exempt bool) error {
	return g.Check(netip.AddrPortFrom(netip.MustParseAddr(addr), 80), exempt)
}

var (
	publicAddrs  = []string{"8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1", "172.32.0.1", "100.128.0.1", "192.0.1.1"}
	privateAddrs = []string{
		"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "127.0.0.1", "127.255.255.255", "::1",
		"100.64.0.1", "100.127.255.255", "192.0.0.1", "198.18.0.1", "fc00::1", "fd12::1", "fec0::1", "64:ff9b:1::1",
	}
	embeddedAddrs = []string{
		"::ffff:10.0.0.1", "::ffff:127.0.0.1", "::10.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::127.0.0.1",
		"2002:a00:1::", "2002:7f00:1::1", "2001:0:808:808::f5ff:fffe", "2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:10.0.0.1",
	}
	neverAddrs = []string{
		"0.0.0.0", "0.0.0.1", "::", "::ffff:0.0.0.0", "::0.0.0.2",
		"169.254.1.1", "fe80::1", "febf::1", "::ffff:169.254.1.1",
		"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "2002:a9fe:a9fe::", "169.254.170.2",
		"100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "64:ff9b::100.100.100.200",
		"224.0.0.1", "239.255.255.250", "ff02::1", "255.255.255.255", "240.0.0.1", "100::1", "64:ff9b::224.0.0.1",
	}
)

// A name that is looked up elsewhere is judged by what it says.
func TestCheckName(t *testing.T) {
	own := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9090")}
	for _, tt := range []struct {
		name          string
		port          uint16
		exempt, allow bool // destinations.private: allow
		want          error
	}{
		{"gw.test", 443, false, false, nil},
		{"localhost", 80, false, false, ErrDestination},
		{"x.localhost", 80, false, false, ErrDestination},
		{"localhost", 80, false, true, nil},
		{"localhost", 9090, false, true, ErrLoop},
		{"localhost", 9090, true, true, ErrLoop},
		{"metadata.google.internal", 80, true, true, ErrDestination},
		{"metadata", 80, false, true, ErrDestination},
		{"nas", 80, false, false, ErrDestination},
		{"nas", 80, true, false, nil},
		{"printer.local", 80, false, false, ErrDestination},
		{"db.internal", 80, false, false, ErrDestination},
		{"db.internal", 80, false, true, nil},
		{"notlocal.test", 80, false, false, nil},
	} {
		c := GuardConfig{Private: "deny", Others: own}
		if tt.allow {
			c.Private = "allow"
		}
		err := NewGuard(c).CheckName(tt.name, tt.port, tt.exempt)
		if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("CheckName(%s, %d, %v) with %s = %v, want %v", tt.name, tt.port, tt.exempt, c.Private, err, tt.want)
		}
	}
}

func TestGuardDeniesPrivate(t *testing.T) {
	g := NewGuard(GuardConfig{Private: "deny"})
	for _, addr := range publicAddrs {
		if err := check(g, addr, false); err != nil {
			t.Errorf("Check(%s) = %v, want nil", addr, err)
		}
	}
	for _, addr := range append(append([]string{}, privateAddrs...), embeddedAddrs...) {
		if err := check(g, addr, false); !errors.Is(err, ErrDestination) {
			t.Errorf("Check(%s) = %v, want ErrDestination", addr, err)
		}
		if err := check(g, addr, true); err != nil {
			t.Errorf("Check(%s, exempt) = %v, want nil", addr, err)
		}
	}
}

func TestGuardAllowsPrivate(t *testing.T) {
	g := NewGuard(GuardConfig{Private: "allow"})
	for _, addr := range append(append(append([]string{}, publicAddrs...), privateAddrs...), embeddedAddrs...) {
		if err := check(g, addr, false); err != nil {
			t.Errorf("Check(%s) = %v, want nil", addr, err)
		}
	}
}

// Neither private: allow nor the configuration's own upstreams lift these.
func TestGuardNeverAllows(t *testing.T) {
	g := NewGuard(GuardConfig{Private: "allow", Allow: []string{"0.0.0.0/0", "::/0"}})
	for _, addr := range neverAddrs {
		if err := check(g, addr, true); !errors.Is(err, ErrDestination) {
			t.Errorf("Check(%s, exempt) = %v, want ErrDestination", addr, err)
		}
	}
	if err := g.Check(netip.AddrPort{}, true); !errors.Is(err, ErrDestination) {
		t.Errorf("Check(no address) = %v, want ErrDestination", err)
	}
}

func TestGuardAuto(t *testing.T) {
	for _, c := range []struct {
		name string
		conf GuardConfig
		want error
	}{
		{"all on loopback", GuardConfig{Proxies: ports("127.0.0.1:8080", "[::1]:8080")}, nil},
		{"health beyond loopback", GuardConfig{Proxies: ports("127.0.0.1:8080"), Others: ports("0.0.0.0:9091")}, nil},
		{"one beyond loopback", GuardConfig{Proxies: ports("127.0.0.1:8080", "10.0.0.5:8080")}, ErrDestination},
		{"everywhere", GuardConfig{Proxies: ports("[::]:8080")}, ErrDestination},
	} {
		c.conf.Private = "auto"
		err := check(NewGuard(c.conf), "10.1.2.3", false)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: Check(10.1.2.3) = %v, want %v", c.name, err, c.want)
		}
		if err != nil && !(strings.Contains(err.Error(), "10.1.2.3") && strings.Contains(err.Error(), "destinations.private: auto")) {
			t.Errorf("%s: error %q, want the address and the setting in it", c.name, err)
		}
	}
}

func TestGuardLists(t *testing.T) {
	g := NewGuard(GuardConfig{
		Private: "deny",
		Allow:   []string{"10.1.0.0/16", "192.168.1.7", "fd00::/16", "*.svc.local", "u1.test"},
		Deny:    []string{"10.1.9.0/24", "8.8.8.8", "*.ads.example"},
	})
	for _, c := range []struct {
		addr   string
		exempt bool
		want   error
	}{
		{"10.1.2.3", false, nil},
		{"::ffff:10.1.2.3", false, nil},
		{"64:ff9b::10.1.2.3", false, nil},
		{"192.168.1.7", false, nil},
		{"192.168.1.8", false, ErrDestination},
		{"fd00::9", false, nil},
		{"10.1.9.9", false, ErrDestination},
		{"10.1.9.9", true, ErrDestination}, // deny is stronger than all
		{"8.8.8.8", false, ErrDestination},
		{"64:ff9b::8.8.8.8", false, ErrDestination},
		{"8.8.4.4", false, nil},
	} {
		if err := check(g, c.addr, c.exempt); !errors.Is(err, c.want) {
			t.Errorf("Check(%s, exempt %v) = %v, want %v", c.addr, c.exempt, err, c.want)
		}
	}
	if !g.Exempt("api.svc.local:80") || !g.Exempt("U1.test") || g.Exempt("u2.test") {
		t.Error("Exempt does not follow the host patterns of destinations.allow")
	}
	if err := g.CheckHost("x.ads.example"); !errors.Is(err, ErrDestination) || !strings.Contains(err.Error(), "destinations.deny") {
		t.Errorf("CheckHost of a denied name = %v, want ErrDestination with the setting", err)
	}
}

func TestGuardLoop(t *testing.T) {
	g := NewGuard(GuardConfig{
		Private: "allow", Proxies: ports("127.0.0.1:8080", "0.0.0.0:8081"), Others: ports("[::]:9090"),
		Interfaces: []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("2001:db8::5")},
	})
	for _, c := range []struct {
		to   string
		want error
	}{
		{"127.0.0.1:8080", ErrLoop},
		{"[::ffff:127.0.0.1]:8080", ErrLoop},
		{"[64:ff9b::7f00:1]:8080", ErrLoop},
		{"127.0.0.1:8088", nil},
		{"127.0.0.2:8080", nil},
		{"10.0.0.5:8080", nil},
		{"127.0.0.1:8081", ErrLoop},
		{"127.0.0.2:8081", ErrLoop},
		{"10.0.0.5:8081", ErrLoop},
		{"10.0.0.6:8081", nil},
		{"[2001:db8::5]:9090", ErrLoop},
		{"[::1]:9090", ErrLoop},
		{"0.0.0.0:8081", ErrDestination},
	} {
		for _, exempt := range []bool{false, true} {
			if err := g.Check(netip.MustParseAddrPort(c.to), exempt); !errors.Is(err, c.want) {
				t.Errorf("Check(%s, exempt %v) = %v, want %v", c.to, exempt, err, c.want)
			}
		}
	}
}

func TestCase_EG_01_NumericSpellingsOfBlockedAddresses(t *testing.T) {
	g := NewGuard(GuardConfig{Private: "allow"})
	for _, host := range []string{
		"2130706433", "0x7f000001", "0X7F000001", "017700000001", "0177.0.0.1", "0x7f.0.0.1", "0x7f.1", "127.1", "127.0.1", "0", "0x0", "0x",
		"127.0.0.1.", "127.0.0.01", "127.0.0.256", "1.2.3.4.5", "127.1.", "0x7f.0x0.0x0.0x1",
		"2852039166", "0xa9fea9fe", "169.254.43518", "0251.0376.0251.0376", "169.16689662",
		"1684300232", "0x64646464", "100.100.25800", "10.1", "0xa.1", "012.0.0.1", "167772161", "foo.1", "foo.0x1",
	} {
		if err := g.CheckHost(host); !errors.Is(err, ErrDestination) {
			t.Errorf("CheckHost(%q) = %v, want ErrDestination", host, err)
		}
	}
	for _, host := range []string{
		"127.0.0.1", "169.254.169.254", "::1", "[::1]", "a.test", "A.Test.", "1a", "0xg", "1.example", "xn--fiqs8s.cn", "under_score.test", "a-1.test",
	} {
		if err := g.CheckHost(host); err != nil {
			t.Errorf("CheckHost(%q) = %v, want nil: judged when it is dialled", host, err)
		}
	}
}

func TestCase_EG_04_UnspecifiedMeansThisHost(t *testing.T) {
	g := NewGuard(GuardConfig{Private: "allow", Allow: []string{"0.0.0.0/8", "::/128"}})
	for _, addr := range []string{"0.0.0.0", "::", "0.0.0.1", "::ffff:0.0.0.0"} {
		if err := check(g, addr, true); !errors.Is(err, ErrDestination) {
			t.Errorf("Check(%s) = %v, want ErrDestination", addr, err)
		}
	}
	if err := g.CheckHost("0"); !errors.Is(err, ErrDestination) {
		t.Errorf("CheckHost(0) = %v, want ErrDestination", err)
	}
}

func TestCase_EG_05_ZoneIdentifiers(t *testing.T) {
	g := NewGuard(GuardConfig{Private: "allow", Allow: []string{"::/0"}})
	for _, host := range []string{"fe80::1%lo", "fe80::1%25lo", "[fe80::1%25lo]", "[::1%25lo]", "::1%lo"} {
		err := g.CheckHost(host)
		if !errors.Is(err, ErrDestination) {
			t.Errorf("CheckHost(%q) = %v, want ErrDestination", host, err)
		} else if strings.Contains(err.Error(), "lo]") || strings.Contains(err.Error(), "%lo") {
			t.Errorf("CheckHost(%q) repeats the zone: %v", host, err)
		}
	}
	if err := check(g, "::1%lo", true); !errors.Is(err, ErrDestination) {
		t.Errorf("Check(::1%%lo) = %v, want ErrDestination", err)
	}
}

// The breaker's half of the case is where hosts are normalised.
func TestCase_EG_07_SpellingsOfAHostDoNotSlipTheDenyList(t *testing.T) {
	g := NewGuard(GuardConfig{Private: "allow", Deny: []string{"u1.test"}})
	for _, host := range []string{"u1.test", "U1.Test", "u1.test.", "U1.TEST."} {
		if err := g.CheckHost(host); !errors.Is(err, ErrDestination) {
			t.Errorf("CheckHost(%q) = %v, want ErrDestination", host, err)
		}
	}
}

func TestCheckHostRefusesJunk(t *testing.T) {
	g := NewGuard(GuardConfig{Private: "allow"})
	for _, host := range []string{"a b", "a\x00b", "１２７.0.0.1", "a/b", "u@h", "a%2eb", "a\\b", "a:b", "é.test"} {
		if err := g.CheckHost(host); !errors.Is(err, ErrDestination) {
			t.Errorf("CheckHost(%q) = %v, want ErrDestination", host, err)
		}
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	g := NewGuard(GuardConfig{Private: "deny", Proxies: ports("127.0.0.1:8080"), Deny: []string{"10.0.0.0/8", "*.bad"}})
	to := netip.MustParseAddrPort("[2606:4700::1111]:443")
	n := testing.AllocsPerRun(100, func() {
		if g.CheckHost("api.example.com") != nil || g.Check(to, false) != nil {
			t.Error("a plain destination was denied")
		}
	})
	if n != 0 {
		t.Errorf("CheckHost and Check allocate %v times, want 0", n)
	}
}

func BenchmarkGuard(b *testing.B) {
	g := NewGuard(GuardConfig{Private: "deny", Proxies: ports("127.0.0.1:8080"), Deny: []string{"10.0.0.0/8", "*.bad"}})
	to := netip.MustParseAddrPort("8.8.8.8:443")
	b.ReportAllocs()
	for b.Loop() {
		if g.CheckHost("api.example.com") != nil || g.Check(to, false) != nil {
			b.Fatal("denied")
		}
	}
}

func FuzzHosts(f *testing.F) {
	g := NewGuard(GuardConfig{Private: "deny"})
	for _, s := range []string{"0x7f.1", "::1%lo", "a.test.", "[::ffff:10.0.0.1]", "64:ff9b::1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		err := g.CheckHost(host)
		(&Clients{}).AllowedHost(host)
		addr, parseErr := netip.ParseAddr(host)
		if parseErr != nil {
			if err == nil && strings.ContainsAny(host, " %/\x00") {
				t.Errorf("CheckHost(%q) = nil", host)
			}
			return
		}
		plain := g.Check(netip.AddrPortFrom(addr, 80), false)
		mapped := g.Check(netip.AddrPortFrom(netip.AddrFrom16(addr.As16()).WithZone(addr.Zone()), 80), false)
		if (plain == nil) != (mapped == nil) {
			t.Errorf("Check(%s) = %v, but %v in its 16-byte form", addr, plain, mapped)
		}
	})
}
