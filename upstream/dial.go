package upstream

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"retryproxy/classify"
)

// headStart is what one address gets before the next is tried beside it (RFC
// 8305 section 5 recommends 250 ms).
const headStart = 250 * time.Millisecond

// opened is a connection as far as it was built.
type opened struct {
	nc     net.Conn
	raw    net.Conn // the TCP connection below nc; may be nc itself
	remote netip.AddrPort
	name   string         // whose connection it is
	exit   Exit           // that it goes through, nil: none
	stands bool           // the exit has opened the way: name is the target's
	told   bool           // err is in the words of the exit
	asked  bool           // the exit was asked for the way
	early  bool           // nc begins with bytes that came with the exit's answer
	phase  classify.Phase // where it failed
	fault  classify.Fault
	err    error
}

func (o opened) failed() bool { return o.fault != classify.FaultNone }

// result tells why there is no connection.
func (o opened) result() Result {
	r := failure(o.phase, o.fault, o.detail())
	r.Remote, r.Asked = o.remote, o.asked
	return r
}

// openTCP resolves the target's name and connects to the first address that
// takes us.
func (c *Client) openTCP(ctx context.Context, t *Target) opened {
	addrs, o := c.destinations(ctx, t)
	if o.failed() {
		return o
	}
	o = c.dialAny(ctx, addrs)
	o.raw, o.name = o.nc, t.Host
	if o.err != nil {
		o.phase, o.fault = classify.PhaseConnect, dialFault(o.err)
	}
	return o
}

// destinations are the addresses of t that the guard allows, or why there are none.
func (c *Client) destinations(ctx context.Context, t *Target) ([]netip.AddrPort, opened) {
	addrs, err := c.addresses(ctx, t)
	if err != nil {
		return nil, opened{name: t.Host, phase: classify.PhaseResolve, fault: lookupFault(err), err: err}
	}
	allowed, err := c.allowed(addrs, t)
	if len(allowed) == 0 {
		return nil, opened{name: t.Host, phase: classify.PhaseNone, fault: deniedFault(err), err: err}
	}
	return allowed, opened{}
}

// addresses are the target's, IPv4 in IPv6 unwrapped, the families in turn.
func (c *Client) addresses(ctx context.Context, t *Target) ([]netip.AddrPort, error) {
	if addr, err := netip.ParseAddr(t.Host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(addr.Unmap(), t.Port)}, nil
	}
	addrs, err := c.resolve(ctx, t.Host)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no address", Name: t.Host, IsNotFound: true}
	}
	if err != nil {
		return nil, err
	}
	out := make([]netip.AddrPort, len(addrs))
	for i, addr := range addrs {
		out[i] = netip.AddrPortFrom(addr.Unmap(), t.Port)
	}
	return alternate(out), nil
}

// alternate orders addresses so that a dead family costs one head start, not
// one for each of its addresses (RFC 8305 section 4).
func alternate(addrs []netip.AddrPort) []netip.AddrPort {
	var families [2][]netip.AddrPort // that of the first address, and the other
	for _, a := range addrs {
		i := 0
		if a.Addr().Is4() != addrs[0].Addr().Is4() {
			i = 1
		}
		families[i] = append(families[i], a)
	}
	out := addrs[:0]
	for i := 0; len(out) < len(addrs); i++ {
		for _, f := range families {
			if i < len(f) {
				out = append(out, f[i])
			}
		}
	}
	return out
}

// allowed drops the addresses that the guard forbids; err is its last word.
func (c *Client) allowed(addrs []netip.AddrPort, t *Target) (ok []netip.AddrPort, err error) {
	if c.guard == nil {
		return addrs, nil
	}
	for _, a := range addrs {
		if no := c.guard(a, t.Exempt); no != nil {
			err = no
			continue
		}
		ok = append(ok, a)
	}
	return ok, err
}

// dialAny connects to one of addrs: the next is tried when one fails or has had
// its head start, and the first connection wins.
func (c *Client) dialAny(ctx context.Context, addrs []netip.AddrPort) opened {
	if len(addrs) == 1 {
		return c.dialOne(ctx, addrs[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan opened, len(addrs))
	next := time.NewTimer(headStart)
	defer next.Stop()
	var first opened
	for started, pending := 0, 0; ; {
		if started < len(addrs) {
			at := addrs[started]
			started, pending = started+1, pending+1
			go func() { results <- c.dialOne(ctx, at) }()
			next.Reset(headStart)
		}
		select {
		case o := <-results:
			pending--
			if o.err == nil {
				cancel()
				discard(results, pending)
				return o
			}
			if first.err == nil || outOfResources(o.err) {
				first = o
			}
			if pending == 0 && started == len(addrs) {
				cancel()
				return first
			}
		case <-next.C:
		}
	}
}

func (c *Client) dialOne(ctx context.Context, at netip.AddrPort) opened {
	nc, err := c.dial(ctx, at)
	return opened{nc: nc, remote: at, err: err}
}

// discard waits for the dials that came too late, which were cancelled.
func discard(results <-chan opened, pending int) {
	for range pending {
		if o := <-results; o.err == nil {
			_ = o.nc.Close()
		}
	}
}

func dialTCP(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", at.String())
}

// lookup asks the resolver of the machine. Its errors do not unwrap to the
// cause, so running out of descriptors is noticed where its sockets are opened.
// On Linux it is always Go's, as in a static build: the C library reports a lack
// of descriptors as a name that does not exist.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	var local atomic.Pointer[error]
	r := net.Resolver{PreferGo: runtime.GOOS == "linux", Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		nc, err := d.DialContext(ctx, network, addr)
		if outOfResources(err) {
			local.Store(&err)
		}
		return nc, err
	}}
	addrs, err := r.LookupNetIP(ctx, "ip", host)
	if why := local.Load(); err != nil && why != nil {
		return nil, *why
	}
	return addrs, err
}
