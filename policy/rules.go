package policy

import (
	"slices"

	"retryproxy/classify"
)

// Names of what ForwardHeaders may hold.
const (
	HeaderKey        = "idempotency_key"
	HeaderRetryCount = "retry_count"
	HeaderShop       = "shop"
	HeaderShopTier   = "shop_tier"
	HeaderTaskType   = "task_type"
	HeaderTrace      = "trace_context" // traceparent with our span in it
)

// Nature is what a preset knows of a call: whether it changes something.
type Nature uint8

// Natures of a call.
const (
	NatureUnknown Nature = iota // the method tells
	NatureReads                 // it changes nothing
	NatureRepeats               // made twice it changes no more than made once
	NatureWrites                // it does change something, whatever its method
)

// String is the nature in words.
func (n Nature) String() string {
	return [...]string{"told by its method", "a read", "a write that may be repeated", "a write"}[n]
}

// Writes says whether the call is not known to change nothing.
func (n Nature) Writes() bool { return n != NatureReads }

// Rules are what judging an attempt of a call needs. nature is what a preset knows of
// it; honoured says that it is keyed, and that the key makes a repeat safe.
func (p *Policy) Rules(method string, nature Nature, honoured bool) classify.Rules {
	return classify.Rules{
		Retry:     p.RetryStatuses,
		Permanent: p.PermanentStatuses,
		NotNow:    p.NotNowStatuses,
		OnUnknown: p.OnUnknown,
		Safe:      p.basis(method, nature, honoured),
	}
}

// basis says why repeating is safe before the outcome is known; empty: it is not.
func (p *Policy) basis(method string, nature Nature, key bool) classify.Basis {
	switch p.Safe {
	case "always":
		return classify.BasisRule
	case "never":
		return ""
	}
	switch {
	case p.Safe == "key" || nature == NatureWrites: // a get that writes is a write
	case nature == NatureReads || nature == NatureRepeats:
		return classify.BasisRule
	case slices.Contains(p.SafeMethods, method):
		return classify.BasisMethod
	}
	if p.Safe != "method" && key {
		return classify.BasisKey
	}
	return ""
}

// Forwards says whether forward_headers names what. Use ForwardsTo for what
// really goes to a host.
func (p *Policy) Forwards(what string) bool { return slices.Contains(p.ForwardHeaders, what) }

// ForwardsKey says whether forward_headers names the idempotency key.
func (p *Policy) ForwardsKey() bool { return p.Forwards(HeaderKey) }

// ForwardsTo says whether what is sent to host: a third-party platform gets none
// of our headers unless the operator named them.
func (p *Policy) ForwardsTo(host, what string) bool {
	return p.Forwards(what) && (p.ForwardHeadersSet || !Platform(host))
}

// SendsVia says whether host gets our Via, by the same rule. Whether Via is
// sent at all is up to headers.via.
func (p *Policy) SendsVia(host string) bool { return p.ForwardHeadersSet || !Platform(host) }

// SendsTrace says whether host gets the place of the attempt in a distributed trace: a
// third-party platform only where the operator named it, others unless none of our
// headers goes to them.
func (p *Policy) SendsTrace(host string) bool {
	return p.ForwardHeadersSet && p.Forwards(HeaderTrace) || !Platform(host) && len(p.ForwardHeaders) > 0
}

// KeyHonoured says whether a key makes a repeat to host safe: it really goes
// there, and the host is not known to ignore keys. Against the latter stands
// only the operator's own "safe: key".
func (p *Policy) KeyHonoured(host string) bool {
	return p.ForwardsTo(host, HeaderKey) && (p.Safe == "key" || !KeyIgnored(host))
}
