package upstream

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"retryproxy/classify"
	"retryproxy/message"
)

// respond translates the answer.
func (st *stream) respond(resp *http.Response) Result {
	st.mu.Lock()
	st.answered = true
	st.timer.Stop()
	st.mu.Unlock()
	r := &message.Response{
		Status: resp.StatusCode, Version: "2.0", Fields: fieldsOf(resp.Header),
		Length: resp.ContentLength,
	}
	r.Body = &h2Body{st: st, resp: resp, idle: bodyIdle(st.a, r.Fields)}
	if len(resp.Trailer) > 0 {
		r.Fields.Add("Trailer", strings.Join(slices.Sorted(maps.Keys(resp.Trailer)), ", "))
	}
	r.Trailers = func() message.Fields { return fieldsOf(resp.Trailer) }
	phase := classify.PhaseBody
	bodyless := contentless(st.a.Request.Method, r.Status)
	if bodyless && resp.Header["Content-Length"] == nil {
		r.Length = -1 // net/http says 0
	}
	if bodyless || r.Length == 0 {
		phase = classify.PhaseDone
		_ = r.Body.Close()
		r.Body = noBody{}
	}
	return st.result(Result{Response: r, Outcome: classify.Outcome{Phase: phase, Status: resp.StatusCode}})
}

// fieldsOf sorts by name: net/http lost the order of different names.
func fieldsOf(h http.Header) message.Fields {
	f := make(message.Fields, 0, len(h)+1)
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			if !ownField(name) {
				f.Add(name, value)
			}
		}
	}
	return f
}

// h2Body is the content of an answer on a session.
type h2Body struct {
	st   *stream
	resp *http.Response
	idle time.Duration
	err  error // sticky
}

func (b *h2Body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	b.st.limit(earlier(b.idle, time.Time{}), true)
	n, err := b.resp.Body.Read(p)
	b.st.limit(time.Time{}, true)
	if err == nil {
		return n, nil
	}
	b.err = err
	if err != io.EOF {
		b.err = b.st.bodyError(err)
	}
	b.leave()
	return n, b.err
}

// bodyError makes the error of Read, judged by the frames.
func (st *stream) bodyError(err error) error {
	switch {
	case st.parent.Err() != nil:
		return st.parent.Err()
	case st.expired.Load():
		return fmt.Errorf("%w (%s)", ErrIdle, st.s.remote)
	}
	if seen := st.seen.Load(); seen != nil {
		if v := st.s.tap.verdict(seen); v.reset || v.lost {
			return fmt.Errorf("%s: %w", st.s.remote, err)
		}
	}
	return fmt.Errorf("%w (%s)", ErrTruncated, st.s.remote)
}

// leave closes what is left of the stream. net/http resets it if need be.
func (b *h2Body) leave() {
	_ = b.resp.Body.Close()
	b.st.end(false)
}

func (b *h2Body) Close() error {
	b.leave()
	if b.err == nil {
		b.err = ErrClosed
	}
	return nil
}
