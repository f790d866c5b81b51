package upstream

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/classify"
	"retryproxy/message"
)

// upload sends a request that does not fit in one write, while Send waits for
// the answer: an early one (413, 503) must be seen before the last byte is out.
// Its goroutine ends with the write or read of the client's content it is in.
type upload struct {
	cn       *conn
	ctx      context.Context
	src      io.ReadCloser
	trailers func() message.Fields // chunked only
	left     int64                 // -1: chunked
	idle     time.Duration
	header   time.Duration
	deadline time.Time

	sent     atomic.Int64
	ending   atomic.Bool // the last write is being made
	unwanted atomic.Bool // write nothing more
	done     chan struct{}
	fault    classify.Fault // valid after done, as is err
	err      error

	mu       sync.Mutex
	over     bool // nothing more will be written
	answered bool // the reading side no longer waits for us
}

func newUpload(cn *conn, a *Attempt, src io.ReadCloser, length int64) *upload {
	return &upload{
		cn: cn, ctx: cn.ctx, src: src, trailers: a.Request.Body.Trailers, left: length,
		idle: a.BodyIdle, header: a.HeaderTimeout, deadline: a.Deadline,
		done: make(chan struct{}),
	}
}

// run writes head, which stands at the start of buf, and the content.
func (u *upload) run(buf *[writeSize]byte, head []byte) {
	defer close(u.done)
	defer writeBuffers.Put(buf)
	u.fault, u.err = u.send(buf[:], head)
	if err := u.src.Close(); err != nil && u.fault == classify.FaultNone {
		u.fault, u.err = classify.FaultBody, err
	}
	u.handOver()
}

// send writes the head together with the first part of the content.
func (u *upload) send(buf, head []byte) (classify.Fault, error) {
	for b := head; ; b = buf[:0] {
		if len(b)+minChunk > len(buf) { // a head that fills the buffer goes alone
			if err := u.write(b); err != nil {
				return writeFault(err), err
			}
			b = buf[:0]
		}
		b, last, err := u.read(b)
		if err != nil {
			return classify.FaultBody, err
		}
		u.ending.Store(last)
		if err := u.write(b); err != nil {
			return writeFault(err), err
		}
		if last {
			return classify.FaultNone, nil
		}
	}
}

// read appends the next part of the content, framed.
func (u *upload) read(b []byte) (framed []byte, last bool, err error) {
	if u.left < 0 {
		return u.readChunk(b)
	}
	space := b[len(b):cap(b)]
	space = space[:min(int64(len(space)), u.left)]
	n, err := io.ReadAtLeast(u.src, space, 1)
	u.left -= int64(n)
	return b[:len(b)+n], u.left == 0, shortOf(err)
}

// shortOf makes an early end of the content an error that is not io.EOF.
func shortOf(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

const (
	chunkLine = len("4000\r\n")             // the longest size line: no chunk exceeds writeSize
	chunkEnds = len("\r\n") + len("0\r\n")  // behind a chunk
	minChunk  = chunkLine + chunkEnds + 512 // less is not worth a write
)

var errTrailer = errors.New("a trailer field of the request is not valid")

// readChunk appends a chunk; with the last one the trailers.
func (u *upload) readChunk(b []byte) (framed []byte, last bool, err error) {
	at := len(b)
	data := b[at+chunkLine : cap(b)-chunkEnds]
	n, err := io.ReadAtLeast(u.src, data, 1)
	if err != nil && err != io.EOF {
		return b, false, err
	}
	if n > 0 {
		b = strconv.AppendInt(b, int64(n), 16)
		b = append(b, "\r\n"...)
		b = append(b, data[:n]...) // moves down when the size line is short
		b = append(b, "\r\n"...)
	}
	if err == nil {
		return b, false, nil
	}
	b, err = appendTrailers(append(b, "0\r\n"...), u.trailers())
	return b, true, err
}

func appendTrailers(b []byte, fields message.Fields) ([]byte, error) {
	if !writable(fields) {
		return b, errTrailer
	}
	for i := range fields {
		if !ownField(fields[i].Name) {
			b = appendField(b, &fields[i])
		}
	}
	return append(b, "\r\n"...), nil
}

// write sends b. A peer that has taken a little within idle gets as much time
// again: when in that time it stopped cannot be seen.
func (u *upload) write(b []byte) error {
	for {
		if err := u.arm(); err != nil {
			return err
		}
		n, err := u.cn.nc.Write(b)
		u.sent.Add(int64(n))
		if b = b[n:]; err == nil {
			return nil
		}
		if n == 0 || !timedOut(err) || !u.cn.bare {
			return err // a TLS connection is broken by a timeout
		}
	}
}

// arm sets the time by which the next write has to move something.
func (u *upload) arm() error {
	err := u.cn.nc.SetWriteDeadline(earlier(u.idle, u.deadline))
	switch {
	case err != nil:
		return err
	case u.unwanted.Load(): // looked at last, as cut may have set a deadline before
		return ErrClosed
	}
	return u.ctx.Err()
}

// handOver tells the reading side how long to wait for the header now.
func (u *upload) handOver() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
	if u.answered {
		return
	}
	by := longAgo
	switch {
	case u.fault == classify.FaultNone:
		by = earlier(u.header, u.deadline)
	case u.fault == classify.FaultReset && u.sent.Load() > 0:
		by = time.Now().Add(lastWords)
	}
	if err := u.cn.nc.SetReadDeadline(by); err != nil || u.ctx.Err() != nil {
		u.cn.interrupt()
	}
}

// finished says whether the upload is over, as seen by the holder of a final
// answer. A last write in progress is waited for: the upstream, having answered,
// has most likely taken it.
func (u *upload) finished() bool {
	u.mu.Lock()
	u.answered = true
	u.mu.Unlock()
	if !u.ending.Load() {
		return isClosed(u.done)
	}
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-u.done:
	case <-timer.C:
	}
	return isClosed(u.done)
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// cut makes the upload stop at its next write.
func (u *upload) cut() {
	u.unwanted.Store(true)
	_ = u.cn.nc.SetWriteDeadline(longAgo)
}

// halt stops the upload and waits for its end. The fault is one that it met
// before it was stopped.
func (u *upload) halt() (classify.Fault, error) {
	u.mu.Lock()
	u.answered = true
	over := u.over
	u.mu.Unlock()
	if !over {
		u.cut()
	}
	<-u.done
	if !over && (u.fault != classify.FaultReset || errors.Is(u.err, ErrClosed)) {
		return classify.FaultNone, nil // our doing
	}
	return u.fault, u.err
}
