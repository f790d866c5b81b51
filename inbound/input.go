package inbound

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// readSize is what a connection reads at once; a usual head fits.
const readSize = 4 << 10

var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// past is a deadline that has gone by.
var past = time.Unix(1, 0)

// errFull: the buffer holds as many bytes as it may.
var errFull = errors.New("inbound: read buffer full")

// input is the receiving side of a connection. It holds a buffer only while
// bytes are expected or left.
type input struct {
	raw  net.Conn
	buf  []byte
	r, w int // buf[r:w] was received and not yet taken

	// late is a byte that the watcher read; it comes behind the buffered ones.
	late    [1]byte
	hasLate bool

	deadline time.Time   // the read deadline in force
	stale    bool        // it was set by somebody else
	halted   atomic.Bool // a read in progress is to end
}

// bytes are received and not yet taken; valid until more is called.
func (in *input) bytes() []byte { return in.buf[in.r:in.w] }

// pending says whether something was received that nobody took.
func (in *input) pending() bool { return in.w > in.r || in.hasLate }

func (in *input) take(n int) { in.r += n }

// more reads at least one byte behind the buffered ones; the buffer grows to
// at most limit bytes, then errFull.
func (in *input) more(limit int, until time.Time) error {
	if err := in.room(limit); err != nil {
		return err
	}
	n, err := in.read(in.buf[in.w:], until)
	in.w += n
	return err
}

// room makes space behind the buffered bytes.
func (in *input) room(limit int) error {
	switch {
	case in.buf == nil:
		in.buf = readBuffers.Get().(*[readSize]byte)[:]
	case in.r == in.w:
		in.r, in.w = 0, 0
	case in.w < len(in.buf):
	case in.r > 0:
		in.w = copy(in.buf, in.bytes())
		in.r = 0
	case len(in.buf) >= limit:
		return errFull
	default:
		grown := make([]byte, min(2*len(in.buf), limit))
		copy(grown, in.buf)
		w := in.w
		in.release()
		in.buf, in.w = grown, w
	}
	return nil
}

// release gives the buffer back.
func (in *input) release() {
	if len(in.buf) == readSize {
		readBuffers.Put((*[readSize]byte)(in.buf))
	}
	in.buf, in.r, in.w = nil, 0, 0
}

// read reads from the connection, past the buffer. A zero until waits for ever.
//
// Deadlines are lazy: an older one that is in force may fire early, and only
// then the wanted one is set. So a busy connection sets none.
func (in *input) read(p []byte, until time.Time) (int, error) {
	if in.hasLate {
		in.hasLate = false
		p[0] = in.late[0]
		return 1, nil
	}
	if in.stale || !until.IsZero() && (in.deadline.IsZero() || in.deadline.After(until)) {
		in.setDeadline(until)
	}
	for {
		n, err := in.raw.Read(p)
		switch {
		case n > 0:
			return n, nil
		case err == nil:
			continue
		case !errors.Is(err, os.ErrDeadlineExceeded) || !until.IsZero() && !time.Now().Before(until):
			return 0, err
		}
		in.setDeadline(until)
		if in.halted.Load() { // only now: halt may have come before the new deadline
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// halt ends a read in progress, from any goroutine; resume follows once that
// read has returned.
func (in *input) halt() {
	in.halted.Store(true)
	_ = in.raw.SetReadDeadline(past)
}

func (in *input) resume() {
	in.stale = true
	in.halted.Store(false)
}

func (in *input) setDeadline(t time.Time) {
	in.deadline, in.stale = t, false
	_ = in.raw.SetReadDeadline(t) // fails on a closed connection, where Read says so
}
