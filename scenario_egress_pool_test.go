package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// pool is three proxies, of which shop s1 belongs to the one that order(s1) names
// first.
func pool(onFailure string) string {
	return `egress:
  - name: pool
    match: {shop: "*"}
    pool: ["http://10.0.0.1:3128", "http://10.0.0.2:3128", "http://10.0.0.3:3128"]
    on_failure: ` + onFailure
}

// members are the three proxies of a pool as a shop goes through them.
func (r *rig) members(shopName string) (out []*exit) {
	r.t.Helper()
	all := map[string]*exit{}
	for i := 1; i <= 3; i++ {
		e := r.exit(fmt.Sprintf("10.0.0.%d:3128", i))
		all[e.addr.Addr().String()] = e
	}
	way, err := r.app.ways.egress.Way(shopName, "", "u1.test:80")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range way.Exits {
		_, host, _ := e.Proxy()
		out = append(out, all[host])
	}
	return out
}

// ip is the address that an upstream sees.
func (e *exit) ip() string { return e.addr.Addr().String() }

// name is that of the exit in rule pool.
func (e *exit) name() string { return "pool (" + e.addr.String() + ")" }

// A shop stays on its address whatever happens, when nobody allowed it to move.
func TestShopStaysOnItsAddress(t *testing.T) {
	egressed(t, pool("stay"), func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		own := r.members("s1")[0]
		own.down()
		for range 6 { // the breaker opens on the way
			got := r.get("http://u1.test/", shop("s1"), "X-Request-Timeout: 1")
			if got.Status < 500 {
				t.Errorf("status = %d %s, want a failure", got.Status, got.Body)
			}
		}
		r.want(reply{}, 0, u, 0)
		r.wantMetric(0, "egress_moves_total")
		rest(3 * time.Second)
		own.up()
		got := r.get("http://u1.test/", shop("s1"))
		r.want(got, 200, u, 1)
		r.wantBody(got, own.ip())
	})
}

// With on_failure: next a call moves when nothing was sent, says so everywhere,
// and the next one goes back to its own address when that works again.
func TestPoolMovesOnFailure(t *testing.T) {
	egressed(t, pool("next"), func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		m := r.members("s1")
		m[0].down()
		got := r.post("http://u1.test/", "{}", shop("s1"))
		r.want(got, 200, u, 1)
		r.wantBody(got, m[1].ip())
		r.wantEnd("recovered", "ok", 2)
		call := r.shown()[0]
		if by := []string{call.Attempts[0].Egress, call.Attempts[1].Egress}; by[0] != m[0].name() || by[1] != m[1].name() {
			t.Errorf("attempts by %q, want %q then %q", by, m[0].name(), m[1].name())
		}
		lines := r.logged("egress moved")
		if len(lines) != 1 || lines[0]["from"] != m[0].name() || lines[0]["to"] != m[1].name() || lines[0]["shop"] != "s1" || lines[0]["reason"] != "egress_unreachable" {
			t.Errorf("logged moves = %v, want one from the own address to the next", lines)
		}
		if text := fmt.Sprint(r.logged("call")[0]); !strings.Contains(text, m[0].name()) || !strings.Contains(text, m[1].name()) {
			t.Errorf("the call's line is %s, want both addresses", text)
		}
		r.wantMetric(1, "egress_moves_total")

		m[1].down()
		got = r.post("http://u1.test/", "{}", shop("s1"))
		r.want(got, 200, u, 2)
		r.wantBody(got, m[2].ip())
		r.wantMetric(3, "egress_moves_total")

		m[0].up()
		got = r.post("http://u1.test/", "{}", shop("s1"))
		r.want(got, 200, u, 3)
		r.wantBody(got, m[0].ip())
		r.wantEnd("success", "ok", 1)
		r.wantMetric(3, "egress_moves_total")
	})
}

// While the own address is cut off a call moves before its first attempt, and
// comes back with the probe.
func TestPoolMovesFromAnAddressThatIsCutOff(t *testing.T) {
	egressed(t, pool("next"), func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		m := r.members("s1")
		m[0].down()
		for range 5 {
			r.wantBody(r.get("http://u1.test/", shop("s1")), m[1].ip())
		}
		r.wantExit(m[0].name(), "open")
		got := r.get("http://u1.test/", shop("s1"))
		r.wantBody(got, m[1].ip())
		r.wantEnd("success", "ok", 1)
		r.between("time of a call that moved ahead", got.Took, 0, 0)
		lines := r.logged("egress moved")
		if last := lines[len(lines)-1]; last["reason"] != "breaker_open" {
			t.Errorf("logged %v, want breaker_open as the reason", last)
		}
		m[0].up()
		rest(2 * time.Second)
		r.wantBody(r.get("http://u1.test/", shop("s1")), m[0].ip())
		r.wantExit(m[0].name(), "closed")
		r.want(reply{}, 0, u, 7)
	})
}

// All members are cut off: the call waits for a probe of its own one and no longer,
// and goes round none of them.
func TestPoolThatIsCutOff(t *testing.T) {
	egressed(t, pool("next"), func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		m := r.members("s1")
		for _, e := range m {
			e.down()
		}
		for range 5 {
			r.get("http://u1.test/", shop("s1"), "X-Request-Timeout: 1")
		}
		for _, e := range m {
			r.wantExit(e.name(), "open")
			e.up()
		}
		moves := len(r.logged("egress moved"))
		got := r.get("http://u1.test/", shop("s1"))
		r.want(got, 200, u, 1)
		r.wantBody(got, m[0].ip())
		r.wantEnd("success", "ok", 1)
		if n := len(r.logged("egress moved")) - moves; n != 0 || moves == 0 {
			t.Errorf("logged moves = %d and %d while all are cut off, want some and none", moves, n)
		}
		if got.Took > 2*time.Second {
			t.Errorf("time of the call = %v, want at most the 2 s to a probe", got.Took)
		}
	})
}

// Once something was sent nothing moves the call, for the platform would see two
// addresses: not after a reset, not even for a GET; not after its refusal.
func TestPoolStaysOnceSomethingWasSent(t *testing.T) {
	for name, tt := range map[string]struct {
		method   string
		does     step
		executed string
	}{
		"GET after a reset":            {"GET", hangUp, "maybe"},
		"keyed POST after a reset":     {"POST", hangUp, "maybe"},
		"GET after 500":                {"GET", answer(500, ""), "maybe"},
		"GET after 503":                {"GET", answer(503, ""), "no"},
		"POST after 429":               {"POST", answer(429, ""), "no"},
		"GET after a truncated answer": {"GET", raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), "maybe"},
	} {
		t.Run(name, func(t *testing.T) {
			egressed(t, pool("next"), func(r *rig) {
				m := r.members("s1")
				u := r.upstream("u1.test:80", func(s *scripted, c net.Conn, req *request) bool {
					time.AfterFunc(10*time.Millisecond, m[0].down) // it dies once it has brought the answer
					return tt.does(s, c, req) && false
				})
				headers := []string{shop("s1")}
				if strings.Contains(name, "keyed") {
					headers = append(headers, "X-Idempotency-Key: k")
				}
				got := r.do(tt.method, "http://u1.test/", "", headers...)
				r.want(got, got.Status, u, 1)
				r.wantHeader(got, "X-Retry-Executed", tt.executed)
				r.wantAsked(m[1], 0)
				r.wantAsked(m[2], 0)
				r.wantMetric(0, "egress_moves_total")
				for i, a := range r.shown()[0].Attempts {
					if a.Egress != m[0].name() {
						t.Errorf("attempt %d went by %s, want the own address %s", i+1, a.Egress, m[0].name())
					}
				}
				if n := len(r.last().Attempts); n < 2 {
					t.Errorf("attempts = %d, want retries that could have moved", n)
				}
			})
		})
	}
}

// The same shop gets the same address over a reload and a restart, and shops are
// spread over all.
func TestShopsKeepTheirAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		patch := lays(pool("stay"))
		text := strings.Replace(caseConfig, patch[0], patch[1], 1)
		addresses := func(r *rig) map[string]string {
			out := map[string]string{}
			for i := range 40 {
				name := fmt.Sprintf("shop-%d", i)
				out[name] = r.get("http://u1.test/", shop(name)).Body
			}
			return out
		}
		r := newRig(t, text)
		r.upstream("u1.test:80", whence)
		r.members("s1")
		first := addresses(r)
		counts := map[string]int{}
		for _, ip := range first {
			counts[ip]++
		}
		for _, ip := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
			if counts[ip] < 5 {
				t.Errorf("shops by address = %v, want them spread over three", counts)
			}
		}
		r.reload(pool("stay"), "max_retries: 3", "max_retries: 2")
		if diff := cmp.Diff(first, addresses(r)); diff != "" {
			t.Errorf("addresses after a reload (-want +got):\n%s", diff)
		}
		r.close()
		r = newRig(t, text)
		r.upstream("u1.test:80", whence)
		r.members("s1")
		if diff := cmp.Diff(first, addresses(r)); diff != "" {
			t.Errorf("addresses after a restart (-want +got):\n%s", diff)
		}
		r.close()
	})
}

// Two users of one proxy in a pool are two identities: that one is refused says
// nothing about the other, and they can be told apart.
func TestUsersOfOneProxyInAPool(t *testing.T) {
	const rules = `egress:
  - {name: acc, match: {shop: "*"}, pool: ["http://one:pw@10.0.0.1:3128", "http://two:pw@10.0.0.1:3128"], on_failure: next}`
	egressed(t, rules, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		r.exit("10.0.0.1:3128", demands("two", "pw"))
		for i := range 40 {
			name := shop("s" + string(rune('A'+i)))
			r.want(r.post("http://u1.test/", "{}", name), 200, u, i+1)
		}
		lines := r.logged("egress moved")
		if len(lines) == 0 || lines[0]["from"] == lines[0]["to"] {
			t.Errorf("logged moves = %.300v, want them from one to the other", lines)
		}
		if n := len(r.exits()); n != 2 {
			t.Errorf("breakers = %v, want one for each user", r.exits())
		}
	})
}
