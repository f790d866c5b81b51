package inbound

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"retryproxy/message"
)

// Held is a call whose client may be let go before the call is over. Call is what
// the work goes on with, in a goroutine of its own: while the client is held it
// answers that client, afterwards nobody, as a detached one does.
type Held struct {
	Call *Call

	mu       sync.Mutex
	client   *Call
	ctx      context.Context // of the work
	sums     message.Fields  // the trailers
	begun    bool            // the answer is on its way to the client
	kept     bool            // it will be
	released bool
	gone     time.Time // when the client was found gone before it was released
}

// Hold takes a call whose content has been read. ctx is the Context of the work,
// which ends with neither client nor connection.
func Hold(ctx context.Context, client *Call) *Held {
	h := &Held{client: client, ctx: ctx, sums: client.Trailers()}
	work := *client
	work.via = h
	h.Call = &work
	return h
}

// Release lets the client go: from now on it is the caller who answers it. false:
// the work answers it, and the caller has to wait for its end.
func (h *Held) Release() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun || h.kept {
		return false
	}
	h.released, h.gone = true, h.client.Left()
	return true
}

// Keep settles that the client gets the work's answer, and is let go no more. false:
// it was let go already.
func (h *Held) Keep() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = !h.released
	return h.kept
}

var _ transport = (*Held)(nil)

func (h *Held) context() context.Context                      { return h.ctx }
func (h *Held) read([]byte, time.Duration) (int, error)       { return 0, io.EOF }
func (h *Held) closeRead()                                    {}
func (h *Held) trailers() message.Fields                      { return h.sums }
func (h *Held) watchClient()                                  {}
func (h *Held) acceptConnect(message.Fields) (*Stream, error) { return nil, ErrShared }
func (h *Held) upgrade(*Call, *message.Response) (*Stream, error) {
	return nil, ErrShared
}

// left says nothing of a client that was let go first.
func (h *Held) left() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return h.gone
	}
	return h.client.Left()
}

// interim is not worth an answer's place: who is let go gets none.
func (h *Held) interim(status int, f message.Fields) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return nil
	}
	return h.client.Interim(status, f)
}

// answer goes to the client, unless it was let go.
func (h *Held) answer(c *Call, r *message.Response, idle time.Duration) (int64, error) {
	h.mu.Lock()
	released, begun := h.released, h.begun
	h.begun = true
	h.mu.Unlock()
	switch {
	case begun:
		_ = r.Body.Close()
		return 0, ErrAnswered
	case released:
		_ = r.Body.Close()
		return 0, fmt.Errorf("%w: it was let go", ErrClient)
	}
	h.client.KeepAlive = c.KeepAlive
	return h.client.Answer(r, idle)
}
