package proxy

import (
	"slices"
	"strconv"
	"strings"

	"retryproxy/message"
	"retryproxy/policy"
)

// Names of the response headers that are ours alone: the same names coming
// from an upstream are removed.
const (
	hCallID   = "X-Call-Id"
	hCount    = "X-Retry-Count"
	hReason   = "X-Retry-Reason"
	hExecuted = "X-Retry-Executed"
	hAdvice   = "X-Retry-Advice"
	hReplayed = "Idempotency-Replayed"
	hCache    = "Cache-Status"
	hStatus   = "Proxy-Status"
)

var ours = []string{hCallID, hCount, hReason, hExecuted, hAdvice, hAction, hReplayed, hCache}

// outgoing are the fields of every attempt of a call, without X-Retry-Count:
// hop-by-hop fields and our own labels gone, everything else as it came.
func (x *exchange) outgoing() message.Fields {
	in := x.call.Request.Fields
	upgrade := x.upgrade()
	out := make(message.Fields, 0, len(in)+3)
	for i := range in {
		if x.passes(&in[i]) {
			out = append(out, in[i])
		}
	}
	out = message.HopByHop(out, x.set.Headers.Keys...)
	if in.Listed("TE", "trailers") {
		out.Add("TE", "trailers") // true of us as well; gRPC over HTTP/2 insists on it
	}
	if upgrade != "" {
		out.Add("Connection", "Upgrade")
		out.Add("Upgrade", upgrade)
	}
	if x.sends.via {
		out.Add("Via", x.viaValue(x.call.Request.Version))
	}
	return out
}

// passes says whether a field of the client goes upstream.
func (x *exchange) passes(f *message.Field) bool {
	switch x.control(f.Name) {
	case controlKey:
		return x.sends.key // even when Connection names it
	case controlCount, controlTimeout:
		return false // ours to set
	case controlShop:
		return x.sends.shop
	case controlTier:
		return x.sends.tier
	case controlTask:
		return x.sends.task
	}
	if x.login && strings.EqualFold(f.Name, "Authorization") {
		return false
	}
	return !strings.EqualFold(f.Name, "Expect") // answered by us: the body is read first
}

// forwards are the header names of ours that a policy sends on to a host.
type forwards struct{ key, count, shop, tier, task, via, trace bool }

// forwarded reads them from the policy; a known third-party platform gets none
// unless the operator named them.
func (x *exchange) forwarded() forwards {
	if x.asksOnly {
		return forwards{} // a question is the operator's own, to the last header
	}
	goes := func(what string) bool {
		return x.everywhere(func(host string) bool { return x.forwardsTo(host, what) })
	}
	return forwards{
		key: goes(policy.HeaderKey), count: goes(policy.HeaderRetryCount), shop: goes(policy.HeaderShop),
		tier: goes(policy.HeaderShopTier), task: goes(policy.HeaderTaskType),
		via:   x.set.Via && x.everywhere(x.sendsVia),
		trace: x.trace != nil && x.everywhere(x.sendsTrace),
	}
}

// everywhere says whether something holds for every host the call may go to: a
// route may mix our own services with platforms.
func (x *exchange) everywhere(holds func(host string) bool) bool {
	for i := range x.hops {
		if !holds(x.hops[i].target.Host) {
			return false
		}
	}
	return true
}

// control tells our own request headers from all others.
func (x *exchange) control(name string) control {
	h := &x.set.Headers
	switch {
	case contains(h.Keys, name):
		return controlKey
	case strings.EqualFold(name, h.RetryCount):
		return controlCount
	case strings.EqualFold(name, h.Timeout):
		return controlTimeout
	case strings.EqualFold(name, h.Shop):
		return controlShop
	case strings.EqualFold(name, h.ShopTier):
		return controlTier
	case strings.EqualFold(name, h.Task):
		return controlTask
	}
	return controlNone
}

type control uint8

const (
	controlNone control = iota
	controlKey
	controlCount
	controlTimeout
	controlShop
	controlTier
	controlTask
)

// counted returns the fields of one attempt: X-Retry-Count is absent when 0.
func (x *exchange) counted(n int) message.Fields {
	if n == 0 || !x.sends.count {
		return x.out
	}
	f := x.out.Clone(1)
	f.Add(x.set.Headers.RetryCount, strconv.Itoa(n))
	return f
}

// viaValue is our entry in Via (RFC 9110 section 7.6.3).
func (x *exchange) viaValue(version string) string {
	if version == "1.1" {
		return x.p.via
	}
	return version + " " + x.p.name
}

// looped says whether the request already passed through this very process.
func (x *exchange) looped() bool {
	f := x.call.Request.Fields
	for i := range f {
		if strings.EqualFold(f[i].Name, "Via") && strings.Contains(f[i].Value, x.p.name) {
			return true
		}
	}
	return false
}

// upgrade is the protocol the client wants to change to, or "".
func (x *exchange) upgrade() string {
	f := x.call.Request.Fields
	if f.Has("Upgrade") && f.Listed("Connection", "upgrade") {
		return f.Get("Upgrade")
	}
	return ""
}

// fromUpstream cleans the fields of an upstream's answer for the client, in
// place: hop-by-hop fields, those named by Connection (RFC 9110 section 7.6.1),
// and names that are ours. A 407 without its challenge would mean nothing
// (section 11.7.1), so that stays.
func fromUpstream(f message.Fields, status int) message.Fields {
	if status == 407 {
		f = message.HopByHop(f, "Proxy-Authenticate")
	} else {
		f = message.HopByHop(f)
	}
	return slices.DeleteFunc(f, func(x message.Field) bool { return contains(ours, x.Name) })
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if len(n) == len(name) && strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}
