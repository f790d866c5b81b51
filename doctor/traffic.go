package doctor

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"time"

	"retryproxy/policy"
)

// Least numbers below which traffic says nothing.
const (
	leastCalls    = 20
	leastFailures = 5
	mostListed    = 3 // hosts and clients with a finding of their own
)

// examineTraffic judges what the running proxy saw.
func examineTraffic(f *Facts) []Finding {
	out := cutOff(f)
	if f.Seen == nil {
		return out
	}
	out = append(append(out, tunnels(f)...), unlabelled(f)...)
	if n := f.Running.Misspelt; n > 0 {
		out = append(out, Finding{
			"traffic.user_name", groupTraffic, Warning, fmt.Sprintf("%d calls had a user name whose labels cannot be read", n),
			"The form is shop=17;task=order_ship;tier=vip.", inShell("HTTP_PROXY", "http://shop=17;task=order_ship:x@"+f.Setup.Proxy),
		})
	}
	for _, h := range f.Seen.Hosts {
		if h.Suspect > 0 {
			out = append(out, Finding{
				"traffic.suspect", groupTraffic, Warning, fmt.Sprintf("%s answered %d of %d calls with a 2xx whose content looks like a failure", h.Host, h.Suspect, h.Calls),
				"They count as successes and are not retried.",
				[]Fix{toRun("retryproxy calls -host %s", h.Host)},
			})
		}
	}
	return append(out, stopped(f)...)
}

// cutOff tells of hosts and shops that are cut off now.
func cutOff(f *Facts) []Finding {
	var out []Finding
	show := []Fix{toRun("retryproxy breakers%s", f.adminFlag())}
	for _, h := range f.Running.Cut.Hosts {
		if o := h.Outage; o != nil && len(out) < mostListed {
			whose := map[string]string{"several_shops": "calls of several shops fail", "one_shop": "calls of one shop fail, others make none"}[o.Reach]
			out = append(out, Finding{
				"traffic.outage", groupTraffic, Warning, fmt.Sprintf("%s is cut off for %s now: %s; %d calls wait", h.Host, f.Now.Sub(o.Since).Round(time.Second), cmp.Or(whose, "calls fail"), o.Waiting),
				"They go on by themselves when it answers.", show,
			})
		}
	}
	if shops := f.Running.Cut.Shops; len(shops) > 0 {
		var names []string
		for _, s := range shops {
			names = append(names, fmt.Sprintf("%s at %s (%s)", s.Shop, s.Host, s.Reason))
		}
		out = append(out, Finding{
			"traffic.shop_cut_off", groupTraffic, Warning, "no retries for shops that fail where others do not: " + some(names, mostListed),
			"A person has to look at their login, permissions and address.", show,
		})
	}
	return out
}

// tunnels tells of hosts whose calls cannot be seen, and how to change that.
func tunnels(f *Facts) []Finding {
	v := f.Seen
	if v.Tunnels == 0 {
		return nil
	}
	severity := Note
	if v.Tunnels > v.Calls {
		severity = Warning
	}
	var names []string
	for _, h := range v.Hosts {
		if h.Tunnels > 0 {
			names = append(names, fmt.Sprintf("%s (%d)", h.Host, h.Tunnels))
		}
	}
	return []Finding{{
		"traffic.tunnels", groupTraffic, severity, fmt.Sprintf("%d%% of %d calls went through opaque tunnels: %s", 100*v.Tunnels/(v.Calls+v.Tunnels), v.Calls+v.Tunnels, some(names, mostListed)),
		"In a tunnel only the connection is retried. Full retries: call http:// and let us speak TLS (nothing to install), or open the tunnel with our CA.",
		fullRetries(f),
	}}
}

// mostOpened is how many hosts a line for tunnels names.
const mostOpened = 10

// fullRetries are the ways to full retries for hosts with tunnels, the best first,
// each in one line: the second of two lines for a key would undo the first.
func fullRetries(f *Facts) []Fix {
	upgraded, opened := policy.NewHosts(f.Setup.Upgrade), policy.NewHosts(f.Setup.Intercept)
	var fresh, known, listed []string
	for _, h := range f.Seen.Hosts {
		name := nameOnly(h.Host)
		switch {
		case h.Tunnels == 0:
		case opened.Match(h.Host):
			listed = append(listed, h.Host)
		case upgraded.Match(h.Host):
			known = append(known, name)
		default:
			fresh = append(fresh, name)
		}
	}
	fresh = fresh[:min(len(fresh), mostOpened)]
	var fix []Fix
	if len(fresh) > 0 {
		fix = append(fix,
			inList("upgrade_to_https: %s   # and call http://"+fresh[0]+"/", f.Setup.Upgrade, fresh...),
			inList("intercept: {hosts: %s}   # and: retryproxy ca", f.Setup.Intercept, fresh...))
	}
	if len(known) > 0 {
		fix = append(fix, toRun("curl -x http://%s http://%s/   # upgrade_to_https has it: call http://", f.Setup.Proxy, known[0]))
	}
	if len(fix) == 0 { // opened by now, or for clients that refuse our CA
		fix = append(fix, toRun("retryproxy calls -host %s%s", listed[0], f.adminFlag()))
	}
	return fix
}

// nameOnly leaves out the usual port of a host.
func nameOnly(host string) string {
	if name, port, err := net.SplitHostPort(host); err == nil && port == "443" {
		return name
	}
	return host
}

// unlabelled tells of calls that belong to nobody.
func unlabelled(f *Facts) []Finding {
	v := f.Seen
	if v.Calls < leastCalls || 2*v.NoShop <= v.Calls && 2*v.NoTask <= v.Calls {
		return nil
	}
	return []Finding{{
		"traffic.labels", groupTraffic, Note, fmt.Sprintf("%d%% of %d calls have no shop, %d%% no task type", 100*v.NoShop/v.Calls, v.Calls, 100*v.NoTask/v.Calls),
		"Without them all calls share one limit and one policy, and one bad shop can use up the retries of all.",
		inShell("HTTP_PROXY", "http://shop=17;task=order_ship:x@"+f.Setup.Proxy, "http_proxy", "http://shop=17;task=order_ship:x@"+f.Setup.Proxy),
	}}
}

// cause says what a reason means for the operator.
type cause struct {
	reason   string
	severity Severity
	why      string
	fix      func(f *Facts) []Fix
}

// causes are the reasons that a setting can mend.
var causes = []cause{
	{"auth_required", Problem, "They had no valid user and password of clients.users (407).", func(f *Facts) []Fix { return inShell("HTTP_PROXY", "http://USER:PASSWORD@"+f.Setup.Proxy) }},
	{"retries_off", Warning, "The switch is off, so nothing was retried.", func(*Facts) []Fix { return []Fix{toRun("retryproxy retries on")} }},
	{"retry_limited", Warning, "The limit for retries was used up.", func(*Facts) []Fix { return []Fix{inConfig("retry_limits: {shop: {rate: 10/m, share: 0.2}}")} }},
	{"deadline_exceeded", Warning, "The time of the call ran out before an attempt succeeded.", func(*Facts) []Fix {
		return []Fix{inConfig("- {name: default, deadline: 10m}   # under retry_policies, last")}
	}},
	{"retry_after_too_long", Warning, "The upstream asked for more time than the call had.", func(*Facts) []Fix {
		return []Fix{inConfig("- {name: default, deadline: 10m}   # under retry_policies, last")}
	}},
	{"body_not_replayable", Warning, "Their body was larger than body.limit, so it was sent once.", func(*Facts) []Fix { return []Fix{inConfig("body: {limit: 256MiB}")} }},
	{"body_too_large", Warning, "Their body was larger than body.limit (413).", func(*Facts) []Fix { return []Fix{inConfig("body: {limit: 256MiB}")} }},
	{"no_slot", Warning, "Too many calls to one host at once.", func(*Facts) []Fix { return []Fix{inConfig("slots: {max_in_flight: 512}")} }},
	{"store_full", Problem, "There is no room for another key (503).", func(*Facts) []Fix { return []Fix{inConfig("idempotency: {entries: 500000}")} }},
	{"local_resource", Problem, "This machine is out of descriptors, ports, memory or disk.", func(*Facts) []Fix { return []Fix{{"bash", "ulimit -n 65536   # before serve"}} }},
	{"loop", Problem, "They came back to the proxy: a client calls the proxy through itself, or a route leads here.", func(f *Facts) []Fix { return []Fix{toRun("retryproxy calls -host %s", f.Setup.Proxy)} }},
	{"shop_breaker_open", Warning, "A shop's calls all failed alike, as with an expired token; a person has to look.", func(f *Facts) []Fix { return []Fix{toRun("retryproxy breakers%s", f.adminFlag())} }},
}

// few is the share of calls, one in so many, below which a refusal is no problem.
const few = 20

// frequent is the severity of what n calls met: a problem is only a warning where
// few did, as one visitor that is refused.
func (v *View) frequent(s Severity, n int64) Severity {
	if few*n < v.Calls {
		return min(s, Warning)
	}
	return s
}

// from says since when calls were counted.
func (v *View) from() string {
	if v.Since.IsZero() {
		return ""
	}
	return " since " + v.Since.Local().Format("Jan 2 15:04")
}

// stopped tells why calls failed or were refused, where a setting can mend it.
func stopped(f *Facts) []Finding {
	var out []Finding
	for _, c := range causes {
		if n := f.Seen.Reasons[c.reason]; n > 0 {
			fix, where := c.fix(f), ""
			if i := slices.IndexFunc(f.Seen.Failures, func(x FailureView) bool { return x.Reason == c.reason }); i >= 0 {
				x := &f.Seen.Failures[i]
				where = fmt.Sprintf("; %d at %s%s", x.Calls, x.Host, x.detail())
				fix = append(fix, whyOf(f, x))
			}
			out = append(out, Finding{"traffic." + c.reason, groupTraffic, f.Seen.frequent(c.severity, n), fmt.Sprintf("%d %s ended with %s%s", n, plural(int(n), "call", "calls"), c.reason, f.Seen.from()) + where, c.why, fix})
		}
	}
	return out
}

// examineClients finds clients that retry by themselves, or should send a key.
func examineClients(f *Facts) []Finding {
	if f.Seen == nil {
		return nil
	}
	var out []Finding
	for i := range f.Seen.Clients {
		out = append(out, f.Seen.Clients[i].findings()...)
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return int(b.Severity) - int(a.Severity) })
	return out[:min(len(out), 2*mostListed)]
}

// keyHeader is the line that gives a call a key.
var keyHeader = []Fix{
	{"python", `headers={"X-Idempotency-Key": str(uuid.uuid4())}   # one per order, the same on a repeat`},
	{"javascript", `headers: {"X-Idempotency-Key": crypto.randomUUID()}   // one per order, the same on a repeat`},
}

// findings are those about one client.
func (c *ClientView) findings() []Finding {
	var out []Finding
	doubled := c.Doubled > 0 && c.unusual()
	switch {
	case doubled:
		out = append(out, Finding{
			"traffic.doubled_posts", groupTraffic, Problem,
			fmt.Sprintf("%s sent %s again %d times right after an answer that may have been executed", c.Client, c.Example, c.Doubled),
			"Without a key the platform may have acted twice. With one a repeat gets the first result.", keyHeader,
		})
	case c.retries():
		out = append(out, Finding{
			"traffic.own_retries", groupTraffic, Warning,
			fmt.Sprintf("%s repeats by itself: %d of %d failures came again within %s (%s)", c.Client, c.AfterFailure, c.Failures, soon, c.Example),
			"Its retries multiply with ours. Turn them off there, or send X-Retry-Count with a key.",
			[]Fix{{"python", `session.mount("http://", HTTPAdapter(max_retries=0))`}, {"javascript", "axiosRetry(axios, {retries: 0})"}},
		})
	}
	if c.Counting > 0 {
		out = append(out, Finding{
			"traffic.count_without_key", groupTraffic, Warning, fmt.Sprintf("%s sent X-Retry-Count without a key on %d calls", c.Client, c.Counting),
			"It retries by itself, and nothing tells its repeats from new calls.", keyHeader,
		})
	}
	if c.Reviews > 0 && !doubled {
		out = append(out, Finding{
			"traffic.not_repeated", groupTraffic, Warning, fmt.Sprintf("%d POSTs of %s were not retried: their outcome is unknown and they have no key", c.Reviews, c.Client),
			"A keyless POST is never repeated after it may have been executed.", keyHeader,
		})
	}
	return out
}

// retries says whether it repeats by itself.
func (c *ClientView) retries() bool {
	return c.Failures >= leastFailures && 2*c.AfterFailure >= c.Failures && c.unusual()
}

// unusual says whether calls follow its failures more than twice as often as its
// successes: a busy client calls one path all the time, as gateways with one path
// for everything want it.
func (c *ClientView) unusual() bool {
	successes := c.Calls - c.Failures
	return c.AfterFailure*max(successes, 1) > 2*c.AfterSuccess*c.Failures
}
