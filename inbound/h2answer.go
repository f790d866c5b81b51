package inbound

import (
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"retryproxy/message"
)

// h2Held is how much of an answer net/http holds back until it is flushed.
const h2Held = 4 << 10

// h2answer is one answer on its way out on a stream.
type h2answer struct {
	stream *h2stream
	res    *message.Response
	idle   time.Duration
	mode   mode
	left   int64 // of a sized content
	sent   int64 // bytes of content written
	held   int64 // bytes not flushed since
}

// interim writes a 1xx head unless the answer has begun.
func (t *h2stream) interim(status int, fields message.Fields) error {
	if t.answered.Load() {
		return ErrAnswered
	}
	h := t.w.Header()
	t.out.begin(controlIdle, t.cutWrite)
	if t.call.Length != 0 && !t.reading.Load() { // after another 1xx net/http sends no 100 any more
		t.w.WriteHeader(100)
	}
	putFields(h, fields, "")
	t.w.WriteHeader(status)
	cut := t.out.end()
	clear(h)
	if cut || t.r.Context().Err() != nil {
		return fmt.Errorf("%w: the stream is closed", ErrClient)
	}
	return nil
}

func (t *h2stream) answer(c *Call, r *message.Response, idle time.Duration) (int64, error) {
	defer func() { _ = r.Body.Close() }()
	if t.answered.Swap(true) {
		return 0, ErrAnswered
	}
	if r.Status < 200 || r.Status > 999 {
		t.finish(true)
		return 0, badStatus(r.Status)
	}
	if idle > 0 {
		t.h2.patience.Store(int64(idle))
	}
	a := h2answer{stream: t, res: r, idle: idle, left: r.Length}
	a.begin(c)
	err := a.send()
	t.finish(err != nil)
	return a.sent, err
}

// begin sets the head. Nothing is left for net/http to add.
func (a *h2answer) begin(c *Call) {
	r, h := a.res, a.stream.w.Header()
	a.mode = chunked
	switch {
	case c.Request.Method == "HEAD" || r.Status == 204 || r.Status == 304:
		a.mode = without
	case r.Length >= 0:
		a.mode = sized
	}
	putFields(h, r.Fields, "")
	if !r.Fields.Has("Date") {
		h["Date"] = []string{httpDate(time.Now())}
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // not to be guessed
	}
	if r.Length >= 0 && r.Status != 204 && r.Status != 304 { // of a 304, clients of net/http wait for it
		h["Content-Length"] = []string{strconv.FormatInt(r.Length, 10)}
	}
	if !c.KeepAlive {
		h["Connection"] = []string{"close"} // net/http makes it GOAWAY
	}
	a.stream.w.WriteHeader(r.Status)
	clear(h) // what is set from now on are trailers
}

// send writes content and trailers. The end of the stream comes after it.
func (a *h2answer) send() error {
	if a.mode != without && a.left != 0 {
		if err := a.copy(); err != nil {
			return err
		}
	}
	if a.mode == chunked { // else net/http would declare the length of a small content
		if err := a.flush(); err != nil {
			return err
		}
	}
	if a.mode != without && a.res.Trailers != nil {
		putFields(a.stream.w.Header(), a.res.Trailers(), http.TrailerPrefix)
	}
	if a.held > 0 && a.idle > 0 { // the rest goes with the end of the stream
		_ = http.NewResponseController(a.stream.w).SetWriteDeadline(time.Now().Add(a.idle))
	}
	return nil
}

// copy moves the content.
func (a *h2answer) copy() error {
	more, tells := a.res.Body.(buffered)
	if tells && more.Buffered() == 0 || !tells && a.mode == chunked {
		if err := a.flush(); err != nil {
			return err
		}
	}
	room := largeBuffers.Get().(*[largeWrite]byte)
	defer largeBuffers.Put(room)
	for {
		end, err := a.pass(room[:])
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

// pass moves one piece of the content.
func (a *h2answer) pass(p []byte) (end bool, err error) {
	if a.mode == sized {
		p = p[:min(int64(len(p)), a.left)]
	}
	n, err := readSome(a.res.Body, p)
	if n > 0 {
		if err := a.write(p[:n]); err != nil {
			return false, err
		}
	}
	return a.mode.ends(&a.left, n, err)
}

func (a *h2answer) write(p []byte) (err error) {
	t := a.stream
	if a.held += int64(len(p)); a.held <= h2Held {
		_, err = t.w.Write(p) // waits for nobody
	} else {
		a.held %= h2Held // at most as much is still held
		t.out.begin(a.idle, t.cutWrite)
		_, err = t.w.Write(p)
		err = a.check(err)
	}
	if err == nil {
		a.sent += int64(len(p))
	}
	return err
}

func (a *h2answer) flush() error {
	t := a.stream
	t.out.begin(a.idle, t.cutWrite)
	err := http.NewResponseController(t.w).Flush()
	if err = a.check(err); err == nil {
		a.held = 0
	}
	return err
}

// check ends a step of writing; its errors are the client's.
func (a *h2answer) check(err error) error {
	switch cut := a.stream.out.end(); {
	case cut:
		return fmt.Errorf("%w: nothing for %v", ErrClient, a.idle)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrClient, err)
	}
	return nil
}

// cutWrite resets the stream, which ends a write in progress.
func (t *h2stream) cutWrite() {
	_ = http.NewResponseController(t.w).SetWriteDeadline(past)
}

// putFields sets the fields that may stand on HTTP/2 (RFC 9113 section 8.2.2).
func putFields(h http.Header, fields message.Fields, prefix string) {
	for i := range fields {
		if name := fields[i].Name; !ownField(name) && !ofConnection(name) {
			name = prefix + textproto.CanonicalMIMEHeaderKey(name)
			h[name] = append(h[name], clean(fields[i].Value))
		}
	}
}

// ofConnection names the fields of answers that say something about the
// connection of HTTP/1.1, besides those of ownField.
func ofConnection(name string) bool {
	switch len(name) {
	case len("Upgrade"):
		return strings.EqualFold(name, "Upgrade")
	case len("Keep-Alive"):
		return strings.EqualFold(name, "Keep-Alive")
	case len("Proxy-Connection"):
		return strings.EqualFold(name, "Proxy-Connection")
	}
	return false
}

// clean is appendClean for one value: net/http would leave the whole field out.
func clean(s string) string {
	if strings.ContainsAny(s, "\r\n\x00") {
		return string(appendClean(nil, s))
	}
	return s
}

// fieldNames are the names in a map of fields, in order.
func fieldNames(h http.Header) []string { return slices.Sorted(maps.Keys(h)) }
