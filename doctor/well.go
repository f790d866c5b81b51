package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"retryproxy/classify"
)

// allWell says what is well in the groups without warning or problem.
func allWell(f *Facts, found []Finding) []Finding {
	var out []Finding
	for _, group := range groups {
		bad := slices.ContainsFunc(found, func(x Finding) bool { return x.Group == group && x.Severity >= Warning })
		if text := wellText(f, group); !bad && text != "" {
			out = append(out, Finding{ID: idOf[group] + ".ok", Group: group, Severity: OK, Seen: text})
		}
	}
	return out
}

// idOf starts the ids of a group.
var idOf = map[string]string{
	groupConfig: "config", groupShell: "env", groupProxy: "proxy", groupUpstreams: "up",
	groupEgress: "egress", groupTrust: "trust", groupTraffic: "traffic",
}

// wellText is what a well group says; empty: there is nothing to say.
func wellText(f *Facts, group string) string {
	switch group {
	case groupConfig:
		name := "the built-in configuration"
		if f.Setup.Told {
			name = "the configuration of the running proxy"
		}
		return cmp.Or(f.Setup.File, name) + " holds"
	case groupShell:
		return "this shell sends calls to " + f.Setup.Proxy
	case groupProxy:
		if f.Running.AdminFault != "" || f.Running.Admin == "" {
			return ""
		}
		return fmt.Sprintf("%s runs at %s", cmp.Or(f.Running.Version, "the proxy"), f.Setup.Proxy)
	case groupUpstreams:
		return wellUpstreams(f)
	case groupEgress:
		if len(f.Exits) == 0 || f.Offline {
			return ""
		}
		return wellEgress(f)
	case groupTrust:
		if len(f.Setup.Intercept) == 0 || f.Trust.File == "" {
			return ""
		}
		return "our CA is valid until " + f.Trust.Expires.Format("2006-01-02")
	}
	if f.Seen == nil {
		return ""
	}
	return fmt.Sprintf("%d %s and %d opaque %s seen", f.Seen.Calls, plural(int(f.Seen.Calls), "call", "calls"), f.Seen.Tunnels, plural(int(f.Seen.Tunnels), "tunnel", "tunnels"))
}

func wellEgress(f *Facts) string {
	knocked := slices.ContainsFunc(f.Probes, func(p Probe) bool { return p.Exit != "" && (p.Listen || p.Shipped) })
	do := plural(len(f.Exits), "lets", "let") + " calls through"
	if knocked {
		do = plural(len(f.Exits), "takes", "take") + " connections"
	}
	return fmt.Sprintf("%d egress %s %s", len(f.Exits), plural(len(f.Exits), "proxy", "proxies"), do)
}

func wellUpstreams(f *Facts) string {
	n, least, most := answered(f.Probes)
	switch {
	case f.Offline || n == 0:
		return ""
	case n == 1:
		i := slices.IndexFunc(f.Probes, func(p Probe) bool { return p.Fault == classify.FaultNone && !p.Listen })
		return fmt.Sprintf("%s answers in %s", f.Probes[i].URL, round(most))
	}
	return fmt.Sprintf("%d answer in %s to %s", n, round(least), round(most))
}
