package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/bcrypt"
)

// listen checks all addresses we listen on; none may be used twice.
func (c *checker) listen(conf *Config) {
	seen := map[string]string{}
	c.address(seen, "listen.proxy", conf.Listen.Proxy)
	if conf.Listen.Admin != "" {
		c.address(seen, "listen.admin", conf.Listen.Admin)
	}
	if conf.Listen.Health != "" {
		c.address(seen, "listen.health", conf.Listen.Health)
	}
	for i, host := range conf.Listen.Hosts {
		c.host(fmt.Sprintf("listen.hosts[%d]", i), host)
	}
	for i, l := range conf.Listeners {
		path := fmt.Sprintf("listeners[%d]", i)
		c.address(seen, path+".addr", l.Addr)
		c.labels(path, l.Shop, l.ShopTier, l.TaskType)
	}
}

// leastToken is how short a token may be, in bytes: shorter ones are guessed.
const leastToken = 8

// admin checks who is let in. The shorthand is an admin of that name.
func (c *checker) admin(a *Admin) {
	names := map[string]string{}
	if a.Token != "" {
		names["admin"] = "admin.token"
	}
	for i := range a.Tokens {
		t, at := &a.Tokens[i], fmt.Sprintf("admin.tokens[%d]", i)
		if t.Name == "" {
			c.fail(at+".name", "is missing: it signs what is done with the token")
		} else {
			c.label(at+".name", t.Name)
			c.unique(names, t.Name, at+".name")
		}
		c.oneOf(at+".role", t.Role, "viewer", "operator", "admin")
		if len(t.Token) < leastToken {
			c.fail(at+".token", "want at least %d characters", leastToken)
		}
	}
}

// address checks one address to listen on. Port 0 asks for any free port.
func (c *checker) address(seen map[string]string, path, addr string) {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err == nil && host != "" && host != "localhost" {
		_, err = netip.ParseAddr(host)
	}
	if err != nil {
		c.fail(path, "%q must be an address and a port such as 127.0.0.1:8080", shorten(addr))
		return
	}
	if port != "0" {
		c.unique(seen, addr, path)
	}
}

func (c *checker) clients(cl *Clients) {
	if len(cl.Allow) == 0 {
		c.fail("clients.allow", "is empty, so nobody could connect; 0.0.0.0/0 and ::/0 allow everybody")
	}
	for name, user := range cl.Users {
		path := join("clients.users", name)
		if name == "" || strings.ContainsAny(name, ":;") || !isVisible(name) || len(name) > 128 {
			c.fail(path, "a user name is 1 to 128 visible characters without : and ;")
		}
		if cost, err := bcrypt.Cost([]byte(user.Hash)); err != nil {
			c.fail(path+".hash", "must be a bcrypt hash, as hash-password prints it")
		} else if cost > 14 {
			c.fail(path+".hash", "bcrypt cost %d takes seconds for each check; at most 14", cost)
		}
		c.labels(path, user.Shop, user.ShopTier, user.TaskType)
	}
}

func (c *checker) labels(path, shop, tier, task string) {
	c.optionalLabel(path+".shop", shop)
	c.optionalLabel(path+".shop_tier", tier)
	c.optionalLabel(path+".task_type", task)
}

func (c *checker) optionalLabel(path, value string) {
	if value != "" {
		c.label(path, value)
	}
}

// label checks a label that the configuration gives to calls.
func (c *checker) label(path, value string) {
	if value == "" || len(value) > 128 || !isVisible(value) {
		c.fail(path, "%q must be 1 to 128 visible characters", shorten(value))
	}
}

func (c *checker) destinations(d *Destinations) {
	c.oneOf("destinations.private", d.Private, "auto", "allow", "deny")
	for key, list := range map[string][]string{"allow": d.Allow, "deny": d.Deny} {
		for i, entry := range list {
			path := fmt.Sprintf("destinations.%s[%d]", key, i)
			if _, err := parsePrefix(entry); err == nil {
				continue
			} else if strings.Contains(entry, "/") {
				c.fail(path, "%v", err)
				continue
			}
			c.hostPattern(path, entry)
		}
	}
	for i, port := range d.ConnectPorts {
		between(c, fmt.Sprintf("destinations.connect_ports[%d]", i), port, 1, 65535)
	}
}

// framing are the fields that belong to the connection or the message itself.
var framing = []string{
	"connection", "content-length", "content-type", "host", "keep-alive", "proxy-authorization", "proxy-connection",
	"te", "trailer", "transfer-encoding", "upgrade", "authorization", "cookie", "via",
}

func (c *checker) headers(h *Headers) {
	if len(h.IdempotencyKey) == 0 {
		c.fail("headers.idempotency_key", "must name at least one header")
	}
	seen := map[string]string{}
	for i, name := range h.IdempotencyKey {
		c.header(seen, fmt.Sprintf("headers.idempotency_key[%d]", i), name)
	}
	c.header(seen, "headers.retry_count", h.RetryCount)
	c.header(seen, "headers.shop", h.Shop)
	c.header(seen, "headers.shop_tier", h.ShopTier)
	c.header(seen, "headers.task_type", h.TaskType)
	c.header(seen, "headers.timeout", h.Timeout)
}

func (c *checker) header(seen map[string]string, path, name string) {
	switch {
	case !isToken(name):
		c.fail(path, "%q is not a header name", shorten(name))
	case slices.Contains(framing, strings.ToLower(name)):
		c.fail(path, "%s has a meaning of its own", name)
	default:
		c.unique(seen, strings.ToLower(name), path)
	}
}

// tls checks that every file holds certificates.
func (c *checker) tls(t *TLS) {
	for i, pem := range t.pem {
		if len(t.pem) == len(t.CAFiles) && !x509.NewCertPool().AppendCertsFromPEM(pem) {
			c.fail(fmt.Sprintf("tls.ca_files[%d]", i), "%s holds no PEM certificate", t.CAFiles[i])
		}
	}
}

// Roots are the system's roots and those of ca_files; nil: the system's alone.
func (t *TLS) Roots() *x509.CertPool {
	if len(t.pem) == 0 {
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a machine without roots still has ours
	}
	for _, pem := range t.pem {
		pool.AppendCertsFromPEM(pem)
	}
	return pool
}

func (c *checker) routes(routes []Route) {
	names, places := map[string]string{}, map[string]string{}
	for i := range routes {
		r := &routes[i]
		path := fmt.Sprintf("routes[%d]", i)
		if r.Prefix == "" && r.Host == "" {
			c.fail(path, "needs a prefix or a host")
			continue
		}
		if r.Prefix != "" && !isPrefix(r.Prefix) {
			c.fail(path+".prefix", "%q must be a path such as /pdd, without query, // or a final /", shorten(r.Prefix))
		}
		if r.Host != "" {
			c.host(path+".host", r.Host)
		}
		c.unique(names, r.Name, path+".name")
		c.unique(places, strings.ToLower(r.Host)+r.Prefix, path)
		c.upstreams(path+".upstreams", r.Upstreams)
	}
}

func (c *checker) upstreams(path string, list []string) {
	if len(list) == 0 {
		c.fail(path, "must name at least one upstream such as https://gw-api.pinduoduo.com")
	}
	for i, base := range list {
		if err := checkUpstream(base); err != nil {
			c.fail(fmt.Sprintf("%s[%d]", path, i), "%v", err)
		}
	}
}

// checkUpstream checks a base URL. The URL is not repeated when it holds a password.
func checkUpstream(base string) error {
	u, err := url.Parse(base)
	switch {
	case err != nil, !slices.Contains([]string{"http", "https", "h2c"}, u.Scheme), u.Hostname() == "", u.Opaque != "":
		return errors.New("want a URL such as https://gw-api.pinduoduo.com")
	case u.User != nil:
		return errors.New("a URL with a user name or password is not supported")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(base, "#"):
		return errors.New("a base URL has neither query nor fragment")
	case !isHost(u.Hostname()):
		return fmt.Errorf("%q is not a host name", shorten(u.Hostname()))
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%q is not a port", shorten(port))
		}
	}
	return nil
}

func (c *checker) host(path, host string) {
	if !isHost(host) {
		c.fail(path, "%q must be a host name or an address, without port", shorten(host))
	}
}

func (c *checker) hostPatterns(path string, list []string) {
	for i, p := range list {
		c.hostPattern(fmt.Sprintf("%s[%d]", path, i), p)
	}
}

// hostPattern checks a host pattern, which may have a port.
func (c *checker) hostPattern(path, pattern string) {
	name := strings.ReplaceAll(pattern, "*", "x")
	if host, port, err := net.SplitHostPort(name); err == nil {
		if _, err := strconv.ParseUint(strings.ReplaceAll(port, "x", "1"), 10, 16); err == nil {
			name = host
		}
	}
	if !isHost(name) {
		c.fail(path, "%q must be a host pattern such as *.example.com", shorten(pattern))
	}
}

// isHost says whether s is an address or looks like a name.
func isHost(s string) bool {
	inner, opened := strings.CutPrefix(s, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if addr, err := netip.ParseAddr(inner); err == nil {
		return addr.Zone() == "" && opened == closed && (addr.Is6() || !opened)
	}
	s = strings.TrimSuffix(s, ".")
	return s != "" && len(s) <= 253 && !strings.Contains(s, "..") && s[0] != '.' &&
		all(s, func(r rune) bool {
			return r == '-' || r == '_' || r == '.' || r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r))
		})
}

// isPrefix says whether s is a clean path.
func isPrefix(s string) bool {
	return s[0] == '/' && (s == "/" || !strings.HasSuffix(s, "/")) && !strings.Contains(s, "//") &&
		!strings.ContainsAny(s, "?#%\\") && !slices.Contains(strings.Split(s, "/"), "..") && isVisible(s)
}

// isInstance says whether s can stand in Via and as a structured-field token.
func isInstance(s string) bool {
	return isToken(s) && len(s) <= 64 && unicode.IsLetter(rune(s[0]))
}

// isToken is the token of RFC 9110 section 5.6.2.
func isToken(s string) bool {
	return s != "" && all(s, func(r rune) bool {
		return r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// isVisible says whether s has neither blanks nor control characters.
func isVisible(s string) bool {
	return utf8.ValidString(s) && all(s, func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) })
}

func all(s string, ok func(rune) bool) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !ok(r) }) < 0
}
