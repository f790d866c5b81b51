package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/classify"
	"retryproxy/internal/memnet"
)

func TestTLS(t *testing.T) {
	s := newTLSScript(t, []string{"http/1.1"}, always(ok))
	c := client(t, trusting())
	for i := range 2 {
		r, body := mustFetch(t, c, attempt(s.tlsTarget(), "POST", "/", text("b")))
		if body != "ok" || r.Reused != (i > 0) {
			t.Errorf("answer %d = %q, reused %v", i, body, r.Reused)
		}
	}
}

func TestTLSFaults(t *testing.T) {
	accept := func(p *peer) { _ = p.more() }
	plain := func(answer string) func(*testing.T) Target {
		return func(t *testing.T) Target {
			s := newScript(t, func(p *peer) { _ = p.more(); p.say(answer) })
			return s.tlsTarget()
		}
	}
	secured := func(t *testing.T) Target { return newTLSScript(t, nil, accept).tlsTarget() }
	for _, tt := range []struct {
		name   string
		target func(*testing.T) Target
		cfg    Config
		fault  classify.Fault
	}{
		{"plain text", plain("HTTP/1.1 400 Bad Request\r\n\r\n"), trusting(), classify.FaultTLS},
		{"closed in the handshake", plain(""), trusting(), classify.FaultTLS},
		{"reset in the handshake", func(t *testing.T) Target {
			return newScript(t, func(p *peer) { _ = p.more(); p.reset() }).tlsTarget()
		}, trusting(), classify.FaultTLS},
		{"silence", func(t *testing.T) Target { return newScript(t, (*peer).hold).tlsTarget() }, trusting(), classify.FaultTimeout},
		{"unknown authority", secured, Config{}, classify.FaultVerify},
		{"verification cannot be switched off", secured, Config{TLS: &tls.Config{InsecureSkipVerify: true}}, classify.FaultVerify},
		{"other name", func(t *testing.T) Target {
			target := secured(t)
			target.Host = "u2.test"
			return target
		}, func() Config {
			cfg := trusting()
			cfg.Resolve = func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			return cfg
		}(), classify.FaultVerify},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := client(t, tt.cfg)
			a := attempt(tt.target(t), "POST", "/", text("b"))
			if tt.fault == classify.FaultTimeout {
				a.ConnectTimeout = 200 * time.Millisecond
			}
			check(t, c.Send(t.Context(), a), classify.PhaseTLS, tt.fault)
			if open, _ := c.Stats(); open != 0 {
				t.Errorf("open = %d, want 0", open)
			}
		})
	}
}

// Without close_notify a FIN may come from anybody.
func TestTLSWithoutCloseNotify(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*peer)
		want error
	}{
		{"close_notify", func(p *peer) { _ = p.Close() }, nil},
		{"only FIN", func(p *peer) { _ = p.Conn.(*tls.Conn).NetConn().Close() }, ErrTruncated},
	} {
		s := newTLSScript(t, nil, func(p *peer) {
			p.request()
			p.say("HTTP/1.1 200 OK\r\n\r\npart")
			tt.end(p)
		})
		_, body, err := fetch(client(t, trusting()), attempt(s.tlsTarget(), "GET", "/", nil))
		if body != "part" || !errors.Is(err, tt.want) {
			t.Errorf("%s: body = %q, %v, want %v", tt.name, body, err, tt.want)
		}
	}
}

// An alert that came together with the answer is in the TLS layer, where no look
// at the socket finds it.
func TestTLSClosedIdle(t *testing.T) {
	ended := make(chan struct{})
	s := newTLSScript(t, nil, func(p *peer) {
		once(ok)(p)
		_ = p.Close()
		ended <- struct{}{}
	})
	c := client(t, trusting())
	for range 3 {
		r, _ := mustFetch(t, c, attempt(s.tlsTarget(), "GET", "/", nil))
		if r.Reused {
			t.Errorf("a closed connection was used again")
		}
		<-ended
	}
}

func TestAlternate(t *testing.T) {
	got := alternate(addrs(1, "::1", "::2", "::3", "127.0.0.1", "127.0.0.2"))
	want := addrs(1, "::1", "127.0.0.1", "::2", "127.0.0.2", "::3")
	if !slices.Equal(got, want) {
		t.Errorf("alternate = %v, want %v", got, want)
	}
}

// The guard sees every address before it is dialled, IPv4 unwrapped.
func TestGuard(t *testing.T) {
	s := newScript(t, always(ok))
	port := s.target().Port
	resolve := func(texts ...string) func(context.Context, string) ([]netip.Addr, error) {
		return func(context.Context, string) (out []netip.Addr, err error) {
			for _, a := range addrs(0, texts...) {
				out = append(out, a.Addr())
			}
			return out, nil
		}
	}
	for _, tt := range []struct {
		name   string
		host   string
		addrs  []string
		judged []string
		dialed []string
	}{
		{"allowed", "u1.test", []string{"127.0.0.1"}, []string{"127.0.0.1"}, []string{"127.0.0.1"}},
		{"mapped", "u1.test", []string{"::ffff:127.0.0.1"}, []string{"127.0.0.1"}, []string{"127.0.0.1"}},
		{"mapped literal", "::ffff:10.0.0.1", nil, []string{"10.0.0.1"}, nil},
		{"one denied", "u1.test", []string{"10.0.0.1", "127.0.0.1"}, []string{"10.0.0.1", "127.0.0.1"}, []string{"127.0.0.1"}},
		{"all denied", "u1.test", []string{"10.0.0.1", "169.254.169.254"}, []string{"10.0.0.1", "169.254.169.254"}, nil},
		{"EG-04 unspecified", "0.0.0.0", nil, []string{"0.0.0.0"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex
			var judged, dialed []string
			c := client(t, Config{
				Resolve: resolve(tt.addrs...),
				Guard: func(at netip.AddrPort, exempt bool) error {
					judged = append(judged, at.Addr().String())
					if at.Port() != port || !exempt {
						t.Errorf("Guard(%v, %v), want port %d and exempt", at, exempt, port)
					}
					if at.Addr().IsLoopback() {
						return nil
					}
					return errors.New("denied: " + at.String())
				},
				Dial: func(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
					mu.Lock()
					dialed = append(dialed, at.Addr().String())
					mu.Unlock()
					return dialTCP(ctx, at)
				},
			})
			r := c.Send(t.Context(), attempt(Target{Scheme: "http", Host: tt.host, Port: port, Exempt: true}, "GET", "/", nil))
			if tt.dialed == nil {
				check(t, r, classify.PhaseNone, classify.FaultDenied)
			} else if r.Response == nil {
				t.Errorf("Send = %+v, want an answer", r.Outcome)
			}
			if diff := cmp.Diff([][]string{tt.judged, tt.dialed}, [][]string{judged, dialed}); diff != "" {
				t.Errorf("judged, dialled (-want +got):\n%s", diff)
			}
		})
	}
}

// What was dialled for an exempt target does not serve one that is not.
func TestExemptConnectionsAreApart(t *testing.T) {
	s := newScript(t, always(ok))
	c := client(t, Config{Guard: func(_ netip.AddrPort, exempt bool) error {
		if !exempt {
			return errors.New("private")
		}
		return nil
	}})
	target := s.target()
	target.Exempt = true
	mustFetch(t, c, attempt(target, "GET", "/", nil))
	check(t, c.Send(t.Context(), attempt(s.target(), "GET", "/", nil)), classify.PhaseNone, classify.FaultDenied)
}

// dialer plays a network in which each address answers after a while.
func dialer(after map[string]time.Duration, fail map[string]error, open *int) func(context.Context, netip.AddrPort) (net.Conn, error) {
	var mu sync.Mutex
	return func(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
		host := at.Addr().String()
		select {
		case <-time.After(after[host]):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err := fail[host]; err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		*open++
		a, b := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, b); mu.Lock(); *open--; mu.Unlock() }()
		return a, nil
	}
}

func TestDialAny(t *testing.T) {
	const never = time.Hour
	for _, tt := range []struct {
		name  string
		after map[string]time.Duration
		fail  map[string]error
		want  string
		err   error
		took  time.Duration
	}{
		{"first", nil, nil, "::1", nil, 0},
		{"first is dead", map[string]time.Duration{"::1": never}, nil, "127.0.0.1", nil, headStart},
		{"two are dead", map[string]time.Duration{"::1": never, "127.0.0.1": never}, nil, "::2", nil, 2 * headStart},
		{"first refuses", nil, map[string]error{"::1": syscall.ECONNREFUSED}, "127.0.0.1", nil, 0},
		{"first is slow but wins", map[string]time.Duration{"::1": 300 * time.Millisecond, "127.0.0.1": never, "::2": never}, nil, "::1", nil, 300 * time.Millisecond},
		{"all refuse", nil, map[string]error{"::1": syscall.ECONNREFUSED, "127.0.0.1": syscall.ENETUNREACH, "::2": syscall.EHOSTUNREACH}, "::1", syscall.ECONNREFUSED, 0},
		{"ours is told first", nil, map[string]error{"::1": syscall.ECONNREFUSED, "127.0.0.1": syscall.EMFILE, "::2": syscall.EHOSTUNREACH}, "127.0.0.1", syscall.EMFILE, 0},
		{"all are dead", map[string]time.Duration{"::1": never, "127.0.0.1": never, "::2": never}, nil, "", context.DeadlineExceeded, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				open := 0
				c := New(Config{Dial: dialer(tt.after, tt.fail, &open)})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				began := time.Now()
				o := c.dialAny(ctx, addrs(80, "::1", "127.0.0.1", "::2"))
				if tt.want == "" { // whichever noticed first
					tt.want = o.remote.Addr().String()
				}
				if o.remote.Addr().String() != tt.want || !errors.Is(o.err, tt.err) || time.Since(began) != tt.took {
					t.Errorf("dialAny = %v, %v after %v; want %v, %v after %v", o.remote, o.err, time.Since(began), tt.want, tt.err, tt.took)
				}
				if o.nc != nil {
					_ = o.nc.Close()
				}
				synctest.Wait()
				if open != 0 {
					t.Errorf("%d connections were left", open)
				}
			})
		})
	}
}

func TestTunnel(t *testing.T) {
	s := newScript(t, func(p *peer) { p.say(p.until("!")) })
	c := client(t, Config{})
	nc, r := c.Tunnel(t.Context(), s.target(), time.Second)
	if nc == nil {
		t.Fatalf("Tunnel = %+v", r.Outcome)
	}
	defer nc.Close()
	if _, ok := nc.(*net.TCPConn); !ok {
		t.Errorf("Tunnel gave a %T, want a *net.TCPConn that can be spliced", nc)
	}
	_, _ = io.WriteString(nc, "raw!")
	if b, err := io.ReadAll(nc); string(b) != "raw!" || err != nil || r.Remote.String() != s.l.Addr().String() {
		t.Errorf("read %q, %v from %v", b, err, r.Remote)
	}
}

func TestTunnelWithoutTime(t *testing.T) {
	c := client(t, Config{Dial: func(_ context.Context, at netip.AddrPort) (net.Conn, error) {
		t.Errorf("%v was dialled", at)
		return nil, net.ErrClosed
	}})
	for _, left := range []time.Duration{0, -time.Second} {
		_, r := c.Tunnel(t.Context(), Target{Host: "127.0.0.1", Port: 80}, left)
		check(t, r, classify.PhaseNone, classify.FaultTimeout)
	}
}

// memDial connects within an in-memory network.
func memDial(n *memnet.Network) func(context.Context, netip.AddrPort) (net.Conn, error) {
	return func(ctx context.Context, at netip.AddrPort) (net.Conn, error) { return n.Dial(ctx, at.String()) }
}
