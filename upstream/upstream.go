// Package upstream answers one question: what happened when this request was sent to that host?
//
// It owns every connection to an upstream, so that one Send puts at most one
// request on the wire and the phase of a failure is known for sure.
package upstream

import (
	"context"
	"net"
	"net/netip"
	"time"

	"retryproxy/classify"
	"retryproxy/message"
)

// Target is where an attempt goes.
type Target struct {
	Scheme string // http, https, or h2c: HTTP/2 without TLS, known beforehand
	Host   string // lower case name or address, no brackets, no trailing dot
	Port   uint16
	// Exempt targets come from the configuration (routes, egress proxies): the
	// private-address guard does not apply, the never-allowed list still does.
	Exempt bool
	// Exit is the egress proxy to go through; nil: none, the host is dialled
	// directly. Targets with different exits never share a connection, so an
	// Exit is comparable and one value per identity.
	Exit Exit
}

// Exit is an egress proxy under one identity: its address and the user name
// that it is given.
type Exit interface {
	// Name is for details and logs; it holds no password.
	Name() string
	// Proxy is where the egress proxy listens. Scheme is http, https or socks5.
	Proxy() (scheme, host string, port uint16)
	// Resolves says that the proxy looks names up itself; otherwise Open is given
	// an address.
	Resolves() bool
	// Open makes conn, a connection to the proxy (inside TLS for https), lead to
	// host and port; host is a name or an address without brackets. The returned
	// connection is conn, or conn behind bytes that came early, which then has a
	// method Buffered() bool that says so. A failure is one
	// of the egress faults, FaultLocal or FaultCancelled, with an error that names
	// the exit for people; conn is then still the caller's to close. ctx bounds it.
	Open(ctx context.Context, conn net.Conn, host string, port uint16) (net.Conn, classify.Fault, error)
}

// Attempt is one request to be sent once.
type Attempt struct {
	Request *message.Request
	Target  Target

	ConnectTimeout time.Duration // name resolution, TCP and TLS together; 0: no limit
	HeaderTimeout  time.Duration // per_try_timeout: from the last byte sent to the end of the answer's header; 0: no limit
	BodyIdle       time.Duration // an upload or an answer's body that stands still for so long fails; 0: no limit
	Deadline       time.Time     // cuts all but BodyIdle short; zero: none

	// Unsafe: a repeat would not be safe, so only a fresh connection will do, or
	// one idle under a second that a non-blocking read shows alive.
	Unsafe bool
	// Interim is called for each 1xx except 100 and 101, by the goroutine that
	// runs Send; nil drops them.
	Interim func(status int, fields message.Fields)
}

// Result is what came of an attempt. Either Response is set (its header is
// complete; the body may still fail on reading) or Outcome.Fault is.
type Result struct {
	Response *message.Response
	Outcome  classify.Outcome
	Reused   bool           // the connection had served before
	Remote   netip.AddrPort // the address that was dialled, an exit's if there is one; zero when none was
	Sent     int64          // bytes of the request written so far
	// Asked: the exit was there and was asked for the way; what failed then may be
	// the host's doing.
	Asked bool
}

// Send puts the request on the wire at most once and returns when the header of
// the answer is there. Nothing is repeated here. ctx stops every phase, the
// reading of the answer's body included.
//
// The content of the request is not read any more once Send has failed, or else
// once the answer's body is closed.
func (c *Client) Send(ctx context.Context, a *Attempt) Result {
	if why := flaw(a.Request); why != "" {
		return failure(classify.PhaseNone, classify.FaultBadTarget, why)
	}
	if !a.Deadline.IsZero() && !time.Now().Before(a.Deadline) {
		return failure(classify.PhaseNone, a.Target.outOfTime(), noTime)
	}
	for try := 1; ; try++ {
		l, failed := c.line(ctx, a)
		switch {
		case l.conn != nil:
			return l.conn.exchange(ctx, a)
		case l.session == nil:
			return failed
		}
		// A kept session can end between the choice and the first frame: then the
		// attempt has not begun.
		if res, begun := l.session.exchange(ctx, a); begun || !res.Reused || try == mostSessions {
			return res
		}
	}
}

const noTime = "no time was left"

// mostSessions bounds the sessions that one Send may find ended, so that a host
// that sends GOAWAY at once is not met with a stream of connections.
const mostSessions = 3

// failure is a Result without an answer.
func failure(p classify.Phase, f classify.Fault, detail string) Result {
	return Result{Outcome: classify.Outcome{Phase: p, Fault: f, Detail: detail}}
}
