package inbound

import (
	"errors"
	"testing"
	"time"

	"retryproxy/message"
)

// unread is a body that must not be read.
type unread struct {
	t      *testing.T
	closed bool
}

func (u *unread) Read([]byte) (int, error) {
	u.t.Error("the body was read for nobody")
	return 0, errors.New("read")
}

func (u *unread) Close() error { u.closed = true; return nil }

// A detached call has no client: it is answered as one whose client left, at once.
func TestDetachedCallTakesNoAnswer(t *testing.T) {
	c := Detached(t.Context(), message.Request{Method: "POST"}, Absolute, nil, nil, &Listener{})
	for i, want := range []error{ErrClient, ErrAnswered} {
		body := &unread{t: t}
		n, err := c.Answer(&message.Response{Status: 200, Length: -1, Body: body}, time.Minute)
		if n != 0 || !errors.Is(err, want) || !body.closed {
			t.Errorf("Answer %d = %d, %v, closed %v, want 0, %v, true", i+1, n, err, body.closed, want)
		}
	}
}
