package main

import (
	"io"
	"sync"
	"testing"
	"time"
)

// A name whose resolution hangs holds CONNECT no longer than any connecting may
// take, and no client that does not wait for it.
func TestConnectToANameThatHangs(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		r.hangs = "u1.test"
		began := time.Now()
		c, in, got := r.connect("u1.test:443")
		defer c.Close()
		r.want(got, 200, nil, 0)
		r.between("time until CONNECT was answered", time.Since(began), time.Second, time.Second)
		c.Close()
		_, _ = io.Copy(io.Discard, in)

		leaves := r.dial()
		io.WriteString(leaves, "CONNECT u1.test:443 HTTP/1.1\r\nHost: u1.test:443\r\n\r\n")
		rest(300 * time.Millisecond)
		leaves.Close()
		rest(0)
		call := r.last()
		if n := len(r.ended()); n != 2 || call.Mode != "connect" || call.Reason != "client_gone" || call.Result != "cancelled" {
			t.Errorf("%d calls have ended, the last as %s %s; want two, the last client_gone, cancelled", n, call.Reason, call.Result)
		}
		r.wantDials(0)
		r.wantLeaves(0)
	}, opening(ca, "[u1.test]")...)
}

// Clients that say nothing in their tunnels hold nobody else up, and are let go.
func TestSilentTunnelsHoldNobodyUp(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		began := time.Now()
		var group sync.WaitGroup
		for range 300 { // of 100 that may be in flight
			c, in, got := r.connect("u1.test:443")
			r.want(got, 200, nil, 0)
			group.Go(func() {
				defer c.Close()
				if _, err := in.ReadByte(); err != io.EOF {
					t.Errorf("the end of a silent tunnel: %v, want io.EOF", err)
				}
			})
		}
		r.want(r.secretly("GET", "https://u1.test/x", ""), 200, u, 1)
		r.want(r.get("https://u1.test/x"), 200, u, 2)
		r.between("time of calls beside them", time.Since(began), 0, 0)
		group.Wait()
		r.between("silent tunnels", time.Since(began), 10*time.Second, 10*time.Second)
	}, opening(ca, "[u1.test]")...)
}
