package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/classify"
	"retryproxy/message"
)

// stream is one attempt on a session, until its answer's body is closed.
type stream struct {
	s       *session
	a       *Attempt
	parent  context.Context
	ctx     context.Context // of the request: ends with parent, or when time runs out
	cancel  context.CancelFunc
	began   time.Time
	content *content // nil: the request has none
	reused  bool

	expired atomic.Bool // timer has ended ctx
	sent    atomic.Int64
	seen    atomic.Pointer[seen] // once HEADERS were written

	mu       sync.Mutex
	timer    *time.Timer // the one limit that counts now
	answered bool        // only the reader of the body sets the timer
	over     sync.Once
}

func newStream(ctx context.Context, s *session, a *Attempt) *stream {
	st := &stream{s: s, a: a, parent: ctx, began: time.Now()}
	st.ctx, st.cancel = context.WithCancel(ctx)
	st.timer = time.AfterFunc(time.Hour, st.expire)
	st.timer.Stop()
	st.reused = s.used.Swap(true)
	return st
}

func (st *stream) expire() {
	st.expired.Store(true)
	st.cancel()
}

// limit lets the timer run until t; the zero time stops it.
func (st *stream) limit(t time.Time, answered bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.answered && !answered: // the upload goes on after the answer
	case t.IsZero():
		st.timer.Stop()
	default:
		st.timer.Reset(time.Until(t))
	}
}

// request translates. Nothing is added to it: net/http would send a User-Agent.
func (st *stream) request() (*http.Request, error) {
	r := st.a.Request
	authority := r.Authority
	if authority == "" {
		authority = st.a.Target.authority()
	}
	scheme := "https"
	if st.a.Target.Scheme == "h2c" {
		scheme = "http"
	}
	req := &http.Request{
		Method: r.Method, Host: authority, Header: h2Fields(r.Fields),
		URL: &url.URL{Scheme: scheme, Host: authority, Opaque: opaque(authority, r.Target)},
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header["User-Agent"] = nil
	}
	if err := st.attach(req); err != nil {
		return nil, err
	}
	return req.WithContext(httptrace.WithClientTrace(st.ctx, st.trace())), nil
}

// opaque makes net/http send target byte for byte. One that starts with two
// slashes it would take for an authority.
func opaque(authority, target string) string {
	if strings.HasPrefix(target, "//") {
		return "//" + authority + target
	}
	return target
}

// h2Fields leaves out what belongs to an HTTP/1.1 connection (RFC 9113 section
// 8.2.2).
func h2Fields(fields message.Fields) http.Header {
	h := make(http.Header, len(fields)+1)
	for i := range fields {
		name := textproto.CanonicalMIMEHeaderKey(fields[i].Name)
		switch name {
		case "Connection", "Proxy-Connection", "Keep-Alive", "Upgrade", "Transfer-Encoding", "Host", "Content-Length":
			continue
		case "Te":
			if !strings.EqualFold(fields[i].Value, "trailers") {
				continue
			}
		}
		h[name] = append(h[name], fields[i].Value)
	}
	return h
}

// attach adds the content.
func (st *stream) attach(req *http.Request) error {
	f, length := framingOf(st.a.Request)
	if f == noContent || length == 0 {
		return nil
	}
	src, err := st.a.Request.Body.Open()
	if err != nil {
		return err
	}
	st.content = &content{st: st, src: src}
	req.Body, req.ContentLength = st.content, length
	if f == chunkwise {
		req.Trailer = http.Header{} // filled at the end of the content
		st.content.end = func() { addTrailers(req.Trailer, st.a.Request.Body.Trailers()) }
	}
	return nil
}

func addTrailers(h http.Header, fields message.Fields) {
	if writable(fields) {
		for name, values := range h2Fields(fields) {
			h[name] = values
		}
	}
}

// trace gets told what net/http does.
func (st *stream) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		WroteHeaders: func() {
			if seen := st.s.tap.claim(); seen != nil {
				st.seen.Store(seen)
				st.sent.Add(seen.bytes)
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				st.limit(earlier(st.a.HeaderTimeout, st.a.Deadline), false)
			}
		},
	}
}

// interims bounds the 1xx of one answer.
const interims = 32

var errInterims = errors.New("too many interim answers")

type interim struct {
	status int
	fields message.Fields
}

// roundTrip waits for the header of the answer. Interim answers are handed to
// this goroutine: the one that reads frames must not wait for a client.
func (st *stream) roundTrip(req *http.Request) (resp *http.Response, err error) {
	st.limit(st.a.Deadline, false)
	if st.a.Interim == nil {
		return st.s.cc.RoundTrip(req)
	}
	early := make(chan interim, interims)
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		select {
		case early <- interim{code, fieldsOf(http.Header(h))}:
			return nil
		default:
			return errInterims
		}
	}}
	go func() {
		defer close(early)
		resp, err = st.s.cc.RoundTrip( //nolint:bodyclose // respond or the caller closes it
			req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	}()
	for i := range early {
		if i.status != 100 {
			st.a.Interim(i.status, i.fields)
		}
	}
	return resp, err
}

func (st *stream) result(r Result) Result {
	r.Reused, r.Remote, r.Sent = st.reused, st.s.remote, st.sent.Load()
	return r
}

// end parts from the session, once.
func (st *stream) end(retire bool) {
	st.over.Do(func() {
		st.mu.Lock()
		st.answered = true
		st.timer.Stop()
		st.mu.Unlock()
		st.cancel()
		if st.content != nil {
			_ = st.content.Close()
		}
		if seen := st.seen.Load(); seen != nil {
			st.s.tap.forget(seen)
		}
		st.s.client.pool.leave(st.s, retire)
	})
}

// fail judges a stream without an answer, by the frames that passed.
func (st *stream) fail(err error) (res Result, begun bool) {
	seen := st.seen.Load()
	begun = true
	phase, fault := classify.PhaseReady, classify.FaultReset
	switch {
	case st.content != nil && st.content.failed() != nil:
		fault, err = classify.FaultBody, st.content.failed()
	case st.parent.Err() != nil:
		fault, err = classify.FaultCancelled, st.parent.Err()
	case st.expired.Load():
		fault, err = classify.FaultTimeout, os.ErrDeadlineExceeded
	case seen == nil && st.s.cc.Err() == nil && st.s.cc.Available() > 0:
		// The session is fine, so it is the request that cannot be sent.
		phase, fault = classify.PhaseNone, classify.FaultBadTarget
	case seen == nil:
		begun = false
	}
	if seen == nil && st.ctx.Err() != nil {
		phase = classify.PhaseSent // net/http may have been about to write
	}
	if seen == nil && fault == classify.FaultReset && st.s.tap.leaving() {
		fault = classify.FaultGoaway
	}
	retire := !begun
	if seen != nil {
		v := st.s.tap.verdict(seen)
		phase = v.phase()
		if fault == classify.FaultReset {
			fault = v.fault()
		}
		// A peer that says nothing at all may be gone without a trace.
		retire = v.lost || fault == classify.FaultTimeout && st.s.tap.silentSince(st.began)
	}
	fault = st.a.Target.blame(phase, fault)
	st.end(retire)
	return st.result(failure(phase, fault, st.detail(fault, err))), begun
}

func (v verdict) phase() classify.Phase {
	switch {
	case v.unsent:
		return classify.PhaseReady
	case v.answered:
		return classify.PhaseHeader
	}
	return classify.PhaseSent
}

func (v verdict) fault() classify.Fault {
	switch {
	case v.reset && v.code == refusedStream:
		return classify.FaultRefusedStream
	case v.goaway:
		return classify.FaultGoaway
	case v.answered && !v.reset && !v.lost:
		return classify.FaultMalformed // net/http did not like what it got
	}
	return classify.FaultReset
}

// content is the request's, as net/http reads it.
type content struct {
	st  *stream
	end func() // called at io.EOF; nil: nothing to do

	mu     sync.Mutex // held while src is read, so that Close waits
	src    io.ReadCloser
	closed bool
	err    error
}

// Read stops the clock while the client's content is waited for, and starts it
// for the upstream to take what was read.
func (c *content) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, ErrClosed
	}
	c.st.limit(c.st.a.Deadline, false)
	n, err := c.src.Read(p)
	c.st.sent.Add(int64(n))
	switch {
	case err == io.EOF && c.end != nil:
		c.end()
	case err != nil && err != io.EOF:
		c.err = err
	}
	c.st.limit(earlier(c.st.a.BodyIdle, c.st.a.Deadline), false)
	return n, err
}

func (c *content) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return c.src.Close()
}

// failed is the error of the client's content.
func (c *content) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
