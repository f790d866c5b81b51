package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// examineFailures tells which calls failed or were refused, and why.
func examineFailures(f *Facts) []Finding {
	if f.Seen == nil {
		return nil
	}
	out := append(refusals(f), failures(f)...)
	return append(out, refusedCA(f)...)
}

// refusalCause says what a refusal means for the operator, by its cause.
type refusalCause struct {
	reason, cause, id string
	severity          Severity
	why               string
	fix               func(f *Facts, x *FailureView) Fix
}

// refusalCauses begin with the precise ones; one without a cause is for the rest.
var refusalCauses = []refusalCause{
	{"client_denied", causeAddress, "traffic.client_denied", Problem, "Their address is not in clients.allow (403).", func(f *Facts, x *FailureView) Fix {
		return inList("clients: {allow: %s}", f.Setup.Clients, addressIn(x.Detail))
	}},
	{"client_denied", causeLabels, "traffic.label_conflict", Problem, "The label that the call names contradicts what is configured for its user, listener or shop (403).", func(*Facts, *FailureView) Fix {
		return Fix{"python", `session.headers.pop("X-Shop-Id", None)   # the proxy user or listener already says which shop`}
	}},
	{"client_denied", causeOwnName, "traffic.own_name", Problem, "They called us by a name that is not ours (403).", func(f *Facts, x *FailureView) Fix {
		return inList("listen: {hosts: %s}", f.Setup.Hosts, nameIn(x.Detail))
	}},
	{"client_denied", causeCrossSite, "traffic.cross_site", Warning, "A page of another site called a route (403).", func(*Facts, *FailureView) Fix {
		return inConfig(`- {prefix: /r, upstreams: ["https://HOST"], cross_site: true}   # under routes, only where any site may call`)
	}},
	{"destination_denied", causeNoRule, "traffic.no_egress", Problem, "egress_default is deny and no egress rule is for them (403): name their shop, or write a rule.", labelled("shop=SHOP")},
	{"destination_denied", causeNoShop, "traffic.no_shop", Problem, "Their egress rule needs a shop and they name none (403).", labelled("shop=SHOP")},
	{"destination_denied", causeNoTaskType, "traffic.no_task_type", Problem, "Their egress rule needs a task type and they name none (403).", labelled("shop=SHOP;task=TASK")},
	{"destination_denied", causePort, "traffic.connect_port", Warning, "CONNECT is for the ports in destinations.connect_ports alone (403).", func(f *Facts, x *FailureView) Fix {
		var ports []string
		for _, p := range f.Setup.Ports {
			ports = append(ports, strconv.Itoa(p))
		}
		return inConfig("destinations: {connect_ports: [%s]}", strings.Join(append(ports, x.Host[strings.LastIndexByte(x.Host, ':')+1:]), ", "))
	}},
	{"destination_denied", causePrivate, "traffic.destination_denied", Warning, "Private addresses are forbidden, unless destinations.allow has them (403).", func(f *Facts, x *FailureView) Fix {
		return inList("destinations: {allow: %s}", f.Setup.Allowed, bareHost(x.Host))
	}},
	{"client_denied", "", "traffic.client_refused", Warning, "The proxy forbids it (403).", whyOf},
	{"destination_denied", "", "traffic.destination_refused", Warning, "The rules for destinations forbid it (403).", whyOf},
}

// whyOf is the command that tells of one call.
func whyOf(f *Facts, x *FailureView) Fix {
	if x.ID == "" {
		return toRun("retryproxy calls -state done%s", f.adminFlag())
	}
	return toRun("retryproxy why%s %s", f.adminFlag(), quoted(x.ID))
}

// labelled is the proxy variable with labels.
func labelled(user string) func(*Facts, *FailureView) Fix {
	return func(f *Facts, _ *FailureView) Fix {
		return inShell("HTTP_PROXY", "http://"+user+":"+f.password()+"@"+f.Setup.Proxy)[0]
	}
}

// refusals tells what the proxy forbade, by the setting that mends it.
func refusals(f *Facts) []Finding {
	var out []Finding
	for at := range refusalCauses {
		if list := f.Seen.refused(at); len(list) > 0 {
			out = append(out, refusalCauses[at].finding(f, list))
		}
	}
	return out
}

// refused are the failures of the cause at that index, and of none before.
func (v *View) refused(at int) []FailureView {
	var out []FailureView
	for i := range v.Failures {
		x := &v.Failures[i]
		first := slices.IndexFunc(refusalCauses, func(c refusalCause) bool {
			return c.reason == x.Reason && (c.cause == x.Cause || c.cause == "")
		})
		if at == first {
			out = append(out, *x)
		}
	}
	return out
}

// finding is that of all calls refused for the cause.
func (c *refusalCause) finding(f *Facts, list []FailureView) Finding {
	var n int64
	var hosts []string
	for i := range list {
		n += list[i].Calls
		if !slices.Contains(hosts, list[i].Host) {
			hosts = append(hosts, list[i].Host)
		}
	}
	x := &list[0]
	fix := []Fix{c.fix(f, x)}
	if c.cause == causeNoRule {
		fix = append(fix, inConfig(`- {name: rest, match: {host: %q}, proxy: "http://10.0.0.1:3128"}   # under egress`, bareHost(x.Host)))
	}
	if more := whyOf(f, x); more != fix[0] {
		fix = append(fix, more)
	}
	text := fmt.Sprintf("%d %s to %s ended with %s%s%s", n, plural(int(n), "call", "calls"), some(hosts, mostListed), c.reason, f.Seen.from(), x.detail())
	return Finding{c.id, groupTraffic, f.Seen.frequent(c.severity, n), text, c.why, fix}
}

// failures tells of calls that were tried and failed: those that the egress
// proxies did not let through, and the others.
func failures(f *Facts) []Finding {
	var exits, rest []FailureView
	for _, x := range f.Seen.Failures {
		switch {
		case strings.HasPrefix(x.Cause, "egress_") || strings.HasPrefix(x.Reason, "egress_"):
			exits = append(exits, x)
		case !slices.ContainsFunc(refusalCauses, func(c refusalCause) bool { return c.reason == x.Reason }) &&
			!slices.ContainsFunc(causes, func(c cause) bool { return c.reason == x.Reason }):
			rest = append(rest, x)
		}
	}
	var out []Finding
	if len(exits) > 0 {
		out = append(out, f.failed("egress.calls", groupEgress, "failed at the egress proxies", exits))
	}
	if len(rest) > 0 {
		out = append(out, f.failed("traffic.failed", groupTraffic, "failed", rest))
	}
	return out
}

// failed is the finding of failed calls. Where they are few it is a note, and so
// it is where the upstream's answer is a definite no.
func (f *Facts) failed(id, group, what string, list []FailureView) Finding {
	var n, passing int64
	var parts []string
	for i := range list {
		x := &list[i]
		n += x.Calls
		if x.Reason != "fail_permanent" {
			passing += x.Calls
		}
		parts = append(parts, fmt.Sprintf("%d %s at %s", x.Calls, x.told(), x.Host))
	}
	severity := Note
	if few*passing >= f.Seen.Calls && passing > 0 {
		severity = Warning
	}
	text := fmt.Sprintf("%d of %d %s %s%s: %s", n, max(n, f.Seen.Calls), plural(int(max(n, f.Seen.Calls)), "call", "calls"), what, f.Seen.from(), some(parts, mostListed))
	fix := []Fix{toRun("retryproxy calls -state done -host %s%s", list[0].Host, f.adminFlag())}
	if list[0].ID != "" {
		fix = append(fix, whyOf(f, &list[0]))
	}
	return Finding{id, group, severity, text, list[0].Detail, fix}
}

// detail is the text that goes after what was said; empty: there is none.
func (x *FailureView) detail() string {
	if x.Detail == "" {
		return ""
	}
	return ": " + x.Detail
}

// told is the reason with what the last attempt met.
func (x *FailureView) told() string {
	text := x.Reason
	if x.Cause != "" && x.Cause != x.Reason {
		text += " (" + x.Cause + ")"
	}
	if x.Egress != "" {
		text += " through " + x.Egress
	}
	return text
}

// refusedCA tells of clients that ended TLS in tunnels that are opened, as those
// do that do not trust our CA. Who did it often is passed through and told there.
func refusedCA(f *Facts) []Finding {
	var names []string
	var first *FailureView
	for i := range f.Seen.Refused {
		x := &f.Seen.Refused[i]
		if slices.ContainsFunc(f.Running.Passed, func(p Passed) bool { return p.Host == x.Host && sameClient(p.Client, x.Client) }) {
			continue
		}
		if first == nil {
			first = x
		}
		names = append(names, fmt.Sprintf("%s for %s (%d)", x.Client, x.Host, x.Calls))
	}
	if first == nil {
		return nil
	}
	return []Finding{{
		"traffic.refused_ca", groupTraffic, Warning, "clients ended TLS in tunnels that we open: " + some(names, mostListed),
		"They seem not to trust our CA, so these calls failed. Refused again and again, tunnels stay closed to us.",
		[]Fix{toRun("retryproxy ca%s   # how each client trusts it", f.fileFlag()), whyOf(f, first)},
	}}
}

// sameClient says whether a name of a client that is passed through, an address
// with what else is known, is of an address.
func sameClient(name, address string) bool {
	name, _, _ = strings.Cut(name, ";")
	return strings.Trim(name, "[]") == strings.Trim(address, "[]")
}

// addressIn is the first address in a text.
func addressIn(text string) string {
	for word := range strings.FieldsSeq(text) {
		if addr, err := netip.ParseAddr(strings.Trim(word, ",:")); err == nil {
			return addr.String()
		}
	}
	return "10.0.0.0/8"
}

// nameIn is the quoted host name in a text, without its port.
func nameIn(text string) string {
	_, rest, _ := strings.Cut(text, `"`)
	name, _, ok := strings.Cut(rest, `"`)
	if !ok || name == "" {
		return "HOST"
	}
	return bareHost(name)
}

// bareHost is a host without a port and brackets.
func bareHost(host string) string {
	if i := strings.LastIndexByte(host, ':'); i > 0 && (host[i-1] == ']' || strings.IndexByte(host, ':') == i) {
		host = host[:i]
	}
	return strings.Trim(host, "[]")
}
