package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"retryproxy/classify"
	"retryproxy/config"
	"retryproxy/egress"
	"retryproxy/message"
	"retryproxy/policy"
	"retryproxy/upstream"
)

// Bounds of asking upstreams.
const (
	atOnce     = 8
	oneProbe   = 5 * time.Second
	allProbes  = 20 * time.Second
	mostProbes = 64
)

// upstreams are the hosts that the configuration names, each once.
func upstreams(c *config.Config) []Upstream {
	var out []Upstream
	add := func(u Upstream) {
		if !slices.ContainsFunc(out, func(o Upstream) bool { return o.URL == u.URL }) {
			out = append(out, u)
		}
	}
	for _, host := range c.Intercept.Hosts {
		if !strings.Contains(host, "*") {
			add(Upstream{URL: "https://" + host, From: "intercept.hosts"})
		}
	}
	for i := range c.Routes {
		for _, base := range c.Routes[i].Upstreams {
			if u, err := url.Parse(base); err == nil && u.Host != "" {
				add(Upstream{URL: u.Scheme + "://" + u.Host, From: "route " + c.Routes[i].Name, Route: true, Exempt: true})
			}
		}
	}
	shipped := slices.Equal(c.UpgradeToHTTPS, config.Default().UpgradeToHTTPS)
	for _, host := range c.UpgradeToHTTPS {
		if !strings.Contains(host, "*") {
			add(Upstream{URL: "https://" + host, From: "upgrade_to_https", Shipped: shipped})
		}
	}
	return out
}

// exits are the egress proxies by rule.
func (w *World) exits() []Exit {
	var out []Exit
	for _, r := range w.Egress.Rules {
		if len(r.Proxies) > 0 {
			out = append(out, Exit{r.Name, r.Proxies[0].String()})
		}
	}
	return out
}

// bareShops are those of the table whose calls may not leave.
func (w *World) bareShops(s *Setup) []string {
	table, err := egress.NewTable(w.Egress)
	if !w.Egress.Deny || err != nil {
		return nil
	}
	host := "example.com"
	if len(s.Upstreams) > 0 {
		host = (&Target{URL: s.Upstreams[0].URL}).host()
	}
	var out []string
	for shop := range w.Config.Shops {
		if way, err := table.Way(shop, "", host); err != nil && way.Rule == "" {
			out = append(out, shop)
		}
	}
	slices.Sort(out)
	return out
}

// plan lists what to ask: each upstream by the way that calls without labels
// take, and each egress proxy.
func (w *World) plan(s *Setup) []Probe {
	table, err := egress.NewTable(w.Egress)
	if err != nil {
		return nil // of the configuration's own faults
	}
	var out []Probe
	for _, u := range s.Upstreams {
		p := Probe{Target: Target{URL: u.URL, Exempt: u.Exempt, Shipped: u.Shipped}, From: u.From}
		way, err := table.Way("", "", p.host())
		if err != nil {
			continue // such calls do not leave
		}
		if slices.Contains(w.Hidden, way.Rule) {
			continue // we do not have its password
		}
		if len(way.Exits) > 0 {
			p.Exit, p.Through = way.Rule, way.Exits[0]
		}
		out = append(out, p)
	}
	out = append(out, w.planExits(s)...)
	return out[:min(len(out), mostProbes)]
}

// planExits asks an upstream through each proxy of each rule.
func (w *World) planExits(s *Setup) []Probe {
	var out []Probe
	for _, r := range w.Egress.Rules {
		shop, task, target := w.example(&r, s)
		target.Exit, target.Listen = r.Name, slices.Contains(w.Hidden, r.Name)
		if target.URL == "" {
			target.URL, target.Listen = "https://example.com", true
		}
		for _, proxy := range r.Proxies {
			one := egress.Rule{Name: r.Name, Match: egress.Match{Host: []string{"*"}}, Proxies: []egress.Proxy{proxy}}
			table, err := egress.NewTable(egress.Config{Rules: []egress.Rule{one}})
			if err != nil {
				continue
			}
			if way, err := table.Way(shop, task, "any"); err == nil && len(way.Exits) > 0 {
				target.Through = way.Exits[0]
				out = append(out, Probe{Target: target})
			}
		}
	}
	return out
}

// example is a call that a rule is for; target is empty when there is no host
// to ask for. The shipped host is the last choice: perhaps nobody calls it.
func (w *World) example(r *egress.Rule, s *Setup) (shop, task string, target Target) {
	shop, task = "0", "0"
	for name, rule := range w.Egress.Shops {
		if rule == r.Name && (shop == "0" || name < shop) {
			shop = name
		}
	}
	if len(r.Match.Shop) > 0 {
		shop = strings.ReplaceAll(r.Match.Shop[0], "*", "0")
	}
	if len(r.Match.TaskType) > 0 {
		task = strings.ReplaceAll(r.Match.TaskType[0], "*", "0")
	}
	hosts := policy.NewHosts(r.Match.Host)
	for i := range s.Upstreams {
		u := &s.Upstreams[i]
		t := Target{URL: u.URL, Exempt: u.Exempt, Shipped: u.Shipped}
		if len(r.Match.Host) > 0 && !hosts.Match(t.address()) || target.URL != "" && !target.Shipped {
			continue
		}
		if target.URL == "" || !t.Shipped {
			target = t
		}
	}
	if target.URL != "" {
		return shop, task, target
	}
	for _, host := range r.Match.Host {
		if !strings.Contains(host, "*") {
			return shop, task, Target{URL: "https://" + host}
		}
	}
	return shop, task, target
}

// probes asks all that is planned, a few at once.
func (w *World) probes(ctx context.Context, f *Facts) []Probe {
	if w.Send == nil {
		return nil
	}
	list := w.plan(&f.Setup)
	ctx, cancel := context.WithTimeout(ctx, allProbes)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range list {
		g.Go(func() error {
			w.probe(ctx, &list[i])
			return nil
		})
	}
	_ = g.Wait() // none gives an error
	return list
}

// probe asks one upstream.
func (w *World) probe(ctx context.Context, p *Probe) {
	ctx, cancel := context.WithTimeout(ctx, oneProbe)
	defer cancel()
	if p.Listen {
		p.knock(ctx)
		return
	}
	a, ok := attemptOf(&p.Target)
	if !ok {
		p.Fault, p.Detail = classify.FaultBadTarget, "not a target"
		return
	}
	began := time.Now()
	a.Deadline = began.Add(oneProbe)
	res := w.Send(ctx, a)
	p.At = time.Now()
	p.Took, p.Phase, p.Fault, p.Detail = p.At.Sub(began), res.Outcome.Phase, res.Outcome.Fault, res.Outcome.Detail
	if res.Response != nil {
		_ = res.Response.Body.Close()
		p.Status, p.Fault = res.Response.Status, classify.FaultNone
		p.Date, _ = http.ParseTime(res.Response.Fields.Get("Date"))
	}
	if p.Shipped && (p.Fault == classify.FaultEgressTimeout || p.Fault == classify.FaultEgressUnreachable) {
		p.blame(ctx)
	}
	if p.Fault == classify.FaultVerify && p.Through == nil {
		p.Cert = look(ctx, p.address(), p.host(), w.Roots)
	}
}

// blame tells an egress proxy that is not there from one that cannot reach a host
// which perhaps nobody calls.
func (p *Probe) blame(ctx context.Context) {
	alone := Probe{Target: p.Target}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), oneProbe) // the time of p is used up
	defer cancel()
	if alone.knock(ctx); alone.Fault == classify.FaultNone {
		p.Fault = classify.FaultEgressFailed
	}
}

// knock only tries whether the egress proxy takes a connection.
func (p *Probe) knock(ctx context.Context) {
	_, host, port := p.Through.Proxy()
	at := net.JoinHostPort(host, strconv.Itoa(int(port)))
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
	switch {
	case err == nil:
		_ = conn.Close()
	case ctx.Err() != nil:
		p.Fault, p.Detail = classify.FaultEgressTimeout, "no answer from "+at+" in time"
	default:
		p.Fault, p.Detail = classify.FaultEgressUnreachable, err.Error()
	}
}

// attemptOf is a HEAD of the root.
func attemptOf(t *Target) (*upstream.Attempt, bool) {
	u, err := url.Parse(t.URL)
	if err != nil || u.Host == "" {
		return nil, false
	}
	scheme := u.Scheme // of the request; h2c is a way to speak http
	if scheme == "h2c" {
		scheme = "http"
	}
	port, err := strconv.ParseUint(portOf(&url.URL{Scheme: scheme, Host: u.Host}), 10, 16)
	return &upstream.Attempt{
		Request: &message.Request{
			Method: "HEAD", Scheme: scheme, Authority: u.Host, Target: "/", Version: "1.1",
			Fields: message.Fields{{Name: "User-Agent", Value: "retryproxy-doctor"}},
		},
		Target:         upstream.Target{Scheme: u.Scheme, Host: strings.ToLower(u.Hostname()), Port: uint16(port), Exempt: t.Exempt, Exit: t.Through},
		ConnectTimeout: oneProbe, HeaderTimeout: oneProbe, BodyIdle: oneProbe,
	}, err == nil
}

// look says what is wrong with the certificate of an upstream; nil: it cannot be
// had. Nothing is sent on this connection, so it need not be verified.
func look(ctx context.Context, address, name string, roots *x509.CertPool) *Cert {
	d := tls.Dialer{NetDialer: &net.Dialer{}, Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}} //nolint:gosec // to look at it
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	tc, ok := conn.(*tls.Conn)
	if !ok || len(tc.ConnectionState().PeerCertificates) == 0 {
		return nil
	}
	return judgeCert(tc.ConnectionState().PeerCertificates, name, roots, time.Now())
}

// judgeCert says what is wrong with a chain, the most telling first.
func judgeCert(chain []*x509.Certificate, name string, roots *x509.CertPool, now time.Time) *Cert {
	leaf := chain[0]
	c := &Cert{Issuer: leaf.Issuer.String(), Names: slices.Clone(leaf.DNSNames), Expires: leaf.NotAfter, Begins: leaf.NotBefore}
	for _, ip := range leaf.IPAddresses {
		c.Names = append(c.Names, ip.String())
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now})
	switch {
	case now.After(leaf.NotAfter):
		c.Fault = "expired"
	case now.Before(leaf.NotBefore):
		c.Fault = "not_yet"
	case leaf.VerifyHostname(name) != nil:
		c.Fault = "wrong_name"
	case err != nil:
		c.Fault = "unknown_root"
	}
	return c
}
