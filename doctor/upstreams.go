package doctor

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"retryproxy/classify"
)

// Limits beyond which an answer is worth a finding.
const (
	slowAnswer = 2 * time.Second
	mostSkew   = 30 * time.Second
)

// examineUpstreams judges the answers of upstreams.
func examineUpstreams(f *Facts) []Finding {
	var out []Finding
	if f.Offline {
		out = append(out, Finding{
			"up.not_asked", groupUpstreams, Note, "upstreams and egress proxies were not asked (-offline)", "",
			[]Fix{toRun("retryproxy doctor%s", f.fileFlag())},
		})
	}
	deaf := 0 // names for which the resolver had no answer
	for i := range f.Probes {
		p := &f.Probes[i]
		if p.Fault == classify.FaultDNS {
			deaf++
		}
		switch {
		case p.Fault.Egress() || p.Listen: // of examineEgress
		case p.Fault != classify.FaultNone && p.Shipped:
			out = append(out, shipped(p))
		case p.Fault == classify.FaultDNS && deaf > 1: // once is enough
		case p.Fault == classify.FaultVerify:
			out = append(out, untrusted(p))
		case p.Fault != classify.FaultNone:
			out = append(out, unreachable(f, p))
		case p.Status == 502 || p.Status == 503 || p.Status == 504:
			out = append(out, Finding{
				"up.unwell", groupUpstreams, Warning, fmt.Sprintf("%s answers %d", p.name(), p.Status),
				"It does not serve now; calls wait and are retried.",
				[]Fix{toRun("retryproxy explain%s %s", f.fileFlag(), quoted(p.plain()+"/"))},
			})
		case p.Took > slowAnswer:
			out = append(out, Finding{
				"up.slow", groupUpstreams, Warning, fmt.Sprintf("%s took %s to answer", p.name(), round(p.Took)),
				"Calls that take longer than per_try_timeout fail.",
				[]Fix{inConfig("- {name: slow, match: {host: %q}, per_try_timeout: 60s}   # under retry_policies, before default", p.host())},
			})
		}
	}
	return out
}

// shipped is the finding of an upstream that nobody here may call.
func shipped(p *Probe) Finding {
	return Finding{
		"up.shipped", groupUpstreams, Note, p.URL + " is not reached: " + p.Detail,
		"It matters only to those who call it: upgrade_to_https has it by default.",
		[]Fix{inConfig("upgrade_to_https: []")},
	}
}

// name is the upstream and the way to it.
func (p *Probe) name() string {
	text := p.URL
	if p.Exit != "" {
		text += " through " + p.Exit
	}
	if p.From != "" {
		text += " (" + p.From + ")"
	}
	return text
}

func (t *Target) host() string {
	u, err := url.Parse(t.URL)
	if err != nil {
		return t.URL
	}
	return u.Hostname()
}

// round is a duration for people.
func round(d time.Duration) time.Duration { return d.Round(max(time.Millisecond, d/100)) }

// unreachable is the finding of an upstream without an answer.
func unreachable(f *Facts, p *Probe) Finding {
	x := Finding{"up.broken", groupUpstreams, Problem, p.name() + ": " + p.Detail, "Calls to it fail.", nil}
	switch p.Fault {
	case classify.FaultNoSuchHost:
		x.ID, x.Why = "up.no_such_host", "The name does not exist; a repeat cannot mend it."
		x.Fix = []Fix{toRun("nslookup %s", p.host())}
	case classify.FaultDNS:
		x.ID, x.Why = "up.dns", "The resolver of this machine gives no answer; no call to any name will work."
		x.Fix = []Fix{toRun("nslookup %s", p.host())}
	case classify.FaultRefused:
		x.ID, x.Why = "up.refused", "Nothing listens there, or a firewall refuses us."
		x.Fix = []Fix{p.curl("--noproxy '*'")}
	case classify.FaultTimeout:
		x.ID, x.Why = "up.timeout", "A firewall may drop our packets, or the host is down."
		x.Fix = []Fix{p.curl("-m 10 --noproxy '*'")}
	case classify.FaultTLS:
		x.ID, x.Why = "up.tls", "The TLS handshake fails, as where the port speaks plain http or something on the way cuts it."
		x.Fix = []Fix{p.curl("--noproxy '*'")}
	case classify.FaultLoop:
		x.ID, x.Why = "up.loop", "It leads back to this proxy: calls get 508."
		x.Fix = []Fix{toRun("retryproxy explain%s %s", f.fileFlag(), quoted(p.plain()+"/"))}
	case classify.FaultDenied:
		x.ID, x.Why = "up.denied", "Our own rules for destinations forbid it: calls get 403."
		x.Fix = []Fix{inList("destinations: {allow: %s}", f.Setup.Allowed, p.host())}
	default:
		x.Fix = []Fix{p.curl("--noproxy '*'")}
	}
	return x
}

// curl asks the upstream with curl.
func (t *Target) curl(options string) Fix {
	if strings.HasPrefix(t.URL, "h2c://") {
		options = "--http2-prior-knowledge " + options
	}
	return toRun("curl -sv -o /dev/null %s %s/", options, quoted(t.plain()))
}

// plain is the URL as other programs know it: h2c is a way to speak http.
func (t *Target) plain() string {
	if rest, ok := strings.CutPrefix(t.URL, "h2c://"); ok {
		return "http://" + rest
	}
	return t.URL
}

// untrusted is the finding of a certificate that does not hold.
func untrusted(p *Probe) Finding {
	x := Finding{
		"up.tls_verify", groupUpstreams, Problem, p.name() + ": " + p.Detail, "We always verify, so every call to it fails.",
		[]Fix{toRun("openssl s_client -connect %s -servername %s </dev/null | openssl x509 -noout -issuer -dates -ext subjectAltName", p.address(), p.host())},
	}
	if p.Cert == nil {
		return x
	}
	switch p.Cert.Fault {
	case "expired":
		x.ID, x.Seen = "up.tls_expired", fmt.Sprintf("the certificate of %s expired on %s", p.name(), p.Cert.Expires.Format(time.DateOnly))
		x.Why += " Its owner has to renew it, unless the clock here is wrong."
		x.Fix = []Fix{toRun("date -u")}
	case "not_yet":
		x.ID, x.Seen = "up.tls_not_yet", fmt.Sprintf("the certificate of %s is valid from %s only", p.name(), p.Cert.Begins.Format(time.DateTime))
		x.Why += " Most often the clock here is slow."
		x.Fix = setClock()
	case "wrong_name":
		x.ID, x.Seen = "up.tls_name", fmt.Sprintf("the certificate of %s is for %s", p.name(), strings.Join(p.Cert.Names[:min(len(p.Cert.Names), 4)], ", "))
		if len(p.Cert.Names) > 0 {
			x.Fix = []Fix{inConfig("- {prefix: /r, upstreams: [\"https://%s\"]}   # under routes", strings.TrimPrefix(p.Cert.Names[0], "*."))}
		}
	case "unknown_root":
		x.ID, x.Seen = "up.tls_unknown_root", fmt.Sprintf("the certificate of %s is signed by %q, which is not trusted here", p.name(), p.Cert.Issuer)
		x.Why += " A company's proxy or a private platform has its own root; ask for it as a PEM file."
		x.Fix = []Fix{inConfig("tls: {ca_files: [/path/to/root.pem]}")}
	}
	return x
}

// address is host:port.
func (t *Target) address() string {
	u, err := url.Parse(t.URL)
	if err != nil {
		return t.URL
	}
	return u.Hostname() + ":" + portOf(u)
}

// examineClock compares the clock here with those of the upstreams. One odd
// upstream is its own fault, so the middle one counts.
func examineClock(f *Facts) []Finding {
	var skews []time.Duration
	var odd []Finding
	for i := range f.Probes {
		p := &f.Probes[i]
		if p.Date.IsZero() || p.Fault != classify.FaultNone {
			continue
		}
		by := p.skew()
		skews = append(skews, by)
		if by.Abs() > mostSkew && len(odd) < mostListed {
			odd = append(odd, oddClock(p, by))
		}
	}
	if len(skews) == 0 {
		return nil
	}
	slices.Sort(skews)
	middle := skews[len(skews)/2]
	if len(skews)%2 == 0 && middle.Abs() > skews[len(skews)/2-1].Abs() {
		middle = skews[len(skews)/2-1]
	}
	if middle.Abs() <= mostSkew {
		return odd
	}
	way := "ahead of"
	if middle < 0 {
		way = "behind"
	}
	return []Finding{{
		"clock.skew", groupUpstreams, Warning, fmt.Sprintf("the clock here is %s %s the upstreams'", middle.Abs().Round(time.Second), way),
		"Platforms refuse signatures whose time is 30 s to 10 min off, however often a call is repeated.", setClock(),
	}}
}

// oddClock is the finding of an upstream whose clock is off, while others agree
// with ours.
func oddClock(p *Probe, by time.Duration) Finding {
	way := "behind"
	if by < 0 {
		way = "ahead of"
	}
	return Finding{
		"clock.odd_host", groupUpstreams, Warning, fmt.Sprintf("the clock of %s is %s %s ours; others agree with ours", p.name(), by.Abs().Round(time.Second), way),
		"It may refuse our signatures as too old or too new, and its dates (Retry-After) are off by as much. Its owner has to mend it.",
		[]Fix{toRun("curl -sI --noproxy '*' %s/ | grep -i '^date'; date -u", quoted(p.plain()))},
	}
}

// skew is how far the clock here is ahead. Date has no fractions and was made
// while the answer was on its way, so that much is forgiven.
func (p *Probe) skew() time.Duration {
	ahead := p.At.Sub(p.Date)
	if ahead > 0 {
		return max(0, ahead-time.Second-p.Took)
	}
	return ahead
}

// setClock are the lines that set the clock.
func setClock() []Fix {
	return []Fix{{"bash", "sudo timedatectl set-ntp true"}, {"PowerShell", "w32tm /resync /force"}}
}

// answered counts the probes with an answer and gives their extremes.
func answered(list []Probe) (n int, least, most time.Duration) {
	for i := range list {
		if list[i].Fault == classify.FaultNone && !list[i].Listen {
			n, most = n+1, max(most, list[i].Took)
			least = cmp.Or(min(cmp.Or(least, list[i].Took), list[i].Took), list[i].Took)
		}
	}
	return n, least, most
}
