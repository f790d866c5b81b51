package attempt

import (
	"encoding/hex"
	"net/netip"
	"time"

	"retryproxy/classify"
)

// SpanContext names a span of a distributed trace to others (W3C Trace Context).
type SpanContext struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte
}

// IsZero says that it names none.
func (c SpanContext) IsZero() bool { return c.Trace == [16]byte{} }

// String is the traceparent; empty: there is none.
func (c SpanContext) String() string {
	if c.IsZero() {
		return ""
	}
	b := make([]byte, 0, 55)
	b = hex.AppendEncode(append(b, "00-"...), c.Trace[:])
	b = hex.AppendEncode(append(b, '-'), c.Span[:])
	return string(hex.AppendEncode(append(b, '-'), []byte{c.Flags}))
}

// Trace is the place of a call in a distributed trace, and what its spans tell beyond its
// Summary.
type Trace struct {
	Parent  SpanContext // the client's span; zero: the trace begins here
	Own     SpanContext // of the call
	State   string      // the client's tracestate
	Goes    bool        // State goes on as it came
	Sampled bool        // spans are made; what follows is kept for them only

	Scheme, Authority string // that the client asked for
	UserAgent         string
	Route             string // reverse mode: the pattern of paths that it takes
	Links             []string
	Sends             []Send
	Error             string        // why the answer is none: as Send.Error
	Up                int64         // bytes that a client sent through a tunnel
	Age               time.Duration // of the dead letter that runs again
}

// Send is an attempt as its span tells it.
type Send struct {
	Span     [8]byte
	N        int // Attempt.N
	Method   string
	URL      string // without its secrets; empty: a tunnel
	Peer     netip.AddrPort
	Protocol string // version of HTTP; empty: there was no answer
	Phase    classify.Phase
	Error    string // the type of error by RFC 9209 where no answer came whole; empty: none is registered
}
