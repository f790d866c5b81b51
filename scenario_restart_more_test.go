package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
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

// Nor does such an attempt become safe to repeat by that configuration: it takes no
// connection that may be closing.
func TestRestartSendsWhatWasUnsafeOnAFreshConnection(t *testing.T) {
	for honoured, conns := range map[string]int{"[]": 3, "[idempotency_key]": 2} {
		t.Run(honoured, func(t *testing.T) {
			blackouts(t, func(r *rig, o *blackout) {
				u := r.upstream("u1.test:80", answer(503, "", "Retry-After: 10"), answer(200, "other"), answer(201, "x"))
				r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
				rest(time.Second)
				o.stop()
				o.start("forward_headers: "+honoured, "forward_headers: [idempotency_key]")
				rest(4 * time.Second)
				r.want(r.get("http://u1.test/"), 200, u, 2) // its connection stays, and is too old when the retry comes
				rest(8 * time.Second)
				r.want(reply{}, 0, u, 3)
				r.wantState(idempotency.StateDone)
				if u.count() == 3 && u.seen()[2].Conn != conns {
					t.Errorf("the retry went on connection %d, want %d", u.seen()[2].Conn, conns)
				}
			}, patches(with("jitter: none, jitter_ratio: 0, forward_headers: "+honoured), []string{"deadline: 6s", "deadline: 60s"})...)
		})
	}
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

// A call whose deadline passed while the proxy was dead ends as a dead letter, in
// doubt only where it may have been executed. One that was parked at a shutdown has
// its time still before it.
func TestRestartAfterTheDeadline(t *testing.T) {
	for _, tt := range []struct {
		name, host, executed string
		script               step
		crash                bool
		state                idempotency.State
	}{
		{"it was parked", "u1.test", "", answer(503, "", "Retry-After: 3"), false, idempotency.StateDone},
		{"it waited and was killed", "u1.test", "no", answer(503, "", "Retry-After: 3"), true, idempotency.StateDead},
		{"it was in flight", "gw-api.pinduoduo.com", "maybe", silent, true, idempotency.StateInDoubt},
		{"it was in flight and the key is honoured", "u1.test", "maybe", silent, true, idempotency.StateDead},
	} {
		t.Run(tt.name, func(t *testing.T) {
			blackouts(t, func(r *rig, o *blackout) {
				u := r.upstream(tt.host+":80", tt.script, answer(201, "too late"))
				r.async(func() reply { return r.post("http://"+tt.host+"/", "b", keyed) })
				rest(500 * time.Millisecond)
				if tt.crash {
					o.crash()
				} else {
					o.stop()
				}
				rest(10 * time.Second)
				o.start()
				rest(3 * time.Second)
				r.wantState(tt.state)
				if tt.executed == "" {
					r.want(reply{}, 0, u, 2)
					return
				}
				r.want(reply{}, 0, u, 1)
				all := r.logged("dead letter")
				all = all[max(len(all)-1, 0):] // a kill logs one as well
				if len(all) != 1 || all[0]["executed"] != tt.executed || all[0]["host"] != tt.host+":80" || all[0]["time"] != "2000-01-01T00:00:10.5Z" {
					t.Errorf("dead letters after the restart = %v, want one, executed %s", all, tt.executed)
				}
			}, patches(plain, lays("upgrade_to_https: []"))...)
		})
	}
}

// A call that waits does not hold up the shutdown, nor do those that wait for it:
// all hear that it goes on later.
func TestShutdownParksJoinersToo(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		u := r.upstream("u1.test:80", answer(503, "", "Retry-After: 10"), answer(201, "x"))
		ask := func() reply { return r.post("http://u1.test/", "b", keyed) }
		calls := []<-chan reply{r.async(ask)}
		rest(100 * time.Millisecond)
		calls = append(calls, r.async(ask), r.async(ask))
		rest(time.Second)
		began := time.Now()
		o.stop()
		r.between("time to shut down", time.Since(began), 0, 0)
		for _, call := range calls {
			got := <-call
			r.want(got, 202, u, 1)
			r.wantHeader(got, "X-Retry-Reason", "parked")
			r.wantHeader(got, "X-Retry-Advice", "check")
			r.wantHeader(got, "Retry-After", "9")
		}
		o.start()
		got := ask()
		r.want(got, 201, u, 2)
		r.wantGaps(u, 10*time.Second)
	}, patches(plain, []string{"deadline: 6s", "deadline: 40s"})...)
}

// trickling is an answer without an end: a piece each second, as long as it is read.
type trickling struct {
	step  step
	sent  int           // pieces; to be read by others after ended
	ended chan struct{} // closed: nobody reads it any more
}

func trickle(kind, piece string, most int) *trickling {
	k := &trickling{ended: make(chan struct{})}
	k.step = func(_ *scripted, c net.Conn, _ *request) bool {
		defer close(k.ended)
		_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: "+kind+"\r\n\r\n")
		for ; err == nil && k.sent < most; k.sent++ {
			_, err = io.WriteString(c, piece)
			time.Sleep(time.Second)
		}
		return false
	}
	return k
}

// Of a stream there is no end to wait for: a call without a client ends with its
// header.
func TestRestartDoesNotReadStreams(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		stream := trickle("text/event-stream", "data: x\n\n", 1000)
		u := r.upstream("u1.test:80", waits503, stream.step)
		r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
		rest(time.Second)
		o.stop()
		o.start()
		rest(5 * time.Second)
		r.wantState(idempotency.StateDone)
		if last := r.last(); last.State != "done" || len(r.app.proxy.Calls()) != 1 {
			t.Errorf("the call is %s, want it to be over", last.State)
		}
		rest(time.Minute)
		select {
		case <-stream.ended:
		default:
			t.Errorf("the stream is still being read after %d events", stream.sent)
		}
		if stream.sent > 3 {
			t.Errorf("events sent = %d, want the stream to be cut at once", stream.sent)
		}
		got := r.post("http://u1.test/", "b", keyed)
		r.want(got, 409, u, 2)
		r.wantHeader(got, "X-Retry-Reason", "result_not_kept")
	}, plain...)
}

// Of an answer that is too large to be kept no more is read than it takes to know.
func TestRestartDoesNotReadLargeAnswers(t *testing.T) {
	for _, framing := range []string{"Content-Length: 1073741824", "Connection: close"} {
		t.Run(framing, func(t *testing.T) {
			blackouts(t, func(r *rig, o *blackout) {
				var sent int
				u := r.upstream("u1.test:80", waits503, func(_ *scripted, c net.Conn, _ *request) bool {
					_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n"+framing+"\r\n\r\n")
					for part := make([]byte, 4<<10); err == nil && sent < 64<<20; {
						var n int
						n, err = c.Write(part)
						sent += n
					}
					return false
				})
				r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
				rest(time.Second)
				o.stop()
				o.start()
				rest(5 * time.Second)
				r.wantState(idempotency.StateDone)
				if sent > 1<<20 {
					t.Errorf("bytes sent to nobody = %d, want little more than the 64 KiB that are kept", sent)
				}
				got := r.post("http://u1.test/", "b", keyed)
				r.want(got, 409, u, 2)
				r.wantHeader(got, "X-Retry-Reason", "result_not_kept")
			}, patches(plain, []string{"idempotency: {ttl: 1h}", "idempotency: {ttl: 1h, max_response: 64KiB}"})...)
		})
	}
}

// The client of a durable call gets what there is as it comes, as any other does.
func TestClientOfADurableCallGetsBytesAtOnce(t *testing.T) {
	slow := func(_ *scripted, c net.Conn, _ *request) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range 20 {
			_, _ = io.WriteString(c, "4\r\n{}\r\n\r\n")
			time.Sleep(time.Second)
		}
		_, _ = io.WriteString(c, "0\r\n\r\n")
		return false
	}
	blackouts(t, func(r *rig, _ *blackout) {
		r.upstream("u1.test:80", slow)
		first, got := r.firstByte(rawRequest("POST", "http://u1.test/", "b", keyed))
		r.between("time to the first byte", first, 0, time.Second) // as long as a start is held to be looked at
		r.want(got, 200, nil, 0)
		r.wantState(idempotency.StateDone)
	}, plain...)
}

// A call makes 1 + 3 attempts in all, counted through, with the backoff that is
// due, wherever in it the proxy ends.
func TestRestartGoesOnCounting(t *testing.T) {
	const ms = time.Millisecond
	fails := answer(503, "")
	backoff := []time.Duration{100 * ms, 200 * ms, 400 * ms}
	for _, tt := range []struct {
		name   string
		script []step
		at     []time.Duration // when the proxy ends, since the first attempt
		stops  bool            // by a shutdown
		want   []time.Duration
	}{
		{"killed in attempt 1", []step{silent, fails}, []time.Duration{50 * ms}, false, []time.Duration{150 * ms, 200 * ms, 400 * ms}},
		{"killed in attempt 2", []step{fails, silent, fails}, []time.Duration{150 * ms}, false, []time.Duration{100 * ms, 250 * ms, 400 * ms}},
		{"killed in attempt 3", []step{fails, fails, silent, fails}, []time.Duration{350 * ms}, false, []time.Duration{100 * ms, 200 * ms, 450 * ms}},
		{"killed in attempt 4", []step{fails, fails, fails, silent, fails}, []time.Duration{750 * ms}, false, backoff},
		{"killed before attempt 2", []step{fails}, []time.Duration{50 * ms}, false, backoff},
		{"killed before attempt 3", []step{fails}, []time.Duration{250 * ms}, false, backoff},
		{"killed before attempt 4", []step{fails}, []time.Duration{650 * ms}, false, backoff},
		{"stopped before attempt 2", []step{fails}, []time.Duration{50 * ms}, true, backoff},
		{"stopped before attempt 3", []step{fails}, []time.Duration{250 * ms}, true, backoff},
		{"stopped before attempt 4", []step{fails}, []time.Duration{650 * ms}, true, backoff},
		{"killed before attempts 2, 3 and 4", []step{fails}, []time.Duration{50 * ms, 250 * ms, 650 * ms}, false, backoff},
		{"stopped before attempts 2, 3 and 4", []step{fails}, []time.Duration{50 * ms, 250 * ms, 650 * ms}, true, backoff},
		{"killed in attempts 1 and 2", []step{silent, silent, fails}, []time.Duration{50 * ms, 200 * ms}, false, []time.Duration{150 * ms, 250 * ms, 400 * ms}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			blackouts(t, func(r *rig, o *blackout) {
				u := r.upstream("u1.test:80", tt.script...)
				began := time.Now()
				r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
				for _, at := range tt.at {
					rest(time.Until(began.Add(at)))
					if tt.stops {
						o.stop()
					} else {
						o.crash()
					}
					o.start()
				}
				rest(6 * time.Second)
				r.wantSame(u, 4)
				r.wantGaps(u, tt.want...)
				r.wantState(idempotency.StateDead)
			}, plain...)
		})
	}
}

// What waits at the gate before its first attempt was not sent: it is sent after a
// kill, even where the key is ignored.
func TestRestartSendsWhatWaitedAtTheGate(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		u := r.upstream("gw-api.pinduoduo.com:80", silent, answer(201, "x"))
		r.async(func() reply { return r.post("http://gw-api.pinduoduo.com/slow", "b", "X-Idempotency-Key: other") })
		rest(100 * time.Millisecond)
		r.async(func() reply { return r.post("http://gw-api.pinduoduo.com/", "b", keyed) })
		rest(100 * time.Millisecond)
		r.want(reply{}, 0, u, 1)
		o.crash()
		o.start()
		rest(3 * time.Second)
		r.want(reply{}, 0, u, 2)
		r.wantSent(u, 2, "X-Retry-Count", "")
		r.wantState(idempotency.StateDone)
		got := r.post("http://gw-api.pinduoduo.com/", "b", keyed)
		r.want(got, 201, u, 2)
		r.want(r.post("http://gw-api.pinduoduo.com/slow", "b", "X-Idempotency-Key: other"), 409, u, 2)
	}, patches(plain, lays("upgrade_to_https: []"), []string{"max_in_flight: 100", "max_in_flight: 1"})...)
}

// What waits at the gate before its first attempt when the proxy stops has all its
// attempts left.
func TestShutdownAtTheGateCostsNoAttempt(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		u := r.upstream("u1.test:80", after(900*time.Millisecond, answer(201, "slow")), answer(503, ""))
		r.async(func() reply { return r.post("http://u1.test/slow", "b", "X-Idempotency-Key: other") })
		rest(100 * time.Millisecond)
		call := r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
		rest(100 * time.Millisecond)
		o.stop()
		r.wantHeader(<-call, "X-Retry-Reason", "parked")
		o.start()
		rest(6 * time.Second)
		r.wantGaps(u, 900*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond, 400*time.Millisecond)
		for i, count := range []string{"", "", "1", "2", "3"} {
			r.wantSent(u, i+1, "X-Retry-Count", count)
		}
	}, patches(plain, []string{"max_in_flight: 100", "max_in_flight: 1"})...)
}

// A call from inside an opened tunnel goes on over TLS as the same request,
// whichever version its client spoke.
func TestRestartGoesOnWithInterceptedCalls(t *testing.T) {
	ca := newCA(t)
	for _, tt := range []struct {
		name string
		ask  func(*rig) // until the call waits
	}{
		{"HTTP/1.1", func(r *rig) {
			c := r.open("u1.test:443", visitor{})
			_, _ = io.WriteString(c, rawOrigin("POST", "u1.test", "/orders?x=1", "two books", keyed, "Cookie: a=1", "X-Shop-Id: s1"))
			rest(time.Second)
			c.Close()
		}},
		{"HTTP/2", func(r *rig) {
			c := r.openH2("u1.test:443")
			r.async(func() reply { return c.ask("POST", "/orders?x=1", "two books", keyed, "Cookie: a=1", "X-Shop-Id: s1") })
			rest(time.Second)
			c.Close()
			c.conn.Close()
		}},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, ", crash ", crash), func(t *testing.T) {
				blackouts(t, func(r *rig, o *blackout) {
					u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), waits503, answer(201, "order 1"))
					tt.ask(r)
					if crash {
						o.crash()
					} else {
						o.stop()
					}
					o.start()
					rest(3 * time.Second)
					r.wantSame(u, 2)
					r.wantGaps(u, 2*time.Second)
					if got := r.last().Mode; got != "intercept" {
						t.Errorf("mode of the call that went on = %s, want intercept", got)
					}
					got := r.secretly("POST", "https://u1.test/orders?x=1", "two books", keyed, "Cookie: a=1", "X-Shop-Id: s1")
					r.want(got, 201, u, 2)
					r.wantBody(got, "order 1")
				}, patches(plain, opening(ca, "[u1.test]"))...)
			})
		}
	}
}

// What a client was given is in the store by then: a kill right after it costs no
// second execution, whatever the size and framing of the answer.
func TestKillAfterTheAnswer(t *testing.T) {
	const url = "http://gw-api.pinduoduo.com/"
	for _, size := range []int{1, 70 << 10, 900 << 10} {
		body := strings.Repeat("x", size)
		for framing, text := range map[string]string{
			"length":  fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, body),
			"chunked": fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", size, body),
			"close":   "Connection: close\r\n\r\n" + body,
		} {
			t.Run(fmt.Sprint(size, " bytes, ", framing), func(t *testing.T) {
				blackouts(t, func(r *rig, o *blackout) {
					u := r.upstream("gw-api.pinduoduo.com:80", raw("HTTP/1.1 201 Created\r\n"+text))
					r.wantBody(r.post(url, "b", keyed), body)
					o.crash()
					o.start()
					got := r.post(url, "b", keyed)
					r.want(got, 201, u, 1)
					r.wantBody(got, body)
					r.wantHeader(got, "Idempotency-Replayed", "true")
				}, patches(plain, lays("upgrade_to_https: []"))...)
			})
		}
	}
}

// A kill in the middle of an answer is one in flight: repeated where the key is
// honoured, in doubt where it is not.
func TestKillInTheAnswer(t *testing.T) {
	for host, want := range map[string]struct {
		sent  int
		state idempotency.State
	}{
		"u1.test":              {2, idempotency.StateDone},
		"gw-api.pinduoduo.com": {1, idempotency.StateInDoubt},
	} {
		t.Run(host, func(t *testing.T) {
			blackouts(t, func(r *rig, o *blackout) {
				u := r.upstream(host+":80", func(s *scripted, c net.Conn, q *request) bool {
					_, _ = io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Length: 400000\r\n\r\n"+strings.Repeat("x", 300000))
					return silent(s, c, q)
				}, answer(201, "order 1"))
				call := r.async(func() reply { return r.post("http://"+host+"/", "b", keyed) })
				rest(2 * time.Second)
				o.crash()
				if got := <-call; got.Err == nil {
					t.Error("the client took half an answer for a whole one")
				}
				o.start()
				rest(3 * time.Second)
				r.want(reply{}, 0, u, want.sent)
				r.wantState(want.state)
			}, patches(plain, lays("upgrade_to_https: []"))...)
		})
	}
}

// Fields, trailers and a body larger than the memory for one are the same after a
// restart; what was meant for this hop stays here.
func TestRestartSendsTheSameRequest(t *testing.T) {
	body := strings.Repeat("0123456789", 300<<10)
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash ", crash), func(t *testing.T) {
			blackouts(t, func(r *rig, o *blackout) {
				u := r.upstream("u1.test:80", waits503, answer(201, "x"))
				r.async(func() reply {
					return r.ask("POST http://u1.test/a;b?%zz+ HTTP/1.1\r\nHost: U1.test\r\n" + keyed + "\r\nTE: trailers\r\n" +
						"Connection: TE, X-Hop\r\nX-Hop: secret\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n" +
						"Content-Encoding: gzip\r\nCookie: a=1\r\nCookie: b=2\r\nProxy-Authorization: Basic c2hvcD1zOTp4\r\n\r\n" +
						fmt.Sprintf("%x\r\n%s\r\n0\r\nX-Sum: 9\r\n\r\n", len(body), body))
				})
				rest(time.Second)
				if o.holds("X-Hop") || o.holds("c2hvcD1zOTp4") {
					t.Error("the store has fields that were meant for this hop")
				}
				if crash {
					o.crash()
				} else {
					o.stop()
				}
				o.start()
				rest(3 * time.Second)
				r.wantSame(u, 2)
				for i, q := range u.seen() {
					if q.Line != "POST /a;b?%zz+ HTTP/1.1" || string(q.Body) != body {
						t.Errorf("request %d = %s with %d bytes, want the client's", i+1, q.Line, len(q.Body))
					}
					r.wantSent(u, i+1, "Cookie", "a=1 | b=2")
					r.wantSent(u, i+1, "Trailer:X-Sum", "9")
					r.wantSent(u, i+1, "X-Hop", "")
				}
			}, plain...)
		})
	}
}

// An answer that trickles without an end, and is no event stream, is not read for
// ever for nobody: a marker is left of it.
func TestRestartDoesNotReadEndlessAnswers(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		lines := trickle("application/x-ndjson", "{}\n", 10000)
		r.upstream("u1.test:80", waits503, lines.step)
		r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
		rest(time.Second)
		o.stop()
		o.start()
		rest(2 * time.Minute)
		if s := r.record("k").State; s == idempotency.StateRunning {
			t.Errorf("after two minutes the record is %v, %d lines read", s, lines.sent)
		}
	}, plain...)
}
