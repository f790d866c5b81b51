// Package inbound answers one question: what does the client want, and how does it get its answer?
//
// It reads requests from client connections strictly (RFC 9112), hands each to
// the Handler as a Call, and is the only place that writes to a client.
package inbound

import (
	"net/netip"
	"time"

	"retryproxy/attempt"
	"retryproxy/message"
)

// Form is the form of the request-target (RFC 9112 section 3.2).
type Form uint8

// The four forms.
const (
	Origin    Form = iota // /path?query
	Absolute              // http://host/path
	Authority             // CONNECT host:port
	Asterisk              // OPTIONS *
)

// Listener is one address we listen on and the labels it gives.
type Listener struct {
	Addr   string
	Labels attempt.Labels
}

// Tunnel is the CONNECT that a call came in through.
type Tunnel struct {
	Authority string // the CONNECT target, host:port
	ProxyAuth string // its Proxy-Authorization
	Fields    message.Fields
	CallID    string
}

// Call is one request of a client. It belongs to the goroutine that runs the
// Handler and ends when the Handler returns.
type Call struct {
	// Request as received: Fields include Connection and all hop-by-hop fields,
	// Host is in Authority. Scheme is empty in origin-form. Body is nil; the
	// content is read with Read.
	Request  message.Request
	Form     Form
	Client   netip.AddrPort
	Listener *Listener
	Tunnel   *Tunnel // nil outside a tunnel
	Received time.Time
	// Length is the declared length of the content, -1: chunked, 0: none.
	Length int64
	// KeepAlive is false when the connection ends after this answer.
	KeepAlive bool

	conn *conn
}
