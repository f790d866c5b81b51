package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"retryproxy/access"
	"retryproxy/attempt"
	"retryproxy/breaker"
	"retryproxy/config"
	"retryproxy/inbound"
	"retryproxy/internal/spool"
	"retryproxy/policy"
	"retryproxy/presets"
	"retryproxy/proxy"
	"retryproxy/redact"
	"retryproxy/report"
	"retryproxy/signer"
)

// buildSettings turns a configuration into the rules of calls; all that can fail
// fails here, before anything is swapped.
func buildSettings(cfg *config.Config, w ways, own addresses, mislabelled func()) (*proxy.Settings, error) {
	policies, err := cfg.Policies()
	if err != nil {
		return nil, err
	}
	known, err := knownPresets(cfg)
	if err != nil {
		return nil, err
	}
	who := clientsConfig(cfg)
	who.Mislabelled = mislabelled
	clients, err := access.NewClients(who)
	if err != nil {
		return nil, err
	}
	guard := access.NewGuard(access.GuardConfig{
		Private: cfg.Destinations.Private, Allow: cfg.Destinations.Allow, Deny: cfg.Destinations.Deny,
		Proxies: own.proxies, Others: own.others, Interfaces: interfaces(),
	})
	s := &proxy.Settings{
		Instance: cfg.Instance, Via: cfg.Headers.Via, Policies: policies, Presets: known, Hide: redact.New(known.Secrets()), Clients: clients, Guard: guard,
		Headers: proxy.HeaderNames{
			Keys: cfg.Headers.IdempotencyKey, RetryCount: cfg.Headers.RetryCount, Shop: cfg.Headers.Shop,
			ShopTier: cfg.Headers.ShopTier, Task: cfg.Headers.TaskType, Timeout: cfg.Headers.Timeout,
		},
		Egress: w.egress, Intercept: w.interception(cfg),
		Shops: map[string]proxy.Shop{}, Upgrade: policy.NewHosts(cfg.UpgradeToHTTPS),
		Body: proxy.BodyLimits{
			Limit: int64(cfg.Body.Limit), Hold: int64(cfg.Body.Hold), Inspect: int64(cfg.Body.InspectMax),
			Stream: cfg.Body.Over == "stream",
		},
		MaxWait: cfg.Slots.MaxWait, TunnelIdle: cfg.Limits.TunnelIdle,
		KeyTTL: cfg.Idempotency.TTL, LetterTTL: cfg.DeadLetters.Keep, MostLetters: cfg.MostLetters(), MaxResponse: int64(cfg.Idempotency.MaxResponse),
	}
	for _, c := range cfg.Credentials {
		own := proxy.Credential{Presets: c.Preset, Shops: c.Shop, Values: signer.Credentials{}}
		for name, value := range c.Values {
			own.Values[name] = string(value)
		}
		s.Credentials = append(s.Credentials, own)
	}
	for name, shop := range cfg.Shops {
		s.Shops[name] = proxy.Shop{Tier: shop.Tier}
	}
	for _, p := range cfg.Destinations.ConnectPorts {
		s.ConnectPorts = append(s.ConnectPorts, uint16(p))
	}
	for i := range cfg.Routes {
		rt, err := route(&cfg.Routes[i])
		if err != nil {
			return nil, err
		}
		s.Routes = append(s.Routes, rt)
	}
	return s, nil
}

// knownPresets reads the presets, and checks that those that are named exist.
func knownPresets(cfg *config.Config) (*presets.Set, error) {
	set, err := presets.Load(cfg.Presets.Dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	check := func(path, name string) {
		if name != "" && name != presets.None && set.Named(name) == nil {
			errs = append(errs, cfg.Fault(path, fmt.Errorf("there is no preset %q; retryproxy preset ls lists them", name)))
		}
	}
	suppliers := func(path string, p *config.Policy) {
		for i, name := range p.Failover {
			at := fmt.Sprintf("%s.failover[%d]", path, i)
			if check(at, name); set.Named(name) != nil && set.Named(name).Submit == nil {
				errs = append(errs, cfg.Fault(at, fmt.Errorf("the preset %q has no submit, which says how an order is placed there", name)))
			}
		}
	}
	for i := range cfg.Routes {
		check(fmt.Sprintf("routes[%d].preset", i), cfg.Routes[i].Preset)
	}
	asks := func(path, name string) {
		check(path, name)
		if p := set.Named(name); p != nil && p.Query == nil {
			errs = append(errs, cfg.Fault(path, fmt.Errorf("preset %q has no query", name)))
		}
	}
	for i := range cfg.RetryPolicies {
		p := &cfg.RetryPolicies[i]
		asks(p.Path(i)+".query", p.Query)
		check(p.Path(i)+".preset", p.Preset)
		suppliers(p.Path(i), p)
		for j := range p.Variants {
			check(fmt.Sprintf("%s.variants[%d].preset", p.Path(i), j), p.Variants[j].Preset)
			suppliers(fmt.Sprintf("%s.variants[%d]", p.Path(i), j), &p.Variants[j].Policy)
			asks(fmt.Sprintf("%s.variants[%d].query", p.Path(i), j), p.Variants[j].Query)
		}
	}
	return set, errors.Join(errs...)
}

// reportGroups are the policies whose calls are counted, each with its variants.
func reportGroups(set *policy.Set) []report.Group {
	groups := make([]report.Group, len(set.Policies()))
	for i, p := range set.Policies() {
		groups[i] = report.Group{Policy: p.Name}
		for _, v := range p.Variants {
			groups[i].Arms = append(groups[i].Arms, report.Arm{
				Name: v.Name, Variant: strings.TrimPrefix(v.Name, p.Name+"/"), Weight: v.Weight, Settings: settingsOf(v),
			})
		}
		if len(p.Variants) == 0 {
			groups[i].Arms = []report.Arm{{Name: p.Name, Settings: settingsOf(p)}}
		}
	}
	return groups
}

// settingsOf are those of a policy or variant that say which calls it has and what
// becomes of them; how many it has does not.
func settingsOf(p *policy.Policy) policy.Policy {
	own := *p
	if p.Of != nil {
		own.Match = p.Of.Match
	}
	own.Weight, own.Of, own.Variants = 0, nil, nil
	return own
}

// addresses are those we really listen on: a call to one of them is a loop.
type addresses struct{ proxies, others []netip.AddrPort }

// clientsConfig says who may use the proxy, and under which names it is called.
func clientsConfig(cfg *config.Config) access.ClientsConfig {
	c := access.ClientsConfig{Allow: cfg.Clients.Allow, Trusted: cfg.Clients.Trusted}
	for name, u := range cfg.Clients.Users {
		c.Users = append(c.Users, access.User{
			Name: name, Hash: string(u.Hash), Labels: attempt.Labels{Shop: u.Shop, ShopTier: u.ShopTier, TaskType: u.TaskType},
		})
	}
	c.Hosts = append(append(c.Hosts, cfg.Listen.Hosts...), proxyAddrs(cfg)...)
	if cfg.Listen.Admin != "" {
		c.Hosts = append(c.Hosts, cfg.Listen.Admin)
	}
	for i := range cfg.Routes {
		if h := cfg.Routes[i].Host; h != "" {
			c.Hosts = append(c.Hosts, h)
		}
	}
	return c
}

// proxyAddrs are the configured addresses of the proxy.
func proxyAddrs(cfg *config.Config) []string {
	out := []string{cfg.Listen.Proxy}
	for _, l := range cfg.Listeners {
		out = append(out, l.Addr)
	}
	return out
}

// interfaces are this machine's own addresses.
func interfaces() []netip.Addr {
	var out []netip.Addr
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr())
		}
	}
	return out
}

// route parses the base URLs of a reverse route.
func route(r *config.Route) (proxy.Route, error) {
	out := proxy.Route{Name: r.Name, Prefix: strings.TrimSuffix(r.Prefix, "/"), Host: r.Host, StripPrefix: r.StripPrefix, CrossSite: r.CrossSite, Preset: r.Preset}
	for _, base := range r.Upstreams {
		u, err := url.Parse(base)
		if err != nil {
			return out, fmt.Errorf("routes %s: %w", r.Name, err)
		}
		out.Upstreams = append(out.Upstreams, proxy.Origin{
			Scheme: u.Scheme, Authority: u.Host, Path: strings.TrimSuffix(u.EscapedPath(), "/"),
		})
	}
	return out, nil
}

// configuredHosts are the upstreams that always get a metric label of their own.
func configuredHosts(cfg *config.Config) []string {
	var out []string
	add := func(scheme, host string) {
		port := map[string]string{"http": ":80", "h2c": ":80", "https": ":443"}[scheme]
		if strings.Contains(host, "*") {
			return
		}
		if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
			port = ""
		}
		out = append(out, strings.ToLower(host)+port)
	}
	for i := range cfg.Routes {
		for _, base := range cfg.Routes[i].Upstreams {
			if u, err := url.Parse(base); err == nil {
				add(u.Scheme, u.Host)
			}
		}
	}
	for _, h := range slices.Concat(cfg.UpgradeToHTTPS, cfg.Intercept.Hosts) {
		add("https", h)
	}
	return out
}

func clientLimits(cfg *config.Config) inbound.Limits {
	l := &cfg.Limits
	return inbound.Limits{HeaderTimeout: l.HeaderTimeout, IdleTimeout: clientIdle, HeaderBytes: int(l.HeaderBytes), Connections: l.Connections, H2C: cfg.Listen.H2C}
}

func spoolConfig(cfg *config.Config) spool.Config {
	b := &cfg.Body
	return spool.Config{Memory: int64(b.Memory), MemoryTotal: int64(b.MemoryTotal), DiskTotal: int64(b.DiskTotal), Dir: b.Dir}
}

func shopConfig(cfg *config.Config) breaker.ShopConfig {
	s := cfg.Breakers.Shop
	return breaker.ShopConfig{IdenticalFailures: s.IdenticalFailures, ProbeEvery: s.ProbeEvery}
}
