package upstream

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"retryproxy/classify"
)

// reach makes a connection that leads to t, directly or through its exit.
func (c *Client) reach(ctx context.Context, t *Target) opened {
	if t.Exit == nil {
		return c.openTCP(ctx, t)
	}
	if t.namedByExit() {
		if err := c.named(t); err != nil {
			return opened{phase: classify.PhaseNone, fault: deniedFault(err), err: err}
		}
		return c.pass(ctx, t, t.Host)
	}
	addrs, o := c.destinations(ctx, t)
	if o.failed() {
		return o
	}
	for _, at := range addrs[:min(len(addrs), exitTries)] {
		if o = c.pass(ctx, t, at.Addr().String()); o.fault != classify.FaultEgressFailed {
			break
		}
	}
	return o
}

// exitTries is how many addresses of a host an exit is asked for: one of each
// family, as destinations come in turn.
const exitTries = 2

// namedByExit says whether the exit looks the name of t up, so that the guard
// cannot judge an address.
func (t *Target) namedByExit() bool {
	if t.Exit == nil || !t.Exit.Resolves() {
		return false
	}
	_, err := netip.ParseAddr(t.Host)
	return err != nil
}

// named judges a name that is looked up elsewhere.
func (c *Client) named(t *Target) error {
	if c.guardName == nil {
		return nil
	}
	return c.guardName(t.Host, t.Port, t.Exempt)
}

// pass lets the exit of t open the way to host.
func (c *Client) pass(ctx context.Context, t *Target, host string) opened {
	o := c.openProxy(ctx, t.Exit)
	if o.failed() {
		return o
	}
	o.asked = true
	nc, fault, err := t.Exit.Open(ctx, o.nc, host, t.Port)
	if fault != classify.FaultNone {
		_ = o.nc.Close()
		o.phase, o.fault, o.err, o.told = classify.PhaseConnect, fault, err, true
		return o
	}
	o.nc, o.name, o.stands, o.early = nc, t.Host, true, early(nc)
	return o
}

// early says whether nc begins with bytes that came with the exit's answer.
func early(nc net.Conn) bool {
	b, ok := nc.(interface{ Buffered() bool })
	return ok && b.Buffered()
}

// openProxy connects to the egress proxy itself. Its tickets are the exit's own,
// like those of the hosts behind it.
func (c *Client) openProxy(ctx context.Context, exit Exit) opened {
	scheme, host, port := exit.Proxy()
	proxy := Target{Scheme: scheme, Host: host, Port: port, Exempt: true, Exit: exit}
	o := c.openTCP(ctx, &proxy)
	if !o.failed() && scheme == "https" {
		o, _ = c.secure(ctx, o, &proxy, "http/1.1")
	}
	o.exit = exit
	if o.failed() {
		o.phase, o.fault = min(o.phase, classify.PhaseConnect), exitFault(&o)
	}
	return o
}

// exitFault is the fault of a proxy that cannot be reached. What is ours stays.
func exitFault(o *opened) classify.Fault {
	switch o.fault {
	case classify.FaultLocal, classify.FaultCancelled, classify.FaultDenied, classify.FaultLoop:
		return o.fault
	}
	if timedOut(o.err) {
		return classify.FaultEgressTimeout
	}
	return classify.FaultEgressUnreachable
}

// blame is fault, unless it hit a connection through an exit before the first
// byte of the request: it cannot be told then whether the host or the exit broke
// off, so it must not count against the host.
func (t *Target) blame(phase classify.Phase, fault classify.Fault) classify.Fault {
	if t.Exit == nil || phase >= classify.PhaseSent {
		return fault
	}
	switch fault {
	case classify.FaultTimeout:
		return classify.FaultEgressTimeout
	case classify.FaultReset, classify.FaultEOF:
		return classify.FaultEgressFailed
	}
	return fault
}

// outOfTime is the fault of an attempt whose time ended before its connection
// was there.
func (t *Target) outOfTime() classify.Fault {
	return t.blame(classify.PhaseNone, classify.FaultTimeout)
}

// Check says whether the guard lets t be reached at all: nil when it allows an
// address, or when there is none to judge, because the name cannot be resolved
// now or the exit resolves it. Nothing is dialled. Errors: ErrTarget, or what the
// guard says.
func (c *Client) Check(ctx context.Context, t Target) error {
	if why := t.unreachable(); why != "" {
		return fmt.Errorf("%w: %s", ErrTarget, why)
	}
	if t.namedByExit() {
		return c.named(&t)
	}
	_, o := c.destinations(ctx, &t)
	if o.fault == classify.FaultDenied || o.fault == classify.FaultLoop {
		return o.err
	}
	return nil
}
