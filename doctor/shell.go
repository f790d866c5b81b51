package doctor

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"retryproxy/access"
)

// Vars are the variables of the environment that Shell.Vars may hold.
var Vars = []string{
	"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy",
	"REQUEST_METHOD", "NODE_USE_ENV_PROXY", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS",
	"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
}

// proxyVars point clients to a proxy.
var proxyVars = Vars[:6]

// pointer is where a variable points.
type pointer struct {
	name, value string
	same        []string // variables with this value
	url         *url.URL // nil: it cannot be read
	here        bool     // at our listener
}

// pointers are the proxy variables that are set.
func pointers(f *Facts) []pointer {
	var out []pointer
	for _, name := range proxyVars {
		if value := f.Shell.Vars[name]; value != "" {
			out = append(out, point(&f.Setup, name, value))
		}
	}
	return out
}

// alikes are the pointers without those whose value another one before has.
func alikes(set []pointer) []pointer {
	var out []pointer
	for _, p := range set {
		i := slices.IndexFunc(out, func(o pointer) bool { return o.value == p.value })
		if i < 0 {
			p.same = []string{p.name}
			out = append(out, p)
			continue
		}
		out[i].same = append(out[i].same, p.name)
	}
	return out
}

// names lists the variables.
func (p *pointer) names() string { return strings.Join(p.same, ", ") }

// mended are the lines that set all of them.
func (p *pointer) mended(value string) []Fix {
	var pairs []string
	for _, name := range p.same {
		pairs = append(pairs, name, value)
	}
	return inShell(pairs...)
}

func point(s *Setup, name, value string) pointer {
	p := pointer{name: name, value: value}
	if !strings.Contains(value, "://") {
		value = "http://" + value
	}
	u, err := url.Parse(value)
	if err != nil || u.Host == "" {
		return p
	}
	p.url, p.here = u, s.isHere(u)
	return p
}

// isHere says whether a proxy URL leads to one of our listeners.
func (s *Setup) isHere(u *url.URL) bool {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return slices.ContainsFunc(append([]string{s.Proxy}, s.Listen...), func(at string) bool {
		h, p, err := net.SplitHostPort(at)
		return err == nil && p == port && s.reaches(host, strings.ToLower(h))
	})
}

// reaches says whether the name host leads to the address that is listened on.
func (s *Setup) reaches(host, listen string) bool {
	addr, _ := netip.ParseAddr(host)
	at, err := netip.ParseAddr(listen)
	everywhere := listen == "" || err == nil && at.IsUnspecified()
	looped := host == "localhost" || addr.IsLoopback()
	switch {
	case host == listen || slices.Contains(s.Names, host):
		return true
	case looped:
		return everywhere || listen == "localhost" || at.IsLoopback()
	}
	return everywhere && slices.Contains(s.Local, addr.Unmap())
}

// shown is a value of a variable without a password.
func (p *pointer) shown() string {
	if p.url == nil || p.url.User == nil {
		return p.value
	}
	before, after, _ := strings.Cut(p.value, "@")
	if i := strings.LastIndexByte(p.value, '@'); i >= 0 {
		before, after = p.value[:i], p.value[i+1:]
	}
	scheme, user, ok := strings.Cut(before, "://")
	if !ok {
		scheme, user = "", before
	} else {
		scheme += "://"
	}
	if name, _, has := strings.Cut(user, ":"); has {
		user = name + ":***"
	}
	return scheme + user + "@" + after
}

// examineShell judges the proxy variables.
func examineShell(f *Facts) []Finding {
	set := pointers(f)
	out := cgi(f)
	if len(set) == 0 {
		return append(out, Finding{
			"env.none", groupShell, Warning, "no proxy variable is set in this shell",
			"Programs started here do not use the proxy, unless they call a route or are told otherwise.",
			inShell("http_proxy", f.here(), "HTTP_PROXY", f.here(), "HTTPS_PROXY", f.here()),
		})
	}
	for _, p := range alikes(set) {
		out = append(out, pointed(f, &p)...)
	}
	out = append(out, conflicts(f, set)...)
	return append(out, coverage(f, set)...)
}

// here is the proxy's URL as clients need it.
func (f *Facts) here() string {
	if f.Setup.Users {
		return "http://USER:PASSWORD@" + f.Setup.Proxy
	}
	return "http://" + f.Setup.Proxy
}

// password stands for the one that goes with labels: any will do, unless there
// are users.
func (f *Facts) password() string {
	if f.Setup.Users {
		return "PASSWORD"
	}
	return "x"
}

// pointed judges one variable.
func pointed(f *Facts, p *pointer) []Finding {
	switch {
	case p.url == nil:
		return []Finding{{
			"env.unreadable", groupShell, Problem, fmt.Sprintf("%s=%s is not the URL of a proxy", p.names(), p.value),
			"Clients refuse it or go past the proxy.", p.mended(f.here()),
		}}
	case strings.Contains(p.url.Host, "=") && p.url.User == nil:
		return []Finding{{
			"env.unquoted", groupShell, Problem, fmt.Sprintf("%s=%s was cut off at the first ;", p.names(), p.value),
			"Without quotes the shell takes ; for the end of the command, so what is left names no proxy.",
			p.mended("http://" + p.url.Host + ";task=TASK:" + f.password() + "@" + f.Setup.Proxy),
		}}
	case !p.here:
		return []Finding{{
			"env.elsewhere", groupShell, Problem, fmt.Sprintf("%s=%s is not this proxy (%s)", p.names(), p.shown(), f.Setup.Proxy),
			"Calls of programs that read it go past this proxy: nothing is retried.", p.mended(f.here()),
		}}
	case strings.HasPrefix(p.url.Scheme, "socks"):
		return []Finding{{
			"env.socks", groupShell, Problem, fmt.Sprintf("%s=%s speaks SOCKS to the proxy, which takes plain http", p.names(), p.shown()),
			"Every call of a program that reads it fails.", p.mended(f.here()),
		}}
	case p.url.Scheme == "https":
		return []Finding{{
			"env.scheme", groupShell, Problem, fmt.Sprintf("%s=%s speaks TLS to the proxy, which takes plain http", p.names(), p.shown()),
			"The scheme is the proxy's, not the platform's; the handshake fails.", p.mended(f.here()),
		}}
	}
	return append(labelFault(f, p), credentials(f, p)...)
}

// labelFault finds labels in the user name that will not be read.
func labelFault(f *Facts, p *pointer) []Finding {
	name := p.url.User.Username()
	_, mistakes := access.UserLabels(name)
	if mistakes == 0 {
		return nil
	}
	return []Finding{{
		"env.labels", groupShell, Problem, fmt.Sprintf("%s has labels that cannot be read: %s", p.names(), name),
		"Such a part is left out, so the call has no shop, no limit and no policy of its own. The form is shop=17;task=order_ship;tier=vip.",
		p.mended("http://" + mendedLabels(name) + ":" + f.password() + "@" + f.Setup.Proxy),
	}}
}

// mendedLabels puts ; between labels and takes out what is none.
func mendedLabels(name string) string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == ',' || r == ';' || r == '&' })
	parts = slices.DeleteFunc(parts, func(part string) bool {
		_, mistakes := access.UserLabels(part)
		return mistakes > 0
	})
	if len(parts) == 0 {
		return "shop=SHOP"
	}
	return strings.Join(parts, ";")
}

// credentials finds a missing user where one is needed.
func credentials(f *Facts, p *pointer) []Finding {
	if _, has := p.url.User.Password(); has || !f.Setup.Users {
		return nil
	}
	return []Finding{{
		"env.users", groupShell, Problem, p.names() + " has no user and password, which clients.users asks for",
		"Every call is answered with 407.", p.mended(f.here()),
	}}
}

// conflicts finds spellings of one variable that differ.
func conflicts(f *Facts, set []pointer) []Finding {
	var out []Finding
	for i := range set {
		upper := strings.ToUpper(set[i].name)
		other, both := f.Shell.Vars[upper]
		if set[i].name == upper || !both || other == set[i].value || other == "" {
			continue
		}
		out = append(out, Finding{
			"env.conflict", groupShell, Warning, fmt.Sprintf("%s and %s differ", set[i].name, upper),
			"curl and Python read the lower-case one first, Go the upper-case one.",
			inShell(set[i].name, f.here(), upper, f.here()),
		})
	}
	return out
}

// coverage finds calls that no variable covers.
func coverage(f *Facts, set []pointer) []Finding {
	has := func(names ...string) *pointer {
		i := slices.IndexFunc(set, func(p pointer) bool { return slices.Contains(names, p.name) })
		if i < 0 {
			return nil
		}
		return &set[i]
	}
	var out []Finding
	upper, lower, all := has("HTTP_PROXY"), has("http_proxy"), has("ALL_PROXY", "all_proxy")
	if upper != nil && upper.here && lower == nil && f.Shell.OS != "windows" {
		out = append(out, Finding{
			"env.curl_upper_case", groupShell, Warning, "HTTP_PROXY is set in upper case only",
			"curl ignores it for http:// (only http_proxy counts there), so those calls are not retried.", alike("HTTP_PROXY", "http_proxy"),
		})
	}
	plain := cmp.Or(lower, upper)
	if plain != nil && plain.here && all == nil && has("HTTPS_PROXY", "https_proxy") == nil {
		out = append(out, Finding{
			"env.https_missing", groupShell, Warning, "HTTPS_PROXY is not set",
			"Calls to https:// go past the proxy.", alike(plain.name, "HTTPS_PROXY"),
		})
	}
	if all != nil && all.here && plain == nil {
		out = append(out, Finding{
			"env.all_only", groupShell, Note, all.name + " is set without HTTP_PROXY",
			"Go, Node and others do not read ALL_PROXY.", alike(all.name, "http_proxy", "HTTP_PROXY", "HTTPS_PROXY"),
		})
	}
	return out
}

// cgi finds the variable that makes clients distrust HTTP_PROXY.
func cgi(f *Facts) []Finding {
	method, set := f.Shell.Vars["REQUEST_METHOD"]
	if !set || f.Shell.Vars["HTTP_PROXY"] == "" {
		return nil
	}
	return []Finding{{
		"env.cgi", groupShell, Problem, "REQUEST_METHOD=" + method + " is set, as in a CGI program",
		"Go fails every call and Python ignores HTTP_PROXY then, because a client of a CGI program could have set it.",
		withoutVariable("REQUEST_METHOD"),
	}}
}

// quoted is a value for bash.
func quoted(v string) string {
	if strings.IndexFunc(v, func(r rune) bool { return !strings.ContainsRune(plainRunes, r) }) < 0 {
		return v
	}
	return "'" + strings.ReplaceAll(v, "'", `'\''`) + "'"
}

const plainRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/@.,-_=%+[]"

// powerQuoted is a value for PowerShell: in single quotes nothing is special.
func powerQuoted(v string) string { return "'" + strings.ReplaceAll(v, "'", "''") + "'" }
