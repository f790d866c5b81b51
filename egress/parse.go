package egress

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// defaultPorts are those of the schemes that there are.
var defaultPorts = map[string]uint16{schemeHTTP: 80, schemeHTTPS: 443, schemeSOCKS5: 1080, schemeSOCKS5H: 1080}

// ParseProxy reads "scheme://user:password@host:port". User, password and port
// may be left out; user and password are percent-decoded. Its errors wrap
// ErrProxy and repeat no part of the text: a password may stand anywhere in a
// URL that is wrong.
func ParseProxy(text string) (Proxy, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	p := Proxy{Scheme: strings.ToLower(scheme)}
	port, known := defaultPorts[p.Scheme]
	if !known {
		return Proxy{}, badProxy("it starts with http://, https://, socks5:// or socks5h://")
	}
	rest = strings.TrimSuffix(rest, "/")
	if strings.ContainsAny(rest, "/?#") {
		return Proxy{}, badProxy("nothing follows the port; in user and password / is written %2F, ? is %3F and # is %23")
	}
	p.Port = port
	at := strings.LastIndexByte(rest, '@')
	if at >= 0 {
		if err := p.identify(rest[:at]); err != nil {
			return Proxy{}, err
		}
	}
	if err := p.locate(rest[at+1:]); err != nil {
		return Proxy{}, err
	}
	return p, nil
}

func badProxy(rule string) error { return fmt.Errorf("%w: %s", ErrProxy, rule) }

// identify reads "user" or "user:password".
func (p *Proxy) identify(info string) error {
	user, password, _ := strings.Cut(info, ":")
	var errUser, errPassword error
	p.User, errUser = url.PathUnescape(user)
	p.Password, errPassword = url.PathUnescape(password)
	switch {
	case errUser != nil || errPassword != nil:
		return badProxy("in user and password % is written %25")
	case p.User == "":
		return badProxy("the user before @ is missing")
	}
	return nil
}

// locate reads "host" or "host:port".
func (p *Proxy) locate(authority string) error {
	host, port, given := authority, "", false
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		host, port, given = authority[:i], authority[i+1:], true
	}
	if given {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return badProxy("a port is a number from 1 to 65535")
		}
		p.Port = uint16(n)
	}
	var ok bool
	if p.Host, ok = parseHost(host); !ok {
		return badProxy("a host is a name, an IPv4 address or an IPv6 address in brackets")
	}
	return nil
}

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
