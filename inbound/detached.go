package inbound

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"retryproxy/message"
)

// Detached makes a Call without a client: its content is body, and to answer it
// fails with ErrClient, as for any client that left. ctx is its Context. It is for
// calls that go on after the process that their client spoke to has gone.
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
func (n *nobody) left() time.Time                               { return time.Time{} }
func (n *nobody) interim(int, message.Fields) error             { return nil }
func (n *nobody) acceptConnect(message.Fields) (*Stream, error) { return nil, ErrShared }
func (n *nobody) upgrade(*Call, *message.Response) (*Stream, error) {
	return nil, ErrShared
}

// answer reads nothing: how much of the body the record needs its owner knows.
func (n *nobody) answer(_ *Call, r *message.Response, _ time.Duration) (int64, error) {
	defer func() { _ = r.Body.Close() }()
	if n.said {
		return 0, ErrAnswered
	}
	n.said = true
	return 0, fmt.Errorf("%w: the call has none", ErrClient)
}
