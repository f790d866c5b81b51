package inbound

import (
	"bytes"
	"context"
	"io"
	"time"

	"retryproxy/message"
)

// Detached makes a Call without a client: its content is body, and its answer is
// read to the end and goes nowhere. ctx is its Context. It is for calls that go on
// after their client, or the process that it spoke to, has gone.
func Detached(ctx context.Context, req message.Request, form Form, body []byte, trailers message.Fields, on *Listener) *Call {
	return &Call{
		Request: req, Form: form, Listener: on, Received: time.Now(), Length: int64(len(body)),
		via: &nobody{ctx: ctx, body: bytes.NewReader(body), fields: trailers},
	}
}

// nobody is the transport of a call without a client.
type nobody struct {
	ctx    context.Context
	body   *bytes.Reader
	fields message.Fields
	said   bool // the answer came
}

var _ transport = (*nobody)(nil)

func (n *nobody) context() context.Context                      { return n.ctx }
func (n *nobody) read(p []byte, _ time.Duration) (int, error)   { return n.body.Read(p) }
func (n *nobody) closeRead()                                    {}
func (n *nobody) trailers() message.Fields                      { return n.fields }
func (n *nobody) watchClient()                                  {}
func (n *nobody) interim(int, message.Fields) error             { return nil }
func (n *nobody) acceptConnect(message.Fields) (*Stream, error) { return nil, ErrShared }
func (n *nobody) upgrade(*Call, *message.Response) (*Stream, error) {
	return nil, ErrShared
}

// answer reads the body to its end: whoever keeps it for the record reads along.
func (n *nobody) answer(_ *Call, r *message.Response, _ time.Duration) (int64, error) {
	defer func() { _ = r.Body.Close() }()
	if n.said {
		return 0, ErrAnswered
	}
	n.said = true
	return io.Copy(io.Discard, r.Body)
}
