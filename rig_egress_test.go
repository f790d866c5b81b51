package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/config"
	"retryproxy/internal/egresstest"
)

// exit is an egress proxy of a rig. What it carries reaches the upstreams from
// its own address, so that they see who leaves by it.
type exit struct {
	r      *rig
	addr   netip.AddrPort
	config egresstest.Config
	record egresstest.Record
	wrap   func(net.Listener) net.Listener // TLS; nil: none
	conns  atomic.Int32                    // made to it, over its whole life
	stop   func()
}

// exit listens on addr (10.0.0.1:1080) and opens every way that it is asked for,
// unless shape says otherwise.
func (r *rig) exit(addr string, shape ...func(*exit)) *exit {
	r.t.Helper()
	e := &exit{r: r, addr: netip.MustParseAddrPort(addr)}
	e.config.Record, e.config.Dial = &e.record, e.dial
	for _, f := range shape {
		f(e)
	}
	e.up()
	stop := r.stop
	r.stop = func() { stop(); e.down() }
	return e
}

// up lets it listen, down ends it with all that it carries.
func (e *exit) up() {
	e.r.t.Helper()
	l, err := e.r.net.Listen(e.addr.String())
	if err != nil {
		e.r.t.Fatal(err)
	}
	l = &counting{l, &e.conns}
	if e.wrap != nil {
		l = e.wrap(l)
	}
	e.stop = egresstest.Serve(l, e.config)
}

func (e *exit) down() {
	if e.stop != nil {
		e.stop()
		e.stop = nil
	}
}

// dial reaches an upstream of the rig as everybody else does, by its name.
func (e *exit) dial(ctx context.Context, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if a, ok := e.r.hosts[host]; ok {
		addr = net.JoinHostPort(a.String(), port)
	}
	return e.r.net.DialFrom(ctx, e.addr.Addr(), addr)
}

// targets are what it was asked for, in order.
func (e *exit) targets() (out []string) {
	for _, c := range e.record.Calls() {
		out = append(out, c.Target)
	}
	return out
}

// asked is how often it was asked.
func (e *exit) asked() int { return len(e.record.Calls()) }

// wantAsked checks how often an exit was asked.
func (r *rig) wantAsked(e *exit, n int) {
	r.t.Helper()
	synctest.Wait()
	if got := e.targets(); len(got) != n {
		r.t.Errorf("%s was asked for %q, want %d", e.addr, got, n)
	}
}

// wantUser checks by whose name every way through e was asked for.
func (r *rig) wantUser(e *exit, user string) {
	r.t.Helper()
	calls := e.record.Calls()
	for _, c := range calls {
		if c.User != user {
			r.t.Errorf("%s was asked by %q, want %q", e.addr, c.User, user)
		}
	}
	if len(calls) == 0 {
		r.t.Errorf("%s was never asked, want it asked by %q", e.addr, user)
	}
}

// counting is a listener that counts.
type counting struct {
	net.Listener
	n *atomic.Int32
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

// Shapes of an exit.

// demands a user and password.
func demands(user, password string) func(*exit) {
	return func(e *exit) { e.config.User, e.config.Password = user, password }
}

// answers says a status instead of opening the way, from request n on.
func answers(from, status int) func(*exit) {
	return func(e *exit) {
		var n atomic.Int32
		e.config.Answer = func(string, string) (int, bool) { return status, int(n.Add(1)) >= from }
	}
}

// secured is spoken to by https.
func secured(cert tls.Certificate) func(*exit) {
	return func(e *exit) {
		e.wrap = func(l net.Listener) net.Listener {
			return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})
		}
	}
}

// whence answers with the address that the call came from: an exit's, or ours.
func whence(s *scripted, c net.Conn, req *request) bool {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	return answer(200, host)(s, c, req)
}

// ourselves is what whence says of a call that went directly.
const ourselves = "127.0.0.1"

// outward records the addresses that the product reaches.
type outward struct {
	mu  sync.Mutex
	all []string
}

// outward begins to record; it is called before the first call.
func (r *rig) outward() *outward {
	o := &outward{}
	r.dialled = func(c net.Conn) (net.Conn, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = append(o.all, c.RemoteAddr().String())
		return c, nil
	}
	return o
}

// wantOnly checks that nothing but these addresses was dialled.
func (r *rig) wantOnly(o *outward, addrs ...string) {
	r.t.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if got := int(r.dials.Load()); got != len(o.all) {
		r.t.Errorf("%d dials, %d of them reached somebody (%v)", got, len(o.all), o.all)
	}
	for _, a := range o.all {
		if !containsAll(addrs, []string{a}) {
			r.t.Errorf("dialled %s, want only %v", a, addrs)
		}
	}
}

// egressed bubbles with egress rules.
func egressed(t *testing.T, rules string, f func(*rig), patch ...[]string) {
	t.Helper()
	bubble(t, f, patches(append(patch, lays(rules))...)...)
}

// bubbleEnv is bubble with variables of the environment: the configuration that
// uses them is laid over by a reload before anything runs.
func bubbleEnv(t *testing.T, env map[string]string, keys string, f func(*rig)) {
	t.Helper()
	patch := lays(keys)
	text := strings.Replace(caseConfig, patch[0], patch[1], 1)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, caseConfig, func(a *app) {
			a.parse = func(data []byte) (*config.Config, error) {
				return config.Parse("test.yaml", data, config.Options{Getenv: func(name string) string { return env[name] }})
			}
			if err := a.apply([]byte(text)); err != nil {
				t.Fatal(err)
			}
		})
		f(r)
		r.close()
	})
}

// reload puts other keys over the configuration of the cases into force.
func (r *rig) reload(keys string, patch ...string) {
	r.t.Helper()
	r.applies(append(lays(keys), patch...)...)
}

// shownCall is a call as the admin API shows it.
type shownCall struct {
	ID, State, Cause, Reason, Detail string
	NextAt                           *time.Time `json:"next_at"`
	Attempts                         []struct {
		Class, Reason, Basis, Executed, Egress, Detail string
		Status                                         int
	}
}

// shown are the calls that the admin API shows.
func (r *rig) shown() (out []shownCall) {
	r.t.Helper()
	synctest.Wait()
	r.admin("GET", "/api/v1/calls", "", &out)
	return out
}

// shownExit is the breaker of an exit as the admin API shows it.
type shownExit struct {
	Name, State, Reason string
	Until               time.Time
	Row                 int `json:"consecutive_failures"`
	Failures            int
}

// exits are the breakers of exits by name.
func (r *rig) exits() map[string]shownExit {
	r.t.Helper()
	synctest.Wait()
	var v struct{ Egress []shownExit }
	r.admin("GET", "/api/v1/breakers", "", &v)
	out := map[string]shownExit{}
	for _, e := range v.Egress {
		out[e.Name] = e
	}
	return out
}

// wantExit checks the state of one exit's breaker.
func (r *rig) wantExit(name, state string) {
	r.t.Helper()
	if got := r.exits()[name]; got.State != state {
		r.t.Errorf("breaker of %q = %+v, want %s; there are %v", name, got, state, r.exits())
	}
}

// shop is the header of a shop.
func shop(name string) string { return "X-Shop-Id: " + name }
