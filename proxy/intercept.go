package proxy

import (
	"context"
	"net"
	"strings"
	"time"

	"retryproxy/inbound"
	"retryproxy/intercept"
	"retryproxy/message"
)

const (
	handshakeTime = 10 * time.Second // for the client's first byte, and for its side of TLS
	mostAgent     = 80               // bytes of a User-Agent that tell programs apart
	recordTLS     = 0x16             // first byte of a TLS handshake (RFC 8446 section 5.1)
)

// chooseSide settles whether the tunnel that is asked for is one to be opened: its
// host is listed, and the client is not known to refuse our certificates. Settled
// once, for an answer that changes halfway would let it leave unjudged.
func (x *exchange) chooseSide() *refusal {
	x.opens = x.listed() && (x.p.Pins == nil || !x.p.Pins.PassThrough(x.pinner(), x.hops[0].host, time.Now()))
	return nil
}

// listed says that the call asks for a tunnel to a host under intercept.
func (x *exchange) listed() bool {
	i := x.set.Intercept
	return x.mode == "connect" && i != nil && i.Hosts.Match(x.hops[0].host)
}

// pinner names a client among those that refuse our CA: programs and bots behind
// one address are told apart by what CONNECT tells of them.
func (x *exchange) pinner() string {
	name := x.call.Client.Addr().String()
	if x.user.Name != "" {
		name += ";user=" + x.user.Name
	}
	if x.labels.Shop != "" {
		name += ";shop=" + x.labels.Shop
	}
	if agent := agentOf(x.call.Request.Fields); agent != "" {
		name += ";agent=" + agent
	}
	return name
}

// agentOf is the beginning of a User-Agent; empty: there is none.
func agentOf(f message.Fields) string {
	agent := f.Get("User-Agent")
	return agent[:min(len(agent), mostAgent)]
}

// open answers a CONNECT without dialling: what comes inside is served on the
// full path, connecting included. A certificate is made only for a host that the
// client may reach.
func (x *exchange) open() {
	if r := x.reachable(); r != nil {
		x.refuse(r)
		return
	}
	if !x.acceptConnect() {
		return
	}
	client := x.accepted
	x.outcome.decision = Decision{Do: Deliver, Reason: "ok"}
	began := time.Now()
	defer func() { x.away += time.Since(began) }()
	t := &tunnel{client: client, idle: min(handshakeTime, x.set.TunnelIdle)}
	head, http, err := t.readHead()
	_ = client.SetReadDeadline(time.Time{})
	inside := &prefixed{Conn: client, head: head, err: err}
	switch {
	case len(head) == 0:
		client.Close()
	case head[0] == recordTLS:
		x.openTLS(inside)
	case http && x.hops[0].target.Port != 443:
		x.serveInside(inside, "http", nil)
	default:
		x.passBlind(inside)
	}
}

// reachable asks the guard about the host, whose name may have to be looked up for
// that; nil: the client may have a certificate for it. Where only the labels of
// the requests inside decide by which address they leave, they are judged then.
func (x *exchange) reachable() *refusal {
	if x.noWay != nil {
		return nil
	}
	x.call.Watch()
	ctx, cancel := context.WithTimeout(x.call.Context(), x.policy.ConnectTimeout)
	defer cancel()
	if err := x.p.Upstream.Check(ctx, x.hops[0].target); err != nil {
		return x.deniedBy(err)
	}
	if x.call.Context().Err() != nil {
		return refuse("client_gone", "the client left before its tunnel was open")
	}
	return nil
}

// openTLS is the host towards the client. What the client asks for by SNI must
// be what it asked for by CONNECT, or one name would open the door to another.
func (x *exchange) openTLS(c net.Conn) {
	ctx, cancel := context.WithTimeout(x.call.Context(), handshakeTime)
	defer cancel()
	host := x.hops[0].target.Host
	tc, hello, err := x.set.Intercept.CA.Handshake(ctx, c, host)
	if err != nil {
		c.Close()
		x.refused(err)
		return
	}
	var flaw *inbound.Bad
	if name := strings.TrimSuffix(hello.ServerName, "."); name != "" && !strings.EqualFold(name, host) {
		flaw = &inbound.Bad{Status: 400, Reason: "bad_request", Detail: "the server name in TLS is another one than the tunnel's target"}
	}
	x.serveInside(tc, "https", flaw)
}

// refused notes a handshake that failed. Clients that pin certificates say so by
// an alert, again and again: then they get their tunnel.
func (x *exchange) refused(err error) {
	x.outcome.decision, x.outcome.result = stop("client_gone"), "cancelled"
	x.outcome.detail = "TLS with the client: " + err.Error()
	host, now := x.hops[0].host, time.Now()
	if !intercept.Refused(err) {
		// Some clients that do not trust us hang up without a word (Node, Java's
		// HttpClient), as one does that was cancelled: that proves nothing.
		if x.p.hosts.first("handshake " + x.pinner() + " " + host) {
			x.p.Log.Warn("a client ended the TLS handshake in a tunnel that we open: does it trust our CA?", "client", x.pinner(), "host", host, "error", err.Error())
		}
		return
	}
	x.outcome.detail = "the client does not trust our CA; the command ca says how it learns to"
	if !x.p.Pins.Refused(x.pinner(), host, now) {
		x.p.Log.Warn("a client does not trust our CA; the command ca says how it learns to", "client", x.pinner(), "host", host)
		return
	}
	x.p.Log.Warn("a client refused our CA three times: its tunnels to this host stay closed to us for an hour, without retries, or until POST /api/v1/intercept/reset",
		"client", x.pinner(), "host", host)
	if h := x.p.Hooks.PassThrough; h != nil {
		h(host)
	}
}

// passBlind joins the tunnel with its host after all, as any other tunnel: what
// is in it is neither TLS nor HTTP.
func (x *exchange) passBlind(c net.Conn) {
	defer c.Close()
	if x.noWay != nil {
		x.outcome.decision, x.outcome.result, x.outcome.detail = stop("destination_denied"), "rejected", x.noWay.detail
		x.denied("destination_denied")
		return
	}
	x.accepted, x.begun = c, time.Now()
	x.run()
}

// serveInside serves what was found inside the tunnel, until its end.
func (x *exchange) serveInside(c net.Conn, scheme string, flaw *inbound.Bad) {
	r := &x.call.Request
	t := &inbound.Tunnel{
		Authority: r.Authority, CallID: x.id, Fields: r.Fields, ProxyAuth: r.Fields.Get("Proxy-Authorization"),
		Scheme: scheme, Flaw: flaw,
	}
	if scheme == "https" {
		t.First = func() { x.p.Pins.Accepted(x.pinner(), x.hops[0].host, time.Now()) }
	}
	x.p.Inside(c, x.call, t)
	if scheme == "https" && t.Requests.Load() == 0 {
		// Some say no only after the handshake; TLS says again what it heard last.
		if _, err := c.Read(make([]byte, 1)); intercept.Refused(err) {
			x.refused(err)
		}
	}
}
