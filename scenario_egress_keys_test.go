package main

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A platform that may have executed a call sees its repetition from the same
// address, though the shop's own works again.
func TestRepeatedKeyLeavesByTheSameAddress(t *testing.T) {
	egressed(t, pool("next"), func(r *rig) {
		u := r.upstream("u1.test:80", hangUp, hangUp, hangUp, whence)
		m := r.members("s1")
		m[0].down()
		got := r.post("http://u1.test/order", "{}", shop("s1"), keyed)
		r.want(got, 502, u, 3)
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		m[0].up()
		rest(10 * time.Minute)
		r.wantBody(r.get("http://u1.test/", shop("s1")), m[0].ip()) // what has no such past goes by the own
		got = r.post("http://u1.test/order", "{}", shop("s1"), keyed)
		r.want(got, 200, u, 5)
		r.wantBody(got, m[1].ip())
		for _, a := range r.last().Attempts {
			if a.Egress != m[1].name() {
				t.Errorf("attempt by %s, want all by %s", a.Egress, m[1].name())
			}
		}
		r.wantBody(r.post("http://u1.test/order", "{}", shop("s1"), "X-Idempotency-Key: another"), m[0].ip())
	})
}

// A call of which nothing was sent has no address to keep.
func TestRepeatedKeyOfACallThatWasNotSent(t *testing.T) {
	egressed(t, pool("next"), func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		m := r.members("s1")
		for _, e := range m {
			e.down()
		}
		got := r.post("http://u1.test/order", "{}", shop("s1"), keyed, "X-Retry-Count: 2") // two attempts
		r.want(got, 502, u, 0)
		r.wantHeader(got, "X-Retry-Executed", "no")
		if by := r.last().Attempts; len(by) != 2 || by[1].Egress != m[1].name() {
			t.Errorf("attempts = %+v, want the last by %s", by, m[1].name())
		}
		for _, e := range m {
			e.up()
		}
		got = r.post("http://u1.test/order", "{}", shop("s1"), keyed)
		r.want(got, 200, u, 1)
		r.wantBody(got, m[0].ip())
	})
}

// forward is a listener whose connections say an answer of their own behind the
// exit's 200, as long as on is set.
type forward struct {
	net.Listener
	on *atomic.Bool
}

func (l *forward) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &forwardConn{c, l.on}, err
}

type forwardConn struct {
	net.Conn
	on *atomic.Bool
}

func (c *forwardConn) Write(p []byte) (int, error) {
	if !c.on.Load() || !strings.HasPrefix(string(p), "HTTP/1.1 200 Connection") {
		return c.Conn.Write(p)
	}
	_, err := c.Conn.Write([]byte(string(p) + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nEARLY"))
	return len(p), err
}

// What an exit says behind its 200 is no answer of the upstream: nobody gets it,
// and no key holds it.
func TestEarlyBytesOfAnEgressAreNoAnswer(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "done"))
		var on atomic.Bool
		on.Store(true)
		r.exit("10.0.0.1:3128", func(e *exit) {
			e.wrap = func(l net.Listener) net.Listener { return &forward{l, &on} }
		})
		got := r.post("http://u1.test/order", "{}", shop("s1"), keyed)
		r.want(got, 502, u, 0)
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "repeat")
		r.wantEnd("failed", "attempts_exhausted", 4)
		for n := 1; n <= 4; n++ {
			r.wantVerdict(n, "transient", "egress_failed")
		}
		if !strings.Contains(got.Body, exitA) || strings.Contains(got.Body, "EARLY") {
			t.Errorf("the answer is %s, want the egress named", got.Body)
		}
		on.Store(false)
		got = r.post("http://u1.test/order", "{}", shop("s1"), keyed)
		r.want(got, 200, u, 1)
		r.wantBody(got, "done")
		r.wantHeader(got, "Idempotency-Replayed", "")
	})
}
