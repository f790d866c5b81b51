package upstream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"retryproxy/classify"
	"retryproxy/message"
)

// answered is a Response with its body in one allocation.
type answered struct {
	resp message.Response
	body body
}

// body is the content of an answer. The connection goes back to the pool when
// its last byte was read. Read and Close are for one goroutine.
type body struct {
	cn      *conn   // nil: given back
	up      *upload // nil: the request is out
	whole   string  // what was there with the header, if that was all
	left    int64   // bytes to come; -1: until the connection closes
	chunked bool
	reuse   bool
	chunks  chunks
	err     error // sticky
}

// isHere says whether the rest of the content is in the buffer.
func (b *body) isHere() bool {
	return !b.chunked && b.left >= 0 && b.left <= int64(len(b.cn.in.unread()))
}

// complete takes the content out of the buffer, where all of it is, and gives
// the connection back. early is its start.
func (b *body) complete(early string) {
	n := int(b.left)
	b.whole = early[:min(n, len(early))]
	if n > len(b.whole) {
		b.whole = string(b.cn.in.unread()[:n])
	}
	b.cn.in.skip(n)
	b.left = 0
	b.leave(b.reuse)
}

// leave parts from the connection.
func (b *body) leave(reuse bool) {
	cn := b.cn
	b.cn = nil
	cn.release(reuse)
}

// Read fails with an error that BodyFault knows when the answer is incomplete.
func (b *body) Read(p []byte) (n int, err error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case b.cn == nil:
		n = copy(p, b.whole)
		if b.whole = b.whole[n:]; b.whole == "" {
			b.err = io.EOF
		}
		return n, b.err
	case len(p) == 0:
		return 0, nil
	case b.chunked:
		n, err = b.chunks.read(b.cn, p)
	default:
		n, err = b.readPlain(p)
	}
	switch {
	case err == nil:
	case b.paused(err):
		return n, os.ErrDeadlineExceeded
	default:
		b.finish(err)
	}
	return n, b.err
}

// SetReadDeadline makes a Read that waits pause at t with os.ErrDeadlineExceeded;
// the content can be read on afterwards. Zero ends that.
func (b *body) SetReadDeadline(t time.Time) error {
	if b.cn == nil {
		return nil
	}
	b.cn.hold = t
	if t.IsZero() && b.cn.idle == 0 {
		return b.cn.readBy(t) // no later read would set it
	}
	return nil
}

// paused says whether a read ended because of SetReadDeadline alone.
func (b *body) paused(err error) bool {
	hold := b.cn.hold
	return !hold.IsZero() && timedOut(err) && b.cn.ctx.Err() == nil && !time.Now().Before(hold)
}

// readPlain reads content that is delimited by length or by the connection.
func (b *body) readPlain(p []byte) (n int, err error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if b.left > 0 && int64(len(p)) > b.left {
		p = p[:b.left]
	}
	if n, err = b.cn.readThrough(p); b.left < 0 {
		return n, err
	}
	b.left -= int64(n)
	switch {
	case b.left == 0:
		err = io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// readThrough empties the buffer first and then does without it.
func (cn *conn) readThrough(p []byte) (n int, err error) {
	if cn.in.empty() {
		cn.in.give()
		return cn.read(p)
	}
	n = copy(p, cn.in.unread())
	cn.in.skip(n)
	return n, nil
}

// finish is the end of reading, good or bad.
func (b *body) finish(err error) {
	if err != io.EOF {
		b.err = bodyError(b.cn, err)
		b.drop()
		return
	}
	b.err = io.EOF
	reuse := b.reuse
	if b.up != nil {
		if !b.up.finished() {
			// The answer is complete, so whatever is left of the request does not
			// matter. Close waits for its reader.
			b.up.cut()
			b.leave(false)
			return
		}
		reuse = reuse && b.up.err == nil
		b.up = nil
	}
	b.leave(reuse)
}

// bodyError makes the error of Read out of one of the connection.
func bodyError(cn *conn, err error) error {
	switch {
	case cn.ctx.Err() != nil:
		return worded{cn.ctx.Err(), detail(cn.at(), cn.ctx.Err())}
	case timedOut(err):
		return fmt.Errorf("%w (%s)", ErrIdle, cn.at())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w (%s)", ErrTruncated, cn.at())
	case BodyFault(err) == classify.FaultReset:
		return worded{err, detail(cn.at(), err)}
	}
	return err
}

// drop gives up an answer that was not read to its end.
func (b *body) drop() {
	if b.up != nil {
		_, _ = b.up.halt()
		b.up = nil
	}
	if b.cn != nil {
		b.leave(false)
	}
}

// Close ends the reading. Before the end it costs the connection.
func (b *body) Close() error {
	b.drop()
	b.whole = ""
	if b.err == nil {
		b.err = ErrClosed
	}
	return nil
}

// WriteTo hands a body that is already here to w in one write.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	if b.cn != nil || b.err != nil {
		buf := writeBuffers.Get().(*[writeSize]byte)
		defer writeBuffers.Put(buf)
		return io.CopyBuffer(w, struct{ io.Reader }{b}, buf[:])
	}
	n, err := io.WriteString(w, b.whole)
	if b.whole = b.whole[n:]; err == nil {
		b.err = io.EOF
	}
	return int64(n), err
}

func (b *body) trailers() message.Fields { return b.chunks.trailers }
