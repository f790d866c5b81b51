package upstream

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
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
	switch {
	case bodyless && resp.Header["Content-Length"] == nil:
		r.Length = -1 // net/http says 0
	case !bodyless && len(resp.Trailer) > 0:
		r.Length = -1 // in HTTP/1.1 trailers pass behind chunks only
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
	st    *stream
	resp  *http.Response
	idle  time.Duration
	hold  time.Time     // a Read that waits pauses then; zero: it does not
	aside chan struct{} // closed when the read that goes on aside is done; nil: there is none
	got   []byte        // what that read
	late  error         // and how it ended
	err   error         // sticky
}

func (b *h2Body) Read(p []byte) (int, error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case b.aside == nil && b.hold.IsZero():
		n, err := b.read(p)
		return n, b.finish(err)
	case !b.wait(len(p)):
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(p, b.got)
	if b.got = b.got[n:]; len(b.got) > 0 {
		return n, nil
	}
	b.aside = nil
	return n, b.finish(b.late)
}

func (b *h2Body) read(p []byte) (int, error) {
	b.st.limit(earlier(b.idle, time.Time{}), true)
	n, err := b.resp.Body.Read(p)
	b.st.limit(time.Time{}, true)
	return n, err
}

// SetReadDeadline makes a Read that waits pause at t with os.ErrDeadlineExceeded;
// the content can be read on afterwards. Zero ends that.
func (b *h2Body) SetReadDeadline(t time.Time) error {
	b.hold = t
	return nil
}

// wait says whether a read of up to n bytes is done before the pause. net/http
// knows no deadline that a stream survives, so it goes on aside.
func (b *h2Body) wait(n int) bool {
	if b.aside == nil {
		b.readAside(n)
	}
	if b.hold.IsZero() {
		<-b.aside
		return true
	}
	timer := time.NewTimer(time.Until(b.hold))
	defer timer.Stop()
	select {
	case <-b.aside:
		return true
	case <-timer.C:
		return false
	}
}

// readAside starts a read that ends with Close at the latest.
func (b *h2Body) readAside(n int) {
	done, buf := make(chan struct{}), make([]byte, n)
	b.aside = done
	go func() {
		defer close(done)
		n, err := b.read(buf)
		b.got, b.late = buf[:n], err
	}()
}

// finish makes an error of reading sticky and parts from the stream.
func (b *h2Body) finish(err error) error {
	if err == nil {
		return nil
	}
	b.err = err
	if err != io.EOF {
		b.err = b.st.bodyError(err)
	}
	b.leave()
	return b.err
}

// bodyError makes the error of Read, judged by the frames.
func (st *stream) bodyError(err error) error {
	switch {
	case st.parent.Err() != nil:
		return worded{st.parent.Err(), detail(st.s.at(), st.parent.Err())}
	case st.expired.Load():
		return fmt.Errorf("%w (%s)", ErrIdle, st.s.at())
	}
	if seen := st.seen.Load(); seen != nil {
		if v := st.s.tap.verdict(seen); v.reset || v.lost {
			return worded{err, st.detail(classify.FaultReset, err)}
		}
	}
	return fmt.Errorf("%w (%s)", ErrTruncated, st.s.at())
}

// leave closes what is left of the stream. net/http resets it if need be.
func (b *h2Body) leave() {
	_ = b.resp.Body.Close()
	b.st.end(false)
}

func (b *h2Body) Close() error {
	b.leave()
	if b.aside != nil {
		<-b.aside
	}
	if b.err == nil {
		b.err = ErrClosed
	}
	return nil
}
