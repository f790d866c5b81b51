// Package inbound answers one question: what does the client want, and how does it get its answer?
//
// It reads requests from client connections strictly (RFC 9112, RFC 9113), hands
// each to the Handler as a Call, and is the only place that writes to a client.
// HTTP/1.1 is its own; the frames of HTTP/2 are left to net/http.
package inbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"retryproxy/attempt"
	"retryproxy/message"
)

var (
	// ErrAnswered says that the call already has its answer, or left HTTP behind.
	ErrAnswered = errors.New("inbound: the call is already answered")
	// ErrShared says that a connection carries other calls too, so that it
	// cannot be handed over.
	ErrShared = errors.New("inbound: HTTP/2 connections are not handed over")
)

// controlIdle bounds the writing of interim answers and of heads that open a
// tunnel: a few bytes, for which the handler names no patience.
const controlIdle = 30 * time.Second

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
	// Scheme is that of the requests inside: http, or https once the tunnel was
	// opened with our certificate.
	Scheme string
	// Flaw refuses every request inside: what the client asked for in its
	// handshake is not what it asked for in CONNECT.
	Flaw *Bad
	// Requests counts those that came through so far; First is called for the
	// first of them. nil: nobody wants to know.
	Requests atomic.Int64
	First    func()
}

// Bad says why a request is refused before anybody looks at what it wants.
type Bad struct {
	Status int    // what to answer
	Reason string // bad_request, header_too_large or client_denied
	Detail string // for people; holds nothing of the request
}

func bad(status int, detail string) *Bad { return &Bad{status, "bad_request", detail} }

// Call is one request of a client. It belongs to the goroutine that runs the
// Handler and ends when the Handler returns; only Read and CloseRead may be
// used from another one, and Request.Fields may be kept.
type Call struct {
	// Request as received: Fields include Connection, Expect and all hop-by-hop
	// fields, Host is in Authority. Scheme is empty in origin-form, but that of
	// the Tunnel on HTTP/2 inside one. Body is nil; the content is read with
	// Read. HTTP/2 fields come ordered by name, without Expect: 100-continue.
	Request  message.Request
	Form     Form
	Client   netip.AddrPort
	Listener *Listener
	Tunnel   *Tunnel // nil outside a tunnel
	Received time.Time
	// Length is the declared length of the content, -1: not declared (chunked),
	// 0: none.
	Length int64
	// KeepAlive is false when the connection ends after this answer, on HTTP/2
	// once all other calls on it have ended too. The handler may clear it before
	// it answers.
	KeepAlive bool
	// Bad is set when the request could not be parsed or is not allowed. The
	// handler answers it all the same; then the connection ends. On HTTP/2 it
	// goes on unless it is the client or the tunnel that is refused.
	Bad *Bad
	// BodyIdle is how long Read waits for the next bytes; 0: for ever.
	BodyIdle time.Duration

	via    transport
	expect bool
}

// transport is how a call came: alone on its connection (HTTP/1.1), or as a
// stream among others (HTTP/2).
type transport interface {
	context() context.Context
	read(p []byte, idle time.Duration) (int, error)
	closeRead()
	trailers() message.Fields
	watchClient()
	left() time.Time
	interim(status int, f message.Fields) error
	acceptConnect(f message.Fields) (*Stream, error)
	upgrade(c *Call, r *message.Response) (*Stream, error)
	answer(c *Call, r *message.Response, idle time.Duration) (int64, error)
}

// Context ends when the client is found gone or the server closes hard. On
// HTTP/1.1 there is one per connection, so it outlives the call; on HTTP/2 it
// ends with the Handler at the latest.
func (c *Call) Context() context.Context { return c.via.context() }

// Read reads the content, without its transfer coding; io.EOF at its end,
// possibly together with the last bytes. The first Read lets a client go on
// that waits for 100 Continue. Errors wrap one of ErrBodyMalformed,
// ErrBodyShort, ErrBodyStalled and ErrBodyStopped, or ErrClient.
func (c *Call) Read(p []byte) (int, error) { return c.via.read(p, c.BodyIdle) }

// CloseRead gives the content up: a Read in progress and all later ones fail
// with ErrBodyStopped. The connection ends with the answer; on HTTP/2 only the
// stream does.
func (c *Call) CloseRead() { c.via.closeRead() }

// Trailers are the fields after the content, once Read gave io.EOF. On HTTP/2
// they are those that the field Trailer announced.
func (c *Call) Trailers() message.Fields { return c.via.trailers() }

// Watch makes Context end when the client goes away between the end of its
// content (or now, if that was read) and the answer. A client that closes only
// its sending side counts as gone too, as with net/http: it cannot be told from
// one that closed. A client that has sent its next request is watched no longer.
// On HTTP/2 a client is always watched.
func (c *Call) Watch() { c.via.watchClient() }

// Left is when the client was found to have gone without its answer; zero: it was
// not, or nobody looked. See Watch.
func (c *Call) Left() time.Time { return c.via.left() }

// Interim sends a 1xx other than 100 and 101; HTTP/1.0 clients get none.
func (c *Call) Interim(status int, f message.Fields) error {
	if status <= 101 || status > 199 {
		return fmt.Errorf("inbound: %d is no interim status to pass on", status)
	}
	if c.Request.Version == "1.0" {
		return nil
	}
	return c.via.interim(status, f)
}

// AcceptConnect answers a CONNECT with 200 and fields, and hands the connection
// over. It is the handler's until the handler returns; then it is closed. On
// HTTP/2 it fails with ErrShared.
func (c *Call) AcceptConnect(fields message.Fields) (*Stream, error) {
	return c.via.acceptConnect(fields)
}

// Upgrade passes a 101 on and hands the connection over, as AcceptConnect does.
// The content of the request must have been read. Upgrade comes from r, else
// from the request; the rest of r but its fields is left alone.
func (c *Call) Upgrade(r *message.Response) (*Stream, error) { return c.via.upgrade(c, r) }

// Answer writes the one answer of the call and closes r.Body. n counts the
// bytes of content written. It frames by r.Length, else chunked, else (HTTP/1.0)
// by the end of the connection; Date is added when absent; Connection,
// Content-Length and Transfer-Encoding in r.Fields are not written, nor, on
// HTTP/2, Keep-Alive, Proxy-Connection and Upgrade.
//
// What the body gives is written as soon as the body has no more at hand; one
// that can tell has a method Buffered() int. An error of the body is returned
// as it is, after the connection (on HTTP/2 the stream) was reset so that the
// client sees it. An error of the client, also that it takes nothing for idle,
// wraps ErrClient.
func (c *Call) Answer(r *message.Response, idle time.Duration) (n int64, err error) {
	return c.via.answer(c, r, idle)
}

var _ io.Reader = (*Call)(nil)
