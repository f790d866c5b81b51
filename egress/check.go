package egress

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// check returns every fault of c, joined, each wrapping ErrConfig.
func (c Config) check() error {
	var faults []error
	names := map[string]bool{}
	for _, r := range c.Rules {
		if names[r.Name] {
			faults = append(faults, badRule(r.Name, "another rule has this name"))
		}
		names[r.Name] = true
		faults = append(faults, r.check())
	}
	for _, shop := range slices.Sorted(maps.Keys(c.Shops)) {
		if name := c.Shops[shop]; name != "" && !names[name] {
			faults = append(faults, fmt.Errorf("%w: shop %q: there is no egress rule %q", ErrConfig, shop, name))
		}
	}
	return errors.Join(faults...)
}

// check returns the faults of one rule, joined.
func (r Rule) check() error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, badRule(r.Name, format, args...)) }
	switch {
	case r.Name == "":
		add("it needs a name")
	case strings.ContainsFunc(r.Name, unicode.IsControl):
		add("a name has no control characters")
	}
	switch {
	case r.Direct && len(r.Proxies) > 0:
		add("it is direct and has a proxy")
	case !r.Direct && len(r.Proxies) == 0:
		add("it needs a proxy")
	}
	switch {
	case r.OnFailure != "" && r.OnFailure != Stay && r.OnFailure != Next:
		add("on_failure is %s or %s", Stay, Next)
	case r.OnFailure == Next && len(r.Proxies) < 2:
		add("on_failure: %s needs a pool", Next)
	}
	seen := map[uint64]bool{}
	for i, p := range r.Proxies {
		why := p.fault()
		if id := member("", p); why == "" && seen[id] {
			why = "it stands twice in the pool"
		} else {
			seen[id] = true
		}
		if why != "" {
			add("proxy %d: %s", i+1, why)
		}
	}
	return errors.Join(faults...)
}

// fault says what is wrong with p, without its user and password; empty: nothing.
func (p Proxy) fault() string {
	if !slices.Contains([]string{schemeHTTP, schemeHTTPS, schemeSOCKS5, schemeSOCKS5H}, p.Scheme) {
		return "its scheme is http, https, socks5 or socks5h"
	}
	host := p.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if same, ok := parseHost(host); !ok || same != p.Host || p.Port == 0 {
		return "it needs a host, in lower case and without brackets, and a port"
	}
	if p.User == "" && p.Password != "" {
		return "it has a password and no user"
	}
	if p.Scheme == schemeHTTP || p.Scheme == schemeHTTPS {
		// RFC 7617 section 2: the first colon ends the user.
		if strings.Contains(p.User, ":") || strings.ContainsFunc(p.User+p.Password, unicode.IsControl) {
			return "user and password have no control characters, the user no colon"
		}
	}
	return cmp.Or(textFault("user", p.User, p.socks()), textFault("password", p.Password, p.socks()))
}

// textFault says what is wrong with a user or password. An unknown placeholder
// is not repeated: it may be a part of the password.
func textFault(kind, text string, socks bool) string {
	t, ok := newTemplate(text)
	switch {
	case !ok:
		return "its " + kind + " holds an unknown placeholder; there are " + placeShop + " and " + placeTaskType
	case !t.fits():
		return "its " + kind + " is too long to hold placeholders"
	case socks && t.fixed() && len(text) > longestText:
		return fmt.Sprintf("its %s is longer than the %d bytes of SOCKS5", kind, longestText)
	}
	return ""
}
