package upstream

import (
	"context"
	"io"
	"strings"
	"time"

	"retryproxy/classify"
	"retryproxy/message"
)

// lastWords is how long we listen for an answer after a write has failed: an
// early one was sent before, so it is there or on its way.
const lastWords = 250 * time.Millisecond

// exchange is one request and its answer on an HTTP/1.1 connection. It lives on
// the stack of Send.
type exchange struct {
	cn      *conn
	a       *Attempt
	up      *upload // nil: the request went out in one write
	sent    int64
	phase   classify.Phase
	reused  bool
	refused error // the write failed; an answer may have come all the same
	got     int   // header bytes used so far, interim answers included
}

// exchange sends a on the connection and reads the header of the answer.
func (cn *conn) exchange(ctx context.Context, a *Attempt) Result {
	x := exchange{cn: cn, a: a, phase: classify.PhaseReady, reused: cn.used}
	cn.begin(ctx)
	if fault, err := x.request(); fault != classify.FaultNone {
		return x.fail(fault, err)
	}
	return x.answer()
}

// result adds what is known of the connection.
func (x *exchange) result(r Result) Result {
	r.Reused, r.Remote, r.Sent = x.reused, x.cn.remote, x.sent
	if x.up != nil {
		r.Sent = x.up.sent.Load()
	}
	return r
}

// fail ends the exchange and its connection. A failed write explains what the
// reading side saw, unless that was an answer.
func (x *exchange) fail(fault classify.Fault, err error) Result {
	answered := fault == classify.FaultMalformed
	if x.up != nil {
		if f, why := x.up.halt(); f != classify.FaultNone && !answered {
			fault, err = f, why
		}
		if x.sent = x.up.sent.Load(); x.sent == 0 {
			x.phase = classify.PhaseReady
		}
	}
	if x.refused != nil && !answered {
		fault, err = writeFault(x.refused), x.refused
	}
	if x.cn.ctx.Err() != nil && fault != classify.FaultBody {
		fault, err = classify.FaultCancelled, x.cn.ctx.Err()
	}
	if x.phase == classify.PhaseReady && outOfResources(err) {
		x.phase, fault = classify.PhaseNone, classify.FaultLocal
	}
	fault = x.a.Target.blame(x.phase, fault)
	x.cn.broken = true
	x.cn.release(false)
	why := detail(x.cn.at(), err)
	if fault == classify.FaultBody {
		why = contentDetail(err)
	}
	return x.result(failure(x.phase, fault, why))
}

// request writes head and content, in one write if they fit in one buffer.
func (x *exchange) request() (classify.Fault, error) {
	f, length := framingOf(x.a.Request)
	buf := writeBuffers.Get().(*[writeSize]byte)
	b := appendHead(buf[:0], x.a, f, length)
	var src io.ReadCloser
	if length != 0 && f != noContent {
		var err error
		if src, err = x.a.Request.Body.Open(); err != nil {
			writeBuffers.Put(buf)
			return classify.FaultBody, err
		}
		if f == chunkwise || length > int64(writeSize-len(b)) {
			return x.startUpload(buf, b, src, length)
		}
	}
	defer writeBuffers.Put(buf)
	if src != nil {
		n := len(b)
		b = b[:n+int(length)]
		if err := readAll(src, b[n:]); err != nil {
			return classify.FaultBody, err
		}
	}
	return x.write(b)
}

// readAll fills p from src and closes that.
func readAll(src io.ReadCloser, p []byte) error {
	_, err := io.ReadFull(src, p)
	if closed := src.Close(); err == nil {
		err = closed
	}
	return err
}

// write sends a whole request.
func (x *exchange) write(b []byte) (classify.Fault, error) {
	if err := x.cn.writeBy(earlier(x.a.BodyIdle, x.a.Deadline)); err != nil {
		return writeFault(err), err
	}
	n, err := x.cn.nc.Write(b)
	x.sent = int64(n)
	if n > 0 {
		x.phase = classify.PhaseSent
	}
	if err != nil && n == 0 {
		return writeFault(err), err
	}
	by := earlier(x.a.HeaderTimeout, x.a.Deadline)
	if err != nil {
		x.refused = err
		by = time.Now().Add(lastWords)
	}
	if err := x.cn.readBy(by); err != nil {
		return writeFault(err), err
	}
	return classify.FaultNone, nil
}

// startUpload leaves the request to a goroutine; the time for the header starts
// when it has finished.
func (x *exchange) startUpload(buf *[writeSize]byte, b []byte, src io.ReadCloser, length int64) (classify.Fault, error) {
	if err := x.cn.readBy(x.a.Deadline); err != nil {
		writeBuffers.Put(buf)
		_ = src.Close()
		return writeFault(err), err
	}
	x.up = newUpload(x.cn, x.a, src, length)
	x.phase = classify.PhaseSent // fail takes it back if nothing was written
	go x.up.run(buf, b)
	return classify.FaultNone, nil
}

// answer reads up to the final answer's header.
func (x *exchange) answer() Result {
	for {
		h, early, err := x.header()
		if err != nil {
			return x.fail(readFault(err), err)
		}
		switch {
		case h.status == 101 && x.a.Request.Fields.Has("Upgrade"):
			return x.upgrade(&h)
		case h.status == 101:
			return x.fail(classify.FaultMalformed, malformed("101 without an upgrade"))
		case h.status >= 200:
			return x.respond(&h, early)
		case h.status != 100 && x.a.Interim != nil:
			x.a.Interim(h.status, h.fields)
		}
	}
}

// withHead is how much content may share an allocation with the header: most
// answers of an API are complete in it.
const withHead = 2 << 10

// header reads one header. early is the content that came with it and was
// copied along; it is still in the buffer too.
func (x *exchange) header() (h head, early string, err error) {
	in := &x.cn.in
	limit := x.cn.client.headerBytes
	from, lines, end := 0, 0, 0
	for {
		if !in.empty() {
			x.phase = classify.PhaseHeader
			if end, from, lines = headEnd(in.unread(), from, lines); end > 0 {
				break
			}
		}
		if len(in.unread()) > limit-x.got || !plausible(in.unread()) {
			return h, "", malformed("not a header, or too long")
		}
		if err := x.cn.fill(limit); err == errFull {
			return h, "", malformed("the header is too long")
		} else if err != nil {
			return h, "", err
		}
	}
	if x.got += end; x.got > limit || !plausible(in.unread()) {
		return h, "", malformed("not a header, or too long")
	}
	s := string(in.unread()[:min(len(in.unread()), end+withHead)])
	in.skip(end)
	h, err = parseHead(s[:end], lines)
	return h, s[end:], err
}

// respond makes the Response. An answer that is complete already gives its
// connection back before anybody reads it.
func (x *exchange) respond(h *head, early string) Result {
	out := &answered{resp: message.Response{
		Status: h.status, Reason: h.reason, Version: h.version, Fields: h.fields, Length: h.length,
	}}
	b := &out.body
	out.resp.Body = b
	x.frame(h, b)
	if b.chunked {
		out.resp.Trailers = b.trailers
	}
	x.settleUpload(h.status, b)
	phase := classify.PhaseBody
	if x.up == nil && b.isHere() {
		b.complete(early)
		phase = classify.PhaseDone
	} else if x.cn.idle = bodyIdle(x.a, h.fields); x.cn.idle == 0 {
		_ = x.cn.readBy(noDeadline) // if that fails, so does the next read
	}
	return x.result(Result{Response: &out.resp, Outcome: classify.Outcome{Phase: phase, Status: h.status}})
}

// bodyIdle is how long the content may stand still: an event stream for ever.
func bodyIdle(a *Attempt, f message.Fields) time.Duration {
	const stream = "text/event-stream"
	if v := f.Get("Content-Type"); len(v) >= len(stream) && strings.EqualFold(v[:len(stream)], stream) {
		return 0
	}
	return a.BodyIdle
}

// frame says how the content is delimited and whether the connection can serve
// again after it (RFC 9112 section 6.3).
func (x *exchange) frame(h *head, b *body) {
	b.cn, b.up, b.left = x.cn, x.up, h.length
	b.reuse = h.persist && x.refused == nil
	switch {
	case contentless(x.a.Request.Method, h.status):
		b.left = 0
		if h.status == 204 && (h.length > 0 || h.chunked) {
			b.reuse = false // bytes may follow all the same
		}
	case h.chunked:
		b.chunked, b.chunks.limit = true, x.cn.client.headerBytes
	case h.length < 0:
		b.reuse = false
	}
}

// settleUpload decides about an upload that the final answer has overtaken: a
// refusal ends it (RFC 9112 section 9.5), after a success it goes on.
func (x *exchange) settleUpload(status int, b *body) {
	if x.up == nil {
		return
	}
	if x.up.finished() {
		x.sent = x.up.sent.Load()
		b.reuse = b.reuse && x.up.err == nil
		b.up, x.up = nil, nil
	} else if status >= 300 {
		x.up.cut()
	}
}
