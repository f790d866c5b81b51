package config

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Egress is a rule: the calls that match leave through its proxy. One without a
// match is only for the shops that name it.
type Egress struct {
	Name      string      `key:"name"`
	Match     EgressMatch `key:"match"`
	Proxy     ProxyURL    `key:"proxy"`
	Pool      ProxyURLs   `key:"pool"`
	Sticky    string      `key:"sticky"`     // shop, for a pool; Parse fills it in
	OnFailure string      `key:"on_failure"` // stay, next
	User      Login       `key:"user"`       // instead of the URL's
	Password  Secret      `key:"password"`   // instead of the URL's
}

// EgressMatch says which calls a rule is for; a key left out is for all.
type EgressMatch struct {
	Shop     Patterns `key:"shop"`
	Host     Patterns `key:"host"`
	TaskType Patterns `key:"task_type"`
}

// ProxyURL is where an outgoing proxy listens; in the file it is a URL, the name
// of a file with one, or direct. The zero value is none.
type ProxyURL struct {
	Direct bool
	Endpoint
}

// ProxyURLs is a list of proxies.
type ProxyURLs []ProxyURL

// Login is a user name, which may be in a file as a Secret is, but is printed.
type Login string

// Endpoint is an outgoing proxy and what we are to it. User and Password may hold
// {shop} and {task_type}.
type Endpoint struct {
	Scheme         string // http, https, socks5 or socks5h
	Host           string // lower case, without brackets
	Port           uint16
	User, Password string // empty: none
}

// proxyPorts are the schemes of proxies and their usual ports.
var proxyPorts = map[string]uint16{"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}

// What is wrong with a proxy's URL. None repeats a part of it: it may hold a
// password, and where that begins is not sure in a URL that cannot be read.
var (
	errProxyURL  = errors.New("want direct or a URL such as socks5h://user:password@10.0.0.1:1080; schemes are http, https, socks5 and socks5h")
	errProxyHost = errors.New("want a host and a port after the user; an IPv6 address stands in brackets")
	errProxyPath = errors.New("a proxy's URL ends after the port: it has no path and no query")
	errProxyPort = errors.New("the port must be from 1 to 65535")
	errProxyUser = errors.New("a % in user or password must be written %25; under user and password they stand as they are")
)

// Defaults is what a rule has that says nothing.
func (e *Egress) Defaults() { e.OnFailure = "stay" }

// complete fills in what a pool means when it says no more.
func (e *Egress) complete() {
	if len(e.Pool) > 0 && e.Sticky == "" {
		e.Sticky = "shop"
	}
}

// Direct says that the calls of this rule go through no proxy.
func (e *Egress) Direct() bool { return e.Proxy.Direct }

// Endpoints are the rule's proxies under the user and password that it gives
// them; none when it is direct.
func (e *Egress) Endpoints() []Endpoint {
	members := e.Pool
	if len(members) == 0 && !e.Proxy.empty() && !e.Direct() {
		members = ProxyURLs{e.Proxy}
	}
	var out []Endpoint
	for _, m := range members {
		if e.User != "" {
			m.User = string(e.User)
		}
		if e.Password != "" {
			m.Password = string(e.Password)
		}
		out = append(out, m.Endpoint)
	}
	return out
}

// Named says that no call matches the rule: it is used where a shop names it.
func (m *EgressMatch) Named() bool { return len(m.Shop)+len(m.Host)+len(m.TaskType) == 0 }

// everything says that the rule matches every call.
func (m *EgressMatch) everything() bool {
	return len(m.Shop)+len(m.TaskType) == 0 && len(m.Host) > 0 && matchesAll(m.Host)
}

// String is the URL with <secret> for the password.
func (e Endpoint) String() string {
	if e.Host == "" {
		return ""
	}
	at := ""
	if e.User != "" || e.Password != "" {
		at = hiddenBraces.Replace(url.User(e.User).String())
		if e.Password != "" {
			at += ":" + hiddenSecret
		}
		at += "@"
	}
	return e.Scheme + "://" + at + net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// hiddenBraces keeps placeholders readable in a URL.
var hiddenBraces = strings.NewReplacer("%7B", "{", "%7D", "}")

// String is the URL with <secret> for the password, or direct.
func (p ProxyURL) String() string {
	if p.Direct {
		return directEgress
	}
	return p.Endpoint.String()
}

// directEgress is the word for going through no proxy.
const directEgress = "direct"

func (p *ProxyURL) empty() bool { return *p == ProxyURL{} }

// decode reads a URL, the file that holds it, or direct.
func (p *ProxyURL) decode(d *decoder, n *yaml.Node, path string) {
	var raw Secret
	if !d.scalar(n, path, valueOf(&raw)) {
		return
	}
	parsed, err := parseProxyURL(string(raw))
	if err != nil {
		d.fail(d.line(n, path), path, "%v", err)
		return
	}
	*p = parsed
}

func (p *ProxyURL) encode() *yaml.Node {
	return text(strings.ReplaceAll(p.String(), "${", "$${"))
}

// encode leaves out the keys that say nothing.
func (e *Egress) encode() *yaml.Node {
	n := encodeStruct(reflect.ValueOf(e).Elem())
	dropEmpty(n)
	return n
}

// encode leaves out the keys that match everything.
func (m *EgressMatch) encode() *yaml.Node {
	n := encodeStruct(reflect.ValueOf(m).Elem())
	dropEmpty(n)
	n.Style = yaml.FlowStyle
	return n
}

// parseProxyURL reads a URL or direct. The library's parser is no help: it takes
// no {shop}, and its errors hold the password.
func parseProxyURL(raw string) (ProxyURL, error) {
	if raw == "" || raw == directEgress {
		return ProxyURL{Direct: raw != ""}, nil
	}
	if strings.Contains(raw, hiddenSecret) {
		return ProxyURL{}, errors.New(hiddenSecret + " is what check prints in the place of a password; write the password, ${NAME}, or the key password")
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	e := Endpoint{Scheme: strings.ToLower(scheme)}
	if e.Port = proxyPorts[e.Scheme]; !ok || e.Port == 0 {
		return ProxyURL{}, errProxyURL
	}
	// A password from the environment may hold any of :/@, so the last @ counts.
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		if !e.setUser(rest[:i]) {
			return ProxyURL{}, errProxyUser
		}
		rest = rest[i+1:]
	}
	if err := e.setAddress(strings.TrimSuffix(rest, "/")); err != nil {
		return ProxyURL{}, err
	}
	return ProxyURL{Endpoint: e}, nil
}

// setUser reads user:password; false: an escape is broken.
func (e *Endpoint) setUser(userinfo string) bool {
	user, password, _ := strings.Cut(userinfo, ":")
	var err1, err2 error
	e.User, err1 = url.PathUnescape(user)
	e.Password, err2 = url.PathUnescape(password)
	return err1 == nil && err2 == nil
}

// setAddress reads host:port, the port only where it is there.
func (e *Endpoint) setAddress(address string) error {
	if strings.ContainsAny(address, "/?#") {
		return errProxyPath
	}
	host := address
	if i := strings.LastIndexByte(address, ':'); i > strings.LastIndexByte(address, ']') {
		port, err := strconv.ParseUint(address[i+1:], 10, 16)
		if err != nil || port == 0 {
			return errProxyPort
		}
		host, e.Port = address[:i], uint16(port)
	}
	inner, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		inner, bracketed = strings.CutSuffix(inner, "]")
	}
	addr, err := netip.ParseAddr(inner)
	if isV6 := err == nil && addr.Is6(); bracketed != isV6 || strings.ContainsAny(inner, "[]") || !isHost(inner) {
		return errProxyHost
	}
	e.Host = strings.ToLower(strings.TrimSuffix(inner, "."))
	if bracketed {
		e.Host = addr.String()
	}
	return nil
}
