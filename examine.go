package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"

	"retryproxy/access"
	"retryproxy/config"
	"retryproxy/doctor"
	"retryproxy/upstream"
)

// examine gives the doctor hands: it reaches upstreams by the rules of the
// configuration, as the proxy would. end lets go of the connections.
func examine(cfg *config.Config) (w doctor.World, end func(), err error) {
	guard := probeGuard(cfg)
	roots := cfg.TLS.Roots()
	up := upstream.New(upstream.Config{
		TLS: &tls.Config{RootCAs: roots}, HeaderBytes: responseBytes,
		Guard:     func(addr netip.AddrPort, exempt bool) error { return loopOr(guard.Check(addr, exempt)) },
		GuardName: func(host string, port uint16, exempt bool) error { return loopOr(guard.CheckName(host, port, exempt)) },
	})
	send := func(ctx context.Context, a *upstream.Attempt) upstream.Result {
		a.Target.Exempt = a.Target.Exempt || guard.Exempt(a.Target.Host)
		return up.Send(ctx, a)
	}
	return doctor.World{Machine: doctor.ThisMachine(), Egress: egressConfig(cfg), Roots: roots, Send: send}, up.Close, nil
}

// probeGuard is the guard of a proxy with this configuration.
func probeGuard(cfg *config.Config) *access.Guard {
	g := access.GuardConfig{
		Private: cfg.Destinations.Private, Allow: cfg.Destinations.Allow, Deny: cfg.Destinations.Deny, Interfaces: interfaces(),
	}
	for _, addr := range proxyAddrs(cfg) {
		if at, err := netip.ParseAddrPort(addr); err == nil {
			g.Proxies = append(g.Proxies, at)
		}
	}
	return access.NewGuard(g)
}

// loopOr makes a loop known to the upstream client.
func loopOr(err error) error {
	if errors.Is(err, access.ErrLoop) {
		return fmt.Errorf("%w: %w", upstream.ErrLoop, err)
	}
	return err
}

// coverage is what the running proxy says about its clients.
func (a *app) coverage() any {
	cfg := a.config()
	return a.observer.Coverage(&doctor.Setup{
		Proxy: a.proxies[0].Addr().String(), Intercept: cfg.Intercept.Hosts, Upgrade: cfg.UpgradeToHTTPS,
	}, a.listensFor(cfg.Listen.Admin))
}
