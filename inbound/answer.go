package inbound

import (
	"io"
	"strconv"
	"time"

	"retryproxy/message"
)

// mode is how the end of a content is marked.
type mode uint8

const (
	without    mode = iota // no content by rule
	sized                  // Content-Length
	chunked                // Transfer-Encoding
	untilClose             // HTTP/1.0 without a length
)

const (
	chunkHead = len("8000\r\n") // of the largest chunk a buffer holds
	chunkTail = len("\r\n")
	leastRoom = 512 // a read into less is not worth it
	maxEmpty  = 100 // reads in a row that give nothing
)

// answer is one answer on its way out. Head and content gather in buf.
type answer struct {
	conn *conn
	res  *message.Response
	idle time.Duration
	mode mode
	left int64 // of a sized content
	sent int64 // bytes of content written
	held int64 // bytes of content in buf

	buf   []byte
	small *[smallWrite]byte // what buf lies in, unless it outgrew it
	large *[largeWrite]byte
}

// buffered is a body that knows how much a Read gives without waiting.
type buffered interface{ Buffered() int }

// frame decides how the content is delimited and whether the connection goes on.
func (a *answer) frame(c *Call) {
	a.left = a.res.Length
	switch {
	case c.Request.Method == "HEAD" || a.res.Status == 204 || a.res.Status == 304:
		a.mode = without
	case a.res.Length >= 0:
		a.mode = sized
	case c.Request.Version != "1.0":
		a.mode = chunked
	default:
		a.mode, c.KeepAlive = untilClose, false
	}
	c.KeepAlive = c.KeepAlive && a.conn.mayKeep()
}

// begin puts the head into a buffer.
func (a *answer) begin(c *Call) {
	if a.mode == sized && a.left > smallWrite/2 {
		a.large = largeBuffers.Get().(*[largeWrite]byte)
	} else {
		a.small = smallBuffers.Get().(*[smallWrite]byte)
	}
	r := a.res
	b := appendFields(appendStatus(a.space(), r.Status, r.Reason), r.Fields)
	if !r.Fields.Has("Date") {
		b = appendField(b, "Date", httpDate(time.Now()))
	}
	switch {
	case a.mode == chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case a.mode != untilClose && r.Length >= 0 && r.Status != 204:
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, r.Length, 10), "\r\n"...)
	}
	switch {
	case !c.KeepAlive:
		b = append(b, "Connection: close\r\n"...)
	case c.Request.Version == "1.0":
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	a.buf = append(b, "\r\n"...)
}

// space is the empty buffer.
func (a *answer) space() []byte {
	if a.large != nil {
		return a.large[:0]
	}
	return a.small[:0]
}

// send writes head, content and end; the last write comes when nobody watches
// the client any more, so that its leaving after that is no news.
func (a *answer) send() error {
	if a.mode != without && a.left != 0 {
		if err := a.copy(); err != nil {
			return err
		}
	}
	if a.mode == chunked {
		a.end()
	}
	a.conn.watch.stop()
	return a.flush()
}

// copy moves the content but leaves what fits into the buffer for the last write.
func (a *answer) copy() error {
	more, tells := a.res.Body.(buffered)
	if tells && more.Buffered() == 0 || !tells && a.res.Length < 0 {
		if err := a.flush(); err != nil {
			return err
		}
	}
	for {
		if cap(a.buf)-len(a.buf) < leastRoom {
			if err := a.flushFull(); err != nil {
				return err
			}
		}
		end, err := a.gather()
		if end || err != nil {
			return err
		}
		if !tells || more.Buffered() == 0 {
			if err := a.flush(); err != nil {
				return err
			}
		}
	}
}

// gather reads one piece of the content into the buffer.
func (a *answer) gather() (end bool, err error) {
	at := len(a.buf)
	if a.mode == chunked {
		at += chunkHead
	}
	space := a.buf[at : cap(a.buf)-chunkTail]
	if a.mode == sized {
		space = space[:min(int64(len(space)), a.left)]
	}
	n, err := readSome(a.res.Body, space)
	a.seal(at, n)
	return a.mode.ends(&a.left, n, err)
}

// ends says whether a content is complete after n more bytes and err; left is
// what a sized one still lacks.
func (m mode) ends(left *int64, n int, err error) (end bool, _ error) {
	if m == sized {
		if *left -= int64(n); *left == 0 {
			return true, nil
		}
		if err == io.EOF {
			return true, io.ErrUnexpectedEOF
		}
	}
	if err == io.EOF {
		return true, nil
	}
	return false, err
}

// readSome reads until there is something.
func readSome(r io.Reader, p []byte) (n int, err error) {
	for range maxEmpty {
		if n, err = r.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// seal makes n bytes that were read at a place in the buffer part of it.
func (a *answer) seal(at, n int) {
	a.held += int64(n)
	switch {
	case n == 0:
	case a.mode != chunked:
		a.buf = a.buf[:at+n]
	default:
		data := a.buf[at : at+n]
		a.buf = append(strconv.AppendInt(a.buf, int64(n), 16), "\r\n"...)
		a.buf = append(append(a.buf, data...), "\r\n"...) // data may move a few bytes down
	}
}

// end appends the last chunk and the trailers.
func (a *answer) end() {
	b := append(a.buf, "0\r\n"...)
	if a.res.Trailers != nil {
		b = appendFields(b, a.res.Trailers())
	}
	a.buf = append(b, "\r\n"...)
}

// flush writes what has gathered.
func (a *answer) flush() error {
	if len(a.buf) == 0 {
		return nil
	}
	n, err := a.conn.out.write(a.buf, a.idle)
	if err != nil {
		a.sent += max(0, int64(n)-(int64(len(a.buf))-a.held))
		a.conn.cancel()
		return err
	}
	a.sent += a.held
	a.held, a.buf = 0, a.space()
	return nil
}

// flushFull is flush because the buffer is full: a larger one pays.
func (a *answer) flushFull() error {
	err := a.flush()
	if a.large == nil {
		a.large = largeBuffers.Get().(*[largeWrite]byte)
		a.buf = a.space()
	}
	return err
}

// free gives the buffers back.
func (a *answer) free() {
	if a.small != nil {
		smallBuffers.Put(a.small)
	}
	if a.large != nil {
		largeBuffers.Put(a.large)
	}
}
