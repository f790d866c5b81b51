// Package message answers one question: what did one side say to the other?
//
// It holds requests and responses as our own values, so that nothing between
// the two edges (inbound and upstream) depends on net/http: fields keep their
// order and spelling, targets stay byte for byte as they came.
package message

import (
	"errors"
	"io"
)

// ErrBodyUsed is returned by Body.Open when the content was streamed and its
// first bytes are gone, so that no further attempt can carry it.
var ErrBodyUsed = errors.New("message: the body was already used and cannot be repeated")

// Request is what goes to an upstream, or came from a client.
type Request struct {
	Method    string
	Scheme    string // "http" or "https": how the upstream is spoken to
	Authority string // host or host:port as the client named it; becomes Host
	Target    string // path and query byte for byte as received, or "*"; never decoded
	Version   string // the sender's HTTP version: "1.0", "1.1" or "2.0"
	Fields    Fields // without Host, Content-Length and Transfer-Encoding: framing belongs to the edges
	Body      Body   // nil: the message has none
}

// Body is the content of a request, readable once per attempt.
type Body interface {
	// Len is the number of bytes, -1 when unknown (sent chunked).
	Len() int64
	// Open returns a reader at the first byte. It fails with ErrBodyUsed when
	// the content cannot be had again.
	Open() (io.ReadCloser, error)
	// Trailers are the fields after the content, valid once a reader gave io.EOF.
	Trailers() Fields
}

// Response is what an upstream answered, or what we answer ourselves.
type Response struct {
	Status  int
	Reason  string // reason phrase as received; empty: the standard one
	Version string // the sender's HTTP version
	Fields  Fields // without Content-Length and Transfer-Encoding
	// Length is the declared number of bytes of Body; -1: unknown. For an
	// answer without content by rule (HEAD, 204, 304) it is the declared
	// Content-Length or -1, and Body is empty.
	Length int64
	// Body is never nil; the receiver of the Response closes it. A read error
	// other than io.EOF means that the answer is incomplete.
	Body io.ReadCloser
	// Trailers gives the fields after the content once Body gave io.EOF; may be nil.
	Trailers func() Fields
	// Upgrade is the raw connection after a 101; nil otherwise.
	Upgrade Upgrade
}

// Upgrade is a connection that left HTTP behind. CloseWrite passes a half-close on.
type Upgrade interface {
	io.ReadWriteCloser
	CloseWrite() error
}
