package doctor

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"retryproxy/classify"
)

// examineEgress judges the egress proxies by what was asked through them.
func examineEgress(f *Facts) []Finding {
	var out []Finding
	told := map[string]bool{} // one finding for each rule and fault
	for i := range f.Probes {
		p := &f.Probes[i]
		if !p.Fault.Egress() {
			continue
		}
		x := throughExit(f, p)
		if key := x.ID + " " + p.proxy(f); !told[key] {
			told[key] = true
			out = append(out, x)
		}
	}
	if f.Setup.Deny && len(f.Setup.BareShops) > 0 {
		out = append(out, Finding{
			"egress.bare_shops", groupEgress, Problem, "no egress rule fits " + some(f.Setup.BareShops, 5),
			"With egress_default: deny their calls are refused with 403.",
			[]Fix{inConfig("shops: {%q: {egress: RULE}}", f.Setup.BareShops[0])},
		})
	}
	return out
}

// throughExit is the finding of an egress proxy that did not let a call through.
// What it says of a host that perhaps nobody calls is no fault of its own.
func throughExit(f *Facts, p *Probe) Finding {
	x := Finding{"egress.failed", groupEgress, Problem, p.viaExit(f), "Calls of its shops fail; they never leave by another address.", nil}
	x.Fix = []Fix{p.curl("-m 10 -x " + quoted(p.proxy(f)))}
	if p.Listen {
		_, at, _ := strings.Cut(p.proxy(f), "://")
		x.Fix = []Fix{{"bash", "timeout 5 bash -c '</dev/tcp/" + strings.Replace(at, ":", "/", 1) + "' && echo it listens"}}
	}
	switch p.Fault {
	case classify.FaultEgressUnreachable:
		x.ID = "egress.unreachable"
	case classify.FaultEgressTimeout:
		x.ID = "egress.timeout"
	case classify.FaultEgressAuth:
		x.ID = "egress.auth"
		x.Fix = []Fix{inConfig(`- {name: %q, proxy: "%s"}   # under egress, match as before; in a password @ : / %% are %%40 %%3A %%2F %%25`, p.Exit, strings.Replace(p.proxy(f), "://", "://USER:${PASSWORD}@", 1))}
	case classify.FaultEgressDenied:
		x.ID = "egress.denied"
		x.Why = "The rules of the egress proxy forbid this destination; its owner has to allow it."
	}
	if p.Shipped && (p.Fault == classify.FaultEgressDenied || p.Fault == classify.FaultEgressFailed) {
		x.ID, x.Severity = "egress.shipped", Note
		x.Why = "It answers, so it listens. Name a host that is called through it (a route, intercept.hosts or upgrade_to_https) to have it tried."
	}
	return x
}

// viaExit is what came of the call; the upstream client names the proxy by itself.
func (p *Probe) viaExit(f *Facts) string {
	if strings.HasPrefix(p.Detail, "egress ") {
		return p.Detail
	}
	return fmt.Sprintf("egress %s (%s): %s", p.Exit, p.proxy(f), p.Detail)
}

// proxy is where the egress proxy listens, without credentials.
func (t *Target) proxy(f *Facts) string {
	if t.Through != nil {
		scheme, host, port := t.Through.Proxy()
		return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	if i := slices.IndexFunc(f.Exits, func(e Exit) bool { return e.Name == t.Exit }); i >= 0 {
		return f.Exits[i].Proxy
	}
	return "PROXY"
}

// some lists the first n of names and counts the rest.
func some(names []string, n int) string {
	text := strings.Join(names[:min(len(names), n)], ", ")
	if len(names) > n {
		text += fmt.Sprintf(" and %d more", len(names)-n)
	}
	return text
}
