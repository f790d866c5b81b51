package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// A request in a tunnel goes where the tunnel goes: one that names another
// target in its request line, be it absolute or another CONNECT, would pass by
// what was decided about the tunnel. It is refused before anything is dialled.
func TestRequestsInATunnelForAnotherTarget(t *testing.T) {
	for _, text := range []string{
		"GET http://u2.test/x HTTP/1.1\r\nHost: u2.test\r\n\r\n",
		"GET http://u2.test/x HTTP/1.1\r\nHost: u1.test\r\n\r\n",
		"GET http://u1.test:7000/x HTTP/1.1\r\nHost: u1.test:7000\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: u2.test\r\n\r\n",
		"CONNECT u1.test:80 HTTP/1.1\r\nHost: u1.test:80\r\n\r\n",
		"CONNECT u2.test:443 HTTP/1.1\r\nHost: u2.test:443\r\n\r\n",
		"CONNECT u1.test:443 HTTP/1.1\r\nHost: u1.test:443\r\n\r\n",
	} {
		line, _, _ := strings.Cut(text, "\r\n")
		t.Run(line, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u1 := r.upstream("u1.test:80", answer(200, "one"))
				u2 := r.upstream("u2.test:80", answer(200, "two"))
				c, in, got := r.connect("u1.test:80")
				defer c.Close()
				r.want(got, 200, nil, 0)
				dialled := r.dials.Load()
				got = r.inside(c, in, text)
				r.want(got, 400, u1, 0)
				r.want(reply{}, 0, u2, 0)
				r.wantDials(dialled)
				r.wantHeader(got, "X-Retry-Reason", "bad_request")
				r.wantHeader(got, "X-Retry-Executed", "no")
				if !strings.Contains(got.Body, "tunnel") {
					t.Errorf("the answer is %s, want it to name the tunnel", got.Body)
				}
			})
		})
	}
}

// The target of the tunnel itself may be named in full.
func TestAbsoluteRequestForTheTunnelsTarget(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(200, "one"))
		c, in, _ := r.connect("u1.test:80")
		defer c.Close()
		got := r.inside(c, in, "GET http://U1.test/x HTTP/1.1\r\nHost: U1.test\r\n\r\n")
		r.want(got, 200, u, 2)
		r.wantBody(got, "one")
	})
}

// An answer for HTTP/1.0 ends with its connection, so that a clean end would
// make a truncated one look whole: it is broken with a reset, in a tunnel too.
func TestTruncationIsVisibleWithoutALength(t *testing.T) {
	for _, tunnel := range []bool{false, true} {
		t.Run(fmt.Sprintf("tunnel %v", tunnel), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.upstream("u1.test:80", breaking("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"))
				c, text := r.dial(), "GET http://u1.test/ HTTP/1.0\r\nHost: u1.test\r\n\r\n"
				defer c.Close()
				var in io.Reader = c
				if tunnel {
					_, in, _ = r.connectOn(c, "u1.test:80")
					text = "GET / HTTP/1.0\r\nHost: u1.test\r\n\r\n"
				}
				io.WriteString(c, text)
				all, err := io.ReadAll(in)
				if err == nil || !strings.Contains(string(all), "hello") {
					t.Errorf("read %q, %v; want the part that came, and a visible break", all, err)
				}
				call := r.ended()[0] // the tunnel itself ends behind it
				if call.Result != "failed" || call.Attempts[0].Verdict.Reason != "truncated" {
					t.Errorf("the call ended as %s, %s; want failed, truncated", call.Result, call.Attempts[0].Verdict.Reason)
				}
			})
		})
	}
}
