package inbound

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/message"
)

// h2stream is one request of HTTP/2 and the transport of its call.
type h2stream struct {
	h2   *h2conn
	call Call
	ctx  context.Context
	end  context.CancelFunc
	// detach lets the call outlive its stream, once that has its answer.
	detach func() bool

	w      http.ResponseWriter
	r      *http.Request
	in     sync.Mutex // a Read is in progress
	inTime patience
	out    patience

	readEnd  error       // why reading ended; under in
	reading  atomic.Bool // Read was called
	stopped  atomic.Bool
	answered atomic.Bool
	leftAt   atomic.Int64  // when the client was found gone before that, Unix nanoseconds; 0: it was not
	broken   bool          // the stream is to be reset; set before over is closed
	over     chan struct{} // closed when w is used no more
	ending   sync.Once
}

var _ transport = (*h2stream)(nil)

func newH2Stream(h *h2conn, w http.ResponseWriter, r *http.Request) *h2stream {
	k := h.conn
	t := &h2stream{h2: h, w: w, r: r, over: make(chan struct{})}
	t.ctx, t.end = context.WithCancel(k.ctx)
	t.detach = context.AfterFunc(r.Context(), t.lost)
	t.call = Call{Client: k.client, Listener: k.on, Tunnel: k.tunnel, Received: time.Now(), KeepAlive: true, via: t}
	fault := fillCall(&t.call, r)
	if refusal := k.refusal(); refusal != nil {
		fault, t.call.KeepAlive = refusal, false
	}
	if fault != nil {
		t.call.Bad, t.call.Length = fault, 0
	}
	if t.call.Length == 0 {
		t.readEnd = io.EOF
	}
	return t
}

// lost ends the call of a client that is gone.
func (t *h2stream) lost() {
	if !t.answered.Load() {
		t.leftAt.Store(time.Now().UnixNano())
	}
	t.end()
}

// run runs the handler; a panic resets the stream.
func (t *h2stream) run() {
	defer t.h2.done()
	defer t.end()
	defer func() {
		if p := recover(); p != nil {
			t.h2.conn.server.log("handler panicked", "error", p, "stack", string(debug.Stack()))
		}
		t.closeRead()
		t.finish(true) // without effect after an answer
	}()
	t.h2.conn.server.Handler(&t.call)
}

// finish lets the stream end, well or with a reset.
func (t *h2stream) finish(broken bool) {
	t.ending.Do(func() {
		t.broken = broken
		if broken {
			t.end()
		} else {
			t.detach()
		}
		close(t.over)
	})
}

func (t *h2stream) context() context.Context { return t.ctx }

// read reads DATA; net/http lets a client go on that waits for 100 Continue.
func (t *h2stream) read(p []byte, idle time.Duration) (n int, err error) {
	t.in.Lock()
	defer t.in.Unlock()
	switch {
	case t.readEnd != nil:
		return 0, t.readEnd
	case t.stopped.Load():
		return 0, ErrBodyStopped
	case len(p) == 0:
		return 0, nil
	}
	t.reading.Store(true)
	t.inTime.begin(idle, func() { _ = t.r.Body.Close() })
	n, err = t.r.Body.Read(p)
	stalled := t.inTime.end()
	if err == nil {
		return n, nil
	}
	t.readEnd = t.explain(err, stalled)
	return n, t.readEnd
}

// explain says what a failed read means for the content.
func (t *h2stream) explain(err error, stalled bool) error {
	switch {
	case err == io.EOF:
		return io.EOF
	case t.stopped.Load():
		return ErrBodyStopped
	case stalled:
		return ErrBodyStalled
	case t.r.Context().Err() != nil || t.h2.lost.Load():
		return fmt.Errorf("%w: %w", ErrBodyShort, err)
	}
	return ErrBodyMalformed
}

func (t *h2stream) closeRead() {
	t.stopped.Store(true)
	_ = t.r.Body.Close()
}

// trailers are those that were announced: net/http keeps no others.
func (t *h2stream) trailers() message.Fields {
	t.in.Lock()
	defer t.in.Unlock()
	if t.readEnd != io.EOF || t.call.Length == 0 {
		return nil
	}
	return fieldsOf(t.r.Trailer)
}

func (t *h2stream) watchClient() {}

func (t *h2stream) left() time.Time { return moment(&t.leftAt) }

func (t *h2stream) acceptConnect(message.Fields) (*Stream, error) { return nil, ErrShared }

func (t *h2stream) upgrade(*Call, *message.Response) (*Stream, error) { return nil, ErrShared }

// fieldsOf lists a map of fields, ordered by name so that it is the same each time.
func fieldsOf(h http.Header) message.Fields {
	fields := make(message.Fields, 0, len(h))
	for name, values := range h {
		for _, v := range values {
			fields = append(fields, message.Field{Name: name, Value: v})
		}
	}
	slices.SortStableFunc(fields, func(a, b message.Field) int { return strings.Compare(a.Name, b.Name) })
	return fields
}

// patience bounds one blocking step after the other: what takes longer is cut.
type patience struct {
	mu    sync.Mutex
	timer *time.Timer
	cut   func()
	on    bool
	fired bool
}

// begin starts a step that may take d; 0: for ever.
func (p *patience) begin(d time.Duration, cut func()) {
	if d <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on, p.fired, p.cut = true, false, cut
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.fire)
		return
	}
	p.timer.Reset(d)
}

// end ends the step and says whether it was cut.
func (p *patience) end() (cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on {
		p.timer.Stop()
	}
	p.on = false
	return p.fired
}

// fire runs in the timer's goroutine. The lock is held over the cut, so that
// what it cuts is still there; the cut only leaves a message.
func (p *patience) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on {
		p.fired = true
		p.cut()
	}
}
