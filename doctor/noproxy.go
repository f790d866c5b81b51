package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// examineNoProxy finds platforms that the environment keeps from the proxy.
func examineNoProxy(f *Facts) []Finding {
	var out []Finding
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		if value := f.Shell.Vars[name]; value != "" && !(name == "no_proxy" && value == f.Shell.Vars["NO_PROXY"]) {
			out = append(out, excluded(f, name, value)...)
		}
	}
	return append(out, loopbackInGo(f)...)
}

// excluded judges one list.
func excluded(f *Facts, name, value string) []Finding {
	var keep, bad, hosts []string
	for entry := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == ' ' }) {
		if entry == "*" {
			return []Finding{{
				"env.no_proxy_all", groupShell, Problem, name + "=* switches the proxy off",
				"No call of a program that reads it comes here.", withoutVariable(name),
			}}
		}
		hit := f.Setup.coveredBy(entry)
		if len(hit) == 0 {
			keep = append(keep, entry)
			continue
		}
		bad, hosts = append(bad, entry), append(hosts, hit...)
	}
	if len(bad) == 0 {
		return nil
	}
	slices.Sort(hosts)
	fix := withoutVariable(name)
	if len(keep) > 0 {
		fix = inShell(name, strings.Join(keep, ","))
	}
	return []Finding{{
		"env.no_proxy", groupShell, Problem, fmt.Sprintf("%s has %s, which covers %s", name, strings.Join(bad, ", "), strings.Join(slices.Compact(hosts), ", ")),
		"Calls to these hosts go past the proxy and are not retried.", fix,
	}}
}

// coveredBy lists the platforms that clients call by name and that entry takes
// from the proxy. Routes do not count: there clients call us.
func (s *Setup) coveredBy(entry string) []string {
	var out []string
	for i := range s.Upstreams {
		if u, err := url.Parse(s.Upstreams[i].URL); err == nil && !s.Upstreams[i].Route && covers(entry, u) {
			out = append(out, u.Hostname())
		}
	}
	return out
}

// covers says whether any common client takes entry for u: a domain stands for
// its subdomains, with a leading dot or *. as well, and prefixes hold addresses.
func covers(entry string, u *url.URL) bool {
	host := strings.ToLower(u.Hostname())
	if prefix, err := netip.ParsePrefix(entry); err == nil {
		addr, err := netip.ParseAddr(host)
		return err == nil && prefix.Contains(addr.Unmap())
	}
	entry = strings.ToLower(entry)
	if h, port, err := net.SplitHostPort(entry); err == nil {
		if port != portOf(u) {
			return false
		}
		entry = h
	}
	entry = strings.TrimPrefix(strings.TrimPrefix(strings.Trim(entry, "[]"), "*"), ".")
	return entry != "" && (host == entry || strings.HasSuffix(host, "."+entry))
}

// portOf is the port of a URL, also when it is left out.
func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "h2c": "80", "https": "443"}[u.Scheme]
}

// loopbackInGo notes hosts that Go programs never call through a proxy.
func loopbackInGo(f *Facts) []Finding {
	for i := range f.Setup.Upstreams {
		u, err := url.Parse(f.Setup.Upstreams[i].URL)
		if err != nil || f.Setup.Upstreams[i].Route {
			continue
		}
		if addr, _ := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || addr.IsLoopback() {
			return []Finding{{
				"env.go_loopback", groupShell, Note, u.Host + " is on this machine",
				"Go programs and Chromium never use a proxy for localhost and 127.0.0.0/8, whatever the environment says; a route is reached by all.",
				[]Fix{inConfig("- {prefix: /local, upstreams: [%q]}   # under routes", f.Setup.Upstreams[i].URL)},
			}}
		}
	}
	return nil
}
