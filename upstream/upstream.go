// Package upstream answers one question: what happened when this request was sent to that host?
//
// It owns every connection to an upstream, so that one Send puts at most one
// request on the wire and the phase of a failure is known for sure.
package upstream

import (
	"net/netip"
	"time"

	"retryproxy/classify"
	"retryproxy/message"
)

// Target is where an attempt goes.
type Target struct {
	Scheme string // http or https
	Host   string // lower case name or address, no brackets, no trailing dot
	Port   uint16
	// Exempt targets come from the configuration (routes, egress proxies): the
	// private-address guard does not apply, the never-allowed list still does.
	Exempt bool
}

// Attempt is one request to be sent once.
type Attempt struct {
	Request *message.Request
	Target  Target

	ConnectTimeout time.Duration // name resolution, TCP and TLS together
	HeaderTimeout  time.Duration // per_try_timeout: from the last byte sent to the end of the answer's header
	BodyIdle       time.Duration // an upload or an answer's body that stands still for so long fails
	Deadline       time.Time     // cuts ConnectTimeout and HeaderTimeout short

	// Unsafe: a repeat would not be safe, so only a fresh connection will do, or
	// one idle under a second that a non-blocking read shows alive.
	Unsafe bool
	// Interim is called for each 1xx except 100 and 101; nil drops them.
	Interim func(status int, fields message.Fields)
}

// Result is what came of an attempt. Either Response is set (its header is
// complete; the body may still fail on reading) or Outcome.Fault is.
type Result struct {
	Response *message.Response
	Outcome  classify.Outcome
	Reused   bool           // the connection had served before
	Remote   netip.AddrPort // the address that was dialled; zero when none was
	Sent     int64          // bytes of the request written
}
