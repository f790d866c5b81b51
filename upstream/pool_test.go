package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/classify"
	"retryproxy/internal/memnet"
)

// What closed or spoke while idle is dropped without a word.
func TestIdleConnectionEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*peer)
	}{
		{"closed", func(*peer) {}},
		{"reset", (*peer).reset},
		{"408", func(p *peer) {
			p.say("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n")
			p.hold()
		}},
	} {
		for _, unsafe := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, unsafe=%v", tt.name, unsafe), func(t *testing.T) {
				ended := make(chan struct{})
				s := newScript(t, func(p *peer) {
					p.request()
					p.say(ok)
					defer close(ended)
					if tt.name != "408" {
						tt.end(p)
						_ = p.Close()
						return
					}
					p.say("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n")
				}, always(ok))
				c := client(t, Config{})
				mustFetch(t, c, attempt(s.target(), "GET", "/1", nil))
				<-ended
				a := attempt(s.target(), "POST", "/2", text("b"))
				a.Unsafe = unsafe
				if r, _ := mustFetch(t, c, a); r.Reused {
					t.Errorf("a dead connection was used")
				}
				if n := s.requests(); n != 2 {
					t.Errorf("requests on the wire = %d, want 2", n)
				}
			})
		}
	}
}

func TestUnsafeWantsFreshConnection(t *testing.T) {
	for _, tt := range []struct {
		name   string
		idle   time.Duration
		unsafe bool
		reused bool
	}{
		{"safe, idle long", 30 * time.Second, false, true},
		{"unsafe, idle for a moment", 900 * time.Millisecond, true, true},
		{"unsafe, idle for a second", time.Second, true, false},
		{"safe, idle too long", time.Minute, false, false},
	} {
		s := newScript(t, always(ok))
		c := client(t, Config{})
		mustFetch(t, c, attempt(s.target(), "GET", "/", nil))
		c.pool.mu.Lock()
		c.pool.list.next.since = time.Now().Add(-tt.idle)
		c.pool.mu.Unlock()
		a := attempt(s.target(), "POST", "/", text("b"))
		a.Unsafe = tt.unsafe
		if r, _ := mustFetch(t, c, a); r.Reused != tt.reused {
			t.Errorf("%s: reused = %v, want %v", tt.name, r.Reused, tt.reused)
		}
	}
}

// hosts starts n memnet hosts that answer.
func hosts(t *testing.T, net *memnet.Network, n int) (targets []Target) {
	for range n {
		l, err := net.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, newScriptOn(t, l, always(ok)).target())
	}
	return targets
}

// memScript is a script in an in-memory network, and a client for it.
func memScript(t *testing.T, plays ...func(*peer)) (*script, *Client) {
	net := memnet.New()
	l, err := net.Listen("127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	return newScriptOn(t, l, plays...), client(t, Config{Dial: memDial(net)})
}

// Connections that cannot be looked at serve safe attempts only.
func TestUnknownStateIsFreshForUnsafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New()
		c := client(t, Config{Dial: memDial(net)})
		a := attempt(hosts(t, net, 1)[0], "GET", "/", nil)
		for i, want := range []bool{false, true, false} {
			a.Unsafe = i == 2
			if r, _ := mustFetch(t, c, a); r.Reused != want {
				t.Errorf("attempt %d: reused = %v, want %v", i, r.Reused, want)
			}
		}
	})
}

// blind hides the descriptor below a connection.
type blind struct{ net.Conn }

// What ended or spoke while idle is seen without a descriptor too.
func TestIdleConnectionEndsUnseen(t *testing.T) {
	cert, _ := identity()
	stray := "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
	for _, scheme := range []string{"http", "https"} {
		for _, tt := range []struct {
			name   string
			then   func(*peer)
			reused bool
		}{
			{"silent", func(p *peer) { always(ok)(p) }, true},
			{"closed", func(*peer) {}, false},
			{"reset", (*peer).reset, false},
			{"a second answer", func(p *peer) { p.say(stray); p.hold() }, false},
		} {
			t.Run(scheme+" "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mem := memnet.New()
					l, err := mem.Listen("127.0.0.1:80")
					if err != nil {
						t.Fatal(err)
					}
					if scheme == "https" {
						l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})
					}
					s := newScriptOn(t, l, func(p *peer) {
						p.request()
						p.say(ok)
						time.Sleep(time.Second)
						tt.then(p)
					}, always(ok))
					cfg := trusting()
					cfg.Dial = memDial(mem)
					c := client(t, cfg)
					to := s.target()
					to.Scheme = scheme
					mustFetch(t, c, attempt(to, "GET", "/1", nil))
					time.Sleep(2 * time.Second)
					began := time.Now()
					if r, body := mustFetch(t, c, attempt(to, "GET", "/2", nil)); r.Reused != tt.reused || body != "ok" {
						t.Errorf("reused = %v with answer %q, want %v with its own", r.Reused, body, tt.reused)
					}
					if took := time.Since(began); took != 0 {
						t.Errorf("the look took %v", took)
					}
				})
			})
		}
	}
}

// The same on connections of the system, as where descriptors cannot be used.
func TestReuseWithoutDescriptor(t *testing.T) {
	for _, tls := range []bool{false, true} {
		cfg := trusting()
		cfg.Dial = func(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
			nc, err := dialTCP(ctx, at)
			return blind{nc}, err
		}
		s := newScript(t, always(ok))
		to := s.target()
		if tls {
			s = newTLSScript(t, nil, always(ok))
			to = s.tlsTarget()
		}
		c := client(t, cfg)
		for i := range 50 {
			if r, body := mustFetch(t, c, attempt(to, "GET", "/", nil)); r.Reused != (i > 0) || body != "ok" {
				t.Fatalf("attempt %d: reused = %v, answer %q", i, r.Reused, body)
			}
		}
	}
}

func TestIdleBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New()
		c := client(t, Config{Dial: memDial(net), IdlePerHost: 2, IdleTotal: 3, IdleTimeout: 10 * time.Second})
		targets := hosts(t, net, 3)
		hold := func(target Target, n int) { // n connections at once, then idle
			var taken []*conn
			for range n {
				l, failed := c.connect(t.Context(), attempt(target, "GET", "/", nil), false)
				if l.conn == nil {
					t.Fatal(failed.Outcome)
				}
				taken = append(taken, l.conn)
			}
			for _, cn := range taken {
				cn.release(true)
			}
		}
		expect := func(what string, want int) {
			t.Helper()
			if open, idle := c.Stats(); open != want || idle != want {
				t.Errorf("%s: Stats = %d, %d, want %d", what, open, idle, want)
			}
		}
		hold(targets[0], 5)
		expect("bound of a host", 2)
		time.Sleep(time.Second)
		hold(targets[1], 2)
		expect("bound of all", 3)
		if n := len(c.pool.hosts[targets[0]].conns); n != 1 {
			t.Errorf("connections of the host used longest ago = %d, want 1", n)
		}
		time.Sleep(9*time.Second - 1)
		synctest.Wait()
		expect("before the timeout of the first", 3)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		expect("at the timeout of the first", 2)
		time.Sleep(time.Second)
		synctest.Wait()
		expect("at the timeout of all", 0)
		if n := len(c.pool.hosts); n != 0 {
			t.Errorf("hosts remembered = %d, want 0", n)
		}
		hold(targets[2], 1)
		c.CloseIdle()
		expect("CloseIdle", 0)
		hold(targets[2], 1)
		expect("after CloseIdle", 1)
		c.Close()
		expect("Close", 0)
		hold(targets[2], 1)
		expect("after Close", 0)
	})
}

// The limits of time, to the nanosecond.
func TestTimes(t *testing.T) {
	silent := func(p *peer) { p.request(); p.hold() }
	body := func(p *peer) {
		p.request()
		p.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
		for range 3 {
			time.Sleep(9 * time.Second)
			p.say("x")
		}
		p.hold()
	}
	stuck := func(p *peer) { p.until("\r\n\r\n"); <-p.t.Context().Done() }
	for _, tt := range []struct {
		name     string
		play     func(*peer)
		set      func(*Attempt)
		want     time.Duration
		phase    classify.Phase
		inBody   bool
		unlisted bool
	}{
		{"header", silent, func(a *Attempt) { a.HeaderTimeout = 15 * time.Second }, 15 * time.Second, classify.PhaseSent, false, false},
		{"deadline before header", silent, func(a *Attempt) {
			a.HeaderTimeout, a.Deadline = 15*time.Second, time.Now().Add(7*time.Second)
		}, 7 * time.Second, classify.PhaseSent, false, false},
		{"upload", stuck, func(a *Attempt) { a.Request.Body, a.BodyIdle = endless(), 10*time.Second }, 20 * time.Second, classify.PhaseSent, false, false},
		{"deadline in the upload", stuck, func(a *Attempt) {
			a.Request.Body, a.Deadline = endless(), time.Now().Add(7*time.Second)
		}, 7 * time.Second, classify.PhaseSent, false, false},
		{"body, each read anew", body, func(a *Attempt) { a.BodyIdle = 10 * time.Second }, 37 * time.Second, 0, true, false},
		{"deadline over before", silent, func(a *Attempt) { a.Deadline = time.Now() }, 0, classify.PhaseNone, false, false},
		{"connect", nil, func(a *Attempt) { a.ConnectTimeout = 5 * time.Second }, 5 * time.Second, classify.PhaseConnect, false, true},
		{"deadline before connect", nil, func(a *Attempt) {
			a.ConnectTimeout, a.Deadline = 5*time.Second, time.Now().Add(3*time.Second)
		}, 3 * time.Second, classify.PhaseConnect, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := memnet.New()
				l, err := net.Listen("127.0.0.1:80")
				if err != nil {
					t.Fatal(err)
				}
				s := newScriptOn(t, l, tt.play)
				if tt.unlisted {
					_ = net.Silence("127.0.0.1:80", true)
				}
				a := attempt(s.target(), "POST", "/", text("b"))
				a.ConnectTimeout, a.HeaderTimeout, a.BodyIdle = 0, 0, 0
				tt.set(a)
				began := time.Now()
				c := client(t, Config{Dial: memDial(net)})
				r, _, err := fetch(c, a)
				if took := time.Since(began); took != tt.want {
					t.Errorf("Send took %v, want %v", took, tt.want)
				}
				if tt.inBody {
					if BodyFault(err) != classify.FaultTimeout {
						t.Errorf("body error = %v, want ErrIdle", err)
					}
					return
				}
				check(t, r, tt.phase, classify.FaultTimeout)
			})
		})
	}
}
