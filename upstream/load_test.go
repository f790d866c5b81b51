package upstream

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
)

// The pool fits the load: as many connections as there are attempts at once.
func TestCase_RS_03_PoolFitsLoad(t *testing.T) {
	const workers, each = 50, 60
	var served atomic.Int64
	s := newScript(t, func(p *peer) {
		for p.request() != "" {
			if served.Add(1)%10 == 0 {
				p.say("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy")
				continue
			}
			p.say(ok)
		}
	})
	c := client(t, Config{})
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				a := attempt(s.target(), "POST", "/", text("b"))
				a.Unsafe = i%2 == 0
				mustFetch(t, c, a)
			}
		})
	}
	wg.Wait()
	if n := s.conns(); n > workers {
		t.Errorf("connections = %d, want at most %d", n, workers)
	}
	if n := s.requests(); n != workers*each {
		t.Errorf("requests on the wire = %d, want %d", n, workers*each)
	}
}

// Answers that nobody reads to the end cost their connection and nothing else;
// TestMain looks for what is left.
func TestCase_RS_01_DroppedAnswers(t *testing.T) {
	long := fmt.Sprintf("HTTP/1.1 503 Busy\r\nContent-Length: %d\r\n\r\n", 20*len(big))
	for range 20 {
		long += big
	}
	s := newScript(t, always(long))
	c := client(t, Config{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 10 {
				r := c.Send(t.Context(), attempt(s.target(), "GET", "/", nil))
				if r.Response == nil {
					t.Errorf("Send = %+v", r.Outcome)
					return
				}
				_, _ = io.CopyN(io.Discard, r.Response.Body, 100)
				_ = r.Response.Body.Close()
			}
		})
	}
	wg.Wait()
	if open, idle := c.Stats(); open != 0 || idle != 0 || len(c.pool.hosts) != 0 {
		t.Errorf("Stats = %d, %d, hosts %d; want none", open, idle, len(c.pool.hosts))
	}
}

func TestSystemResolver(t *testing.T) {
	s := newScript(t, always(ok))
	target := s.target()
	target.Host = "localhost"
	mustFetch(t, client(t, Config{}), attempt(target, "GET", "/", nil))
}
