package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/config"
	"retryproxy/idempotency"
)

// blackout ends a rig's proxy and starts it anew over what was left.
type blackout struct {
	r    *rig
	dir  string // of the store
	text string // the configuration
}

// blackouts runs f with a rig whose records are in a file and who may end it.
func blackouts(t *testing.T, f func(r *rig, o *blackout), patch ...string) {
	t.Helper()
	o := &blackout{dir: t.TempDir(), text: caseConfig}
	patch = append([]string{"idempotency: {ttl: 1h}", "idempotency: {ttl: 1h}\nstore: {kind: sqlite, path: '" + o.dir + "', durability: process}"}, patch...)
	for i := 0; i+1 < len(patch); i += 2 {
		o.text = strings.ReplaceAll(o.text, patch[i], patch[i+1])
	}
	bubble(t, func(r *rig) {
		o.r = r
		f(r, o)
	}, patch...)
}

// stop ends the proxy as a restart does.
func (o *blackout) stop() {
	o.r.end()
	o.r.end = func() {}
}

// crash ends the proxy at once: the store keeps what it had, whatever the process
// writes on its way out.
func (o *blackout) crash() {
	o.r.t.Helper()
	before := o.files()
	o.r.kill()
	o.stop()
	for name := range o.files() {
		if err := os.Remove(filepath.Join(o.dir, name)); err != nil {
			o.r.t.Fatal(err)
		}
	}
	for name, data := range before {
		if strings.HasSuffix(name, "-shm") {
			continue // an index of the log, made anew
		}
		if err := os.WriteFile(filepath.Join(o.dir, name), data, 0o600); err != nil {
			o.r.t.Fatal(err)
		}
	}
}

// files are those of the store.
func (o *blackout) files() map[string][]byte {
	o.r.t.Helper()
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		o.r.t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if all[e.Name()], err = os.ReadFile(filepath.Join(o.dir, e.Name())); err != nil {
			o.r.t.Fatal(err)
		}
	}
	return all
}

// holds says whether the store's files have a text in them.
func (o *blackout) holds(text string) bool {
	for _, data := range o.files() {
		if bytes.Contains(data, []byte(text)) {
			return true
		}
	}
	return false
}

// start starts the proxy; edit replaces text of the configuration.
func (o *blackout) start(edit ...string) {
	o.r.t.Helper()
	text := o.text
	for i := 0; i+1 < len(edit); i += 2 {
		if !strings.Contains(text, edit[i]) {
			o.r.t.Fatalf("the configuration has no %q to replace", edit[i])
		}
		text = strings.ReplaceAll(text, edit[i], edit[i+1])
	}
	cfg, err := config.Parse("test.yaml", []byte(text), config.Options{})
	if err != nil {
		o.r.t.Fatal(err)
	}
	o.r.start(cfg, o.r.t.TempDir())
}

// wire is a request as an upstream saw it, without what differs between attempts.
func wire(q request) string {
	var b strings.Builder
	for line := range strings.Lines(string(q.Raw)) {
		if !strings.HasPrefix(line, "Via: ") && !strings.HasPrefix(line, "X-Retry-Count: ") {
			b.WriteString(line)
		}
	}
	return b.String() + string(q.Body)
}

// wantSame checks that an upstream saw n attempts of one call, the same on the wire
// but for the count.
func (r *rig) wantSame(u *scripted, n int) {
	r.t.Helper()
	all := u.seen()
	if len(all) != n {
		r.t.Errorf("requests at %s = %d, want %d", u.name, len(all), n)
	}
	for i, q := range all {
		if diff := cmp.Diff(wire(all[0]), wire(q)); diff != "" {
			r.t.Errorf("attempt %d differs from the first (-want +got):\n%s", i+1, diff)
		}
		want := ""
		if i > 0 {
			want = fmt.Sprint(i)
		}
		r.wantSent(u, i+1, "X-Retry-Count", want)
	}
}

// wantState checks what is kept under the key of the cases.
func (r *rig) wantState(state idempotency.State) {
	r.t.Helper()
	if rec := r.record("k"); rec.State != state {
		r.t.Errorf("the record is %v (%s, executed %v), want %v", rec.State, rec.Reason, rec.Executed, state)
	}
}

// waits503 is an answer after which a call waits two seconds.
var waits503 = answer(503, "", "Retry-After: 2")

// A call that the proxy took to https goes over TLS after a restart as well, and
// never in plain text.
func TestRestartKeepsHTTPS(t *testing.T) {
	ca := newCA(t)
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash ", crash), func(t *testing.T) {
			blackouts(t, func(r *rig, o *blackout) {
				s := r.upstreamTLS("gw.test:443", ca.certificate("gw.test"), waits503, answer(201, "x"))
				p := r.upstream("gw.test:80", answer(201, "plain"))
				r.async(func() reply { return r.post("http://gw.test/orders", "b", keyed, "Authorization: Bearer t") })
				rest(time.Second)
				if crash {
					o.crash()
				} else {
					o.stop()
				}
				o.start("upgrade_to_https: [gw.test]", "upgrade_to_https: []") // it was settled before
				rest(3 * time.Second)
				r.wantSame(s, 2)
				r.wantState(idempotency.StateDone)
				r.want(reply{}, 0, p, 0)
			}, patches(plain, trusting(ca), lays("upgrade_to_https: [gw.test]"))...)
		})
	}
}

// The credentials for the proxy that a client sends in Authorization are neither
// kept nor sent on.
func TestRestartKeepsNoCredentialsOfOurs(t *testing.T) {
	const login = "Ym90MTpvcGVuIHNlc2FtZQ==" // bot1:open sesame
	blackouts(t, func(r *rig, o *blackout) {
		u := r.upstream("u1.test:80", waits503, answer(201, "x"))
		r.async(func() reply {
			return r.origin("POST", "127.0.0.1:18080", "/u1/x", "b", keyed, "Authorization: Basic "+login, "X-Mark: seen in the store")
		})
		rest(time.Second)
		if !o.holds("seen in the store") {
			t.Error("the request is not to be found in the store")
		}
		if o.holds(login) || o.holds("open sesame") {
			t.Error("the store has the password of the client")
		}
		o.stop()
		o.start()
		rest(3 * time.Second)
		r.wantSame(u, 2)
		for i := range u.seen() {
			r.wantSent(u, i+1, "Authorization", "")
			r.wantSent(u, i+1, "X-Mark", "seen in the store")
		}
	}, patches(plain, lays("clients: {users: {bot1: {hash: '"+bcryptOf(t, "open sesame")+"'}}}\nroutes: [{name: u1, prefix: /u1, strip_prefix: true, upstreams: ['http://u1.test']}]"))...)
}

// An upgrade cannot go on without its client: after a kill its key is in doubt.
func TestRestartLeavesUpgradesInDoubt(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		u := r.upstream("u1.test:80", silent, answer(201, "x"))
		r.async(func() reply {
			return r.post("http://u1.test/", "b", keyed, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
		})
		rest(100 * time.Millisecond)
		o.crash()
		o.start()
		rest(3 * time.Second)
		r.want(reply{}, 0, u, 1)
		got := r.post("http://u1.test/", "b", keyed)
		r.want(got, 409, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "in_doubt")
	}, plain...)
}

// A call to a host that ignores keys stays in doubt after a kill, also where its
// route is gone and comes back.
func TestRestartWithoutTheRoute(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		u := r.upstream("gw-api.pinduoduo.com:80", silent, answer(201, "second execution"))
		r.async(func() reply { return r.origin("POST", "127.0.0.1:18080", "/u1/x", "b", keyed) })
		rest(100 * time.Millisecond)
		o.crash()
		o.start("prefix: /u1", "prefix: /u2")
		rest(time.Second)
		r.wantState(idempotency.StateInDoubt)
		r.wantDeadLetter("manual_review", "maybe")
		o.stop()
		o.start()
		got := r.origin("POST", "127.0.0.1:18080", "/u1/x", "b", keyed)
		r.want(got, 409, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "in_doubt")
	}, patches(plain, lays("upgrade_to_https: []\nroutes: [{name: u1, prefix: /u1, strip_prefix: true, upstreams: ['http://gw-api.pinduoduo.com']}]"))...)
}

// A call that was in flight at the second upstream goes on there.
func TestRestartGoesOnAtTheSecondUpstream(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		a := r.closed("a.test:80", answer(201, "at a"))
		b := r.upstream("b.test:80", silent, answer(201, "at b"))
		r.async(func() reply { return r.origin("POST", "127.0.0.1:18080", "/u1/x", "b", keyed) })
		rest(500 * time.Millisecond)
		r.want(reply{}, 0, b, 1)
		a.listen(a.l.Addr().String())
		o.crash()
		o.start()
		rest(3 * time.Second)
		r.want(reply{}, 0, a, 0)
		r.want(reply{}, 0, b, 2)
		r.wantSent(b, 1, "X-Retry-Count", "1")
		r.wantSent(b, 2, "X-Retry-Count", "2")
		r.wantState(idempotency.StateDone)
		got := r.origin("POST", "127.0.0.1:18080", "/u1/x", "b", keyed)
		r.want(got, 201, b, 2)
		r.wantBody(got, "at b")
	}, patches(plain, lays("routes: [{name: u1, prefix: /u1, strip_prefix: true, upstreams: ['http://a.test','http://b.test']}]"))...)
}

// An attempt that went without the key is not repeated because a later
// configuration would send it.
func TestRestartTrustsNoKeyThatWasNotSent(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		u := r.upstream("u1.test:80", silent, answer(201, "x"))
		r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
		rest(100 * time.Millisecond)
		r.wantSent(u, 1, "X-Idempotency-Key", "")
		o.crash()
		o.start("forward_headers: []", "forward_headers: [idempotency_key]")
		rest(3 * time.Second)
		r.wantState(idempotency.StateInDoubt)
		r.want(r.post("http://u1.test/", "b", keyed), 409, u, 1)
	}, with("jitter: none, jitter_ratio: 0, forward_headers: []")...)
}

// What a new configuration would send elsewhere goes on where it began.
func TestRestartGoesOnWhereItBegan(t *testing.T) {
	tunnelled := func(r *rig) {
		c, _, _ := r.connect("shop.test:80")
		_, _ = io.WriteString(c, rawOrigin("POST", "shop.test", "/api/x", "b", keyed))
		rest(time.Second)
		c.Close()
	}
	absolute := func(r *rig) {
		r.async(func() reply { return r.post("http://shop.test/api/x", "b", keyed) })
		rest(time.Second)
	}
	const route = "routes: [{name: shop, host: shop.test, prefix: /, upstreams: ['http://u1.test']}]"
	const other = "routes: [{name: shop, host: shop.test, prefix: /, upstreams: ['http://other.test']}]"
	for _, tt := range []struct {
		name, before, after string
		ask                 func(*rig)
		at                  string
	}{
		{"a route by host", route, route, absolute, "u1.test:80"},
		{"a route by host that leads elsewhere", route, other, absolute, "u1.test:80"},
		{"a route by host that is gone", route, "routes: []", absolute, "u1.test:80"},
		{"a tunnel", "routes: []", other, tunnelled, "shop.test:80"},
		{"a tunnel beside a route", other, other, tunnelled, "shop.test:80"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			blackouts(t, func(r *rig, o *blackout) {
				all := map[string]*scripted{}
				for _, name := range []string{"u1.test:80", "other.test:80", "shop.test:80"} {
					all[name] = r.upstream(name, answer(201, "not here"))
				}
				all[tt.at].script = []step{waits503, answer(201, "x")}
				tt.ask(r)
				o.stop()
				if tt.before == tt.after {
					o.start()
				} else {
					o.start(tt.before, tt.after)
				}
				rest(3 * time.Second)
				r.wantSame(all[tt.at], 2)
				r.wantState(idempotency.StateDone)
				for name, u := range all {
					if name != tt.at {
						r.want(reply{}, 0, u, 0)
					}
				}
			}, patches(plain, lays(tt.before))...)
		})
	}
}
