package access

import (
	"errors"
	"net/netip"
	"testing"

	"retryproxy/message"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func newClients(t testing.TB, c ClientsConfig) *Clients {
	t.Helper()
	out, err := NewClients(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestClientAddresses(t *testing.T) {
	c := newClients(t, ClientsConfig{
		Allow:   prefixes("127.0.0.0/8", "::1/128", "10.0.0.0/8", "::ffff:192.168.0.0/112", "fe80::/10"),
		Trusted: prefixes("127.0.0.0/8"),
	})
	for _, x := range []struct {
		addr           string
		allow, trusted bool
	}{
		{"127.0.0.1", true, true},
		{"::ffff:127.0.0.1", true, true},
		{"::1", true, false},
		{"10.1.2.3", true, false},
		{"::ffff:10.1.2.3", true, false},
		{"192.168.1.1", true, false},
		{"fe80::1%eth0", true, false},
		{"11.0.0.1", false, false},
		{"2001:db8::1", false, false},
		{"::ffff:11.0.0.1", false, false},
	} {
		addr := netip.MustParseAddr(x.addr)
		if got := c.Allows(addr); got != x.allow {
			t.Errorf("Allows(%s) = %v, want %v", addr, got, x.allow)
		}
		if got := c.Trusted(addr); got != x.trusted {
			t.Errorf("Trusted(%s) = %v, want %v", addr, got, x.trusted)
		}
		if err := c.CheckAddr(addr); errors.Is(err, ErrClient) == x.allow {
			t.Errorf("CheckAddr(%s) = %v, want ErrClient: %v", addr, err, !x.allow)
		}
	}
	if c.Allows(netip.Addr{}) {
		t.Error("Allows(no address) = true, want false")
	}
	if got, want := c.CheckAddr(netip.MustParseAddr("::ffff:8.8.8.8")).Error(), "client denied: address 8.8.8.8 is not in clients.allow"; got != want {
		t.Errorf("CheckAddr = %q, want %q", got, want)
	}
}

// With users alone, credentials decide from wherever they come.
func TestUsersOpenTheDefaultAllowList(t *testing.T) {
	standard := prefixes("::1/128", "127.0.0.0/8")
	users := []User{{Name: "bot1", Hash: quick(t, "pw")}}
	for _, x := range []struct {
		name   string
		config ClientsConfig
		want   bool
	}{
		{"default", ClientsConfig{Allow: standard}, false},
		{"default with users", ClientsConfig{Allow: standard, Users: users}, true},
		{"another list with users", ClientsConfig{Allow: prefixes("10.0.0.0/8"), Users: users}, false},
		{"more than the default with users", ClientsConfig{Allow: append(prefixes("10.0.0.0/8"), standard...), Users: users}, false},
	} {
		c := newClients(t, x.config)
		for _, text := range []string{"192.0.2.7", "2001:db8::7"} {
			addr := netip.MustParseAddr(text)
			if got, err := c.Allows(addr), c.CheckAddr(addr); got != x.want || (err == nil) != x.want {
				t.Errorf("%s: Allows(%s) = %v, CheckAddr = %v, want %v", x.name, text, got, err, x.want)
			}
		}
		if _, _, err := c.Authenticate(basic("bot1:wrong")); c.HasUsers() && !errors.Is(err, ErrAuth) {
			t.Errorf("%s: Authenticate of a wrong password = %v, want ErrAuth", x.name, err)
		}
	}
}

func TestAllowedHost(t *testing.T) {
	c := newClients(t, ClientsConfig{Hosts: []string{"Proxy.Example.com", "10.0.0.5:8080", "0.0.0.0:8080", "[::]:8080", ":8080", "fd00::5"}})
	for _, x := range []struct {
		host string
		want bool
	}{
		{"localhost", true},
		{"LOCALHOST:8080", true},
		{"localhost.", true},
		{"bot.localhost:8080", true},
		{"127.0.0.1", true},
		{"127.9.9.9:80", true},
		{"[::1]:8080", true},
		{"[::1]", true},
		{"::1", true},
		{"[::ffff:127.0.0.1]:80", true},
		{"proxy.example.com", true},
		{"PROXY.example.com.:8080", true},
		{"10.0.0.5:9999", true},
		{"[fd00::5]:80", true},
		{"other.example.com", false},
		{"proxy.example.com.evil.example", false},
		{"localhost.evil.example", false},
		{"127.0.0.1.evil.example", false},
		{"10.0.0.6", false},
		{"0.0.0.0:8080", false}, // reaches us from any page of a browser here
		{"[::]:8080", false},
		{"[::1%lo]:80", false},
		{"2130706433", false},
		{"", false},
		{":8080", false},
	} {
		if got := c.AllowedHost(x.host); got != x.want {
			t.Errorf("AllowedHost(%q) = %v, want %v", x.host, got, x.want)
		}
	}
}

func TestCrossSite(t *testing.T) {
	const host = "localhost:8080"
	for _, x := range []struct {
		name   string
		fields message.Fields
		want   bool
	}{
		{"no browser", nil, false},
		{"same origin", message.Fields{{Name: "sec-fetch-site", Value: "same-origin"}}, false},
		{"typed in", message.Fields{{Name: "Sec-Fetch-Site", Value: "none"}}, false},
		{"cross-site", message.Fields{{Name: "Sec-Fetch-Site", Value: "cross-site"}}, true},
		{"same site, another port", message.Fields{{Name: "Sec-Fetch-Site", Value: "same-site"}}, true},
		{"cross-site with our origin", message.Fields{{Name: "Sec-Fetch-Site", Value: "cross-site"}, {Name: "Origin", Value: "http://localhost:8080"}}, true},
		{"old browser, ours", message.Fields{{Name: "Origin", Value: "http://LOCALHOST:8080"}}, false},
		{"old browser, other", message.Fields{{Name: "Origin", Value: "https://evil.example"}}, true},
		{"old browser, other port", message.Fields{{Name: "Origin", Value: "http://localhost:3000"}}, true},
		{"opaque origin", message.Fields{{Name: "Origin", Value: "null"}}, true},
		{"empty origin", message.Fields{{Name: "Origin", Value: ""}}, true},
	} {
		if got := CrossSite(x.fields, host); got != x.want {
			t.Errorf("%s: CrossSite = %v, want %v", x.name, got, x.want)
		}
	}
	if !(&Clients{}).CrossSite(message.Fields{{Name: "Origin", Value: "http://"}}, "") {
		t.Error("CrossSite with neither host = false, want true")
	}
}

func TestCheckListeners(t *testing.T) {
	standard := prefixes("::1/128", "127.0.0.0/8")
	users := []User{{Name: "bot1"}}
	for _, x := range []struct {
		name   string
		addrs  []string
		config ClientsConfig
		want   error
	}{
		{"loopback", []string{"127.0.0.1:8080", "localhost:8081", "[::1]:8082", "127.0.0.9:0"}, ClientsConfig{Allow: standard}, nil},
		{"everywhere", []string{"127.0.0.1:8080", ":8080"}, ClientsConfig{Allow: standard}, ErrListen},
		{"all of IPv4", []string{"0.0.0.0:8080"}, ClientsConfig{Allow: standard}, ErrListen},
		{"one address", []string{"10.0.0.5:8080"}, ClientsConfig{Allow: standard}, ErrListen},
		{"a name", []string{"proxy.example:8080"}, ClientsConfig{Allow: standard}, ErrListen},
		{"with users", []string{":8080"}, ClientsConfig{Allow: standard, Users: users}, nil},
		{"with an allow-list", []string{":8080"}, ClientsConfig{Allow: prefixes("10.0.0.0/8")}, nil},
		{"with more than the default", []string{":8080"}, ClientsConfig{Allow: append(prefixes("10.0.0.0/8"), standard...)}, nil},
		{"for everybody, said so", []string{":8080"}, ClientsConfig{Allow: prefixes("0.0.0.0/0", "::/0")}, nil},
	} {
		if err := CheckListeners(x.addrs, x.config); !errors.Is(err, x.want) {
			t.Errorf("%s: CheckListeners = %v, want %v", x.name, err, x.want)
		}
	}
}

func TestCheckAdmin(t *testing.T) {
	for _, x := range []struct {
		addr   string
		tokens int
		want   error
	}{
		{"127.0.0.1:9090", 0, nil},
		{"[::1]:9090", 0, nil},
		{"", 0, nil},
		{"0.0.0.0:9090", 0, ErrListen},
		{":9090", 0, ErrListen},
		{"0.0.0.0:9090", 1, nil},
		{"nonsense", 0, ErrListen},
	} {
		if err := CheckAdmin(x.addr, x.tokens); !errors.Is(err, x.want) {
			t.Errorf("CheckAdmin(%q, %d) = %v, want %v", x.addr, x.tokens, err, x.want)
		}
	}
}
